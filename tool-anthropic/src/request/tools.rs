//! Checks and encodes the tools of a request.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tool_core::model::{ToolChoice, ToolDefinition};
use tool_core::provider::ToolDefinitions;
use tool_http::client::{EncodingCache, Error, find_tool_violation};

use super::strict::{Budget, Cost, enforceable};

/// The provider's search for tools.
const TOOL_SEARCH: &str = r#"{"type":"tool_search_tool_regex_20251119","name":"tool_search_tool_regex"}"#;

/// The largest number of tools in a request: <https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool>.
pub(crate) const MAX_TOOLS: usize = 10_000;

/// The largest length of a tool's name.
pub(super) const MAX_NAME_CHARS: usize = 128;

/// How the tools of a set are encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rules {
    pub(super) supports_strict: bool,
    /// The provider searches the deferred tools.
    pub(super) is_searched: bool,
    /// What the schema of the reply uses of the limits for schemas.
    pub(super) format: Cost,
}

/// The encoded tools of a set.
#[derive(Debug, Default)]
pub(super) struct EncodedTools {
    /// The tools that the model reads, as the elements of an array.
    pub(super) offered: String,
    /// The tools that it has to find first.
    pub(super) deferred: String,
}

/// Returns the encoded tools. They are checked and encoded once per set, and `report` is called for each tool that is then not strict.
pub(super) fn encode(
    definitions: &ToolDefinitions,
    rules: Rules,
    report: impl Fn(&str, &'static str),
) -> Result<Arc<EncodedTools>, Error> {
    let cache = definitions.encoded(|_| EncodingCache::default());
    cache.get_or_encode(rules, |rules: &Rules| {
        let mut not_strict = Vec::new();
        let encoded = rules.encode(definitions, &mut not_strict);
        for (name, limit) in not_strict {
            report(name, limit);
        }
        encoded.map(Arc::new)
    })
}

impl Rules {
    /// Encodes tools, and collects the strict ones that exceed a limit, with the limit.
    fn encode<'a>(
        &self,
        definitions: &'a [ToolDefinition],
        not_strict: &mut Vec<(&'a str, &'static str)>,
    ) -> Result<EncodedTools, String> {
        let mut violations: Vec<String> = Vec::new();
        let count = definitions.len();
        if count > MAX_TOOLS {
            violations
                .push(format!("the request has {count} tools, but the API accepts at most {MAX_TOOLS}"));
        }
        let mut names = HashSet::new();
        let repeated = definitions.iter().map(ToolDefinition::name).filter(|name| !names.insert(*name));
        violations.extend(repeated.map(|name| format!("two tools are named `{name}`")));
        violations.extend(definitions.iter().filter_map(|tool| find_tool_violation(tool, MAX_NAME_CHARS)));
        if !violations.is_empty() {
            return Err(violations.join("; "));
        }
        let mut encoded = EncodedTools::default();
        let mut budget = Budget::besides(self.format);
        for definition in definitions {
            let is_deferred = self.is_searched && definition.is_deferred();
            let wants_strict = self.supports_strict && definition.is_strict();
            let schema = definition.parameters();
            let mut take = || budget.take(Cost::of_schema(schema));
            let mut report = |limit| not_strict.push((definition.name(), limit));
            let is_strict = wants_strict && take().map_err(&mut report).is_ok();
            let schema = if is_strict { Cow::Owned(enforceable(schema)) } else { Cow::Borrowed(schema) };
            let tool = WireTool {
                name: definition.name(),
                description: definition.description(),
                input_schema: schema,
                strict: is_strict.then_some(true),
                defer_loading: is_deferred.then_some(true),
            };
            let json = serde_json::to_string(&tool)
                .map_err(|error| format!("could not write a tool as JSON: {error}"))?;
            push_element(if is_deferred { &mut encoded.deferred } else { &mut encoded.offered }, &json);
        }
        // The API rejects deferred tools without another tool, and a search without deferred tools is of no use.
        if !encoded.deferred.is_empty() {
            let offered = std::mem::replace(&mut encoded.offered, TOOL_SEARCH.to_owned());
            push_element(&mut encoded.offered, &offered);
        }
        Ok(encoded)
    }
}

