//! The entries of a run's log: the events of the run, and what events do not contain.
//!
//! The serialized form is documented in `docs/frontends.md`.
//!
//! A stored run is replayed as the events that it would emit, because the page, both protocols and the own stream then show a run in one
//! way, whether it runs here or not.

use serde::Serialize;
use tool_core::agent::EventRecord;
use tool_core::model::{AssistantMessage, ChatResponse};
use tool_core::run::{Run, StopReason};
use tool_core::tool::{DecisionRecord, Origin, ToolErrorKind};
use tool_core::{Event, Message, RunError, RunErrorKind, ToolExecution};

/// Something that happened in a run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "nearly all entries are events")]
pub(crate) enum Entry {
    // A message of the user.
    Question {
        text: String,
    },
    Decided(Decided),
    // The run ended without an answer. `kind` names no internals, `error` can.
    Failed {
        kind: &'static str,
        error: String,
    },
    Cancelled,
    #[serde(untagged)]
    Event(EventRecord),
}

/// Somebody decided about what the call with this path waited for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decided {
    pub(crate) call: String,
    #[serde(flatten)]
    pub(crate) record: DecisionRecord,
}

impl Entry {
    /// Creates the entry of an event of a run.
    pub(crate) fn from_event(event: &Event) -> Self {
        match event {
            Event::Failed(error) if *error == StopReason::Cancelled.to_string() => Self::Cancelled,
            Event::Failed(error) => Self::Failed { kind: "the run failed", error: error.clone() },
            // The answer contains all messages, and its record none.
            Event::Done(_) => {
                let record = event.clone().at(0);
                let summary = serde_json::to_vec(&record).and_then(|json| serde_json::from_slice(&json));
                Self::Event(summary.unwrap_or(record))
            }
            event => event.clone().into(),
        }
    }

    /// Creates the entry of the error of a run that was driven here. Returns `None` for a run that waits.
    pub(crate) fn from_error(error: &RunError) -> Option<Self> {
        let kind = match error.kind() {
            RunErrorKind::Waiting => return None,
            RunErrorKind::Stopped(StopReason::Cancelled) => return Some(Self::Cancelled),
            RunErrorKind::Stopped(reason) if reason.is_limit() => "the run reached a limit",
            RunErrorKind::Stopped(StopReason::ToolFailed { .. }) => "a tool ended the run",
            RunErrorKind::Stopped(_) => "the model gave no valid answer",
            RunErrorKind::Model(_) => "the model is not available",
            RunErrorKind::Tools { .. } => "the tools are not available",
            RunErrorKind::Store(_) => "the store is not available",
            RunErrorKind::Budget { left: 0, .. } => "the budget is used up",
            RunErrorKind::Budget { .. } => "the question is too long for what is left of the budget",
            RunErrorKind::BudgetInUse { .. } => {
                "another question uses what is left of the budget; ask again later"
            }
            RunErrorKind::Conflict | RunErrorKind::RunningElsewhere => "the run continues elsewhere",
            RunErrorKind::ConversationWaits { .. } => "an earlier question of this conversation waits",
            _ => "the run failed",
        };
        Some(Self::Failed { kind, error: error.to_string() })
    }

    /// Returns what a run has done so far, as if it had just happened.
    pub(crate) fn replay(run: &Run) -> Vec<Self> {
        let mut entries = Vec::new();
        let turns = run.new_messages().iter().filter_map(Message::as_assistant).count();
        let mut turn = run.turns().saturating_sub(u32::try_from(turns).unwrap_or(u32::MAX));
        for message in run.new_messages() {
            match message {
                Message::User(content) => {
                    entries.push(Self::Question { text: content.text().into_owned() });
                }
                Message::Assistant(message) => {
                    turn += 1;
                    replay_turn(turn, message, run, &mut entries);
                    let handed_off = run.handoffs().iter().filter(|handoff| handoff.turn() == turn);
                    entries.extend(handed_off.map(|handoff| Event::handed_off(handoff.agent()).into()));
                }
                _ => {}
            }
        }
        let undone = run.undo_executions().iter().cloned();
        entries.extend(undone.map(|execution| Event::CallFinished(execution).into()));
        let waits = run.waits();
        if !waits.is_empty() {
            entries.push(Event::Waiting(waits).into());
        }
        entries
    }

    /// Returns the event, unless the entry is another one.
    pub(crate) fn event(&self) -> Option<&Event> {
        match self {
            Self::Event(record) => Some(&record.event),
            _ => None,
        }
    }

    /// Returns `true` for the last entry of a run, unless it is resumed after a failure.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Cancelled) || matches!(self.event(), Some(Event::Done(_)))
    }
}

impl From<Event> for Entry {
    fn from(event: Event) -> Self {
        Self::Event(event.at(0))
    }
}

fn replay_turn(turn: u32, message: &AssistantMessage, run: &Run, entries: &mut Vec<Entry>) {
    let mut push = |event: Event| entries.push(event.into());
    push(Event::turn_started(turn, 0));
    message.reasoning.clone().map(Event::Reasoning).map(&mut push);
    Some(message.text.clone()).filter(|text| !text.is_empty()).map(Event::Text).map(&mut push);
    message.refusal.clone().map(Event::Refusal).map(&mut push);
    for (index, call) in message.tool_calls.iter().enumerate() {
        push(Event::call_ready(index, call.clone()));
    }
    push(Event::turn_finished(turn, ChatResponse::new(message.clone())));
    for call in &message.tool_calls {
        for inner in run.inner_runs().filter(|inner| inner.call_id() == call.id) {
            // The outer run lists the calls of its agents among its own.
            let events = Entry::replay(inner.run()).into_iter().filter_map(|entry| match entry {
                Entry::Event(record) if !matches!(record.event, Event::Waiting(_)) => Some(record.event),
                _ => None,
            });
            events.for_each(|event| push(event.inside(inner.agent(), &*call.id)));
        }
        let execution = executions(run).find(|execution| execution.call().id == call.id);
        execution.cloned().map(Event::CallFinished).map(&mut push);
    }
}

/// Returns the executions of the calls of a run, without those whose outcome a layer has failed to judge.
pub(crate) fn executions(run: &Run) -> impl Iterator<Item = &ToolExecution> {
    let all = run.tool_executions().iter().chain(run.current_calls().filter_map(|(_, execution)| execution));
    all.filter(|execution| !execution.is_unjudged())
}

/// Returns `true` if the call failed, or may have.
pub(crate) fn is_failure(execution: &ToolExecution) -> bool {
    execution.outcome().is_err_and(|error| match error.kind() {
        ToolErrorKind::Denied => false,
        ToolErrorKind::OutcomeUnknown => true,
        _ => execution.origin() != Origin::NotExecuted,
    })
}

/// Returns the output, or the text of the error.
pub(crate) fn output(execution: &ToolExecution) -> String {
    match execution.outcome() {
        Ok(output) => output.content().text().into_owned(),
        Err(error) => error.to_string(),
    }
}
