//! The HTTP client of the SDK's streamable HTTP transport, with bounded responses.
//!
//! [`tool_http`] reads the events, which are converted to the types of `sse-stream` that the SDK uses.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::runtime::Handle;
use tool_http::client::sse::{Event, EventReader, ReadError};
use tool_http::client::{Redactor, read_body};

use super::invalid_response::{NOT_A_MESSAGE, invalid_response, too_large};
use super::json_scan::prune_deep_values;
use super::monitor::Monitor;
use super::text::truncate;
use crate::oauth::{Challenge, OAuthError, Session, bearer};

const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION_HEADER: &str = "mcp-session-id";
const LAST_EVENT_HEADER: &str = "last-event-id";

/// The largest body of an error response that is read, in bytes.
const MAX_ERROR_BYTES: usize = 1 << 16;

/// The longest excerpt of the body of an error response, in characters.
const MAX_ERROR_CHARS: usize = 200;

type Error = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// The longest delay between two attempts to resume a broken event stream.
pub(super) const MAX_STREAM_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The shortest delay in milliseconds before a stream is opened again: none at all would be an endless loop.
const MIN_STREAM_RETRY_MILLIS: u64 = 250;

/// The number of tokens that replace a rejected one: that of another process, and a renewed one.
const MAX_REPLACED_TOKENS: usize = 2;

/// A client that limits the size of responses.
///
/// The client of the SDK has a fixed limit for some responses, and drops responses that it cannot read, so that callers
/// wait until their timeout. This one replaces such a response with an error.
#[derive(Clone)]
pub(super) struct BoundedHttpClient {
    pub(super) http: reqwest::Client,
    /// The login of the user, and the runtime of the program.
    pub(super) session: Option<(Arc<Session>, Handle)>,
    pub(super) max_message_bytes: usize,
    pub(super) redactor: Redactor,
    pub(super) monitor: Arc<Monitor>,
}

impl BoundedHttpClient {
    /// Sends a request, with the token of the login. If the server rejects the token, it has not executed the request, which is sent
    /// again with another one.
    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Response, Error> {
        let mut token = match &self.session {
            Some((session, program)) => session.token(program).await,
            None => None,
        };
        let mut replaced = 0;
        loop {
            // The bodies are in memory, so that all requests can be cloned.
            let attempt = request.try_clone().ok_or(StreamableHttpError::TransportChannelClosed)?;
            let header = token.as_deref().and_then(bearer);
            let attempt =
                header.into_iter().fold(attempt, |attempt, value| attempt.header(AUTHORIZATION, value));
            let response =
                attempt.send().await.map_err(|error| StreamableHttpError::Client(error.without_url()))?;
            let challenge = Challenge::from_headers(response.headers());
            let is_unauthorized = response.status() == StatusCode::UNAUTHORIZED;
            let lacks_scope = response.status() == StatusCode::FORBIDDEN && challenge.is_insufficient_scope();
            match &self.session {
                Some((session, program))
                    if replaced < MAX_REPLACED_TOKENS && (is_unauthorized || lacks_scope) =>
                {
                    let replacing = session.replace_token(challenge, token, program).await;
                    token = Some(replacing.map_err(io::Error::other)?);
                    replaced += 1;
                }
                Some(_) if is_unauthorized => {
                    let problem = "it rejects new tokens (HTTP 401); ask its operator which ones it accepts";
                    return Err(io::Error::other(OAuthError::Failed(problem.into())).into());
                }
                _ if is_unauthorized => return Err(unauthorized()),
                _ => return Ok(response),
            }
        }
    }

    async fn post(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let id = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        // Many servers send their questions not on the stream of the call, and lose them without the other one.
        if session.is_some() && is_call(&message) {
            self.monitor.can_be_asked().await;
        }
        let request = self
            .http
            .post(&*uri)
            .body(serde_json::to_vec(&message)?)
            .header(ACCEPT, format!("{JSON}, {EVENT_STREAM}"));
        let request = with_headers(request, session.as_deref(), headers).header(CONTENT_TYPE, JSON);
        let mut response = self.send(request).await?;
        match response.status() {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => return Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if session.is_some() => {
                self.monitor.retire();
                return Err(StreamableHttpError::SessionExpired);
            }
            status if !status.is_success() => {
                return error_response(response, id.as_ref(), &self.redactor).await;
            }
            _ => {}
        }
        let session = session_id(&response);
        if has_content_type(&response, EVENT_STREAM) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, id), session));
        }
        // A notification is accepted whatever the body of the response is.
        let Some(id) = id else { return Ok(StreamableHttpPostResponse::Accepted) };
        let is_html = has_content_type(&response, "text/html");
        let body =
            read_body(&mut response, self.max_message_bytes).await.map_err(StreamableHttpError::Client)?;
        if body.is_truncated {
            let error = invalid_response(too_large(self.max_message_bytes), id);
            return Ok(StreamableHttpPostResponse::Json(error, session));
        }
        let message = serde_json::from_slice(&prune_deep_values(&body.bytes))
            .unwrap_or_else(|_| invalid_response(if is_html { HTML } else { NOT_A_MESSAGE }.into(), id));
        Ok(StreamableHttpPostResponse::Json(message, session))
    }

    /// Returns the events of a response. If the response to `request` cannot be read, an error takes its place.
    fn events(&self, response: Response, request: Option<RequestId>) -> Events {
        let limit = self.max_message_bytes;
        let reader = EventReader::endless(response.bytes_stream().boxed(), limit);
        let monitor = Arc::clone(&self.monitor);
        // Nothing follows an error.
        let events = stream::unfold(Some((reader, request)), move |state| async move {
            let (mut reader, request) = state?;
            let event = poll_fn(|context| {
                reader
                    .poll_next(context)
                    .map_ok(|event| event.and_then(|event| into_sse(&event, request.as_ref())))
            });
            match (event.await, &request) {
                (Ok(event), _) => event.map(|event| (Ok(event), Some((reader, request)))),
                (Err(ReadError::TooLong), Some(id)) => Some((Ok(error_event(&too_large(limit), id)), None)),
                (Err(ReadError::TooLong), None) => Some((Err(SseError::Body(too_large(limit).into())), None)),
                (Err(ReadError::Body(error)), Some(_)) => {
                    Some((Err(SseError::Body(error.without_url().into())), None))
                }
                // The SDK opens a stream that failed again at once, but waits if it has ended.
                (Err(ReadError::Body(_)), None) => None,
            }
        });
        events.take_until(Box::pin(async move { monitor.closed().await })).boxed()
    }
}

