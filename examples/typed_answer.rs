//! Reads a guest's e-mail into a type: the answer must match the JSON Schema of the type, and an invalid answer goes back
//! to the model with its mistakes.
//!
//! It uses the offline model, or with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the model `OPENAI_MODEL` of that endpoint.

use std::env;
use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use tool_core::{Agent, ChatModel};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;

/// A booking that a guest requests.
#[derive(Debug, Deserialize, JsonSchema)]
struct Booking {
    guest: Guest,
    room: Room,
    /// the first night, as 2026-12-31
    arrival: String,
    #[schemars(range(min = 1, max = 30))]
    nights: u32,
    breakfast: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Guest {
    name: String,
    email: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Room {
    Single,
    Double,
    Suite,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mail = env::args().skip(1).collect::<Vec<_>>().join(" ");
    let mail = if mail.is_empty() {
        "A double room for Ada Lovelace (ada@example.com) from 2026-03-01, 3 nights, with breakfast."
    } else {
        &mail
    };
    println!("Mail: {mail}\n");

    let agent = Agent::builder(model()?).instructions("Read the guest's mail.").build()?;
    // `.answer_as::<Booking>().await?` returns only the booking.
    let (booking, answer) = agent.ask(mail).answer_as::<Booking>().with_answer().await?;

    let Booking { guest, room, arrival, nights, breakfast } = booking;
    println!("Booking for {} ({})", guest.name, guest.email.as_deref().unwrap_or("no e-mail address"));
    println!("  room: {room:?}\n  from {arrival} for {nights} nights");
    println!("  {} breakfast", if breakfast { "with" } else { "without" });
    println!("\nThe model wrote: {answer}");
    let tokens = answer.usage();
    println!(
        "{} input tokens, {} output tokens, {} turn(s)",
        tokens.input_tokens,
        tokens.output_tokens,
        answer.turns()
    );
    Ok(())
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
