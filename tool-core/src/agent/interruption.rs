//! Interrupts work in flight when its time is up and on cancellation.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{self, Either};
use tokio_util::sync::CancellationToken;

/// The reason that work in flight was dropped.
pub(super) enum Interruption {
    TimeLimit,
    Cancelled,
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
