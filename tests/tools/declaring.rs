//! The tools that `#[tool]` generates from functions.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use tool_core::tool::ToolErrorKind;
use tool_core::toolset::{ToolSetError, ToolSetErrorKind, registered};
use tool_core::{Tool, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet, tool, toolbox, tools};

mod math {
    use std::fmt;

    /// Sums two numbers.
    #[tool_core::tool]
    pub(crate) fn sum(a: f64, b: f64) -> f64 {
        a + b
    }

    #[derive(Debug)]
    pub(crate) struct Negative;

    impl fmt::Display for Negative {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("must not be negative")
        }
    }

    impl std::error::Error for Negative {}

    /// This is for people.
    #[allow(clippy::needless_return)]
    #[tool_core::tool("Returns the square root of a number")]
    pub(crate) async fn square_root(
        /** must not be negative */
        x: f64,
    ) -> Result<f64, Negative> {
        if x < 0.0 {
            return Err(Negative);
        }
        return Ok(x.sqrt());
    }
}

use math::{square_root, sum};

#[derive(serde::Deserialize, schemars::JsonSchema)]
enum Unit {
    Celsius,
    Fahrenheit,
}

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
struct Place {
    name: String,
    stops: Vec<Stop>,
}

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
struct Stop {
    nights: u8,
}

#[tool]
#[expect(clippy::too_many_arguments, reason = "one of each kind")]
fn everything(
    #[param("a flag")] flag: bool,
    #[param("a letter", name = "letter")] _letter: char,
    unit: Unit,
    place: Place,
    numbers: Vec<f64>,
    prices: BTreeMap<String, u32>,
    pair: (u8, String),
    #[param("may be left out", required = false)] note: Option<String>,
    #[param(required = true)] must_say: Option<bool>,
) -> Value {
    let unit = match unit {
        Unit::Celsius => "C",
        Unit::Fahrenheit => "F",
    };
    json!([flag, unit, place, numbers, prices, pair, note, must_say])
}

#[tool(name = "borrow-ing")]
fn borrowing(text: &str, numbers: &[u32], place: &Place) -> String {
    format!("{text} {} {}", numbers.iter().sum::<u32>(), place.stops.len())
}

#[tool]
async fn borrowing_later(text: &str) -> usize {
    tokio::task::yield_now().await;
    text.len()
}

async fn call(tools: &ToolSet, name: &str, arguments: Value) -> Result<String, String> {
    let call = ToolCall::new("call_1", name, arguments.to_string());
    let outcome = tools.call(&call, &ToolContext::new()).await;
    outcome.map(|output| output.to_string()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_function_stays_a_function() {
    assert_eq!(sum(2.0, 3.0), 5.0);
    assert_eq!(square_root(4.0).await.unwrap(), 2.0);
}

#[tokio::test]
async fn one_use_imports_the_function_and_its_tool() {
    let tools = tools![sum, math::square_root];
    assert_eq!(call(&tools, "sum", json!({ "a": 2, "b": 40 })).await.unwrap(), "42.0");
    assert_eq!(call(&tools, "square_root", json!({ "x": 16.0 })).await.unwrap(), "4.0");
    assert_eq!(call(&tools, "square_root", json!({ "x": -1 })).await.unwrap_err(), "must not be negative");
}

#[test]
fn literals_take_precedence_over_docs_as_descriptions() {
    assert_eq!(sum {}.definition().description(), Some("Sums two numbers."));
    let definition = square_root {}.definition();
    assert_eq!(definition.description(), Some("Returns the square root of a number"));
    assert_eq!(definition.parameters()["properties"]["x"]["description"], "must not be negative");
    assert_eq!(borrowing_later {}.definition().description(), None);
}

#[test]
fn a_schema_contains_the_whole_signature() {
    let schema = everything {}.definition().parameters().clone();
    let names: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
    let expected = ["flag", "letter", "unit", "place", "numbers", "prices", "pair", "note", "must_say"];
    assert_eq!(names, expected);
    let required = ["flag", "letter", "unit", "place", "numbers", "prices", "pair", "must_say"];
    assert_eq!(schema["required"], json!(required));
    assert_eq!(schema["properties"]["flag"], json!({ "type": "boolean", "description": "a flag" }));
    assert_eq!(schema["properties"]["unit"]["enum"], json!(["Celsius", "Fahrenheit"]));
    let nights = &schema["properties"]["place"]["properties"]["stops"]["items"]["properties"]["nights"];
    assert_eq!(*nights, json!({ "type": "integer", "minimum": 0, "maximum": 255 }));
}

#[tokio::test]
async fn accepts_arguments_of_all_kinds() {
    let arguments = json!({
        "flag": true, "letter": "x", "unit": "Fahrenheit", "place": { "name": "Rome", "stops": [{ "nights": 2 }] },
        "numbers": [1, 2.5], "prices": { "wine": 7 }, "pair": [1, "one"], "must_say": null,
    });
    let output = call(&tools![everything], "everything", arguments).await.unwrap();
    let expected =
        r#"[true,"F",{"name":"Rome","stops":[{"nights":2}]},[1.0,2.5],{"wine":7},[1,"one"],null,null]"#;
    assert_eq!(output, expected);
}

#[tokio::test]
async fn accepts_borrowed_arguments() {
    let tools = tools![borrowing, borrowing_later];
    let arguments = json!({ "text": "is", "numbers": [1, 2], "place": { "name": "", "stops": [] } });
    assert_eq!(call(&tools, "borrow-ing", arguments).await.unwrap(), "is 3 0");
    assert_eq!(call(&tools, "borrowing_later", json!({ "text": "four" })).await.unwrap(), "4");
}

#[tool]
fn first_word<'a>(text: &'a str, _other: &str) -> &'a str {
    text.split(' ').next().unwrap_or_default()
}

