//! The tools that the conformance suite and the checks of the Python client call. Serves over standard input and output, or
//! with `--http` over HTTP at a URL that it prints, until standard input ends.

use std::error::Error;
use std::io::Read;
use std::time::Duration;

use serde_json::json;
use tool_core::content::Image;
use tool_core::memory::InMemoryStore;
use tool_core::signatures::{Timestamp, ToolProgress};
use tool_core::tool::{Asker, DynamicTool, Progress};
use tool_core::{CancellationToken, ToolContext, ToolError, ToolOutput, ToolSet, schemars, tool, tools};
use tool_mcp::server::{Server, ToolsHandle};

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

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Confirmation {
    ok: bool,
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Contact {
    /// User's response
    username: String,
    /// User's email address
    email: String,
}

#[tool("Asks for a name and an address")]
async fn test_elicitation(message: String, #[inject] user: &Asker) -> Result<String, ToolError> {
    let Contact { username, email } = user.ask(message).await?;
    Ok(format!("{username} <{email}>"))
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Profile {
    name: String,
    age: i64,
    score: f64,
    status: Status,
    verified: bool,
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Status {
    Active,
    Inactive,
    Pending,
}

#[tool("Asks with defaults of all types")]
async fn test_elicitation_sep1034_defaults(#[inject] user: &Asker) -> Result<String, ToolError> {
    let default =
        Profile { name: "John Doe".into(), age: 30, score: 95.5, status: Status::Active, verified: true };
    let Profile { name, .. } = user.ask("Who are you?").default(default).await?;
    Ok(format!("Hello, {name}!"))
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Untitled {
    Option1,
    Option2,
    Option3,
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Titled {
    /// First choice
    Value1,
    /// Second choice
    Value2,
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Choices {
    untitled_single: Untitled,
    titled_single: Titled,
    untitled_multi: Vec<Untitled>,
    titled_multi: Vec<Titled>,
}

#[tool("Asks for choices of all kinds")]
async fn test_elicitation_sep1330_enums(#[inject] user: &Asker) -> Result<String, ToolError> {
    let Choices { titled_multi, .. } = user.ask("What do you choose?").await?;
    Ok(format!("{} choices", titled_multi.len()))
}

#[tool("Asks for a name")]
async fn test_input_required_result_elicitation(#[inject] user: &Asker) -> Result<String, ToolError> {
    let Name { name } = user.ask("What is your name?").await?;
    Ok(format!("Hello, {name}!"))
}

#[tool("Asks for a confirmation")]
async fn test_input_required_result_request_state(#[inject] user: &Asker) -> Result<&'static str, ToolError> {
    let _: Confirmation = user.ask("Please confirm").await?;
    // The answer came with a state that the server has sealed.
    Ok("state-ok")
}

#[tool("Asks for a confirmation, whose state is changed on the way")]
async fn test_input_required_result_tampered_state(
    #[inject] user: &Asker,
) -> Result<&'static str, ToolError> {
    let _: Confirmation = user.ask("Please confirm").await?;
    Ok("confirmed")
}

#[tool("Asks the user twice")]
async fn test_input_required_result_multi_round(#[inject] user: &Asker) -> Result<String, ToolError> {
    let Name { name } = user.ask("Step 1: What is your name?").await?;
    let Color { color } = user.ask("Step 2: What is your favorite color?").await?;
    Ok(format!("{name} likes {color}"))
}

#[tool("Asks the user")]
async fn test_streaming_elicitation(#[inject] user: &Asker) -> Result<String, ToolError> {
    let Name { name } = user.ask("What is your name?").await?;
    Ok(name)
}

#[tool("Is logged by the server")]
fn test_logging_tool() {}

#[tool("Replaces the tools by the same ones")]
fn test_trigger_tool_change(#[inject] handle: &ToolsHandle) -> Result<(), String> {
    handle.replace(tools().map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

#[tool("Greets")]
fn greet(name: String) -> String {
    format!("Hello, {name}!")
}

/// A long call.
#[tool("Computes for some seconds")]
async fn slow_compute(seconds: u64, label: Option<String>) -> String {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    format!("computed {}", label.unwrap_or_default())
}

/// A long call.
#[tool("Fails after a while")]
async fn failing_job() -> Result<(), &'static str> {
    tokio::time::sleep(Duration::from_millis(500)).await;
    Err("the job has failed")
}

/// A long call.
#[tool("Panics")]
fn protocol_error_job() {
    panic!("secret");
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Deletion {
    confirm: bool,
}

/// A long call.
#[tool("Deletes a file if the user confirms it")]
async fn confirm_delete(filename: String, #[inject] user: &Asker) -> Result<String, ToolError> {
    let Deletion { confirm } = user.ask(format!("Delete {filename}?")).await?;
    Ok(format!("{filename}: {confirm}"))
}

/// A long call.
#[tool("Asks for two names at once")]
async fn multi_input(#[inject] user: &Asker) -> Result<String, ToolError> {
    let (first, second) = (user.ask::<Name>("The first name?"), user.ask::<Name>("The second name?"));
    let (first, second) = futures_util::future::join(first.into_future(), second.into_future()).await;
    Ok(format!("{} and {}", first?.name, second?.name))
}

#[tool("Asks the user, and goes on a second later")]
async fn test_tool_with_task(#[inject] user: &Asker) -> Result<String, ToolError> {
    let Name { name } = user.ask("What is your name?").await?;
    match user.parked::<()>()? {
        Some(()) => Ok(format!("Hello, {name}!")),
        None => Err(user.park(&(), Timestamp::now().after(Duration::from_secs(1))).await.into()),
    }
}

fn tools() -> Result<ToolSet, Box<dyn Error>> {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    });
    let with_schema =
        DynamicTool::new("json_schema_2020_12_tool", schema, |_: serde_json::Value, _| async {
            Ok::<_, String>("fine")
        })?
        .description("Tool with JSON Schema 2020-12 features");
    let headers = json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
        "required": ["region"],
    });
    let with_headers =
        DynamicTool::new("header_tool", headers, |arguments: serde_json::Value, _| async move {
            Ok::<_, String>(arguments["region"].to_string())
        })?
        .description("Has an argument that is also a header");
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
        test_elicitation,
        test_elicitation_sep1034_defaults,
        test_elicitation_sep1330_enums,
        test_input_required_result_elicitation,
        test_input_required_result_request_state,
        test_input_required_result_tampered_state,
        test_input_required_result_multi_round,
        test_streaming_elicitation,
        test_logging_tool,
        test_trigger_tool_change,
        greet,
        slow_compute,
        failing_job,
        protocol_error_job,
        confirm_delete,
        multi_input,
        test_tool_with_task,
    ];
    Ok(tools.with(with_schema)?.with(with_headers)?)
}

pub(crate) async fn run(over_http: bool) -> Result<(), Box<dyn Error>> {
    let server = Server::new(tools()?);
    let context = ToolContext::new().with(server.tools_handle());
    let server = server
        .context(context)
        .name("tools")
        .instructions("Call them.")
        .output_schema::<Weather>("weather")
        .output_schema::<f64>("sum")
        .tasks(InMemoryStore::new());
    let server = ["slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input"]
        .into_iter()
        .fold(server, Server::long_call);
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
