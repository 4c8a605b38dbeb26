//! A run on the workers.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use restate_sdk::ingress::{self, Output};
use restate_sdk::serde::Json;
use tool_core::Approval;
use tool_core::content::Content;
use tool_core::run::{self, Answer, Wait};
use tool_core::tool::WaitId;

use super::remote_agent::RemoteAgent;
use crate::error::{Error, ErrorKind};
use crate::http::Http;
use crate::names::{About, Decided, Decision, Ended, RunFailure, Stop};
use crate::signals::WAIT_TIME;

/// The time for which a client that waits for a run tolerates that the server cannot be reached.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// A run on the workers. Dropping it has no effect on the run.
#[derive(Clone)]
pub struct Run {
    pub(super) agent: RemoteAgent,
    pub(super) key: Arc<str>,
    pub(super) is_new: bool,
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
    /// engine, or after the client's [limit](crate::Client::wait_timeout).
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
    /// [`wait`](Self::wait) returns when this is done. A request to the model in flight is awaited first. If no worker
    /// lives, this fails with [`ErrorKind::Timeout`], and the run is cancelled as soon as one does.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, or if there is no such run.
    pub async fn cancel(&self) -> Result<(), Error> {
        self.peek().await?;
        self.agent.get(self.agent.client.timeout, self.agent.target(&self.key, "cancel")).await
    }
}

impl RemoteAgent {
    /// Returns the run with this [key](crate::Question::key), which may have been started by another process.
    #[must_use]
    pub fn run(&self, key: impl Into<String>) -> Run {
        Run { agent: self.clone(), key: key.into().into(), is_new: false }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("agent", &self.agent).field("key", &self.key).finish_non_exhaustive()
    }
}