/// Appends elements to a list of them.
pub(super) fn push_element(list: &mut String, json: &str) {
    if !list.is_empty() && !json.is_empty() {
        list.push(',');
    }
    list.push_str(json);
}

/// Returns the value of `tool_choice`, or `None` for the API's default.
pub(super) fn choice(choice: &ToolChoice, parallel: Option<bool>) -> Option<Value> {
    let mut json = match choice {
        ToolChoice::None => return Some(json!({ "type": "none" })),
        ToolChoice::Required => json!({ "type": "any" }),
        ToolChoice::Tool(name) => json!({ "type": "tool", "name": name }),
        _ if parallel != Some(false) => return None,
        _ => json!({ "type": "auto" }),
    };
    if parallel == Some(false) {
        json["disable_parallel_tool_use"] = true.into();
    }
    Some(json)
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    defer_loading: Option<bool>,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const RULES: Rules = Rules { supports_strict: true, is_searched: false, format: Cost::NONE };

    fn strict(name: &str, parameters: &Value) -> ToolDefinition {
        ToolDefinition::new(name).with_parameters(parameters.clone()).into_strict().unwrap()
    }

    #[test]
    fn strict_tools_are_chosen_in_order() {
        // In strict form, six optional parameters are six unions.
        let members: serde_json::Map<_, _> =
            (0..6).map(|number| (format!("p{number}"), json!({ "type": "string" }))).collect();
        let wide = json!({ "type": "object", "properties": members });
        let narrow = json!({ "type": "object", "properties": {} });
        let definitions = ToolDefinitions::from_iter([
            strict("a", &wide),
            strict("b", &wide),
            strict("c", &wide),
            strict("d", &narrow),
            ToolDefinition::new("e"),
        ]);
        let reported = Mutex::new(Vec::new());
        let report = |name: &str, limit| reported.lock().unwrap().push((name.to_owned(), limit));
        let encoded = encode(&definitions, RULES, report).unwrap();
        encode(&definitions, RULES, |_, _| panic!("it is reported once")).unwrap();
        assert_eq!(
            reported.into_inner().unwrap(),
            [("c".to_owned(), "16 parameters with unions in strict schemas")]
        );
        let tools: Value = serde_json::from_str(&format!("[{}]", encoded.offered)).unwrap();
        let strict: Vec<_> = tools.as_array().unwrap().iter().map(|tool| tool["strict"] == true).collect();
        assert_eq!(strict, [true, true, false, true, false]);
    }

    #[test]
    fn rejects_what_the_api_rejects() {
        let table = [
            (
                vec![ToolDefinition::new("a.b")],
                "invalid tool name `a.b`; use 1 to 128 letters, digits, `_` and `-`",
            ),
            (vec![ToolDefinition::new("a"), ToolDefinition::new("a")], "two tools are named `a`"),
            (
                vec![ToolDefinition::new("a").with_parameters(json!({ "type": "array" }))],
                "the parameters of the tool `a` must be an object",
            ),
        ];
        for (definitions, expected) in table {
            assert_eq!(encode(&definitions.into(), RULES, |_, _| {}).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn choices() {
        let table = [
            (ToolChoice::Auto, None, Value::Null),
            (ToolChoice::Auto, Some(true), Value::Null),
            (ToolChoice::Auto, Some(false), json!({ "type": "auto", "disable_parallel_tool_use": true })),
            (ToolChoice::None, Some(false), json!({ "type": "none" })),
            (ToolChoice::Required, None, json!({ "type": "any" })),
            (
                ToolChoice::Tool("a".into()),
                Some(false),
                json!({ "type": "tool", "name": "a", "disable_parallel_tool_use": true }),
            ),
        ];
        for (kind, parallel, expected) in table {
            assert_eq!(json!(choice(&kind, parallel)), expected);
        }
    }
}
