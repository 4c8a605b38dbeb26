//! Corrects calls whose form is wrong but whose meaning is clear.
//!
//! Names of calls are normalized before a rule is asked (`NormalizedResponse`), because every rule must see the name that is executed.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::arguments::{Mode, object_text};
use crate::model::{ChatResponse, ToolCall};

/// A tool that some models assume to exist: its arguments are several calls.
const PARALLEL: &str = "multi_tool_use.parallel";

/// A namespace that models put before the names of tools.
const NAMESPACE: &str = "functions.";

#[derive(Deserialize)]
struct Parallel<'a> {
    #[serde(borrow)]
    tool_uses: Vec<ToolUse<'a>>,
}

#[derive(Deserialize)]
struct ToolUse<'a> {
    recipient_name: String,
    #[serde(borrow, default)]
    parameters: Option<&'a RawValue>,
}

/// The number of calls that a reply may contain inside of others.
const MAX_UNPACKED: usize = 1024;

/// A response whose calls are those that the run executes, so that every rule about calls sees the same names.
pub(crate) struct NormalizedResponse {
    pub(super) response: ChatResponse,
    /// For each call, the position in the reply of the call that it was a part of.
    positions: Vec<usize>,
}

impl NormalizedResponse {
    /// Splits calls that contain several calls, and removes from names what cannot be part of one. `unwrap` replaces a call by
    /// the one that it stands for.
    pub(crate) fn new(mut response: ChatResponse, unwrap: impl Fn(ToolCall) -> ToolCall) -> Self {
        let normalize = |call| with_clean_name(unwrap(with_clean_name(call)));
        let mut room = MAX_UNPACKED;
        let mut calls = Vec::with_capacity(response.message.tool_calls.len());
        let mut positions = Vec::with_capacity(calls.capacity());
        for (position, call) in response.message.tool_calls.drain(..).map(normalize).enumerate() {
            match split_parallel(&call, room) {
                Some(inner) => {
                    room -= inner.len();
                    calls.extend(inner.into_iter().map(normalize));
                }
                None => calls.push(call),
            }
            positions.resize(calls.len(), position);
        }
        response.message.tool_calls = calls;
        Self { response, positions }
    }

    pub(crate) fn response(&self) -> &ChatResponse {
        &self.response
    }

    pub(crate) fn positions(&self) -> &[usize] {
        &self.positions
    }

    pub(crate) fn response_mut(&mut self) -> &mut ChatResponse {
        &mut self.response
    }
}

/// Returns the calls that a call contains, or `None` if it contains none or more than there is room for.
fn split_parallel(call: &ToolCall, room: usize) -> Option<Vec<ToolCall>> {
    if call.name != PARALLEL {
        return None;
    }
    let arguments = object_text(&call.arguments, Mode::default()).ok()?;
    let Parallel { tool_uses } = serde_json::from_str(&arguments).ok()?;
    if !(1..=room).contains(&tool_uses.len()) {
        return None;
    }
    let calls = tool_uses.into_iter().enumerate().map(|(position, tool_use)| {
        let arguments = tool_use.parameters.map_or("{}", RawValue::get);
        let id = format!("{}_{position}", call.id);
        let mut one = ToolCall::new(id, tool_use.recipient_name, arguments);
        one.provider_data = call.provider_data.clone().filter(|_| position == 0);
        one
    });
    Some(calls.collect())
}

/// Turns `fetch_report" />` and `functions.fetch_report` into `fetch_report`: no name contains quotes, brackets or spaces, and
/// none of a tool begins with the namespace.
pub(crate) fn clean_name(name: &str) -> &str {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
    let end = name.find(|c| !is_part(c)).unwrap_or(name.len());
    let name = if end > 0 && is_garbage(&name[end..]) { &name[..end] } else { name };
    name.strip_prefix(NAMESPACE).filter(|name| !name.is_empty()).unwrap_or(name)
}

fn with_clean_name(mut call: ToolCall) -> ToolCall {
    let clean = clean_name(&call.name);
    if clean.len() != call.name.len() {
        call.name = clean.to_owned();
    }
    call
}

