//! Calls through `call_tool`: the run sees the calls of the tools themselves, and the model sees what it wrote.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::options::CALL_TOOL;
use crate::arguments::{Mode, object_text};
use crate::model::{Message, RequestCache, ToolCall, ToolDefinitions, ToolKind};
use crate::toolset::ToolSet;

/// The arguments of `call_tool`. The raw text keeps every digit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Through<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// Replaces a call of `call_tool` by the call that it stands for. One that names no tool stays as it is and fails.
pub(in crate::agent) fn unwrap_call(mut call: ToolCall, tools: &ToolSet) -> ToolCall {
    let is_through =
        |name: &str| tools.get(name).is_some_and(|tool| tool.definition().kind() == ToolKind::CallThrough);
    if is_through(&call.name) {
        let text = object_text(&call.arguments, Mode::default());
        let inner = text.ok().and_then(|text| unwrap(&text));
        if let Some((name, arguments)) = inner.filter(|(name, _)| !is_through(name)) {
            (call.name, call.arguments) = (name, arguments);
        }
    }
    call
}

/// Returns the name and the arguments of the call.
fn unwrap(text: &str) -> Option<(String, String)> {
    let Through { name, arguments } = serde_json::from_str(text).ok()?;
    let arguments = arguments.map_or("{}", RawValue::get);
    // Some models write the arguments as a text, as in the calls that they are trained on.
    let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.to_owned());
    Some((name, arguments))
}

/// The reverse of [`unwrap_call`]: a message as the model has written or read it, with the calls of tools that are not offered as
/// calls of `call_tool`.
///
/// The name of a call and the offered tools alone decide whether it is wrapped. So this is not stored, and a stored conversation can
/// continue with search or without.
pub(in crate::agent) fn wrap_calls(message: &Message, offered: &ToolDefinitions) -> Message {
    let is_offered = |name: &str| offered.iter().any(|tool| tool.name() == name);
    let mut message = message.clone();
    match &mut message {
        Message::Assistant(reply) => {
            for call in reply.tool_calls.iter_mut().filter(|call| !is_offered(&call.name)) {
                call.arguments = wrap(call);
                call.name = CALL_TOOL.to_owned();
            }
        }
        Message::Tool(result) if !is_offered(&result.name) => CALL_TOOL.clone_into(&mut result.name),
        _ => {}
    }
    message
}

fn wrap(call: &ToolCall) -> String {
    format!(r#"{{"name":{},"arguments":{}}}"#, Value::from(&*call.name), call.arguments_as_json())
}

/// The messages of a run as they are sent. Every turn adds only the new ones.
#[derive(Clone, Default)]
pub(in crate::agent) struct SentMessages {
    pub(in crate::agent) messages: Vec<Message>,
    pub(in crate::agent) cache: RequestCache,
    /// The names of the offered tools.
    offered: Vec<String>,
}

impl SentMessages {
    /// Adds the messages that were not sent yet. If other tools are offered than before, all are converted again.
    pub(in crate::agent) fn update(&mut self, messages: &[Message], offered: &ToolDefinitions) {
        let is_same = self.offered.iter().eq(offered.names());
        if !is_same || messages.len() < self.messages.len() {
            let offered = offered.names().map(str::to_owned).collect();
            *self = Self { offered, ..Self::default() };
        }
        let new = &messages[self.messages.len()..];
        self.messages.extend(new.iter().map(|message| wrap_calls(message, offered)));
    }
}
