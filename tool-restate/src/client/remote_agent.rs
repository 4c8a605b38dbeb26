//! A server, and an agent on its workers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use restate_sdk::ingress::{self, ClientError, RequestTarget};
use restate_sdk::serde::{Deserialize, Json};
use serde::Serialize;
use tool_core::Message;
use tool_core::model::ConversationId;

use crate::error::{Error, ErrorKind};
use crate::http::{Http, new_http_client};
use crate::names::conversations_service;

/// The time that a request takes at most, by default.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A client of a Restate server. Clones share their connections.
///
/// ```no_run
/// use tool_core::run::Decision;
/// use tool_restate::{Client, RemoteOutcome};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let clerk = Client::connect("http://localhost:8080")?.agent("clerk");
/// let run = clerk.ask("Pay back order 7").key("order-7").conversation("user-7").send().await?;
/// loop {
///     match run.wait().await? {
///         RemoteOutcome::Answer(answer) => break println!("{answer}"),
///         RemoteOutcome::Waiting(waits) => {
///             run.decide(&waits[0].id, Decision::approve().by("ada")).await?;
///         }
///         RemoteOutcome::Failed(failure) => return Err(failure.into()),
///         _ => unreachable!(),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) ingress: ingress::Client<Http>,
    pub(super) http: Http,
    url: Arc<str>,
    pub(super) timeout: Duration,
    wait_timeout: Option<Duration>,
}

impl Client {
    /// Creates a client of the server whose ingress has this URL. No request is sent.
    ///
    /// # Errors
    ///
    /// Fails if the URL is not an `http` or `https` URL, or if no TLS certificates can be loaded.
    pub fn connect(url: &str) -> Result<Self, Error> {
        let (http, parsed) = new_http_client(url)?;
        let (http, url) = (Http::new(http), parsed.as_str());
        let ingress = ingress_client(url, http.clone())?;
        Ok(Self { ingress, http, url: url.into(), timeout: TIMEOUT, wait_timeout: None })
    }

    /// Sends a header with each request, such as the key of a hosted server or of a proxy in front of it. `Debug` omits it.
    ///
    /// # Errors
    ///
    /// Fails if the name or the value is invalid.
    pub fn header(self, name: &str, value: &str) -> Result<Self, Error> {
        let http = self.http.with_header(name, value)?;
        Ok(Self { ingress: ingress_client(&self.url, http.clone())?, http, ..self })
    }

    /// Limits the time of each request; a minute by default. A request that takes longer fails with [`ErrorKind::Timeout`], for
    /// example because no worker lives; the server may still execute it later. [`RemoteRun::wait`] and [`Events::next`] send requests until
    /// there is something to return: see [`wait_timeout`](Self::wait_timeout).
    ///
    /// [`ErrorKind::Timeout`]: crate::ErrorKind::Timeout
    /// [`Events::next`]: crate::Events::next
    /// [`RemoteRun::wait`]: crate::RemoteRun::wait
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Limits the time of [`RemoteRun::wait`] and [`Events::next`], which fail with [`ErrorKind::Timeout`] afterwards. Unlimited by default,
    /// as long as a worker lives.
    ///
    /// [`ErrorKind::Timeout`]: crate::ErrorKind::Timeout
    /// [`Events::next`]: crate::Events::next
    /// [`RemoteRun::wait`]: crate::RemoteRun::wait
    #[must_use]
    pub fn wait_timeout(mut self, time: Duration) -> Self {
        self.wait_timeout = Some(time);
        self
    }

    /// Awaits the future within the limit for waiting.
    pub(super) async fn wait_for<T>(
        &self,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self.wait_timeout {
            Some(limit) => {
                tokio::time::timeout(limit, future).await.unwrap_or_else(|_| Err(Error::timeout(limit)))
            }
            None => future.await,
        }
    }

    /// Returns the agent with this name.
    #[must_use]
    pub fn agent(&self, name: impl Into<String>) -> RemoteAgent {
        RemoteAgent { client: self.clone(), name: name.into().into() }
    }
}

fn ingress_client(url: &str, http: Http) -> Result<ingress::Client<Http>, Error> {
    let uri: http::Uri = url.trim_end_matches('/').parse().map_err(|_| Error::invalid_url(url))?;
    ingress::Client::new(uri, http).map_err(|_| Error::invalid_url(url))
}

/// An agent that runs on workers.
#[derive(Clone)]
pub struct RemoteAgent {
    pub(super) client: Client,
    pub(super) name: Arc<str>,
}

impl RemoteAgent {
    /// Returns the messages of a conversation, for display.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, or if there is no such agent.
    pub async fn conversation(&self, id: impl Into<ConversationId>) -> Result<Vec<Message>, Error> {
        let target = RequestTarget::object(conversations_service(&self.name), id.into().as_str(), "messages");
        let Json(messages) = self.get::<Json<Vec<Message>>>(self.client.timeout, target).await?;
        Ok(messages)
    }

    pub(super) fn target(&self, key: &str, handler: &str) -> RequestTarget {
        RequestTarget::workflow(&*self.name, key, handler)
    }

    /// Calls a handler that takes nothing.
    pub(super) async fn get<O: Deserialize>(
        &self,
        limit: Duration,
        target: RequestTarget,
    ) -> Result<O, Error> {
        let call = self.client.ingress.request::<(), O>(target, ()).call();
        self.request(limit, call).await?.into_body().map_err(|error| self.error(error))
    }

    /// Calls a handler.
    pub(super) async fn call<I: Serialize, O: Deserialize>(
        &self,
        target: RequestTarget,
        input: I,
    ) -> Result<O, Error> {
        let call = self.client.ingress.request::<_, O>(target, Json(input)).call();
        self.request(self.client.timeout, call).await?.into_body().map_err(|error| self.error(error))
    }

    /// Calls a handler of a run, again if the run was sent just now and waits for its first worker.
    pub(super) async fn call_once_begun(
        &self,
        target: impl Fn() -> RequestTarget,
        input: &impl Serialize,
    ) -> Result<(), Error> {
        for _ in 0..50 {
            match self.call(target(), input).await {
                Err(error) if error.kind() == ErrorKind::NotStarted => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                other => return other,
            }
        }
        self.call(target(), input).await
    }

    /// Awaits a request within a limit of time.
    pub(super) async fn request<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(limit, request).await {
            Ok(response) => response.map_err(|error| self.error(error)),
            Err(_) => Err(Error::timeout(limit)),
        }
    }

    fn error(&self, error: ClientError) -> Error {
        Error::from_ingress(error, &self.client.url, &self.name)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl fmt::Debug for RemoteAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteAgent").field(&self.name).finish()
    }
}
