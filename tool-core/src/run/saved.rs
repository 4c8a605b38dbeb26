//! The form in which a run is kept.
//!
//! It is compact: what the messages say already is not said again, and definitions of tools are not kept. `format` is
//! raised by a change that earlier versions cannot read; all earlier formats are read.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::ending::Ending;
use super::state::Settings;
use super::state::Stage;
use super::turn::{Standing, Turn};
use crate::model::{
    ConversationId, FinishReason, Message, RequestCache, ReturnDirect, ToolCall, ToolChoice, ToolMessage,
    ToolPolicy, Usage,
};
use crate::run::{Run, RunId};
use crate::tool::timing::micros;
use crate::tool::{ExecutionMetadata, ToolError, ToolErrorKind, ToolExecution, ToolOutput};

/// The version of the form.
const FORMAT: u32 = 2;

#[derive(Serialize)]
struct State<'a> {
    format: u32,
    id: &'a RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<&'a ConversationId>,
    messages: &'a [Message],
    given: usize,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    remembers: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation_had: Option<usize>,
    settings: &'a Settings,
    turns: u32,
    usage: Usage,
    #[serde(with = "micros", skip_serializing_if = "Duration::is_zero")]
    time: Duration,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Record<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    undone: &'a [ToolExecution],
    stage: &'a Stage,
}

/// A call that is over, as far as the messages do not say it.
#[derive(Serialize, Deserialize)]
struct Record<'a> {
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

impl<'a> Record<'a> {
    fn of(execution: &'a ToolExecution) -> Self {
        let (output, error) = (execution.output(), execution.outcome().err());
        Self {
            id: (&*execution.call.id).into(),
            notes: Cow::Borrowed(&execution.metadata),
            error: error.map(ToolError::kind),
            is_fatal: error.is_some_and(ToolError::is_fatal),
            data: output.and_then(ToolOutput::data).map(Cow::Borrowed),
            left_out: output.and_then(ToolOutput::left_out),
        }
    }

    fn restored(self, call: &ToolCall, result: &ToolMessage) -> ToolExecution {
        let outcome = match self.error {
            Some(kind) => Err(ToolError::restored(kind, result.content.text().into_owned(), self.is_fatal)),
            None => {
                let mut output = ToolOutput::from(result.content.clone());
                if let Some(data) = self.data {
                    output = output.with_data(data.into_owned());
                }
                Ok(output.with_left_out(self.left_out))
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
            conversation: self.conversation.as_ref(),
            messages: &self.messages,
            given: self.given,
            remembers: self.remembers,
            conversation_had: self.conversation_had,
            settings: &self.settings,
            turns: self.turns,
            usage: self.usage,
            time: self.time,
            calls: self.tool_executions.iter().map(Record::of).collect(),
            undone: &self.undone,
            stage: &self.stage,
        };
        state.serialize(serializer)
    }
}

/// What is read: the fields of all formats.
#[derive(Deserialize)]
struct AnyState {
    #[serde(deserialize_with = "known_format")]
    format: u32,
    messages: Vec<Message>,
    given: usize,
    turns: u32,
    usage: Usage,
    #[serde(default)]
    conversation: Option<ConversationId>,
    // Since format 2.
    id: Option<RunId>,
    #[serde(default)]
    remembers: bool,
    conversation_had: Option<usize>,
    settings: Option<Settings>,
    #[serde(default, with = "micros")]
    time: Duration,
    #[serde(default)]
    calls: Vec<Record<'static>>,
    #[serde(default)]
    undone: Vec<ToolExecution>,
    stage: Option<Stage>,
    // Of format 1.
    max_turns: Option<u32>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    tool_executions: Vec<FirstExecution>,
    standing: Option<FirstStage>,
}

#[derive(Deserialize)]
struct FirstExecution {
    #[serde(flatten)]
    execution: ToolExecution,
    #[serde(default)]
    returns_direct: bool,
}

/// Where a run of format 1 stands.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FirstStage {
    Asking,
    Calling(Vec<Option<FirstExecution>>),
    Answered(FinishReason),
    Returned,
    OutOfTurns,
    CutShort(FinishReason),
}

