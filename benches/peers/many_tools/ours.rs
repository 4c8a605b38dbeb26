//! The lines between `// repeat` and `// end` are written once for each number.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tool_core::{ToolCall, ToolContext, tool, tools};

// repeat
/// Computes the number NUMBER of a text.
#[tool]
fn tool_NUMBER(
    #[param("the text")] text: String,
    #[param("the factor, 1 if left out")] factor: Option<u32>,
    #[param("the numbers")] numbers: Vec<f64>,
    #[param("whether the result is exact")] is_exact: bool,
) -> Result<f64, String> {
    if text.is_empty() {
        return Err("the text is empty".into());
    }
    let sum = numbers.iter().sum::<f64>() * f64::from(factor.unwrap_or(1)) + f64::from(NUMBER % 7);
    Ok(if is_exact { sum } else { sum.round() })
}

// end
fn main() {
    let tools = tools![
        // repeat
        tool_NUMBER,
        // end
    ];
    let name = std::env::args().nth(1).expect("the name of a tool");
    let call = ToolCall::new("1", name, r#"{"text": "x", "numbers": [1.5, 3], "is_exact": true}"#);
    let context = ToolContext::new();
    let Poll::Ready(result) = pin!(tools.call(&call, &context)).poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("no tool suspends");
    };
    println!("{} tools, {}", tools.definitions().len(), result.unwrap());
}
