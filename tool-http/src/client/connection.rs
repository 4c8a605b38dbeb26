//! A connection to one HTTP API.

use std::fmt;
use std::sync::Arc;

use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION,
};
use reqwest::{Client, Response, Url};
use tokio::sync::Semaphore;

use super::body::read_body;
use super::error::{Error, FailedRequest, ResponseHead};
use super::error_kind::ErrorKinds;
use super::redact::{Redactor, redact_url};
use super::request_body::RequestBody;
use super::response::ApiResponse;
use super::response_context::ResponseContext;
use super::retry_headers::RetryHeaders;
use super::token_source::Tokens;

/// The number of bytes of an error response that are read.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// The headers that contain the id of a request.
const REQUEST_IDS: [&str; 2] = ["request-id", "x-request-id"];

/// The headers that contain a key.
pub(super) const KEYS: [&str; 3] = ["authorization", "api-key", "x-api-key"];

/// A function that is called with the headers of each response.
pub type ResponseHook = Arc<dyn Fn(&HeaderMap) + Send + Sync>;

/// The connections to one API. Nothing is sent before the first request.
pub struct Connection {
    pub(super) http: Client,
    pub(super) base_url: Url,
    pub(super) redactor: Redactor,
    pub(super) headers: HeaderMap,
    pub(super) tokens: Option<Tokens>,
    /// Limits the number of requests in flight.
    pub(super) permits: Option<Arc<Semaphore>>,
    pub(super) suggested_base_url: Option<String>,
    pub(super) known_errors: ErrorKinds,
    pub(super) on_response: Option<ResponseHook>,
}

