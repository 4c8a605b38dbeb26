//! Sends chat requests through one of an endpoint's APIs, with retries, and reads the replies.

use std::fmt;
use std::sync::Arc;

use futures_util::stream::{Stream, StreamExt, TryStreamExt, iter, unfold};
use tool_core::ChatModel;
use tool_core::model::{ChatRequest, ChatResponse, ChatStream, Delta, ModelError};
use tool_core::provider::EarlierAttempt;
use tool_http::client::{ApiResponse, Assembler, Error, ErrorKind, RequestBody, Retries, count_attempt};

use crate::client::Client;
use crate::context::warn_about_context;
use crate::malformed_call::MalformedCallRetries;
use crate::warning::warn_about_omitted_fields;

/// The way out if a server rejects a request with a JSON schema.
const JSON_SCHEMA_HINT: &str = "if the server does not support JSON schemas in `response_format`, set \
    `Endpoint::supports_json_schema` to `false`: typed answers then use a tool";

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

    /// Returns the path of the API below the base URL that a request is for.
    fn path(&self, request: &ChatRequest<'_>) -> &'static str;

    fn client(&self) -> &Client {
        &self.target().client
    }
}

/// The endpoint, the API and the model that requests are for, unless their options name another model.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) client: Arc<Client>,
    pub(crate) model: String,
}

impl Target {
    pub(crate) fn new(client: Arc<Client>, model: String) -> Self {
        Self { client, model }
    }

    /// Formats the public type of this name that sends the requests.
    pub(crate) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name).field("model", &self.model).field("client", &self.client).finish()
    }

    /// Returns the name of the model that the request is for.
    pub(crate) fn model_for<'a>(&'a self, request: &'a ChatRequest<'_>) -> &'a str {
        request.options().model.as_deref().unwrap_or(&self.model)
    }
}

/// Sends a request and returns the whole response, retrying if necessary.
pub(crate) async fn chat<A: Api>(api: &A, request: &ChatRequest<'_>) -> Result<ChatResponse, Error> {
    let mut attempts = Attempts::new(api, request, false)?;
    loop {
        let response = async { attempts.send().await?.assemble(api.assembler()).await };
        match response.await {
            Ok(response) => {
                if api.client().endpoint.truncates_silently {
                    warn_about_context(api.client(), api.target().model_for(request), &response).await;
                }
                return Ok(response);
            }
            Err(error) => attempts.prepare_next(error).await?,
        }
    }
}

/// Sends a request and returns the streamed response. Retries only until the stream has opened.
pub(crate) async fn open_stream<'a, A: Api>(
    api: &'a A,
    request: &ChatRequest<'_>,
) -> Result<ChatStream<'a>, ModelError> {
    let mut attempts = Attempts::new(api, request, true)?;
    loop {
        let stream = async {
            let response = attempts.send().await?;
            if response.is_event_stream() {
                let deltas = response.into_deltas(api.assembler());
                if api.client().endpoint.truncates_silently {
                    let model = api.target().model_for(request).to_owned();
                    return Ok(ChatStream::new(warning_at_end(deltas, api.client(), model)));
                }
                return Ok(ChatStream::new(deltas.map_err(ModelError::from)));
            }
            // Some servers ignore `stream`, and errors with status 200 are not streamed.
            let response = response.assemble(api.assembler()).await?;
            Ok(ChatStream::new(iter(response.into_deltas().into_iter().map(Ok))))
        };
        match stream.await {
            Ok(stream) => return Ok(stream),
            Err(error) => attempts.prepare_next(error).await?,
        }
    }
}

/// Returns deltas, and reports a context that was reached before the last one.
fn warning_at_end<'a>(
    deltas: impl Stream<Item = Result<Delta, Error>> + Send + Unpin + 'a,
    client: &'a Client,
    model: String,
) -> impl Stream<Item = Result<Delta, ModelError>> + Send + 'a {
    unfold((Some(deltas), model), move |(deltas, model)| async move {
        let mut deltas = deltas?;
        let delta = deltas.next().await?;
        let Ok(Delta::Done(response)) = &delta else {
            return Some((delta.map_err(ModelError::from), (Some(deltas), model)));
        };
        // The stream is in flight until it is dropped, which would keep the next request from being sent.
        drop(deltas);
        warn_about_context(client, &model, response).await;
        Some((delta.map_err(ModelError::from), (None, model)))
    })
}

/// The attempts to get one reply: the same request again, or one that reports a malformed call to the model.
struct Attempts<'a, 'r, A> {
    api: &'a A,
    request: &'r ChatRequest<'r>,
    malformed_calls: MalformedCallRetries<'r>,
    is_streamed: bool,
    body: RequestBody,
    retries: Retries<'a>,
}

impl<'a, 'r, A: Api> Attempts<'a, 'r, A> {
    fn new(api: &'a A, request: &'r ChatRequest<'r>, is_streamed: bool) -> Result<Self, Error> {
        let client = api.client();
        warn_about_omitted_fields(request, &client.endpoint, client.on_warning.as_ref());
        let body = api.encode(request, is_streamed)?;
        let malformed_calls = MalformedCallRetries::new(request);
        Ok(Self { api, request, malformed_calls, is_streamed, body, retries: client.retry.start() })
    }

    async fn send(&self) -> Result<ApiResponse<'a>, Error> {
        let request = self.malformed_calls.request();
        let url = self.api.client().url(self.api.path(request), self.api.target().model_for(request));
        let accept = if self.is_streamed { "text/event-stream" } else { "application/json" };
        self.api.client().connection.send(&url, Some(&self.body), accept).await
    }

    /// Prepares the next attempt and waits until it may be sent.
    ///
    /// # Errors
    ///
    /// Returns the error itself if there must be no other attempt.
    async fn prepare_next(&mut self, error: Error) -> Result<(), Error> {
        let error = self.with_hint(error);
        if error.kind() != ErrorKind::MalformedToolCall {
            return self.retries.repeat(self.request, error).await;
        }
        self.malformed_calls.report(error)?;
        self.body = self.api.encode(self.malformed_calls.request(), self.is_streamed)?;
        self.retries = self.api.client().retry.start();
        count_attempt(self.request, EarlierAttempt::Unusable).await
    }

    /// Adds the way out to an error that may be due to a JSON schema, which the endpoint may not support.
    fn with_hint(&self, error: Error) -> Error {
        let sends_json_schema = self.request.response_format().is_some()
            && self.api.supports_response_format()
            && !self.api.client().endpoint.guarantees_json_schema;
        let is_rejection = matches!(error.status(), Some(400 | 422 | 500))
            && matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::Server);
        if sends_json_schema && is_rejection { error.with_hint(JSON_SCHEMA_HINT) } else { error }
    }
}
