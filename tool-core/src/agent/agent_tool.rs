//! Agents as tools of other agents.
//!
//! An agent behind a wrapper is found by `Tool::wrapped`, because the driver has to know which agent it begins.
//!
//! A tool that asks an agent in its own body has other effects, which nothing could continue: that agent runs to its end inside the call.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer_parser::AnswerParser;
use super::performer::AskedInside;
use super::question::AskedQuestion;
use super::replay::without_clock;
use crate::agent::Agent;
use crate::arguments::{Contract, Mode, Repair};
use crate::model::{ConversationId, RunUser, ToolDefinition, ToolKind, ToolPolicy};
use crate::run::{Run, RunLimits};
use crate::schema::{arguments_schema, arguments_schema_for_providers};
use crate::tool::{
    AnswerType, Injectable, Injection, Tool, ToolArguments, ToolContext, ToolError, ToolOutput,
    arguments_contract, decode_arguments,
};

impl Agent {
    /// Turns the agent into a tool of another. Each call asks the agent a question, and its answer is the output of the call.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::run::Decision;
    /// use tool_core::{Agent, RunErrorKind, tool, tools};
    ///
    /// #[tool("Refunds an invoice", needs_approval)]
    /// fn refund(invoice: u32, #[inject] customer: &Customer) -> String {
    ///     format!("refunded {invoice} to {}", customer.0)
    /// }
    ///
    /// struct Customer(&'static str);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("refund", r#"{"invoice": 7}"#).says("Invoice 7 is refunded.");
    /// let billing = Agent::builder(model).tools(tools![refund]).build()?;
    ///
    /// let model = ScriptedModel::new().calls("billing", r#"{"question": "Refund invoice 7"}"#).says("Done.");
    /// let desk = Agent::builder(model)
    ///     .tools(billing.as_tool("billing", "Answers questions about invoices and refunds").pass_context::<Customer>().limits(|l| l.max_turns(5)))
    ///     .context(Customer("Ada"))
    ///     .build()?;
    ///
    /// // A call of the inner agent pauses the outer run. Its state contains the inner run.
    /// let error = desk.ask("I want my money back").await.unwrap_err();
    /// assert!(matches!(error.kind(), RunErrorKind::Waiting));
    /// let state = serde_json::to_string(error.run())?;
    ///
    /// // Later, in another process:
    /// let mut run: tool_core::run::Run = serde_json::from_str(&state)?;
    /// let wait = run.waits().remove(0);
    /// assert_eq!((&*wait.tool, &*wait.path), ("refund", "call_1_0/call_1_0"));
    /// run.resolve(&wait.id, Decision::approve())?;
    /// let answer = desk.resume(run).await?;
    /// let inner = &answer.inner_runs()[0];
    /// assert_eq!((inner.agent(), &*inner.run().messages()[2].text()), ("billing", "refunded 7 to Ada"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The run of the agent, the inner run, is part of the state of the outer run:
    ///
    /// - **State.** It is serialized and [stored](crate::agent::AgentBuilder::run_store) with the outer run before each of its steps that
    ///   has effects, and continues where it was when the outer run is resumed. The agent's own run store is not used.
    /// - **Approval.** The agent's [decider](crate::agent::AgentBuilder::decider) decides about its calls; without one, the outer run pauses
    ///   once the other calls of the turn have finished. What they wait for is among the outer run's [waits](crate::run::Run::waits), with the
    ///   [path](crate::run::Wait::path) of the call.
    /// - **Limits.** Its tokens, calls and time count for the limits of the outer run, unless it has [limits of its
    ///   own](crate::agent::AgentTool::own_limits). A time limit for calls is one of the inner run.
    /// - **Undo.** If the outer run fails, the agent undoes the calls of the inner run, in their place in the reverse order. If the inner
    ///   run fails, it undoes its own calls, and the outer model reads why there is no answer.
    /// - **Failures.** If the agent's model or memory fails, the outer run returns with that error and can be resumed.
    /// - **Cancellation** of the outer run cancels the inner one.
    /// - **Context.** The agent's tools receive the values of the agent, and of the outer context only values of the types that
    ///   [`pass_context`](crate::agent::AgentTool::pass_context) names.
    /// - **Depth.** Agents can be nested up to the outermost run's [`max_depth`](crate::run::RunLimits#structfield.max_depth).
    /// - **Events** of the agent are [`Event::Agent`](crate::Event::Agent) of the outer run.
    ///   [`Answer::inner_runs`](crate::Answer::inner_runs) has the messages, executions and tokens.
    ///
    /// Outside a run, for example over another protocol or if a caller executes the calls of a [`Run`](crate::run::Run) without a
    /// [`RunDriver`](crate::agent::RunDriver), a call drives the inner run to its end. If the run has to wait, the call fails, and the run's calls are
    /// undone. The same holds for a tool that calls this one in its own body: the run is no part of the outer run's.
    /// Without a driver, the calls of a run that has ended are not undone, and an agent that undoes calls of other tools is not
    /// asked.
    pub fn as_tool(&self, name: impl Into<String>, description: impl Into<String>) -> AgentTool {
        let tool = AgentTool {
            definition: ToolDefinition::new(name)
                .with_kind(ToolKind::Agent)
                .with_parameters(arguments_schema_for_providers(arguments_schema::<PlainQuestion>()).0)
                .with_description(description),
            agent: self.clone(),
            passed: Vec::new(),
            injections: Vec::new(),
            limits: self.0.limits.clone(),
            has_own_limits: false,
            has_conversation: false,
            streams_text: false,
            form: Arc::new(Plain(arguments_contract::<PlainQuestion>())),
        };
        tool.with_injections()
    }
}

