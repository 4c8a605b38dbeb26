//! The loop that an agent runs, written by hand in fifteen lines: no limits, no approval, no memory, no retries.
//!
//! It uses the offline model, or with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the model `OPENAI_MODEL` of that endpoint.

use std::env;
use std::error::Error;

use tool_core::model::{ChatRequest, ModelError};
use tool_core::{ChatModel, Message, ToolContext, ToolSet, tool, tools};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

async fn ask(model: &dyn ChatModel, tools: &ToolSet, question: &str) -> Result<String, ModelError> {
    let mut messages = vec![Message::user(question)];
    loop {
        let request = ChatRequest::borrowing(&messages).with_tools(tools);
        let reply = model.chat(&request).await?.message;
        messages.push(Message::from(reply.clone()));
        if reply.tool_calls.is_empty() {
            return Ok(reply.text);
        }
        for call in reply.tool_calls {
            let execution = tools.execute(call, &ToolContext::new()).await;
            println!("{execution}");
            messages.push(Message::from(&execution));
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    let model: Box<dyn ChatModel> = match is_set("OPENAI_API_KEY") || is_set("OPENAI_BASE_URL") {
        true => {
            let name = env::var("OPENAI_MODEL").unwrap_or_else(|_| "gpt-4.1-mini".into());
            Box::new(OpenAi::from_env()?.chat_model(name))
        }
        false => Box::new(OfflineModel::new()),
    };
    println!("{}", ask(&*model, &tools![sum], "What is the sum of 2.5 and 40?").await?);
    Ok(())
}
