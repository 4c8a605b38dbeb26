//! The client: it starts runs, waits for them, and decides about their calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{Either, select};
use restate_sdk::ingress::{self, ClientError, Output, RequestExecutor, RequestTarget, SendStatus};
use restate_sdk::serde::{Deserialize, Json};
use serde::Serialize;
use tool_core::agent::EventRecord;
use tool_core::content::Content;
use tool_core::model::ConversationId;
use tool_core::run::{self, Answer, Wait};
use tool_core::tool::WaitId;
use tool_core::{Approval, Message};
use tool_http::client::new_client;
use url::Url;

use crate::context::type_key;
use crate::error::{Error, ErrorKind};
use crate::events::{Page, events_service};
use crate::names::{
    self, About, Decided, Decision, Ended, RunFailure, Stop, conversations_service, is_service_name,
};
use crate::runs::WAIT_TIME;
use crate::worker::VERSION;

/// The largest question, in bytes of JSON; the server's own limit is 32 MiB.
const MAX_QUESTION_BYTES: usize = 16 * 1024 * 1024;

/// The time that a request takes at most, by default.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The time for which a client that waits for a run tolerates that the server cannot be reached.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of a Restate server. Clones share their connections.
///
/// ```no_run
/// use tool_core::run::Decision;
/// use tool_restate::{Client, Outcome};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let clerk = Client::connect("http://localhost:8080")?.agent("clerk");
/// let run = clerk.ask("Pay back order 7").key("order-7").conversation("user-7").send().await?;
/// loop {
///     match run.wait().await? {
///         Outcome::Answer(answer) => break println!("{answer}"),
///         Outcome::Waiting(waits) => run.resolve(&waits[0].id, Decision::approve().by("ada")).await?,
///         Outcome::Failed(failure) => return Err(failure.into()),
///         _ => unreachable!(),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) ingress: ingress::Client<Http>,
    url: Arc<str>,
    timeout: Duration,
    wait_timeout: Option<Duration>,
}

/// Sends the requests of the SDK's client.
#[derive(Clone)]
pub(crate) struct Http(reqwest::Client);

impl RequestExecutor for Http {
    type Error = reqwest::Error;

