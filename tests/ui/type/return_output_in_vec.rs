use tool_core::{ToolOutput, tool};

#[tool]
fn pages() -> Vec<ToolOutput> {
    vec![ToolOutput::text("one")]
}

fn main() {}
