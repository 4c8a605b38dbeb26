//! The connections to an endpoint.

use std::fmt;
use std::sync::Arc;

use reqwest::Url;
use tool_http::client::{ApiResponse, Connection, Error, RequestBody, RetryPolicy};

use crate::endpoint::Endpoint;
use crate::warning::{Warning, WarningHook};

/// The longest description of a model or count of tokens that is read.
const MAX_INFO_BYTES: usize = 1 << 20;

/// The connections to one endpoint and its configuration.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) retry: RetryPolicy,
    pub(crate) on_warning: Option<WarningHook>,
}

impl Client {
    /// Returns the URL of a path below `/v1`, which the base URL can contain or not.
    pub(crate) fn url(&self, path: &str) -> Url {
        let has_version = self.connection.base_url().path().trim_end_matches('/').ends_with("/v1");
        if has_version { self.connection.url(path) } else { self.connection.url(&format!("v1/{path}")) }
    }

    /// Returns the name under which the blocks of replies are stored, which no other server has.
    pub(crate) fn provider(&self) -> String {
        let Endpoint { name, base_url, .. } = &*self.endpoint;
        self.connection.server_name(Some(name), base_url.as_deref())
    }

    /// Sends JSON, or asks for it if there is no body, with retries, and parses the response, which is short. `parse` returns `None` if
    /// the response does not follow the API.
    pub(crate) async fn fetch<T>(
        &self,
        url: Url,
        body: Option<&RequestBody>,
        beta: Option<&'static str>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let (url, parse) = (&url, &parse);
        let attempt = || async {
            let response = self.send(url, body, "application/json", beta).await?;
            response.read(MAX_INFO_BYTES, parse).await
        };
        self.retry.run(attempt).await
    }

    /// Sends one request, with a beta feature that it needs.
    pub(crate) async fn send(
        &self,
        url: &Url,
        body: Option<&RequestBody>,
        accept: &'static str,
        beta: Option<&'static str>,
    ) -> Result<ApiResponse<'_>, Error> {
        self.connection.send_with(url, body, accept, beta.map(|beta| ("anthropic-beta", beta))).await
    }

    /// Reports a change to a request.
    pub(crate) fn warn(&self, warning: &Warning<'_>) {
        if let Some(on_warning) = &self.on_warning {
            on_warning(warning);
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("connection", &self.connection).finish_non_exhaustive()
    }
}