impl Connection {
    /// Sends JSON, or asks for it if there is no body, and returns the response if its status reports success.
    ///
    /// # Errors
    ///
    /// Fails if the connection does, or the response reports an error or cannot be read.
    pub async fn send(
        &self,
        url: &Url,
        body: Option<&RequestBody>,
        accept: &'static str,
    ) -> Result<ApiResponse<'_>, Error> {
        self.send_with(url, body, accept, None).await
    }

    /// [Sends](Self::send) JSON with an element added to the list of a header.
    ///
    /// # Errors
    ///
    /// Fails if the connection does, or the response reports an error or cannot be read.
    pub async fn send_with(
        &self,
        url: &Url,
        body: Option<&RequestBody>,
        accept: &'static str,
        element: Option<(&'static str, &'static str)>,
    ) -> Result<ApiResponse<'_>, Error> {
        let permit = match &self.permits {
            // The semaphore is never closed.
            Some(permits) => Arc::clone(permits).acquire_owned().await.ok(),
            None => None,
        };
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if let Some((name, element)) = element {
            let list = text(&self.headers, name).map(|list| format!("{list},{element}"));
            let list = list.and_then(|list| HeaderValue::from_str(&list).ok());
            headers.insert(name, list.unwrap_or(HeaderValue::from_static(element)));
        }
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        // Asked for behind the permit: a token may expire while the request waits.
        let mut response = match &self.tokens {
            Some(tokens) => self.send_with_token(tokens, url, body, headers).await?,
            None => self.send_once(url, body, headers).await?,
        };
        response.permit = permit;
        Ok(response)
    }

    /// Sends a request with a token, and once more with another one if the server refuses the first.
    async fn send_with_token(
        &self,
        tokens: &Tokens,
        url: &Url,
        body: Option<&RequestBody>,
        mut headers: HeaderMap,
    ) -> Result<ApiResponse<'_>, Error> {
        if url.origin() != self.base_url.origin() {
            return Err(Error::request("a token is not sent to another server than that of the base URL"));
        }
        let mut refusal: Option<Error> = None;
        loop {
            let answer = tokens.get().await.and_then(|token| Ok((token.header()?, token)));
            let (header, token) = answer.map_err(|failure| match refusal.take() {
                Some(refusal) => refusal.with_token_failure(failure),
                None => Error::token(failure),
            })?;
            headers.insert(AUTHORIZATION, header);
            match self.send_once(url, body, headers.clone()).await {
                Err(error) if error.refuses_token() => {
                    tokens.refuse(&token);
                    if refusal.is_some() {
                        return Err(error);
                    }
                    refusal = Some(error);
                }
                result => return result,
            }
        }
    }

    async fn send_once(
        &self,
        url: &Url,
        body: Option<&RequestBody>,
        headers: HeaderMap,
    ) -> Result<ApiResponse<'_>, Error> {
        let (method, request) = match body {
            Some(body) => ("POST", self.http.post(url.clone()).body(body.to_body())),
            None => ("GET", self.http.get(url.clone())),
        };
        let failed = FailedRequest::new(method, url, self.suggested_base_url.clone());
        let mut response = match request.headers(headers).send().await {
            Ok(response) => response,
            Err(error) => return Err(Error::transport(error).with_request(&failed, None)),
        };
        if let Some(on_response) = &self.on_response {
            on_response(response.headers());
        }
        let request_id = REQUEST_IDS.iter().find_map(|name| text(response.headers(), name));
        let context = ResponseContext {
            redactor: &self.redactor,
            request: failed,
            request_id: request_id.map(|id| self.redactor.redact(id)),
            content_type: text(response.headers(), CONTENT_TYPE.as_str()).map(str::to_owned),
            known_errors: self.known_errors,
        };
        match self.error_in(&mut response, context.content_type.as_deref()).await {
            Some(error) => Err(context.fail(error)),
            None => Ok(ApiResponse { response, permit: None, context }),
        }
    }

    /// Returns why a response cannot be used.
    async fn error_in(&self, response: &mut Response, content_type: Option<&str>) -> Option<Error> {
        let status = response.status();
        if status.is_success() {
            // This rules out decompression bombs. The body would look like garbage.
            let encodings = response.headers().get_all(CONTENT_ENCODING).iter();
            let mut encodings = encodings.map(|value| value.to_str().unwrap_or("unreadable").trim());
            let is_encoding = |name: &&str| !name.is_empty() && !name.eq_ignore_ascii_case("identity");
            return encodings.find(is_encoding).map(|name| {
                Error::invalid_response(format!(
                    "the response is compressed ({name}), although the request does not accept that; turn compression off in \
                     the server or its proxy"
                ))
            });
        }
        if status.is_redirection() {
            let location = text(response.headers(), LOCATION.as_str());
            let location = location.filter(|location| !location.trim().is_empty());
            let shown = location.map_or("an unknown location", without_query);
            return Some(Error::redirected(status, &self.redactor.redact(&without_user_info(shown))));
        }
        let body = read_body(response, MAX_ERROR_BODY_BYTES).await;
        let body = body.map(|body| body.bytes).unwrap_or_default();
        let head = ResponseHead {
            status: Some(status),
            content_type: content_type.map(str::to_owned),
            retry: RetryHeaders::from_headers(response.headers()),
            lacks_key: self.tokens.is_none() && !KEYS.iter().any(|name| self.headers.contains_key(*name)),
            known_errors: self.known_errors,
        };
        Some(Error::api(&String::from_utf8_lossy(&body), head, &self.redactor))
    }

    /// Returns the name of the server that answers: `name` at its known base URL, and with the authority at any other, so that two
    /// servers never have one name.
    #[must_use]
    pub fn server_name(&self, name: Option<&str>, known: Option<&str>) -> String {
        let authority = self.base_url.authority();
        match name {
            Some(name) if known.is_some_and(|known| is_at(known, authority)) => name.to_owned(),
            Some(name) => format!("{name}@{authority}"),
            None => authority.to_owned(),
        }
    }

    /// Returns the base URL, which ends with a slash.
    #[must_use]
    pub fn base_url(&self) -> &Url {
        &self.base_url
    }

    /// Returns the URL of a path below the base URL, which keeps its own path and query.
    #[must_use]
    pub fn url(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        url.set_path(&format!("{}/{path}", self.base_url.path().trim_end_matches('/')));
        url
    }
}

/// Shows the base URL, never the key.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("base_url", &redact_url(&self.base_url)).finish_non_exhaustive()
    }
}

/// Returns a header if it is text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns `true` if the URL is of the server with this authority.
fn is_at(url: &str, authority: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.authority() == authority)
}

/// Returns a text that may be a URL, without its query and fragment.
fn without_query(text: &str) -> &str {
    text.split(['?', '#']).next().unwrap_or_default()
}

/// Returns a text that may be a URL, without its user name and password.
fn without_user_info(text: &str) -> String {
    let (scheme, rest) = text.split_at(text.find("//").map_or(0, |start| start + 2));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    format!("{scheme}{}{path}", authority.rsplit('@').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_shown_without_secrets() {
        for (location, expected) in [
            ("https://user:secret@example.org/v1?key=secret#x", "https://example.org/v1"),
            ("/v1/messages?key=secret", "/v1/messages"),
        ] {
            assert_eq!(without_user_info(without_query(location)), expected);
        }
    }
}
