use tool_core::ToolOutput;

struct Weather {
    celsius: f64,
}

fn main() {
    ToolOutput::from(Weather { celsius: 21.5 });
}
