//! Emits the events of a run to hooks and to the reader of the stream.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{BoxFuture, Either, Ready, ready};
use futures_util::{FutureExt, SinkExt};

use super::event::EventSender;
use crate::agent::Event;
use crate::model::ToolCall;
use crate::tool::{ProgressSink, ToolProgress};

/// Receives every event immediately.
pub(super) type Hook = Arc<dyn Fn(&Event) + Send + Sync>;

/// The listeners of a run: its hooks, and the stream if the run is streamed.
#[derive(Clone, Default)]
pub(super) struct EventEmitter {
    pub(super) hooks: Vec<Hook>,
    pub(super) stream: Option<EventSender>,
}

impl EventEmitter {
    pub(super) fn has_listeners(&self) -> bool {
        self.stream.is_some() || !self.hooks.is_empty()
    }

    /// Emits an event, which is created only if there are listeners. A closed stream is ignored, because the driver is
    /// dropped with it.
    ///
    /// Calls the hooks immediately. The future waits until the stream has room, and captures the emitter only for that.
    pub(super) fn emit(&mut self, event: impl FnOnce() -> Event) -> Either<Ready<()>, BoxFuture<'_, ()>> {
        if !self.has_listeners() {
            return Either::Left(ready(()));
        }
        let event = event();
        self.call_hooks(&event);
        let Some(stream) = &mut self.stream else { return Either::Left(ready(())) };
        let Err(full) = stream.try_send(Ok(event)) else { return Either::Left(ready(())) };
        let sending = async move {
            let _ = stream.send(full.into_inner()).await;
        };
        Either::Right(sending.boxed())
    }

    /// Emits an event to the hooks only: a stream ends with the answer or the error itself.
    pub(super) fn call_hooks(&self, event: &Event) {
        for hook in &self.hooks {
            hook(event);
        }
    }

    /// Returns a sink for the progress of a call, if there are listeners. A tool does not wait for the reader: progress
    /// that finds no room in the stream is dropped.
    pub(super) fn progress_sink(&self, call: &ToolCall) -> Option<ProgressSink> {
        if !self.has_listeners() {
            return None;
        }
        let hooks = Self { hooks: self.hooks.clone(), stream: None };
        // One sender for the whole call: every new sender adds a slot to the buffer and would always find room.
        let stream = self.stream.clone().map(Mutex::new);
        let (id, name) = (call.id.clone(), call.name.clone());
        Some(Arc::new(move |progress: ToolProgress| {
            let event = Event::CallProgress { id: id.clone(), name: name.clone(), progress };
            hooks.call_hooks(&event);
            if let Some(stream) = &stream {
                let _ = stream.lock().unwrap_or_else(PoisonError::into_inner).try_send(Ok(event));
            }
        }))
    }
}
