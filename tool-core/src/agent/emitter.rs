//! Emits the events of a run to hooks and to the reader of the stream.

use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, Either, Ready, ready};
use futures_util::{FutureExt, SinkExt};
use tokio::sync::Mutex as AsyncMutex;

use super::event_stream::EventSender;
use super::lock::lock;
use crate::agent::Event;
use crate::model::ToolCall;
use crate::tool::{ProgressSink, ToolProgress};

/// Receives every event immediately.
pub(super) type Hook = Arc<dyn Fn(&Event) + Send + Sync>;

/// The listeners of a run: its hooks, and the stream if the run is streamed.
#[derive(Clone, Default)]
pub(super) struct EventEmitter {
    pub(super) hooks: Vec<Hook>,
    stream: Option<Outlet>,
    /// The calls that asked the agent whose events these are, the innermost first.
    path: Vec<Speaker>,
    /// The stream does not contain the deltas of the replies.
    hides_replies: bool,
}

/// The stream of a run. Clones share a sender, because each that has sent adds a place to the buffer. What emits beside others needs one of
/// its own: it can hold the shared one while nobody polls it.
#[derive(Clone)]
struct Outlet {
    /// Sends nothing.
    source: EventSender,
    sender: Arc<AsyncMutex<EventSender>>,
}

impl Outlet {
    fn new(source: EventSender) -> Self {
        Self { sender: Arc::new(AsyncMutex::new(source.clone())), source }
    }

    fn apart(&self) -> Self {
        Self::new(self.source.clone())
    }
}

/// A call that asked an agent, and the name of its tool.
#[derive(Clone)]
struct Speaker {
    agent: String,
    call_id: String,
}

impl Speaker {
    /// Returns the event as one of the outer run.
    fn attribute(&self, event: Event) -> Event {
        Event::Agent { agent: self.agent.clone(), call_id: self.call_id.clone(), event: Box::new(event) }
    }
}

impl EventEmitter {
    pub(super) fn with_hooks(hooks: Vec<Hook>) -> Self {
        Self { hooks, ..Self::default() }
    }

    /// Returns this emitter for what emits beside others.
    pub(super) fn apart(&self) -> Self {
        Self { stream: self.stream.as_ref().map(Outlet::apart), ..self.clone() }
    }

    /// Sends the events to a stream, too.
    pub(super) fn stream_into(&mut self, stream: EventSender) {
        self.stream = Some(Outlet::new(stream));
    }

    /// Returns this emitter for an agent that a call of another run asked: the listeners of that run receive its events,
    /// too.
    pub(super) fn inside(mut self, outer: &Self, call: &ToolCall, streams_replies: bool) -> Self {
        let speaker = Speaker { agent: call.name.clone(), call_id: call.id.clone() };
        if !outer.hooks.is_empty() {
            let (speaker, hooks) = (speaker.clone(), Self::with_hooks(outer.hooks.clone()));
            self.hooks.push(Arc::new(move |event| hooks.call_hooks(&speaker.attribute(event.clone()))));
        }
        self.stream = outer.stream.as_ref().map(Outlet::apart);
        self.path = vec![speaker];
        self.path.extend(outer.path.iter().cloned());
        self.hides_replies = outer.hides_replies || !streams_replies;
        self
    }

    /// Returns `true` if the deltas of the model's replies are emitted.
    pub(super) fn streams_replies(&self) -> bool {
        self.stream.is_some() && !self.hides_replies
    }

    pub(super) fn has_listeners(&self) -> bool {
        self.stream.is_some() || !self.hooks.is_empty()
    }

    /// Emits an event, which is created only if there are listeners. A closed stream is ignored, because the driver is
    /// dropped with it.
    ///
    /// Calls the hooks immediately. The future waits until the stream has room.
    pub(super) fn emit(&self, event: impl FnOnce() -> Event) -> Either<Ready<()>, BoxFuture<'static, ()>> {
        if !self.has_listeners() {
            return Either::Left(ready(()));
        }
        let event = event();
        self.call_hooks(&event);
        let Some(stream) = &self.stream else { return Either::Left(ready(())) };
        let event = Ok(self.path.iter().fold(event, |event, speaker| speaker.attribute(event)));
        let event = match stream.sender.try_lock() {
            Ok(mut stream) => match stream.try_send(event) {
                Ok(()) => return Either::Left(ready(())),
                Err(full) => full.into_inner(),
            },
            Err(_) => event,
        };
        let sender = Arc::clone(&stream.sender);
        let sending = async move {
            let _ = sender.lock().await.send(event).await;
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
        let hooks = Self::with_hooks(self.hooks.clone());
        let path = self.path.clone();
        // One sender for the whole call: every new sender adds a slot to the buffer and would always find room.
        let stream = self.stream.as_ref().map(|stream| Mutex::new(stream.source.clone()));
        let (id, name) = (call.id.clone(), call.name.clone());
        Some(Arc::new(move |progress: ToolProgress| {
            let event = Event::CallProgress { id: id.clone(), name: name.clone(), progress };
            hooks.call_hooks(&event);
            if let Some(stream) = &stream {
                let event = path.iter().fold(event, |event, speaker| speaker.attribute(event));
                let _ = lock(stream).try_send(Ok(event));
            }
        }))
    }
}
