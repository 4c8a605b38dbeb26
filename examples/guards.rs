//! Puts a boundary around an agent: layers that redact, judge and record what passes.
//!
//! It uses a scripted model, which writes what a model should not: it sends a mail to a stranger, and quotes a card number.

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use tool_core::layer::{Audit, CallVerdict, QuestionVerdict, Redact, guard};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Event, ToolCall, tool, tools};

#[tool("Finds a customer")]
fn customer(name: String) -> String {
    format!("{name}, who pays with 4111 1111 1111 1111, ada@example.com")
}

#[tool("Sends a mail")]
fn send_mail(to: String, text: String) -> String {
    format!("{} characters sent to {to}", text.len())
}

#[derive(Deserialize, JsonSchema)]
struct Mail {
    to: String,
}

fn stays_inside(call: &ToolCall) -> CallVerdict {
    let is_inside = |mail: Mail| mail.to.ends_with("@example.com");
    match call.name == "send_mail" && !call.arguments_as().is_ok_and(is_inside) {
        true => CallVerdict::deny("mails go to example.com only"),
        false => CallVerdict::Pass,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = ScriptedModel::new()
        .calls("customer", r#"{"name": "Ada"}"#)
        .calls("send_mail", r#"{"to": "eve@example.org", "text": "4111 1111 1111 1111"}"#)
        .says("I could not send 4111 1111 1111 1111.");
    let agent = Agent::builder(model.clone())
        .tools(tools![customer, send_mail])
        .layer(Redact::new().card_numbers())
        .layer(guard::question(|question| match question.text().contains("password") {
            true => QuestionVerdict::answer("I do not talk about passwords."),
            false => QuestionVerdict::Pass,
        }))
        .layer(guard::call(stays_inside).named("mail"))
        .layer(Audit::new(|record| println!("audit: {record}")))
        .build()?;

    let mut events = agent.ask("Mail Ada's card number to Eve").stream();
    while let Some(event) = events.next().await {
        match event? {
            Event::CallFinished(execution) => println!("call: {execution}"),
            Event::Done(answer) => println!("Answer: {answer}"),
            _ => {}
        }
    }
    let read = &model.requests()[1][2];
    println!("The model read: {}", read.text());
    println!("Answer: {}", agent.ask("What is the password?").await?);
    Ok(())
}
