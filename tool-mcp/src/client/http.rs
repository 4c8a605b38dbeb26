//! A server behind streamable HTTP: the SDK's transport over a client that bounds what it reads.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode, Url, redirect};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpClientTransportConfig,
    StreamableHttpError, StreamableHttpPostResponse,
};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use sse_stream::{Sse, SseStream};

use super::envelope::without_the_deepest;
use super::inbox::Inbox;
use super::lines::unreadable;

const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION: &str = "mcp-session-id";
const LAST_EVENT: &str = "last-event-id";

/// How large the text of an error may be, in bytes.
const LARGEST_ERROR: usize = 1 << 16;

/// How often a redirect is followed.
const MOST_REDIRECTS: usize = 5;

/// How long it may take to reach the machine.
const LONGEST_CONNECT: Duration = Duration::from_secs(10);

/// How often a stream that broke is taken up again, and how long is waited in between at most.
const STREAM_ATTEMPTS: usize = 8;
const LONGEST_WAIT: Duration = Duration::from_secs(5);

type Error = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Where a server is, and what it is told with each request.
#[derive(Clone)]
pub(super) struct Http {
    pub(super) url: Url,
    /// With the token. All of them are marked as sensitive.
    pub(super) headers: HeaderMap,
}

impl Http {
    /// The SDK's transport to the server. It needs a runtime around it.
    pub(super) fn transport(
        &self,
        max_message: usize,
        inbox: &Arc<Inbox>,
    ) -> Result<StreamableHttpClientTransport<Bounded>, String> {
        let client = Bounded {
            http: client(&self.url)?,
            headers: Arc::new(self.headers.clone()),
            max_message,
            inbox: Arc::clone(inbox),
        };
        let mut backoff = ExponentialBackoff::default();
        (backoff.max_times, backoff.max_delay) = (Some(STREAM_ATTEMPTS), Some(LONGEST_WAIT));
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str());
        config.retry_config = Arc::new(backoff);
        config.max_sse_event_size = max_message;
        Ok(StreamableHttpClientTransport::with_client(client, config))
    }
}

fn client(url: &Url) -> Result<reqwest::Client, String> {
    let mut http = reqwest::Client::builder();
    if is_loopback(url) {
        // A proxy of the system would look for the server on its own machine.
        http = http.no_proxy();
    }
    http.tls_backend_preconfigured(tls(url)?)
        .connect_timeout(LONGEST_CONNECT)
        .redirect(redirect::Policy::custom(follow))
        .build()
        .map_err(|error| format!("no HTTP client can be made: {error}"))
}

/// Servers lead from `/mcp` to `/mcp/`. What leads to another host would carry the token there, and what is no 307 or 308
/// would turn a `POST` into a `GET`.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
    let is_same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if keeps_method && is_same && attempt.previous().len() <= MOST_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// TLS through rustls and ring with the system's certificates, which are read only where they are needed.
