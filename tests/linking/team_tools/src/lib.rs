//! Tools of a team. Nothing here is public: a program knows their names.

use tool_core::tool;

#[tool("Returns the length of a text")]
fn length(text: String) -> usize {
    text.len()
}

mod inner {
    #[tool_core::tool("Sums two numbers")]
    fn sum(a: f64, b: f64) -> f64 {
        a + b
    }
}
