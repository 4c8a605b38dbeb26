//! A run on the workers.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use restate_sdk::ingress::{self, Output};
use restate_sdk::serde::Json;
use tool_core::agent::CommandErrorKind;
use tool_core::run::{Answer, Decision, UserMessage, Wait};
use tool_core::signatures::DecisionRecord;
use tool_core::tool::WaitId;

use super::remote_agent::RemoteAgent;
use crate::error::{Error, ErrorKind};
use crate::http::Http;
use crate::names::{self, Ended, RunFailure, Stop};
use crate::signals::WAIT_TIME;

/// The time for which a client that waits for a run tolerates that the server cannot be reached.
const PATIENCE: Duration = Duration::from_secs(60);

/// The outcome of waiting for a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "it is matched where it is created")]
pub enum RemoteOutcome {
    /// The run has an answer.
    Answer(Answer),
    /// The run waits for decisions about these: approvals, answers to questions of tools, and results of the caller. [`RemoteRun::decide`]
    /// decides. Other calls are executed meanwhile.
    Waiting(Vec<Wait>),
    /// The run waits for an operator, for this reason: the model failed for longer than [`Worker::model_patience`](crate::Worker::model_patience),
    /// or there is no money for its request. [`RemoteRun::resume`] repeats the request, and [`RemoteRun::cancel`] undoes what the run did.
    Paused(String),
    /// The run ended without an answer.
    Failed(RunFailure),
}

/// A run on the workers. Dropping it has no effect on the run.
#[derive(Clone)]
pub struct RemoteRun {
    pub(super) agent: RemoteAgent,
    pub(super) key: Arc<str>,
    pub(super) is_new: bool,
}

impl RemoteRun {
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
    pub async fn wait(&self) -> Result<RemoteOutcome, Error> {
        self.agent.client.wait_for(self.wait_for_outcome()).await
    }