#[tool]
async fn last_word(text: &str) -> &str {
    tokio::task::yield_now().await;
    text.split(' ').next_back().unwrap_or_default()
}

#[tokio::test]
async fn a_text_may_be_borrowed_from_an_argument() {
    let tools = tools![first_word, last_word];
    let arguments = json!({ "text": "good morning", "_other": "" });
    assert_eq!(call(&tools, "first_word", arguments).await.unwrap(), "good");
    assert_eq!(call(&tools, "last_word", json!({ "text": "good morning" })).await.unwrap(), "morning");
}

/// Parameter names that the generated code uses itself.
mod names {
    #[tool_core::tool]
    pub(crate) fn call(arguments: u8, text: u8, slots: u8, output: u8, argument0: u8) -> u8 {
        arguments + text + slots + output + argument0
    }

    #[tool_core::tool]
    pub(crate) fn r#match(r#type: String) -> String {
        r#type
    }

    #[tool_core::tool]
    pub(crate) fn mutable(mut count: u8) -> u8 {
        count += 1;
        count
    }
}

#[tokio::test]
async fn parameter_names_do_not_clash_with_generated_code() {
    let tools = tools![names::call, names::r#match, names::mutable];
    let arguments = json!({ "arguments": 1, "text": 2, "slots": 3, "output": 4, "argument0": 5 });
    assert_eq!(call(&tools, "call", arguments).await.unwrap(), "15");
    assert_eq!(call(&tools, "match", json!({ "type": "x" })).await.unwrap(), "x");
    assert_eq!(call(&tools, "mutable", json!({ "count": 1 })).await.unwrap(), "2");
}

mod returns {
    use std::sync::Arc;

    use super::*;

    type Aliased<T> = std::result::Result<T, String>;

    #[tool]
    pub(crate) fn nothing() {}
    #[tool]
    pub(crate) fn fallible_nothing() -> Result<(), String> {
        Ok(())
    }
    #[tool]
    pub(crate) fn text() -> String {
        " ".into()
    }
    #[tool]
    pub(crate) fn static_text() -> &'static str {
        ""
    }
    #[tool]
    pub(crate) fn cow() -> Cow<'static, str> {
        "cow".into()
    }
    #[tool]
    pub(crate) fn shared() -> Arc<str> {
        "shared".into()
    }
    #[tool]
    pub(crate) fn none() -> Option<u8> {
        None
    }
    #[tool]
    pub(crate) fn not_a_number() -> Result<f64, String> {
        Ok(f64::NAN)
    }
    #[tool]
    pub(crate) fn infinite() -> f32 {
        f32::NEG_INFINITY
    }
    #[tool]
    pub(crate) fn list() -> Vec<u8> {
        vec![]
    }
    #[tool]
    pub(crate) fn map() -> HashMap<String, u8> {
        HashMap::new()
    }
    #[tool]
    pub(crate) fn output() -> ToolOutput {
        ToolOutput::text("as it is")
    }
    #[tool]
    pub(crate) fn aliased() -> Aliased<bool> {
        Ok(true)
    }
    #[tool]
    pub(crate) fn aliased_error() -> Aliased<bool> {
        Err("no".into())
    }
    #[tool]
    pub(crate) fn any_error() -> anyhow::Result<u8> {
        Err(anyhow::anyhow!("timed out").context("booking failed"))
    }
    #[tool]
    pub(crate) fn tool_error() -> Result<u8, ToolError> {
        Err(ToolError::invalid_arguments("`x` is odd"))
    }
    #[tool]
    pub(crate) fn option_of_text() -> Option<String> {
        Some("x".into())
    }
}

