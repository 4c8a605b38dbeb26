//! The events of the run itself.

use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::*;
use tool_core::agent::EventRecord;
use tool_core::model::ChatResponse;
use tool_core::run::RunPath;
use tool_core::tool::ToolExecution;
use tool_core::{Event, Message, ToolCall};

use super::state::{Drive, Driven, Setup};
use crate::limit;
use crate::names::{Ended, events_service};
use crate::path::event_at;

impl<'c> Drive<'c> {
    /// Adds an event of a run, if there may be readers.
    pub(super) fn publish(&mut self, path: &RunPath, event: Event) {
        if self.events.is_some() {
            let way = self.way(path);
            self.unpublished.push(event_at(&way, event).at(0));
        }
    }

    /// Adds the event of a call that starts now. One that has waited continues.
    pub(super) fn publish_started_call(&mut self, path: &RunPath, call: &ToolCall) {
        let has_waited = self.node_at(path).is_some_and(|node| node.waited.remove(&call.id));
        if !has_waited {
            self.publish(path, Event::CallStarted(call.clone()));
        }
    }

    /// Adds the event of an attempt that has failed, if another one follows.
    pub(super) fn publish_retried(&mut self, path: &RunPath, execution: &ToolExecution) {
        let Some(run) = self.run_at(path).filter(|run| run.facts().will_retry(execution)) else { return };
        let is_judged = run.facts().sees().outputs;
        self.publish(path, Event::call_retried(execution, is_judged));
    }

    /// Adds the events of decisions, and of the calls that have finished.
    pub(super) fn publish_finished_calls(&mut self) {
        if self.events.is_none() {
            return;
        }
        for path in self.run.facts().open_places().iter().rev() {
            let Some(run) = self.run.facts().inner_run_at(path.calls()) else { continue };
            let Some(node) = self.nodes.get_mut(run.id().as_str()) else { continue };
            let decisions = run.facts().unreported_decisions();
            // A step has reported the others.
            let known = std::mem::replace(&mut node.decisions, decisions.len()).min(decisions.len());
            let decisions = decisions[known..].iter().cloned().map(Event::CallDecided);
            // Layers can replace the others.
            let sees = run.facts().sees();
            let finished = node.reported.take_shown(run, sees.answers, sees.outputs);
            let finished = finished.into_iter().map(Event::CallFinished);
            let events: Vec<_> = decisions.chain(finished).collect();
            events.into_iter().for_each(|event| self.publish(path, event));
        }
    }

    /// Adds the events of a reply, whose calls have their final ids now.
    pub(super) fn publish_reply(&mut self, path: &RunPath, mut response: ChatResponse) {
        let Some(run) = self.run_at(path) else { return };
        let announced = response.message.tool_calls.len();
        let calls = run.current_calls().enumerate().filter(|(_, (_, finished))| finished.is_none());
        let ready = calls.map(|(index, (call, _))| {
            Event::call_ready(index.min(announced.saturating_sub(1)), call.clone())
        });
        let mut events: Vec<_> = ready.collect();
        let reply = run.messages().iter().rev().find_map(Message::as_assistant);
        response.message = reply.cloned().unwrap_or_default();
        events.push(Event::turn_finished(run.turns(), response));
        events.into_iter().for_each(|event| self.publish(path, event));
    }

    /// Stores the events of the run itself, exactly once, and waits for it, so that the events of the next step follow them.
    pub(super) async fn flush_events(&mut self) -> Driven {
        self.publish_finished_calls();
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
