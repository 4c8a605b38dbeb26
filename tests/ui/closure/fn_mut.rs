use schemars::JsonSchema;
use serde::Deserialize;
use tool_core::FunctionTool;

#[derive(Deserialize, JsonSchema)]
struct Step {
    by: i64,
}

fn main() {
    let mut count = 0;
    let _ = FunctionTool::new("count", move |step: Step| {
        count += step.by;
        count
    });
}
