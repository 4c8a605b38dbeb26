//! Properties that hold for any text from a model or another untrusted party.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tool_core::model::ToolDefinition;
use tool_core::tool::{ToolErrorKind, ToolExecution};
use tool_core::{ToolCall, ToolContext, ToolSet, tool, tools};

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Trip {
    #[schemars(length(max = 20))]
    name: String,
    stops: Vec<Stop>,
    prices: Option<BTreeMap<String, f32>>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Stop {
    nights: u8,
    by: Option<By>,
    next: Option<Box<Stop>>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
enum By {
    Train,
    Boat { knots: f64 },
}

/// Returns its arguments.
#[tool]
fn echo(
    trip: Option<Trip>,
    #[param(range = -5..=5, default = 1)] number: i64,
    list: Option<Vec<i32>>,
    #[param(length = 1..=9, pattern = "^[a-z]+$")] word: Option<String>,
    flag: Option<bool>,
) -> Value {
    serde_json::json!([trip, number, list, word, flag])
}

fn execute(set: &ToolSet, text: &str) -> ToolExecution {
    let call = ToolCall::new("1", "echo", text);
    set.execute(call, &ToolContext::new()).now_or_never().expect("the tool does not await anything")
}

fn outcome(execution: &ToolExecution) -> Result<String, String> {
    match execution.outcome() {
        Ok(output) => Ok(output.to_string()),
        Err(error) => {
            assert_ne!(error.kind(), ToolErrorKind::Panicked, "{error}: {:?}", error.failure());
            assert!(error.to_string().len() < 10_000, "the error is too long");
            Err(error.to_string())
        }
    }
}

/// Arguments: decoding never panics, is deterministic, and does not repair what strict decoding accepts.
pub fn arguments(text: &str) {
    let set = tools![echo];
    let (execution, again) = (execute(&set, text), execute(&set, text));
    assert_eq!(outcome(&execution), outcome(&again));
    let strict = execute(&set.no_repair(), text);
    if strict.outcome().is_ok() {
        assert_eq!(outcome(&strict), outcome(&execution));
        assert!(execution.repairs().is_empty());
    }
}

/// Repair: strict decoding accepts a repaired argument and gives the same outcome.
pub fn repair(text: &str) {
    let set = tools![echo];
    for name in ["trip", "number", "list", "word", "flag"] {
        let execution = execute(&set, &format!("{{\"{name}\":{text}}}"));
        let [repair] = execution.repairs() else { continue };
        if execution.outcome().is_err() || repair.argument() != Some(name) {
            continue;
        }
        let repaired = execute(&set.clone().no_repair(), &format!("{{\"{name}\":{}}}", repair.repaired()));
        assert_eq!(outcome(&repaired), outcome(&execution), "{}", repair.repaired());
    }
}

/// Strict form: conversion never panics and is idempotent.
pub fn strict(text: &str) {
    let Ok(schema) = serde_json::from_str::<Value>(text) else { return };
    let definition = |schema: &Value| ToolDefinition::new("it").with_parameters(schema.clone());
    let Ok(strict) = definition(&schema).into_strict() else { return };
    let parameters = strict.parameters();
    assert_eq!(parameters["type"], "object", "{parameters}");
    assert_eq!(parameters["additionalProperties"], false, "{parameters}");
    let again = definition(parameters).into_strict().expect("a strict schema has a strict form");
    assert_eq!(again.parameters(), parameters);
}
