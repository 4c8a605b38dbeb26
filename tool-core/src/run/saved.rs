//! The serialized form of a run.
//!
//! It is compact: it does not repeat what the messages contain, and leaves out tool definitions. A change that earlier
//! versions cannot read raises `format`; all earlier formats can be read.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::history::History;
use super::revision::StoredState;
use super::saved_stage::{Format1Execution, Format1Stage, SavedStage};
use super::settings::Settings;
use super::state::{CallRecord, Stage};
use crate::model::{ConversationId, Cost, Message, RequestCache, ToolCall, ToolChoice, ToolMessage, Usage};
use crate::run::{Handoff, InnerRun, Run, RunId, RunRevision};
use crate::tool::timing::micros;
use crate::tool::{
    ExecutionMetadata, Timestamp, ToolError, ToolErrorKind, ToolExecution, ToolOutput, VerdictRecord,
};

const FORMAT: u32 = 4;

#[derive(Serialize)]
struct State<'a> {
    format: u32,
    id: &'a RunId,
    #[serde(rename = "agent", skip_serializing_if = "Option::is_none")]
    agent_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a RunRevision>,
    #[serde(rename = "saving", skip_serializing_if = "Option::is_none")]
    unconfirmed_revision: Option<&'a RunRevision>,
    #[serde(rename = "failed", skip_serializing_if = "std::ops::Not::not")]
    has_failed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<&'a ConversationId>,
    #[serde(rename = "found", skip_serializing_if = "<[_]>::is_empty")]
    found_tools: &'a [String],
    messages: &'a [Message],
    #[serde(rename = "given")]
    history_len: usize,
    #[serde(rename = "remembers", skip_serializing_if = "std::ops::Not::not")]
    has_loaded_history: bool,
    #[serde(rename = "conversation_had", skip_serializing_if = "Option::is_none")]
    stored_conversation_len: Option<usize>,
    settings: &'a Settings,
    turns: u32,
    usage: Usage,
    #[serde(rename = "layers", skip_serializing_if = "<[_]>::is_empty")]
    layer_usage: &'a [(String, Usage)],
    #[serde(rename = "may_cost", skip_serializing_if = "Option::is_none")]
    cost_in_flight: Option<Cost>,
    #[serde(rename = "time", with = "micros", skip_serializing_if = "Duration::is_zero")]
    elapsed: Duration,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<SavedExecution<'a>>,
    #[serde(rename = "undone", skip_serializing_if = "<[_]>::is_empty")]
    undo_executions: &'a [ToolExecution],
    #[serde(rename = "agents", skip_serializing_if = "<[_]>::is_empty")]
    inner_runs: &'a [InnerRun],
    #[serde(rename = "handed_over", skip_serializing_if = "<[_]>::is_empty")]
    handoffs: &'a [Handoff],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    verdicts: &'a [VerdictRecord],
    #[serde(rename = "bounded_keys", skip_serializing_if = "std::ops::Not::not")]
    has_bounded_keys: bool,
    stage: &'a Stage,
}

/// The part of a finished call that the messages do not contain.
#[derive(Serialize, Deserialize)]
struct SavedExecution<'a> {
    id: Cow<'a, str>,
    #[serde(flatten)]
    notes: Cow<'a, ExecutionMetadata>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<ToolErrorKind>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_fatal: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Cow<'a, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<usize>,
}

impl<'a> SavedExecution<'a> {
    fn new(execution: &'a ToolExecution) -> Self {
        let (output, error) = (execution.output(), execution.outcome().err());
        Self {
            id: (&*execution.call.id).into(),
            notes: Cow::Borrowed(&execution.metadata),
            error: error.map(ToolError::kind),
            is_fatal: error.is_some_and(ToolError::is_fatal),
            data: output.and_then(ToolOutput::stored_data).map(Cow::Borrowed),
            left_out: output.and_then(ToolOutput::omitted_chars),
        }
    }

