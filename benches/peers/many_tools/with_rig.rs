//! The lines between `// repeat` and `// end` are written once for each number.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use rig::prelude::{ToolContext, ToolSet};
use rig::rig_tool;
use rig::tool::ToolExecutionError;

// repeat
/// Computes the number NUMBER of a text.
#[rig_tool(params(
    text = "the text",
    factor = "the factor, 1 if left out",
    numbers = "the numbers",
    is_exact = "whether the result is exact"
))]
fn tool_NUMBER(
    text: String,
    factor: Option<u32>,
    numbers: Vec<f64>,
    is_exact: bool,
) -> Result<f64, ToolExecutionError> {
    if text.is_empty() {
        return Err(ToolExecutionError::other("the text is empty"));
    }
    let sum = numbers.iter().sum::<f64>() * f64::from(factor.unwrap_or(1)) + f64::from(NUMBER % 7);
    Ok(if is_exact { sum } else { sum.round() })
}

// end
fn main() {
    let mut tools = ToolSet::default();
    // repeat
    tools.add_tool(ToolNUMBER);
    // end
    let name = std::env::args().nth(1).expect("the name of a tool");
    let tool = tools.get(&name).expect("the tool is known");
    let arguments = r#"{"text": "x", "numbers": [1.5, 3], "is_exact": true}"#.to_owned();
    let mut context = ToolContext::default();
    let Poll::Ready(result) =
        pin!(tool.execute(arguments, &mut context)).poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("no tool suspends");
    };
    println!("{} tools, {}", tools.tool_definitions().len(), result.output().render());
}
