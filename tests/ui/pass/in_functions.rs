use tool_core::{ToolSet, tool, tools};

fn first() -> ToolSet {
    #[tool]
    fn sum(a: f64, b: f64) -> f64 {
        a + b
    }
    tools![sum]
}

fn second() -> ToolSet {
    #[tool(name = "sum_2")]
    fn sum(a: f64, b: f64) -> f64 {
        a + b
    }
    tools![sum]
}

pub(crate) fn main() {
    assert_eq!(first().union(second()).unwrap().len(), 2);
}
