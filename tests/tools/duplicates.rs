//! Members that an object contains twice: a person who approves the text reads one of them, so no tool is called with the other.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tool_core::run::StopReason;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{DynamicTool, ToolErrorKind};
use tool_core::toolset::ExtraParameters;
use tool_core::{
    Agent, FunctionTool, PromptedTools, RunErrorKind, Tool, ToolCall, ToolContext, ToolSet, tool, toolbox,
    tools,
};

/// A value that is read in every way: as a map, as any value, as one of several types, and as a struct.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct It {
    map: BTreeMap<String, Value>,
    any: Value,
    either: Option<Either>,
    plain: Option<Plain>,
    list: Vec<HashMap<String, u32>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is only read")]
enum Either {
    Amount { a: Option<u32> },
    Other { b: u32 },
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Plain {
    a: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    #[serde(default)]
    it: It,
    amount: Option<u32>,
}

#[tool]
fn declared(it: Option<It>, amount: Option<u32>) -> String {
    format!("called with {it:?} {amount:?}")
}

#[tool]
fn of_maps(it: Option<BTreeMap<String, Value>>, amount: Option<u32>) -> String {
    format!("called with {it:?} {amount:?}")
}

#[tool]
fn of_values(it: Option<Value>, amount: Option<Value>) -> String {
    format!("called with {it:?} {amount:?}")
}

#[tool(strict)]
fn strict(plain: Option<Plain>, amount: Option<u32>) -> String {
    format!("called with {plain:?} {amount:?}")
}

struct Methods;

#[toolbox]
impl Methods {
    #[tool]
    fn method(&self, it: Option<It>, amount: Option<u32>) -> String {
        format!("called with {it:?} {amount:?}")
    }
}

fn closure() -> FunctionTool {
    FunctionTool::new("closure", |Arguments { it, amount }: Arguments| {
        format!("called with {it:?} {amount:?}")
    })
}

fn closure_of_a_map() -> FunctionTool {
    FunctionTool::new("closure_of_a_map", |all: HashMap<String, Value>| format!("called with {all:?}"))
}

fn dynamic() -> DynamicTool {
    let schema = serde_json::json!({
        "type": "object",
        "properties": { "it": { "type": "object" }, "amount": { "type": "integer" } },
    });
    DynamicTool::new("dynamic", schema, |all: Value| format!("called with {all}")).unwrap()
}

fn set() -> ToolSet {
    let shared: [Arc<dyn Tool>; 3] = [Arc::new(closure()), Arc::new(closure_of_a_map()), Arc::new(dynamic())];
    tools![declared, of_maps, of_values].union(ToolSet::new(shared).unwrap()).unwrap().union(Methods).unwrap()
}

/// Texts and the paths of their duplicate members.
const TEXTS: &[(&str, &str)] = &[
    (r#"{"amount": 1000000, "amount": null}"#, "amount"),
    (r#"{"amount": null, "amount": 1000000}"#, "amount"),
    (r#"{"amount": 1, "\u0061mount": 2}"#, "amount"),
    (r#"{"it": {}, "it": {}}"#, "it"),
    (r#"{"it": {"map": {"a": 1, "a": 2}}}"#, "it.map.a"),
    (r#"{"it": {"map": {"a": 1, "\u0061": 2}}}"#, "it.map.a"),
    (r#"{"it": {"map": {"a": 1, "a": null}}, "amount": null}"#, "it.map.a"),
    (r#"{"amount": 7, "it": {"any": [0, {"b": {"c": 1, "c": 2}}]}}"#, "it.any[1].b.c"),
    (r#"{"it": {"either": {"a": 1, "a": 2}}}"#, "it.either.a"),
    (r#"{"it": {"either": {"b": 1, "a": 1, "a": 2}}}"#, "it.either.a"),
    (r#"{"it": {"plain": {"a": 1000000, "a": null}}}"#, "it.plain.a"),
    (r#"{"it": {"list": [{}, {"x": 1, "y": 2, "x": 3}]}}"#, "it.list[1].x"),
    (r#"{"it": {"map": {}, "map": {"a": 1}}}"#, "it.map"),
    // Repairs do not hide them.
    (r#"{"it": {"map": {"a": 1, "a": 2,}}}"#, "it.map.a"),
    (r#"{"it": {"map": {"a": 1, "a": 2}}, "amount": "7"}"#, "it.map.a"),
    (r#""{\"it\": {\"map\": {\"a\": 1, \"a\": 2}}}""#, "it.map.a"),
];

#[test]
fn no_tool_is_called_with_one_of_two_members() {
    let sets = [
        ("as declared", set()),
        ("strict", set().strict_where_possible()),
        ("strict arguments", set().no_repair()),
        ("unknown ignored", set().ignore_unknown_arguments()),
    ];
    for (title, set) in sets {
        for definition in set.definitions().iter() {
            for (text, path) in TEXTS {
                let call = ToolCall::new("1", definition.name(), *text);
                let outcome = set.call(&call, &ToolContext::new()).now_or_never().unwrap();
                let error = outcome.expect_err(text);
                assert_eq!(error.kind(), ToolErrorKind::InvalidArguments);
                let is_repaired = text.starts_with('"') || text.contains(",}") || text.contains(r#""7""#);
                if title == "strict arguments" && is_repaired {
                    continue;
                }
                assert_eq!(
                    error.to_string(),
                    format!("invalid arguments: `{path}` is given twice"),
                    "{title}: {} {text}",
                    definition.name()
                );
            }
        }
    }
}

/// A `null` that means an omitted argument is removed from the arguments of a strict tool, but not before.
#[test]
fn a_strict_tool_drops_no_member_that_is_given_twice() {
    for (text, path) in [
        (r#"{"amount": 1000000, "amount": null, "plain": null}"#, "amount"),
        (r#"{"plain": {"a": 1000000, "a": null}, "amount": null}"#, "plain.a"),
        (r#"{"plain": {"a": null, "\u0061": null}, "amount": null}"#, "plain.a"),
    ] {
        let call = ToolCall::new("1", "strict", text);
        let outcome = tools![strict].call(&call, &ToolContext::new()).now_or_never().unwrap();
        let expected = format!("invalid arguments: `{path}` is given twice");
        assert_eq!(outcome.unwrap_err().to_string(), expected, "{text}");
    }
    // The type has no such member, but the text that a person reads contains it.
    let text = r#"{"amount": 1, "plain": {"a": 1, "b": {"c": 1, "c": 2}}}"#;
    let call = ToolCall::new("1", "strict", text);
    let lenient = tools![strict].ignore_unknown_arguments();
    let error = lenient.call(&call, &ToolContext::new()).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "invalid arguments: `plain.b.c` is given twice");
    let call = ToolCall::new("1", "strict", r#"{"plain": {"a": null}, "amount": null}"#);
    let output = tools![strict].call(&call, &ToolContext::new()).now_or_never().unwrap().unwrap();
    assert_eq!(output.to_string(), "called with Some(Plain { a: None }) None");
}

/// An object that was written as a string is an object only after its repair.
#[test]
fn an_object_in_a_string_has_no_duplicates_either() {
    let text = r#"{"it": "{\"map\": {\"a\": 1, \"a\": 2}}"}"#;
    for name in ["declared", "method", "closure", "dynamic"] {
        let outcome =
            set().call(&ToolCall::new("1", name, text), &ToolContext::new()).now_or_never().unwrap();
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "invalid arguments: `it.map.a` is given twice",
            "{name}"
        );
    }
    // A string remains a string.
    let call = ToolCall::new("1", "of_values", text);
    assert!(set().call(&call, &ToolContext::new()).now_or_never().unwrap().is_ok());
}

#[test]
fn all_mistakes_are_reported_once() {
    let text =
        r#"{"it": {"map": {"a": 1, "a": 2}, "plain": {"a": 1, "a": "x"}}, "amount": "many", "amount": 1}"#;
    for name in ["declared", "method", "closure"] {
        let outcome =
            set().call(&ToolCall::new("1", name, text), &ToolContext::new()).now_or_never().unwrap();
        let error = outcome.unwrap_err().to_string();
        for path in ["it.map.a", "it.plain.a", "amount"] {
            assert_eq!(error.matches(&format!("`{path}` is given twice")).count(), 1, "{name}: {error}");
        }
        assert!(!error.contains("duplicate field"), "{name}: {error}");
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Reason {
    reason: BTreeMap<String, u32>,
}

#[test]
fn extra_parameters_have_no_duplicates() {
    let set = tools![of_values].extra_parameters(ExtraParameters::new(|_: &ToolCall, _: Reason| ())).unwrap();
    for (text, path) in [
        (r#"{"reason": {"a": 1, "a": 2}, "it": 1}"#, "reason.a"),
        (r#"{"reason": "{\"a\": 1, \"a\": 2}", "it": 1}"#, "reason.a"),
        (r#"{"reason": {}, "reason": {}, "it": 1}"#, "reason"),
        (r#"{"reason": {}, "it": {"a": 1, "a": 2}}"#, "it.a"),
    ] {
        let call = ToolCall::new("1", "of_values", text);
        let error = set.call(&call, &ToolContext::new()).now_or_never().unwrap().unwrap_err();
        assert_eq!(error.to_string(), format!("invalid arguments: `{path}` is given twice"), "{text}");
    }
}

#[test]
fn typed_access_to_arguments_refuses_duplicates() {
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Amount {
        #[serde(rename = "amount")]
        _amount: Option<u32>,
    }
    for (text, path) in TEXTS {
        let error = ToolCall::new("1", "pay", *text).arguments_as::<Amount>().unwrap_err();
        assert_eq!(error.to_string(), format!("invalid arguments: `{path}` is given twice"), "{text}");
    }
}

#[tokio::test]
async fn typed_answers_refuse_duplicates() {
    let text = r#"{"it": {"map": {"a": 1, "a": 2}}}"#;
    for model in [ScriptedModel::new().says(text), ScriptedModel::new().calls("final_answer", text)] {
        let agent = Agent::builder(model).limits(|l| l.max_wrong_answers(0));
        let error = agent.build().unwrap().ask("How many?").answer_as::<Arguments>().await.unwrap_err();
        let RunErrorKind::Stopped(StopReason::WrongAnswer(why)) = error.kind() else { panic!("{error}") };
        assert_eq!(why, "the answer does not have the requested form: `it.map.a` is given twice");
    }
}

#[tokio::test]
async fn prompted_calls_refuse_duplicates() {
    for arguments in [
        r#"{"it": {"map": {"a": 1, "a": 2}}}"#,
        r#""{\"it\": {\"map\": {\"a\": 1, \"a\": 2}}}""#,
        "{'it': {'map': {'a': 1, 'a': 2}}}",
    ] {
        let call = format!(r#"<tool_call>{{"name": "declared", "arguments": {arguments}}}</tool_call>"#);
        let model = PromptedTools::new(ScriptedModel::new().says(call).says("Done."));
        let agent = Agent::builder(model).tools(tools![declared]).build().unwrap();
        let answer = agent.ask("Go").await.unwrap();
        let error = answer.tool_executions()[0].outcome().unwrap_err();
        assert_eq!(error.to_string(), "invalid arguments: `it.map.a` is given twice", "{arguments}");
    }
}
