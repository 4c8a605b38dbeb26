//! A chat in the terminal: answers as they are written, tools at work, and a conversation that is remembered when the
//! program is started again. `/quit` ends it; Ctrl-C ends the answer under way.
//!
//! It is kept in the file that is given, or in one in the directory for temporary files. Without a key it asks the
//! offline model, in this process; with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the real endpoint, with the model
//! named in `OPENAI_MODEL`.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;
use std::{env, pin::pin, thread};

use indicatif::{MultiProgress, ProgressBar};
use tokio::signal::ctrl_c;
use tokio::sync::mpsc;
use tool_core::testing::OfflineModel;
use tool_core::{
    Agent, CancellationToken, ChatMemory, ChatModel, Event, EventStream, Progress, SqliteStore, ToolProgress,
    Window, tool, tools,
};
use tool_openai::OpenAi;

#[tool("Counts the primes below a number", blocking)]
fn count_primes(
    below: u64,
    #[inject] progress: &Progress,
    #[inject] cancellation: &CancellationToken,
) -> u64 {
    let is_prime =
        |number: &u64| (2..).take_while(|by| by * by <= *number).all(|by| !number.is_multiple_of(by));
    let report = |number: &u64| progress.report(ToolProgress::from("counting").of(*number, below));
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
    println!(
        "{} messages are remembered in {}",
        memory.messages(&"chat".into()).await?.len(),
        file.display()
    );
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
                    println!("{question}"); // as if it had been typed
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

/// Shows what happens on the way to an answer.
async fn show(mut events: EventStream, cancellation: &CancellationToken) -> io::Result<()> {
    let mut interrupted = pin!(ctrl_c());
    let (spinners, mut under_way) = (MultiProgress::new(), HashMap::new());
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = &mut interrupted, if !cancellation.is_cancelled() => {
                cancellation.cancel(); // the stream tells what became of it
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
                under_way.insert(call.id, spinner);
            }
            Some(Ok(Event::CallProgress { id, name, progress, .. })) => {
                let (done, total) = (progress.done.unwrap_or(0), progress.total.unwrap_or(0));
                let spinner = under_way.get(&id);
                spinner.inspect(|it| it.set_message(format!("{name}: {} {done} of {total}", progress.text)));
            }
            Some(Ok(Event::CallFinished(execution))) => {
                let call = execution.call();
                under_way.remove(&call.id).inspect(ProgressBar::finish_and_clear);
                let outcome = execution.outcome().map_or_else(ToString::to_string, ToString::to_string);
                let told =
                    format!("[{} {} -> {outcome}, {:.1?}]", call.name, call.arguments, execution.duration());
                spinners.suspend(|| println!("{told}"));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => println!("\n[{error}]"),
            None => return Ok(()),
        }
    }
}

/// The lines of the standard input. They are read by a thread of their own, which keeps nobody waiting at the end.
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

/// The real endpoint if there is one to ask, else the offline model.
fn model() -> Result<Box<dyn ChatModel>, Box<dyn Error>> {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    if !is_set("OPENAI_API_KEY") && !is_set("OPENAI_BASE_URL") {
        println!("No OPENAI_API_KEY: asking the offline model");
        return Ok(Box::new(OfflineModel::new()));
    }
    let model = if is_set("OPENAI_MODEL") { env::var("OPENAI_MODEL")? } else { "gpt-4.1-mini".into() };
    Ok(Box::new(OpenAi::from_env()?.chat_model(model)))
}
