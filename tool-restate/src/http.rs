//! HTTP requests to a Restate server.

use bytes::Bytes;
use restate_sdk::ingress::RequestExecutor;
use tool_http::client::new_client;
use url::Url;

use crate::error::{Error, ErrorKind};

/// Sends the requests of the SDK's client.
#[derive(Clone)]
pub(crate) struct Http(pub(crate) reqwest::Client);

impl RequestExecutor for Http {
    type Error = reqwest::Error;

    async fn execute(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, Self::Error> {
        let response = self.0.execute(request.try_into()?).await?;
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
