//! The tools that the conformance suite and the checks of the Python client call. Serves over standard input and output, or
//! with `--http` over HTTP at a URL that it prints, until standard input ends.

use std::error::Error;
use std::io::Read;
use std::time::Duration;

use serde_json::json;
use tool_core::content::Image;
use tool_core::tool::{Asker, DynamicTool, Progress, ToolProgress};
use tool_core::{CancellationToken, ToolError, ToolOutput, ToolSet, schemars, tool, tools};
use tool_mcp::server::Server;

/// A red dot.
const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 2, 0, 0, 0, 0x90, 0x77, 0x53, 0xde, 0, 0, 0, 0x0c, b'I', b'D', b'A', b'T', 8, 0xd7, 0x63, 0xf8,
    0xcf, 0xc0, 0, 0, 3, 1, 1, 0, 0x18, 0xdd, 0x8d, 0xb0, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42,
    0x60, 0x82,
];

#[tool("Returns text")]
fn test_simple_text() -> &'static str {
    "This is a simple text response for testing."
}

#[tool("Returns an image")]
fn test_image_content() -> Image {
    Image::from_bytes("image/png", PNG)
}

#[tool("Returns text and an image")]
fn test_multiple_content_types() -> ToolOutput {
    ToolOutput::text("Multiple content types test:").with_part(Image::from_bytes("image/png", PNG))
}

#[tool("Fails")]
fn test_error_handling() -> Result<(), &'static str> {
    Err("This tool intentionally returns an error for testing")
}

#[tool("Reports its progress")]
async fn test_tool_with_progress(#[inject] progress: &Progress) -> &'static str {
    for done in [0, 50, 100] {
        progress.report(ToolProgress::from("working").completed(done, 100));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    "done"
}

#[tool("Is logged by the server")]
async fn test_tool_with_logging() -> &'static str {
    "done"
}

#[tool("Sums two numbers", pure)]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Weather {
    city: String,
    celsius: f64,
}

#[tool("Returns the weather")]
fn weather(city: String) -> Result<Weather, String> {
    if city == "Atlantis" {
        Err("there is no city `Atlantis`".into())
    } else {
        Ok(Weather { city, celsius: 22.5 })
    }
}

#[tool("Panics")]
fn panics() {
    panic!("secret");
}

/// Waits until it is cancelled, then writes a file.
#[tool]
async fn wait(file: String, #[inject] cancellation: &CancellationToken) {
    let cancelled = cancellation.clone().cancelled_owned();
    tokio::spawn(async move {
        cancelled.await;
        // If this fails, the check that waits for the file fails.
        let _ = std::fs::write(file, "cancelled");
    });
    std::future::pending::<()>().await;
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Color {
    color: String,
}

/// Named as the conformance suite calls it.
#[tool("Asks the user twice")]
async fn test_input_required_result_multi_round(#[inject] user: &Asker) -> Result<String, ToolError> {
    let Name { name } = user.ask("Step 1: What is your name?").await?;
    let Color { color } = user.ask("Step 2: What is your favorite color?").await?;
    Ok(format!("{name} likes {color}"))
}

fn tools() -> Result<ToolSet, Box<dyn Error>> {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" } },
        "additionalProperties": false,
    });
    let with_schema =
        DynamicTool::new("json_schema_2020_12_tool", schema, |_: serde_json::Value, _| async {
            Ok::<_, String>("fine")
        })?
        .description("Tool with JSON Schema 2020-12 features");
    let tools = tools![
        test_simple_text,
        test_image_content,
        test_multiple_content_types,
        test_error_handling,
        test_tool_with_progress,
        test_tool_with_logging,
        sum,
        weather,
        panics,
        wait,
        test_input_required_result_multi_round,
    ];
    Ok(tools.with(with_schema)?)
}

pub(crate) async fn run(over_http: bool) -> Result<(), Box<dyn Error>> {
    let server = Server::new(tools()?)
        .name("tools")
        .instructions("Call them.")
        .output_schema::<Weather>("weather")
        .output_schema::<f64>("sum");
    if !over_http {
        return Ok(server.page_size(4).serve_stdio().await?);
    }
    let server = server.spawn("127.0.0.1:0").await?;
    println!("{}", server.url());
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    end.await??;
    server.stop_within(Duration::from_secs(5)).await?;
    Ok(())
}
