//! How a model is asked, through any API: what stands between a request and the reply, but for their forms.

use std::borrow::Cow;

use futures_util::stream::{StreamExt, TryStreamExt, iter};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use tool_core::{ChatRequest, ChatResponse, ChatStream, Delta, ModelError};

use crate::Error;
use crate::client::{Answer, Client};
use crate::pieces::RequestBody;
use crate::rejected::Tellings;
use crate::streaming::{self, Assemble, Problem};

/// A model behind one API of an endpoint.
pub(crate) trait Api: Sync {
    /// The path of the API, behind that of the endpoint.
    const PATH: &'static str;

    /// Puts its responses together.
    type Assembler<'a>: Assemble + Send + Unpin
    where
        Self: 'a;

    fn client(&self) -> &Client;

    /// The model that is asked, unless the request says another.
    fn model(&self) -> &str;

    fn body(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<RequestBody, Error>;

    fn assembler(&self) -> Self::Assembler<'_>;

    /// Reads a whole answer.
    fn read(&self, text: &str) -> Result<ChatResponse, Problem>;

    /// The model that is asked.
    fn model_of<'a>(&'a self, request: &'a ChatRequest<'_>) -> &'a str {
        request.options().model.as_deref().unwrap_or_else(|| self.model())
    }
}

/// Asks and waits for the whole reply; again, if need be.
pub(crate) async fn ask<A: Api>(api: &A, request: &ChatRequest<'_>) -> Result<ChatResponse, Error> {
    let mut tellings = Tellings::new(request);
    loop {
        let body = api.body(tellings.request(), false)?;
        let model = api.model_of(tellings.request());
        let mut retries = api.client().retries();
        let error = loop {
            match ask_once(api, model, &body).await {
                Ok(response) => return Ok(response),
                Err(error) if error.is_tool_generation() => break error,
                Err(error) => retries.after(error).await?,
            }
        };
        tellings.after(error)?;
    }
}

async fn ask_once<A: Api>(api: &A, model: &str, body: &RequestBody) -> Result<ChatResponse, Error> {
    let answer = api.client().send_once(A::PATH, model, body, "application/json").await?;
    read_whole(api, answer).await
}

/// Asks and gives the reply as it comes. Until it has begun, it is asked for again if need be.
pub(crate) async fn open<'a, A: Api>(
    api: &'a A,
    request: &ChatRequest<'_>,
) -> Result<ChatStream<'a>, ModelError> {
    let mut tellings = Tellings::new(request);
    let answer = loop {
        let body = api.body(tellings.request(), true)?;
        let model = api.model_of(tellings.request());
        match api.client().send(A::PATH, model, &body, "text/event-stream").await {
            Ok(answer) => break answer,
            Err(error) => tellings.after(error)?,
        }
    };
    if content_type(&answer.response).is_some_and(|value| value.starts_with("text/event-stream")) {
        let deltas = streaming::deltas(api.client(), answer, api.assembler());
        return Ok(deltas.map_err(ModelError::from).boxed());
    }
    // Some servers do not stream, though they are asked to; and an error under status 200 is not streamed.
    let response = read_whole(api, answer).await?;
    Ok(iter(Delta::all_of(response).into_iter().map(Ok)).boxed())
}

async fn read_whole<A: Api>(api: &A, answer: Answer) -> Result<ChatResponse, Error> {
    let content_type = content_type(&answer.response);
    let request_id = answer.request_id.clone();
    let body = api.client().body(answer).await?;
    // To look for what is no text is slower than to see that there is none.
    let text = match std::str::from_utf8(&body) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(&body),
    };
    api.read(&text)
        .map_err(|problem| api.client().problem(problem, &text, content_type.as_deref(), request_id))
}

fn content_type(response: &Response) -> Option<String> {
    response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
