//! The names of the services, and what their handlers receive and return. Workers of different versions exchange these values, so
//! members are only added, with a default.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tool_core::Message;
use tool_core::agent::EventRecord;
use tool_core::content::Content;
use tool_core::engine::CallRequest;
use tool_core::model::{ConversationId, RunUser};
use tool_core::run::{Answer, Decision, RunId, StopReason, Wait};
use tool_core::signatures::DecisionRecord;
use tool_core::store::{CompactionSummary, MessageVolume};
use tool_core::tool::{ToolExecution, WaitId};

use crate::path::Asked;

/// Returns the name of the service that executes the calls of one definition of a tool, which other programs may have as well.
pub(crate) fn tool_service(owner: &str, tool: &str, hash: &str) -> String {
    let is_valid = |one: char| one.is_ascii_alphanumeric() || matches!(one, '_' | '-');
    let tool = tool.replace(|one| !is_valid(one), "_");
    format!("{owner}.calls.{tool}.{}", hash.get(..16).unwrap_or(hash))
}

/// Returns the name of the service that executes the calls of tools of providers, of an agent or of workers that have only tools.
pub(crate) fn calls_service(name: &str) -> String {
    format!("{name}.calls")
}

/// Returns the name of the objects that have the conversations of an agent.
pub(crate) fn conversations_service(agent: &str) -> String {
    format!("{agent}.conversations")
}

/// Returns the name of the objects that have the events of an agent's runs.
pub(crate) fn events_service(agent: &str) -> String {
    format!("{agent}.events")
}

/// Returns `true` if the server accepts the name of a service.
pub(crate) fn is_service_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|one| one.is_ascii_alphanumeric() || matches!(one, '.' | '_' | '-'))
}

/// The values that travel with a question, by the names of their types.
pub(crate) type JsonContext = BTreeMap<String, Value>;

/// The question of a run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) question: Content,
    /// Whose run it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<RunUser>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conversation: Option<ConversationId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) context: JsonContext,
    /// The run publishes its events.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) events: bool,
}

impl Question {
    /// Returns a digest that distinguishes questions with the same key.
    pub(crate) fn digest(&self) -> String {
        digest(self)
    }
}

/// Returns a digest of the JSON of a value.
pub(crate) fn digest(value: &impl Serialize) -> String {
    let json = serde_json::to_vec(value).unwrap_or_default();
    Sha256::digest(json).iter().map(|byte| format!("{byte:02x}")).collect()
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
    /// The first event of the stream, which is repeated with each further attempt.
    pub(crate) begins: Option<EventRecord>,
    /// The time at which the attempt began: a later one makes an earlier one void.
    pub(crate) attempt: u64,
    pub(crate) index: u32,
    pub(crate) events: Vec<EventRecord>,
}

/// Events after a position.
#[derive(Serialize, Deserialize)]
pub(crate) struct Page {
    pub(crate) events: Vec<EventRecord>,
    /// None follow, because the run has ended.
    pub(crate) is_last: bool,
}

/// A call, for the worker that executes it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct CallInput {
    pub(crate) request: CallRequest,
    /// The hash of the definition that the model was offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) definition: Option<String>,
    /// The names of the tools that the model was offered, if the call's is not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) offered: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) at_most_once: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<EventTarget>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) context: JsonContext,
    /// The calls that lead to the run that the call belongs to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) path: Vec<Asked>,
    /// The names that lead to the agent of the call: of tools that ask agents or hand off to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) agent: Vec<String>,
}

/// What a run waits for.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// The number of messages that have reached the run.
    pub(crate) messages: u32,
    /// How much it is that has reached the run.
    #[serde(default)]
    pub(crate) message_volume: MessageVolume,
    /// What waits for a decision.
    pub(crate) waits: Vec<WaitId>,
    /// The names that lead to the agents of calls that are of other agents than the outermost, by the paths of the calls.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) agents: BTreeMap<String, Vec<String>>,
    /// Whose run it is, once it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<Identity>,
    /// The number of times that the run began to wait.
    pub(crate) round: u32,
    /// The reason that the run waits for an operator, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) paused: Option<String>,
    /// The run has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_ended: bool,
}

