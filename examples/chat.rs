//! Chats in the terminal: streams answers, shows the progress of tools, and remembers the conversation across restarts.
//! `/quit` exits; Ctrl-C cancels the current answer.
//!
//! The conversation is stored in the file given as argument, by default in the temporary directory. It uses the offline
//! model, or with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the model `OPENAI_MODEL` of that endpoint.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;
use std::{env, pin::pin, thread};

use indicatif::{MultiProgress, ProgressBar};
use tokio::signal::ctrl_c;
use tokio::sync::mpsc;
use tool_core::agent::EventStream;
use tool_core::memory::Window;
use tool_core::tool::{Progress, ToolProgress};
use tool_core::{Agent, CancellationToken, ChatMemory, ChatModel, Event, SqliteStore, tool, tools};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;

#[tool("Counts the primes below a number", blocking)]
fn count_primes(
    below: u64,
    #[inject] progress: &Progress,
    #[inject] cancellation: &CancellationToken,
) -> u64 {
    let is_prime =
        |number: &u64| (2..).take_while(|by| by * by <= *number).all(|by| !number.is_multiple_of(by));
    let report = |number: &u64| progress.report(ToolProgress::from("counting").completed(*number, below));
    let numbers = (2..below).take_while(|_| !cancellation.is_cancelled());
    numbers.inspect(report).filter(is_prime).count() as u64
}

#[tool("Returns the square root of a number")]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args_os().nth(1).map_or_else(|| env::temp_dir().join("chat.db"), PathBuf::from);
    let memory = ChatMemory::new(SqliteStore::open(&file).await?).with_window(Window::tokens(8_000));
    println!("{} messages stored in {}", memory.messages(&"chat".into()).await?.len(), file.display());
    let agent = Agent::builder(model()?).tools(tools![count_primes, square_root]).memory(memory).build()?;

    let mut lines = lines();
    loop {
        print!("\n> ");
        io::stdout().flush()?;
        let line = tokio::select! {
            line = lines.recv() => line,
            _ = ctrl_c() => None,
        };
        match line.as_deref().map(str::trim) {
            None | Some("/quit") => break,
            Some("") => {}
            Some(question) => {
                if !io::stdin().is_terminal() {
                    println!("{question}"); // echo what a terminal would show
                }
                let cancellation = CancellationToken::new();
                let ask = agent.ask(question).conversation("chat").cancellation_token(cancellation.clone());
                show(ask.stream(), &cancellation).await?;
            }
        }
    }
    println!();
    Ok(())
}

/// Prints the events of an answer as they arrive.
async fn show(mut events: EventStream, cancellation: &CancellationToken) -> io::Result<()> {
    let mut interrupted = pin!(ctrl_c());
    let (spinners, mut spinning) = (MultiProgress::new(), HashMap::new());
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = &mut interrupted, if !cancellation.is_cancelled() => {
                cancellation.cancel(); // the stream reports the outcome
                continue;
            }
        };
        match event {
            Some(Ok(Event::Text(text))) => {
                print!("{text}");
                io::stdout().flush()?;
            }
            Some(Ok(Event::TurnFinished { response, .. })) if !response.message.text.is_empty() => println!(),
            Some(Ok(Event::CallStarted(call))) => {
                let spinner = spinners.add(ProgressBar::new_spinner().with_message(call.name));
                spinner.enable_steady_tick(Duration::from_millis(100));
                spinning.insert(call.id, spinner);
            }
            Some(Ok(Event::CallProgress { id, name, progress, .. })) => {
                let (done, total) = (progress.done.unwrap_or(0), progress.total.unwrap_or(0));
                let spinner = spinning.get(&id);
                spinner.inspect(|it| it.set_message(format!("{name}: {} {done} of {total}", progress.text)));
            }
            Some(Ok(Event::CallFinished(execution))) => {
                let call = execution.call();
                spinning.remove(&call.id).inspect(ProgressBar::finish_and_clear);
                let outcome = execution.outcome().map_or_else(ToString::to_string, ToString::to_string);
                let line =
                    format!("[{} {} -> {outcome}, {:.1?}]", call.name, call.arguments, execution.duration());
                spinners.suspend(|| println!("{line}"));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => println!("\n[{error}]"),
            None => return Ok(()),
        }
    }
}

/// Reads the lines of standard input in a separate thread, which does not delay the exit of the program.
fn lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// Returns the model of the configured endpoint, or the offline model if none is configured.
fn model() -> Result<Box<dyn ChatModel>, Box<dyn Error>> {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    if !is_set("OPENAI_API_KEY") && !is_set("OPENAI_BASE_URL") {
        println!("No OPENAI_API_KEY: using the offline model");
        return Ok(Box::new(OfflineModel::new()));
    }
    let model = if is_set("OPENAI_MODEL") { env::var("OPENAI_MODEL")? } else { "gpt-4.1-mini".into() };
    Ok(Box::new(OpenAi::from_env()?.chat_model(model)))
}
