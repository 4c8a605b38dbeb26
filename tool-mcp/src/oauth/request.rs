//! Requests to authorization servers, whose responses are bounded in time and size.

use std::time::Duration;

use reqwest::header::ACCEPT;
use reqwest::{Client, RequestBuilder, StatusCode, Url, redirect};
use serde::de::DeserializeOwned;
use tool_http::client::{is_loopback, new_client, read_body, redact_url, redact_urls, sources};

use super::error::OAuthError;

/// The longest time of a request.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

/// The largest response, in bytes.
const MAX_BYTES: usize = 256 << 10;

/// Checks a URL that a server stated: it must be `https`. Only what an MCP server on this machine states can be on this machine, and
/// without TLS, because a remote one must not reach the user's local programs.
pub(super) fn check_url(text: &str, server: &Url) -> Result<Url, OAuthError> {
    let url = text.parse::<Url>().ok().filter(Url::has_host);
    let is_allowed = |url: &Url| match is_loopback(url) {
        true => is_loopback(server) && matches!(url.scheme(), "http" | "https"),
        false => url.scheme() == "https",
    };
    url.filter(is_allowed).ok_or_else(|| {
        OAuthError::failed(format!(
            "it names the URL `{}`, which is not allowed; only `https` is, or this machine for a server on it",
            redact_urls(text)
        ))
    })
}

/// Sends a request. Redirects are not followed, because they could lead secrets to another host.
pub(super) async fn send(
    url: &Url,
    build: impl FnOnce(&Client) -> RequestBuilder,
) -> Result<(StatusCode, Vec<u8>), OAuthError> {
    let failed = |problem: String| OAuthError::failed(format!("`{}` {problem}", redact_url(url)));
    let client = new_client(url).map_err(|error| failed(format!("cannot be requested: {error}")))?;
    let client = client.redirect(redirect::Policy::none()).build();
    let client = client.map_err(|error| failed(format!("cannot be requested: {error}")))?;
    let exchange = async {
        let mut response = build(&client).header(ACCEPT, "application/json").send().await?;
        let body = read_body(&mut response, MAX_BYTES).await?;
        Ok((response.status(), body))
    };
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Err(_) => Err(failed(format!("did not respond within {TIMEOUT:?}"))),
        Ok(Err(error)) => {
            let error: reqwest::Error = error;
            let error = error.without_url();
            let innermost = sources(&error).last().map(ToString::to_string).unwrap_or_default();
            Err(failed(format!("cannot be reached: {innermost}")))
        }
        Ok(Ok((_, body))) if body.is_truncated => {
            Err(failed(format!("sent a response of more than {MAX_BYTES} bytes")))
        }
        Ok(Ok((status, body))) => Ok((status, body.bytes.into())),
    }
}

/// Requests a JSON document. Returns `None` if there is none, which is any status from 400 to 499.
pub(super) async fn get_document<T: DeserializeOwned>(url: &Url) -> Result<Option<T>, OAuthError> {
    let (status, body) = send(url, |client| client.get(url.clone())).await?;
    match status {
        _ if status.is_client_error() => Ok(None),
        StatusCode::OK => serde_json::from_slice(&body).map(Some).map_err(|error| {
            OAuthError::failed(format!("the metadata at `{}` is invalid: {error}", redact_url(url)))
        }),
        _ => Err(OAuthError::failed(format!("`{}` responded with HTTP {status}", redact_url(url)))),
    }
}

/// Encodes parameters as in the query of a URL and in the body of a form.
pub(super) fn encode_form<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let Ok(mut url) = Url::parse("form:") else { return String::new() };
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_on_this_machine_leads_to_it() {
        let (remote, local) = ("https://mcp.example/mcp", "http://127.0.0.1:1/mcp");
        let table = [
            ("https://login.example/token", remote, true),
            ("https://login.example/token", local, true),
            ("http://login.example/token", remote, false),
            ("http://login.example/token", local, false),
            ("http://127.0.0.1:2/token", remote, false),
            ("https://localhost/token", remote, false),
            ("http://127.0.0.1:2/token", local, true),
            ("http://[::1]:2/token", local, true),
            ("ftp://127.0.0.1/token", local, false),
            ("file:///etc/passwd", local, false),
            ("/token", local, false),
        ];
        for (url, server, expected) in table {
            assert_eq!(check_url(url, &server.parse().unwrap()).is_ok(), expected, "{url} of {server}");
        }
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(encode_form([("a", "b c&d"), ("e", "é+")]), "a=b+c%26d&e=%C3%A9%2B");
    }
}
