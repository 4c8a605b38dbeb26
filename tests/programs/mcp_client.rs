//! The client that the conformance suite starts for each scenario with the URL of its server. It connects, logs in if the scenario needs it,
//! and calls every tool with arguments that match its schema, or the arguments that the scenario needs. Questions are answered with their defaults.

use std::error::Error;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tool_core::agent::on_question;
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::tool::Question;
use tool_core::{Agent, ToolSet};
use tool_mcp::McpServer;
use tool_mcp::oauth::{InMemoryCredentials, Login, OAuth};

type BoxError = Box<dyn Error + Send + Sync>;

pub(crate) async fn run(url: &str) -> Result<(), BoxError> {
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let server = McpServer::http(url).trusted().question_timeout(Duration::from_secs(10));
    if !scenario.starts_with("auth/") {
        return call_tools(server, &context).await;
    }
    let (store, first) = (InMemoryCredentials::default(), issuer(url).await?);
    let with_issuer =
        |issuer: &str| server.clone().oauth(login(&scenario, &context, issuer).store(store.clone()));
    let called = call_tools(with_issuer(&first), &context).await;
    // The MCP server may have moved to another authorization server, which is not at the first one's place.
    match issuer(url).await? {
        moved if called.is_err() && moved != first => call_tools(with_issuer(&moved), &context).await,
        _ => called,
    }
}

async fn call_tools(server: McpServer, context: &Value) -> Result<(), BoxError> {
    let tools = server.connect().await?;
    let calls = calls(&tools.tools().await?, context);
    let names: Vec<_> = calls.iter().map(|(name, arguments)| (&**name, &**arguments)).collect();
    let agent = Agent::builder(ScriptedModel::new().calls_all(names).says("Done."))
        .tool_provider(tools)
        .decider(on_question(answer))
        .build()?;
    for execution in agent.ask("Call the tools").await?.tool_executions() {
        match execution.outcome() {
            Ok(output) => println!("{}: {output}", execution.call().name),
            Err(error) => println!("{} failed: {error}", execution.call().name),
        }
    }
    Ok(())
}

/// Returns the calls of the scenario, or one of each tool.
fn calls(tools: &ToolSet, context: &Value) -> Vec<(String, String)> {
    if let Some(calls) = context["toolCalls"].as_array() {
        let call = |call: &Value| Some((call["name"].as_str()?.to_owned(), call["arguments"].to_string()));
        return calls.iter().filter_map(call).collect();
    }
    let definitions = tools.definitions();
    // The schema that one tool has received is the argument of another.
    let schema = definitions.iter().find(|tool| tool.name() == "json_schema_2020_12_tool");
    let call = |tool: &tool_core::model::ToolDefinition| {
        let arguments = match (tool.name(), schema) {
            ("json_schema_echo", Some(schema)) => json!({ "schema": schema.parameters() }),
            _ => sample(tool.parameters()),
        };
        (tool.name().to_owned(), arguments.to_string())
    };
    definitions.iter().map(call).collect()
}

/// Returns a value that matches a schema.
fn sample(schema: &Value) -> Value {
    if let Some(default) = schema.get("default") {
        return default.clone();
    }
    let of_properties = || {
        let properties = schema["properties"].as_object().into_iter().flatten();
        properties.map(|(name, schema)| (name.clone(), sample(schema))).collect::<Map<_, _>>()
    };
    match schema["type"].as_str() {
        Some("number" | "integer") => json!(5),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("string") => json!("text"),
        _ => Value::Object(of_properties()),
    }
}

fn answer(question: &Question) -> Decision {
    Decision::answer(sample(question.schema()))
}

/// Returns the client that a scenario demands. Its user agrees to everything.
fn login(scenario: &str, context: &Value, issuer: &str) -> OAuth {
    let text = |name: &str| context[name].as_str().unwrap_or_default().to_owned();
    let (id, secret) = (text("client_id"), text("client_secret"));
    if scenario == "auth/client-credentials-basic" {
        return OAuth::client_credentials(issuer, id, secret);
    }
    let user = Login::loopback(|prompt| {
        let url = prompt.url.clone();
        tokio::spawn(async move {
            if let Err(error) = follow(&url).await {
                eprintln!("the user cannot log in: {error}");
                std::process::exit(1);
            }
        });
    });
    // All servers of a scenario are on this machine.
    let oauth = OAuth::new(user).local_issuer(issuer);
    match scenario {
        "auth/pre-registration" => oauth.confidential_client(text("issuer"), id, secret),
        "auth/basic-cimd" => oauth.client_metadata_url("https://conformance-test.local/client-metadata.json"),
        _ => oauth,
    }
}

/// Returns the authorization server of an MCP server.
async fn issuer(url: &str) -> Result<String, BoxError> {
    let challenge = request("POST", url).await?.header("www-authenticate").unwrap_or_default();
    let stated = challenge.split_once("resource_metadata=\"").and_then(|(_, rest)| rest.split_once('"'));
    let path = "/.well-known/oauth-protected-resource";
    let stated = stated.map(|(url, _)| url.to_owned());
    for metadata in
        stated.into_iter().chain([url.replace("/mcp", &format!("{path}/mcp")), url.replace("/mcp", path)])
    {
        let metadata: Value = serde_json::from_str(&get(&metadata).await?.body).unwrap_or_default();
        if let Some(issuer) = metadata["authorization_servers"][0].as_str() {
            return Ok(issuer.to_owned());
        }
    }
    Ok(url.replace("/mcp", ""))
}

/// Requests an authorization URL and the page to which it redirects, like a browser.
async fn follow(url: &str) -> Result<(), BoxError> {
    get(&get(url).await?.header("location").ok_or("there is no redirect")?).await?;
    Ok(())
}

struct Page {
    head: String,
    body: String,
}

impl Page {
    fn header(&self, name: &str) -> Option<String> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = headers.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
        Some(value.trim().to_owned())
    }
}

async fn get(url: &str) -> Result<Page, BoxError> {
    request("GET", url).await
}

/// Requests a page of this machine.
async fn request(method: &str, url: &str) -> Result<Page, BoxError> {
    let rest = url.strip_prefix("http://").ok_or("not a page of this machine")?;
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let mut connection = TcpStream::connect(host).await?;
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    connection.read_to_string(&mut response).await?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or("not a response")?;
    Ok(Page { head: head.to_owned(), body: body.to_owned() })
}
