//! The Messages API, which llama.cpp's server also has: texts, calls and results.

use tool_anthropic::{Anthropic, Endpoint, Messages};
use tool_core::model::{ChatRequest, ChatResponse, FinishReason};
use tool_core::{ChatModel, Message};

use super::calling::{check, required};
use super::{ask_streamed, base_url, request, seeded};

fn model() -> Messages {
    let builder = Anthropic::builder().endpoint(Endpoint::llama_cpp()).base_url(base_url());
    builder.build().unwrap().chat_model("babbler")
}

/// Requests the response complete and streamed. The server ignores the seed here, so both differ.
async fn ask(request: &ChatRequest<'_>) -> [ChatResponse; 2] {
    [model().chat(request).await.unwrap(), ask_streamed(&model(), request).await]
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_text_is_complete_or_streamed() {
    for response in ask(&request(1)).await {
        assert_eq!(response.finish_reason, FinishReason::Stop);
        assert_eq!(response.model.as_deref(), Some("babbler"));
        assert!(response.usage.unwrap().output_tokens > 0);
    }
    let options = seeded(1).with_max_output_tokens(3);
    for response in ask(&request(1).with_options(options)).await {
        assert!(response.usage.unwrap().output_tokens <= 3);
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_call_is_answered() {
    let request = required(1);
    for response in ask(&request).await {
        assert_eq!(response.finish_reason, FinishReason::ToolCalls);
        check(&request, &response);
        let calls = response.message.tool_calls.clone();
        assert!(!calls.is_empty());
        let results = calls.iter().map(|call| Message::tool_text(call, "noon"));
        let messages = request.messages().iter().cloned().chain([Message::Assistant(response.message)]);
        let next = ChatRequest::new(messages.chain(results).collect::<Vec<_>>())
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
