//! An own type is returned as it is.

use tool_core::FunctionTool;

#[derive(serde::Serialize)]
struct Weather {
    celsius: f64,
}

fn main() {
    FunctionTool::new("weather", "Tells the weather", || Weather { celsius: 22.5 });
}
