//! The HTTP client that is used if the user of a crate supplies none.

use std::sync::Arc;
use std::{error, fmt, iter};

use reqwest::{Client, ClientBuilder, Url};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use url::Host;

/// The certificates of the system could not be loaded.
#[derive(Debug)]
pub struct TlsError(rustls::Error);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "could not load the system's certificates ({}); install the package `ca-certificates`",
            self.0
        )
    }
}

impl error::Error for TlsError {}

/// Starts to build a client for the server at `url`. A proxy can be set afterwards; the system's is not used for a server on
/// this machine.
///
/// TLS is rustls with ring, which builds with cargo and a C compiler alone, and the system's certificates. Plain `http` does
/// not read them, so that it works on machines without certificates.
///
/// # Errors
///
/// Returns an error if the certificates cannot be loaded.
pub fn new_client(url: &Url) -> Result<ClientBuilder, TlsError> {
    let builder = Client::builder().tls_backend_preconfigured(tls(url).map_err(TlsError)?);
    // A system proxy would look for the server on its own machine.
    Ok(if is_loopback(url) { builder.no_proxy() } else { builder })
}

/// Returns `true` if a URL names this machine: with `localhost` or a loopback address. A resolver may look up names below `localhost`
/// [elsewhere](https://www.rfc-editor.org/rfc/rfc6761#section-6.3).
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Returns an error and its sources, the innermost last: it says why a connection failed, such as "Connection refused".
pub fn sources<'a>(
    error: &'a (dyn error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn error::Error + 'static)> {
    iter::successors(Some(error), |error| error.source())
}

fn tls(url: &Url) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    if url.scheme() == "http" {
        let no_certificates = rustls::RootCertStore::empty();
        return Ok(builder.with_root_certificates(no_certificates).with_no_client_auth());
    }
    Ok(builder.with_platform_verifier()?.with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_loopback_addresses() {
        for (url, expected) in [
            ("http://127.0.0.1:1/", true),
            ("http://127.8.0.1/", true),
            ("http://[::1]/mcp", true),
            ("http://localhost/mcp", true),
            ("http://LOCALHOST/mcp", true),
            ("http://a.localhost/mcp", false),
            ("http://[::ffff:127.0.0.1]/mcp", false),
            ("http://notlocalhost/mcp", false),
            ("http://localhost.example.org/mcp", false),
            ("http://example.org/mcp", false),
        ] {
            assert_eq!(is_loopback(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