/// An agent as a tool of another; created by [`Agent::as_tool`].
#[derive(Clone)]
#[must_use = "pass it to `AgentBuilder::tool`"]
pub struct AgentTool {
    pub(super) definition: ToolDefinition,
    agent: Agent,
    /// The types of the values that the context of the inner run takes from the outer one.
    passed: Vec<(TypeId, Injection)>,
    /// The context that the outer run must have for the inner one.
    pub(super) injections: Vec<Injection>,
    limits: RunLimits,
    pub(super) has_own_limits: bool,
    pub(super) has_conversation: bool,
    pub(super) streams_text: bool,
    pub(super) form: Arc<dyn Form>,
}

impl AgentTool {
    /// Passes the value of this type in the outer run's context to the tools of the agent. No other value is passed. A run whose
    /// context lacks it is refused before a request is sent to the model, unless the agent has a value of its own.
    pub fn pass_context<T: Injectable>(mut self) -> Self {
        self.passed.push((TypeId::of::<T>(), Injection::new::<T>()));
        self.with_injections()
    }

    fn with_injections(mut self) -> Self {
        let own = &self.agent.0.context;
        let passed = || self.passed.iter().map(|(_, injection)| *injection);
        let is_passed = |needed: &&Injection| passed().any(|one| one.type_name() == needed.type_name());
        let tools = self.agent.0.tools.iter().chain(self.agent.0.undo_tools.iter());
        let needed = tools.flat_map(|tool| tool.injections().unwrap_or_default());
        let missing = needed.filter(|needed| needed.is_missing_in(own) && !is_passed(needed));
        let missing = missing.filter_map(|needed| match needed.type_name() == type_name::<RunUser>() {
            // Every run inside has the user.
            true => Some(*needed),
            // What the application gives a run is checked when that run begins.
            false if self.agent.0.run_setup.is_some() => None,
            false => Some(needed.never_available()),
        });
        self.injections = passed().filter(|injection| injection.is_missing_in(own)).chain(missing).collect();
        self
    }

    /// Changes the limits of each inner run, which are the agent's. Its tokens and calls count for the limits of the outer run, too, unless
    /// these are its [own](Self::own_limits).
    pub fn limits(mut self, change: impl FnOnce(RunLimits) -> RunLimits) -> Self {
        self.limits = change(self.limits);
        self
    }

    /// Separates the limits of each inner run from the outer run's: its tokens and calls do not count there, and its time only while other
    /// calls are in flight.
    pub fn own_limits(mut self) -> Self {
        self.has_own_limits = true;
        self
    }

