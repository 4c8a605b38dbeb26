//! The Responses API, which the server builds on Chat Completions. It reports truncated responses as complete.

use std::sync::Arc;

use tool_core::model::FinishReason;
use tool_openai::Responses;

use super::agents::{Seen, agent};
use super::{agents, ask_both_ways, builder, calling, request};

fn model() -> Responses {
    builder().build().unwrap().responses_model("babbler")
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_text_is_the_same_complete_and_streamed() {
    let model = model();
    for seed in 0..8 {
        let response = ask_both_ways(&model, &request(seed)).await;
        assert_eq!(response.finish_reason, FinishReason::Stop);
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_required_call_occurs() {
    let model = model();
    for seed in 0..8 {
        let request = calling::required(seed);
        let response = ask_both_ways(&model, &request).await;
        assert_eq!(response.finish_reason, FinishReason::ToolCalls);
        calling::check(&request, &response);
        assert!(!response.message.tool_calls.is_empty());
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn functions_are_called_with_the_arguments_of_the_model() {
    let model = model();
    let model = Arc::new(model);
    for seed in 0..6 {
        let seen = Seen::default();
        let agent =
            agent(Arc::clone(&model), seed).limits(|l| l.max_turns(3)).context(seen.clone()).build().unwrap();
        agents::check(&agent.ask("When is high tide?").await, &seen);
    }
}
