//! The events of the run itself.

use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::*;
use tool_core::Event;
use tool_core::agent::EventRecord;
use tool_core::engine::RunPath;

use super::state::{Drive, Driven, Setup};
use crate::limit;
use crate::names::{Ended, events_service};
use crate::path::event_at;

impl<'c> Drive<'c> {
    /// Adds what has happened in the run since the last time.
    pub(super) fn take_recorded(&mut self) {
        if let Some(recorded) = &mut self.recorded {
            self.unpublished.extend(recorded.take(&mut self.run).into_iter().map(|event| event.at(0)));
        }
    }

    /// Adds an event that the run does not record: with which it rests for now.
    pub(super) fn publish(&mut self, path: &RunPath, event: Event) {
        self.take_recorded();
        if self.recorded.is_some() {
            let way = self.way(path);
            self.unpublished.push(event_at(&way, event).at(0));
        }
    }

    /// Stores the events of the run itself, exactly once, and waits for it, so that the events of the next step follow them.
    pub(super) async fn flush_events(&mut self) -> Driven {
        self.take_recorded();
        for events in limit::batches(std::mem::take(&mut self.unpublished), self.setup.settings.max_bytes) {
            let target = events_target(self.setup, self.ctx, "add");
            self.ctx.request::<_, ()>(target, Json(events)).call().await?;
        }
        Ok(())
    }
}

pub(super) fn events_target(setup: &Setup, ctx: &WorkflowContext<'_>, handler: &str) -> RequestTarget {
    RequestTarget::object(events_service(&setup.name), ctx.key(), handler)
}

/// Returns the event of the end of a run.
pub(super) fn last_event(ended: &Ended, max_bytes: usize) -> EventRecord {
    let event = match ended {
        Ended::Answer(answer) => Event::Done(answer.clone()),
        Ended::Failed(failure) => Event::Failed(failure.message.clone()),
        Ended::Parts(_) => Event::Unknown,
    };
    let record = event.at(0);
    match limit::size(&record) <= max_bytes {
        true => record,
        false => Event::Failed("the answer is too large for an event".into()).at(0),
    }
}

/// Stores the last events of a run without waiting, and removes all of them later.
pub(super) fn end_events(setup: &Setup, ctx: &WorkflowContext<'_>, events: Vec<EventRecord>) {
    let mut batches = limit::batches(events, setup.settings.max_bytes);
    let last = batches.pop().unwrap_or_default();
    for (handler, events) in batches.into_iter().map(|batch| ("add", batch)).chain([("end", last)]) {
        drop(ctx.request::<_, ()>(events_target(setup, ctx, handler), Json(events)).send());
    }
    let clear = ctx.request::<(), ()>(events_target(setup, ctx, "clear"), ());
    drop(clear.send_after(setup.settings.retention));
}