fn with_headers(
    request: reqwest::RequestBuilder,
    session: Option<&str>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> reqwest::RequestBuilder {
    let request = request.headers(headers.into_iter().collect());
    session.into_iter().fold(request, |request, session| request.header(SESSION_HEADER, session))
}

fn is_call(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(one) if matches!(one.request, ClientRequest::CallToolRequest(_)))
}

fn unauthorized() -> Error {
    StreamableHttpError::AuthRequired(AuthRequiredError::new(String::new()))
}

/// Converts an event. If it is no message, an error takes the place of the response to `request`. Returns `None` for an event
/// that was truncated by the end of the stream.
fn into_sse(event: &Event<'_>, request: Option<&RequestId>) -> Option<Sse> {
    let data = match prune_deep_values(event.data.as_bytes()) {
        Cow::Owned(pruned) => String::from_utf8_lossy(&pruned).into_owned(),
        Cow::Borrowed(_) => event.data.clone().into_owned(),
    };
    match request {
        _ if data.trim().is_empty() || is_json(data.as_bytes()) => {}
        _ if !event.is_whole => return None,
        Some(id) => return Some(error_event(NOT_A_MESSAGE, id)),
        None => {}
    }
    let longest = MAX_STREAM_RETRY_DELAY.as_millis() as u64;
    Some(Sse {
        event: Some(event.name.clone().into_owned()).filter(|name| !name.is_empty()),
        data: Some(data),
        id: event.id.clone().map(Cow::into_owned),
        retry: event.retry.map(|delay| delay.clamp(MIN_STREAM_RETRY_MILLIS, longest)),
    })
}

fn error_event(reason: &str, id: &RequestId) -> Sse {
    let error = invalid_response(reason.to_owned(), id.clone());
    Sse::default().data(serde_json::to_string(&error).unwrap_or_default())
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// Converts a response with an error status. If the body is an error of the protocol, it is the response to the request.
async fn error_response(
    mut response: Response,
    request: Option<&RequestId>,
    redactor: &Redactor,
) -> Result<StreamableHttpPostResponse, Error> {
    let status = response.status();
    let body = read_body(&mut response, MAX_ERROR_BYTES).await.map(|body| body.bytes).unwrap_or_default();
    if let Ok(message @ JsonRpcMessage::Error(_)) = serde_json::from_slice::<ServerJsonRpcMessage>(&body)
        && let JsonRpcMessage::Error(error) = &message
        && error.id.is_some()
        && error.id.as_ref() == request
    {
        return Ok(StreamableHttpPostResponse::Json(message, None));
    }
    let text = truncate(&redactor.redact(String::from_utf8_lossy(&body).trim()), MAX_ERROR_CHARS);
    let separator = if text.is_empty() { "" } else { ": " };
    Err(StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status}{separator}{text}").into()))
}

/// The error of a web page in the place of a response.
const HTML: &str = "it is HTML and not a protocol message; check the URL of the server";

fn has_content_type(response: &Response, expected: &str) -> bool {
    let found = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    found.is_some_and(|found| found.to_ascii_lowercase().starts_with(expected))
}

fn session_id(response: &Response) -> Option<String> {
    Some(response.headers().get(SESSION_HEADER)?.to_str().ok()?.to_owned())
}

impl StreamableHttpClient for BoundedHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        // The SDK does not stop to wait for the response to the handshake when the handshake is cancelled.
        tokio::select! {
            response = self.post(uri, message, session, headers) => response,
            () = self.monitor.closed() => Err(StreamableHttpError::TransportChannelClosed),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Error> {
        let request = with_headers(self.http.delete(&*uri), Some(&session), headers);
        // The status is ignored, because servers need not support deletion.
        self.send(request).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Error> {
        let request = self.http.get(&*uri).header(ACCEPT, EVENT_STREAM);
        let mut request = with_headers(request, session.as_deref(), headers);
        if let Some(last_event) = last_event {
            request = request.header(LAST_EVENT_HEADER, last_event);
        }
        // The SDK opens a stream that failed again and again, but not one that is not authorized.
        let response = self.send(request).await;
        self.monitor.note_stream();
        let response = response.map_err(|error| match error {
            StreamableHttpError::Io(_) => unauthorized(),
            error => error,
        })?;
        if !response.status().is_success() {
            return match response.status() {
                StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
                status => Err(StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status}").into())),
            };
        }
        if !has_content_type(&response, EVENT_STREAM) {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(self.events(response, None))
    }
}
