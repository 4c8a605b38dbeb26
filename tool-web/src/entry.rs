//! The entries of a run's log, and their translation from the events and the state of a run.
//!
//! This is the only place that knows [`Event`]. The serialized form is documented in `docs/frontends.md`.

use serde::Serialize;
use tool_core::arguments::Repair;
use tool_core::content::Content;
use tool_core::model::{AssistantMessage, FinishReason, Usage};
use tool_core::run::{Run, StopReason, Wait};
use tool_core::tool::{DecisionRecord, Origin, ToolErrorKind};
use tool_core::{Event, Message, RunError, RunErrorKind, ToolCall, ToolExecution};

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Entry {
    // A message of the user.
    Question {
        text: String,
    },
    TurnStarted {
        turn: u32,
    },
    Reasoning {
        text: String,
    },
    Text {
        text: String,
    },
    Refusal {
        text: String,
    },
    CallAnnounced {
        index: usize,
        id: String,
        name: String,
    },
    Arguments {
        index: usize,
        text: String,
    },
    CallReady {
        id: String,
        name: String,
        arguments: String,
    },
    TurnFinished {
        turn: u32,
        usage: Usage,
    },
    CallStarted {
        id: String,
    },
    CallProgress {
        id: String,
        text: String,
        done: Option<u64>,
        total: Option<u64>,
    },
    CallRetried {
        id: String,
        output: String,
    },
    CallFinished(Box<Finished>),
    // Nothing is left to do until these waits are decided.
    Waiting {
        waits: Vec<Wait>,
    },
    Agent {
        agent: String,
        call: String,
        event: Box<Entry>,
    },
    HandedOff {
        agent: String,
    },
    // Somebody decided about a wait.
    Decided {
        call: String,
        #[serde(flatten)]
        record: DecisionRecord,
    },
    Done {
        text: String,
        finish_reason: FinishReason,
        usage: Usage,
    },
    // `kind` names no internals, `error` can.
    Failed {
        kind: &'static str,
        error: String,
    },
    Cancelled,
}

/// A finished call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finished {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    /// The output, or the text of the error.
    pub(crate) output: String,
    pub(crate) status: CallStatus,
    pub(crate) duration_ms: u64,
    pub(crate) attempts: u32,
    /// What was repaired in the arguments, one text each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) repairs: Vec<String>,
    /// The arguments of the model, if a person changed them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) original_arguments: Option<String>,
    /// Who decided about the call while it waited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) decisions: Vec<DecisionRecord>,
    /// The call undid another.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_undo: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallStatus {
    Succeeded,
    Failed,
    Denied,
    NotExecuted,
    OutcomeUnknown,
}

impl CallStatus {
    pub(crate) fn of(execution: &ToolExecution) -> Self {
        match execution.outcome() {
            Ok(_) => Self::Succeeded,
            Err(error) => match error.kind() {
                ToolErrorKind::Denied => Self::Denied,
                ToolErrorKind::OutcomeUnknown => Self::OutcomeUnknown,
                _ if execution.origin() == Origin::NotExecuted => Self::NotExecuted,
                _ => Self::Failed,
            },
        }
    }

    /// Returns `true` if the call failed, or may have.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::OutcomeUnknown)
    }
}

impl Entry {
    /// Translates an event of a run.
    pub(crate) fn from_event(event: &Event) -> Option<Self> {
        Some(match event {
            Event::TurnStarted { turn, .. } => Self::TurnStarted { turn: *turn },
            Event::Text(text) => Self::Text { text: text.clone() },
            Event::Reasoning(text) => Self::Reasoning { text: text.clone() },
            Event::Refusal(text) => Self::Refusal { text: text.clone() },
            Event::CallAnnounced { index, id, name, .. } => {
                Self::CallAnnounced { index: *index, id: id.clone(), name: name.clone() }
            }
            Event::Arguments { index, text, .. } => Self::Arguments { index: *index, text: text.clone() },
            Event::CallReady { call, .. } => Self::ready(call),
            Event::TurnFinished { turn, response, .. } => {
                Self::TurnFinished { turn: *turn, usage: response.usage.unwrap_or_default() }
            }
            Event::CallStarted(call) => Self::CallStarted { id: call.id.clone() },
            Event::CallProgress { id, progress, .. } => Self::CallProgress {
                id: id.clone(),
                text: progress.text.clone(),
                done: progress.done,
                total: progress.total,
            },
            Event::CallRetried(execution) => {
                Self::CallRetried { id: execution.call().id.clone(), output: output(execution) }
            }
            Event::CallFinished(execution) => Self::finished(execution, false),
            Event::Waiting(waits) => Self::Waiting { waits: waits.clone() },
            Event::Agent { agent, call_id, event, .. } => Self::Agent {
                agent: agent.clone(),
                call: call_id.clone(),
                event: Self::from_event(event)?.into(),
            },
            Event::HandedOff { agent, .. } => Self::HandedOff { agent: agent.clone() },
            Event::Done(answer) => Self::Done {
                text: answer.to_string(),
                finish_reason: answer.finish_reason().clone(),
                usage: answer.usage(),
            },
            Event::Failed(error) if *error == StopReason::Cancelled.to_string() => Self::Cancelled,
            Event::Failed(error) => Self::Failed { kind: "the run failed", error: error.clone() },
            _ => return None,
        })
    }

