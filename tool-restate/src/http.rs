//! HTTP requests to a Restate server.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use restate_sdk::ingress::RequestExecutor;
use tool_http::client::new_client;
use url::Url;

use crate::error::{Error, ErrorKind};

/// Sends the requests of the SDK's client, with these headers.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) client: reqwest::Client,
    pub(crate) headers: HeaderMap,
}

impl Http {
    pub(crate) fn new(client: reqwest::Client) -> Self {
        Self { client, headers: HeaderMap::new() }
    }

    /// Adds a header to each request. Its value can be a secret.
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        let invalid = || Error::new(ErrorKind::InvalidInput, format!("invalid header `{name}`"));
        let name = HeaderName::try_from(name).map_err(|_| invalid())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }
}

impl RequestExecutor for Http {
    type Error = reqwest::Error;

    async fn execute(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, Self::Error> {
        let mut request = reqwest::Request::try_from(request)?;
        request.headers_mut().extend(self.headers.clone());
        let response = self.client.execute(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut answer = http::Response::new(response.bytes().await?);
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

pub(crate) fn new_http_client(url: &str) -> Result<(reqwest::Client, Url), Error> {
    let parsed =
        Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let parsed = parsed.ok_or_else(|| Error::invalid_url(url))?;
    let builder = new_client(&parsed)
        .map_err(|error| Error::with_source(ErrorKind::Connect, "no TLS certificates", error))?;
    let http =
        builder.build().map_err(|error| Error::with_source(ErrorKind::Connect, "no HTTP client", error))?;
    Ok((http, parsed))
}
