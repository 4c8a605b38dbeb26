//! The HTTP client of the SDK's streamable HTTP transport, with bounded responses.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::json_scan::prune_deep_values;
use super::line_transport::{NOT_A_MESSAGE, invalid_response, too_large};
use super::monitor::Monitor;
use super::redact::Redactor;
use super::text::truncate;

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

/// A client that limits the size of responses.
///
/// The client of the SDK has a fixed limit for some responses, and drops responses that it cannot read, so that callers
/// wait until their timeout. This one replaces such a response with an error.
#[derive(Clone)]
pub(super) struct BoundedHttpClient {
    http: reqwest::Client,
    headers: Arc<HeaderMap>,
    max_message_bytes: usize,
    redactor: Redactor,
    monitor: Arc<Monitor>,
}

impl BoundedHttpClient {
    pub(super) fn new(
        http: reqwest::Client,
        headers: HeaderMap,
        max_message_bytes: usize,
        redactor: Redactor,
        monitor: Arc<Monitor>,
    ) -> Self {
        Self { http, headers: Arc::new(headers), max_message_bytes, redactor, monitor }
    }

    fn with_headers(
        &self,
        request: reqwest::RequestBuilder,
        session: Option<&str>,
        protocol_headers: HashMap<HeaderName, HeaderValue>,
    ) -> reqwest::RequestBuilder {
        let mut headers = (*self.headers).clone();
        headers.extend(protocol_headers.into_iter().map(|(name, value)| (Some(name), value)));
        if let Some(Ok(session)) = session.map(HeaderValue::from_str) {
            headers.insert(SESSION_HEADER, session);
        }
        request.headers(headers)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Response, Error> {
        let response =
            request.send().await.map_err(|error| StreamableHttpError::Client(error.without_url()))?;
        if response.status() == StatusCode::UNAUTHORIZED {
            let challenge = response.headers().get(WWW_AUTHENTICATE);
            let challenge = challenge.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
            return Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge)));
        }
        Ok(response)
    }

    /// Returns the events of a response. If the response to `request` cannot be read, an error takes its place.
    fn events(&self, response: Response, request: Option<RequestId>) -> Events {
        let limit = self.max_message_bytes;
        let mut size = EventSize::default();
        let bytes = response.bytes_stream().map(move |chunk| match chunk {
            Ok(chunk) if size.add(&chunk) > limit => Err(io::Error::other(TooLarge(limit))),
            Ok(chunk) => Ok(chunk),
            Err(error) => Err(io::Error::other(error.without_url())),
        });
        replace_invalid(SseStream::from_bytes_stream(bytes), request).boxed()
    }
}

fn replace_invalid(
    events: impl Stream<Item = Result<Sse, SseError>> + Send + 'static,
    request: Option<RequestId>,
) -> impl Stream<Item = Result<Sse, SseError>> + Send + 'static {
    events.map(move |event| match event {
        Ok(mut event) => {
            if let Some(data) = &mut event.data
                && let Cow::Owned(pruned) = prune_deep_values(data.as_bytes())
            {
                *data = String::from_utf8_lossy(&pruned).into_owned();
            }
            let is_invalid = event
                .data
                .as_deref()
                .is_some_and(|data| !data.trim().is_empty() && !is_json(data.as_bytes()));
            match &request {
                Some(id) if is_invalid => Ok(error_event(NOT_A_MESSAGE, id)),
                _ => Ok(event),
            }
        }
        Err(error) => match (&request, find_too_large(&error)) {
            (Some(id), Some(too_large)) => Ok(error_event(&too_large.to_string(), id)),
            _ => Err(error),
        },
    })
}

fn error_event(reason: &str, id: &RequestId) -> Sse {
    let error = invalid_response(reason.to_owned(), id.clone());
    Sse::default().data(serde_json::to_string(&error).unwrap_or_default())
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// The error of a response that exceeds the limit.
#[derive(Debug)]
struct TooLarge(usize);

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&too_large(self.0))
    }
}

impl std::error::Error for TooLarge {}

fn find_too_large(error: &SseError) -> Option<&TooLarge> {
    let SseError::Body(error) = error else { return None };
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
    while let Some(error) = source {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        source = inner.map(|inner| inner as _).or_else(|| error.source());
    }
    None
}

/// Measures the current event of a stream. An empty line ends an event.
#[derive(Default)]
struct EventSize {
    bytes: usize,
    line: usize,
}

impl EventSize {
    /// Consumes a chunk and returns the size of the largest event so far in it.
    fn add(&mut self, chunk: &[u8]) -> usize {
        let mut largest = self.bytes;
        for byte in chunk {
            match byte {
                b'\n' if self.line == 0 => self.bytes = 0,
                b'\n' => self.line = 0,
                b'\r' => {}
                _ => {
                    self.line += 1;
                    self.bytes += 1;
                }
            }
            largest = largest.max(self.bytes);
        }
        largest
    }
}

/// Reads the body, or returns `None` if it exceeds the limit.
async fn read_body(response: Response, limit: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Ok(None);
    }
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(reqwest::Error::without_url)?;
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// Converts a response with an error status. If the body is an error of the protocol, it is the response to the request.
async fn error_response(
    response: Response,
    request: Option<&RequestId>,
    redactor: &Redactor,
) -> Result<StreamableHttpPostResponse, Error> {
    let status = response.status();
    let body = read_body(response, MAX_ERROR_BYTES).await.ok().flatten().unwrap_or_default();
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
        let id = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let request = self
            .http
            .post(&*uri)
            .body(serde_json::to_vec(&message)?)
            .header(ACCEPT, format!("{JSON}, {EVENT_STREAM}"));
        let request = self.with_headers(request, session.as_deref(), headers).header(CONTENT_TYPE, JSON);
        let response = self.send(request).await?;
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
        let body = read_body(response, self.max_message_bytes).await.map_err(StreamableHttpError::Client)?;
        let Some(body) = body else {
            let error = invalid_response(too_large(self.max_message_bytes), id);
            return Ok(StreamableHttpPostResponse::Json(error, session));
        };
        let message = serde_json::from_slice(&prune_deep_values(&body))
            .unwrap_or_else(|_| invalid_response(NOT_A_MESSAGE.into(), id));
        Ok(StreamableHttpPostResponse::Json(message, session))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Error> {
        let request = self.with_headers(self.http.delete(&*uri), Some(&session), headers);
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
        let mut request = self.with_headers(request, session.as_deref(), headers);
        if let Some(last_event) = last_event {
            request = request.header(LAST_EVENT_HEADER, last_event);
        }
        let response = self.send(request).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_ends_an_event() {
        let mut size = EventSize::default();
        assert_eq!(size.add(b"data: abc\r\n"), 9);
        assert_eq!(size.add(b"\r\ndata: a\n\n"), 9);
        assert_eq!(size.add(b"data: a\ndata: b"), 14);
        assert_eq!(size.add(b"bb"), 16);
    }
}
