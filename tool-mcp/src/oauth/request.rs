//! Requests to authorization servers, whose responses are bounded in time and size.

use std::net::IpAddr;
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

/// Checks a URL that a server stated. It must use `https`, except on this machine, and contain no user name, which can pass for a host.
/// Addresses of this machine and of private networks are accepted only if the MCP server has such an address, and only for the server's
/// own origin or a configured authorization server, because other servers must not reach the user's programs.
pub(super) fn check_url(text: &str, server: &Url, is_configured: bool) -> Result<Url, OAuthError> {
    let url = text.parse::<Url>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_graphic()));
    let is_near = |url: &Url| is_private(server) && (is_configured || url.origin() == server.origin());
    let is_allowed = |url: &Url| {
        let has_plain_host = url.host_str().is_some_and(|host| {
            host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
        });
        has_plain_host
            && (url.username(), url.password()) == ("", None)
            && (!is_private(url) || is_near(url))
            && is_safe_for_secrets(url)
    };
    url.filter(is_allowed).ok_or_else(|| {
        OAuthError::failed(format!(
            "it names the URL `{}`, which is not allowed; only `https` without a user is, and on this machine or in a private network \
             only the origin of a server there and an issuer of `OAuth::client` or `OAuth::local_issuer`",
            redact_urls(text)
        ))
    })
}

/// Returns `true` if nobody on the network can read what is sent to a URL.
pub(super) fn is_safe_for_secrets(url: &Url) -> bool {
    url.scheme() == "https" || url.scheme() == "http" && is_loopback(url)
}

/// Returns `true` if a URL names this machine, or an address that is no machine's on the internet: of private networks, of one link, of
/// groups, or one that contains an address of IPv4, which a network can translate.
fn is_private(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let name = host.strip_suffix('.').unwrap_or(host);
    match name.trim_matches(['[', ']']).parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => {
            // This network, providers' networks, protocols, benchmarks, and multicast with all that is reserved above it.
            let is_special = matches!(
                address.octets(),
                [0 | 224..=255, ..] | [100, 64..=127, ..] | [192, 0, 0, _] | [198, 18..=19, ..]
            );
            is_special || address.is_loopback() || address.is_private() || address.is_link_local()
        }
        // Only 2000::/3 is assigned to the internet, of which protocols (Teredo among them), documents and 6to4 are no machines there.
        Ok(IpAddr::V6(address)) => match address.segments() {
            [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => true,
            [first, ..] => first >> 13 != 1,
        },
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    }
}

