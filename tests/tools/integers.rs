//! Integers at the limits of their types, for every kind of tool.

use std::sync::Arc;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tool_core::tool::DynamicTool;
use tool_core::{FunctionTool, Tool, ToolCall, ToolContext, ToolSet, tool, toolbox, tools};

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    #[serde(default)]
    signed: i64,
    #[serde(default)]
    unsigned: u64,
    #[serde(default)]
    list: Vec<i64>,
}

fn text(signed: i64, unsigned: u64, list: &[i64]) -> String {
    format!("{signed} {unsigned} {list:?}")
}

#[tool]
fn declared(signed: Option<i64>, unsigned: Option<u64>, list: Option<Vec<i64>>) -> String {
    text(signed.unwrap_or(0), unsigned.unwrap_or(0), &list.unwrap_or_default())
}

struct Methods;

#[toolbox]
impl Methods {
    #[tool]
    fn method(&self, signed: Option<i64>, unsigned: Option<u64>, list: Option<Vec<i64>>) -> String {
        text(signed.unwrap_or(0), unsigned.unwrap_or(0), &list.unwrap_or_default())
    }
}

fn closure() -> FunctionTool {
    FunctionTool::new("closure", |all: Arguments| text(all.signed, all.unsigned, &all.list))
}

fn dynamic() -> DynamicTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "signed": { "type": "integer" },
            "unsigned": { "allOf": [{ "type": ["integer", "null"] }], "minimum": 0 },
            "list": { "type": "array", "items": { "$ref": "#/$defs/Int" } },
        },
        "$defs": { "Int": { "anyOf": [{ "type": "integer" }, { "type": "string" }] } },
    });
    // The executor finds integers, not numbers that only look like them.
    let read = |all: Value| {
        let list = all["list"].as_array().cloned().unwrap_or_default();
        let signed = if all["signed"].is_null() { Some(0) } else { all["signed"].as_i64() };
        let unsigned = if all["unsigned"].is_null() { Some(0) } else { all["unsigned"].as_u64() };
        let list: Option<Vec<_>> = list.iter().map(Value::as_i64).collect();
        match (signed, unsigned, list) {
            (Some(signed), Some(unsigned), Some(list)) => text(signed, unsigned, &list),
            _ => format!("no integers: {all}"),
        }
    };
    DynamicTool::new("dynamic", schema, read).unwrap()
}

fn set() -> ToolSet {
    let shared: [Arc<dyn Tool>; 2] = [Arc::new(closure()), Arc::new(dynamic())];
    tools![declared].union(ToolSet::new(shared).unwrap()).unwrap().union(Methods).unwrap()
}

fn outcome(set: &ToolSet, name: &str, arguments: &str) -> Result<String, String> {
    let call = ToolCall::new("1", name, arguments);
    let outcome = set.call(&call, &ToolContext::new()).now_or_never().unwrap();
    outcome.map(|output| output.to_string()).map_err(|error| error.to_string())
}

#[test]
fn integers_are_exact_or_refused() {
    let table = [
        (r#"{"signed": 9223372036854775807}"#, Some("9223372036854775807 0 []")),
        (r#"{"signed": -9223372036854775808}"#, Some("-9223372036854775808 0 []")),
        (r#"{"signed": -9223372036854775809}"#, None),
        (r#"{"signed": 18446744073709551616}"#, None),
        (r#"{"signed": -18446744073709551616}"#, None),
        (r#"{"signed": 1e30}"#, None),
        (r#"{"signed": 9007199254740993.0}"#, Some("9007199254740993 0 []")),
        (r#"{"signed": 1e3}"#, Some("1000 0 []")),
        (r#"{"signed": -0}"#, Some("0 0 []")),
        (r#"{"signed": -0.0}"#, Some("0 0 []")),
        (r#"{"signed": 0e5}"#, Some("0 0 []")),
        (r#"{"signed": 2.5}"#, None),
        (r#"{"unsigned": 18446744073709551615}"#, Some("0 18446744073709551615 []")),
        (r#"{"unsigned": 18446744073709551616}"#, None),
        (r#"{"unsigned": 36893488147419103232}"#, None),
        (r#"{"unsigned": -0}"#, Some("0 0 []")),
        (r#"{"unsigned": -1}"#, None),
        (r#"{"list": [-0, 1.0, -9223372036854775808]}"#, Some("0 0 [0, 1, -9223372036854775808]")),
        (r#"{"list": [1, 18446744073709551616]}"#, None),
        (r#"{"list": [1, -9223372036854775809]}"#, None),
    ];
    for definition in set().definitions().iter() {
        let name = definition.name();
        for (arguments, expected) in table {
            match (outcome(&set(), name, arguments), expected) {
                (outcome, Some(expected)) => {
                    assert_eq!(outcome.as_deref(), Ok(expected), "{name} {arguments}");
                }
                (outcome, None) => {
                    let error = outcome.expect_err(arguments);
                    assert!(error.starts_with("invalid arguments: `"), "{name} {arguments}: {error}");
                }
            }
        }
    }
}

#[test]
fn an_error_states_the_range_of_dynamic_integers() {
    let expected = "invalid arguments: `signed`: expected an integer from -9223372036854775808 to \
                    18446744073709551615, got 18446744073709551616";
    let arguments = r#"{"signed": 18446744073709551616}"#;
    for set in [set(), set().no_repair()] {
        assert_eq!(outcome(&set, "dynamic", arguments).unwrap_err(), expected);
    }
}

/// Arguments that are not repaired: the executor of a dynamic tool receives what the schema accepts.
#[test]
fn exact_without_repair_too() {
    let strict = set().no_repair();
    assert_eq!(outcome(&strict, "dynamic", r#"{"signed": -0}"#).as_deref(), Ok("0 0 []"));
    for name in ["declared", "method", "closure"] {
        let error = outcome(&strict, name, r#"{"signed": -0}"#).unwrap_err();
        assert!(error.starts_with("invalid arguments: `signed`: expected an integer"), "{name}: {error}");
    }
}

/// A `number` is not an integer, and keeps what an `f64` holds of it.
#[test]
fn numbers_may_be_larger() {
    let schema = json!({ "type": "object", "properties": { "x": { "type": "number" } } });
    let tool = DynamicTool::new("x", schema, |all: Value| all["x"].as_f64().unwrap().to_string()).unwrap();
    let set = ToolSet::default().with(tool).unwrap();
    assert_eq!(outcome(&set, "x", r#"{"x": 36893488147419103232}"#).as_deref(), Ok("36893488147419103000"));
    assert_eq!(outcome(&set, "x", r#"{"x": 1e30}"#).as_deref(), Ok("1000000000000000000000000000000"));
}