/// What the application learns of a run about which somebody decides.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) run: RunId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<RunUser>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conversation: Option<ConversationId>,
}

/// The reason that waiting for a run returned.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stop {
    Waiting(Vec<Wait>),
    Paused(String),
    /// Nothing happened for a while.
    GoesOn,
    Ended,
}

/// Decisions, by what they are about.
pub(crate) type Decisions = Vec<(WaitId, Decision)>;

/// What became of decisions: what each is about, with its record, or the record of an earlier one.
pub(crate) type Outcome = Result<Vec<(Wait, DecisionRecord)>, Option<DecisionRecord>>;

/// The right to decide about a wait or to send the message of a number, which only one has.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) invocation: String,
    pub(crate) record: Option<DecisionRecord>,
    /// The bytes of all messages up to the one of this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<usize>,
}

/// A decision or a message on its way to the run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Sent<T> {
    pub(crate) value: T,
    /// Microseconds since 1970.
    pub(crate) at: u64,
}

/// The end of a run.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "it is matched where it is created")]
pub(crate) enum Ended {
    #[serde(with = "compact")]
    Answer(Answer),
    Failed(RunFailure),
    /// It is larger than a value can be: its JSON is in the state of the run, in this number of parts.
    Parts(u32),
}

/// An answer whose messages do not repeat the outcomes that its records have: such a message is the position of its record.
mod compact {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;
    use tool_core::Message;
    use tool_core::run::Answer;
    use tool_core::tool::ToolExecution;

    pub(super) fn serialize<S: Serializer>(answer: &Answer, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = serde_json::to_value(answer).map_err(serde::ser::Error::custom)?;
        let records = answer.tool_executions();
        let messages = json["messages"].as_array_mut().into_iter().flatten();
        for (message, json) in answer.new_messages().iter().zip(messages) {
            let Message::Tool(result) = message else { continue };
            let position = records.iter().position(|one| one.call().id == result.call_id);
            if let Some(position) = position.filter(|at| Message::from(&records[*at]) == *message) {
                *json = position.into();
            }
        }
        json.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Answer, D::Error> {
        let mut json = Value::deserialize(deserializer)?;
        let records =
            Vec::<ToolExecution>::deserialize(&json["tool_executions"]).map_err(D::Error::custom)?;
        for message in json["messages"].as_array_mut().into_iter().flatten() {
            let position = message.as_u64().and_then(|at| usize::try_from(at).ok());
            if let Some(record) = position.and_then(|at| records.get(at)) {
                *message = serde_json::to_value(Message::from(record)).map_err(D::Error::custom)?;
            }
        }
        serde_json::from_value(json).map_err(D::Error::custom)
    }
}

/// A run that asks for its conversation.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct HoldRequest {
    pub(crate) run: String,
    pub(crate) invocation: String,
}

/// What a run reads of its conversation.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct History {
    /// Those within the window.
    pub(crate) messages: Vec<Message>,
    /// The number of all messages.
    pub(crate) stored_len: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<CompactionSummary>,
}

/// The messages that a run adds to its conversation.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Added {
    pub(crate) messages: Vec<Message>,
    /// The run whose end is stored in parts, and their number. The messages are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stored: Option<(String, u32)>,
    /// What stands for the first messages from now on, if the conversation has had so many messages before these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<(usize, CompactionSummary)>,
}

/// A run that ended without an answer.
///
/// `Display` is for the operator of the program and can contain text of the model or of a tool.
#[derive(Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunFailure {
    /// The reason, if a rule of the run ended it. Otherwise, the model or the tools of the worker failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<StopReason>,
    /// A description.
    pub message: String,
    /// The records of the calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_executions: Vec<ToolExecution>,
    /// The records of the calls that undid others, in order of execution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undo_executions: Vec<ToolExecution>,
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Omits the text, which can be of the model or of a tool.
impl fmt::Debug for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunFailure")
            .field("reason", &self.reason)
            .field("tool_executions", &self.tool_executions)
            .field("undo_executions", &self.undo_executions)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for RunFailure {}
