//! The sources of the two crates, which declare the same tools in two ways.

use std::fmt::Write;

pub(crate) const WITH_TOOL_DEPENDENCIES: &str =
    "tool-core = { path = \"ROOT/tool-core\" }\nfutures-util = \"0.3\"\n";

pub(crate) const BY_HAND_DEPENDENCIES: &str = "futures-util = \"0.3\"\nschemars = { version = \"1\", features = [\"preserve_order\"] }\n\
     serde = { version = \"1\", features = [\"derive\"] }\nserde_json = \"1\"\n";

/// The body of each tool in both crates.
const BODY: &str = "\
    if text.is_empty() {
        return Err(String::from(\"the text is empty\"));
    }
    Ok(numbers.iter().sum::<f64>() * f64::from(factor.unwrap_or(1)) + NUMBER as f64)
";

pub(crate) fn with_tool(count: usize) -> String {
    let mut source = String::from(
        "use tool_core::toolset::registered;\nuse tool_core::{ToolCall, ToolContext, ToolSet, tool};\n",
    );
    for number in 0..count {
        let body = BODY.replace("NUMBER", &(number % 7).to_string());
        write!(
            source,
            "
#[tool(\"Computes the number {number} of a text\")]
async fn tool_{number}(
    #[param(\"the text\")] text: String,
    #[param(\"the factor, 1 if left out\")] factor: Option<u32>,
    #[param(\"the numbers\")] numbers: Vec<f64>,
) -> Result<f64, String> {{
{body}}}
"
        )
        .unwrap();
    }
    let last = count - 1;
    write!(
        source,
        "
fn main() {{
    let name = std::env::args().nth(1).unwrap_or_else(|| \"tool_{last}\".into());
    let names: Vec<_> = registered().iter().map(|tool| tool.definition().name().to_owned()).collect();
    let set = ToolSet::named(names.iter().map(String::as_str)).unwrap();
    let call = ToolCall::new(\"1\", name, \"{{\\\"text\\\": \\\"x\\\", \\\"numbers\\\": [1.5, 3]}}\");
    let output = futures_util::FutureExt::now_or_never(set.call(&call, &ToolContext::new())).unwrap();
    println!(\"{{}} tools, {{}}\", set.definitions().len(), output.unwrap());
}}
"
    )
    .unwrap();
    source
}

pub(crate) fn by_hand(count: usize) -> String {
    let mut source = String::from(
        "use std::future::Future;
use std::pin::Pin;

use schemars::{JsonSchema, Schema, schema_for};
use serde::Deserialize;

type Call<'a> = Pin<Box<dyn Future<Output = Result<String, Box<dyn std::error::Error + Send + Sync>>> + Send + 'a>>;
",
    );
    let (mut definitions, mut arms) = (String::new(), String::new());
    for number in 0..count {
        let body = BODY.replace("NUMBER", &(number % 7).to_string());
        write!(
            source,
            "
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Tool{number} {{
    /// the text
    text: String,
    /// the factor, 1 if left out
    factor: Option<u32>,
    /// the numbers
    numbers: Vec<f64>,
}}

async fn tool_{number}(text: String, factor: Option<u32>, numbers: Vec<f64>) -> Result<f64, String> {{
{body}}}
"
        )
        .unwrap();
        writeln!(
            definitions,
            "        (\"tool_{number}\", \"Computes the number {number} of a text\", schema_for!(Tool{number})),"
        )
        .unwrap();
        write!(
            arms,
            "
        \"tool_{number}\" => Box::pin(async move {{
            let arguments: Tool{number} = serde_json::from_str(arguments)?;
            let output = tool_{number}(arguments.text, arguments.factor, arguments.numbers).await?;
            Ok(serde_json::to_string(&output)?)
        }}),"
        )
        .unwrap();
    }
    let last = count - 1;
    write!(
        source,
        "
fn definitions() -> Vec<(&'static str, &'static str, Schema)> {{
    vec![
{definitions}    ]
}}

fn call<'a>(name: &str, arguments: &'a str) -> Call<'a> {{
    match name {{{arms}
        other => {{
            let error = format!(\"there is no tool {{other}}\");
            Box::pin(async move {{ Err(error.into()) }})
        }}
    }}
}}

fn main() {{
    let name = std::env::args().nth(1).unwrap_or_else(|| \"tool_{last}\".into());
    let definitions = definitions();
    assert!(definitions.iter().all(|(_, _, schema)| schema.get(\"properties\").is_some()));
    let arguments = \"{{\\\"text\\\": \\\"x\\\", \\\"numbers\\\": [1.5, 3]}}\";
    let output = futures_util::FutureExt::now_or_never(call(&name, arguments)).unwrap();
    println!(\"{{}} tools, {{}}\", definitions.len(), output.unwrap());
}}
"
    )
    .unwrap();
    source
}
