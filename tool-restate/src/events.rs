//! The events of a run: an object of the engine stores them in order, workers publish to it, and readers poll it.
//!
//! Events of the run itself are sent by its invocation, exactly once. Deltas and progress are published while a step runs, keyed by the
//! stream (a turn or a call), the attempt and the index of the batch, so that a repeated batch is ignored and a batch of an attempt
//! that was given up is not mixed with those of the next.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use restate_sdk::ingress;
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::DropGuard;
use tool_core::run::Wait;
use tool_core::tool::{Progress, ToolExecution, ToolProgress};
use tool_core::{CancellationToken, ToolCall};

use crate::client::Http;
use crate::clock::now;
use crate::limit;

/// Returns the name of the objects that have the events of an agent's runs.
pub(crate) fn events_service(agent: &str) -> String {
    format!("{agent}.events")
}

/// The time for which deltas are collected.
const BATCH_TIME: Duration = Duration::from_millis(50);

/// The number of times that a batch is sent.
const SEND_ATTEMPTS: u32 = 5;

/// The longest time that one request takes.
const SEND_TIME: Duration = Duration::from_secs(2);

/// The longest time for which a run waits for the events of a step that it has recorded.
const FINISH_TIME: Duration = Duration::from_secs(3);

/// The number of events that wait to be sent. Further ones are dropped.
const MAX_UNSENT: usize = 4096;

/// The size of the events that a reader gets at once, in bytes of JSON, unless a single one is larger.
const PAGE_BYTES: usize = 1024 * 1024;

/// An event of a run that [publishes](crate::Question::events) them.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEvent {
    /// A delta of the model's text.
    #[non_exhaustive]
    Text {
        /// The number of the turn, starting at 1.
        turn: u32,
        /// The text.
        text: String,
    },
    /// A delta of the model's reasoning.
    #[non_exhaustive]
    Reasoning {
        /// The number of the turn.
        turn: u32,
        /// The text.
        text: String,
    },
    /// The request of this turn was given up, for example because its worker died: the deltas of the turn so far are void.
    #[non_exhaustive]
    Voided {
        /// The number of the turn.
        turn: u32,
    },
    /// The reply of a turn is complete. Its text is authoritative: deltas can be missing if the engine could not be reached.
    #[non_exhaustive]
    TurnFinished {
        /// The number of the turn.
        turn: u32,
        /// The whole text of the reply.
        text: String,
        /// The calls of the reply.
        calls: Vec<ToolCall>,
    },
    /// A call reports its progress.
    #[non_exhaustive]
    CallProgress {
        /// The id of the call.
        id: String,
        /// The text of the report.
        text: String,
        /// The amount of work done.
        done: Option<u64>,
        /// The total amount of work.
        total: Option<u64>,
    },
    /// A call has an outcome, or an attempt of it has.
    CallFinished(ToolExecution),
    /// The run waits for decisions about these.
    Waiting(Vec<Wait>),
    /// The run waits for an operator, for this reason.
    Paused(String),
    /// The run has ended; always the last event.
    Ended,
}

/// Shows sizes instead of texts, because conversations are private.
impl fmt::Debug for RunEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { turn, text } => write!(f, "Text({turn}, {} bytes)", text.len()),
            Self::Reasoning { turn, text } => write!(f, "Reasoning({turn}, {} bytes)", text.len()),
            Self::Voided { turn } => write!(f, "Voided({turn})"),
            Self::TurnFinished { turn, .. } => write!(f, "TurnFinished({turn})"),
            Self::CallProgress { id, done, total, .. } => {
                write!(f, "CallProgress({id}, {done:?}, {total:?})")
            }
            Self::CallFinished(execution) => f.debug_tuple("CallFinished").field(execution).finish(),
            Self::Waiting(waits) => f.debug_tuple("Waiting").field(waits).finish(),
            Self::Paused(_) => f.write_str("Paused"),
            Self::Ended => f.write_str("Ended"),
        }
    }
}

/// The object that a step publishes its events to.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct EventTarget {
    pub(crate) agent: String,
    pub(crate) run: String,
    /// Known to the run and its workers only, because the handler that they publish to can be reached from outside.
    pub(crate) token: String,
}

