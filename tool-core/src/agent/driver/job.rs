//! Work for a run that is awaited without it.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::agent::RunDriver;
use crate::run::RunErrorKind;

/// Work for a run, which owns what it needs, and what follows from it for the run. A job that is dropped has changed nothing.
pub(super) struct Job<T = ()>(BoxFuture<'static, Apply<T>>);

type Apply<T> = Box<dyn FnOnce(&mut RunDriver) -> Result<Applied<T>, RunErrorKind> + Send>;

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
}

impl RunDriver {
    /// Awaits a job, and applies what follows from it.
    pub(super) async fn perform<T>(&mut self, mut job: Job<T>) -> Result<T, RunErrorKind> {
        loop {
            let apply = job.0.await;
            match apply(self)? {
                Applied::Done(done) => return Ok(done),
                Applied::Next(next) => job = next,
            }
        }
    }
}
