//! A call that a person has to approve: one process asks the question, and another, a week later if need be, asks the
//! person and goes on. What was done before is not done again.
//!
//! ```text
//! cargo run --example approval -- ask "Pay 80 euros to Anna and tell me the balance of the savings account"
//! cargo run --example approval -- answer
//! ```
//!
//! Without arguments it does the one and then the other. Runs are kept in the file named in `APPROVAL_DB`, or in one in
//! the directory for temporary files. Without a key it asks the offline model, in this process; with `OPENAI_API_KEY` or
//! `OPENAI_BASE_URL` set, the real endpoint, with the model named in `OPENAI_MODEL`.

use std::env;
use std::error::Error;
use std::io;
use std::path::PathBuf;

use tool_core::testing::OfflineModel;
use tool_core::{Agent, Approval, Ask, ChatModel, RunErrorKind, SqliteStore, ToolCall, tool, tools};
use tool_openai::OpenAi;

type Failure = Box<dyn Error>;

#[tool("Pays money to somebody", needs_approval)]
fn pay(recipient: String, euros: u32) -> String {
    println!("  (pay runs)");
    format!("Paid {euros} euros to {recipient}.")
}

#[tool("Tells the balance of an account")]
fn balance(account: String) -> String {
    println!("  (balance runs)");
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
            ask("Pay 80 euros to Anna and tell me the balance of the savings account", file.clone()).await?;
            println!("\nHere the program could end: all that is left is in {}\n", file.display());
            answer(file).await
        }
        _ => Err("write `ask` and a question, `answer`, or nothing".into()),
    }
}

async fn ask(question: &str, file: PathBuf) -> Result<(), Failure> {
    println!("Question: {question}");
    let agent = agent(SqliteStore::open(file).await?)?;
    show(agent.ask(question)).await
}

async fn answer(file: PathBuf) -> Result<(), Failure> {
    let agent = agent(SqliteStore::open(file).await?)?;
    let runs = agent.stored_runs().await?;
    println!("{} run(s) to go on with", runs.len());
    for mut run in runs {
        let waiting: Vec<_> = run.awaiting_approval().cloned().collect();
        for call in waiting {
            run.resolve_approval(&call.id, decision(&call).await?)?;
        }
        show(agent.resume(run)).await?;
    }
    Ok(())
}

fn agent(store: SqliteStore) -> Result<Agent, Failure> {
    Ok(Agent::builder(model()?).tools(tools![pay, balance]).run_store(store).build()?)
}

/// Waits for the answer, or until only a person can say how it goes on.
async fn show(ask: Ask) -> Result<(), Failure> {
    match ask.await {
        Ok(answer) => {
            println!("Answer: {answer}\n");
            for execution in answer.tool_executions() {
                let when = match execution.started_at() {
                    Some(started_at) => format!("was called {:.1?} ago", started_at.elapsed()?),
                    None => "was not called".into(),
                };
                println!("{} {} {when}", execution.call().name, execution.call().arguments);
            }
        }
        Err(error) if matches!(error.kind(), RunErrorKind::ApprovalNeeded) => {
            error
                .awaiting_approval()
                .for_each(|call| println!("To be approved: {} {}", call.name, call.arguments));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// What the person says. While they think about it, no thread of the runtime is held up.
async fn decision(call: &ToolCall) -> io::Result<Approval> {
    println!("Shall {} be called with {}?", call.name, call.arguments);
    loop {
        println!("y: yes | n REASON: no | e JSON: yes, but with these arguments");
        let line = tokio::task::spawn_blocking(|| io::stdin().lines().next()).await?.transpose()?;
        let Some(line) = line else { return Ok(Approval::deny("nobody is there to say yes")) };
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match word {
            "y" => return Ok(Approval::Approve),
            "n" => return Ok(Approval::deny(rest)),
            "e" if serde_json::from_str::<serde_json::Map<_, _>>(rest).is_ok() => {
                return Ok(Approval::ApproveWith(rest.into()));
            }
            _ => println!("`{line}` is none of these"),
        }
    }
}

/// The real endpoint if there is one to ask, else the offline model.
fn model() -> Result<Box<dyn ChatModel>, Failure> {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    if !is_set("OPENAI_API_KEY") && !is_set("OPENAI_BASE_URL") {
        println!("No OPENAI_API_KEY: asking the offline model");
        return Ok(Box::new(OfflineModel::new()));
    }
    let model = if is_set("OPENAI_MODEL") { env::var("OPENAI_MODEL")? } else { "gpt-4.1-mini".into() };
    Ok(Box::new(OpenAi::from_env()?.chat_model(model)))
}
