//! The Responses API, which the server makes of Chat Completions. What it cuts at the length it tells as complete.

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
async fn a_text_is_the_same_whole_and_streamed() {
    let model = model();
    for seed in 0..8 {
        let response = ask_both_ways(&model, &request(seed)).await;
        assert_eq!(response.finish_reason, FinishReason::Stop);
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_call_is_made_where_one_is_required() {
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
async fn the_functions_are_called_with_what_the_model_wrote() {
    let model = model();
    let model = Arc::new(model);
    for seed in 0..6 {
        let seen = Seen::default();
        let agent = agent(Arc::clone(&model), seed).max_turns(3).context(seen.clone()).build().unwrap();
        agents::check(&agent.ask("When is high tide?").await, &seen);
    }
}
