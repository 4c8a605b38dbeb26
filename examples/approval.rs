//! Waits for a person to approve a call, across processes: one process asks the question; another, perhaps a week later,
//! asks for the approval and resumes the run. Calls that were executed before are not repeated.
//!
//! ```text
//! cargo run --features sqlite --example approval -- ask "Pay 80 euros to Anna and show me the balance of the savings account"
//! cargo run --features sqlite --example approval -- answer
//! ```
//!
//! Without arguments it does both. Runs are stored in the file `APPROVAL_DB`, by default in the temporary directory. It
//! uses the offline model, or with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the model `OPENAI_MODEL` of that endpoint.

use std::env;
use std::error::Error;
use std::io;
use std::path::PathBuf;

use tool_core::agent::Ask;
use tool_core::memory::{RunFilter, RunStatus};
use tool_core::run::{Decision, WaitReason};
use tool_core::{Agent, ChatModel, RunErrorKind, SqliteStore, ToolCall, tool, tools};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;

type Failure = Box<dyn Error>;

#[tool("Pays money to a person", needs_approval)]
fn pay(recipient: String, euros: u32) -> String {
    println!("  (running pay)");
    format!("Paid {euros} euros to {recipient}.")
}

#[tool("Returns the balance of an account")]
fn balance(account: String) -> String {
    println!("  (running balance)");
    format!("The balance of the account `{account}` is 1200 euros.")
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let file = env::var_os("APPROVAL_DB").map_or_else(|| env::temp_dir().join("approval.db"), PathBuf::from);
    let arguments: Vec<_> = env::args().skip(1).collect();
    let (command, question) =
        arguments.split_first().map_or(("", String::new()), |(first, rest)| (first, rest.join(" ")));
    match command {
        "ask" => ask(&question, file).await,
        "answer" => answer(file).await,
        "" => {
            ask("Pay 80 euros to Anna and show me the balance of the savings account", file.clone()).await?;
            println!("\nThe program could exit here: the run is stored in {}\n", file.display());
            answer(file).await
        }
        _ => Err("expected `ask QUESTION`, `answer` or no arguments".into()),
    }
}

async fn ask(question: &str, file: PathBuf) -> Result<(), Failure> {
    println!("Question: {question}");
    let agent = agent(SqliteStore::open(file).await?)?;
    show(agent.ask(question)).await
}

async fn answer(file: PathBuf) -> Result<(), Failure> {
    let agent = agent(SqliteStore::open(file).await?)?;
    let runs = agent.list_runs(&RunFilter::new()).await?;
    let (held, free): (Vec<_>, Vec<_>) =
        runs.into_iter().partition(|run| run.status == RunStatus::RunningElsewhere);
    println!("{} run(s) to resume", free.len());
    if !held.is_empty() {
        println!("{} run(s) held by other programs, or for up to 30 s by stopped ones", held.len());
    }
    for listed in free {
        let Some(stored) = agent.stored_run(listed.id).await? else { continue };
        println!("{:?}: {}", stored.status, stored.run.new_messages()[0].text());
        let mut run = stored.run;
        for wait in run.waits() {
            if let WaitReason::Approval(call) = &wait.reason {
                run.resolve(&wait.id, decision(call).await?)?;
            }
        }
        show(agent.resume(run)).await?;
    }
    Ok(())
}

fn agent(store: SqliteStore) -> Result<Agent, Failure> {
    Ok(Agent::builder(model()?).tools(tools![pay, balance]).run_store(store).build()?)
}

/// Prints the answer, or the calls that await approval.
async fn show(ask: Ask) -> Result<(), Failure> {
    match ask.await {
        Ok(answer) => {
            println!("Answer: {answer}\n");
            for execution in answer.tool_executions() {
                let when = match execution.started_at() {
                    Some(started_at) => format!("was executed {:.1?} ago", started_at.elapsed()?),
                    None => "was not executed".into(),
                };
                println!("{} {when}", execution.call());
            }
        }
        Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
            for wait in error.run().waits() {
                if let WaitReason::Approval(call) = wait.reason {
                    println!("Awaiting approval: {call:#}");
                }
            }
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Asks for a decision at the terminal, without blocking a thread of the runtime.
async fn decision(call: &ToolCall) -> io::Result<Decision> {
    println!("Execute {call:#}?");
    loop {
        println!("y: approve | n REASON: deny | e JSON: approve with these arguments");
        let line = tokio::task::spawn_blocking(|| io::stdin().lines().next()).await?.transpose()?;
        let Some(line) = line else { return Ok(Decision::deny("nobody is there to approve it")) };
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match word {
            "y" => return Ok(Decision::approve()),
            "n" => return Ok(Decision::deny(rest)),
            "e" if serde_json::from_str::<serde_json::Map<_, _>>(rest).is_ok() => {
                return Ok(Decision::approve_with(rest));
            }
            _ => println!("unknown answer `{line}`"),
        }
    }
}

/// Returns the model of the configured endpoint, or the offline model if none is configured.
fn model() -> Result<Box<dyn ChatModel>, Failure> {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    if !is_set("OPENAI_API_KEY") && !is_set("OPENAI_BASE_URL") {
        println!("No OPENAI_API_KEY: using the offline model");
        return Ok(Box::new(OfflineModel::new()));
    }
    let model = if is_set("OPENAI_MODEL") { env::var("OPENAI_MODEL")? } else { "gpt-4.1-mini".into() };
    Ok(Box::new(OpenAi::from_env()?.chat_model(model)))
}
