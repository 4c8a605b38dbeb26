//! Emits what has happened in a run.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Ready, ready};

use crate::agent::{Event, RunDriver};
use crate::layer::LayerPhase;
use crate::run::RunErrorKind;

/// The future of emitting events, boxed if there are any. It borrows nothing.
pub(super) type Emitting =
    Either<Ready<Result<(), RunErrorKind>>, BoxFuture<'static, Result<(), RunErrorKind>>>;

impl RunDriver {
    /// Emits what is queued.
    pub(super) fn emit_queued(&mut self) -> Emitting {
        let events = std::mem::take(&mut self.news.events);
        self.emit_all(events)
    }

    /// Emits events. Layers that record what happens to calls receive them before the listeners.
    pub(super) fn emit_all(&self, events: impl IntoIterator<Item = Event>) -> Emitting {
        let events: Vec<_> = events.into_iter().collect();
        if events.is_empty() || !self.has_listeners() {
            return Either::Left(ready(Ok(())));
        }
        let (layers, emitter) = (Arc::clone(&self.performer.layers), self.performer.emitter.clone());
        let view = self.run.view();
        // Boxed, because events are large.
        let emitting = async move {
            // The run no longer has the events, so all of them are recorded and emitted before a failure is reported.
            let mut recorded = Ok(());
            for event in events {
                recorded = recorded.and(layers.record(&event, &view).await);
                emitter.emit(|| event).await;
            }
            recorded
        };
        Either::Right(emitting.boxed())
    }

    /// Returns `true` if a listener or a layer receives events.
    pub(super) fn has_listeners(&self) -> bool {
        self.performer.emitter.has_listeners() || self.performer.layers.see(LayerPhase::Record)
    }
}