    /// Gives the agent a conversation of its own in its [memory](crate::agent::AgentBuilder::memory), so that it remembers earlier
    /// calls in the same outer conversation. Its id [derives from the outer one and this agent](ConversationId::of_agent). Without
    /// this, the agent reads and stores no history.
    pub fn own_conversation(mut self) -> Self {
        self.has_conversation = true;
        self
    }

    /// Streams the replies of the agent, too, if the outer run is streamed. By default, a stream contains the agent's other
    /// events, but not the deltas of its text.
    pub fn stream_text(mut self) -> Self {
        self.streams_text = true;
        self
    }

    /// Sets the policy for the calls of the tool.
    pub fn policy(mut self, policy: ToolPolicy) -> Self {
        self.definition = self.definition.with_policy(policy);
        self
    }

    /// Gives the tool arguments and a result of these types. The agent reads the arguments as JSON, and its answer is parsed as
    /// with [`Ask::answer_as`](crate::agent::Ask::answer_as).
    ///
    /// ```
    /// use schemars::JsonSchema;
    /// use serde::{Deserialize, Serialize};
    /// use tool_core::Agent;
    /// use tool_core::testing::ScriptedModel;
    ///
    /// #[derive(Serialize, Deserialize, JsonSchema)]
    /// struct Question {
    ///     invoice: u32,
    /// }
    ///
    /// #[derive(Serialize, Deserialize, JsonSchema)]
    /// struct Report {
    ///     is_paid: bool,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("final_answer", r#"{"is_paid": true}"#);
    /// let billing = Agent::builder(model).build()?;
    /// let model = ScriptedModel::new().calls("billing", r#"{"invoice": "7"}"#).says("It is paid.");
    /// let desk = Agent::builder(model)
    ///     .tools(billing.as_tool("billing", "Reports on an invoice").typed::<Question, Report>())
    ///     .build()?;
    /// let answer = desk.ask("Is invoice 7 paid?").await?;
    /// assert_eq!(answer.inner_runs()[0].run().new_messages()[0].text(), r#"{"invoice":7}"#);
    /// assert_eq!(answer.new_messages()[2].text(), r#"{"is_paid":true}"#);
    /// # Ok(())
    /// # }
    /// ```
    pub fn typed<Q: ToolArguments + Serialize, R: AnswerType + Serialize>(mut self) -> Self {
        let (parameters, _) = arguments_schema_for_providers(arguments_schema::<Q>());
        self.definition = self.definition.with_parameters(parameters);
        let contract = arguments_contract::<Q>();
        self.form = Arc::new(Typed {
            contract,
            parser: AnswerParser::<R>::new(),
            question: PhantomData::<fn() -> Q>,
        });
        self
    }

    /// Returns this tool of another agent, which is a copy of its own.
    pub(super) fn with_agent(self, agent: Agent) -> Self {
        let limits = if agent.0.stand_in.is_some() { without_clock(self.limits) } else { self.limits };
        Self { agent, limits, ..self }
    }

    /// Returns the agent.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns `true` if the agent has a [conversation of its own](Self::own_conversation) in its memory.
    #[must_use]
    pub fn has_conversation(&self) -> bool {
        self.has_conversation && self.agent.memory().is_some()
    }

    /// Returns how a call of no run asks the agent.
    pub(super) fn asked(&self) -> AskedInside {
        let (has_own_limits, has_conversation) = (self.has_own_limits, self.has_conversation);
        AskedInside { call: None, levels: None, has_own_limits, has_conversation }
    }

    /// Returns what the agent takes from the context of the outer run.
    fn context_inside(&self, outer: &ToolContext) -> ToolContext {
        let of_question = [TypeId::of::<RunUser>(), TypeId::of::<ConversationId>()];
        let passed = self.passed.iter().map(|(type_id, _)| *type_id);
        outer.only(&passed.chain(of_question).collect::<Vec<_>>())
    }

    /// Returns the tool of an agent that this one is or wraps.
    pub(super) fn of(mut tool: &dyn Tool) -> Option<&Self> {
        loop {
            let any: &dyn Any = tool;
            match any.downcast_ref() {
                Some(agent) => return Some(agent),
                None => tool = tool.wrapped()?,
            }
        }
    }