    fn restore(self, call: &ToolCall, result: &ToolMessage) -> ToolExecution {
        let outcome = match self.error {
            Some(kind) => Err(ToolError::restored(kind, result.content.text().into_owned(), self.is_fatal)),
            None => {
                let mut output = ToolOutput::from(result.content.clone());
                if let Some(data) = self.data {
                    output = output.with_data(data.into_owned());
                }
                Ok(output.with_omitted_chars(self.left_out))
            }
        };
        ToolExecution { call: call.clone(), outcome, metadata: self.notes.into_owned() }
    }
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let state = State {
            format: FORMAT,
            id: &self.id,
            agent_name: self.agent_name(),
            revision: self.stored.confirmed.as_ref(),
            unconfirmed_revision: self.stored.in_doubt.as_ref(),
            has_failed: self.stored.has_failed,
            conversation: self.conversation.as_ref(),
            found_tools: self.found_tools(),
            messages: self.messages(),
            history_len: self.history.given(),
            has_loaded_history: self.has_loaded_history,
            stored_conversation_len: self.stored_conversation_len,
            settings: &self.settings,
            turns: self.turns,
            usage: self.usage,
            layer_usage: &self.layer_usage,
            cost_in_flight: self.cost_in_flight,
            elapsed: self.elapsed,
            calls: self.tool_executions().iter().map(SavedExecution::new).collect(),
            undo_executions: self.undo_executions(),
            inner_runs: &self.inner_runs,
            handoffs: &self.handoffs,
            verdicts: self.verdicts(),
            has_bounded_keys: self.has_bounded_keys,
            stage: &self.stage,
        };
        state.serialize(serializer)
    }
}

/// The fields of all formats.
#[derive(Deserialize)]
struct AnyState {
    #[serde(deserialize_with = "known_format")]
    format: u32,
    messages: Vec<Message>,
    #[serde(rename = "given")]
    history_len: usize,
    turns: u32,
    usage: Usage,
    #[serde(default)]
    conversation: Option<ConversationId>,
    #[serde(rename = "found", default)]
    found_tools: Vec<String>,
    // Since format 2.
    id: Option<RunId>,
    #[serde(rename = "remembers", default)]
    has_loaded_history: bool,
    #[serde(rename = "conversation_had")]
    stored_conversation_len: Option<usize>,
    settings: Option<Settings>,
    #[serde(rename = "time", default, with = "micros")]
    elapsed: Duration,
    #[serde(default)]
    calls: Vec<SavedExecution<'static>>,
    #[serde(rename = "undone", default)]
    undo_executions: Vec<ToolExecution>,
    #[serde(rename = "agents", default)]
    inner_runs: Vec<InnerRun>,
    #[serde(rename = "handed_over", default)]
    handoffs: Vec<Handoff>,
    #[serde(rename = "bounded_keys", default)]
    has_bounded_keys: bool,
    stage: Option<SavedStage>,
    revision: Option<RunRevision>,
    #[serde(rename = "saving")]
    unconfirmed_revision: Option<RunRevision>,
    #[serde(rename = "failed", default)]
    has_failed: bool,
    // Since format 4.
    #[serde(rename = "agent")]
    agent_name: Option<String>,
    #[serde(rename = "layers", default)]
    layer_usage: Vec<(String, Usage)>,
    #[serde(rename = "may_cost")]
    cost_in_flight: Option<Cost>,
    #[serde(default)]
    verdicts: Vec<VerdictRecord>,
    // Format 1 only.
    max_turns: Option<u32>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    tool_executions: Vec<Format1Execution>,
    standing: Option<Format1Stage>,
}

