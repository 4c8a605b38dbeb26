//! The calls of a reply as they were meant.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::ToolCall;

/// A tool that some models believe in: it makes several calls at once.
const PARALLEL: &str = "multi_tool_use.parallel";

/// How models name the place where their tools are.
const NAMESPACE: &str = "functions.";

#[derive(Deserialize)]
struct Parallel<'a> {
    #[serde(borrow)]
    tool_uses: Vec<ToolUse<'a>>,
}

#[derive(Deserialize)]
struct ToolUse<'a> {
    recipient_name: String,
    #[serde(borrow)]
    parameters: &'a RawValue,
}

/// The calls, with those taken apart that are several in one, and without what clearly is no part of a name.
pub(super) fn as_meant(calls: Vec<ToolCall>) -> Vec<ToolCall> {
    calls
        .into_iter()
        .flat_map(|call| taken_apart(&call).unwrap_or_else(|| vec![with_clean_name(call)]))
        .collect()
}

fn taken_apart(call: &ToolCall) -> Option<Vec<ToolCall>> {
    if call.name != PARALLEL {
        return None;
    }
    let Parallel { tool_uses } = serde_json::from_str(&call.arguments).ok()?;
    let calls = tool_uses.into_iter().enumerate().map(|(position, tool_use)| {
        let name = tool_use.recipient_name;
        let name = name.strip_prefix(NAMESPACE).unwrap_or(&name);
        let mut one = ToolCall::new(format!("{}_{position}", call.id), name, tool_use.parameters.get());
        one.provider_data = call.provider_data.clone().filter(|_| position == 0);
        with_clean_name(one)
    });
    Some(calls.collect()).filter(|calls: &Vec<_>| !calls.is_empty())
}

/// `fetch_report` of `fetch_report" />`: no name has quotes, brackets or blanks in it.
fn with_clean_name(mut call: ToolCall) -> ToolCall {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
    let end = call.name.find(|c| !is_part(c)).unwrap_or(call.name.len());
    if end > 0 {
        call.name.truncate(end);
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_part_of_a_name_is_cut() {
        let table = [
            ("fetch_report\" />", "fetch_report"),
            ("sum(", "sum"),
            ("sum ", "sum"),
            ("get-weather", "get-weather"),
            ("functions.sum", "functions.sum"),
            ("\"sum\"", "\"sum\""),
            ("", ""),
        ];
        for (name, expected) in table {
            let calls = as_meant(vec![ToolCall::new("1", name, "{}")]);
            assert_eq!((calls.len(), &*calls[0].name), (1, expected), "{name}");
        }
    }

    #[test]
    fn several_calls_in_one() {
        let arguments = r#"{"tool_uses": [
            {"recipient_name": "functions.sum", "parameters": {"a": 9007199254740993, "b": 2}},
            {"recipient_name": "now", "parameters": {}}
        ]}"#;
        let calls = vec![ToolCall::new("x", PARALLEL, arguments), ToolCall::new("y", "sum", "{}")];
        let calls = as_meant(calls);
        let told: Vec<_> = calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!(
            told,
            [("x_0", "sum", r#"{"a": 9007199254740993, "b": 2}"#), ("x_1", "now", "{}"), ("y", "sum", "{}")]
        );
        for wrong in ["{}", "", r#"{"tool_uses": []}"#, r#"{"tool_uses": [1]}"#] {
            let calls = as_meant(vec![ToolCall::new("x", PARALLEL, wrong)]);
            assert_eq!((calls.len(), &*calls[0].name), (1, PARALLEL));
        }
    }
}
