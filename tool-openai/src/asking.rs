//! How a model is asked, through any API: what stands between a request and the reply, but for their forms.

use std::borrow::Cow;

use futures_util::stream::{StreamExt, TryStreamExt, iter};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use tool_core::{ChatRequest, ChatResponse, ChatStream, ModelError};

use crate::Error;
use crate::client::{Answer, Client};
use crate::pieces::RequestBody;
use crate::rejected::Tellings;
use crate::retry::Retries;
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
    let mut attempts = Attempts::new(api, request, false)?;
    loop {
        match ask_once(api, attempts.model(), &attempts.body).await {
            Ok(response) => return Ok(response),
            Err(error) => attempts.after(error).await?,
        }
    }
}

async fn ask_once<A: Api>(api: &A, model: &str, body: &RequestBody) -> Result<ChatResponse, Error> {
    let answer = api.client().send(A::PATH, model, body, "application/json").await?;
    read_whole(api, answer).await
}

/// Asks and gives the reply as it comes. Until it has begun, it is asked for again if need be.
pub(crate) async fn open<'a, A: Api>(
    api: &'a A,
    request: &ChatRequest<'_>,
) -> Result<ChatStream<'a>, ModelError> {
    let mut attempts = Attempts::new(api, request, true)?;
    loop {
        match open_once(api, attempts.model(), &attempts.body).await {
            Ok(stream) => return Ok(stream),
            Err(error) => attempts.after(error).await?,
        }
    }
}

async fn open_once<'a, A: Api>(api: &'a A, model: &str, body: &RequestBody) -> Result<ChatStream<'a>, Error> {
    let answer = api.client().send(A::PATH, model, body, "text/event-stream").await?;
    if content_type(&answer.response).is_some_and(|value| value.starts_with("text/event-stream")) {
        let deltas = streaming::deltas(api.client(), answer, api.assembler());
        return Ok(deltas.map_err(ModelError::from).boxed());
    }
    // Some servers do not stream, though they are asked to; and an error under status 200 is not streamed.
    let response = read_whole(api, answer).await?;
    Ok(iter(response.into_deltas().into_iter().map(Ok)).boxed())
}

/// The attempts to get one reply: the same request again, or one that tells the model what was wrong with its call.
struct Attempts<'a, A> {
    api: &'a A,
    tellings: Tellings<'a>,
    is_streamed: bool,
    body: RequestBody,
    retries: Retries<'a>,
}

impl<'a, A: Api> Attempts<'a, A> {
    fn new(api: &'a A, request: &'a ChatRequest<'a>, is_streamed: bool) -> Result<Self, Error> {
        let body = api.body(request, is_streamed)?;
        let tellings = Tellings::new(request);
        Ok(Self { api, tellings, is_streamed, body, retries: api.client().retries() })
    }

    fn model(&self) -> &str {
        self.api.model_of(self.tellings.request())
    }

    /// Makes ready for the next attempt, and waits until it may be made.
    ///
    /// # Errors
    ///
    /// The error itself, if there is to be none.
    async fn after(&mut self, error: Error) -> Result<(), Error> {
        if !error.is_tool_generation() {
            return self.retries.after(error).await;
        }
        self.tellings.after(error)?;
        self.body = self.api.body(self.tellings.request(), self.is_streamed)?;
        self.retries = self.api.client().retries();
        Ok(())
    }
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
