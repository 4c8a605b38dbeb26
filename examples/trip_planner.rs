//! Plans a trip with an assistant: a trait whose methods a model answers, with the types of the answers.
//!
//! It uses the offline model, or with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the model `OPENAI_MODEL` of that endpoint.

use std::env;
use std::error::Error;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tool_core::agent::EventStream;
use tool_core::{Agent, ChatModel, Event, RunError, assistant, tool};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;

/// A trip that a traveller asks for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Trip {
    city: String,
    nights: u32,
    travellers: u32,
}

#[assistant("You plan trips. Use the tools for facts.", agent = TripAgent)]
trait TripPlanner {
    /// Reads a mail.
    #[ask("Read the traveller's mail.\n\n{mail}")]
    async fn read(&self, mail: &str) -> Result<Trip, RunError>;

    /// Returns the price of a trip in euros.
    #[ask("What is the price of {nights} nights in {city} for {travellers} travellers?", tools(price))]
    async fn price(&self, city: &str, nights: u32, travellers: u32) -> Result<f64, RunError>;

    /// Returns the sights of a city, word by word.
    #[ask("Which sights are in {city}?", tools(sights))]
    fn sights(&self, city: &str) -> EventStream;
}

/// Returns the price of a trip in euros.
#[tool]
fn price(city: String, nights: u32, travellers: u32) -> f64 {
    let night = if city == "Rome" { 80.0 } else { 60.0 };
    night * f64::from(nights) * f64::from(travellers)
}

/// Returns the sights of a city.
#[tool]
fn sights(city: String) -> String {
    match &*city {
        "Rome" => "the Colosseum and the Forum".to_owned(),
        other => format!("the old town of {other}"),
    }
}

/// Works with every planner, also with one that a test implements by hand.
async fn plan(planner: &impl TripPlanner, mail: &str) -> Result<(), Box<dyn Error>> {
    let trip = planner.read(mail).await?;
    println!("{} nights in {} for {}", trip.nights, trip.city, trip.travellers);
    let price = planner.price(&trip.city, trip.nights, trip.travellers).await?;
    println!("Price: {price} euros");
    let mut sights = planner.sights(&trip.city);
    while let Some(event) = sights.next().await {
        if let Event::Text(text) = event? {
            print!("{text}");
        }
    }
    println!();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mail = env::args().skip(1).collect::<Vec<_>>().join(" ");
    let mail = if mail.is_empty() { "3 nights in Rome for 2 travellers, please." } else { &mail };
    println!("Mail: {mail}\n");
    let agent = Agent::builder(model()?).limits(|l| l.max_turns(5)).build()?;
    plan(&TripAgent::from(agent), mail).await
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
