//! An agent that uses the tools of an MCP server, which it starts itself: the example `mcp_server`, or the one that is named
//! behind `--`. Calls that may destroy something are asked about first.
//!
//! ```text
//! cargo run --example mcp_client -- "What is the square root of the sum of 9 and 16?"
//! cargo run --example mcp_client -- "List the directory /tmp" -- npx -y @modelcontextprotocol/server-filesystem /tmp
//! ```
//!
//! It asks the offline model, in this process: no key is needed.

use std::env;
use std::error::Error;
use std::io;
use std::path::PathBuf;

use tokio::process::Command;
use tool_core::testing::OfflineModel;
use tool_core::{Agent, Approval, Approver, ApproverFuture, ToolCall};
use tool_mcp::McpServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let mut parts = arguments.split(|argument| argument == "--");
    let question = parts.next().unwrap_or_default().join(" ");
    let server = match parts.next() {
        Some([program, rest @ ..]) => McpServer::stdio(program).args(rest),
        _ => McpServer::stdio(example_server().await?),
    };
    let tools = server.connect().await?;
    for tool in tools.listed_tools().await? {
        let asked = if tool.is_destructive() { ", and is asked about" } else { "" };
        println!(
            "{} has `{}`: {}{asked}",
            tools.server_name(),
            tool.name(),
            tool.description().unwrap_or_default()
        );
    }
    let question = if question.is_empty() { "What is the square root of 475695037565?" } else { &question };
    println!("Question: {question}");
    let agent = Agent::builder(OfflineModel::new()).tool_provider(tools).approver(Person).build()?;
    let answer = agent.ask(question).await?;
    for execution in answer.tool_executions() {
        println!("{} {}", execution.call().name, execution.call().arguments);
    }
    println!("Answer: {answer}");
    Ok(())
}

/// The program of the example `mcp_server`, which stands beside this one; it is built if it is not there.
async fn example_server() -> io::Result<PathBuf> {
    let program = env::current_exe()?.with_file_name(format!("mcp_server{}", env::consts::EXE_SUFFIX));
    if !program.exists() {
        println!("Building the example mcp_server");
        let arguments = ["build", "--quiet", "--package", "examples", "--example", "mcp_server"];
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        if !Command::new(cargo).args(arguments).status().await?.success() {
            return Err(io::Error::other("the example mcp_server cannot be built"));
        }
    }
    Ok(program)
}

/// Asks at the terminal.
struct Person;

impl Approver for Person {
    fn approve<'a>(&'a self, call: &'a ToolCall) -> ApproverFuture<'a> {
        println!("Shall {} be called with {}? (y or n)", call.name, call.arguments);
        Box::pin(async {
            // While they think about it, no thread of the runtime is held up.
            match tokio::task::spawn_blocking(|| io::stdin().lines().next()).await {
                Ok(Some(Ok(line))) if line.trim() == "y" => Approval::Approve,
                _ => Approval::deny("the user did not say yes"),
            }
        })
    }
}
