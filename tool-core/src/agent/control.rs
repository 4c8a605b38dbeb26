//! How an agent keeps its runs under control: limits, errors, approval, undoing, hooks.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::{AgentBuilder, Approver, Event, Turn};
use crate::memory::{ChatMemory, RunStore};
use crate::model::{ModelOptions, ToolCall};
use crate::run::{ErrorPolicy, RunLimits};
use crate::tool::{ToolError, ToolErrorKind, ToolOutput};
use crate::toolset::ToolSet;

impl AgentBuilder {
    /// How far a run may go. A run that would go further ends with an error that carries all that was done.
    #[must_use]
    pub fn limits(mut self, limits: RunLimits) -> Self {
        self.agent.limits = limits;
        self
    }

    /// How often the model is asked in one run at most; 10 unless it is set, and at least 1.
    #[must_use]
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.agent.limits.turns = turns;
        self
    }

    /// How many calls the model may ask for in one run; a turn that would go beyond runs none of its calls.
    #[must_use]
    pub fn max_calls(mut self, calls: u32) -> Self {
        self.agent.limits.calls = Some(calls);
        self
    }

    /// How many tokens one run may use, read and written.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.agent.limits.tokens = Some(tokens);
        self
    }

    /// How long one run may be under way; the time in which it waits for a person does not count. What is under way
    /// then is dropped, for which tokio's timers are needed; without them the time is looked at between two steps.
    #[must_use]
    pub fn max_time(mut self, time: Duration) -> Self {
        self.agent.limits.time = Some(time);
        self
    }

    /// How many bytes of text all calls of one run may give back together.
    #[must_use]
    pub fn max_run_output_chars(mut self, bytes: usize) -> Self {
        self.agent.limits.output = Some(bytes);
        self
    }

    /// How often a call of one name with the same arguments is made in a run; 3 unless it is set. After that the model
    /// is told in place of the call, and after as many times again the run ends.
    #[must_use]
    pub fn max_repeated_calls(mut self, calls: u32) -> Self {
        self.agent.limits.repeated_calls = calls;
        self
    }

    /// How many calls of one turn run at once; 8 unless it is set, and at least 1.
    #[must_use]
    pub fn max_concurrent_calls(mut self, calls: usize) -> Self {
        self.agent.max_concurrent_calls = calls.max(1);
        self
    }

    /// How long each call may take; a tool's own `timeout` is looked at besides. It needs tokio's timers, and cannot end
    /// a tool that does not await anything.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.agent.call_timeout = Some(timeout);
        self
    }

    /// What is done about calls that fail in this way; unless it is set, the model is told. Of calls that were [not
    /// made](ToolErrorKind::NotExecuted) it always is.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, ErrorPolicy, ToolErrorKind, tool, tools};
    ///
    /// #[tool("Looks up an order")]
    /// fn order(id: u32) -> Result<String, String> {
    ///     Err(format!("no row {id} in shop.orders at 10.0.0.7"))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("order", r#"{"id": 7}"#).says("That did not work.");
    /// let agent = Agent::builder(model)
    ///     .tools(tools![order])
    ///     .on_error(ToolErrorKind::Failed, ErrorPolicy::Hide)
    ///     .on_error(ToolErrorKind::Panicked, ErrorPolicy::EndRun)
    ///     .build()?;
    /// let answer = agent.ask("Where is order 7?").await?;
    /// let error = answer.tool_executions()[0].outcome().unwrap_err();
    /// assert_eq!(error.to_string(), "the tool failed (reference call_1_0)"); // what the model reads
    /// assert_eq!(error.failure().unwrap().to_string(), "no row 7 in shop.orders at 10.0.0.7");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_error(mut self, kind: ToolErrorKind, on_error: ErrorPolicy) -> Self {
        self.agent.on_error.set(kind, on_error);
        self
    }

    /// Answers in the place of calls that failed: with an output, which the model reads as the tool's, or with another
    /// error. `None` leaves the error as it is. It hears of a call once, after its last attempt.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, ToolErrorKind, ToolOutput};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("google", r#"{"q": "rust"}"#).says("I cannot search.");
    /// let agent = Agent::builder(model)
    ///     .on_tool_error(|call, error| {
    ///         let is_unknown = error.kind() == ToolErrorKind::UnknownTool;
    ///         is_unknown.then(|| Ok(ToolOutput::text(format!("`{}` is switched off", call.name))))
    ///     })
    ///     .build()?;
    /// let answer = agent.ask("What is Rust?").await?;
    /// assert_eq!(answer.messages()[2].text(), "`google` is switched off");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_tool_error(
        mut self,
        handler: impl Fn(&ToolCall, &ToolError) -> Option<Result<ToolOutput, ToolError>> + Send + Sync + 'static,
    ) -> Self {
        self.agent.on_tool_error = Some(Box::new(handler));
        self
    }

    /// Lets a person approve the calls for which this holds, beside those of tools that say so themselves.
    ///
    /// What it reads of the arguments it should read with [`ToolCall::arguments_as`], as the tool does, and hold for those
    /// that cannot be read: the text is a model's, and a tool may still make sense of it.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::schemars::JsonSchema;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Pays somebody")]
    /// fn pay(to: String, euros: u32) {}
    ///
    /// #[derive(serde::Deserialize, JsonSchema)]
    /// struct Payment {
    ///     euros: u32,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("pay", r#"{"to": "Ada", "euros": "900"}"#);
    /// let agent = Agent::builder(model)
    ///     .tools(tools![pay])
    ///     .needs_approval(|call| {
    ///         let is_small = |payment: Payment| payment.euros <= 500;
    ///         call.name == "pay" && !call.arguments_as().is_ok_and(is_small)
    ///     })
    ///     .build()?;
    /// assert!(agent.ask("Pay Ada").await.unwrap_err().is_approval_needed());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn needs_approval(mut self, needs: impl Fn(&ToolCall) -> bool + Send + Sync + 'static) -> Self {
        self.agent.needs_approval = Some(Box::new(needs));
        self
    }

    /// Approves calls while the run is under way. Without one, a run with nothing else left to do
    /// [ends for now](crate::RunError::is_approval_needed), and is resumed when a person has decided.
    #[must_use]
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.agent.approver = Some(Arc::new(approver));
        self
    }

    /// Tools that undo what others did, and are not offered to the model. A tool that is offered may undo others, too.
    #[must_use]
    pub fn undo_tools(mut self, tools: impl Into<ToolSet>) -> Self {
        self.undo_tools.push(tools.into());
        self
    }

    /// How the model is to answer: its temperature, how much it may write. A [`Turn`] may change it.
    #[must_use]
    pub fn options(mut self, options: ModelOptions) -> Self {
        self.agent.options = options;
        self
    }

    /// Looks at each turn before the model is asked, and may change for this turn how it is to answer and which tools it
    /// is offered. It is called again if the model is asked again in one turn, as after a failure; and if a run is
    /// resumed in the middle of a turn, as its calls are looked up in the tools that the turn has.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, ToolSet, Turn, tool, tools};
    ///
    /// #[tool("Searches the web")]
    /// fn search(query: String) -> String {
    ///     query
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new()
    ///     .expects(|request| request.tools().len() == 1)
    ///     .calls("search", r#"{"query": "rust"}"#)
    ///     .expects(|request| request.tools().is_empty() && request.options().temperature == Some(0.0))
    ///     .says("Found.");
    /// let agent = Agent::builder(model)
    ///     .tools(tools![search])
    ///     .before_turn(|turn: &mut Turn<'_>| {
    ///         if turn.number() > 1 {
    ///             turn.tools = ToolSet::default(); // what was found has to do
    ///             turn.options.temperature = Some(0.0);
    ///         }
    ///     })
    ///     .build()?;
    /// agent.ask("What is Rust?").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn before_turn(mut self, hook: impl Fn(&mut Turn<'_>) + Send + Sync + 'static) -> Self {
        self.agent.before_turn = Some(Box::new(hook));
        self
    }

    /// Remembers conversations: what was said before in the [conversation](crate::Ask::conversation) of a question is put in
    /// front of it, and what the run added is kept when it has an answer, whole or not at all. Two questions in one
    /// conversation are asked one after the other.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, ChatMemory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new()
    ///     .says("Nice to meet you, Ada.")
    ///     .expects(|request| request.messages().len() == 3)
    ///     .says("You are Ada.");
    /// let agent = Agent::builder(model).memory(ChatMemory::in_memory()).build()?;
    /// agent.ask("I am Ada.").conversation("user-7").await?;
    /// agent.ask("Who am I?").conversation("user-7").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn memory(mut self, memory: ChatMemory) -> Self {
        self.agent.memory = Some(memory);
        self
    }

    /// Keeps each run under its [id](crate::RunId) while it is under way: before a call is made, and when something came
    /// of it. A run that was interrupted with its process, or waits for a person, is taken from the store and
    /// [resumed](crate::Agent::resume), and makes no call again whose outcome is kept. One that is over is removed.
    #[must_use]
    pub fn run_store(mut self, store: impl RunStore + 'static) -> Self {
        self.agent.run_store = Some(Box::new(store));
        self
    }

    /// Hears of every event of every run, as it happens and in the thread where it happens: so it must not block. The
    /// pieces of a reply are told only if the run is streamed.
    #[must_use]
    pub fn on_event(mut self, hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.agent.hooks.push(Arc::new(hook));
        self
    }
}
