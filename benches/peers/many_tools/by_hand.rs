//! The lines between `// repeat` and `// end` are written once for each number.

use schemars::{JsonSchema, Schema, schema_for};
use serde::Deserialize;

// repeat
#[derive(Deserialize, JsonSchema)]
struct ToolNUMBER {
    /// the text
    text: String,
    /// the factor, 1 if left out
    factor: Option<u32>,
    /// the numbers
    numbers: Vec<f64>,
    /// whether the result is exact
    is_exact: bool,
}

fn tool_NUMBER(text: String, factor: Option<u32>, numbers: Vec<f64>, is_exact: bool) -> Result<f64, String> {
    if text.is_empty() {
        return Err("the text is empty".into());
    }
    let sum = numbers.iter().sum::<f64>() * f64::from(factor.unwrap_or(1)) + f64::from(NUMBER % 7);
    Ok(if is_exact { sum } else { sum.round() })
}

// end
fn definitions() -> Vec<(&'static str, &'static str, Schema)> {
    vec![
        // repeat
        ("tool_NUMBER", "Computes the number NUMBER of a text.", schema_for!(ToolNUMBER)),
        // end
    ]
}

fn call(name: &str, arguments: &str) -> Result<String, Box<dyn std::error::Error>> {
    let result = match name {
        // repeat
        "tool_NUMBER" => {
            let ToolNUMBER { text, factor, numbers, is_exact } = serde_json::from_str(arguments)?;
            tool_NUMBER(text, factor, numbers, is_exact)
        }
        // end
        other => return Err(format!("unknown tool {other}").into()),
    };
    Ok(serde_json::to_string(&result?)?)
}

fn main() {
    let definitions = definitions();
    assert!(definitions.iter().all(|(_, _, schema)| schema.get("properties").is_some()));
    let name = std::env::args().nth(1).expect("the name of a tool");
    let result = call(&name, r#"{"text": "x", "numbers": [1.5, 3], "is_exact": true}"#);
    println!("{} tools, {}", definitions.len(), result.unwrap());
}
