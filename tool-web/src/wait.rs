//! What a run waits for, as it is shown, and the decisions about it.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tool_core::Agent;
use tool_core::model::ToolDefinition;
use tool_core::run::{Decision, Run, Wait, WaitReason};
use tool_core::tool::{DecisionKind, DecisionRecord, Question, Timestamp};

use crate::log::unix_millis;

/// What a call waits for. The call of an agent inside is named by its path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Pending {
    pub(crate) id: String,
    pub(crate) call: String,
    pub(crate) tool: String,
    #[serde(flatten)]
    pub(crate) reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub(crate) enum Reason {
    Approval {
        arguments: String,
    },
    Answer {
        question: Box<Question>,
    },
    Result {
        arguments: String,
    },
    /// A point in time.
    Until,
}

impl From<&Wait> for Pending {
    fn from(wait: &Wait) -> Self {
        let reason = match &wait.reason {
            WaitReason::Approval(call) => Reason::Approval { arguments: call.arguments.clone() },
            WaitReason::Answer(question) => Reason::Answer { question: Box::new(question.clone()) },
            WaitReason::CallerResult(call) => Reason::Result { arguments: call.arguments.clone() },
            _ => Reason::Until,
        };
        Self {
            id: wait.id.to_string(),
            call: wait.path.clone(),
            tool: wait.tool.clone(),
            reason,
            deadline: wait.deadline.map(Timestamp::as_millis),
        }
    }
}

impl Pending {
    pub(crate) fn is_question(&self) -> bool {
        matches!(self.reason, Reason::Answer { .. })
    }

    pub(crate) fn is_secret(&self) -> bool {
        matches!(&self.reason, Reason::Answer { question } if question.is_secret())
    }

    /// Returns the arguments of a call that awaits approval.
    pub(crate) fn arguments(&self) -> Option<&str> {
        match &self.reason {
            Reason::Approval { arguments } => Some(arguments),
            _ => None,
        }
    }

    /// Returns one line for the list.
    pub(crate) fn line(&self) -> String {
        match &self.reason {
            Reason::Approval { arguments } | Reason::Result { arguments } => {
                format!("{} {arguments}", self.tool)
            }
            Reason::Answer { question } => format!("{}: {}", self.tool, question.text()),
            Reason::Until => self.tool.clone(),
        }
    }
}

pub(crate) fn pending(waits: &[Wait]) -> Vec<Pending> {
    waits.iter().map(Pending::from).collect()
}

/// A wait with what the agent knows about its tool.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Described {
    #[serde(flatten)]
    pub(crate) pending: Pending,
    /// The tools by which the agents were called that lead to the call.
    pub(crate) agents: Vec<String>,
    description: Option<String>,
    /// Why the call needs approval.
    why: Option<String>,
    is_at_most_once: bool,
    /// The members of the arguments, if they are a JSON object.
    fields: Option<Vec<Field>>,
}

/// A member of the arguments, for a form.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Field {
    name: String,
    /// The value, which is absent for a parameter that was not passed.
    json: Option<Box<RawValue>>,
    /// The JSON text of the value, in which numbers keep every digit in JavaScript, too.
    text: Option<String>,
    /// The schema of the parameter, if it is known.
    schema: Option<Value>,
    is_required: bool,
}

/// Returns what a run waits for, as it is shown. The tools of an agent describe it.
pub(crate) fn describe(run: &Run, agent: Option<&Agent>) -> Vec<Described> {
    pending(&run.waits()).into_iter().map(|pending| Described::new(run, pending, agent)).collect()
}

impl Described {
    fn new(run: &Run, pending: Pending, agent: Option<&Agent>) -> Self {
        let agents = agents_of(run, &pending.call);
        let definitions = agent.filter(|_| agents.is_empty()).map(|agent| agent.tools().definitions());
        let definition =
            definitions.into_iter().flat_map(|all| all.iter()).find(|one| one.name() == pending.tool);
        let schema = definition.map(ToolDefinition::parameters);
        Self {
            agents,
            description: definition.and_then(ToolDefinition::description).map(str::to_owned),
            why: definition.and_then(ToolDefinition::approval_reason).map(str::to_owned),
            is_at_most_once: definition.is_some_and(|definition| definition.policy().at_most_once),
            fields: pending.arguments().and_then(|arguments| fields(arguments, schema)),
            pending,
        }
    }
}

/// Returns the names of the agents on the path of a call.
fn agents_of(run: &Run, mut path: &str) -> Vec<String> {
    let (mut run, mut agents) = (run, Vec::new());
    while let Some((inner, rest)) = run.inner_runs().find_map(|inner| {
        let rest = path.strip_prefix(inner.call_id())?.strip_prefix('/')?;
        inner.run().waits().iter().any(|wait| wait.path == rest).then_some((inner, rest))
    }) {
        agents.push(inner.agent().to_owned());
        (run, path) = (inner.run(), rest);
    }
    agents
}

