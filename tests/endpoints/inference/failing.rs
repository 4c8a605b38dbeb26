//! Errors: requests that the server rejects, and streams that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tool_core::content::{Content, Image, Part};
use tool_core::model::{ChatRequest, ChatResponse, Delta, ModelError, ToolChoice, ToolDefinition};
use tool_core::provider::ToolDefinitions;
use tool_core::{ChatModel, Message, ModelOptions};
use tool_openai::{ChatCompletions, Error, ErrorKind};

use super::server::OwnServer;
use super::{at, base_url, builder, model, request, seeded};

async fn stream(model: &ChatCompletions, request: &ChatRequest<'_>) -> Result<ChatResponse, ModelError> {
    let mut deltas = model.stream(request);
    loop {
        if let Delta::Done(response) = deltas.next().await.unwrap()? {
            return Ok(response);
        }
    }
}

/// Returns the error of a request, which is the same complete and streamed.
async fn error_both_ways(model: &ChatCompletions, request: &ChatRequest<'_>) -> Error {
    let whole = model.chat(request).await.unwrap_err().downcast::<Error>().unwrap();
    let streamed = stream(model, request).await.unwrap_err().downcast::<Error>().unwrap();
    assert_eq!(whole.to_string(), streamed.to_string());
    assert_eq!(whole.status(), streamed.status());
    whole
}

/// Returns a request whose answer continues until the client disconnects, because the end token is banned.
fn endless() -> ChatRequest<'static> {
    const END: u32 = 257;
    let options = ModelOptions::default().with_extra("logit_bias", json!([[END, false]]));
    ChatRequest::new([Message::user("List everything.")]).with_options(options)
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn reports_a_conversation_beyond_the_context() {
    let model = model();
    let request = ChatRequest::new([Message::user("tide ".repeat(20_000))]);
    let error = error_both_ways(&model, &request).await;
    assert!(error.kind() == ErrorKind::ContextLength && !error.is_retryable(), "{error}");
    assert_eq!((error.status(), error.error_type()), (Some(400), Some("exceed_context_size_error")));
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn reports_an_unknown_route() {
    let url = base_url();
    let model = at(&format!("{url}/nowhere")).build().unwrap().chat_model("babbler");
    let error = error_both_ways(&model, &request(0)).await;
    assert_eq!((error.status(), error.message()), (Some(404), Some("File Not Found")));
    assert!(error.kind() == ErrorKind::InvalidRequest && !error.is_retryable());
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn answers_for_an_unknown_model_with_the_loaded_one() {
    let builder = builder();
    let response = builder.build().unwrap().chat_model("another").chat(&request(0)).await.unwrap();
    assert_eq!(response.model.as_deref(), Some("babbler"));
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn reports_a_schema_without_a_grammar() {
    let model = model();
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "thing" } } });
    let tool = ToolDefinition::new("look").with_description("Looks").with_parameters(parameters);
    let request =
        request(0).with_tools(ToolDefinitions::from_iter([tool])).with_tool_choice(ToolChoice::Required);
    let error = error_both_ways(&model, &request).await;
    assert!(error.kind() == ErrorKind::InvalidRequest && !error.is_retryable(), "{error}");
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn reports_an_image_for_a_model_without_vision() {
    let builder = builder();
    let retries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&retries);
    let builder = builder.max_retries(1).on_retry(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let image = Part::Image(Image::from_bytes("image/png", [0x89, b'P', b'N', b'G']));
    let request = ChatRequest::new([Message::user(Content::from(image))]).with_options(seeded(0));
    let error = builder.build().unwrap().chat_model("babbler").chat(&request).await.unwrap_err();
    let error = error.downcast::<Error>().unwrap();
    assert!(error.message().unwrap().starts_with("image input is not supported"), "{error}");
    // The status marks it as a server error, and the client trusts that.
    assert_eq!((error.status(), retries.load(Ordering::Relaxed)), (Some(500), 1));
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_dropped_stream_frees_its_slot() {
    let server = OwnServer::start();
    let model = at(&server.base_url).max_retries(0).build().unwrap().chat_model("babbler");
    // The server handles one request at a time, and this one would take minutes.
    let endless = endless();
    for seed in 0..3 {
        let deltas: Vec<_> = model.stream(&endless).take(9).map(Result::unwrap).collect().await;
        assert!(deltas.iter().all(|delta| matches!(delta, Delta::Text(_))), "{deltas:?}");
        let request = request(seed);
        let next = tokio::time::timeout(Duration::from_secs(20), model.chat(&request)).await;
        next.expect("the server continued a dropped stream").unwrap();
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn reports_a_server_that_stops_during_a_stream() {
    let mut server = OwnServer::start();
    let model = at(&server.base_url).max_retries(0).build().unwrap().chat_model("babbler");
    let endless = endless();
    let mut deltas = model.stream(&endless);
    let mut text = String::new();
    let mut take = |delta: Delta| match delta {
        Delta::Text(more) => text.push_str(&more),
        other => panic!("{other:?}"),
    };
    for _ in 0..20 {
        take(deltas.next().await.unwrap().unwrap());
    }
    server.kill();
    let error = loop {
        match deltas.next().await.unwrap() {
            Ok(delta) => take(delta),
            Err(error) => break error.downcast::<Error>().unwrap(),
        }
    };
    assert!(deltas.next().await.is_none());
    assert!(error.kind() == ErrorKind::Incomplete && error.is_retryable(), "{error}");
    assert_eq!(error.partial().unwrap().message.text, text);

    let error = model.chat(&endless).await.unwrap_err().downcast::<Error>().unwrap();
    assert!(error.kind() == ErrorKind::Connect && error.is_retryable(), "{error}");
}