/// Returns `true` if the text after a name is only punctuation or a token of a chat template, such as `<|channel|>commentary`.
/// Any other text can contain arguments, as in `delete(dry_run=true)`, and executing the call without them would be a guess.
fn is_garbage(rest: &str) -> bool {
    let is_token =
        (rest.starts_with("<|") || rest.starts_with("</")) && !rest.contains(['=', '{', '[', '"', ':']);
    is_token || !rest.contains(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AssistantMessage;

    fn normalize_calls(calls: Vec<ToolCall>) -> Vec<ToolCall> {
        let message = AssistantMessage::default().with_tool_calls(calls);
        NormalizedResponse::new(ChatResponse::new(message), |call| call).response.message.tool_calls
    }

    #[test]
    fn removes_from_names_what_cannot_be_part_of_one() {
        let table = [
            ("fetch_report\" />", "fetch_report"),
            ("sum(", "sum"),
            ("sum ", "sum"),
            ("get-weather", "get-weather"),
            ("functions.sum", "sum"),
            ("functions.sum(", "sum"),
            ("functions.", "functions."),
            ("math.sum", "math.sum"),
            ("\"sum\"", "\"sum\""),
            ("sum<|channel|>commentary", "sum"),
            ("sum</tool_name>", "sum"),
            ("sum()", "sum"),
            ("sum(a=1)", "sum(a=1)"),
            ("sum(1, 2)", "sum(1, 2)"),
            ("sum{\"a\": 1}", "sum{\"a\": 1}"),
            ("sum\" a=\"1\" />", "sum\" a=\"1\" />"),
            ("sum<parameter=a>1", "sum<parameter=a>1"),
            ("sum<arg_key>a</arg_key>", "sum<arg_key>a</arg_key>"),
            ("sum<|message|>{\"a\": 1}", "sum<|message|>{\"a\": 1}"),
            ("sum multiply", "sum multiply"),
            ("", ""),
        ];
        for (name, expected) in table {
            let calls = normalize_calls(vec![ToolCall::new("1", name, "{}")]);
            assert_eq!((calls.len(), &*calls[0].name), (1, expected), "{name}");
        }
    }

    #[test]
    fn splits_several_calls_in_one() {
        let arguments = r#"{"tool_uses": [
            {"recipient_name": "functions.sum", "parameters": {"a": 9007199254740993, "b": 2}},
            {"recipient_name": "now", "parameters": {}}
        ]}"#;
        for name in [PARALLEL, "functions.multi_tool_use.parallel", "multi_tool_use.parallel\" />"] {
            let calls = vec![ToolCall::new("x", name, arguments), ToolCall::new("y", "sum", "{}")];
            let calls = normalize_calls(calls);
            let found: Vec<_> = calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
            assert_eq!(
                found,
                [
                    ("x_0", "sum", r#"{"a": 9007199254740993, "b": 2}"#),
                    ("x_1", "now", "{}"),
                    ("y", "sum", "{}")
                ],
                "{name}"
            );
        }
        for wrong in ["{}", "", r#"{"tool_uses": []}"#, r#"{"tool_uses": [1]}"#] {
            let calls = normalize_calls(vec![ToolCall::new("x", PARALLEL, wrong)]);
            assert_eq!((calls.len(), &*calls[0].name), (1, PARALLEL));
        }
    }

    #[test]
    fn splits_several_calls_in_a_repaired_text() {
        for arguments in [
            r#"{"tool_uses": [{"recipient_name": "functions.now"}]}"#,
            r#"{"tool_uses": [{"recipient_name": "now", "parameters": {}},]}"#,
            r#""{\"tool_uses\": [{\"recipient_name\": \"now\", \"parameters\": {}}]}""#,
            "```json\n{\"tool_uses\": [{\"recipient_name\": \"now\", \"parameters\": {}}]}\n```",
        ] {
            let calls = normalize_calls(vec![ToolCall::new("x", PARALLEL, arguments)]);
            let found: Vec<_> = calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
            assert_eq!(found, [("x_0", "now", "{}")], "{arguments}");
        }
    }
}
