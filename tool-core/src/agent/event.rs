//! What happens on the way to an answer.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_channel::mpsc;
use futures_util::stream::{self, Stream, StreamExt};
use futures_util::{FutureExt, SinkExt};

use crate::model::{ChatResponse, ToolCall};
use crate::run::{Answer, RunError};
use crate::tool::{ToolExecution, ToolProgress};

/// What happens on the way to an answer.
#[derive(Clone)]
#[non_exhaustive]
pub enum Event {
    /// The model is asked.
    #[non_exhaustive]
    TurnStarted {
        /// Which turn it is, from 1.
        turn: u32,
        /// How many messages it is sent.
        messages: usize,
    },
    /// More of the model's text.
    Text(String),
    /// More of the model's reasoning, where a provider tells it.
    Reasoning(String),
    /// More of why the model would not answer.
    Refusal(String),
    /// The model begins a call.
    #[non_exhaustive]
    CallAnnounced {
        /// Its position among the calls of the reply.
        index: usize,
        /// The id that the model gave it, which is not unique with all servers: that of [`CallReady`](Self::CallReady) is.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments.
    #[non_exhaustive]
    Arguments {
        /// The position of the call among the calls of the reply.
        index: usize,
        /// More of the JSON text.
        text: String,
    },
    /// A call is whole, and is going to be made unless a person denies it.
    CallReady(ToolCall),
    /// The model's reply is whole.
    #[non_exhaustive]
    TurnFinished {
        /// Which turn it was, from 1.
        turn: u32,
        /// The reply, with the tokens that it took if the provider told.
        response: ChatResponse,
    },
    /// A call is made now.
    CallStarted(ToolCall),
    /// What a tool tells of its progress.
    #[non_exhaustive]
    CallProgress {
        /// The id of the call.
        id: String,
        /// The tool's name.
        name: String,
        /// How far it has come.
        progress: ToolProgress,
    },
    /// A call failed, and is made again.
    CallTriedAgain(ToolExecution),
    /// A call is over: what came of it, how long it took, what was mended in its arguments.
    CallFinished(ToolExecution),
    /// Nothing can be done but to ask a person about these calls.
    ApprovalNeeded(Vec<ToolCall>),
    /// The answer. The last event.
    Done(Answer),
    /// The run ended without an answer, or cannot go on for now: the text of the error. It is told to
    /// [hooks](crate::AgentBuilder::on_event) only, as a stream ends with the error itself.
    Failed(String),
}

/// Tells how much there is, not what: conversations are private.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TurnStarted { turn, messages } => write!(f, "TurnStarted({turn}, {messages} messages)"),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Reasoning(text) => write!(f, "Reasoning({} bytes)", text.len()),
            Self::Refusal(text) => write!(f, "Refusal({} bytes)", text.len()),
            Self::CallAnnounced { index, id, name } => write!(f, "CallAnnounced({index}, {id}, {name})"),
            Self::Arguments { index, text } => write!(f, "Arguments({index}, {} bytes)", text.len()),
            Self::CallReady(call) => f.debug_tuple("CallReady").field(call).finish(),
            Self::CallProgress { id, name, progress } => {
                write!(f, "CallProgress({id}, {name}, {progress:?})")
            }
            Self::CallTriedAgain(execution) => f.debug_tuple("CallTriedAgain").field(execution).finish(),
            Self::ApprovalNeeded(calls) => f.debug_tuple("ApprovalNeeded").field(calls).finish(),
            Self::Failed(text) => write!(f, "Failed({} bytes)", text.len()),
            Self::TurnFinished { turn, .. } => write!(f, "TurnFinished({turn})"),
            Self::CallStarted(call) => f.debug_tuple("CallStarted").field(call).finish(),
            Self::CallFinished(execution) => f.debug_tuple("CallFinished").field(execution).finish(),
            Self::Done(answer) => f.debug_tuple("Done").field(answer).finish(),
        }
    }
}

/// How many events wait for the reader before the run waits for it, too.
const BUFFERED_EVENTS: usize = 16;

/// The [`Event`]s of a run: a [`Stream`] that ends with [`Event::Done`] or an error.
///
/// The run goes on only while the stream is read, and is cancelled when the stream is dropped.
pub struct EventStream(Pin<Box<dyn Stream<Item = Result<Event, RunError>> + Send>>);

/// Where a driver tells of events.
pub(super) type EventSender = mpsc::Sender<Result<Event, RunError>>;

impl EventStream {
    /// The events that a driver sends; the last of them is its outcome.
    pub(super) fn of<D>(driver: impl FnOnce(EventSender) -> D) -> Self
    where
        D: Future<Output = Result<Answer, RunError>> + Send + 'static,
    {
        let (mut sender, events) = mpsc::channel(BUFFERED_EVENTS);
        // Not one `async` block around the driver, as its future would be held twice.
        let driver = driver(sender.clone()).then(|outcome| async move {
            // Whoever drops the stream drops this too: there is always somebody to send to.
            let _ = sender.send(outcome.map(Event::Done)).await;
        });
        // One task polls both, so nothing runs on when the stream is dropped.
        let silent = stream::once(driver).filter_map(|()| ready(None));
        Self(Box::pin(stream::select(events, silent)))
    }

    /// The next event; `None` after the last. The same as `StreamExt::next`, without the import.
    ///
    /// # Errors
    ///
    /// The run ended without an answer.
    pub async fn next(&mut self) -> Option<Result<Event, RunError>> {
        self.0.next().await
    }
}

impl Stream for EventStream {
    type Item = Result<Event, RunError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventStream")
    }
}
