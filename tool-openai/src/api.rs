//! Sends chat requests through one of an endpoint's APIs, with retries, and reads the replies.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use futures_util::stream::{TryStreamExt, iter};
use reqwest::Url;
use tool_core::ChatModel;
use tool_core::model::{ChatRequest, ChatResponse, ChatStream, EarlierAttempt, ModelError};
use tool_http::client::Retries;

use crate::assembler::Assembler;
use crate::body::RequestBody;
use crate::client::{ApiResponse, Client};
use crate::error::{Error, ErrorKind};
use crate::malformed_call::MalformedCallRetries;
use crate::streaming;

/// A model behind one API of an endpoint.
pub(crate) trait Api: ChatModel {
    /// Assembles responses from streamed events.
    type Assembler<'a>: Assembler + Send + Unpin
    where
        Self: 'a;

    fn target(&self) -> &Target;

    /// Encodes the body of a request.
    fn encode(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<RequestBody, Error>;

    fn assembler(&self) -> Self::Assembler<'_>;

    fn client(&self) -> &Client {
        &self.target().client
    }
}

/// The endpoint, the API and the model that requests are for, unless their options name another model.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) client: Arc<Client>,
    pub(crate) model: String,
    /// The API's path below the base URL.
    path: &'static str,
    url: Url,
}

impl Target {
    pub(crate) fn new(client: Arc<Client>, path: &'static str, model: String) -> Self {
        let url = client.url(path, &model);
        Self { client, model, path, url }
    }

    /// Formats the public type of this name that sends the requests.
    pub(crate) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name).field("model", &self.model).field("client", &self.client).finish()
    }

    /// Returns the name of the model that the request is for.
    pub(crate) fn model_for<'a>(&'a self, request: &'a ChatRequest<'_>) -> &'a str {
        request.options().model.as_deref().unwrap_or(&self.model)
    }

    /// Returns the URL that the request is sent to.
    fn url_for(&self, request: &ChatRequest<'_>) -> Url {
        match &request.options().model {
            Some(model) => self.client.url(self.path, model),
            None => self.url.clone(),
        }
    }
}

/// Sends a request and returns the whole response, retrying if necessary.
pub(crate) async fn chat<A: Api>(api: &A, request: &ChatRequest<'_>) -> Result<ChatResponse, Error> {
    let mut attempts = Attempts::new(api, request, false)?;
    loop {
        let error = match try_chat(api, attempts.url(), &attempts.body).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        attempts.prepare_next(error).await?;
    }
}

async fn try_chat<A: Api>(api: &A, url: Url, body: &RequestBody) -> Result<ChatResponse, Error> {
    let response = api.client().send(url, body, "application/json").await?;
    read_whole(api, response).await
}

/// Sends a request and returns the streamed response. Retries only until the stream has opened.
pub(crate) async fn open_stream<'a, A: Api>(
    api: &'a A,
    request: &ChatRequest<'_>,
) -> Result<ChatStream<'a>, ModelError> {
    let mut attempts = Attempts::new(api, request, true)?;
    loop {
        let error = match try_open_stream(api, attempts.url(), &attempts.body).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        attempts.prepare_next(error).await?;
    }
}

async fn try_open_stream<'a, A: Api>(
    api: &'a A,
    url: Url,
    body: &RequestBody,
) -> Result<ChatStream<'a>, Error> {
    let response = api.client().send(url, body, "text/event-stream").await?;
    if response.content_type().is_some_and(|value| value.starts_with("text/event-stream")) {
        let deltas = streaming::deltas(api.client(), response, api.assembler());
        return Ok(ChatStream::new(deltas.map_err(ModelError::from)));
    }
    // Some servers ignore `stream`, and errors with status 200 are not streamed.
    let response = read_whole(api, response).await?;
    Ok(ChatStream::new(iter(response.into_deltas().into_iter().map(Ok))))
}

/// The attempts to get one reply: the same request again, or one that reports a malformed call to the model.
struct Attempts<'a, A> {
    api: &'a A,
    request: &'a ChatRequest<'a>,
    malformed_calls: MalformedCallRetries<'a>,
    is_streamed: bool,
    /// A JSON schema is sent, which the endpoint may not support.
    sends_json_schema: bool,
    body: RequestBody,
    retries: Retries<'a, Error>,
}

impl<'a, A: Api> Attempts<'a, A> {
    fn new(api: &'a A, request: &'a ChatRequest<'a>, is_streamed: bool) -> Result<Self, Error> {
        let body = api.encode(request, is_streamed)?;
        let malformed_calls = MalformedCallRetries::new(request);
        let sends_json_schema = request.response_format().is_some()
            && api.supports_response_format()
            && !api.client().endpoint.guarantees_json_schema;
        let retries = api.client().retry.start();
        Ok(Self { api, request, malformed_calls, is_streamed, sends_json_schema, body, retries })
    }

    fn url(&self) -> Url {
        self.api.target().url_for(self.malformed_calls.request())
    }

    /// Prepares the next attempt and waits until it may be sent.
    ///
    /// # Errors
    ///
    /// Returns the error itself if there must be no other attempt.
    async fn prepare_next(&mut self, error: Error) -> Result<(), Error> {
        let error = error.with_json_schema_sent(self.sends_json_schema);
        let mut earlier = EarlierAttempt::from_unbilled(error.is_unbilled());
        if error.kind() == ErrorKind::MalformedToolCall {
            earlier = EarlierAttempt::Unusable;
            self.malformed_calls.report(error)?;
            self.body = self.api.encode(self.malformed_calls.request(), self.is_streamed)?;
            self.retries = self.api.client().retry.start();
        } else {
            self.retries.wait(error).await?;
        }
        self.request.repeat(earlier).await.map_err(|error| Error::request(error.to_string()))
    }
}

async fn read_whole<A: Api>(api: &A, mut response: ApiResponse) -> Result<ChatResponse, Error> {
    let body = api.client().read_body(&mut response).await?;
    // Validating first is faster than a lossy conversion, and nearly every body is valid.
    let text = match std::str::from_utf8(&body) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(&body),
    };
    let mut assembler = api.assembler();
    match assembler.push_whole(&text) {
        Ok(()) => Ok(assembler.finish()),
        Err(error) => {
            let error = api.client().event_error(error, &text, response.content_type());
            Err(error.with_request(api.client().failed_request(&response.url), response.request_id))
        }
    }
}
