//! Sends requests to an endpoint with given answers, and inspects the requests that it receives.

use serde_json::Value;
use tool_core::ChatModel;
use tool_core::model::{ChatRequest, ChatResponse, Delta, ModelError};
use tool_openai::{Endpoint, OpenAi, Responses};

use tests::support::schema::{Api, check_request};
use tests::support::{RawServer, whole_answer};

/// Returns the model `m` of OpenAI at this server, without retries.
pub(crate) fn model(server: &RawServer) -> Responses {
    model_of(Endpoint::openai(), server)
}

/// Returns the model `m` of an endpoint at this server.
pub(crate) fn model_of(mut endpoint: Endpoint, server: &RawServer) -> Responses {
    endpoint.base_url = Some(server.base_url().into());
    let openai = OpenAi::builder().endpoint(endpoint).base_url(server.base_url()).max_retries(0);
    openai.build().unwrap().responses_model("m")
}

/// Returns the deltas of a stream and its outcome.
pub(crate) async fn streamed(
    model: &(impl ChatModel + ?Sized),
    request: &ChatRequest<'_>,
) -> (Vec<Delta>, Result<ChatResponse, ModelError>) {
    let mut stream = model.stream(request);
    let mut deltas = Vec::new();
    while let Some(delta) = stream.next().await {
        match delta {
            Ok(Delta::Done(response)) => {
                assert!(stream.next().await.is_none(), "the stream continued after its end");
                return (deltas, Ok(response));
            }
            Ok(delta) => deltas.push(delta),
            Err(error) => return (deltas, Err(error)),
        }
    }
    panic!("the stream ended without a response");
}

/// Returns an answer that is not streamed.
pub(crate) fn json_answer(body: &Value) -> Vec<u8> {
    whole_answer("200 OK", &[("content-type", "application/json")], body.to_string().as_bytes())
}

/// Returns a streamed answer.
pub(crate) fn event_stream(events: &[u8]) -> Vec<u8> {
    whole_answer("200 OK", &[("content-type", "text/event-stream")], events)
}

/// Returns the bodies that a server received, after checking them against the schema of the API.
#[track_caller]
pub(crate) fn bodies(server: &RawServer) -> Vec<String> {
    let bodies = unchecked_bodies(server);
    bodies.iter().for_each(|body| check_request(Api::Responses, body.as_bytes()));
    bodies
}

/// Returns the bodies that a server received without a check: items in unknown forms are sent back unchanged.
pub(crate) fn unchecked_bodies(server: &RawServer) -> Vec<String> {
    let bodies = server.requests().into_iter().map(|request| {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/responses "), "{head}");
        body.to_owned()
    });
    bodies.collect()
}

/// Returns the items of a body's input.
pub(crate) fn input(body: &str) -> Vec<Value> {
    let mut body: Value = serde_json::from_str(body).unwrap();
    serde_json::from_value(body["input"].take()).unwrap()
}