/// Events of one attempt of a step.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) token: String,
    pub(crate) stream: String,
    /// The turn, if the stream is one.
    pub(crate) turn: Option<u32>,
    /// The time at which the attempt began: a later one makes an earlier one void.
    pub(crate) attempt: u64,
    pub(crate) index: u32,
    pub(crate) events: Vec<RunEvent>,
}

/// The last batch of a stream.
#[derive(Serialize, Deserialize)]
struct Last {
    attempt: u64,
    index: u32,
}

/// Events from a position.
#[derive(Serialize, Deserialize)]
pub(crate) struct Page {
    pub(crate) events: Vec<RunEvent>,
    pub(crate) next: u32,
}

/// The number of events that a reader gets at once.
const PAGE: u32 = 256;

const LENGTH: &str = "length";
const TOKEN: &str = "token";

pub(crate) struct Events;

#[restate_sdk::object]
pub(crate) trait EventsService {
    async fn open(token: String) -> HandlerResult<()>;
    async fn add(events: Json<Vec<RunEvent>>) -> HandlerResult<()>;
    async fn publish(batch: Json<Batch>) -> HandlerResult<()>;
    async fn clear() -> HandlerResult<()>;
    #[shared]
    async fn read(from: u32) -> HandlerResult<Json<Page>>;
}

/// The handlers that only runs call.
pub(crate) const PRIVATE: [&str; 3] = ["open", "add", "clear"];

impl EventsService for Events {
    async fn open(&self, ctx: ObjectContext<'_>, token: String) -> HandlerResult<()> {
        ctx.set(TOKEN, token);
        Ok(())
    }

    /// Stores events of the run itself.
    async fn add(&self, ctx: ObjectContext<'_>, Json(events): Json<Vec<RunEvent>>) -> HandlerResult<()> {
        append(&ctx, events).await?;
        Ok(())
    }

    /// Stores events of a step.
    async fn publish(&self, ctx: ObjectContext<'_>, Json(batch): Json<Batch>) -> HandlerResult<()> {
        if ctx.get::<String>(TOKEN).await?.as_ref() != Some(&batch.token) {
            return Err(TerminalError::new_with_code(403, "the run does not publish events here").into());
        }
        let last = ctx.get::<Json<Last>>(&batch.stream).await?;
        let mut events = batch.events;
        if let Some(Json(last)) = last {
            // A batch that was sent again, or of an attempt that was given up.
            if (batch.attempt, batch.index) <= (last.attempt, last.index) {
                return Ok(());
            }
            if let Some(turn) = batch.turn.filter(|_| batch.attempt > last.attempt) {
                events.insert(0, RunEvent::Voided { turn });
            }
        }
        ctx.set(&batch.stream, Json(Last { attempt: batch.attempt, index: batch.index }));
        append(&ctx, events).await?;
        Ok(())
    }

    async fn clear(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        ctx.clear_all();
        Ok(())
    }

    async fn read(&self, ctx: SharedObjectContext<'_>, from: u32) -> HandlerResult<Json<Page>> {
        let length = ctx.get::<u32>(LENGTH).await?.unwrap_or_default();
        let next = length.min(from.saturating_add(PAGE));
        let (mut events, mut bytes) = (Vec::new(), 0);
        for position in from..next {
            if let Some(Json(event)) = ctx.get::<Json<RunEvent>>(&position.to_string()).await? {
                bytes += limit::size(&event);
                events.push(event);
            }
            if bytes > PAGE_BYTES {
                return Ok(Json(Page { events, next: position + 1 }));
            }
        }
        Ok(Json(Page { events, next: next.max(from) }))
    }
}

async fn append(ctx: &ObjectContext<'_>, events: Vec<RunEvent>) -> Result<(), TerminalError> {
    let mut length = ctx.get::<u32>(LENGTH).await?.unwrap_or_default();
    for event in events {
        ctx.set(&length.to_string(), Json(event));
        length += 1;
    }
    ctx.set(LENGTH, length);
    Ok(())
}

/// Publishes the events of steps.
#[derive(Clone)]
pub(crate) struct Publisher(pub(crate) ingress::Client<Http>);

/// The events of one attempt of a step.
pub(crate) struct Publishing {
    sender: mpsc::Sender<RunEvent>,
    /// Ends the task with the step, also if its tool has kept its reporter of progress.
    close: DropGuard,
    task: JoinHandle<()>,
}