impl AnyState {
    fn into_run(self) -> Result<Run, &'static str> {
        let mut settings = self.settings.unwrap_or_default();
        let format = self.format;
        if format == 1 {
            settings.limits.max_turns = self.max_turns.ok_or("`max_turns` is missing")?;
            settings.tool_choice = self.tool_choice.unwrap_or_default();
            settings.parallel_tool_calls = self.parallel_tool_calls;
        }
        let tool_executions = match format {
            1 => self.tool_executions.into_iter().map(|saved| saved.execution).collect(),
            _ => restore_executions(self.calls, &self.messages)?,
        };
        let mut run = Run {
            id: self.id.unwrap_or_else(RunId::unique),
            agent_name: self.agent_name,
            history: History::restored(
                (self.messages, self.history_len),
                (tool_executions, self.undo_executions),
                self.verdicts,
                self.found_tools,
            ),
            settings,
            conversation: self.conversation,
            // Runs of format 1 had no stored conversation.
            has_loaded_history: self.has_loaded_history || format == 1,
            stored_conversation_len: self.stored_conversation_len,
            turns: self.turns,
            usage: self.usage,
            layer_usage: self.layer_usage,
            cost_in_flight: self.cost_in_flight,
            elapsed: self.elapsed,
            now: Timestamp::default(),
            inner_runs: self.inner_runs,
            handoffs: self.handoffs,
            stage: Stage::Asking,
            has_bounded_keys: self.has_bounded_keys,
            stored: StoredState {
                confirmed: self.revision,
                in_doubt: self.unconfirmed_revision,
                has_failed: self.has_failed,
            },
            recorded: None,
            cache: RequestCache::default(),
            call_index: None,
        };
        run.stage = match format {
            1 => self.standing.ok_or("`standing` is missing")?.into_stage(&run),
            _ => self.stage.ok_or("`stage` is missing")?.into_stage(&run, format)?,
        };
        Ok(run)
    }
}

/// Completes the saved executions with the calls and results that the messages contain.
fn restore_executions(
    saved: Vec<SavedExecution<'_>>,
    messages: &[Message],
) -> Result<Vec<ToolExecution>, &'static str> {
    let mut calls: HashMap<&str, (Option<&ToolCall>, Option<&ToolMessage>)> = HashMap::new();
    for message in messages {
        match message {
            Message::Assistant(message) => {
                for call in &message.tool_calls {
                    calls.entry(&call.id).or_default().0 = Some(call);
                }
            }
            Message::Tool(result) => calls.entry(&result.call_id).or_default().1 = Some(result),
            _ => {}
        }
    }
    // Removed, because a call that was recorded twice would be undone twice.
    let restore = |saved: SavedExecution<'_>| match calls.remove(&*saved.id) {
        Some((Some(call), Some(result))) => Ok(saved.restore(call, result)),
        _ => Err("a finished call is missing from the messages, or recorded twice"),
    };
    saved.into_iter().map(restore).collect()
}

/// Checks the state, because the input is untrusted.
impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let inconsistent = |why: &str| {
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            D::Error::custom(format_args!("the state of the run is inconsistent{why}"))
        };
        let run = AnyState::deserialize(deserializer)?.into_run().map_err(inconsistent)?;
        if run.is_consistent() { Ok(run) } else { Err(inconsistent("")) }
    }
}

impl Run {
    /// Returns `true` if the invariants hold that the rules rely on.
    fn is_consistent(&self) -> bool {
        let calls = self.calls();
        let is_stage_valid = match &self.stage {
            Stage::Calling(turn) => {
                let has_same_id = |(call, record): (&ToolCall, &CallRecord)| {
                    record.outcome().is_none_or(|execution| execution.call().id == call.id)
                };
                // The id ties an outcome to its call.
                let ids: HashSet<_> = calls.iter().map(|call| &call.id).collect();
                turn.calls.len() == calls.len()
                    && ids.len() == calls.len()
                    && !self.tool_executions().iter().any(|execution| ids.contains(&execution.call.id))
                    && turn.calls.iter().any(CallRecord::is_open)
                    && calls.iter().zip(&turn.calls).all(has_same_id)
            }
            Stage::Asking => calls.is_empty(),
            Stage::Answered(_) => matches!(self.messages().last(), Some(Message::Assistant(_))),
            Stage::Returned(positions) => {
                let is_result =
                    |position: &usize| matches!(self.messages().get(*position), Some(Message::Tool(_)));
                !positions.is_empty() && positions.iter().all(is_result)
            }
            // A call that undoes another awaits no approval and no result.
            Stage::Undoing(undoing) => undoing.record.is_ready(),
            Stage::Ended(_) => true,
        };
        is_stage_valid && self.history.given() <= self.messages().len() && self.has_consistent_inner_runs()
    }
}

fn known_format<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        format @ 1..=FORMAT => Ok(format),
        other => Err(D::Error::custom(format_args!(
            "unsupported run format {other}; this version reads formats 1 to {FORMAT}"
        ))),
    }
}
