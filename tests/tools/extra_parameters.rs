//! Extra parameters for every tool of a set.

use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tool_core::engine::Injection;
use tool_core::model::{ToolDefinition, ToolPolicy};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{ToolErrorKind, ToolFuture};
use tool_core::toolset::{ExtraParameters, ToolSetErrorKind};
use tool_core::{Agent, Tool, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet, tool, tools};

/// What the model thinks.
#[derive(Debug, Deserialize, JsonSchema)]
struct Thought {
    /// Why you call this tool.
    reason: String,
    /// How sure you are.
    confidence: Option<Confidence>,
    #[serde(default)]
    tries: u8,
}

#[derive(Debug, Deserialize, JsonSchema)]
enum Confidence {
    Low,
    High,
}

#[tool("Sums two numbers")]
fn sum(a: i64, b: i64) -> i64 {
    a + b
}

#[tool("Waits")]
async fn wait(seconds: u8) -> u8 {
    tokio::task::yield_now().await;
    seconds
}

#[tool("Returns the time")]
fn now() -> u8 {
    12
}

#[tool("Panics")]
async fn panics() -> u8 {
    panic!("secret")
}

/// A tool that returns its arguments unchanged and declares configurable injections.
struct Echo {
    definition: ToolDefinition,
    injections: Option<Vec<Injection>>,
}

impl Echo {
    fn new(parameters: Value) -> Self {
        let mut policy = ToolPolicy::default();
        policy.exclusive = true;
        let definition = ToolDefinition::new("echo")
            .with_description("Gives back")
            .with_parameters(parameters)
            .with_policy(policy);
        Self { definition, injections: None }
    }

    fn set(parameters: Value) -> ToolSet {
        ToolSet::default().with(Self::new(parameters)).unwrap()
    }
}

impl Tool for Echo {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::boxed(async move { Ok(ToolOutput::text(arguments)) })
    }

    fn injections(&self) -> Option<&[Injection]> {
        self.injections.as_deref()
    }
}

type Heard = Arc<Mutex<Vec<String>>>;

/// Returns extra parameters, and the list of the values that their function receives.
fn thoughts() -> (ExtraParameters<Thought>, Heard) {
    let heard = Heard::default();
    let log = Arc::clone(&heard);
    let augmentation = ExtraParameters::new(move |call: &ToolCall, thought: Thought| {
        let Thought { reason, confidence, tries } = thought;
        log.lock().unwrap().push(format!("{} {} {reason} {confidence:?} {tries}", call.id, call.name));
    });
    (augmentation, heard)
}

