//! One question to an agent.

use std::any::Any;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use super::driver::{Listener, drive};
use super::{Agent, EventStream};
use crate::{Answer, Content, Message, Run, RunError, ToolContext};

/// One question to an agent. Await it, or [`stream`](Self::stream) it; dropping either cancels what is
/// under way.
#[must_use = "nothing is asked until it is awaited or streamed"]
pub struct Ask {
    agent: Agent,
    question: Content,
    history: Vec<Message>,
    context: ToolContext,
}

impl Ask {
    pub(super) fn new(agent: Agent, question: Content) -> Self {
        Self { agent, question, history: Vec::new(), context: ToolContext::new() }
    }

    /// What was said before: the messages of earlier answers, oldest first.
    pub fn history(mut self, messages: impl IntoIterator<Item = Message>) -> Self {
        self.history.extend(messages);
        self
    }

    /// Hands a value to the tools of this run; it wins over the agent's value of the same type.
    pub fn context<T: Any + Send + Sync>(mut self, value: T) -> Self {
        self.context = self.context.with(value);
        self
    }

    /// What happens on the way to the answer, as it happens: the model is asked for a streamed reply.
    #[must_use]
    pub fn stream(self) -> EventStream {
        let (agent, run, context) = self.into_parts();
        EventStream::of(|events| drive(agent, run, context, Listener::Events(events)))
    }

    /// The [`Run`] of this question, for a caller who drives it by hand: nothing is asked yet. What it
    /// needs beside it is the model, the agent's [`tools`](Agent::tools), and a [`ToolContext`].
    pub fn start(self) -> Run {
        self.into_parts().1
    }

    fn into_parts(self) -> (Agent, Run, ToolContext) {
        let context = self.context.or(&self.agent.0.context);
        let run = self.agent.run(self.history, self.question);
        (self.agent, run, context)
    }
}

impl IntoFuture for Ask {
    type Output = Result<Answer, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let (agent, run, context) = self.into_parts();
        Box::pin(drive(agent, run, context, Listener::Nobody))
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("agent", &self.agent).finish_non_exhaustive()
    }
}