    /// Translates the error of a run that was driven here. Returns `None` for a run that waits.
    pub(crate) fn from_error(error: &RunError) -> Option<Self> {
        let kind = match error.kind() {
            RunErrorKind::Waiting => return None,
            RunErrorKind::Stopped(StopReason::Cancelled) => return Some(Self::Cancelled),
            RunErrorKind::Stopped(reason) if reason.is_limit() => "the run reached a limit",
            RunErrorKind::Stopped(StopReason::ToolFailed { .. }) => "a tool ended the run",
            RunErrorKind::Stopped(_) => "the model gave no valid answer",
            RunErrorKind::Model(_) => "the model is not available",
            RunErrorKind::Store(_) => "the store is not available",
            RunErrorKind::Conflict | RunErrorKind::RunningElsewhere => "the run continues elsewhere",
            RunErrorKind::ConversationWaits { .. } => "an earlier question of this conversation waits",
            _ => "the run failed",
        };
        Some(Self::Failed { kind, error: error.to_string() })
    }

    /// Returns what a run has done so far, as if it had just happened.
    pub(crate) fn replay(run: &Run) -> Vec<Self> {
        let mut entries = Vec::new();
        let executions: Vec<_> = run
            .tool_executions()
            .iter()
            .chain(run.current_calls().filter_map(|(_, execution)| execution))
            .collect();
        let turns = run.new_messages().iter().filter_map(Message::as_assistant).count();
        let mut turn = run.turns().saturating_sub(u32::try_from(turns).unwrap_or(u32::MAX));
        for message in run.new_messages() {
            match message {
                Message::User(content) => entries.push(Self::Question { text: shown(content) }),
                Message::Assistant(message) => {
                    turn += 1;
                    Self::replay_turn(turn, message, run, &executions, &mut entries);
                }
                _ => {}
            }
        }
        entries.extend(run.undo_executions().iter().map(|execution| Self::finished(execution, true)));
        let waits = run.waits();
        if !waits.is_empty() {
            entries.push(Self::Waiting { waits });
        }
        entries
    }

    fn replay_turn(
        turn: u32,
        message: &AssistantMessage,
        run: &Run,
        executions: &[&ToolExecution],
        entries: &mut Vec<Self>,
    ) {
        entries.push(Self::TurnStarted { turn });
        entries.extend(message.reasoning.clone().map(|text| Self::Reasoning { text }));
        if !message.text.is_empty() {
            entries.push(Self::Text { text: message.text.clone() });
        }
        entries.extend(message.refusal.clone().map(|text| Self::Refusal { text }));
        entries.extend(message.tool_calls.iter().map(Self::ready));
        entries.push(Self::TurnFinished { turn, usage: Usage::default() });
        for call in &message.tool_calls {
            for inner in run.inner_runs().filter(|inner| inner.call_id() == call.id) {
                let wrap = |event: Self| Self::Agent {
                    agent: inner.agent().to_owned(),
                    call: call.id.clone(),
                    event: event.into(),
                };
                // The outer run lists the calls of its agents among its own.
                let events = Self::replay(inner.run()).into_iter().filter(|event| !event.is_waiting());
                entries.extend(events.map(wrap));
            }
            let execution = executions.iter().find(|execution| execution.call().id == call.id);
            entries.extend(execution.map(|execution| Self::finished(execution, false)));
        }
    }

    fn ready(call: &ToolCall) -> Self {
        Self::CallReady { id: call.id.clone(), name: call.name.clone(), arguments: call.arguments.clone() }
    }

    fn finished(execution: &ToolExecution, is_undo: bool) -> Self {
        let call = execution.call();
        let original = execution.original_arguments();
        let repair = |repair: &Repair| {
            let argument = repair.argument().unwrap_or("arguments");
            format!("{argument}: {} → {}", repair.original(), repair.repaired())
        };
        Self::CallFinished(Box::new(Finished {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            output: output(execution),
            status: CallStatus::of(execution),
            duration_ms: u64::try_from(execution.duration().as_millis()).unwrap_or(u64::MAX),
            attempts: execution.attempts(),
            repairs: execution.repairs().iter().map(repair).collect(),
            original_arguments: Some(original).filter(|text| *text != call.arguments).map(str::to_owned),
            decisions: execution.decisions().to_vec(),
            is_undo,
        }))
    }

    /// Returns `true` if the run waits for people or callers from here on.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }

    /// Returns `true` for the last entry of a run, unless it is resumed after a failure.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed { .. } | Self::Cancelled)
    }

    /// Returns roughly the memory that the entry takes, in bytes.
    pub(crate) fn size(&self) -> usize {
        let texts = match self {
            Self::Question { text }
            | Self::Reasoning { text }
            | Self::Text { text }
            | Self::Refusal { text }
            | Self::Arguments { text, .. }
            | Self::Done { text, .. } => text.len(),
            Self::CallReady { arguments, .. } => arguments.len(),
            Self::CallFinished(finished) => {
                finished.output.len() + finished.arguments.len() + size_of::<Finished>()
            }
            Self::CallRetried { output, .. } => output.len(),
            Self::Failed { error, .. } => error.len(),
            Self::Agent { event, .. } => event.size(),
            _ => 0,
        };
        texts + 2 * size_of::<Self>()
    }
}

/// Returns the output, or the text of the error.
fn output(execution: &ToolExecution) -> String {
    match execution.outcome() {
        Ok(output) => shown(output.content()),
        Err(error) => error.to_string(),
    }
}

/// Returns the text of content, with the number of images.
fn shown(content: &Content) -> String {
    let text = content.text().into_owned();
    match content.images().count() {
        0 => text,
        images => format!("{text}[{images} images]"),
    }
}
