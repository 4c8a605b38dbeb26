//! Work for a run that is awaited without it.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::agent::RunDriver;
use crate::agent::interruption::run_until_interrupted;
use crate::run::RunErrorKind;

/// Work for a run, which owns what it needs, and what follows from it for the run. A job that is dropped has changed nothing.
pub(super) struct Job<T = ()>(pub(super) BoxFuture<'static, Apply<T>>);

/// Applies what follows from a job.
pub(super) type Apply<T> = Box<dyn FnOnce(&mut RunDriver) -> Result<Applied<T>, RunErrorKind> + Send>;

/// What follows from a job.
pub(super) enum Applied<T = ()> {
    Done(T),
    Next(Job<T>),
}

impl<T: 'static> Job<T> {
    pub(super) fn new<R: Send + 'static>(
        work: impl Future<Output = R> + Send + 'static,
        apply: impl FnOnce(&mut RunDriver, R) -> Result<T, RunErrorKind> + Send + 'static,
    ) -> Self {
        Self::with_next(work, |driver, result| apply(driver, result).map(Applied::Done))
    }

    pub(super) fn with_next<R: Send + 'static>(
        work: impl Future<Output = R> + Send + 'static,
        apply: impl FnOnce(&mut RunDriver, R) -> Result<Applied<T>, RunErrorKind> + Send + 'static,
    ) -> Self {
        let work = async move {
            let result = work.await;
            let apply: Apply<T> = Box::new(move |driver| apply(driver, result));
            apply
        };
        Self(work.boxed())
    }

    /// Goes on with what a job returns.
    pub(super) fn then<U: 'static>(
        self,
        next: impl FnOnce(&mut RunDriver, T) -> Result<U, RunErrorKind> + Send + 'static,
    ) -> Job<U> {
        self.then_result(|driver, result| next(driver, result?))
    }

    /// Goes on with what a job returns, also if it fails.
    pub(super) fn then_result<U: 'static>(
        self,
        next: impl FnOnce(&mut RunDriver, Result<T, RunErrorKind>) -> Result<U, RunErrorKind> + Send + 'static,
    ) -> Job<U> {
        let work = self.0.map(|apply| {
            let apply: Apply<U> = Box::new(move |driver| match apply(driver) {
                Ok(Applied::Done(done)) => next(driver, Ok(done)).map(Applied::Done),
                Ok(Applied::Next(job)) => Ok(Applied::Next(job.then_result(next))),
                Err(kind) => next(driver, Err(kind)).map(Applied::Done),
            });
            apply
        });
        Job(work.boxed())
    }

    /// Drops the work on cancellation and when the time is up. The run is interrupted then, and the job returns nothing.
    pub(super) fn until_interrupted(
        self,
        cancellation: Option<&CancellationToken>,
        time_left: Option<Duration>,
    ) -> Job<Option<T>> {
        let work = run_until_interrupted(self.0, cancellation, time_left);
        Job::with_next(work, |driver, apply| match apply {
            Ok(apply) => Ok(match apply(driver)? {
                Applied::Done(done) => Applied::Done(Some(done)),
                Applied::Next(job) => Applied::Next(job.then(|_, done| Ok(Some(done)))),
            }),
            Err(interruption) => {
                driver.interrupt(&interruption);
                Ok(Applied::Done(None))
            }
        })
    }
}

impl RunDriver {
    /// Awaits a job, and applies what follows from it.
    pub(super) async fn perform<T>(&mut self, mut job: Job<T>) -> Result<T, RunErrorKind> {
        loop {
            let apply = job.0.await;
            self.count_time();
            match apply(self)? {
                Applied::Done(done) => return Ok(done),
                Applied::Next(next) => job = next,
            }
        }
    }
}