async fn call(tools: &ToolSet, name: &str, arguments: &str) -> String {
    match tools.call(&ToolCall::new("1", name, arguments), &ToolContext::new()).await {
        Ok(output) => output.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn extra_fields_follow_the_tools_parameters() {
    let tools = tools![sum, now].extra_parameters(thoughts().0).unwrap();
    let sum = tools.get("sum").unwrap().definition();
    assert_eq!(
        sum.parameters().to_string(),
        json!({
            "type": "object",
            "properties": {
                "a": { "type": "integer" },
                "b": { "type": "integer" },
                "reason": { "type": "string", "description": "Why you call this tool." },
                "confidence": {
                    "type": ["string", "null"],
                    "enum": ["Low", "High", null],
                    "description": "How sure you are.",
                },
                "tries": { "type": "integer", "default": 0, "minimum": 0, "maximum": 255 },
            },
            "required": ["a", "b", "reason"],
            "additionalProperties": false,
        })
        .to_string()
    );
    assert_eq!(sum.description(), Some("Sums two numbers"));
    assert_eq!(sum.name(), "sum");
    let now = tools.get("now").unwrap();
    assert_eq!(now.definition().parameters()["required"], json!(["reason"]));
    assert!(now.declared_at().is_some());
    // Keywords that a hand-written schema omits are added.
    let echo = Echo::set(json!({ "type": "object" })).extra_parameters(thoughts().0).unwrap();
    let echo = echo.get("echo").unwrap().definition();
    assert_eq!(echo.parameters()["required"], json!(["reason"]));
    assert!(echo.policy().exclusive);
}

#[tokio::test]
async fn the_tool_receives_its_arguments_unchanged() {
    let table = [
        (r#"{"x": 1.50, "reason": "why", "y":[1, 2e3]}"#, r#"{"x":1.50,"y":[1, 2e3]}"#, "why None 0"),
        (r#"{"reason":"why","confidence":"High","tries":3}"#, "{}", "why Some(High) 3"),
        (r#"{"r\u0065ason":"w\"hy","\u0078":"\u0041"}"#, r#"{"x":"\u0041"}"#, "w\"hy None 0"),
        (r#"{"reason":"why","confidence":null,"x":null}"#, r#"{"x":null}"#, "why None 0"),
    ];
    for (arguments, own, heard) in table {
        let (augmentation, all) = thoughts();
        let tools = Echo::set(json!({ "type": "object" })).extra_parameters(augmentation).unwrap();
        assert_eq!(call(&tools, "echo", arguments).await, own);
        assert_eq!(*all.lock().unwrap(), [format!("1 echo {heard}")]);
        let log =
            Echo::set(json!({ "type": "object" })).extra_parameters(thoughts().0.pass_to_tool()).unwrap();
        assert_eq!(call(&log, "echo", arguments).await, arguments);
    }
    let (augmentation, _) = thoughts();
    let tools = tools![sum, wait, now].extra_parameters(augmentation).unwrap();
    assert_eq!(call(&tools, "sum", r#"{"a":1,"reason":"x","b":2}"#).await, "3");
    assert_eq!(call(&tools, "wait", r#"{"seconds":1,"reason":"x"}"#).await, "1");
    assert_eq!(call(&tools, "now", r#"{"reason":"x"}"#).await, "12");
}

#[tokio::test]
async fn invalid_extra_fields_refuse_the_call() {
    let table = [
        ("", "`reason` is missing, expected a string (Why you call this tool.)"),
        ("null", "`reason` is missing, expected a string (Why you call this tool.)"),
        (r#"{"a":1,"b":2}"#, "`reason` is missing, expected a string (Why you call this tool.)"),
        (r#"{"reason":{"x":1}}"#, "`reason`: expected a string, got an object"),
        (r#"{"reason":"x","tries":300}"#, "`tries`: expected an integer from 0 to 255, got 300"),
        (
            r#"{"reason":"x","confidence":"Sure"}"#,
            "`confidence`: expected one of \"Low\", \"High\", null, got \"Sure\"",
        ),
        (r#"{"reason":"x","reason":"y"}"#, "`reason` is given twice"),
        (r#"{"tries":1,"tries":2}"#, "`tries` is given twice"),
        ("[]", "expected a JSON object, got a list"),
        ("{ broken", "not valid JSON: key must be a string at line 1 column 3"),
    ];
    for (arguments, expected) in table {
        let (augmentation, heard) = thoughts();
        let tools = Echo::set(json!({ "type": "object" })).extra_parameters(augmentation).unwrap();
        let call = ToolCall::new("1", "echo", arguments);
        let error = tools.call(&call, &ToolContext::new()).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{arguments}");
        let expected = format!("invalid arguments: {expected}");
        assert_eq!(error.to_string(), expected, "{arguments}");
        assert!(heard.lock().unwrap().is_empty(), "{arguments}");
    }
    let tools = tools![sum].extra_parameters(thoughts().0).unwrap();
    assert_eq!(
        call(&tools, "sum", r#"{"a":1,"reason":"x"}"#).await,
        "error: invalid arguments: `b` is missing, expected an integer"
    );
}

#[tokio::test]
async fn repairs_and_reports_extra_fields() {
    type Repaired<'a> = &'a [(Option<&'a str>, &'a str, &'a str)];
    let table: [(&str, &str, &str, Repaired<'_>); 5] = [
        (
            r#"{"seconds":1,"reason":7,"tries":"2"}"#,
            "1",
            "7 None 2",
            &[(Some("reason"), "7", "\"7\""), (Some("tries"), "\"2\"", "2")],
        ),
        (r#"{"seconds":1,"reason":"x","tries":null}"#, "1", "x None 0", &[]),
        (
            r#"{"seconds":"1","reason":"x","confidence":"high"}"#,
            "1",
            "x Some(High) 0",
            &[(Some("confidence"), "\"high\"", "\"High\""), (Some("seconds"), "\"1\"", "1")],
        ),
        (
            r#"{"seconds":1,"reason":"x",}"#,
            "1",
            "x None 0",
            &[(None, r#"{"seconds":1,"reason":"x",}"#, r#"{"seconds":1,"reason":"x"}"#)],
        ),
        (
            r#""{\"seconds\":1,\"reason\":\"x\"}""#,
            "1",
            "x None 0",
            &[(None, r#""{\"seconds\":1,\"reason\":\"x\"}""#, r#"{"seconds":1,"reason":"x"}"#)],
        ),
    ];
    for (arguments, output, received, repaired) in table {
        let (augmentation, heard) = thoughts();
        let tools = tools![wait].extra_parameters(augmentation).unwrap();
        let call = ToolCall::new("1", "wait", arguments);
        let execution = tools.execute(call.clone(), &ToolContext::new()).await;
        assert_eq!(execution.outcome().unwrap().to_string(), output, "{arguments}");
        assert_eq!(*heard.lock().unwrap(), [format!("1 wait {received}")]);
        let repairs: Vec<_> =
            execution.repairs().iter().map(|one| (one.argument(), one.original(), one.repaired())).collect();
        assert_eq!(repairs, repaired, "{arguments}");
        // Without repairs, only what needs one is refused: `null` for an optional field means that it is omitted.
        let strictly = tools.no_repair().call(&call, &ToolContext::new()).await;
        assert_eq!(strictly.is_ok(), repaired.is_empty(), "{arguments}: {strictly:?}");
    }
}

#[tokio::test]
async fn the_function_can_refuse_the_call() {
    let augmentation =
        ExtraParameters::validating(|_: &ToolCall, thought: Thought| match thought.confidence {
            Some(Confidence::Low) => Err(ToolError::failed("ask the user first")),
            _ => Ok(()),
        });
    let tools = tools![now].extra_parameters(augmentation).unwrap();
    assert_eq!(
        call(&tools, "now", r#"{"reason":"x","confidence":"Low"}"#).await,
        "error: ask the user first"
    );
    assert_eq!(call(&tools, "now", r#"{"reason":"x"}"#).await, "12");
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename = "Node")]
#[expect(dead_code, reason = "only its schema is used")]
struct Tree {
    leaves: Vec<Tree>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename = "Node")]
#[expect(dead_code, reason = "only its schema is used")]
struct Chain {
    next: Option<Box<Chain>>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Plan {
    steps: Vec<Chain>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Forest {
    trees: Vec<Tree>,
}

#[tool("Plants a tree")]
fn plant(tree: Tree) {
    drop(tree);
}

#[test]
fn distinguishes_definitions_with_the_same_name() {
    let silent = || ExtraParameters::new(|_: &ToolCall, _: Plan| {});
    let tools = tools![plant].extra_parameters(silent()).unwrap();
    let schema = tools.get("plant").unwrap().definition().parameters();
    let resolve = |schema: &Value, inner: &Value| match inner["$ref"].as_str() {
        Some(reference) => schema.pointer(&reference[1..]).unwrap().clone(),
        None => inner.clone(),
    };
    let tree = resolve(schema, &schema["properties"]["tree"]["properties"]["leaves"]["items"]);
    assert!(tree["properties"].get("leaves").is_some(), "{schema}");
    let step = resolve(schema, &schema["properties"]["steps"]["items"]);
    let next = resolve(schema, &step["properties"]["next"]["anyOf"][0]);
    assert!(next["properties"].get("next").is_some(), "{schema}");
    assert_eq!(schema["$defs"].as_object().unwrap().len(), 2, "{schema}");
    // A shared type is defined once.
    let tools = tools![plant].extra_parameters(ExtraParameters::new(|_: &ToolCall, _: Forest| {})).unwrap();
    let schema = tools.get("plant").unwrap().definition().parameters();
    assert_eq!(schema["$defs"].as_object().unwrap().len(), 1, "{schema}");
    // A definition that only the extra parameters need is included as well.
    let tools = tools![now].extra_parameters(silent()).unwrap();
    let schema = tools.get("now").unwrap().definition().parameters();
    assert_eq!(schema["$defs"].as_object().unwrap().len(), 1, "{schema}");
    // The top-level type is recursive.
    let tools = tools![now].extra_parameters(ExtraParameters::new(|_: &ToolCall, _: Chain| {})).unwrap();
    let schema = tools.get("now").unwrap().definition().parameters();
    assert!(schema["properties"].get("next").is_some(), "{schema}");
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Clash {
    b: String,
}

#[test]
fn refuses_conflicting_parameters() {
    let clash = || ExtraParameters::new(|_: &ToolCall, _: Clash| {});
    let taken = |tool: &str| {
        format!(
            "the tool `{tool}` already has a parameter `b`; rename the field, for example with `#[serde(rename = \"…\")]`"
        )
    };
    let in_variant =
        json!({ "type": "object", "anyOf": [{ "properties": { "a": {} } }, { "properties": { "b": {} } }] });
    let table = [
        (tools![now, sum].extra_parameters(clash()), taken("sum")),
        (
            tools![now].extra_parameters(clash()).and_then(|tools| tools.extra_parameters(clash())),
            taken("now"),
        ),
        (Echo::set(in_variant).extra_parameters(clash()), taken("echo")),
        (
            tools![now].extra_parameters(ExtraParameters::new(|_: &ToolCall, _: u8| {})),
            "`u8` has no named fields to add to the parameters of tools".into(),
        ),
        (
            tools![now].extra_parameters(ExtraParameters::new(|_: &ToolCall, _: Confidence| {})),
            "`tools::extra_parameters::Confidence` has no named fields to add to the parameters of tools"
                .into(),
        ),
    ];
    for (set, expected) in table {
        let error = set.unwrap_err();
        assert_eq!(error.kind(), ToolSetErrorKind::ExtraParameters);
        assert_eq!(error.to_string(), expected);
    }
}

#[derive(Deserialize, JsonSchema)]
struct Urgency {
    urgent: bool,
}

#[tokio::test]
async fn extra_parameters_accumulate_and_retain_the_sets_options() {
    let (augmentation, heard) = thoughts();
    let urgent = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&urgent);
    let tools = tools![wait]
        .no_repair()
        .extra_parameters(augmentation)
        .and_then(|tools| {
            tools.extra_parameters(ExtraParameters::new(move |call: &ToolCall, Urgency { urgent }| {
                log.lock().unwrap().push((call.name.clone(), urgent));
            }))
        })
        .and_then(|tools| tools.prefix("my_"))
        .unwrap();
    assert_eq!(call(&tools, "my_wait", r#"{"urgent":true,"seconds":1,"reason":"x"}"#).await, "1");
    assert_eq!(*urgent.lock().unwrap(), [("my_wait".to_owned(), true)]);
    assert_eq!(*heard.lock().unwrap(), ["1 my_wait x None 0"]);
    assert!(
        call(&tools, "my_wait", r#"{"urgent":true,"seconds":"1","reason":"x"}"#).await.starts_with("error")
    );
}

#[tokio::test]
async fn retains_the_tools_injections() {
    struct Database;
    let needy = Echo {
        injections: Some(vec![Injection::new::<Database>()]),
        ..Echo::new(json!({ "type": "object" }))
    };
    let tools = ToolSet::default().with(needy).unwrap().extra_parameters(thoughts().0).unwrap();
    let missing = tools.missing_from(&ToolContext::new()).unwrap();
    assert!(missing.to_string().contains("`echo` needs `tools::extra_parameters::"), "{missing}");
    assert!(tools.missing_from(&ToolContext::new().with(Database)).is_none());
    assert!(
        Echo::set(json!({ "type": "object" }))
            .extra_parameters(thoughts().0)
            .unwrap()
            .get("echo")
            .unwrap()
            .injections()
            .is_none()
    );
}

#[tokio::test]
async fn extra_parameters_apply_in_a_run() {
    let (augmentation, heard) = thoughts();
    let tools = tools![sum, panics].extra_parameters(augmentation).unwrap();
    let model = ScriptedModel::new()
        .expects(|request| request.tools()[0].parameters()["properties"].get("reason").is_some())
        .calls_all([("sum", r#"{"a":1,"b":2,"reason":"to add"}"#), ("panics", r#"{"reason":"to see"}"#)])
        .says("Done.");
    let answer = Agent::builder(model).tools(tools).build().unwrap().ask("1 + 2?").await.unwrap();
    let made = answer.tool_executions();
    assert_eq!(made[0].output().unwrap().to_string(), "3");
    assert_eq!(made[1].outcome().unwrap_err().kind(), ToolErrorKind::Panicked);
    assert!(made[0].call().arguments.contains("to add"), "the record has the call as the model wrote it");
    assert_eq!(*heard.lock().unwrap(), ["call_1_0 sum to add None 0", "call_1_1 panics to see None 0"]);
}
