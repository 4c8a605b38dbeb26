//! Emits what has happened in a run.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Ready, ready};

use crate::agent::{Event, RunDriver};
use crate::layer::Phase;
use crate::run::RunErrorKind;

/// The future of emitting events, boxed if there are any.
type Emitting<'a> = Either<Ready<Result<(), RunErrorKind>>, BoxFuture<'a, Result<(), RunErrorKind>>>;

impl RunDriver {
    /// Emits events. Layers that record what happens to calls receive them before the listeners.
    pub(super) fn emit_all(&mut self, events: impl IntoIterator<Item = Event>) -> Emitting<'_> {
        let events: Vec<_> = events.into_iter().collect();
        if events.is_empty() || !self.has_listeners() {
            return Either::Left(ready(Ok(())));
        }
        // Boxed, because events are large.
        let emitting = async move {
            // The run no longer has the events, so all of them are recorded and emitted before a failure is reported.
            let mut recorded = Ok(());
            for event in events {
                recorded = recorded.and(self.performer.layers.record(&event, self.run.view()).await);
                self.performer.emitter.emit(|| event).await;
            }
            recorded
        };
        Either::Right(emitting.boxed())
    }

    /// Returns `true` if a listener or a layer receives events.
    pub(super) fn has_listeners(&self) -> bool {
        self.performer.emitter.has_listeners() || self.performer.layers.see(Phase::Record)
    }
}
