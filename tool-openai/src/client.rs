//! Sends requests over HTTP and separates responses from errors.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::HeaderMap;
use tool_http::client::{
    BadResponse, Connection, RetryHeaders, RetryPolicy, SendError, Success, read_body, redact_url,
};

use crate::assembler::EventError;
use crate::body::RequestBody;
use crate::endpoint::Endpoint;
use crate::error::{Error, FailedRequest, ResponseContext};
use crate::warning::WarningHook;

/// The longest response that is read: far more than a model writes.
pub(crate) const MAX_BODY_BYTES: usize = 64 << 20;

/// The connections to one endpoint and its configuration.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) retry: RetryPolicy<Error>,
    pub(crate) on_warning: Option<WarningHook>,
}

/// A response whose headers have arrived. The request is in flight until this is dropped.
pub(crate) struct ApiResponse {
    pub(crate) success: Success,
    pub(crate) url: Url,
    pub(crate) request_id: Option<String>,
}

impl ApiResponse {
    /// Returns the content type if it is text.
    pub(crate) fn content_type(&self) -> Option<&str> {
        header(self.success.response.headers(), "content-type")
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
        let request_id = |headers: &HeaderMap| header(headers, "x-request-id").map(|id| self.redact(id));
        let (headers, reason) = match self.connection.send(url.clone(), Some(body), accept).await {
            Ok(success) => {
                let request_id = request_id(success.response.headers());
                return Ok(ApiResponse { success, url, request_id });
            }
            Err(SendError::Transport(error)) => return Err(Error::transport(&url, error)),
            Err(SendError::Response { headers, reason }) => (headers, reason),
        };
        let error = match reason {
            BadResponse::Compressed(message) => Error::invalid_response(message),
            BadResponse::Redirected(status, location) => Error::redirected(status, &location),
            BadResponse::Status(status, body) => {
                let context = ResponseContext {
                    status: Some(status),
                    content_type: header(&headers, "content-type").map(str::to_owned),
                    retry: RetryHeaders::from_headers(&headers),
                    lacks_key: !self.connection.sends_any(&["authorization", "api-key"]),
                };
                self.api_error(&body, context)
            }
        };
        Err(error.with_request(self.failed_request(&url), request_id(&headers)))
    }

    /// Reads the whole body of a response.
    pub(crate) async fn read_body(&self, response: &mut ApiResponse) -> Result<Bytes, Error> {
        let error = match read_body(&mut response.success.response, MAX_BODY_BYTES).await {
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
        let base_url = self.connection.base_url();
        let lacks_version = base_url.path() == "/"
            && known_url.trim_end_matches('/') != base_url.as_str().trim_end_matches('/');
        let versioned_base_url =
            lacks_version.then(|| format!("{}/v1", redact_url(base_url).trim_end_matches('/')));
        FailedRequest { url: redact_url(url), versioned_base_url }
    }

    /// Replaces secrets in a text of the server.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.connection.redact(text)
    }

    /// Returns the URL of an API for a model. The base URL keeps its path and query.
    pub(crate) fn url(&self, api: &str, model: &str) -> Url {
        let (path, query) = self.endpoint.path(api, model);
        let mut url = self.connection.url(&path);
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
        let name = self.endpoint.name.as_deref().unwrap_or_else(|| self.connection.base_url().authority());
        format!("{name}/{api}")
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// Returns a header of a response if it is text.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
