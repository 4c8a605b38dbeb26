//! The events of a run: an object of the engine stores them in order, workers publish to it, and readers poll it.
//!
//! Events of the run itself are sent by its invocation, exactly once. Deltas and progress are published while a step runs, keyed by the
//! stream (a turn or a call), the attempt and the index of the batch, so that a repeated batch is ignored and a batch of an attempt
//! that was given up is not mixed with batches of the next.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use restate_sdk::ingress;
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::DropGuard;
use tool_core::agent::EventRecord;
use tool_core::signatures::ToolProgress;
use tool_core::tool::Progress;
use tool_core::{CancellationToken, Event, ToolCall};

use crate::clock::now;
use crate::http::Http;
use crate::limit;
use crate::names::{Batch, EventTarget, Page, events_service};
use crate::path::{Asked, event_at};

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

/// The last batch of a stream.
#[derive(Serialize, Deserialize)]
struct Last {
    attempt: u64,
    index: u32,
}

/// The number of events that a reader gets at once.
const PAGE: u64 = 256;

const LENGTH: &str = "length";
const ENDED: &str = "ended";
const TOKEN: &str = "token";

pub(crate) struct Events;

#[restate_sdk::object]
pub(crate) trait EventsService {
    async fn open(token: String) -> HandlerResult<()>;
    async fn add(events: Json<Vec<EventRecord>>) -> HandlerResult<()>;
    async fn end(events: Json<Vec<EventRecord>>) -> HandlerResult<()>;
    async fn publish(batch: Json<Batch>) -> HandlerResult<()>;
    async fn clear() -> HandlerResult<()>;
    #[shared]
    async fn read(after: u64) -> HandlerResult<Json<Page>>;
}

/// The handlers that only runs call.
pub(crate) const PRIVATE: [&str; 4] = ["open", "add", "end", "clear"];

impl EventsService for Events {
    async fn open(&self, ctx: ObjectContext<'_>, token: String) -> HandlerResult<()> {
        ctx.set(TOKEN, token);
        Ok(())
    }

    /// Stores events of the run itself.
    async fn add(&self, ctx: ObjectContext<'_>, Json(events): Json<Vec<EventRecord>>) -> HandlerResult<()> {
        append(&ctx, events).await?;
        Ok(())
    }

    /// Stores the last events of the run.
    async fn end(&self, ctx: ObjectContext<'_>, Json(events): Json<Vec<EventRecord>>) -> HandlerResult<()> {
        append(&ctx, events).await?;
        ctx.set(ENDED, true);
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
            if let Some(begins) = batch.begins.filter(|_| batch.attempt > last.attempt) {
                events.insert(0, begins);
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

    async fn read(&self, ctx: SharedObjectContext<'_>, after: u64) -> HandlerResult<Json<Page>> {
        // Read first: events can be added between two reads of the state.
        let has_ended = ctx.get::<bool>(ENDED).await?.unwrap_or_default();
        let length = ctx.get::<u64>(LENGTH).await?.unwrap_or_default();
        let (mut events, mut bytes, mut read) = (Vec::new(), 0, after);
        while read < length.min(after.saturating_add(PAGE)) && bytes <= PAGE_BYTES {
            read += 1;
            if let Some(Json(event)) = ctx.get::<Json<EventRecord>>(&read.to_string()).await? {
                bytes += limit::size(&event);
                events.push(event);
            }
        }
        Ok(Json(Page { events, is_last: has_ended && read >= length }))
    }
}

/// Stores events, whose positions begin at 1.
async fn append(ctx: &ObjectContext<'_>, events: Vec<EventRecord>) -> Result<(), TerminalError> {
    let mut length = ctx.get::<u64>(LENGTH).await?.unwrap_or_default();
    for mut event in events {
        length += 1;
        event.position = length;
        ctx.set(&length.to_string(), Json(event));
    }
    ctx.set(LENGTH, length);
    Ok(())
}

/// Publishes the events of steps.
#[derive(Clone)]
pub(crate) struct Publisher(pub(crate) ingress::Client<Http>);

/// The events of one attempt of a step.
pub(crate) struct Publishing {
    sender: mpsc::Sender<Event>,
    /// Ends the task with the step, also if its tool has kept its reporter of progress.
    close: DropGuard,
    task: JoinHandle<()>,
}

impl Publisher {
    /// Begins to publish an attempt of a step.
    pub(crate) fn begin(&self, target: &EventTarget, stream: String, begins: Option<Event>) -> Publishing {
        let (sender, mut events) = mpsc::channel(MAX_UNSENT);
        let (client, target, attempt) = (self.0.clone(), target.clone(), now());
        let begins = begins.map(|event| event.at(0));
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
                let (mut batch, mut last) = (Vec::new(), first);
                while let Ok(event) = events.try_recv() {
                    if let Some(event) = join(&mut last, event) {
                        batch.push(std::mem::replace(&mut last, event));
                    }
                }
                batch.push(last);
                index += 1;
                let (token, stream, begins) = (target.token.clone(), stream.clone(), begins.clone());
                let events = batch.into_iter().map(|event| event.at(0)).collect();
                let batch = Batch { token, stream, begins, attempt, index, events };
                send(&client, &target, batch).await;
            }
        });
        Publishing { sender, close: close.drop_guard(), task }
    }
}

impl Publishing {
    pub(crate) fn emit(&self, event: Event) {
        // Dropped if the engine does not keep up: a step never waits for its readers.
        let _ = self.sender.try_send(event);
    }

    /// Returns a reporter of the progress of a call of the run to which this path leads.
    pub(crate) fn progress(&self, path: &[Asked], call: &ToolCall) -> Progress {
        let (sender, path, id, name) =
            (self.sender.clone(), path.to_vec(), call.id.clone(), call.name.clone());
        Progress::new(move |progress: ToolProgress| {
            let _ = sender.try_send(event_at(&path, Event::call_progress(&*id, &*name, progress)));
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

/// Joins an event with the one before it if both are deltas of one text. Returns it otherwise.
fn join(last: &mut Event, event: Event) -> Option<Event> {
    match (last, event) {
        (Event::Text(text), Event::Text(more))
        | (Event::Reasoning(text), Event::Reasoning(more))
        | (Event::Refusal(text), Event::Refusal(more)) => text.push_str(&more),
        (Event::Arguments { index, text, .. }, Event::Arguments { index: same, text: more, .. })
            if *index == same =>
        {
            text.push_str(&more);
        }
        (Event::Agent { call_id, event: last, .. }, Event::Agent { call_id: same, event, agent, .. })
            if *call_id == same =>
        {
            return join(last, *event).map(|event| event.inside(agent, same));
        }
        (_, event) => return Some(event),
    }
    None
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
        let text = |text: &str| Event::Text(text.into());
        let mut batch = vec![text("a")];
        for event in [text("b"), Event::Reasoning("c".into()), text("d"), text("e")] {
            let event = join(batch.last_mut().unwrap(), event);
            batch.extend(event);
        }
        let texts: Vec<_> = batch
            .iter()
            .map(|event| match event {
                Event::Text(text) | Event::Reasoning(text) => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts, ["ab", "c", "de"]);
    }
}
