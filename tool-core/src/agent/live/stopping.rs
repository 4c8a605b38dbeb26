//! What gives up what is under way: the limit of time, and whoever cancels.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{self, Either};

use crate::agent::RunDriver;
use crate::tool::CancellationToken;

/// Why what was under way is given up.
pub(super) enum Stop {
    OutOfTime,
    Cancelled,
}

impl RunDriver {
    pub(super) fn time_left(&self) -> Option<Duration> {
        let since = self.clock.map_or(Duration::ZERO, |clock| clock.elapsed());
        self.run.time_left().map(|left| left.saturating_sub(since))
    }

    pub(super) fn count_time(&mut self) {
        let now = Instant::now();
        if let Some(clock) = self.clock.replace(now) {
            self.run.add_elapsed(now - clock);
        }
    }

    /// What is undone is undone to its end.
    pub(super) fn unless_stopped<'a, F>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Stop>> + Send + use<'a, F>
    where
        F: Future<Output: Send> + Send + 'a,
    {
        let cancelled_by = self.cancelled_by.as_ref().filter(|_| !self.run.is_undoing());
        unless_stopped(future, cancelled_by, self.time_left())
    }

    pub(super) fn stop(&mut self, stop: &Stop) {
        self.is_changed = true;
        self.trace.stopped();
        match stop {
            Stop::OutOfTime => {
                self.count_time();
                // A timer and the clock may differ by a little.
                self.run.add_elapsed(self.run.time_left().unwrap_or_default());
            }
            Stop::Cancelled => self.run.cancel(),
        }
    }
}

/// What nothing can stop takes no room for it: a run that waits is as large as what it awaits.
pub(super) fn unless_stopped<'a, F>(
    future: F,
    cancelled_by: Option<&CancellationToken>,
    time_left: Option<Duration>,
) -> impl Future<Output = Result<F::Output, Stop>> + Send + use<'a, F>
where
    F: Future<Output: Send> + Send + 'a,
{
    if cancelled_by.is_none() && time_left.is_none() {
        return future.map(Ok).left_future();
    }
    let cancelled = cancelled_by.map(CancellationToken::cancelled);
    let stop = async move {
        let cancelled = match cancelled {
            Some(cancelled) => cancelled.left_future(),
            None => future::pending().right_future(),
        };
        let out_of_time = async {
            match time_left {
                // Without timers the limit is looked at between two steps.
                Some(left) if tokio::runtime::Handle::try_current().is_ok() => tokio::time::sleep(left).await,
                _ => future::pending().await,
            }
        };
        match future::select(cancelled, pin!(out_of_time)).await {
            Either::Left(_) => Stop::Cancelled,
            Either::Right(_) => Stop::OutOfTime,
        }
    };
    let first = future::select(future.boxed(), stop.boxed()).map(|first| match first {
        Either::Left((value, _)) => Ok(value),
        Either::Right((stop, _)) => Err(stop),
    });
    first.right_future()
}