    /// Returns the question for the agent of a call with this context, within a time limit.
    pub(super) fn question(
        &self,
        text: String,
        timeout: Option<Duration>,
        outer: &ToolContext,
    ) -> AskedQuestion {
        let mut question = self.constrained(AskedQuestion::new(self.agent.clone(), text.into()), outer);
        let mut limits = self.limits.clone();
        if let Some(timeout) = timeout {
            limits.max_time = Some(limits.max_time.map_or(timeout, |limit| limit.min(timeout)));
        }
        question.limits = Some(limits);
        question
    }

    /// Returns the question with which a call with this context continues the run of the agent.
    pub(super) fn resume(&self, run: Run, outer: &ToolContext) -> AskedQuestion {
        self.constrained(AskedQuestion::resume(self.agent.clone(), run), outer)
    }

    fn constrained(&self, mut question: AskedQuestion, outer: &ToolContext) -> AskedQuestion {
        question.tools.context = self.context_inside(outer);
        self.form.constrain(&mut question);
        question
    }
}

/// Shows only the name of the tool.
impl fmt::Debug for AgentTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AgentTool").field(&self.definition.name()).finish()
    }
}

/// The forms of the question and of the answer.
pub(super) trait Form: Send + Sync {
    /// Reads the question from the arguments.
    fn question(&self, arguments: &str, mode: Mode) -> Result<(String, Vec<Repair>), ToolError>;

    /// Constrains the answer.
    fn constrain(&self, question: &mut AskedQuestion);

    /// Converts the answer into the output, or returns what is wrong with it.
    fn output(&self, answer: &str) -> Result<ToolOutput, String>;

    /// Returns the output of an answer that the provider truncated, from the output of its text.
    fn truncated(&self, output: ToolOutput, text: &str) -> Result<ToolOutput, ToolError>;
}

/// The arguments of an agent that takes any question.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Question")]
struct PlainQuestion {
    /// The question or task, with everything that is needed to answer it.
    question: String,
}

/// Takes a text and answers with a text.
struct Plain(Contract);

impl Form for Plain {
    fn question(&self, arguments: &str, mode: Mode) -> Result<(String, Vec<Repair>), ToolError> {
        let (PlainQuestion { question }, repairs) = decode_arguments(arguments, &self.0, mode)?;
        Ok((question, repairs))
    }

    fn constrain(&self, _: &mut AskedQuestion) {}

    fn output(&self, answer: &str) -> Result<ToolOutput, String> {
        Ok(ToolOutput::text(answer))
    }

    fn truncated(&self, _: ToolOutput, text: &str) -> Result<ToolOutput, ToolError> {
        if text.trim().is_empty() {
            Err(ToolError::failed("the agent gave no answer: it was cut off"))
        } else {
            Ok(ToolOutput::text(format!("{text}\n\n(the answer was cut off here)")))
        }
    }
}

/// Takes arguments and gives an answer of these types.
struct Typed<Q, R> {
    contract: Contract,
    parser: AnswerParser<R>,
    question: PhantomData<fn() -> Q>,
}

impl<Q: ToolArguments + Serialize, R: AnswerType + Serialize> Form for Typed<Q, R> {
    fn question(&self, arguments: &str, mode: Mode) -> Result<(String, Vec<Repair>), ToolError> {
        let (question, repairs) = decode_arguments::<Q>(arguments, &self.contract, mode)?;
        Ok((serde_json::to_string(&question).map_err(ToolError::failed)?, repairs))
    }

    fn constrain(&self, question: &mut AskedQuestion) {
        self.parser.constrain(question, false);
    }

    fn output(&self, answer: &str) -> Result<ToolOutput, String> {
        let report = self.parser.parse(answer)?;
        serde_json::to_string(&report).map(ToolOutput::text).map_err(|error| error.to_string())
    }

    fn truncated(&self, output: ToolOutput, text: &str) -> Result<ToolOutput, ToolError> {
        // The text was read, so these are closed. The beginning of a number or a word can be another one.
        if text.trim_start().starts_with(['{', '[', '"', '`']) {
            Ok(output)
        } else {
            Err(ToolError::failed("the answer of the agent was cut off"))
        }
    }
}
