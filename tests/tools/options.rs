//! The options of `#[tool(…)]` and `#[param(…)]`: their effect on the schema, and their enforcement in calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tool_core::schemars::JsonSchema;
use tool_core::tool::{DynamicTool, ToolErrorKind, ToolExecution};
use tool_core::{ToolCall, ToolContext, ToolOutput, ToolSet, tool, tools};

async fn execute(set: &ToolSet, name: &str, arguments: &str) -> ToolExecution {
    set.execute(ToolCall::new("call_1", name, arguments), &ToolContext::new()).await
}

async fn result_text(set: &ToolSet, name: &str, arguments: &str) -> String {
    match execute(set, name, arguments).await.outcome() {
        Ok(output) => output.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

fn property(set: &ToolSet, tool: &str, parameter: &str) -> Value {
    set.get(tool).unwrap().definition().parameters()["properties"][parameter].clone()
}

const MOST_GUESTS: u8 = 12;

/// A tool with options on parameters of every kind of type.
#[expect(clippy::too_many_arguments, reason = "one for each case")]
#[tool]
fn limits(
    #[param(range = 1..=14)] nights: Option<u8>,
    #[param(range = -5..5)] shift: Option<i64>,
    #[param(range = 0.5..)] factor: Option<f64>,
    #[param(range = ..=100)] percent: Option<f32>,
    #[param(range = 0.0..1.0)] share: Option<f64>,
    #[param(range = 1..=MOST_GUESTS)] guests: Option<u8>,
    #[param(range = 9_007_199_254_740_993..)] exact: Option<i128>,
    #[param(length = 1..=5)] name: Option<String>,
    #[param(length = 2..)] list: Option<Vec<u8>>,
    #[param(length = ..3)] map: Option<BTreeMap<String, u8>>,
    #[param(length = 3..=3, pattern = "^[A-Z]+$")] code: Option<String>,
) -> Value {
    json!([
        nights,
        shift,
        factor,
        percent,
        share,
        guests,
        exact.map(|it| it.to_string()),
        name,
        list,
        map,
        code
    ])
}

#[tool]
fn plain(
    #[param(range = 1..=3)] number: u32,
    #[param(pattern = r"^\d{4}-\d{2}$")] month: &str,
    #[param(length = 1..=2)] list: &[f64],
) -> String {
    format!("{number} {month} {list:?}")
}

#[tokio::test]
async fn enforces_limits() {
    let set = tools![limits, plain];
    let table = [
        (r#"{"nights": 14}"#, "ok"),
        (r#"{"nights": 0}"#, "`nights`: expected an integer from 1 to 14 or null, got 0"),
        (r#"{"nights": 15.0}"#, "`nights`: expected an integer from 1 to 14 or null, got 15"),
        (r#"{"nights": "15"}"#, "`nights`: expected an integer from 1 to 14 or null, got 15"),
        (r#"{"nights": 300}"#, "`nights`: expected an integer from 1 to 14 or null, got 300"),
        (r#"{"nights": null}"#, "ok"),
        (r#"{"shift": -5}"#, "ok"),
        (r#"{"shift": 4}"#, "ok"),
        (r#"{"shift": 5}"#, "`shift`: expected an integer from -5 to 4 or null, got 5"),
        (r#"{"factor": 0.5}"#, "ok"),
        (r#"{"factor": 0.49}"#, "`factor`: expected a number from 0.5 or null, got 0.49"),
        (r#"{"factor": 1e300}"#, "ok"),
        (r#"{"percent": 100}"#, "ok"),
        (r#"{"percent": 100.5}"#, "`percent`: expected a number up to 100 or null, got 100.5"),
        (r#"{"share": 1.0}"#, "`share`: expected a number from 0.0 below 1.0 or null, got 1.0"),
        (r#"{"share": 0.999}"#, "ok"),
        (r#"{"guests": 13}"#, "`guests`: expected an integer from 1 to 12 or null, got 13"),
        (r#"{"exact": 9007199254740993}"#, "ok"),
        (
            r#"{"exact": 9007199254740992}"#,
            "`exact`: expected an integer from 9007199254740993 or null, got 9007199254740992",
        ),
        (r#"{"name": "ééééé"}"#, "ok"),
        (r#"{"name": ""}"#, "`name`: expected a string of 1 to 5 characters or null, got \"\""),
        (r#"{"name": "éééééé"}"#, "`name`: expected a string of 1 to 5 characters or null, got \"éééééé\""),
        (r#"{"name": 123456}"#, "`name`: expected a string of 1 to 5 characters or null, got \"123456\""),
        (r#"{"list": [1]}"#, "`list`: expected a list of at least 2 items or null, got a list of 1"),
        (r#"{"list": [1, 2]}"#, "ok"),
        (r#"{"list": "[1, 2]"}"#, "ok"),
        (
            r#"{"map": {"a": 1, "b": 2, "c": 3}}"#,
            "`map`: expected an object of at most 2 entries or null, got an object",
        ),
        (r#"{"map": {"a": 1}}"#, "ok"),
        (r#"{"code": "ABC"}"#, "ok"),
        (
            r#"{"code": "AB1"}"#,
            "`code`: expected a string of 3 characters that matches `^[A-Z]+$` or null, got \"AB1\"",
        ),
    ];
    for (text, expected) in table {
        let actual = result_text(&set, "limits", text).await;
        let actual = actual.strip_prefix("error: invalid arguments: ").unwrap_or("ok");
        assert_eq!(actual, expected, "{text}");
    }
    assert_eq!(
        result_text(&set, "plain", r#"{"number":3,"month":"2026-11","list":[1]}"#).await,
        "3 2026-11 [1.0]"
    );
    assert_eq!(
        result_text(&set, "plain", r#"{"number":4,"month":"soon","list":[]}"#).await,
        "error: invalid arguments: `number`: expected an integer from 1 to 3, got 4; \
         `month`: expected a string that matches `^\\d{4}-\\d{2}$`, got \"soon\"; \
         `list`: expected a list of 1 to 2 items, got a list of 0"
    );
    assert!(
        result_text(&set, "plain", "{}")
            .await
            .starts_with("error: invalid arguments: `number` is missing, expected an integer from 1 to 3;")
    );
}

#[test]
fn limits_are_in_the_schema() {
    let set = tools![limits, plain];
    let table = [
        ("nights", json!({ "type": ["integer", "null"], "minimum": 1, "maximum": 14 })),
        ("shift", json!({ "type": ["integer", "null"], "minimum": -5, "maximum": 4 })),
        ("factor", json!({ "type": ["number", "null"], "minimum": 0.5 })),
        ("percent", json!({ "type": ["number", "null"], "maximum": 100 })),
        ("share", json!({ "type": ["number", "null"], "minimum": 0.0, "exclusiveMaximum": 1.0 })),
        ("guests", json!({ "type": ["integer", "null"], "minimum": 1, "maximum": 12 })),
        ("exact", json!({ "type": ["integer", "null"], "minimum": 9_007_199_254_740_993_i64 })),
        ("name", json!({ "type": ["string", "null"], "minLength": 1, "maxLength": 5 })),
        (
            "code",
            json!({ "type": ["string", "null"], "minLength": 3, "maxLength": 3, "pattern": "^[A-Z]+$" }),
        ),
    ];
    for (name, expected) in table {
        assert_eq!(property(&set, "limits", name), expected, "{name}");
    }
    assert_eq!(property(&set, "limits", "list")["minItems"], 2);
    assert_eq!(property(&set, "limits", "map")["maxProperties"], 2);
    assert_eq!(property(&set, "plain", "list")["maxItems"], 2);
}

static EVALUATED: AtomicU32 = AtomicU32::new(0);

/// A type without `Serialize`.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Unwritten(u32);

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
enum Unit {
    #[default]
    Metric,
    Imperial,
}

#[expect(clippy::too_many_arguments, reason = "one for each case")]
#[tool]
fn defaults(
    #[param(default = 10, range = 1..=50)] limit: u32,
    #[param(default = "metric")] text: String,
    #[param(default = "en")] language: &str,
    #[param(default = Unit::default())] unit: Unit,
    #[param(default = vec![1, 2])] list: Vec<u8>,
    #[param(default = Some(3))] option: Option<u8>,
    #[param(default = -1.5)] number: f64,
    #[param(default = Unwritten(7))] unwritten: Unwritten,
    #[param(default = EVALUATED.fetch_add(1, Ordering::Relaxed) + 1)] made: u32,
    #[param(required = false, default = true)] flag: bool,
) -> String {
    let _ = made;
    format!("{limit} {text} {language} {unit:?} {list:?} {option:?} {number} {unwritten:?} {flag}")
}

#[tokio::test]
async fn a_default_replaces_absent_and_null_arguments() {
    let set = tools![defaults];
    let all = "10 metric en Metric [1, 2] Some(3) -1.5 Unwritten(7) true";
    assert_eq!(result_text(&set, "defaults", "").await, all);
    let nulls = r#"{"limit":null,"text":null,"language":null,"unit":null,"list":null,"option":null,"number":null,"flag":null}"#;
    assert_eq!(result_text(&set, "defaults", nulls).await, all);
    let given = r#"{"limit":"20","text":"x","language":"it","unit":"imperial","list":[],"option":4,"number":0,"unwritten":1,"flag":false}"#;
    assert_eq!(
        result_text(&set, "defaults", given).await,
        "20 x it Imperial [] Some(4) 0 Unwritten(1) false"
    );
    let wrong = result_text(&set, "defaults", r#"{"limit": 51, "flag": "maybe"}"#).await;
    assert_eq!(
        wrong,
        "error: invalid arguments: `limit`: expected an integer from 1 to 50, got 51; `flag`: expected true or false, got \"maybe\""
    );
}

#[tokio::test]
async fn evaluates_a_default_for_each_call() {
    let set = tools![defaults];
    let before = EVALUATED.load(Ordering::Relaxed);
    result_text(&set, "defaults", "{}").await;
    result_text(&set, "defaults", "{}").await;
    result_text(&set, "defaults", r#"{"made": 5}"#).await;
    // Other tests call the tool as well.
    assert!(EVALUATED.load(Ordering::Relaxed) >= before + 2);
}

#[test]
fn defaults_and_examples_are_in_the_schema() {
    let set = tools![defaults, examples];
    assert_eq!(set.get("defaults").unwrap().definition().parameters()["required"], json!([]));
    let table = [
        ("limit", json!(10)),
        ("text", json!("metric")),
        ("language", json!("en")),
        ("unit", json!("Metric")),
        ("list", json!([1, 2])),
        ("option", json!(3)),
        ("number", json!(-1.5)),
        ("flag", json!(true)),
    ];
    for (name, default) in table {
        assert_eq!(property(&set, "defaults", name)["default"], default, "{name}");
    }
    assert_eq!(property(&set, "defaults", "unwritten").get("default"), None);
    assert_eq!(property(&set, "examples", "city")["examples"], json!(["Rome"]));
    assert_eq!(property(&set, "examples", "unit")["examples"], json!(["Imperial"]));
    assert_eq!(property(&set, "examples", "factor")["examples"], json!([2]));
}

#[tool]
fn examples(
    #[param("a city", example = "Rome")] city: &str,
    #[param(example = Unit::Imperial)] unit: Option<Unit>,
    #[param(example = 2)] factor: Option<f64>,
) -> String {
    format!("{city} {unit:?} {factor:?}")
}

#[tool(timeout = "20ms")]
async fn endless() {
    std::future::pending::<()>().await;
}

#[tool(timeout = "20s")]
async fn quick() -> &'static str {
    tokio::time::sleep(Duration::from_millis(1)).await;
    "done"
}

/// Set when a tool that blocks may return; the test cannot end before that.
static RELEASED: AtomicBool = AtomicBool::new(false);

#[tool(blocking, timeout = "20ms")]
fn sleeper() {
    for _ in 0..1000 {
        if !RELEASED.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[tokio::test]
async fn a_timeout_ends_a_call() {
    let set = tools![endless, quick, sleeper];
    for name in ["endless", "sleeper"] {
        let execution = execute(&set, name, "{}").await;
        let error = execution.outcome().unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::TimedOut, "{name}");
        assert_eq!(error.to_string(), "the tool timed out after 20ms");
    }
    RELEASED.store(true, Ordering::SeqCst);
    assert_eq!(result_text(&set, "quick", "{}").await, "done");
}

#[tool(blocking)]
fn blocked(#[param(length = 1..)] names: &[String], suffix: &str) -> Result<String, String> {
    if names[0] == "panic" {
        panic!("as asked");
    }
    if names[0] == "fail" {
        return Err("as asked".into());
    }
    Ok(format!("{names:?} {suffix} {:?}", std::thread::current().name()))
}

#[tokio::test]
async fn a_blocking_tool_runs_outside_the_runtime_threads() {
    let set = tools![blocked];
    let here = format!("{:?}", std::thread::current().name());
    let arguments_for = |first: &str| format!(r#"{{"names": ["{first}"], "suffix": "x"}}"#);
    let output = result_text(&set, "blocked", &arguments_for("a")).await;
    assert!(output.starts_with(r#"["a"] x"#) && !output.contains(&here), "{output}");
    assert_eq!(result_text(&set, "blocked", &arguments_for("fail")).await, "error: as asked");
    assert_eq!(
        execute(&set, "blocked", &arguments_for("panic")).await.outcome().unwrap_err().kind(),
        ToolErrorKind::Panicked
    );
    assert_eq!(
        execute(&set, "blocked", "{}").await.outcome().unwrap_err().kind(),
        ToolErrorKind::InvalidArguments
    );
}

#[test]
fn a_blocking_tool_needs_a_runtime() {
    let call = ToolCall::new("1", "blocked", r#"{"names": ["a"], "suffix": ""}"#);
    let outcome = futures_util::FutureExt::now_or_never(async {
        tools![blocked].call(&call, &ToolContext::new()).await.unwrap_err().to_string()
    });
    assert_eq!(outcome.unwrap(), "a `blocking` tool must be called within a tokio runtime");
}

#[derive(Serialize)]
struct Row {
    city: &'static str,
    degrees: i32,
}

fn as_table(rows: Vec<Row>) -> ToolOutput {
    ToolOutput::text(rows.iter().map(|row| format!("{} | {}\n", row.city, row.degrees)).collect::<String>())
}

fn halved(number: i32) -> Result<i32, String> {
    if number % 2 == 0 { Ok(number / 2) } else { Err(format!("{number} is odd")) }
}

#[tool(convert = as_table)]
fn weather() -> Vec<Row> {
    vec![Row { city: "Rome", degrees: 22 }, Row { city: "Oslo", degrees: 4 }]
}

#[tool(convert = halved)]
async fn half(number: i32) -> Result<i32, String> {
    if number == 0 { Err("nothing to halve".into()) } else { Ok(number) }
}

#[tokio::test]
async fn a_converter_creates_the_output() {
    let set = tools![weather, half];
    assert_eq!(result_text(&set, "weather", "{}").await, "Rome | 22\nOslo | 4\n");
    assert_eq!(result_text(&set, "half", r#"{"number": 8}"#).await, "4");
    assert_eq!(result_text(&set, "half", r#"{"number": 7}"#).await, "error: 7 is odd");
    assert_eq!(result_text(&set, "half", r#"{"number": 0}"#).await, "error: nothing to halve");
}

#[tool(max_output_chars = 60)]
fn lengthy(fails: bool) -> Result<String, String> {
    let text = "0123456789".repeat(100);
    if fails { Err(text) } else { Ok(text) }
}

#[tool(max_output_chars = 60)]
async fn lengthy_later() -> String {
    "0123456789".repeat(100)
}

#[tokio::test]
async fn truncates_a_long_output() {
    let parameters = tools![lengthy].get("lengthy").unwrap().definition().parameters().clone();
    let dynamic = DynamicTool::new("dynamic", parameters, |_: Value| "").unwrap().max_output_chars(60);
    let set = tools![lengthy, lengthy_later].with(dynamic).unwrap();
    for (name, arguments, start, end) in [
        ("lengthy", r#"{"fails": false}"#, "0123", '9'),
        ("lengthy", r#"{"fails": true}"#, "0123", '9'),
        ("lengthy", r#"{"unknown": 1}"#, "invalid", 'e'),
        ("lengthy", "{ invalid JSON", "invalid", '3'),
        ("lengthy_later", "{}", "0123", '9'),
        ("dynamic", r#"{"unknown": 1}"#, "invalid", 'e'),
    ] {
        let actual = result_text(&set, name, arguments).await;
        let actual = actual.strip_prefix("error: ").unwrap_or(&actual);
        assert!(actual.chars().count() <= 60 && actual.contains("characters left out"), "{actual}");
        assert!(actual.starts_with(start) && actual.ends_with(end), "{actual}");
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only shown")]
struct Filter {
    #[serde(default)]
    tags: Vec<String>,
    min: Option<u8>,
}

#[tool(strict)]
fn search(query: String, filter: Option<Filter>, #[param(default = 10)] limit: u8) -> String {
    format!("{query} {filter:?} {limit}")
}

#[tool(strict)]
fn open_map(labels: BTreeMap<String, String>) -> usize {
    labels.len()
}

#[tokio::test]
async fn a_strict_tool_reads_null_as_absent() {
    let set = tools![search].no_repair();
    let definition = set.get("search").unwrap().definition();
    assert!(definition.is_strict());
    assert_eq!(definition.parameters()["required"], json!(["query", "filter", "limit"]));
    let limit = property(&set, "search", "limit");
    assert_eq!(limit["type"], json!(["integer", "null"]));
    assert!(limit["description"].as_str().unwrap().contains("`null` means 10"), "{limit}");
    let given = r#"{"query": "x", "filter": {"tags": null, "min": null}, "limit": null}"#;
    assert_eq!(result_text(&set, "search", given).await, "x Some(Filter { tags: [], min: None }) 10");
    let given = r#"{"query": "x", "filter": null, "limit": 3}"#;
    assert_eq!(result_text(&set, "search", given).await, "x None 3");
}

#[test]
fn refuses_a_set_with_a_tool_without_strict_form() {
    let listed = tools![open_map];
    let refused = [ToolSet::named(["open_map"]), ToolSet::default().union(listed.clone())];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.kind(), tool_core::toolset::ToolSetErrorKind::NoStrictForm);
        let text = error.to_string();
        assert!(
            text.starts_with("the tool `open_map` has no strict form: `$.properties.labels`: "),
            "{text}"
        );
    }
    let model = tool_core::testing::ScriptedModel::new();
    let error = tool_core::Agent::builder(model).tools(listed).build().unwrap_err();
    assert!(error.to_string().contains("`open_map` has no strict form"), "{error}");
}

#[tokio::test]
async fn a_tool_is_still_a_function() {
    assert_eq!(half(8).await, Ok(8));
    assert_eq!(weather().len(), 2);
    assert_eq!(lengthy(false).unwrap().len(), 1000);
}

const LANGUAGE: &str = "en";

/// A tool with no options but defaults.
#[tool]
fn defaults_alone(
    #[param(default = 3)] number: u8,
    #[param(default = LANGUAGE)] language: &str,
    #[param(default = [1, 2])] list: &[i32],
    #[param(default = Some(4))] option: Option<u8>,
) -> String {
    format!("{number} {language} {list:?} {option:?}")
}

#[tool]
fn broken_default(#[param(default = panic!("no default"))] number: u8) -> u8 {
    number
}

#[tokio::test]
async fn accepts_defaults_without_other_options() {
    let set = tools![defaults_alone];
    let shown = |name: &str| property(&set, "defaults_alone", name);
    assert_eq!(shown("number")["default"], 3);
    assert_eq!(shown("language")["default"], "en");
    assert_eq!(shown("list")["default"], json!([1, 2]));
    assert_eq!(shown("option")["default"], 4);
    // `null` selects the default.
    assert_eq!(shown("option")["type"], json!(["integer"]));
    assert_eq!(result_text(&set, "defaults_alone", r#"{"option": null}"#).await, "3 en [1, 2] Some(4)");
}

#[tokio::test]
async fn a_panicking_default_fails_only_its_calls() {
    let set = ToolSet::named(["broken_default", "defaults_alone"]).unwrap();
    assert_eq!(property(&set, "broken_default", "number").get("default"), None);
    assert_eq!(result_text(&set, "broken_default", r#"{"number": 3}"#).await, "3");
    assert_eq!(
        execute(&set, "broken_default", "{}").await.outcome().unwrap_err().kind(),
        ToolErrorKind::Panicked
    );
}
