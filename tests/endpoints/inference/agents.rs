//! Complete agents: functions are called with the arguments that the model wrote, and the server can enforce their schemas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tool_core::agent::{AgentBuilder, EventStream};
use tool_core::layer::rewrite;
use tool_core::model::ToolChoice;
use tool_core::run::StopReason;
use tool_core::{Agent, Answer, ChatModel, Event, Message, RunError, RunErrorKind, tool, tools};

use super::{model, seeded};

/// The arguments of all calls.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Value>>>);

impl Seen {
    fn add(&self, arguments: Value) -> String {
        let text = arguments.to_string();
        self.0.lock().unwrap().push(arguments);
        text
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    Metre,
    Foot,
}

/// A location on the coast.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Place {
    #[schemars(length(max = 8))]
    name: String,
    #[schemars(range(min = -90, max = 90))]
    latitude: i8,
    #[serde(default)]
    #[schemars(length(max = 2))]
    beacons: Vec<bool>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Vessel {
    Boat { masts: u8 },
    Raft,
}

/// Returns the tide.
#[tool]
pub(crate) fn get_tide(
    #[inject] seen: &Seen,
    #[param(length = ..=12)] port: String,
    #[param(range = 1..=48)] hours: u8,
    unit: Option<Unit>,
) -> String {
    seen.add(json!({ "port": port, "hours": hours, "unit": unit }))
}

/// Plans a route.
#[tool]
async fn plan(
    #[inject] seen: &Seen,
    place: Place,
    vessel: Vessel,
    #[param(length = ..=2)] stops: Vec<Place>,
) -> String {
    seen.add(json!({ "place": place, "vessel": vessel, "stops": stops }))
}

/// Sets the lamps.
#[tool]
fn set_lamps(
    #[inject] seen: &Seen,
    on: bool,
    #[param(default = 50, range = 0..=100)] brightness: u8,
    #[param(pattern = "^[a-c]{2}$")] code: &str,
    pair: (u8, u8),
) -> String {
    seen.add(json!({ "on": on, "brightness": brightness, "code": code, "pair": pair }))
}

/// Returns the time.
#[tool]
fn now(#[inject] seen: &Seen) -> String {
    seen.add(json!({}))
}

/// Builds an agent whose model replies differently in each turn and identically in each test.
pub(crate) fn agent(model: impl ChatModel + 'static, seed: i64) -> AgentBuilder {
    Agent::builder(model)
        .tools(tools![get_tide, plan, set_lamps, now].no_repair())
        .tool_choice(ToolChoice::Required)
        .limits(|l| l.max_repeated_calls(99))
        .layer(rewrite::request_with_context(move |request, at| {
            request.with_options(seeded(seed * 100 + i64::from(at.turn)))
        }))
}

/// Checks that every call was executed with the arguments that the model wrote, and that the conversation has its result.
pub(crate) fn check(outcome: &Result<Answer, RunError>, seen: &Seen) -> usize {
    let (executions, messages) = match outcome {
        Ok(answer) => (answer.tool_executions(), answer.new_messages()),
        Err(error) if matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(_))) => {
            (error.tool_executions(), error.new_messages())
        }
        Err(error) => panic!("{error:?}"),
    };
    assert!(!executions.is_empty());
    let mut ids = BTreeSet::new();
    let mut expected = BTreeMap::new();
    for execution in executions {
        let call = execution.call();
        let output = execution.outcome().unwrap_or_else(|error| panic!("{}: {error}", call.arguments));
        let output: Value = serde_json::from_str(&output.content().text()).unwrap();
        let written: Value = serde_json::from_str(&call.arguments).unwrap();
        for (name, value) in written.as_object().unwrap() {
            contains(&output[name], value);
        }
        assert!(ids.insert(call.id.clone()), "ids differ");
        *expected.entry(output.to_string()).or_insert(0) += 1;
    }
    let mut called = BTreeMap::new();
    for arguments in seen.0.lock().unwrap().iter() {
        *called.entry(arguments.to_string()).or_insert(0) += 1;
    }
    assert_eq!(called, expected);
    let results = messages.iter().filter(|message| matches!(message, Message::Tool(_)));
    match outcome {
        Ok(_) => assert_eq!(results.count(), executions.len()),
        // At the limit, calls that were not executed have a result as well.
        Err(_) => assert!(results.count() > executions.len()),
    }
    executions.len()
}

