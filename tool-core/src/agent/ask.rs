//! One question to an agent.

use std::any::Any;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use super::driver::{Listener, drive};
use super::tools::RunTools;
use super::{Agent, EventStream};
use crate::{Answer, Content, ConversationId, Message, Run, RunError, ToolContext, ToolSet, ToolSetError};

/// One question to an agent. Await it, or [`stream`](Self::stream) it; dropping either cancels what is
/// under way.
#[must_use = "nothing is asked until it is awaited or streamed"]
pub struct Ask {
    agent: Agent,
    from: Start,
    context: ToolContext,
    tools: Result<ToolSet, ToolSetError>,
}

/// Where the run begins.
enum Start {
    Question { question: Content, history: Vec<Message> },
    Run(Box<Run>),
}

impl Ask {
    pub(super) fn new(agent: Agent, question: Content) -> Self {
        Self::from(agent, Start::Question { question, history: Vec::new() })
    }

    pub(super) fn resume(agent: Agent, run: Run) -> Self {
        Self::from(agent, Start::Run(Box::new(run)))
    }

    fn from(agent: Agent, from: Start) -> Self {
        let tools = Ok(agent.0.tools.clone());
        Self { agent, from, context: ToolContext::new(), tools }
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

    /// Offers more tools to the model, for this question only, beside the agent's own. A run that is resumed
    /// needs them again.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Sums two numbers")]
    /// fn sum(a: f64, b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("sum", r#"{"a": 2, "b": 40}"#).says("It is 42.");
    /// let agent = Agent::builder(model).build()?;
    /// let answer = agent.ask("What is 2 + 40?").tools(tools![sum]).await?;
    /// assert_eq!(answer.tool_executions().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If one of them has a name that the agent's tools have, the run ends at once with an error that
    /// [`is_tools`](RunError::is_tools).
    pub fn tools(mut self, tools: impl Into<ToolSet>) -> Self {
        self.tools = self.tools.and_then(|earlier| earlier.union(&tools.into()));
        self
    }

    /// Which conversation the question belongs to: tools have the id injected, and providers of tools may
    /// choose by it. Without it, the question has a conversation of its own, or that of the run which is
    /// resumed.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, ConversationId};
    ///
    /// # fn main() -> Result<(), tool_core::BuildError> {
    /// let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// let (run, _) = agent.ask("Hello").conversation("user-7/support").start();
    /// assert_eq!(run.conversation(), Some(&ConversationId::new("user-7/support")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn conversation(self, id: impl Into<ConversationId>) -> Self {
        self.context(id.into())
    }

    /// What happens on the way to the answer, as it happens: the model is asked for a streamed reply.
    #[must_use]
    pub fn stream(self) -> EventStream {
        let (run, tools) = self.into_parts();
        EventStream::of(|events| drive(tools, run, Listener::Events(events)))
    }

    /// The [`Run`] of this question and the context of its tools, for a caller who drives it by hand:
    /// nothing is asked yet. What it needs beside them is the agent's [`model`](Agent::model) and
    /// [`tools`](Agent::tools). With [`tools`](Self::tools) of the question or providers of tools,
    /// [`start_with_tools`](Self::start_with_tools) is the one to call.
    pub fn start(self) -> (Run, ToolContext) {
        let (run, context, _) = self.start_with_tools();
        (run, context)
    }

    /// The same as [`start`](Self::start), with what gives the tools of each turn: the agent's, those of the
    /// question and those of the providers, checked against the context.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, Step, tool, tools};
    ///
    /// #[tool("Sums two numbers")]
    /// fn sum(a: f64, b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("sum", r#"{"a": 2, "b": 40}"#).says("It is 42.");
    /// let agent = Agent::builder(model).build()?;
    /// let (mut run, context, mut run_tools) =
    ///     agent.ask("What is 2 + 40?").tools(tools![sum]).start_with_tools();
    /// let answer = loop {
    ///     let tools = run_tools.of_turn(&run).await?;
    ///     match run.next(tools.definitions()) {
    ///         Step::CallModel(request) => run.replied(agent.model().chat(&request).await?)?,
    ///         Step::CallTools(calls) => {
    ///             for call in calls {
    ///                 run.called(tools.execute(call, &context).await)?;
    ///             }
    ///         }
    ///         _ => break run.finish()?,
    ///     }
    /// };
    /// assert_eq!(answer.text(), "It is 42.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_with_tools(self) -> (Run, ToolContext, RunTools) {
        let (run, tools) = self.into_parts();
        (run, tools.context().clone(), tools)
    }

    fn into_parts(self) -> (Run, RunTools) {
        let run = match self.from {
            Start::Question { question, history } => self.agent.run(history, question),
            Start::Run(run) => *run,
        };
        let id = |context: &ToolContext| context.given::<ConversationId>().cloned();
        // What the question says, then what the run remembers, then what the agent says.
        let conversation = id(&self.context).or_else(|| run.conversation().cloned());
        let conversation = conversation.or_else(|| id(&self.agent.0.context));
        let conversation = conversation.unwrap_or_else(ConversationId::unique);
        let context = self.context.or(&self.agent.0.context).with(conversation.clone());
        (run.with_conversation(conversation), RunTools::new(self.agent, context, self.tools))
    }
}

impl IntoFuture for Ask {
    type Output = Result<Answer, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let (run, tools) = self.into_parts();
        Box::pin(drive(tools, run, Listener::Nobody))
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("agent", &self.agent).finish_non_exhaustive()
    }
}
