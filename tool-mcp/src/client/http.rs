//! Configuration of the streamable HTTP transport: redirects and reconnection.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Url, redirect};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::runtime::Handle;
use tool_http::client::{Redactor, new_client};

use super::http_client::{BoundedHttpClient, MAX_STREAM_RETRY_DELAY};
use super::monitor::Monitor;
use crate::oauth::Session;

const MAX_REDIRECTS: usize = 5;

/// The longest time to establish a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of attempts to resume a broken event stream.
const MAX_STREAM_RETRIES: usize = 8;

/// The URL of a server, and the headers of every request.
#[derive(Clone)]
pub(super) struct HttpConfig {
    pub(super) url: Url,
    /// Includes the token. All headers are marked as sensitive.
    pub(super) headers: HeaderMap,
    pub(super) session: Option<Arc<Session>>,
}

impl HttpConfig {
    /// Returns the SDK's transport to the server. This must be called within a tokio runtime; logins are renewed on that of the
    /// program.
    pub(super) fn transport(
        &self,
        program: Handle,
        max_message_bytes: usize,
        redactor: &Redactor,
        monitor: &Arc<Monitor>,
    ) -> Result<StreamableHttpClientTransport<BoundedHttpClient>, String> {
        let mut headers = self.headers.clone();
        if self.session.is_some() {
            headers.remove(AUTHORIZATION);
        }
        let client = BoundedHttpClient {
            http: build_client(&self.url, self.session.is_some())?,
            session: self.session.clone().map(|session| (session, program)),
            max_message_bytes,
            redactor: redactor.clone(),
            monitor: Arc::clone(monitor),
        };
        let mut backoff = ExponentialBackoff::default();
        (backoff.max_times, backoff.max_delay) = (Some(MAX_STREAM_RETRIES), Some(MAX_STREAM_RETRY_DELAY));
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str());
        config.retry_config = Arc::new(backoff);
        config.custom_headers =
            headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
        config.max_sse_event_size = max_message_bytes;
        // A new session is a new connection, because another server may answer in it.
        config.reinit_on_expired_session = false;
        Ok(StreamableHttpClientTransport::with_client(client, config))
    }
}

fn build_client(url: &Url, has_login: bool) -> Result<reqwest::Client, String> {
    let redirects = match has_login {
        // The token of a login is for this URL alone.
        true => redirect::Policy::none(),
        false => redirect::Policy::custom(follow_redirect),
    };
    new_client(url)
        .map_err(|error| error.to_string())?
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(redirects)
        .build()
        .map_err(|error| format!("the HTTP client cannot be created: {error}"))
}

/// Follows redirects within the same origin, such as from `/mcp` to `/mcp/`. A redirect to another host would disclose the
/// token, and a status other than 307 or 308 would change a `POST` to a `GET`.
fn follow_redirect(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
    let is_same_origin =
        attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if keeps_method && is_same_origin && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}