impl Publisher {
    /// Begins to publish an attempt of a step.
    pub(crate) fn begin(&self, target: &EventTarget, stream: String, turn: Option<u32>) -> Publishing {
        let (sender, mut events) = mpsc::channel(MAX_UNSENT);
        let (client, target, attempt) = (self.0.clone(), target.clone(), now());
        let close = CancellationToken::new();
        let closed = close.clone();
        let task = tokio::spawn(async move {
            let mut index = 0;
            loop {
                let first = tokio::select! {
                    biased;
                    first = events.recv() => first,
                    () = closed.cancelled() => None,
                };
                let Some(first) = first else { return };
                let _ = tokio::time::timeout(BATCH_TIME, closed.cancelled()).await;
                let mut batch = vec![first];
                while let Ok(event) = events.try_recv() {
                    join(&mut batch, event);
                }
                index += 1;
                let (token, stream) = (target.token.clone(), stream.clone());
                let batch = Batch { token, stream, turn, attempt, index, events: batch };
                send(&client, &target, batch).await;
            }
        });
        Publishing { sender, close: close.drop_guard(), task }
    }
}

impl Publishing {
    pub(crate) fn emit(&self, event: RunEvent) {
        // Dropped if the engine does not keep up: a step never waits for its readers.
        let _ = self.sender.try_send(event);
    }

    /// Returns a reporter of the progress of a call.
    pub(crate) fn progress(&self, id: &str) -> Progress {
        let (sender, id) = (self.sender.clone(), Arc::<str>::from(id));
        Progress::new(move |progress: ToolProgress| {
            let (id, text) = (id.to_string(), progress.text);
            let _ = sender.try_send(RunEvent::CallProgress {
                id,
                text,
                done: progress.done,
                total: progress.total,
            });
        })
    }
}

/// The events of steps that have ended. They are awaited only once the step is recorded, because an engine that cannot be reached
/// on this way must not cost its outcome.
#[derive(Clone, Default)]
pub(crate) struct Unfinished(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Unfinished {
    /// Adds the events of a step, to which none are added any more.
    pub(crate) fn add(&self, publishing: Publishing) {
        let Publishing { close, task, .. } = publishing;
        drop(close);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// Waits until all events are stored, but not for long.
    pub(crate) async fn finish(self) {
        let tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let aborts: Vec<_> = tasks.iter().map(JoinHandle::abort_handle).collect();
        if tokio::time::timeout(FINISH_TIME, join_all(tasks)).await.is_err() {
            aborts.iter().for_each(AbortHandle::abort);
        }
    }
}

/// Adds an event to a batch, and joins it with the last one if both are deltas of one text.
fn join(batch: &mut Vec<RunEvent>, event: RunEvent) {
    match (batch.last_mut(), event) {
        (Some(RunEvent::Text { text, .. }), RunEvent::Text { text: more, .. })
        | (Some(RunEvent::Reasoning { text, .. }), RunEvent::Reasoning { text: more, .. }) => {
            text.push_str(&more)
        }
        (_, event) => batch.push(event),
    }
}

/// Sends a batch, and gives up if the engine cannot be reached: the turn's last event has the whole text.
async fn send(client: &ingress::Client<Http>, target: &EventTarget, batch: Batch) {
    let object = || ingress::RequestTarget::object(events_service(&target.agent), &*target.run, "publish");
    for attempt in 1..=SEND_ATTEMPTS {
        let sent = client.request::<_, ()>(object(), Json(batch.clone())).send();
        if matches!(tokio::time::timeout(SEND_TIME, sent).await, Ok(Ok(_))) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50) * attempt).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_of_one_text_are_joined() {
        let text = |text: &str| RunEvent::Text { turn: 1, text: text.into() };
        let mut batch = vec![text("a")];
        for event in [text("b"), RunEvent::Reasoning { turn: 1, text: "c".into() }, text("d"), text("e")] {
            join(&mut batch, event);
        }
        let texts: Vec<_> = batch
            .iter()
            .map(|event| match event {
                RunEvent::Text { text, .. } | RunEvent::Reasoning { text, .. } => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts, ["ab", "c", "de"]);
    }
}