    async fn wait_for_outcome(&self) -> Result<RemoteOutcome, Error> {
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
    async fn wait_once(
        &self,
        unreachable_since: &mut Option<Instant>,
    ) -> Result<Option<RemoteOutcome>, Error> {
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
            Either::Left((ended, stopped)) => {
                let ended = ended.map_err(|error| self.error_of_run(error));
                if ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::Killed) {
                    // Without a worker, the handler that waits ends once one lives.
                    let release = agent.target(&self.key, "release");
                    if agent.get::<()>(agent.client.timeout, release).await.is_ok() {
                        let _ = stopped.await;
                    }
                }
                ended
            }
            Either::Right((stop, _)) => match stop?.0 {
                Stop::Waiting(waits) => return Ok(Some(RemoteOutcome::Waiting(waits))),
                Stop::Paused(reason) => return Ok(Some(RemoteOutcome::Paused(reason))),
                Stop::GoesOn => return Ok(None),
                Stop::Ended => ended.await.map_err(|error| self.error_of_run(error)),
            },
        };
        let Json(ended) = ended?.into_body();
        Ok(Some(self.outcome(ended).await?))
    }

    /// Returns the outcome of a run that has ended, or `None` if it goes on.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, if there is no such run, or if it was killed by the tools of the engine.
    pub async fn peek(&self) -> Result<Option<RemoteOutcome>, Error> {
        let handle = self.handle().await?;
        let output = self.agent.request(self.agent.client.timeout, handle.output()).await;
        match output.map_err(|error| self.error_of_run(error))?.into_body() {
            Output::Ready(Json(ended)) => Ok(Some(self.outcome(ended).await?)),
            Output::NotReady => Ok(None),
        }
    }

    async fn outcome(&self, ended: Ended) -> Result<RemoteOutcome, Error> {
        let parts = match ended {
            Ended::Answer(answer) => return Ok(RemoteOutcome::Answer(answer)),
            Ended::Failed(failure) => return Ok(RemoteOutcome::Failed(failure)),
            Ended::Parts(parts) => parts,
        };
        let mut json = Vec::new();
        for part in 0..parts {
            let target = self.agent.target(&self.key, "part");
            json.extend(self.agent.call::<_, Vec<u8>>(target, part).await?);
        }
        match serde_json::from_slice(&json) {
            Ok(Ended::Answer(answer)) => Ok(RemoteOutcome::Answer(answer)),
            Ok(Ended::Failed(failure)) => Ok(RemoteOutcome::Failed(failure)),
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

    /// Decides about something that the run [waits](RemoteOutcome::Waiting) for, like [`Agent::decide`](tool_core::Agent::decide). The first decision
    /// is final, and the run goes on at once, on any worker.
    ///
    /// # Errors
    ///
    /// Fails if the run does not wait for this, if it was [decided before](Error::decided), if the decision does not fit, or if the
    /// application does not [let](tool_core::agent::RunSetup::may_decide) this person decide. The run is unchanged then.
    pub async fn decide(
        &self,
        wait: impl Into<WaitId>,
        decision: Decision,
    ) -> Result<DecisionReceipt, Error> {
        self.decide_all(vec![(wait.into(), decision)]).await
    }

    /// Decides about several things that the run waits for, like [`decide`](Self::decide). If one of the decisions is refused, none is
    /// recorded, unless somebody else decides in the same moment.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`decide`](Self::decide).
    pub async fn decide_all(&self, decisions: Vec<(WaitId, Decision)>) -> Result<DecisionReceipt, Error> {
        let target = self.agent.target(&self.key, "decide");
        match self.agent.call::<_, Json<names::Outcome>>(target, decisions).await {
            Ok(Json(outcome)) => outcome.map(DecisionReceipt).map_err(Error::already_decided),
            Err(error) => {
                if error.kind() == ErrorKind::UnknownWait {
                    // Fails if there is no such run.
                    self.peek().await?;
                }
                Err(error)
            }
        }
    }

    /// Says something to the run while it works, like [`Agent::say`](tool_core::Agent::say): the model reads the message in its next turn, after
    /// the results of the calls in flight. What the run waits for stays open, and the message is read once the run works again. Two messages
    /// keep their order. A worker with [local calls](crate::Worker::local_calls) looks for messages once a second, and before the run ends.
    ///
    /// # Errors
    ///
    /// Fails if there is no such run, if it has ended or was cancelled, if the message is too long, or if the run has
    /// [too many](tool_core::store::MessageVolume); decisions and cancellations are taken then, too. A message that arrives while the run ends
    /// can fail to be read: ask a new question if the answer does not take it into account.
    pub async fn say(&self, message: impl Into<UserMessage>) -> Result<(), Error> {
        let message = message.into();
        if message.bytes() > UserMessage::MAX_BYTES {
            return Err(Error::new(ErrorKind::Full, CommandErrorKind::Full.to_string()));
        }
        if self.peek().await?.is_some() {
            let message = "the run has ended and takes no more messages; ask a new question";
            return Err(Error::new(ErrorKind::Ended, message.into()));
        }
        self.agent.call_once_begun(|| self.agent.target(&self.key, "say"), &message).await
    }

    /// Resumes a run that [waits for an operator](RemoteOutcome::Paused).
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

/// Decisions that are recorded, returned by [`RemoteRun::decide`]. The run goes on by itself.
#[derive(Clone, Debug)]
pub struct DecisionReceipt(Vec<(Wait, DecisionRecord)>);

impl DecisionReceipt {
    /// Returns what was decided about, with the record of each decision.
    #[must_use]
    pub fn decisions(&self) -> &[(Wait, DecisionRecord)] {
        &self.0
    }
}

impl RemoteAgent {
    /// Returns the run with this [key](crate::RemoteAsk::key), which may have been started by another process.
    #[must_use]
    pub fn run(&self, key: impl Into<String>) -> RemoteRun {
        RemoteRun { agent: self.clone(), key: key.into().into(), is_new: false }
    }
}

impl fmt::Debug for RemoteRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteRun")
            .field("agent", &self.agent)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
