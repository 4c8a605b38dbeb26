//! Emits what has happened in a run.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Ready, ready};

use crate::agent::{Event, RunDriver};
use crate::layer::Phase;
use crate::run::RunErrorKind;

/// The future of emitting events, boxed if there are any.
type Emitting<'a> = Either<Ready<Result<(), RunErrorKind>>, BoxFuture<'a, Result<(), RunErrorKind>>>;

impl RunDriver {
    /// Emits events. Layers that record what happens to calls are told first.
    pub(super) fn emit_all(&mut self, events: impl IntoIterator<Item = Event>) -> Emitting<'_> {
        let events: Vec<_> = events.into_iter().collect();
        if events.is_empty() || !self.has_listeners() {
            return Either::Left(ready(Ok(())));
        }
        // Boxed, because events are large, and agents that ask agents have a future in another.
        let emitting = async move {
            // They were taken from the run, so all are told before a failure is reported.
            let mut told = Ok(());
            for event in events {
                told = told.and(self.layers.record(&event, &self.run).await);
                self.emitter.emit(|| event).await;
            }
            told
        };
        Either::Right(emitting.boxed())
    }

    /// Returns `true` if somebody is told what happens to calls.
    pub(super) fn has_listeners(&self) -> bool {
        self.emitter.has_listeners() || self.layers.see(Phase::Record)
    }
}
