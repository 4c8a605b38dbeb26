//! What a run waits for, and the decisions about it.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tool_core::model::ToolDefinition;
use tool_core::run::Run;
use tool_core::{Agent, Approval, ToolCall};

use crate::entry::Kind;

/// A call that awaits approval, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Wait {
    /// A digest of what is shown, which a decision names.
    pub(crate) id: String,
    /// The id of the call, which is a path for a call inside an agent.
    pub(crate) call: String,
    /// The tools by which the agents were called that lead to the call.
    pub(crate) agents: Vec<String>,
    pub(crate) tool: String,
    pub(crate) arguments: String,
    /// Why the call needs approval, and what its tool is.
    pub(crate) description: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) is_at_most_once: bool,
    /// The members of the arguments, if they are a JSON object.
    pub(crate) fields: Option<Vec<Field>>,
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

/// Returns what a run waits for. The tools of an agent describe it.
pub(crate) fn waits(run: &Run, agent: Option<&Agent>) -> Vec<Wait> {
    run.awaiting_approval().map(|call| Wait::new(run, call, agent)).collect()
}

impl Wait {
    fn new(run: &Run, call: &ToolCall, agent: Option<&Agent>) -> Self {
        let agents = agents_of(run, &call.id);
        let definitions = agent.filter(|_| agents.is_empty()).map(|agent| agent.tools().definitions());
        let definition =
            definitions.into_iter().flat_map(|all| all.iter()).find(|one| one.name() == call.name);
        Self {
            id: wait_id(run.id().as_str(), &call.id, &call.name, &call.arguments),
            call: call.id.clone(),
            agents,
            tool: call.name.clone(),
            arguments: call.arguments.clone(),
            description: definition.and_then(ToolDefinition::description).map(str::to_owned),
            reason: definition.and_then(ToolDefinition::approval_reason).map(str::to_owned),
            is_at_most_once: definition.is_some_and(|definition| definition.policy().at_most_once),
            fields: fields(&call.arguments, definition.map(ToolDefinition::parameters)),
        }
    }
}

/// Returns the digest of a call that awaits approval. Another call, or other arguments, have another.
pub(crate) fn wait_id(run: &str, call: &str, tool: &str, arguments: &str) -> String {
    let mut hash = Sha256::new();
    for part in [run, call, tool, arguments] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(16).fold("wait_".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// Returns the names of the agents on the path of a call.
fn agents_of(run: &Run, mut path: &str) -> Vec<String> {
    let (mut run, mut agents) = (run, Vec::new());
    while let Some((inner, rest)) = run.inner_runs().find_map(|inner| {
        let rest = path.strip_prefix(inner.call_id())?.strip_prefix('/')?;
        inner.run().awaiting_approval().any(|call| call.id == rest).then_some((inner, rest))
    }) {
        agents.push(inner.agent().to_owned());
        (run, path) = (inner.run(), rest);
    }
    agents
}

/// Splits arguments into their members, with the parameters that are absent.
fn fields(arguments: &str, parameters: Option<&Value>) -> Option<Vec<Field>> {
    let members: Members = serde_json::from_str(arguments).ok()?;
    let properties = parameters.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let required = parameters.and_then(|schema| schema.get("required")).and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let mut fields: Vec<Field> = members
        .0
        .into_iter()
        .map(|(name, json)| Field {
            schema: properties.and_then(|properties| properties.get(&name)).cloned(),
            is_required: is_required(&name),
            text: Some(json.get().to_owned()),
            json: Some(json),
            name,
        })
        .collect();
    for (name, schema) in properties.into_iter().flatten() {
        if !fields.iter().any(|field| field.name == *name) {
            let schema = Some(schema.clone());
            fields.push(Field {
                name: name.clone(),
                json: None,
                text: None,
                schema,
                is_required: is_required(name),
            });
        }
    }
    Some(fields)
}

/// The members of a JSON object, in their order.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// A decision about a wait, and its author.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    /// The id of the wait, and the id of its call if the client names that alone.
    pub(crate) wait: String,
    pub(crate) approval: Approval,
    pub(crate) by: String,
}

impl Decision {
    pub(crate) fn kind(&self) -> Kind {
        match &self.approval {
            Approval::ApproveWith(_) => Kind::Edited,
            Approval::Deny(_) => Kind::Denied,
            _ => Kind::Approved,
        }
    }

    pub(crate) fn reason(&self) -> Option<String> {
        match &self.approval {
            Approval::Deny(reason) => reason.clone(),
            _ => None,
        }
    }
}

/// A decision that was recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Recorded {
    pub(crate) decision: Kind,
    pub(crate) reason: Option<String>,
    pub(crate) by: String,
    pub(crate) at: u64,
    #[serde(skip)]
    pub(crate) approval: Approval,
    /// The position of the decision in the log of the run.
    #[serde(skip)]
    pub(crate) position: Option<u64>,
}

/// The reason that a decision was refused.
#[derive(Debug)]
pub(crate) enum DecideError {
    UnknownRun,
    /// The run does not wait for this, for example because it was shown something else.
    NotWaiting,
    /// Somebody decided otherwise before.
    AlreadyDecided(Recorded),
    /// Another process has recorded a decision.
    DecidedElsewhere,
    /// The new arguments are not a JSON object.
    InvalidArguments,
    /// The store failed, or has no such run any more.
    Store,
}
