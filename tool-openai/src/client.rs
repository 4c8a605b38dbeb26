//! Sends requests over HTTP and separates responses from errors.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, Url};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tool_http::client::{Redactor, RetryHeaders, read_body, redact_url};

use crate::assembler::EventError;
use crate::body::RequestBody;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::error::{FailedRequest, ResponseContext};
use crate::retry::RetryPolicy;
use crate::warning::WarningHook;

/// The longest response that is read: far more than a model writes.
pub(crate) const MAX_BODY_BYTES: usize = 64 << 20;

/// The number of bytes of an error response that are read.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// The connections to one endpoint and its configuration.
pub(crate) struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) base_url: Url,
    /// The key and long header values, which are redacted from everything that the server sends.
    pub(crate) redactor: Redactor,
    pub(crate) headers: HeaderMap,
    pub(crate) retry: RetryPolicy,
    /// Limits the number of requests in flight.
    pub(crate) permits: Option<Arc<Semaphore>>,
    pub(crate) on_warning: Option<WarningHook>,
}

/// A response whose headers have arrived. The request is in flight until this is dropped.
pub(crate) struct ApiResponse {
    pub(crate) inner: Response,
    pub(crate) url: Url,
    pub(crate) request_id: Option<String>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl ApiResponse {
    /// Returns the chunks of the body.
    pub(crate) fn into_bytes(self) -> impl Stream<Item = reqwest::Result<Bytes>> + Send {
        let Self { inner, _permit, .. } = self;
        inner.bytes_stream().inspect(move |_| {
            // The permit is released with the stream.
            let _ = &_permit;
        })
    }
}

impl Client {
    /// Sends JSON and returns the response if its status reports success.
    pub(crate) async fn send(
        &self,
        url: Url,
        body: &RequestBody,
        accept: &'static str,
    ) -> Result<ApiResponse, Error> {
        let permit = match &self.permits {
            // The semaphore is never closed.
            Some(permits) => Arc::clone(permits).acquire_owned().await.ok(),
            None => None,
        };
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let request = self.http.post(url.clone()).headers(headers).body(body.to_body());
        let mut response = request.send().await.map_err(|error| Error::transport(&url, error))?;
        let request_id = header(&response, "x-request-id").map(|id| self.redact(id));
        let status = response.status();
        if status.is_success() {
            reject_compressed(&response)
                .map_err(|error| error.with_request(self.failed_request(&url), request_id.clone()))?;
            return Ok(ApiResponse { inner: response, url, request_id, _permit: permit });
        }
        if status.is_redirection() {
            let location = header(&response, "location").filter(|location| !location.trim().is_empty());
            let location = self.redact(location.unwrap_or("an unknown location"));
            let error = Error::redirected(status, &location);
            return Err(error.with_request(self.failed_request(&url), request_id));
        }
        let context = ResponseContext {
            status: Some(status),
            content_type: header(&response, "content-type").map(str::to_owned),
            retry: RetryHeaders::from_headers(response.headers()),
            lacks_key: !["authorization", "api-key"].iter().any(|name| self.headers.contains_key(*name)),
        };
        let body =
            read_body(&mut response, MAX_ERROR_BODY_BYTES).await.map(|body| body.bytes).unwrap_or_default();
        Err(self.api_error(&body, context).with_request(self.failed_request(&url), request_id))
    }

    /// Reads the whole body of a response.
    pub(crate) async fn read_body(&self, response: &mut ApiResponse) -> Result<Bytes, Error> {
        let error = match read_body(&mut response.inner, MAX_BODY_BYTES).await {
            Ok(body) if !body.is_truncated => return Ok(body.bytes),
            Ok(_) => Error::invalid_response(format!("the response is longer than {MAX_BODY_BYTES} bytes")),
            Err(error) => Error::transport(&response.url, error),
        };
        Err(error.with_request(self.failed_request(&response.url), response.request_id.clone()))
    }

    /// Returns the error that a body reports, without secrets.
    pub(crate) fn api_error(&self, body: &[u8], context: ResponseContext) -> Error {
        Error::api(&String::from_utf8_lossy(body), context, |text| self.redact(text))
    }

    /// Returns the error for a text that could not be turned into a response.
    pub(crate) fn event_error(&self, error: EventError, text: &str, content_type: Option<&str>) -> Error {
        match error {
            EventError::Api(json) => self.api_error(json.as_bytes(), ResponseContext::default()),
            EventError::Empty => Error::empty(),
            EventError::Aborted(reason) => Error::incomplete(Some(Error::aborted(self.redact(&reason)))),
            EventError::Malformed(reason) => {
                Error::malformed(content_type, &self.redact(text), &self.redact(&reason))
            }
        }
    }

    /// Describes a request to this URL for an error.
    pub(crate) fn failed_request(&self, url: &Url) -> FailedRequest {
        // Some providers, such as DeepSeek, have no version in their base URL.
        let known_url = self.endpoint.base_url.as_deref().unwrap_or_default();
        let lacks_version = self.base_url.path() == "/"
            && known_url.trim_end_matches('/') != self.base_url.as_str().trim_end_matches('/');
        let versioned_base_url =
            lacks_version.then(|| format!("{}/v1", redact_url(&self.base_url).trim_end_matches('/')));
        FailedRequest { url: redact_url(url), versioned_base_url }
    }

    /// Replaces secrets in a text of the server.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.redactor.redact(text)
    }

    /// Returns the URL of an API for a model. The base URL keeps its path and query.
    pub(crate) fn url(&self, api: &str, model: &str) -> Url {
        let (path, query) = self.endpoint.path(api, model);
        let mut url = self.base_url.clone();
        url.set_path(&format!("{}/{path}", self.base_url.path().trim_end_matches('/')));
        if let Some((name, value)) = query {
            url.query_pairs_mut().append_pair(name, value);
        }
        url
    }

    /// Returns the provider's name for traces.
    pub(crate) fn name(&self) -> &str {
        self.endpoint.name.as_deref().unwrap_or("openai")
    }

    /// Returns the name under which an API of this endpoint stores its provider data.
    pub(crate) fn provider(&self, api: &str) -> String {
        let name = self.endpoint.name.as_deref().unwrap_or_else(|| self.base_url.authority());
        format!("{name}/{api}")
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base_url", &redact_url(&self.base_url)).finish_non_exhaustive()
    }
}

/// Returns a header of a response if it is text.
pub(crate) fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Rejects a compressed response. Requests do not offer any compression, which rules out decompression bombs; the error
/// names the encoding because the body would look like garbage.
fn reject_compressed(response: &Response) -> Result<(), Error> {
    let encodings = response.headers().get_all(CONTENT_ENCODING).iter();
    for encoding in encodings.map(|value| value.to_str().unwrap_or("unreadable").trim()) {
        if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") {
            return Err(Error::invalid_response(format!(
                "the response is compressed ({encoding}), although the request does not accept that; turn compression off in \
                 the server or its proxy"
            )));
        }
    }
    Ok(())
}