/// Returns `true` if the parsed value contains everything that was written; it may have defaults in addition.
fn contains(read: &Value, written: &Value) {
    match (read, written) {
        (Value::Object(read), Value::Object(written)) => {
            written.iter().for_each(|(name, value)| contains(&read[name], value));
        }
        (Value::Array(read), Value::Array(written)) => {
            assert_eq!(read.len(), written.len());
            read.iter().zip(written).for_each(|(read, written)| contains(read, written));
        }
        (Value::Number(read), Value::Number(written)) => assert_eq!(read.as_f64(), written.as_f64()),
        _ => assert_eq!(read, written),
    }
}

async fn streamed(mut events: EventStream) -> Result<Answer, RunError> {
    loop {
        if let Event::Done(answer) = events.next().await.unwrap()? {
            return Ok(answer);
        }
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn functions_are_called_with_the_arguments_of_the_model() {
    let model = model();
    let model = Arc::new(model);
    let (mut calls, mut answers, mut limits) = (0, 0, 0);
    for seed in 0..12 {
        let seen = Seen::default();
        let agent =
            agent(Arc::clone(&model), seed).limits(|l| l.max_turns(3)).context(seen.clone()).build().unwrap();
        let outcome = match seed % 2 {
            0 => agent.ask("When is high tide?").await,
            _ => streamed(agent.ask("When is high tide?").stream()).await,
        };
        calls += check(&outcome, &seen);
        match outcome {
            Ok(answer) => {
                answers += 1;
                assert!(answer.turns() > 1 && answer.usage().output_tokens > 0);
            }
            Err(_) => limits += 1,
        }
    }
    assert!(calls > 20 && answers > 0 && limits > 0, "{calls} calls, {answers} answers, {limits} limits");
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Report {
    /// The harbour.
    #[schemars(length(max = 9))]
    port: String,
    #[schemars(range(min = 1, max = 12))]
    hour: u8,
    unit: Option<Unit>,
    #[schemars(length(max = 3))]
    places: Vec<Place>,
}

/// Checks the limits of the report's schema.
fn check_report(report: &Report) {
    jsonschema::validate(schema_for!(Report).as_value(), &json!(report)).unwrap();
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn an_answer_has_the_requested_type() {
    let model = model();
    let model = Arc::new(model);
    for seed in 0..8 {
        let agent = Agent::builder(Arc::clone(&model))
            .options(seeded(seed))
            .limits(|l| l.max_turns(1))
            .build()
            .unwrap();
        let report = agent.ask("When is high tide?").answer_as::<Report>().await.unwrap();
        check_report(&report);
    }
}

/// The server calls no tools if it is sent a response format, so the two are not sent together.
#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_typed_answer_is_given_by_a_tool_after_calls() {
    let model = model();
    let model = Arc::new(model);
    let (mut reports, mut calls) = (0, 0);
    for seed in 0..12 {
        let seen = Seen::default();
        let agent = agent(Arc::clone(&model), seed).context(seen.clone()).build().unwrap();
        match agent.ask("When is high tide?").answer_as::<Report>().await {
            Ok(report) => {
                check_report(&report);
                reports += 1;
            }
            // The model would only babble.
            Err(error) => assert!(
                matches!(error.kind(), RunErrorKind::Stopped(StopReason::WrongAnswer(_)))
                    || matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(_))),
                "{error:?}"
            ),
        }
        calls += seen.0.lock().unwrap().len();
        if reports > 0 && calls > 0 {
            break;
        }
    }
    assert!(reports > 0 && calls > 0, "{reports} reports, {calls} calls");
}
