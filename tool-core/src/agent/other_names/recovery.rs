//! A recovery that is awaited.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::agent::Recovery;
use crate::memory::MemoryError;

/// Nothing implements it.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a recovery is not awaited: write `agent.recover().start()`, and it continues runs in the background",
    label = "not started",
    note = "for a timer of your own, `agent.recover().once().await?` continues the runs that need it now, and returns their number"
)]
pub trait AwaitedRecovery {}

/// With it, the compiler reports the bound, which names the way out, instead of a missing `Future`. The lifetime defers the bound to where a
/// recovery is awaited.
#[doc(hidden)]
impl Future for Recovery
where
    for<'a> &'a Self: AwaitedRecovery,
{
    type Output = Result<usize, MemoryError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Pending
    }
}
