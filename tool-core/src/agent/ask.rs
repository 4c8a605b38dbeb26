//! One question to an agent.

use std::any::Any;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use super::observers::Observers;
use super::tools::RunTools;
use crate::agent::{Agent, Approver, Event, EventStream, RunDriver};
use crate::content::Content;
use crate::model::{ConversationId, Message, ModelOptions, ResponseFormat};
use crate::run::{Answer, Run, RunError, RunLimits};
use crate::tool::{CancellationToken, ToolContext};
use crate::toolset::{ToolSet, ToolSetError};
use std::sync::Arc;

/// One question to an agent. Await it, or [`stream`](Self::stream) it; dropping either cancels what is
/// under way.
#[must_use = "nothing is asked until it is awaited or streamed"]
pub struct Ask {
    agent: Agent,
    from: Start,
    context: ToolContext,
    tools: Result<ToolSet, ToolSetError>,
    limits: Option<RunLimits>,
    observers: Observers,
    cancelled_by: Option<CancellationToken>,
    approver: Option<Arc<dyn Approver>>,
    response_format: Option<ResponseFormat>,
    options: ModelOptions,
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
        let observers = Observers { hooks: agent.0.hooks.clone(), stream: None };
        let approver = agent.0.approver.clone();
        let (context, limits, cancelled_by) = (ToolContext::new(), None, None);
        Self {
            agent,
            from,
            context,
            tools,
            limits,
            observers,
            cancelled_by,
            approver,
            response_format: None,
            options: ModelOptions::default(),
        }
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
    /// let run = agent.ask("Hello").conversation("user-7/support").start();
    /// assert_eq!(run.state().conversation(), Some(&ConversationId::new("user-7/support")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn conversation(self, id: impl Into<ConversationId>) -> Self {
        self.context(id.into())
    }

    /// What the model's answer must look like; only a model that
    /// [supports it](crate::ChatModel::supports_response_format) is held to it. [`answer_as`](Self::answer_as) does this and
    /// more.
    pub fn response_format(mut self, format: ResponseFormat) -> Self {
        self.response_format = Some(format);
        self
    }

    /// How the model is to answer; what is unset here is as the agent says.
    pub fn options(mut self, options: ModelOptions) -> Self {
        self.options = options;
        self
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    /// How far the run may go, in place of what the agent says.
    pub fn limits(mut self, limits: RunLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Hears of every event of this run, as it happens and in the thread where it happens: so it must not block. The
    /// pieces of a reply are told only if the run is streamed.
    pub fn on_event(mut self, hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.observers.hooks.push(Arc::new(hook));
        self
    }

    /// Approves the calls of this run, in the place of the agent's [approver](crate::AgentBuilder::approver).
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Lets the run be cancelled from elsewhere: it ends with an error that carries what was done, and what was done is
    /// undone by the tools that can.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, CancellationToken};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().says("Good morning!")).build()?;
    /// let cancellation = CancellationToken::new();
    /// let ask = agent.ask("Hello").cancelled_by(&cancellation);
    /// cancellation.cancel(); // from any thread
    /// assert!(ask.await.unwrap_err().is_cancelled());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancelled_by(mut self, cancellation: &CancellationToken) -> Self {
        self.cancelled_by = Some(cancellation.clone());
        self
    }

    /// What happens on the way to the answer, as it happens: the model is asked for a streamed reply.
    #[must_use]
    pub fn stream(mut self) -> EventStream {
        EventStream::of(|events| {
            self.observers.stream = Some(events);
            self.start().drive()
        })
    }

    /// The model may be offered tools.
    pub(super) fn may_have_tools(&self) -> bool {
        let has_some = self.tools.as_ref().is_ok_and(|tools| !tools.is_empty());
        has_some || !self.agent.0.tools.is_empty() || !self.agent.0.providers.is_empty()
    }

    /// The run of this question, for a caller who drives it by hand: nothing is asked yet. All that the agent and the
    /// question say holds for it.
    pub fn start(self) -> RunDriver {
        let run = match self.from {
            Start::Question { question, history } => self.agent.run(history, question),
            Start::Run(run) => *run,
        };
        let run = match self.limits {
            Some(limits) => run.with_limits(limits),
            None => run,
        };
        let run = match self.response_format {
            Some(format) => run.with_response_format(format),
            None => run,
        };
        let options = self.options.or(run.options());
        let run = run.with_options(options);
        let id = |context: &ToolContext| context.provided::<ConversationId>().cloned();
        // What the question says, then what the run remembers, then what the agent says.
        let conversation = id(&self.context).or_else(|| run.conversation().cloned());
        let conversation = conversation.or_else(|| id(&self.agent.0.context));
        let conversation = conversation.unwrap_or_else(ConversationId::unique);
        let context = self.context.with_defaults(&self.agent.0.context).with(conversation.clone());
        let run = run.with_conversation(conversation);
        let tools = RunTools::new(self.agent, context, self.tools);
        RunDriver::new(run, tools, self.observers, self.cancelled_by, self.approver)
    }
}

impl IntoFuture for Ask {
    type Output = Result<Answer, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start().drive())
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("agent", &self.agent).finish_non_exhaustive()
    }
}
