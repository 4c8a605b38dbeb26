//! The Messages API, which llama.cpp's server also has: texts, calls and results.

use tool_anthropic::{Anthropic, Endpoint, Messages};
use tool_core::model::{ChatRequest, FinishReason};
use tool_core::{ChatModel, Message};

use super::calling::{check, required};
use super::{ask_both_ways, base_url, request};

fn model() -> Messages {
    let builder = Anthropic::builder().endpoint(Endpoint::llama_cpp()).base_url(base_url());
    builder.build().unwrap().chat_model("babbler")
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_text_is_the_same_complete_and_streamed() {
    for seed in 0..4 {
        let response = ask_both_ways(&model(), &request(seed)).await;
        assert_eq!(response.finish_reason, FinishReason::Stop);
        assert_eq!(response.model.as_deref(), Some("babbler"));
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_call_is_answered() {
    for seed in 0..4 {
        let request = required(seed);
        let response = ask_both_ways(&model(), &request).await;
        assert_eq!(response.finish_reason, FinishReason::ToolCalls);
        check(&request, &response);
        let calls = response.message.tool_calls.clone();
        let results = calls.iter().map(|call| Message::tool_text(call, "noon"));
        let messages =
            request.messages().iter().cloned().chain([Message::Assistant(response.message)]).chain(results);
        let next = ChatRequest::new(messages.collect::<Vec<_>>())
            .with_tools(request.tools().clone())
            .with_options(request.options().clone());
        model().chat(&next).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn tokens_are_counted() {
    let count = model().count_tokens(&request(1)).await.unwrap();
    let usage = model().chat(&request(1)).await.unwrap().usage.unwrap();
    assert_eq!(count, Some(usage.input_tokens));
}
