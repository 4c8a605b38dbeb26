//! The closure returns a type of the user's that is not wrapped in `Json`.

use tool_core::FunctionTool;

#[derive(serde::Serialize)]
struct Weather {
    celsius: f64,
}

fn main() {
    FunctionTool::new("weather", || Weather { celsius: 22.5 });
}