fn tls(url: &Url) -> Result<ClientConfig, String> {
    let no_tls = |error: rustls::Error| {
        format!("no certificates to tell a server by ({error}); install the system's, `ca-certificates`")
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(no_tls)?;
    if url.scheme() == "http" {
        let nobody = rustls::RootCertStore::empty();
        return Ok(builder.with_root_certificates(nobody).with_no_client_auth());
    }
    Ok(builder.with_platform_verifier().map_err(no_tls)?.with_no_client_auth())
}

/// A client that reads no more of an answer than it may. The SDK's own has a fixed limit for some answers, and loses those
/// that it cannot read, so that who waits for them waits in vain.
#[derive(Clone)]
pub(super) struct Bounded {
    http: reqwest::Client,
    headers: Arc<HeaderMap>,
    max_message: usize,
    inbox: Arc<Inbox>,
}

impl Bounded {
    fn with_headers(
        &self,
        request: reqwest::RequestBuilder,
        session: Option<&str>,
        of_protocol: HashMap<HeaderName, HeaderValue>,
    ) -> reqwest::RequestBuilder {
        let mut headers = (*self.headers).clone();
        headers.extend(of_protocol.into_iter().map(|(name, value)| (Some(name), value)));
        if let Some(Ok(session)) = session.map(HeaderValue::from_str) {
            headers.insert(SESSION, session);
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

    /// The events of a response; what cannot be read of the answer to a request is told as an error in its place.
    fn events(&self, response: Response, request: Option<RequestId>) -> Events {
        let limit = self.max_message;
        let mut size = EventSize::default();
        let bytes = response.bytes_stream().map(move |piece| match piece {
            Ok(piece) if size.add(&piece) > limit => Err(io::Error::other(TooLarge(limit))),
            Ok(piece) => Ok(piece),
            Err(error) => Err(io::Error::other(error.without_url())),
        });
        readable(SseStream::from_bytes_stream(bytes), request).boxed()
    }
}

fn readable(
    events: impl Stream<Item = Result<Sse, SseError>> + Send + 'static,
    request: Option<RequestId>,
) -> impl Stream<Item = Result<Sse, SseError>> + Send + 'static {
    events.map(move |event| match event {
        Ok(mut event) => {
            if let Some(data) = &mut event.data
                && let std::borrow::Cow::Owned(shallow) = without_the_deepest(data.as_bytes())
            {
                *data = String::from_utf8_lossy(&shallow).into_owned();
            }
            let is_broken = event
                .data
                .as_deref()
                .is_some_and(|data| !data.trim().is_empty() && !is_json(data.as_bytes()));
            match &request {
                Some(id) if is_broken => Ok(in_its_place("the answer is no message of the protocol", id)),
                _ => Ok(event),
            }
        }
        Err(error) => match (&request, too_large(&error)) {
            (Some(id), Some(too_large)) => Ok(in_its_place(&too_large.to_string(), id)),
            _ => Err(error),
        },
    })
}

fn in_its_place(message: &str, id: &RequestId) -> Sse {
    let error = unreadable(message.to_owned(), id.clone());
    Sse::default().data(serde_json::to_string(&error).unwrap_or_default())
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// An answer is larger than it may be.
#[derive(Debug)]
struct TooLarge(usize);

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer is larger than {} bytes", self.0)
    }
}

impl std::error::Error for TooLarge {}

fn too_large(error: &SseError) -> Option<&TooLarge> {
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

/// The size of the event that passes by: an empty line ends it.
#[derive(Default)]
struct EventSize {
    bytes: usize,
    line: usize,
}

impl EventSize {
    fn add(&mut self, piece: &[u8]) -> usize {
        let mut largest = self.bytes;
        for byte in piece {
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

/// The body, unless it is larger than it may be.
async fn body(response: Response, limit: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Ok(None);
    }
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(reqwest::Error::without_url)?;
        if body.len() + piece.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

/// A status in words; with the error of the protocol if the body is one, so that the request is answered with that.
async fn failed(
    response: Response,
    request: Option<&RequestId>,
) -> Result<StreamableHttpPostResponse, Error> {
    let status = response.status();
    let body = body(response, LARGEST_ERROR).await.ok().flatten().unwrap_or_default();
    if let Ok(message @ JsonRpcMessage::Error(_)) = serde_json::from_slice::<ServerJsonRpcMessage>(&body)
        && let JsonRpcMessage::Error(error) = &message
        && error.id.is_some()
        && error.id.as_ref() == request
    {
        return Ok(StreamableHttpPostResponse::Json(message, None));
    }
    let text = String::from_utf8_lossy(&body);
    let text: String = text.trim().chars().take(200).collect();
    let separator = if text.is_empty() { "" } else { ": " };
    Err(StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status}{separator}{text}").into()))
}

fn has_type(response: &Response, expected: &str) -> bool {
    let found = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    found.is_some_and(|found| found.to_ascii_lowercase().starts_with(expected))
}

fn session_of(response: &Response) -> Option<String> {
    Some(response.headers().get(SESSION)?.to_str().ok()?.to_owned())
}

impl StreamableHttpClient for Bounded {
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
                // The next session may be with another server.
                self.inbox.tools_changed();
                return Err(StreamableHttpError::SessionExpired);
            }
            status if !status.is_success() => return failed(response, id.as_ref()).await,
            _ => {}
        }
        let session = session_of(&response);
        if has_type(&response, EVENT_STREAM) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, id), session));
        }
        // Whatever a notification is answered with, it was taken.
        let Some(id) = id else { return Ok(StreamableHttpPostResponse::Accepted) };
        let read = body(response, self.max_message).await.map_err(StreamableHttpError::Client)?;
        let Some(body) = read else {
            let error = unreadable(TooLarge(self.max_message).to_string(), id);
            return Ok(StreamableHttpPostResponse::Json(error, session));
        };
        let message = serde_json::from_slice(&without_the_deepest(&body))
            .unwrap_or_else(|_| unreadable("the answer is no message of the protocol".into(), id));
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
        // A server need not let anyone delete sessions.
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
            request = request.header(LAST_EVENT, last_event);
        }
        let response = self.send(request).await?;
        if !response.status().is_success() {
            return match response.status() {
                StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
                status => Err(StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status}").into())),
            };
        }
        if !has_type(&response, EVENT_STREAM) {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(self.events(response, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_measured_until_an_empty_line() {
        let mut size = EventSize::default();
        assert_eq!(size.add(b"data: abc\r\n"), 9);
        assert_eq!(size.add(b"\r\ndata: a\n\n"), 9);
        assert_eq!(size.add(b"data: a\ndata: b"), 14);
        assert_eq!(size.add(b"bb"), 16);
    }

    #[test]
    fn the_machine_itself_is_known() {
        for (url, expected) in [
            ("http://127.0.0.1:1/", true),
            ("http://[::1]/mcp", true),
            ("http://localhost/mcp", true),
            ("http://example.org/mcp", false),
        ] {
            assert_eq!(is_loopback(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