#[tokio::test]
async fn accepts_return_values_of_all_kinds() {
    use returns::*;
    let tools = tools![
        nothing,
        not_a_number,
        infinite,
        fallible_nothing,
        text,
        static_text,
        cow,
        shared,
        none,
        list,
        map,
        output,
        aliased,
        aliased_error,
        any_error,
        tool_error,
        option_of_text,
    ];
    let table: &[(&str, Result<&str, &str>)] = &[
        ("nothing", Ok("Success")),
        ("fallible_nothing", Ok("Success")),
        ("text", Ok(" ")),
        ("static_text", Ok("")),
        ("cow", Ok("cow")),
        ("shared", Ok("shared")),
        ("none", Ok("null")),
        ("not_a_number", Ok("NaN")),
        ("infinite", Ok("-inf")),
        ("list", Ok("[]")),
        ("map", Ok("{}")),
        ("output", Ok("as it is")),
        ("aliased", Ok("true")),
        ("aliased_error", Err("no")),
        ("any_error", Err("booking failed: timed out")),
        ("tool_error", Err("`x` is odd")),
        ("option_of_text", Ok("\"x\"")),
    ];
    for (name, expected) in table {
        let outcome = call(&tools, name, json!({})).await;
        assert_eq!(outcome.as_deref().map_err(|error| &**error), *expected, "{name}");
    }
}

#[test]
fn accepts_tools_inside_functions() {
    /// Doubles a number.
    #[tool]
    fn double(x: i64) -> i64 {
        2 * x
    }

    assert_eq!(double(2), 4);
    assert_eq!(tools![double].definitions()[0].description(), Some("Doubles a number."));
}

#[test]
fn accepts_an_empty_list_and_a_trailing_comma() {
    assert!(tools![].is_empty());
    assert_eq!(tools![sum, square_root,].len(), 2);
}

#[tokio::test]
async fn reports_an_unknown_tool() {
    let error = call(&tools![sum, square_root], "squareRoot", json!({})).await.unwrap_err();
    let expected =
        "there is no tool `squareRoot`; the tools are `sum`, `square_root`; did you mean `square_root`?";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn reports_all_invalid_arguments_together() {
    let error = call(&tools![sum], "sum", json!({ "a": "two", "c": 3 })).await.unwrap_err();
    let expected = "invalid arguments: there is no argument `c`, the arguments are `a`, `b`; \
                    `b` is missing, expected a number; `a`: expected a number, got \"two\"";
    assert_eq!(error, expected);
}

mod panics {
    #[tool_core::tool]
    pub(crate) fn at_once() -> u8 {
        panic!("secret 1")
    }

    #[tool_core::tool]
    pub(crate) async fn later() -> u8 {
        tokio::task::yield_now().await;
        panic!("secret {}", 2)
    }
}

#[tokio::test]
async fn a_panic_fails_only_its_call_and_hides_its_text() {
    let tools = tools![panics::at_once, panics::later];
    for (name, text) in [("at_once", "panicked: secret 1"), ("later", "panicked: secret 2")] {
        let call = ToolCall::new("call_7", name, "{}");
        let error = tools.call(&call, &ToolContext::new()).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::Panicked);
        assert_eq!(error.to_string(), "the tool failed (reference call_7)");
        assert_eq!(error.failure().unwrap().to_string(), text);
    }
}

#[test]
fn the_registry_is_sorted_by_name() {
    let names: Vec<_> = registered().iter().map(|tool| tool.definition().name().to_owned()).collect();
    assert!(names.is_sorted() && names.iter().any(|name| name == "sum"), "{names:?}");
    assert!(names.iter().any(|name| name == "borrow-ing"));
}

/// Tools with names that no other module of this binary uses.
mod configured {
    #[tool_core::tool]
    pub(crate) fn dispatch_order() {}

    #[tool_core::tool]
    pub(crate) fn recall_order() {}
}

#[test]
fn resolves_names_from_a_configuration() {
    let set = ToolSet::named(["recall_order", "dispatch_order"]).unwrap();
    let names: Vec<_> = set.definitions().iter().map(|definition| definition.name()).collect();
    assert_eq!(names, ["recall_order", "dispatch_order"]);
    let error = ToolSet::named(["recall_order", "dispatchorder"]).unwrap_err();
    assert_eq!(error.kind(), ToolSetErrorKind::UnknownTool);
    let text = "of this program (methods of toolboxes are not registered: use `ToolSet::resolved`; \
                a crate of which nothing is used is not linked: write `use team_tools as _;`); did you mean `dispatch_order`?";
    assert!(error.to_string().ends_with(text), "{error}");
}

