//! The HTTP client that is made where none is given.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Proxy, Url, redirect};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use url::Host;

use crate::Error;

/// A client for an endpoint.
pub(crate) fn client(
    base_url: &Url,
    proxy: Option<&str>,
    connect_timeout: Duration,
    read_timeout: Duration,
) -> Result<reqwest::Client, Error> {
    let mut http = reqwest::Client::builder();
    if let Some(proxy) = proxy {
        // What is wrong with it stays out of the message: it may hold a password.
        let proxy = Proxy::all(proxy).map_err(|_| {
            Error::config("the proxy is no URL; write one such as `http://proxy.example:3128`")
        })?;
        http = http.proxy(proxy);
    } else if is_loopback(base_url) {
        // A proxy of the system would look for the server on its own machine.
        http = http.no_proxy();
    }
    http.tls_backend_preconfigured(tls(base_url)?)
        .connect_timeout(connect_timeout)
        .read_timeout(read_timeout)
        // A redirect would turn a request into another, or carry the key elsewhere.
        .redirect(redirect::Policy::none())
        .build()
        .map_err(|error| Error::config(format!("no HTTP client can be made: {error}")))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
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
