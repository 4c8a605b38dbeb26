//! What happens on the way to an answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_channel::mpsc;
use futures_util::Stream;

use crate::{Answer, RunError, ToolCall, ToolExecution, Usage};

/// What happens on the way to an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The model is asked.
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
    /// The model's reply is whole.
    TurnFinished {
        /// Which turn it was, from 1.
        turn: u32,
        /// The tokens that it took, if the provider told.
        usage: Option<Usage>,
    },
    /// A call is about to be made.
    CallStarted(ToolCall),
    /// A call is over: what came of it.
    CallFinished(ToolExecution),
    /// The answer. The last event.
    Done(Answer),
}

/// How many events wait for the reader before the run waits for it, too.
const BUFFERED_EVENTS: usize = 16;

type Driver = Pin<Box<dyn Future<Output = Result<Answer, RunError>> + Send>>;

/// The [`Event`]s of a run: a [`Stream`] that ends with [`Event::Done`] or an error.
///
/// The run goes on only while the stream is read, and is cancelled when the stream is dropped.
pub struct EventStream {
    events: mpsc::Receiver<Event>,
    driver: Option<Driver>,
    end: Option<Result<Event, RunError>>,
}

impl EventStream {
    pub(super) fn new(driver: impl FnOnce(mpsc::Sender<Event>) -> Driver) -> Self {
        let (sender, events) = mpsc::channel(BUFFERED_EVENTS);
        Self { events, driver: Some(driver(sender)), end: None }
    }

    /// The next event; `None` after the last. The same as `StreamExt::next`, without the import.
    ///
    /// # Errors
    ///
    /// The run ended without an answer.
    pub async fn next(&mut self) -> Option<Result<Event, RunError>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for EventStream {
    type Item = Result<Event, RunError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(driver) = &mut self.driver
            && let Poll::Ready(outcome) = driver.as_mut().poll(context)
        {
            self.driver = None;
            self.end = Some(outcome.map(Event::Done));
        }
        match Pin::new(&mut self.events).poll_next(context) {
            Poll::Ready(Some(event)) => Poll::Ready(Some(Ok(event))),
            Poll::Ready(None) => Poll::Ready(self.end.take()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventStream")
    }
}
