//! Starts an MCP server and lets an agent use its tools: the example `mcp_server`, which is trusted, or the command after
//! `--`, whose calls need approval.
//!
//! ```text
//! cargo run --features mcp --example mcp_client -- "What is the square root of the sum of 9 and 16?"
//! cargo run --features mcp --example mcp_client -- "List the directory /tmp" -- npx -y @modelcontextprotocol/server-filesystem /tmp
//! ```
//!
//! It uses the offline model and needs no key.

use std::env;
use std::error::Error;
use std::io;
use std::path::PathBuf;

use tokio::process::Command;
use tool_core::Agent;
use tool_core::agent::{Decider, DeciderFuture};
use tool_core::run::{Decision, Wait, WaitReason};
use tool_mcp::McpServer;
use tool_offline::OfflineModel;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let mut parts = arguments.split(|argument| argument == "--");
    let question = parts.next().unwrap_or_default().join(" ");
    let server = match parts.next() {
        Some([program, rest @ ..]) => McpServer::stdio(program).args(rest),
        _ => McpServer::stdio(example_server().await?).trusted(),
    };
    let tools = server.connect().await?;
    for tool in tools.listed_tools().await? {
        let note = if tool.needs_approval() { " (needs approval)" } else { "" };
        println!(
            "{} offers `{}`: {}{note}",
            tools.server_name(),
            tool.name(),
            tool.description().unwrap_or_default()
        );
    }
    let question = if question.is_empty() { "What is the square root of 475695037565?" } else { &question };
    println!("Question: {question}");
    let agent = Agent::builder(OfflineModel::new()).tool_provider(tools).decider(Terminal).build()?;
    let answer = agent.ask(question).await?;
    for execution in answer.tool_executions() {
        println!("{}", execution.call());
    }
    println!("Answer: {answer}");
    Ok(())
}

/// Returns the executable of the example `mcp_server`, next to this one; builds it if it is missing.
async fn example_server() -> io::Result<PathBuf> {
    let program = env::current_exe()?.with_file_name(format!("mcp_server{}", env::consts::EXE_SUFFIX));
    if !program.exists() {
        println!("Building the example mcp_server");
        let arguments =
            ["build", "--quiet", "--package", "examples", "--features", "mcp", "--example", "mcp_server"];
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        if !Command::new(cargo).args(arguments).status().await?.success() {
            return Err(io::Error::other("the example `mcp_server` cannot be built"));
        }
    }
    Ok(program)
}

/// Asks for approval at the terminal.
struct Terminal;

impl Decider for Terminal {
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
        Box::pin(async {
            let WaitReason::Approval(call) = &wait.reason else { return Decision::defer() };
            println!("Execute {call:#}? (y or n)");
            // Does not block a thread of the runtime.
            match tokio::task::spawn_blocking(|| io::stdin().lines().next()).await {
                Ok(Some(Ok(line))) if line.trim() == "y" => Decision::approve(),
                _ => Decision::deny("the user did not approve it"),
            }
        })
    }
}
