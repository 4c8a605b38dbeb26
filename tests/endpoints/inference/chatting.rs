//! Texts: complete, streamed, truncated, and constrained by a format.

use serde_json::{Value, json};
use tool_core::ModelOptions;
use tool_core::model::FinishReason;
use tool_core::provider::ResponseFormat;

use super::{MOST_TOKENS, ask_both_ways, model, request, seeded};

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_text_is_the_same_complete_and_streamed() {
    let model = model();
    let mut text = String::new();
    for seed in 0..12 {
        let response = ask_both_ways(&model, &request(seed)).await;
        assert_eq!(response.finish_reason, FinishReason::Stop);
        assert_eq!(response.model.as_deref(), Some("babbler"));
        text.push_str(&response.message.text);
    }
    assert!(text.contains('é'), "a character of two tokens is not split: {text}");
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_text_is_truncated_at_the_maximum_length() {
    let model = model();
    let request = request(1).with_options(seeded(1).with_max_output_tokens(3));
    let response = ask_both_ways(&model, &request).await;
    assert_eq!(response.finish_reason, FinishReason::Length);
    assert_eq!(response.usage.unwrap().output_tokens, 3);
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_text_ends_at_a_stop_sequence() {
    let model = model();
    for seed in 0..4 {
        let request = request(seed).with_options(seeded(seed).with_stop(["a", "e"]));
        let response = ask_both_ways(&model, &request).await;
        assert_eq!(response.finish_reason, FinishReason::Stop);
        assert!(!response.message.text.contains(['a', 'e']), "{}", response.message.text);
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn accepts_every_option() {
    let model = model();
    let options = ModelOptions::default()
        .with_seed(5)
        .with_max_output_tokens(MOST_TOKENS)
        .with_temperature(0.5)
        .with_top_p(0.9)
        .with_frequency_penalty(0.1)
        .with_presence_penalty(0.1)
        .with_top_logprobs(2)
        .with_reasoning_effort("low")
        .with_service_tier("auto")
        .with_user("somebody")
        .with_metadata("of", "a test")
        .with_extra("top_k", 20);
    ask_both_ways(&model, &request(5).with_options(options)).await;
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn an_answer_has_the_requested_format() {
    let model = model();
    let schema = json!({
        "type": "object",
        "properties": {
            "port": { "type": "string", "maxLength": 12 },
            "height": { "type": "integer", "minimum": -9, "maximum": 9 },
            "rises": { "type": ["boolean", "null"] },
            "tides": { "type": "array", "items": { "enum": ["spring", "neap"] }, "maxItems": 3 },
        },
        "required": ["port", "height", "rises", "tides"],
        "additionalProperties": false,
    });
    let validator = jsonschema::validator_for(&schema).unwrap();
    for seed in 0..8 {
        let request = request(seed).with_response_format(ResponseFormat::json_schema("tide", schema.clone()));
        let response = ask_both_ways(&model, &request).await;
        assert_eq!(response.finish_reason, FinishReason::Stop);
        let answer: Value = serde_json::from_str(&response.message.text).unwrap();
        validator.validate(&answer).unwrap();
    }
}
