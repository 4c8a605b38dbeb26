//! What holds for any text that a model or a stranger may write.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tool_core::{ToolCall, ToolContext, ToolDefinition, ToolExecution, ToolSet, tool, tools};

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

/// Gives back what it took.
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
    set.execute(call, &ToolContext::new()).now_or_never().expect("the tool does not wait")
}

fn told(execution: &ToolExecution) -> Result<String, String> {
    match execution.outcome() {
        Ok(output) => Ok(output.to_string()),
        Err(error) => {
            assert!(!error.is_panicked(), "{error}: {:?}", error.failure());
            assert!(error.to_string().len() < 10_000, "the refusal is too long");
            Err(error.to_string())
        }
    }
}

/// The reader of arguments: it never panics, it gives the same twice, and what it takes as it is it does not mend.
pub fn arguments(text: &str) {
    let set = tools![echo];
    let (execution, again) = (execute(&set, text), execute(&set, text));
    assert_eq!(told(&execution), told(&again));
    let strict = execute(&set.strict_arguments(), text);
    if strict.outcome().is_ok() {
        assert_eq!(told(&strict), told(&execution));
        assert!(execution.repairs().is_empty());
    }
}

/// The repair: what it makes of an argument is taken as it is, and gives the same.
pub fn repair(text: &str) {
    let set = tools![echo];
    for name in ["trip", "number", "list", "word", "flag"] {
        let execution = execute(&set, &format!("{{\"{name}\":{text}}}"));
        let [repair] = execution.repairs() else { continue };
        if execution.outcome().is_err() || repair.argument() != Some(name) {
            continue;
        }
        let mended = execute(&set.clone().strict_arguments(), &format!("{{\"{name}\":{}}}", repair.to()));
        assert_eq!(told(&mended), told(&execution), "{}", repair.to());
    }
}

/// The strict form: it never panics, and the strict form of what is strict is the same.
pub fn strict(text: &str) {
    let Ok(schema) = serde_json::from_str::<Value>(text) else { return };
    let definition = |schema: &Value| ToolDefinition::new("it", "").with_parameters(schema.clone());
    let Ok(strict) = definition(&schema).into_strict() else { return };
    let parameters = strict.parameters();
    assert_eq!(parameters["type"], "object", "{parameters}");
    assert_eq!(parameters["additionalProperties"], false, "{parameters}");
    let again = definition(parameters).into_strict().expect("what is strict has a strict form");
    assert_eq!(again.parameters(), parameters);
}
