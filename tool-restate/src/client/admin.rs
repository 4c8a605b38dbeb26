//! The administration of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use url::Url;

use crate::error::{Error, ErrorKind, message_of};
use crate::http::new_http_client;
use crate::options::VERSION;

/// The time that a request takes at most.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Registers a worker with a server, by the URL of the server's administration (port 9070) and the URI of the worker. A worker is
/// registered once, and the server's ingress knows it a moment later; a new program is registered under another URI, because runs stay with the program that they began on.
/// Several workers of one program are registered once, by the URI of a balancer in front of them.
///
/// ```no_run
/// # async fn example() -> Result<(), tool_restate::Error> {
/// tool_restate::register("http://localhost:9070", "http://worker-1:9080").await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Fails if the server or the worker cannot be reached, if another program was registered under this URI, or if this program is
/// registered under another URI, whose workers would get nothing any more: its tools and its [version](crate::Worker::version) are the same.
pub async fn register(admin_url: &str, worker_uri: &str) -> Result<(), Error> {
    let admin = Admin::new(admin_url)?;
    let deploy = |dry_run: bool| {
        let body = serde_json::json!({ "uri": worker_uri, "dry_run": dry_run }).to_string();
        move |request: reqwest::RequestBuilder| request.body(body)
    };
    let what = format!("the server did not register `{worker_uri}`");
    let offered = admin.send(http::Method::POST, "deployments", deploy(true), &what).await?;
    let registered = admin.send(http::Method::GET, "services", |request| request, &what).await?;
    if let Some(id) = deployment_of_same_program(&offered.services, &registered.services) {
        let path = format!("deployments/{id}");
        let other = admin.send(http::Method::GET, &path, |request| request, &what).await?.uri;
        if other.trim_end_matches('/') != worker_uri.trim_end_matches('/') {
            let message = format!(
                "`{worker_uri}` serves the same program as `{other}`, which would get nothing any more; register one URI for all its \
                 workers, or set another `Worker::version`"
            );
            return Err(Error::new(ErrorKind::AlreadyRegistered, message));
        }
    }
    admin.send(http::Method::POST, "deployments", deploy(false), &what).await.map(drop)
}

/// The administration of a server.
struct Admin {
    http: reqwest::Client,
    url: Url,
}

/// A response of the administration.
#[derive(serde::Deserialize)]
struct Deployment {
    #[serde(default)]
    uri: String,
    #[serde(default)]
    services: Vec<Service>,
}

#[derive(serde::Deserialize)]
struct Service {
    name: String,
    #[serde(default)]
    deployment_id: String,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

impl Admin {
    fn new(url: &str) -> Result<Self, Error> {
        let (http, url) = new_http_client(url)?;
        Ok(Self { http, url })
    }

    async fn send(
        &self,
        method: http::Method,
        path: &str,
        with_body: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
        what: &str,
    ) -> Result<Deployment, Error> {
        let url = self.url.join(path).map_err(|_| Error::invalid_url(self.url.as_str()))?;
        let request = self.http.request(method, url.clone()).header("content-type", "application/json");
        let no_server = |error| Error::no_server(url.as_str(), error);
        let response = with_body(request).timeout(TIMEOUT).send().await.map_err(no_server)?;
        let (status, text) = (response.status(), response.text().await.map_err(no_server)?);
        let failed = |reason: &str| Error::new(ErrorKind::Server, format!("{what}: {status} {reason}"));
        match status.is_success() {
            true => serde_json::from_str(&text).map_err(|_| failed("unexpected response")),
            false => Err(failed(&message_of(&text))),
        }
    }
}

/// Returns the deployment that has just these services. The names contain hashes of the tools.
fn deployment_of_same_program<'a>(offered: &[Service], registered: &'a [Service]) -> Option<&'a str> {
    let version = |service: &Service| service.metadata.get(VERSION).cloned();
    let programs = |services: &[&Service]| -> BTreeSet<(String, Option<String>)> {
        services.iter().map(|one| (one.name.clone(), version(one))).collect()
    };
    let first = offered.first()?;
    let id = &registered.iter().find(|one| one.name == first.name)?.deployment_id;
    let others: Vec<_> = registered.iter().filter(|one| one.deployment_id == *id).collect();
    (programs(&offered.iter().collect::<Vec<_>>()) == programs(&others)).then_some(id)
}
