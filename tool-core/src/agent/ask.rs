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
    from: Start,
    context: ToolContext,
}

/// Where the run begins.
enum Start {
    Question { question: Content, history: Vec<Message> },
    Run(Box<Run>),
}

impl Ask {
    pub(super) fn new(agent: Agent, question: Content) -> Self {
        Self { agent, from: Start::Question { question, history: Vec::new() }, context: ToolContext::new() }
    }

    pub(super) fn resume(agent: Agent, run: Run) -> Self {
        Self { agent, from: Start::Run(Box::new(run)), context: ToolContext::new() }
    }

    /// What was said before: the messages of earlier answers, oldest first. A run that is resumed has its
    /// own, and takes no other.
    pub fn history(mut self, messages: impl IntoIterator<Item = Message>) -> Self {
        if let Start::Question { history, .. } = &mut self.from {
            history.extend(messages);
        }
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

    /// The [`Run`] of this question and the context of its tools, for a caller who drives it by hand:
    /// nothing is asked yet. What it needs beside them is the agent's [`model`](Agent::model) and
    /// [`tools`](Agent::tools).
    pub fn start(self) -> (Run, ToolContext) {
        let (_, run, context) = self.into_parts();
        (run, context)
    }

    fn into_parts(self) -> (Agent, Run, ToolContext) {
        let context = self.context.or(&self.agent.0.context);
        let run = match self.from {
            Start::Question { question, history } => self.agent.run(history, question),
            Start::Run(run) => *run,
        };
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
