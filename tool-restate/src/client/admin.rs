//! The administration of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::remote_agent::Client;
use crate::error::{Error, ErrorKind, message_of};
use crate::http::new_http_client;
use crate::names::conversations_service;
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
    Admin::new(admin_url, HeaderMap::new())?.register(worker_uri).await
}

impl Client {
    /// Registers a worker like [`register`], and sends the [headers](Self::header) of this client with each request, such as the key of a hosted
    /// server.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`register`].
    pub async fn register(&self, admin_url: &str, worker_uri: &str) -> Result<(), Error> {
        Admin::new(admin_url, self.http.headers.clone())?.register(worker_uri).await
    }
}

/// The administration of a server.
pub(super) struct Admin {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
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
    pub(super) fn new(url: &str, headers: HeaderMap) -> Result<Self, Error> {
        let (http, url) = new_http_client(url)?;
        Ok(Self { http, url, headers })
    }

    async fn register(&self, worker_uri: &str) -> Result<(), Error> {
        let deploy = |dry_run| Some(serde_json::json!({ "uri": worker_uri, "dry_run": dry_run }));
        let what = format!("the server did not register `{worker_uri}`");
        let offered = self.send::<Deployment>("deployments", deploy(true), &what).await?;
        let registered = self.send::<Deployment>("services", None, &what).await?;
        if let Some(id) = deployment_of_same_program(&offered.services, &registered.services) {
            let other = self.send::<Deployment>(&format!("deployments/{id}"), None, &what).await?.uri;
            if other.trim_end_matches('/') != worker_uri.trim_end_matches('/') {
                let message = format!(
                    "`{worker_uri}` serves the same program as `{other}`, which would get nothing any more; register one URI for all its \
                     workers, or set another `Worker::version`"
                );
                return Err(Error::new(ErrorKind::AlreadyRegistered, message));
            }
        }
        self.send::<Deployment>("deployments", deploy(false), &what).await.map(drop)
    }

    /// Returns the names of the agents that the server knows.
    pub(super) async fn agents(&self) -> Result<BTreeSet<String>, Error> {
        let known = self.send::<Deployment>("services", None, "the server did not list its agents").await?;
        let names: BTreeSet<_> = known.services.into_iter().map(|service| service.name).collect();
        Ok(names.iter().filter(|name| names.contains(&conversations_service(name))).cloned().collect())
    }

    /// Asks the tables of the server.
    pub(super) async fn query<T: DeserializeOwned>(&self, query: &str) -> Result<T, Error> {
        let body = serde_json::json!({ "query": query });
        self.send("query", Some(body), "the server did not list its runs").await
    }

    /// Gets a resource, or posts a body to it.
    async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<Value>,
        what: &str,
    ) -> Result<T, Error> {
        let url = self.url.join(path).map_err(|_| Error::invalid_url(self.url.as_str()))?;
        let request = match body {
            Some(body) => self.http.post(url.clone()).body(body.to_string()),
            None => self.http.get(url.clone()),
        };
        let request = request.header("content-type", "application/json").header("accept", "application/json");
        let request = request.headers(self.headers.clone());
        let no_server = |error| Error::no_server(url.as_str(), error);
        let response = request.timeout(TIMEOUT).send().await.map_err(no_server)?;
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