/// Splits arguments into their members, with the parameters that are absent.
fn fields(arguments: &str, parameters: Option<&Value>) -> Option<Vec<Field>> {
    // The order of the members is that of the text.
    let names: serde_json::Map<String, Value> = serde_json::from_str(arguments).ok()?;
    let mut texts: std::collections::HashMap<String, Box<RawValue>> = serde_json::from_str(arguments).ok()?;
    let properties = parameters.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let required = parameters.and_then(|schema| schema.get("required")).and_then(Value::as_array);
    let mut field = |name: &String, schema: Option<&Value>| {
        let json = texts.remove(name);
        Field {
            name: name.clone(),
            text: json.as_ref().map(|json| json.get().to_owned()),
            json,
            schema: schema.cloned(),
            is_required: required.is_some_and(|names| names.iter().any(|one| one == name)),
        }
    };
    let schema_of = |name: &String| properties.and_then(|properties| properties.get(name));
    let mut fields: Vec<_> = names.keys().map(|name| field(name, schema_of(name))).collect();
    let absent = properties.into_iter().flatten().filter(|(name, _)| !names.contains_key(*name));
    fields.extend(absent.map(|(name, schema)| field(name, Some(schema))));
    Some(fields)
}

/// What somebody decides about a wait.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Approve,
    Edit(String),
    Deny(Option<String>),
    /// A JSON text.
    Answer(String),
    /// The result of a call that the caller executes.
    Result(String),
}

impl Verdict {
    pub(crate) fn decision(&self, by: &str) -> Decision {
        let decision = match self {
            Self::Approve => Decision::approve(),
            Self::Edit(arguments) => Decision::approve_with(arguments),
            Self::Deny(Some(reason)) => Decision::deny(reason),
            Self::Deny(None) => Decision::decline(),
            Self::Answer(json) => Decision::answer_json(json),
            Self::Result(text) => Decision::result(Ok(tool_core::ToolOutput::text(text))),
        };
        decision.by(by).at(Timestamp::now())
    }

    fn kind(&self, is_question: bool) -> DecisionKind {
        match self {
            Self::Approve => DecisionKind::Approved,
            Self::Edit(_) => DecisionKind::ApprovedWithChanges,
            Self::Deny(_) if is_question => DecisionKind::Declined,
            Self::Deny(_) => DecisionKind::Denied,
            Self::Answer(_) => DecisionKind::Answered,
            Self::Result(_) => DecisionKind::Supplied,
        }
    }

    /// Returns a digest, by which equal decisions are recognized without storing an answer, which can be secret.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let (tag, text) = match self {
            Self::Approve => ("approve", ""),
            Self::Edit(text) => ("edit", &**text),
            Self::Deny(reason) => ("deny", reason.as_deref().unwrap_or_default()),
            Self::Answer(text) => ("answer", &**text),
            Self::Result(text) => ("result", &**text),
        };
        Sha256::digest(format!("{tag} {text}")).into()
    }

    /// Returns the record of this decision.
    pub(crate) fn record(&self, wait: &Pending, by: &str) -> Recorded {
        let why = match self {
            Self::Deny(reason) => reason.clone(),
            _ => None,
        };
        Recorded {
            decision: self.kind(wait.is_question()),
            why,
            by: Some(by.to_owned()),
            at: Some(unix_millis()),
            digest: self.digest(),
            position: None,
        }
    }
}

/// A decision that was recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Recorded {
    pub(crate) decision: DecisionKind,
    pub(crate) why: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) at: Option<u64>,
    #[serde(skip)]
    pub(crate) digest: [u8; 32],
    /// The position of the decision in the log of the run.
    #[serde(skip)]
    pub(crate) position: Option<u64>,
}

impl From<&DecisionRecord> for Recorded {
    fn from(record: &DecisionRecord) -> Self {
        Self {
            decision: record.kind,
            why: record.why.clone(),
            by: record.by.clone(),
            at: record.at.map(Timestamp::as_millis),
            digest: [0; 32],
            position: None,
        }
    }
}

/// The reason that a decision was refused.
#[derive(Debug)]
pub(crate) enum DecideError {
    UnknownRun,
    /// The run does not wait for this, for example because something else was shown.
    NotWaiting,
    /// Somebody decided otherwise before.
    AlreadyDecided(Recorded),
    /// Another process has posted a decision that was not taken yet, or drives the run.
    DecidedElsewhere,
    /// The arguments or the answer are not valid.
    Invalid(String),
    /// The store failed, or has no such run any more.
    Store,
}
