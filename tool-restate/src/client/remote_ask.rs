//! A question to an agent on the workers.

use std::fmt;

use restate_sdk::ingress::SendStatus;
use restate_sdk::serde::Json;
use serde::Serialize;
use tool_core::content::Content;
use tool_core::model::{ConversationId, RunUser};

use super::remote_agent::RemoteAgent;
use super::remote_run::RemoteRun;
use crate::context::type_key;
use crate::error::{Error, ErrorKind};
use crate::names::{self, is_service_name};

/// The largest question, in bytes of JSON; the server's own limit is 32 MiB.
const MAX_QUESTION_BYTES: usize = 16 * 1024 * 1024;

/// A question to an agent that runs on workers.
#[must_use = "nothing is sent until `send` is called"]
pub struct RemoteAsk {
    agent: RemoteAgent,
    key: Option<String>,
    question: names::Question,
    invalid: Option<Error>,
}

impl RemoteAsk {
    /// Sets the key of the run, which is unique among the runs of the agent: a question with the key of an earlier run is not asked
    /// again, and [`send`](Self::send) returns that run. The key is free again when the earlier run is removed, after the
    /// [retention](crate::Worker::retention): the question then starts another run. By default, each question has a key of its own.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// States whose run it is, as [`Ask::user`](tool_core::agent::Ask::user) does: workers ask the agent's
    /// [`RunSetup`](tool_core::agent::RunSetup) what follows from it, in each step.
    pub fn user(mut self, id: impl Into<RunUser>) -> Self {
        self.question.user = Some(id.into());
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

    /// Stores the events of the run, for [`RemoteRun::events`].
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
    pub async fn send(self) -> Result<RemoteRun, Error> {
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
            agent.call_once_begun(|| agent.target(&key, "compare"), &digest).await?;
        }
        Ok(RemoteRun { agent, key: key.into(), is_new })
    }
}

impl RemoteAgent {
    /// Asks a question. Nothing is sent until [`RemoteAsk::send`].
    pub fn ask(&self, question: impl Into<Content>) -> RemoteAsk {
        let question = names::Question {
            question: question.into(),
            user: None,
            conversation: None,
            context: Default::default(),
            events: false,
        };
        RemoteAsk { agent: self.clone(), key: None, question, invalid: None }
    }
}

/// Omits the question.
impl fmt::Debug for RemoteAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteAsk")
            .field("agent", &self.agent)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
