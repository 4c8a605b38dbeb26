//! What a run waits for, as it is shown.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tool_core::engine::waiting_tools;
use tool_core::model::ToolDefinition;
use tool_core::run::{Run, Wait, WaitReason};
use tool_core::signatures::DecisionRecord;
use tool_core::{Agent, Tool};

/// Returns the arguments of a call that awaits approval.
pub(crate) fn arguments(wait: &Wait) -> Option<&str> {
    match &wait.reason {
        WaitReason::Approval(call) => Some(&call.arguments),
        _ => None,
    }
}

/// A wait with what the agent knows about its tool.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Described {
    #[serde(flatten)]
    pub(crate) wait: Wait,
    /// The agent tools on the way to the call, outermost first.
    agents: Vec<String>,
    description: Option<String>,
    /// Why the call needs approval.
    why: Option<String>,
    is_at_most_once: bool,
    /// The members of the arguments, if they are a JSON object.
    fields: Option<Vec<Field>>,
    /// The decision, until the driver has taken it.
    pub(crate) recorded: Option<DecisionRecord>,
}

/// A member of the arguments, for a form.
#[derive(Clone, Debug, Serialize)]
struct Field {
    name: String,
    /// The JSON text of the value, in which numbers keep every digit in JavaScript, too. A parameter that was not passed has none.
    text: Option<String>,
    /// The schema of the parameter, if it is known.
    schema: Option<Value>,
    is_required: bool,
}

/// Returns what a run waits for, as it is shown. The tools of an agent describe it.
pub(crate) fn describe(run: &Run, agent: Option<&Agent>) -> Vec<Described> {
    let mut places = waiting_tools(run, agent);
    let described = |wait: Wait| {
        let (agents, tool) = places.remove(&wait.id).unwrap_or_default();
        let definition = tool.map(Tool::definition);
        let schema = definition.map(ToolDefinition::parameters);
        Described {
            agents,
            description: definition.and_then(ToolDefinition::description).map(str::to_owned),
            why: definition.and_then(ToolDefinition::approval_reason).map(str::to_owned),
            is_at_most_once: definition.is_some_and(|definition| definition.policy().at_most_once),
            fields: arguments(&wait).and_then(|arguments| fields(arguments, schema)),
            recorded: None,
            wait,
        }
    };
    run.waits().into_iter().map(described).collect()
}

impl Described {
    /// Returns one line for the list.
    pub(crate) fn line(&self) -> String {
        let path: String = self.agents.iter().map(|agent| format!("{agent} › ")).collect();
        let tool = &self.wait.tool;
        match &self.wait.reason {
            WaitReason::Approval(call) | WaitReason::CallerResult(call) => {
                format!("{path}{tool} {}", call.arguments)
            }
            WaitReason::Answer(question) => format!("{path}{tool}: {}", question.text()),
            _ => path + tool,
        }
    }
}

/// Splits arguments into their members, with the parameters that are absent.
fn fields(arguments: &str, parameters: Option<&Value>) -> Option<Vec<Field>> {
    // The members are in the order of the text.
    let names: Map<String, Value> = serde_json::from_str(arguments).ok()?;
    let texts: HashMap<String, &RawValue> = serde_json::from_str(arguments).ok()?;
    let properties = parameters.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let required = parameters.and_then(|schema| schema.get("required")).and_then(Value::as_array);
    let absent = properties.into_iter().flat_map(Map::keys).filter(|name| !names.contains_key(*name));
    let field = |name: &String| Field {
        name: name.clone(),
        text: texts.get(name).map(|json| json.get().to_owned()),
        schema: properties.and_then(|properties| properties.get(name)).cloned(),
        is_required: required.is_some_and(|names| names.iter().any(|one| one == name)),
    };
    Some(names.keys().chain(absent).map(field).collect())
}
