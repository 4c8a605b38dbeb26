//! Sends requests over HTTP and tells answers from errors.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode, Url, redirect};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::{ExposeSecret, SecretString};
use url::Host;

use crate::{Error, encoding};

/// How long an answer may be, in bytes: beyond any that a model gives.
pub(crate) const LONGEST_BODY: usize = 64 << 20;

/// How much of an error's body is read, in bytes.
const LONGEST_ERROR_BODY: usize = 64 << 10;

/// The connections to one endpoint.
pub(crate) struct Client {
    http: reqwest::Client,
    base_url: Url,
    key: Option<SecretString>,
}

impl Client {
    pub(crate) fn new(
        base_url: Url,
        key: Option<SecretString>,
        headers: Vec<(&'static str, String)>,
        connect_timeout: Duration,
        read_timeout: Duration,
    ) -> Result<Self, Error> {
        let mut map = HeaderMap::new();
        for (name, text) in headers {
            // The value stays out of the message: it may be the key.
            let mut value = HeaderValue::from_str(&text).map_err(|_| {
                Error::config(format!(
                    "the value for the header `{name}` has a character that no header may have"
                ))
            })?;
            value.set_sensitive(name == "authorization");
            map.insert(HeaderName::from_static(name), value);
        }
        let mut http = reqwest::Client::builder();
        if is_loopback(&base_url) {
            // A proxy would look for the server on its own machine.
            http = http.no_proxy();
        }
        let http = http
            .default_headers(map)
            .tls_backend_preconfigured(tls(&base_url)?)
            .connect_timeout(connect_timeout)
            .read_timeout(read_timeout)
            // A redirect would turn a request into another, or carry the key elsewhere.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| Error::config(format!("no HTTP client can be made: {error}")))?;
        Ok(Self { http, base_url, key })
    }

    /// The name under which what is opaque in a response is kept, and sent back.
    #[expect(clippy::unused_self, reason = "each endpoint is to have its own")]
    pub(crate) fn provider(&self) -> &str {
        "openai"
    }

    /// Sends JSON and gives the answer, unless it is an error by its status.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: Vec<u8>,
        accept: &'static str,
    ) -> Result<Response, Error> {
        let url = self.url(path);
        let request =
            self.http.post(url.clone()).header(CONTENT_TYPE, "application/json").header(ACCEPT, accept);
        let sent = request.body(body).send().await;
        let response = sent.map_err(|error| Error::transport(&url, error))?;
        let status = response.status();
        if status.is_success() {
            encoding::check(&response)?;
            return Ok(response);
        }
        if status.is_redirection() {
            let location = response.headers().get("location").and_then(|value| value.to_str().ok());
            return Err(Error::redirected(status, &self.without_key(location.unwrap_or("nowhere"))));
        }
        let request_id = request_id(&response);
        let body = read(&url, response, LONGEST_ERROR_BODY).await.unwrap_or_default();
        Err(self.api_error(Some(status), &body, request_id))
    }

    /// The whole body of an answer.
    pub(crate) async fn body(&self, path: &str, response: Response) -> Result<Bytes, Error> {
        let url = self.url(path);
        let body = read(&url, response, LONGEST_BODY + 1).await?;
        if body.len() > LONGEST_BODY {
            return Err(Error::invalid_response(format!("the answer is longer than {LONGEST_BODY} bytes")));
        }
        Ok(body)
    }

    /// The error that a body tells of, without the key, should the server have sent it back.
    pub(crate) fn api_error(
        &self,
        status: Option<StatusCode>,
        body: &[u8],
        request_id: Option<String>,
    ) -> Error {
        let request_id = request_id.map(|id| self.without_key(&id));
        Error::api(status, &String::from_utf8_lossy(body), request_id, |text| self.without_key(text))
    }

    /// A text of the server without the key, should it have sent it back.
    pub(crate) fn without_key(&self, text: &str) -> String {
        match self.key.as_ref().map(ExposeSecret::expose_secret) {
            Some(key) if !key.is_empty() => text.replace(key, "[key]"),
            _ => text.to_owned(),
        }
    }

    /// The base URL with a path put behind its own; its query stays.
    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        url.set_path(&format!("{}/{path}", self.base_url.path().trim_end_matches('/')));
        url
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base_url", &shown(&self.base_url)).finish_non_exhaustive()
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// A URL without its query, which may hold a secret.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

pub(crate) fn request_id(response: &Response) -> Option<String> {
    response.headers().get("x-request-id").and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// At most so much of a body, as it may be of any length.
async fn read(url: &Url, mut response: Response, most: usize) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    while body.len() < most {
        match response.chunk().await.map_err(|error| Error::transport(url, error))? {
            Some(chunk) => body.extend_from_slice(&chunk[..chunk.len().min(most - body.len())]),
            None => break,
        }
    }
    Ok(body.into())
}

/// TLS through rustls and ring, which need cargo and a C compiler to build and nothing else, with the
/// system's certificates; these are read only where they are needed, so that a server on a machine
/// without any can still be reached by `http`.
fn tls(base_url: &Url) -> Result<ClientConfig, Error> {
    let no_tls = |error: rustls::Error| {
        Error::config(format!(
            "no certificates to tell a server by ({error}); install the system's, `ca-certificates`"
        ))
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(no_tls)?;
    if base_url.scheme() == "http" {
        let nobody = rustls::RootCertStore::empty();
        return Ok(builder.with_root_certificates(nobody).with_no_client_auth());
    }
    Ok(builder.with_platform_verifier().map_err(no_tls)?.with_no_client_auth())
}
