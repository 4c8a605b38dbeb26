//! An agent: a model, its instructions and its tools; and the drivers of its runs.

mod ask;
mod builder;
mod driver;
mod event;
mod tools;

use std::fmt;
use std::sync::Arc;

pub use self::ask::Ask;
pub use self::builder::{AgentBuilder, BuildError};
pub use self::event::{Event, EventStream};
use self::tools::AskProviders;
pub use self::tools::RunTools;
use crate::{ChatModel, Content, Message, Run, ToolChoice, ToolContext, ToolProvider, ToolSet};

/// A model with instructions and tools, which can be asked. Cloning shares it.
///
#[cfg_attr(feature = "testing", doc = "```")]
#[cfg_attr(not(feature = "testing"), doc = "```ignore")]
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
///
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("sum", r#"{"a": 2, "b": 40}"#).says("It is 42.");
/// let agent = Agent::builder(model)
///     .instructions("Use the tools for arithmetic.")
///     .tools(tools![sum])
///     .build()?;
/// let answer = agent.ask("What is 2 + 40?").await?;
/// assert_eq!(answer.text(), "It is 42.");
/// let output = answer.tool_executions()[0].output().map(ToString::to_string);
/// assert_eq!(output.as_deref(), Some("42.0"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent(Arc<Shared>);

struct Shared {
    model: Arc<dyn ChatModel>,
    instructions: Option<Content>,
    tools: ToolSet,
    providers: Vec<Box<dyn ToolProvider>>,
    ask_providers: Option<AskProviders>,
    context: ToolContext,
    tool_choice: ToolChoice,
    parallel_tool_calls: Option<bool>,
    max_turns: Option<u32>,
    max_concurrent_calls: usize,
}

impl Agent {
    /// An agent on this model.
    pub fn builder(model: impl ChatModel + 'static) -> AgentBuilder {
        AgentBuilder::new(Arc::new(model))
    }

    /// Asks; await it for the [`Answer`](crate::Answer), or call [`stream`](Ask::stream) on it for what
    /// happens on the way. Nothing happens before that.
    pub fn ask(&self, question: impl Into<Content>) -> Ask {
        Ask::new(self.clone(), question.into())
    }

    /// Drives on a run that was kept, by this agent's model and tools: it asks for what has no record yet.
    /// Await it or stream it, as a question.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::Agent;
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().fails("the line is dead").says("Good morning!")).build()?;
    /// let error = agent.ask("Hello").await.unwrap_err();
    /// let answer = agent.resume(error.into_run()).await?;
    /// assert_eq!(answer.text(), "Good morning!");
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(&self, run: Run) -> Ask {
        Ask::resume(self.clone(), run)
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &dyn ChatModel {
        &*self.0.model
    }

    /// The agent's own tools. The model is offered them, beside those of the
    /// [question](Ask::tools) and of the [providers](AgentBuilder::tool_provider).
    #[must_use]
    pub fn tools(&self) -> &ToolSet {
        &self.0.tools
    }

    /// A run of this agent: its instructions, what was said before, and the question.
    fn run(&self, history: Vec<Message>, question: Content) -> Run {
        let instructions = self.0.instructions.clone().map(Message::System);
        let messages: Vec<_> =
            instructions.into_iter().chain(history).chain([Message::User(question)]).collect();
        let run = Run::new(messages)
            .with_tool_choice(self.0.tool_choice.clone())
            .with_parallel_tool_calls(self.0.parallel_tool_calls);
        match self.0.max_turns {
            Some(turns) => run.with_max_turns(turns),
            None => run,
        }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("tools", &self.0.tools).finish_non_exhaustive()
    }
}