    async fn execute(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, Self::Error> {
        let response = self.0.execute(request.try_into()?).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut answer = http::Response::new(response.bytes().await?);
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

/// The outcome of waiting for a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "it is matched where it is created")]
pub enum Outcome {
    /// The run has an answer.
    Answer(Answer),
    /// The run waits for decisions about these: approvals, answers to questions of tools, and results of the caller. [`Run::resolve`]
    /// decides. Other calls are executed meanwhile.
    Waiting(Vec<Wait>),
    /// The run waits for an operator, for this reason: the model failed for longer than [`Worker::model_patience`](crate::Worker::model_patience).
    /// [`Run::resume`] repeats its request, and [`Run::cancel`] undoes what the run did.
    Paused(String),
    /// The run ended without an answer.
    Failed(RunFailure),
}

impl Client {
    /// Creates a client of the server whose ingress has this URL. No request is sent.
    ///
    /// # Errors
    ///
    /// Fails if the URL is not an `http` or `https` URL, or if no TLS certificates can be loaded.
    pub fn connect(url: &str) -> Result<Self, Error> {
        let (http, parsed) = new_http_client(url)?;
        let uri = parsed.as_str().trim_end_matches('/').parse();
        let uri: http::Uri = uri.map_err(|_| Error::invalid_url(url))?;
        let ingress = ingress::Client::new(uri, Http(http)).map_err(|_| Error::invalid_url(url))?;
        Ok(Self { ingress, url: parsed.as_str().into(), timeout: TIMEOUT, wait_timeout: None })
    }

    /// Limits the time of each request; a minute by default. A request that takes longer fails with [`ErrorKind::Timeout`], for
    /// example because no worker lives; the server may still execute it later. [`Run::wait`] and [`Events::next`] send requests until
    /// there is something to return: see [`wait_timeout`](Self::wait_timeout).
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Limits the time of [`Run::wait`] and [`Events::next`], which fail with [`ErrorKind::Timeout`] afterwards. Unlimited by default,
    /// as long as a worker lives.
    #[must_use]
    pub fn wait_timeout(mut self, time: Duration) -> Self {
        self.wait_timeout = Some(time);
        self
    }

    /// Awaits the future within the limit for waiting.
    async fn wait_for<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
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

fn new_http_client(url: &str) -> Result<(reqwest::Client, Url), Error> {
    let parsed =
        Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let parsed = parsed.ok_or_else(|| Error::invalid_url(url))?;
    let builder = new_client(&parsed)
        .map_err(|error| Error::with_source(ErrorKind::Connect, "no TLS certificates", error))?;
    let http =
        builder.build().map_err(|error| Error::with_source(ErrorKind::Connect, "no HTTP client", error))?;
    Ok((http, parsed))
}

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

/// An agent that runs on workers.
#[derive(Clone)]
pub struct RemoteAgent {
    client: Client,
    name: Arc<str>,
}

impl RemoteAgent {
    /// Asks a question. Nothing is sent until [`Question::send`].
    pub fn ask(&self, question: impl Into<Content>) -> Question {
        let question = names::Question {
            question: question.into(),
            conversation: None,
            context: Default::default(),
            events: false,
        };
        Question { agent: self.clone(), key: None, question, invalid: None }
    }

    /// Returns the run with this [key](Question::key), which may have been started by another process.
    #[must_use]
    pub fn run(&self, key: impl Into<String>) -> Run {
        Run { agent: self.clone(), key: key.into().into(), is_new: false }
    }

    /// Returns the messages of a conversation, for display.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, or if there is no such agent.
    pub async fn conversation(&self, id: &str) -> Result<Vec<Message>, Error> {
        let target = RequestTarget::object(conversations_service(&self.name), id, "messages");
        let Json(messages) = self.get::<Json<Vec<Message>>>(self.client.timeout, target).await?;
        Ok(messages)
    }

    fn target(&self, key: &str, handler: &str) -> RequestTarget {
        RequestTarget::workflow(&*self.name, key, handler)
    }

    /// Calls a handler that takes nothing.
    async fn get<O: Deserialize>(&self, limit: Duration, target: RequestTarget) -> Result<O, Error> {
        let call = self.client.ingress.request::<(), O>(target, ()).call();
        self.request(limit, call).await?.into_body().map_err(|error| self.error(error))
    }

    /// Calls a handler.
    async fn call<I: Serialize, O: Deserialize>(&self, target: RequestTarget, input: I) -> Result<O, Error> {
        let call = self.client.ingress.request::<_, O>(target, Json(input)).call();
        self.request(self.client.timeout, call).await?.into_body().map_err(|error| self.error(error))
    }

    /// Awaits a request within a limit of time.
    async fn request<T>(
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

/// A question to an agent that runs on workers.
#[must_use = "nothing is sent until `send` is called"]
pub struct Question {
    agent: RemoteAgent,
    key: Option<String>,
    question: names::Question,
    invalid: Option<Error>,
}

impl Question {
    /// Sets the key of the run, which is unique among the runs of the agent: a question with the key of an earlier run is not asked
    /// again, and [`send`](Self::send) returns that run. The key is free again when the earlier run is removed, after the
    /// [retention](crate::Worker::retention): the question then starts another run. By default, each question has a key of its own.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the conversation of the question. Its earlier messages are sent to the model, and the messages of the run are added once
    /// it has an answer. Questions of a conversation are answered one after the other, except for runs that wait for a person.
    pub fn conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.question.conversation = Some(id.into());
        self
    }

    /// Passes a value to the tools of the run, which inject it. The worker must [read](crate::Worker::context_json) the type.
    pub fn context_json<T: Serialize>(mut self, value: &T) -> Self {
        match serde_json::to_value(value) {
            Ok(json) => drop(self.question.context.insert(type_key::<T>(), json)),
            Err(error) => {
                let message = format!("the context `{}` has no JSON form", type_key::<T>());
                self.invalid = Some(Error::with_source(ErrorKind::InvalidInput, message, error));
            }
        }
        self
    }

    /// Stores the events of the run, for [`Run::events`].
    pub fn events(mut self) -> Self {
        self.question.events = true;
        self
    }

    /// Starts the run and returns as soon as the server has stored the question.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or is too old, if no worker has the agent, if the question is too large, or if the key
    /// belongs to a run that answers another question, which a worker checks.
    pub async fn send(self) -> Result<Run, Error> {
        let Self { agent, key, question, invalid } = self;
        if let Some(error) = invalid {
            return Err(error);
        }
        if !is_service_name(&agent.name) {
            return Err(Error::new(
                ErrorKind::UnknownAgent,
                format!("there is no agent `{}`: not a name", agent.name),
            ));
        }
        let key = key.unwrap_or_else(|| ConversationId::unique().as_str().to_owned());
        if key.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "the key of a run must not be empty".into()));
        }
        let body = serde_json::to_vec(&question).map_or(usize::MAX, |body| body.len());
        if body > MAX_QUESTION_BYTES {
            let message = format!(
                "the question has {body} bytes, more than the {MAX_QUESTION_BYTES} that the engine takes; \
                 pass a reference to large content, and let a tool read it"
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let digest = question.digest();
        let request = agent.client.ingress.request::<_, ()>(agent.target(&key, "run"), Json(question));
        let sent = agent.request(agent.client.timeout, request.send()).await?;
        let is_new = sent.send_status() == SendStatus::Accepted;
        if !is_new {
            once_begun(|| agent.call(agent.target(&key, "compare"), &digest)).await?;
        }
        Ok(Run { agent, key: key.into(), is_new })
    }
}

/// A run on the workers. Dropping it has no effect on the run.
#[derive(Clone)]
pub struct Run {
    agent: RemoteAgent,
    key: Arc<str>,
    is_new: bool,
}

impl Run {
    /// Returns the key of the run, by which [any process](RemoteAgent::run) finds it.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns `true` if the question started the run, and `false` if there was a run with its key already.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Waits until the run has ended, waits for a decision, or the run waits for an operator. It tolerates that the server
    /// cannot be reached for a minute, for example while it restarts.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, if no worker lives, if there is no such run, if the run was killed by the tools of the
    /// engine, or after the client's [limit](Client::wait_timeout).
    pub async fn wait(&self) -> Result<Outcome, Error> {
        self.agent.client.wait_for(self.wait_for_outcome()).await
    }

    async fn wait_for_outcome(&self) -> Result<Outcome, Error> {
        let mut unreachable_since = None;
        loop {
            match self.wait_once(&mut unreachable_since).await {
                Ok(Some(outcome)) => return Ok(outcome),
                Ok(None) => {}
                Err(error) if error.is_transient() => {
                    let since = *unreachable_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > PATIENCE {
                        return Err(error);
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a while. Returns `None` if the run goes on.
    async fn wait_once(&self, unreachable_since: &mut Option<Instant>) -> Result<Option<Outcome>, Error> {
        if let Some(ended) = self.peek().await? {
            return Ok(Some(ended));
        }
        *unreachable_since = None;
        let (agent, handle) = (&self.agent, self.handle().await?);
        let limit = agent.client.timeout.saturating_add(WAIT_TIME);
        // A run that is killed resolves nothing, but its invocation ends.
        let mut ended = pin!(agent.request(limit, handle.attach()));
        let stopped = pin!(agent.get::<Json<Stop>>(limit, agent.target(&self.key, "wait")));
        let ended = match select(&mut ended, stopped).await {
            Either::Left((ended, _)) => ended,
            Either::Right((stop, _)) => match stop?.0 {
                Stop::Waiting(waits) => return Ok(Some(Outcome::Waiting(waits))),
                Stop::Paused(reason) => return Ok(Some(Outcome::Paused(reason))),
                Stop::GoesOn => return Ok(None),
                Stop::Ended => ended.await,
            },
        };
        let Json(ended) = ended.map_err(|error| self.error_of_run(error))?.into_body();
        Ok(Some(self.outcome(ended).await?))
    }

    /// Returns the outcome of a run that has ended, or `None` if it goes on.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, if there is no such run, or if it was killed by the tools of the engine.
    pub async fn peek(&self) -> Result<Option<Outcome>, Error> {
        let handle = self.handle().await?;
        let output = self.agent.request(self.agent.client.timeout, handle.output()).await;
        match output.map_err(|error| self.error_of_run(error))?.into_body() {
            Output::Ready(Json(ended)) => Ok(Some(self.outcome(ended).await?)),
            Output::NotReady => Ok(None),
        }
    }

    async fn outcome(&self, ended: Ended) -> Result<Outcome, Error> {
        let parts = match ended {
            Ended::Answer(answer) => return Ok(Outcome::Answer(answer)),
            Ended::Failed(failure) => return Ok(Outcome::Failed(failure)),
            Ended::Parts(parts) => parts,
        };
        let mut json = Vec::new();
        for part in 0..parts {
            let target = self.agent.target(&self.key, "part");
            json.extend(self.agent.call::<_, Vec<u8>>(target, part).await?);
        }
        match serde_json::from_slice(&json) {
            Ok(Ended::Answer(answer)) => Ok(Outcome::Answer(answer)),
            Ok(Ended::Failed(failure)) => Ok(Outcome::Failed(failure)),
            _ => Err(Error::new(ErrorKind::Server, "the parts of the outcome cannot be read".into())),
        }
    }

    async fn handle(&self) -> Result<ingress::InvocationHandle<Http, Json<Ended>>, Error> {
        let (agent, client) = (&self.agent, &self.agent.client);
        let lookup = client.ingress.lookup_workflow(&*agent.name, &*self.key, None);
        agent.request(client.timeout, lookup).await.map_err(|error| self.error_of_run(error))
    }

    fn error_of_run(&self, error: Error) -> Error {
        error.of_run(&self.agent.name, &self.key)
    }

    /// Returns the events of the run, if its question [asked for them](Question::events), that follow a position: 0, or the position of the
    /// last event which an earlier reader got. Any number of readers can read, at any time until the end of the retention; the run
    /// does not wait for them.
    #[must_use]
    pub fn events(&self, after: u64) -> Events {
        Events {
            run: self.clone(),
            position: after,
            received: VecDeque::new(),
            has_ended: false,
            is_over: false,
        }
    }

    /// Decides about something that the run [waits](Outcome::Waiting) for, as
    /// [in one process](tool_core::run::Run::resolve). The first decision is final, and the run goes on at once, on any worker.
    ///
    /// # Errors
    ///
    /// Fails if the run does not wait for this, if it was [decided before](Error::decided), or if the decision does not fit. The run is
    /// unchanged then.
    pub async fn resolve(&self, wait: &WaitId, decision: run::Decision) -> Result<(), Error> {
        self.decide(About::Wait(wait.clone()), decision).await
    }

    /// Decides about a call that awaits approval, by its id: a short form of [`resolve`](Self::resolve).
    ///
    /// # Errors
    ///
    /// Fails if there is no such call, if it does not await approval, or for the reasons of [`resolve`](Self::resolve).
    pub async fn resolve_approval(&self, call_id: &str, approval: Approval) -> Result<(), Error> {
        self.decide(About::Call(call_id.to_owned()), approval.into()).await
    }

    async fn decide(&self, about: About, decision: run::Decision) -> Result<(), Error> {
        let sent = Decision { about: about.clone(), decision };
        let decided = self.agent.call(self.agent.target(&self.key, "decide"), sent).await?;
        match decided {
            Json(Decided::Accepted) => Ok(()),
            Json(Decided::Before(record)) => Err(Error::already_decided(&about, record)),
        }
    }

    /// Sends a message to a run that waits for a decision: the calls that await approval are denied, questions are declined, and the
    /// model reads the message.
    ///
    /// # Errors
    ///
    /// Fails if the run does not wait.
    pub async fn say(&self, message: impl Into<Content>) -> Result<(), Error> {
        self.agent.call(self.agent.target(&self.key, "say"), message.into()).await
    }

    /// Resumes a run that [waits for an operator](Outcome::Paused).
    ///
    /// # Errors
    ///
    /// Fails if the run does not wait for an operator, or if the server cannot be reached.
    pub async fn resume(&self) -> Result<(), Error> {
        self.agent.get(self.agent.client.timeout, self.agent.target(&self.key, "resume")).await
    }

    /// Cancels the run: calls in flight are cancelled, and finished calls are undone if their tools support it.
    /// [`wait`](Self::wait) returns when this is done. A request to the model in flight is awaited first.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, or if there is no such run.
    pub async fn cancel(&self) -> Result<(), Error> {
        once_begun(|| async {
            self.peek().await?;
            self.agent.get(self.agent.client.timeout, self.agent.target(&self.key, "cancel")).await
        })
        .await
    }
}

/// Repeats a request for a run that was sent just now and waits for its first worker.
async fn once_begun<F: Future<Output = Result<(), Error>>>(request: impl Fn() -> F) -> Result<(), Error> {
    for _ in 0..50 {
        match request().await {
            Err(error) if error.kind() == ErrorKind::NotStarted => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            other => return other,
        }
    }
    request().await
}

/// A reader of the events of a run.
pub struct Events {
    run: Run,
    position: u64,
    received: VecDeque<EventRecord>,
    has_ended: bool,
    /// The run had ended when the reader last checked it.
    is_over: bool,
}

/// The time after which a reader without an event checks whether its run goes on.
const CHECK_TIME: Duration = Duration::from_secs(5);

/// The time between two requests of a reader that has read everything.
const POLL_TIME: Duration = Duration::from_millis(100);

impl Events {
    /// Returns the next event, for which it asks the server ten times a second, or `None` after the last one, or if the run ended
    /// without storing events. A run ends with [`Event::Done`] or [`Event::Failed`]; one that waits for an operator emits `Failed`, too.
    ///
    /// [`Event::Done`]: tool_core::Event::Done
    /// [`Event::Failed`]: tool_core::Event::Failed
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, if no worker lives, if there is no such run, if it was killed by the tools of the
    /// engine, or after the client's [limit](Client::wait_timeout). The reader can continue afterwards, and misses nothing.
    pub async fn next(&mut self) -> Result<Option<EventRecord>, Error> {
        let client = self.run.agent.client.clone();
        client.wait_for(self.next_event()).await
    }

    async fn next_event(&mut self) -> Result<Option<EventRecord>, Error> {
        let mut checked = Instant::now();
        loop {
            if let Some(event) = self.received.pop_front() {
                self.position = event.position;
                return Ok(Some(event));
            }
            if self.has_ended {
                return Ok(None);
            }
            let (agent, key) = (&self.run.agent, &*self.run.key);
            let target = RequestTarget::object(events_service(&agent.name), key, "read");
            let Json(page) = agent.call::<u64, Json<Page>>(target, self.position).await?;
            self.has_ended = page.is_last;
            if page.events.is_empty() && !page.is_last {
                tokio::time::sleep(POLL_TIME).await;
                if checked.elapsed() >= CHECK_TIME {
                    checked = Instant::now();
                    // The last events of a run arrive soon after its end.
                    let was_over = std::mem::replace(&mut self.is_over, self.run.peek().await?.is_some());
                    self.has_ended = was_over && self.is_over;
                }
            }
            self.received.extend(page.events);
        }
    }

    /// Returns the position of the last event that was read, after which another reader can [continue](Run::events).
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("run", &self.run)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// Returns the message of an error of the server.
pub(crate) fn message_of(body: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let message = value.as_ref().and_then(|value| value["message"].as_str());
    message.unwrap_or(body).chars().take(300).collect()
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

/// Omits the question.
impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("agent", &self.agent).field("key", &self.key).finish_non_exhaustive()
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("agent", &self.agent).field("key", &self.key).finish_non_exhaustive()
    }
}
