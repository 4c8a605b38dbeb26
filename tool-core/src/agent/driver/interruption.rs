//! Interrupts work in flight at the time limit and on cancellation.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{self, Either};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::RunDriver;

/// The reason that work in flight was dropped.
pub(super) enum Interruption {
    TimeLimit,
    Cancelled,
}

impl RunDriver {
    pub(super) fn time_left(&self) -> Option<Duration> {
        let since = self.clock.map_or(Duration::ZERO, |clock| clock.elapsed());
        self.run.time_left().map(|left| left.saturating_sub(since))
    }

    /// Returns the time that is left to judge an answer or an outcome, which the end of the run does not extend.
    pub(super) fn time_left_to_judge(&self) -> Option<Duration> {
        if self.run.is_cancelled() {
            return Some(Duration::ZERO);
        }
        let since = self.clock.map_or(Duration::ZERO, |clock| clock.elapsed());
        let limit = self.run.limits().max_time?;
        Some(limit.saturating_sub(self.run.elapsed()).saturating_sub(since))
    }

    /// Reports the time since the last update to the run.
    pub(super) fn update_elapsed(&mut self) {
        let now = Instant::now();
        if let Some(clock) = self.clock.replace(now) {
            self.run.add_elapsed(now - clock);
        }
    }

    /// Polls the future until it completes or the run is interrupted. Undoing calls is not interrupted.
    pub(super) fn run_until_interrupted<'a, F>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Interruption>> + Send + use<'a, F>
    where
        F: Future<Output: Send> + Send + 'a,
    {
        let cancellation = self.question.cancellation.as_ref().filter(|_| !self.run.is_undoing());
        run_until_interrupted(future, cancellation, self.time_left())
    }

    pub(super) fn interrupt(&mut self, interruption: &Interruption) {
        self.has_unsaved_changes = true;
        self.trace.interrupt();
        match interruption {
            Interruption::TimeLimit => {
                self.update_elapsed();
                // The timer and the clock can differ slightly.
                self.run.add_elapsed(self.run.time_left().unwrap_or_default());
            }
            Interruption::Cancelled => self.run.cancel(),
        }
    }
}

/// Polls the future until it completes, the token is cancelled or the time is up. Without a token and a limit it adds nothing
/// to the size of the future, because runs that wait are as large as what they await.
pub(super) fn run_until_interrupted<'a, F>(
    future: F,
    cancellation: Option<&CancellationToken>,
    time_left: Option<Duration>,
) -> impl Future<Output = Result<F::Output, Interruption>> + Send + use<'a, F>
where
    F: Future<Output: Send> + Send + 'a,
{
    if cancellation.is_none() && time_left.is_none() {
        return future.map(Ok).left_future();
    }
    let cancellation = cancellation.cloned();
    let interruption = async move {
        let cancelled = async {
            match &cancellation {
                Some(cancellation) => cancellation.cancelled().await,
                None => future::pending().await,
            }
        };
        let time_limit = async {
            match time_left {
                // Without a runtime, the limit is checked between two steps.
                Some(left) if tokio::runtime::Handle::try_current().is_ok() => tokio::time::sleep(left).await,
                _ => future::pending().await,
            }
        };
        match future::select(pin!(cancelled), pin!(time_limit)).await {
            Either::Left(_) => Interruption::Cancelled,
            Either::Right(_) => Interruption::TimeLimit,
        }
    };
    let first = future::select(future.boxed(), interruption.boxed()).map(|first| match first {
        Either::Left((value, _)) => Ok(value),
        Either::Right((interruption, _)) => Err(interruption),
    });
    first.right_future()
}