impl FirstStage {
    fn into_stage(self, messages: &[Message], max_turns: u32) -> Stage {
        match self {
            Self::Asking => Stage::Asking,
            Self::Calling(outcomes) => {
                let standing = |outcome: Option<FirstExecution>| {
                    let mut policy = ToolPolicy::default();
                    if outcome.as_ref().is_some_and(|first| first.returns_direct) {
                        policy.return_direct = ReturnDirect::IfAll;
                    }
                    let policy = outcome.is_some().then_some(policy);
                    Standing { policy, outcome: outcome.map(|first| first.execution), ..Standing::default() }
                };
                let calls = outcomes.into_iter().map(standing).collect();
                Stage::Calling(Turn { calls, said: Vec::new() })
            }
            Self::Answered(reason) => Stage::Answered(reason),
            Self::Returned => {
                let results = messages.iter().rev().take_while(|one| matches!(one, Message::Tool(_))).count();
                Stage::Returned((messages.len() - results..messages.len()).collect())
            }
            Self::OutOfTurns => Stage::Ended(Ending::Turns(max_turns)),
            Self::CutShort(reason) => Stage::Ended(Ending::CutShort(reason)),
        }
    }
}

impl AnyState {
    fn into_run(self) -> Result<Run, &'static str> {
        let mut settings = self.settings.unwrap_or_default();
        let (tool_executions, stage) = if self.format == 1 {
            settings.limits.turns = self.max_turns.ok_or("`max_turns` is missing")?;
            settings.tool_choice = self.tool_choice.unwrap_or_default();
            settings.parallel_tool_calls = self.parallel_tool_calls;
            let stage = self.standing.ok_or("`standing` is missing")?;
            let executions = self.tool_executions.into_iter().map(|first| first.execution).collect();
            (executions, stage.into_stage(&self.messages, settings.limits.turns))
        } else {
            (restored(self.calls, &self.messages)?, self.stage.ok_or("`stage` is missing")?)
        };
        Ok(Run {
            id: self.id.unwrap_or_else(RunId::unique),
            messages: self.messages,
            given: self.given,
            settings,
            conversation: self.conversation,
            // A run of format 1 had nothing to remember.
            remembers: self.remembers || self.format == 1,
            conversation_had: self.conversation_had,
            turns: self.turns,
            usage: self.usage,
            time: self.time,
            tool_executions,
            undone: self.undone,
            stage,
            cache: RequestCache::default(),
        })
    }
}

/// The records, filled with what the messages say.
fn restored(records: Vec<Record<'_>>, messages: &[Message]) -> Result<Vec<ToolExecution>, &'static str> {
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
    let restored = |record: Record<'_>| match calls.get(&*record.id) {
        Some((Some(call), Some(result))) => Ok(record.restored(call, result)),
        _ => Err("a call that is over is not among the messages"),
    };
    records.into_iter().map(restored).collect()
}

/// What is read is checked, as it may be anything.
impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let contradicts = |why: &str| {
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            D::Error::custom(format_args!("the state of the run contradicts itself{why}"))
        };
        let run = AnyState::deserialize(deserializer)?.into_run().map_err(contradicts)?;
        if run.is_consistent() { Ok(run) } else { Err(contradicts("")) }
    }
}

impl Run {
    /// What the rules take for granted, which a state that was read need not keep.
    fn is_consistent(&self) -> bool {
        let calls = self.calls();
        let stands = match &self.stage {
            Stage::Calling(turn) => {
                let is_of = |(call, standing): (&ToolCall, &Standing)| {
                    standing.outcome.as_ref().is_none_or(|execution| execution.call().id == call.id)
                };
                // An outcome is tied to its call by the id.
                let ids: HashSet<_> = calls.iter().map(|call| &call.id).collect();
                turn.calls.len() == calls.len()
                    && ids.len() == calls.len()
                    && turn.calls.iter().any(Standing::is_open)
                    && calls.iter().zip(&turn.calls).all(is_of)
            }
            Stage::Asking => calls.is_empty(),
            Stage::Answered(_) => matches!(self.messages.last(), Some(Message::Assistant(_))),
            Stage::Returned(positions) => {
                let is_result =
                    |position: &usize| matches!(self.messages.get(*position), Some(Message::Tool(_)));
                !positions.is_empty() && positions.iter().all(is_result)
            }
            Stage::Undoing { .. } => self.undo_call().is_some(),
            Stage::Ended(_) => true,
        };
        stands && self.given <= self.messages.len()
    }
}

fn known_format<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        format @ 1..=FORMAT => Ok(format),
        other => Err(D::Error::custom(format_args!(
            "a run of format {other} cannot be read here; this version reads formats 1 to {FORMAT}"
        ))),
    }
}
