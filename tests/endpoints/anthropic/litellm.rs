//! LiteLLM's proxy, which translates the Messages API for the example `serve`: texts, streams, calls and results.

use tool_anthropic::{Anthropic, Endpoint, Messages};
use tool_core::model::{ChatRequest, FinishReason};
use tool_core::{Agent, ChatModel, Event, Message, tool, tools};

use crate::responses::endpoint::streamed;

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

fn model(name: &str) -> Messages {
    let url = std::env::var("ANTHROPIC_BASE_URL").unwrap();
    let key = std::env::var("ANTHROPIC_API_KEY").unwrap();
    let builder = Anthropic::builder().endpoint(Endpoint::compatible()).base_url(url).api_key(key);
    builder.build().unwrap().chat_model(name)
}

#[tokio::test]
#[ignore = "needs LiteLLM's proxy, which `tests/endpoints/anthropic/litellm/run` starts"]
async fn a_text_is_complete_or_streamed() {
    let request = ChatRequest::new([Message::user("What is 2.5 plus 40?")]);
    let complete = model("calculator").chat(&request).await.unwrap();
    let (_, streamed) = streamed(&model("calculator"), &request).await;
    for response in [complete, streamed.unwrap()] {
        assert!(response.message.text.contains("42.5"), "{response:?}");
        assert_eq!(response.finish_reason, FinishReason::Stop);
    }
}

#[tokio::test]
#[ignore = "needs LiteLLM's proxy, which `tests/endpoints/anthropic/litellm/run` starts"]
async fn a_call_is_executed() {
    for is_streamed in [false, true] {
        let agent = Agent::builder(model("offline")).tools(tools![sum]).build().unwrap();
        let ask = agent.ask("What is 2.5 plus 40?");
        let answer = if is_streamed {
            let mut events = ask.stream();
            loop {
                if let Event::Done(answer) = events.next().await.unwrap().unwrap() {
                    break answer;
                }
            }
        } else {
            ask.await.unwrap()
        };
        assert!(answer.text().contains("42.5"), "{answer:?}");
        assert_eq!(answer.tool_executions().len(), 1);
    }
}

/// Without a database, the proxy knows one key.
#[tokio::test]
#[ignore = "needs LiteLLM's proxy, which `tests/endpoints/anthropic/litellm/run` starts"]
async fn an_error_is_read() {
    let url = std::env::var("ANTHROPIC_BASE_URL").unwrap();
    let builder =
        Anthropic::builder().endpoint(Endpoint::compatible()).base_url(&url).api_key("sk-another-key");
    let model = builder.build().unwrap().chat_model("offline");
    let error = model.chat(&ChatRequest::new([Message::user("Hello")])).await.unwrap_err();
    let expected =
        format!("POST {url}/v1/messages failed with status 400, no_db_connection: No connected db.");
    assert_eq!(error.to_string(), expected);
}
