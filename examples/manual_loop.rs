//! The loop that an agent runs, by hand: first in fifteen lines, without limits, approval, memory and retries; then with a run that is driven step by
//! step, of which only the state remains between two steps, as JSON, so that each could be taken by another process.
//!
//! It uses the offline model, or with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the model `OPENAI_MODEL` of that endpoint.

use std::env;
use std::error::Error;

use tool_core::model::{ChatRequest, ModelError};
use tool_core::run::Step;
use tool_core::{Agent, ChatModel, Message, ToolContext, ToolSet, tool, tools};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

/// Returns the square root of a number.
#[tool]
fn square_root(x: f64) -> Result<f64, String> {
    if x < 0.0 { Err(format!("{x} is negative")) } else { Ok(x.sqrt()) }
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
    let model = model()?;
    println!("{}\n", ask(&*model, &tools![sum], "What is the sum of 2.5 and 40?").await?);

    let question = env::args().skip(1).collect::<Vec<_>>().join(" ");
    let question =
        if question.is_empty() { "What is the square root of the sum of 9 and 16?" } else { &question };
    let agent = Agent::builder(model)
        .instructions("Use the tools for arithmetic.")
        .tools(tools![sum, square_root])
        .build()?;

    println!("Question: {question}\n");
    let mut state = serde_json::to_string(agent.ask(question).start().run())?;
    let answer = loop {
        // `resume` adds what only the agent has, such as the tools.
        let mut run = agent.resume(serde_json::from_str(&state)?).start();
        match run.next().await? {
            Step::CallModel(request) => {
                println!("call the model with {} messages", request.messages().len());
                let response = agent.model().chat(&request).await?;
                for call in &response.message.tool_calls {
                    println!("  it calls {call}");
                }
                run.record_response(response).await?;
            }
            Step::CallTools(calls) => {
                for call in calls {
                    println!("execute {}", call.name);
                    let execution = run.execute(call).await?;
                    match execution.outcome() {
                        Ok(output) => println!("  it returned {output}"),
                        Err(error) => println!("  it failed: {error}"),
                    }
                    run.record_result(execution).await?;
                }
            }
            Step::Waiting(_) => return Err("none of these tools needs approval".into()),
            _ => break run.finish().await?,
        }
        state = serde_json::to_string(run.run())?;
        println!("  state: {} bytes of JSON", state.len());
    };
    println!("\nAnswer: {answer}");
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
