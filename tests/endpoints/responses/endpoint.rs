//! Asks an endpoint that answers as it is told, and looks at what it was sent.

use futures_util::StreamExt;
use serde_json::Value;
use tool_core::ChatModel;
use tool_core::model::{ChatRequest, ChatResponse, Delta, ModelError};
use tool_openai::{Endpoint, OpenAi, Responses};

use tests::support::schema::{Api, check_request};
use tests::support::{RawServer, whole_answer};

/// The model `m` of OpenAI, which is this server; what fails is not asked again.
pub(crate) fn model(server: &RawServer) -> Responses {
    model_of(Endpoint::openai(), server)
}

/// The model `m` of an endpoint, which is this server.
pub(crate) fn model_of(endpoint: Endpoint, server: &RawServer) -> Responses {
    let openai = OpenAi::builder().endpoint(endpoint).base_url(server.base_url()).max_retries(0);
    openai.build().unwrap().responses_model("m")
}

/// What a model says, piece by piece, and what it comes to.
pub(crate) async fn streamed(
    model: &impl ChatModel,
    request: &ChatRequest<'_>,
) -> (Vec<Delta>, Result<ChatResponse, ModelError>) {
    let mut deltas = model.stream(request);
    let mut pieces = Vec::new();
    while let Some(delta) = deltas.next().await {
        match delta {
            Ok(Delta::Done(response)) => {
                assert!(deltas.next().await.is_none(), "there is nothing behind the end");
                return (pieces, Ok(response));
            }
            Ok(piece) => pieces.push(piece),
            Err(error) => return (pieces, Err(error)),
        }
    }
    panic!("the stream ended without an end");
}

/// An answer that is not streamed.
pub(crate) fn json_answer(body: &Value) -> Vec<u8> {
    whole_answer("200 OK", &[("content-type", "application/json")], body.to_string().as_bytes())
}

/// An answer that is streamed.
pub(crate) fn event_stream(events: &[u8]) -> Vec<u8> {
    whole_answer("200 OK", &[("content-type", "text/event-stream")], events)
}

/// The bodies that a server was sent, each of which is one that the API takes.
#[track_caller]
pub(crate) fn bodies(server: &RawServer) -> Vec<String> {
    let bodies = unchecked_bodies(server);
    bodies.iter().for_each(|body| check_request(Api::Responses, body.as_bytes()));
    bodies
}

/// The bodies that a server was sent: what came in no form of the API goes back in none.
pub(crate) fn unchecked_bodies(server: &RawServer) -> Vec<String> {
    let bodies = server.requests().into_iter().map(|request| {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/responses "), "{head}");
        body.to_owned()
    });
    bodies.collect()
}

/// The items of a body's input.
pub(crate) fn input(body: &str) -> Vec<Value> {
    let mut body: Value = serde_json::from_str(body).unwrap();
    serde_json::from_value(body["input"].take()).unwrap()
}
