//! Who hears of what happens on the way.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{BoxFuture, Either, Ready, ready};
use futures_util::{FutureExt, SinkExt};

use super::event::EventSender;
use crate::agent::Event;
use crate::model::ToolCall;
use crate::tool::{ProgressSink, ToolProgress};

/// Hears of every event, at once.
pub(super) type Hook = Arc<dyn Fn(&Event) + Send + Sync>;

/// Who hears of what happens on the way: hooks, and whoever reads the stream.
#[derive(Clone, Default)]
pub(super) struct Observers {
    pub(super) hooks: Vec<Hook>,
    pub(super) stream: Option<EventSender>,
}

impl Observers {
    pub(super) fn are_there(&self) -> bool {
        self.stream.is_some() || !self.hooks.is_empty()
    }

    /// Tells of an event, which is made only if somebody listens. A reader of the stream who went away took the
    /// driver along, so there is nobody to tell of that.
    ///
    /// The hooks are told at once; the future waits until the reader has room, for which alone it takes any.
    pub(super) fn tell(&mut self, event: impl FnOnce() -> Event) -> Either<Ready<()>, BoxFuture<'_, ()>> {
        if !self.are_there() {
            return Either::Left(ready(()));
        }
        let event = event();
        self.tell_hooks(&event);
        let Some(stream) = &mut self.stream else { return Either::Left(ready(())) };
        let Err(full) = stream.try_send(Ok(event)) else { return Either::Left(ready(())) };
        let sending = async move {
            let _ = stream.send(full.into_inner()).await;
        };
        Either::Right(sending.boxed())
    }

    /// Tells the hooks alone: the stream ends with the answer or the error itself.
    pub(super) fn tell_hooks(&self, event: &Event) {
        for hook in &self.hooks {
            hook(event);
        }
    }

    /// Takes the progress of a call, if anybody listens. A tool does not wait for a reader: what finds no room is lost.
    pub(super) fn progress_of(&self, call: &ToolCall) -> Option<ProgressSink> {
        if !self.are_there() {
            return None;
        }
        let hooks = Self { hooks: self.hooks.clone(), stream: None };
        // One sender for the call: each has room for one beyond the buffer, so a new one would always find some.
        let stream = self.stream.clone().map(Mutex::new);
        let (id, name) = (call.id.clone(), call.name.clone());
        Some(Arc::new(move |progress: ToolProgress| {
            let event = Event::CallProgress { id: id.clone(), name: name.clone(), progress };
            hooks.tell_hooks(&event);
            if let Some(stream) = &stream {
                let _ = stream.lock().unwrap_or_else(PoisonError::into_inner).try_send(Ok(event));
            }
        }))
    }
}
