//! Builds the HTTP client that is used if the caller supplies none.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Proxy, Url, redirect};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use url::Host;

use crate::Error;

/// Builds a client for the endpoint at `base_url`.
pub(crate) fn build(
    base_url: &Url,
    proxy: Option<&str>,
    connect_timeout: Duration,
    read_timeout: Duration,
) -> Result<Client, Error> {
    let mut builder = Client::builder();
    if let Some(proxy) = proxy {
        // The cause is not part of the message: the URL may contain a password.
        let proxy = Proxy::all(proxy)
            .map_err(|_| Error::config("invalid proxy URL; write it like `http://proxy.example:3128`"))?;
        builder = builder.proxy(proxy);
    } else if is_loopback(base_url) {
        // A system proxy would look for the server on its own machine.
        builder = builder.no_proxy();
    }
    builder
        .tls_backend_preconfigured(tls(base_url)?)
        .connect_timeout(connect_timeout)
        .read_timeout(read_timeout)
        // A redirect may change the method or send the key to another host.
        .redirect(redirect::Policy::none())
        .build()
        .map_err(|error| Error::config(format!("could not build the HTTP client: {error}")))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// Configures rustls with ring, which builds with cargo and a C compiler alone, and the system's certificates. Plain `http`
/// does not read them, so that it works on machines without certificates.
fn tls(base_url: &Url) -> Result<ClientConfig, Error> {
    let no_tls = |error: rustls::Error| {
        Error::config(format!(
            "could not load the system's certificates ({error}); install the package `ca-certificates`"
        ))
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(no_tls)?;
    if base_url.scheme() == "http" {
        let no_certificates = rustls::RootCertStore::empty();
        return Ok(builder.with_root_certificates(no_certificates).with_no_client_auth());
    }
    Ok(builder.with_platform_verifier().map_err(no_tls)?.with_no_client_auth())
}
