//! A tool that asks a person in the middle of its call. Stop the program while it asks, by Ctrl-C or `kill -9`, and start it
//! again: the run is stored, and it asks again where it was. It does so at once if the program has waited by itself (Ctrl-D at the
//! question), and otherwise after 30 seconds, when the lease of the stopped program has expired.
//!
//! ```text
//! cargo run --features sqlite --example ask -- "Book a seat on the flight OS87"
//! cargo run --features sqlite --example ask
//! ```
//!
//! Runs are stored in the file `ASK_DB`, by default in the temporary directory. The model is offline.

use std::env;
use std::error::Error;
use std::io;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tool_core::agent::{Decider, DeciderFuture};
use tool_core::memory::{RunFilter, RunStatus};
use tool_core::run::{Decision, Wait};
use tool_core::tool::{Asker, IdempotencyKey, Question};
use tool_core::{Agent, RunError, RunErrorKind, SqliteStore, ToolError, tool, tools};
use tool_offline::OfflineModel;

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
struct Seat {
    row: u8,
    letter: char,
}

#[tool("Books a seat on a flight", at_most_once)]
async fn book(
    flight: String,
    #[inject] user: &Asker,
    #[inject] key: &IdempotencyKey,
) -> Result<String, ToolError> {
    println!("  (looking for free seats)"); // again after a restart, because it stands before the question
    let free = [Seat { row: 3, letter: 'A' }, Seat { row: 12, letter: 'C' }];
    let free = free.map(|seat| (seat, format!("row {}, seat {}", seat.row, seat.letter)));
    let seat: Seat = user.ask(format!("Which seat on {flight}?")).choices_with_labels(free).await?;
    println!("  (reserving under the key {})", key.step("reserve"));
    Ok(format!("Booked seat {}{} on {flight}.", seat.row, seat.letter))
}

/// Asks in the terminal, without blocking a thread of the runtime. At the end of the input, the run waits.
struct Terminal;

impl Decider for Terminal {
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
        Box::pin(async move {
            let Some(question) = wait.question() else { return Decision::defer() };
            println!("{}", question.text());
            for (number, (label, _)) in question.labeled_choices().enumerate() {
                println!("  {}: {label}", number + 1);
            }
            loop {
                let line = tokio::task::spawn_blocking(|| io::stdin().lines().next()).await;
                let Ok(Some(Ok(line))) = line else { return Decision::defer() };
                let number = line.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                match number.and_then(|number| question.choices().get(number)) {
                    Some(choice) => return Decision::answer(choice.clone()),
                    None => println!("write the number of a seat"),
                }
            }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = env::var_os("ASK_DB").map_or_else(|| env::temp_dir().join("ask.db"), PathBuf::from);
    let agent = Agent::builder(OfflineModel::new())
        .tools(tools![book])
        .run_store(SqliteStore::open(file).await?)
        .decider(Terminal)
        .build()?;
    for listed in agent.list_runs(&RunFilter::new()).await? {
        let Some(stored) = agent.stored_run(listed.id).await? else { continue };
        if stored.status == RunStatus::RunningElsewhere {
            println!(
                "A run is held by another program, or by one that was stopped; try again in up to 30 s."
            );
            continue;
        }
        println!("Continuing: {}", stored.run.new_messages()[0].text());
        show(agent.resume(stored.run).await)?;
    }
    let question = env::args().skip(1).collect::<Vec<_>>().join(" ");
    if !question.is_empty() {
        show(agent.ask(question).await)?;
    }
    Ok(())
}

fn show(outcome: Result<tool_core::Answer, RunError>) -> Result<(), RunError> {
    match outcome {
        Ok(answer) => println!("Answer: {answer}"),
        Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
            for wait in error.run().waits() {
                println!("Waiting for an answer: {}", wait.question().map_or("", Question::text));
            }
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
