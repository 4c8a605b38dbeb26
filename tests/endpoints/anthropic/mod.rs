//! The client of Anthropic's Messages API.

mod compacting;
mod corpus;
mod litellm;
mod requests;
mod runs;

use std::time::Duration;

use tests::support::RawServer;
use tool_anthropic::{Anthropic, AnthropicBuilder, Endpoint, Messages};

/// The model that the corpus is about.
const MODEL: &str = "claude-sonnet-5-5";

fn builder(server: &RawServer) -> AnthropicBuilder {
    let mut endpoint = Endpoint::anthropic();
    endpoint.base_url = Some(server.base_url().into());
    Anthropic::builder().endpoint(endpoint).base_url(server.base_url()).max_retries(0)
}

fn model(server: &RawServer) -> Messages {
    builder(server).build().unwrap().chat_model(MODEL)
}

/// Starts a server that gives this answer to every request.
async fn answering(answer: Vec<u8>) -> RawServer {
    RawServer::start(vec![answer], Duration::ZERO).await
}

/// Returns the bodies of the requests so far.
fn bodies(server: &RawServer) -> Vec<String> {
    let body = |request: String| request.split_once("\r\n\r\n").unwrap().1.to_owned();
    server.requests().into_iter().map(body).collect()
}
