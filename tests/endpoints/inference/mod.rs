//! The clients against llama.cpp's own server with a model that babbles. Its calls and answers are well-formed only because
//! the server's grammars constrain them, so an independent server has read every schema that is sent.
//!
//! `tests/endpoints/inference/run` installs the server, starts it, and runs these tests.

mod agents;
mod caching;
mod calling;
mod chatting;
mod claude;
mod failing;
mod responding;
mod server;

use std::env;
use std::time::Duration;

use tool_core::model::{ChatRequest, ChatResponse, Delta};
use tool_core::{ChatModel, Message, ModelOptions};
use tool_openai::{ChatCompletions, Endpoint, OpenAi, OpenAiBuilder};

/// More tokens than any answer here needs, so that an endless grammar fails a test instead of blocking it.
const MOST_TOKENS: u32 = 4000;

/// Returns an environment variable that `tests/endpoints/inference/run` sets.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set; `tests/endpoints/inference/run` sets it"))
}

fn base_url() -> String {
    variable("INFERENCE_BASE_URL")
}

fn builder() -> OpenAiBuilder {
    at(&base_url())
}

fn at(base_url: &str) -> OpenAiBuilder {
    OpenAi::builder().endpoint(Endpoint::llama_cpp()).base_url(base_url).read_timeout(Duration::from_secs(60))
}

fn model() -> ChatCompletions {
    builder().build().unwrap().chat_model("babbler")
}

/// Returns options with a seed, which makes replies reproducible. The server supports it in both APIs, although one has no
/// such option.
fn seeded(seed: i64) -> ModelOptions {
    ModelOptions::default().with_extra("seed", seed).with_max_output_tokens(MOST_TOKENS)
}

fn request(seed: i64) -> ChatRequest<'static> {
    ChatRequest::new([Message::user("When is high tide?")]).with_options(seeded(seed))
}

/// Requests the response complete and streamed, and checks that both are equal.
async fn ask_both_ways(model: &impl ChatModel, request: &ChatRequest<'_>) -> ChatResponse {
    let whole = model.chat(request).await.unwrap();
    let streamed = ask_streamed(model, request).await;
    let calls = |response: &ChatResponse| -> Vec<_> {
        let calls = response.message.tool_calls.iter();
        calls.map(|call| (call.name.clone(), call.arguments.clone())).collect()
    };
    assert_eq!(calls(&whole), calls(&streamed));
    assert_eq!(whole.finish_reason, streamed.finish_reason);
    // A call that is truncated before its name is a text only in a complete answer.
    if !whole.message.text.contains("<tool_call>") {
        assert_eq!(whole.message.text, streamed.message.text);
    }
    for response in [&whole, &streamed] {
        let usage = response.usage.unwrap();
        assert!(usage.input_tokens > 0 && usage.output_tokens > 0, "{usage:?}");
        assert_eq!(usage.total_tokens, usage.input_tokens + usage.output_tokens);
        assert!(response.id.is_some());
    }
    assert_eq!(whole.usage.unwrap().output_tokens, streamed.usage.unwrap().output_tokens);
    whole
}

/// Returns the response of a stream after checking that the deltas match it.
async fn ask_streamed(model: &impl ChatModel, request: &ChatRequest<'_>) -> ChatResponse {
    let (mut text, mut calls) = (String::new(), Vec::new());
    let mut deltas = model.stream(request);
    while let Some(delta) = deltas.next().await {
        match delta.unwrap() {
            Delta::Text(more) => text.push_str(&more),
            Delta::ToolCall { index, id, name } => {
                assert_eq!(index, calls.len());
                calls.push((id, name, String::new()));
            }
            Delta::Arguments { index, text } => calls[index].2.push_str(&text),
            Delta::Done(response) => {
                assert!(deltas.next().await.is_none(), "the stream continued after its end");
                assert_eq!(text, response.message.text);
                let expected = response.message.tool_calls.iter();
                let expected: Vec<_> = expected
                    .map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone()))
                    .collect();
                assert_eq!(calls, expected);
                return response;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the stream ended without a response");
}