/// Percent-encodes what has a meaning for shells in the path and query of a URL that is shown, except `&`, `?`, `~` and `%`.
pub(super) fn encode_for_shells(url: &mut Url) {
    let encode = |text: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/?%&=:@+,".contains(&byte);
        let encode = |byte: u8| match is_plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        text.bytes().map(encode).collect::<String>()
    };
    let (path, query) = (encode(url.path()), url.query().map(encode));
    url.set_path(&path);
    url.set_query(query.as_deref());
    url.set_fragment(None);
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
        // The text of serde's error could contain a part of a document that is not for the model.
        StatusCode::OK => serde_json::from_slice(&body).map(Some).map_err(|error| {
            let (url, line, column) = (redact_url(url), error.line(), error.column());
            OAuthError::failed(format!("the metadata at `{url}` is invalid in line {line}, column {column}"))
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
            ("https://login.example/token", remote, (true, true)),
            ("https://login.example/token", local, (true, true)),
            ("https://8.8.8.8/token", remote, (true, true)),
            ("http://login.example/token", remote, (false, false)),
            ("http://login.example/token", local, (false, false)),
            ("http://127.0.0.1:2/token", remote, (false, false)),
            ("https://localhost/token", remote, (false, false)),
            ("https://localhost./token", remote, (false, false)),
            ("https://a.localhost.:8443/token", remote, (false, false)),
            ("https://0.0.0.0/token", remote, (false, false)),
            ("https://0x7f.1/token", remote, (false, false)),
            ("https://[::]/token", remote, (false, false)),
            ("https://[::1]/token", remote, (false, false)),
            ("https://[::ffff:127.0.0.1]/token", remote, (false, false)),
            ("https://10.0.0.1/token", remote, (false, false)),
            ("https://100.64.0.1/token", remote, (false, false)),
            ("https://169.254.169.254/token", remote, (false, false)),
            ("https://[fd00::1]/token", remote, (false, false)),
            ("https://[fe80::1]/token", remote, (false, false)),
            ("https://[2606:4700::1111]/token", remote, (true, true)),
            ("https://[2001:4860:4860::8888]/token", remote, (true, true)),
            ("https://192.0.1.1/token", remote, (true, true)),
            ("https://198.20.0.1/token", remote, (true, true)),
            ("https://223.255.255.1/token", remote, (true, true)),
            // NAT64, 6to4, Teredo, and addresses of IPv4 in older forms.
            ("https://[64:ff9b::10.0.0.1]/token", remote, (false, false)),
            ("https://[64:ff9b:1::10.0.0.1]/token", remote, (false, false)),
            ("https://[2002:a00:1::]/token", remote, (false, false)),
            ("https://[2001::1]/token", remote, (false, false)),
            ("https://[::10.0.0.1]/token", remote, (false, false)),
            ("https://[::ffff:0:10.0.0.1]/token", remote, (false, false)),
            ("https://[fec0::1]/token", remote, (false, false)),
            ("https://[ff02::1]/token", remote, (false, false)),
            ("https://[2001:db8::1]/token", remote, (false, false)),
            ("https://198.18.0.1/token", remote, (false, false)),
            ("https://198.19.255.255/token", remote, (false, false)),
            ("https://192.0.0.8/token", remote, (false, false)),
            ("https://224.0.0.1/token", remote, (false, false)),
            ("https://239.255.255.250/token", remote, (false, false)),
            ("https://240.0.0.1/token", remote, (false, false)),
            ("https://255.255.255.255/token", remote, (false, false)),
            ("https://198.18.0.1/token", "https://198.18.0.1/mcp", (true, true)),
            ("https://10.0.0.1/token", "https://10.0.0.1/mcp", (true, true)),
            ("https://10.0.0.2/token", "https://10.0.0.1/mcp", (false, true)),
            ("http://127.0.0.1:1/token", local, (true, true)),
            ("http://127.0.0.1:2/token", local, (false, true)),
            ("http://[::1]:1/token", local, (false, true)),
            ("http://10.0.0.1/token", local, (false, false)),
            ("ftp://127.0.0.1:1/token", local, (false, false)),
            ("file:///etc/passwd", local, (false, false)),
            ("/token", local, (false, false)),
            ("https://bank.example@login.example/", remote, (false, false)),
            ("https://:x@login.example/", remote, (false, false)),
            ("https://login.example;x$(y)/", remote, (false, false)),
            ("https://login.example/\u{1b}[2J", remote, (false, false)),
        ];
        for (url, server, expected) in table {
            let is_allowed = |is_configured| check_url(url, &server.parse().unwrap(), is_configured).is_ok();
            assert_eq!((is_allowed(false), is_allowed(true)), expected, "{url} of {server}");
        }
    }

    #[test]
    fn a_url_that_is_shown_has_no_characters_of_shells() {
        let mut url = "https://a.example/$(x);|`!*'\"/%3b?a=$(x)`;|!*'{}\\&b=%26#x".parse().unwrap();
        encode_for_shells(&mut url);
        let path = "/%24%28x%29%3B%7C%60%21%2A%27%22/%3b";
        let query = "a=%24%28x%29%60%3B%7C%21%2A%27%7B%7D%5C&b=%26";
        assert_eq!(url.as_str(), format!("https://a.example{path}?{query}"));
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(encode_form([("a", "b c&d"), ("e", "é+")]), "a=b+c%26d&e=%C3%A9%2B");
    }
}