/// Two tools with the same name, which is the first of the duplicates in this binary.
mod twice {
    #[tool_core::tool(name = "A_twin")]
    pub(crate) fn twin() {}

    pub(crate) mod again {
        #[tool_core::tool(name = "A_twin")]
        pub(crate) fn twin() {}
    }
}

#[test]
fn refuses_duplicate_names_with_both_locations() {
    let union = tools![twice::twin].union(tools![twice::again::twin]).unwrap_err();
    let named = ToolSet::named(["recall_order", "A_twin"]).unwrap_err();
    let all = ToolSet::registered().unwrap_err();
    let line = twice::twin {}.declared_at().unwrap().line();
    for error in [union, named, all] {
        assert_eq!(error.kind(), ToolSetErrorKind::DuplicateTool);
        let text = error.to_string();
        assert!(text.starts_with("two tools are named `A_twin`: one at tests/tools/declaring.rs:"), "{text}");
        assert!(text.contains(&format!("declaring.rs:{line},")), "{text}");
        assert!(
            text.contains(&format!("declaring.rs:{},", line + 4))
                || text.contains(&format!("rs:{};", line + 4)),
            "{text}"
        );
    }
}

#[test]
fn debug_output_omits_arguments_and_outputs() {
    let call = ToolCall::new("call_1", "sum", r#"{"a": "secret"}"#);
    assert_eq!(format!("{call:?}"), r#"ToolCall { id: "call_1", name: "sum", arguments: 15 bytes }"#);
    assert_eq!(format!("{:?}", ToolOutput::text("secret")), "ToolOutput(6 bytes)");
    let context = ToolContext::new().with("secret".to_owned());
    assert_eq!(format!("{context:?}"), r#"ToolContext(["alloc::string::String"])"#);
}

const NOUN: &str = "root";

mod constants {
    pub(crate) const ROOT: &str = "square-root";
}

#[tool(description = "Returns the square root", name = constants::ROOT)]
fn named_by_a_constant(#[param(description = NOUN)] x: f64) -> f64 {
    x.sqrt()
}

#[tool(description = concat!("Returns ", "nothing"), name = concat!("no", "thing"))]
fn described_by_a_macro() {}

struct Calculator;

#[toolbox]
impl Calculator {
    const NAME: &str = "add";

    #[tool(name = Self::NAME, description = NOUN)]
    fn sum(a: f64, b: f64) -> f64 {
        a + b
    }
}

#[tokio::test]
async fn names_and_descriptions_may_be_options_and_constants() {
    let set = tools![named_by_a_constant, described_by_a_macro].union(ToolSet::from(Calculator)).unwrap();
    let described: Vec<_> = set.definitions().iter().map(|one| (one.name(), one.description())).collect();
    let expected = [
        ("square-root", Some("Returns the square root")),
        ("nothing", Some("Returns nothing")),
        ("add", Some("root")),
    ];
    assert_eq!(described, expected);
    assert_eq!(set.definitions()[0].parameters()["properties"]["x"]["description"], "root");
    assert_eq!(call(&set, "square-root", json!({ "x": 9 })).await.unwrap(), "3.0");
}

#[tokio::test]
async fn a_resolver_finds_names_when_they_are_needed() {
    let known = tools![configured::recall_order].union(Calculator).unwrap().ignore_unknown_arguments();
    let names =
        |set: &ToolSet| -> Vec<_> { set.definitions().iter().map(|one| one.name().to_owned()).collect() };
    let set = ToolSet::resolved(["add", "recall_order"], &known).await.unwrap();
    assert_eq!(names(&set), ["add", "recall_order"]);
    // The settings of the resolver's sets remain.
    let call = ToolCall::new("1", "recall_order", r#"{"dry_run": true}"#);
    assert_eq!(set.call(&call, &ToolContext::new()).await.unwrap().to_string(), "Success");

    let resolver = |name: &str| match name {
        "offline" => Err("the database is offline"),
        _ => Ok((name == "add").then(|| ToolSet::from(Calculator))),
    };
    assert_eq!(names(&ToolSet::resolved(["add"], &resolver).await.unwrap()), ["add"]);
    for (name, text) in [
        ("subtract", "there is no tool `subtract` that the resolver knows"),
        ("offline", "the database is offline"),
    ] {
        let error = ToolSet::resolved(["add", name], &resolver).await.unwrap_err();
        assert_eq!(error.to_string(), text);
    }
    let error = ToolSet::resolved(["ad"], &known).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `ad` that the resolver knows; did you mean `add`?");
    let error = ToolSet::resolved(["add", "add"], &known).await.unwrap_err();
    let kind = error.downcast_ref::<ToolSetError>().map(ToolSetError::kind);
    assert_eq!(kind, Some(ToolSetErrorKind::DuplicateTool));
}
