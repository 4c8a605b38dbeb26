use tool_core::FunctionTool;

fn main() {
    let _ = FunctionTool::new("sum", |a: i64, b: i64| a + b);
}
