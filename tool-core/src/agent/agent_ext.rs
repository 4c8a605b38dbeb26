//! What a world asks of an agent: what it has, its runs as they happen, and calls that are executed apart from their runs.

use std::error::Error;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::emitter::EventEmitter;
use super::executor::CallExecutor;
use super::performer::Performer;
use super::run_tools::{QuestionTools, RunTools};
use super::spending::Spending;
use super::trace::RunTrace;
use crate::agent::{Agent, AgentTool, Event, RunInfo};
use crate::layer::LayerPhase;
use crate::memory::RunStore;
use crate::model::{ChatRequest, ToolCall};
use crate::run::{Decision, Ledger, ResolveError, Run, RunError, RunId, Wait, WaitReason};
use crate::tool::{
    Asking, CallNotes, CallRequest, Progress, ProviderNotes, ToolContext, ToolError, ToolExecution,
};
use crate::toolset::{ToolProviderRequest, ToolSet, ToolSetExt, withdrawn};

/// What a world asks of an [`Agent`], beyond what programs with agents do.
pub trait AgentExt {
    /// Returns `true` if the agent has a [decider](crate::agent::AgentBuilder::decider).
    #[must_use]
    fn has_decider(&self) -> bool;

    /// Returns `true` if the agent has an [output store](crate::agent::AgentBuilder::output_store).
    #[must_use]
    fn has_output_store(&self) -> bool;

    /// Returns the agent's run store. If it has none, the later runs of this agent and its clones are stored in this one, so that others
    /// can decide about those that wait.
    ///
    /// ```
    /// use tool_core::Agent;
    /// use tool_core::engine::AgentExt;
    /// use tool_core::memory::InMemoryStore;
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// agent.run_store_or(InMemoryStore::new());
    /// assert!(agent.clone().run_store().is_some());
    /// # Ok(())
    /// # }
    /// ```
    fn run_store_or(&self, store: impl RunStore + 'static) -> &Arc<dyn RunStore>;

    /// Keeps finished runs for this time, unless the agent [does](crate::agent::AgentBuilder::keep_finished), for readers in other processes.
    fn keep_finished_or(&self, time: Duration);

    /// Registers a watcher of all later runs of this agent and its clones, for as long as they live. It is called with each run that
    /// starts or is resumed, and returns a [hook](crate::agent::AgentBuilder::on_event) that receives the events of that run and of the
    /// agents that its calls ask. The hook is dropped with the driver of the run.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::engine::AgentExt;
    /// use tool_core::{Agent, Event};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().says("Good morning!")).build()?;
    /// let done = Arc::new(Mutex::new(Vec::new()));
    /// let ids = Arc::clone(&done);
    /// agent.watch(move |run| {
    ///     let (id, ids) = (run.id().clone(), Arc::clone(&ids));
    ///     move |event: &Event| {
    ///         if let Event::Done(_) = event {
    ///             ids.lock().unwrap().push(id.clone());
    ///         }
    ///     }
    /// });
    /// agent.ask("Hello").await?;
    /// assert_eq!(done.lock().unwrap().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    fn watch<H>(&self, watcher: impl Fn(&Run) -> H + Send + Sync + 'static)
    where
        H: Fn(&Event) + Send + Sync + 'static;

    /// Registers a watcher of the requests to the model in all later turns of this agent and its clones. It receives the id of the run and
    /// the number of the turn, too.
    fn watch_requests(&self, watcher: impl Fn(&RunId, u32, &ChatRequest<'_>) + Send + Sync + 'static);

    /// Returns the tools of this agent, offered or only to undo others, and of all agents that it asks or hands runs over to.
    #[must_use]
    fn tools_of_tree(&self) -> Vec<ToolSet>;

    /// Returns `true` if the agent [hands runs over](crate::agent::AgentBuilder::handoff_to) to other agents.
    #[must_use]
    fn has_handoffs(&self) -> bool;

    /// Returns `true` if the agent has a [layer](crate::agent::AgentBuilder::layer) that sees this phase.
    #[must_use]
    fn has_layer_for(&self, phase: LayerPhase) -> bool;

    /// Returns the number of calls of one turn that run [at the same time](crate::agent::AgentBuilder::max_concurrent_calls).
    #[must_use]
    fn max_concurrent_calls(&self) -> usize;

    /// Executes a call of a run that this agent or a copy of it in another process drives, with the values and the settings of
    /// this agent. The tool is one of the agent's own, or one of its providers', which are asked without messages. It is not executed if
    /// it is another one than the [request's](CallRequest::definition), or if a provider that could have it fails.
    ///
    /// The call is of the agent to which the names in `asked_by` lead from this one: of tools that ask agents, or hand off to them.
    /// `context` takes precedence over the values of the agent. The attempts of the call are counted by the run: an attempt after
    /// the first begins with its [delay](crate::tool::Attempt::delay).
    ///
    /// [Layers](crate::agent::AgentBuilder::layer) are **not asked here**: a driver lets them judge the call when it records the reply, and
    /// again in its next [step](crate::agent::RunDriver::next), which has to be taken before the call is requested if it has waited or a person
    /// has edited it. They judge the outcome when it is [recorded](crate::agent::RunDriver::record_result).
    ///
    /// ```
    /// use tool_core::engine::AgentExt;
    /// use tool_core::run::Step;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::tool::Progress;
    /// use tool_core::{Agent, CancellationToken, ToolContext, tool, tools};
    ///
    /// #[tool("Sums two numbers")]
    /// fn sum(a: f64, b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("sum", r#"{"a": 2, "b": 40}"#).says("It is 42.");
    /// let agent = Agent::builder(model).tools(tools![sum]).build()?;
    /// let mut driver = agent.ask("What is 2 + 40?").start();
    /// driver.advance().await?;
    /// let mut run = driver.into_run();
    ///
    /// // The request is serialized, and executed by another process:
    /// let request = run.request_call("call_1_0")?;
    /// let never = CancellationToken::new();
    /// let execution =
    ///     agent.execute_request(&[], request, &ToolContext::new(), &never, Progress::default()).await;
    /// run.record_result(execution)?;
    /// assert_eq!(agent.resume(run).await?.text(), "It is 42.");
    /// # Ok(())
    /// # }
    /// ```
    fn execute_request(
        &self,
        asked_by: &[&str],
        request: CallRequest,
        context: &ToolContext,
        cancellation: &CancellationToken,
        progress: Progress,
    ) -> impl Future<Output = ToolExecution> + Send;

    /// Returns the agents that are [tools](Agent::as_tool) of this one, with the names of the tools.
    fn agent_tools(&self) -> impl Iterator<Item = (&str, &AgentTool)>;

    /// Returns the agent that is a tool with this name.
    #[must_use]
    fn agent_tool(&self, name: &str) -> Option<&AgentTool>;

    /// Returns the agents that this one [hands off](crate::agent::AgentBuilder::handoff_to) to, with the names of the tools.
    fn handoffs(&self) -> impl Iterator<Item = (&str, &Self)>;

    /// Returns the agent to which these names lead: of tools that ask agents, or hand off to them.
    fn agent_at<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<&Self>;

    /// Checks that a decision fits a wait of a run of this agent, with the tools that [`execute_request`](Self::execute_request) would
    /// use: new arguments must match the tool. Those of a tool that is not found are accepted.
    ///
    /// # Errors
    ///
    /// Fails for the reasons of [`Wait::check`], or if new arguments do not match the tool.
    fn check_decision(
        &self,
        wait: &Wait,
        decision: &Decision,
    ) -> impl Future<Output = Result<(), ResolveError>> + Send;
}

impl AgentExt for Agent {
    fn has_decider(&self) -> bool {
        !self.0.deciders.is_empty()
    }

    fn has_output_store(&self) -> bool {
        self.0.outputs.is_some()
    }

    fn run_store_or(&self, store: impl RunStore + 'static) -> &Arc<dyn RunStore> {
        self.0.run_store.get_or_init(|| Arc::new(store))
    }

    fn keep_finished_or(&self, time: Duration) {
        self.0.stored_runs.keep_finished.get_or_init(|| time);
    }

    fn watch<H>(&self, watcher: impl Fn(&Run) -> H + Send + Sync + 'static)
    where
        H: Fn(&Event) + Send + Sync + 'static,
    {
        let mut watchers = self.0.watchers.write().unwrap_or_else(PoisonError::into_inner);
        watchers.push(Box::new(move |run| Arc::new(watcher(run))));
    }

    fn watch_requests(&self, watcher: impl Fn(&RunId, u32, &ChatRequest<'_>) + Send + Sync + 'static) {
        self.0.request_watchers.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(watcher));
    }

    fn tools_of_tree(&self) -> Vec<ToolSet> {
        let mut agents: Vec<Self> = vec![self.clone()];
        let mut position = 0;
        while let Some(agent) = agents.get(position).cloned() {
            let asked = agent.0.tools.iter().filter_map(AgentTool::of).map(AgentTool::agent);
            for other in asked.chain(agent.0.handoffs.iter().map(|(_, next)| next)) {
                if !agents.iter().any(|one| Arc::ptr_eq(&one.0, &other.0)) {
                    agents.push(other.clone());
                }
            }
            position += 1;
        }
        agents.iter().flat_map(|agent| [agent.0.tools.clone(), agent.0.undo_tools.clone()]).collect()
    }

    fn has_handoffs(&self) -> bool {
        !self.0.handoffs.is_empty()
    }

    fn has_layer_for(&self, phase: LayerPhase) -> bool {
        // What the application gives a run is known only to its drivers.
        let is_shortened = phase == LayerPhase::Output && self.0.outputs.is_some();
        is_shortened || self.0.run_setup.is_some() || self.0.layers.iter().any(|layer| layer.sees(phase))
    }

    fn max_concurrent_calls(&self) -> usize {
        self.0.max_concurrent_calls
    }

    async fn execute_request(
        &self,
        asked_by: &[&str],
        request: CallRequest,
        context: &ToolContext,
        cancellation: &CancellationToken,
        progress: Progress,
    ) -> ToolExecution {
        match self.performer_at(asked_by, &request, context).await {
            Ok(performer) => execute(performer, request, cancellation, progress).await,
            Err(error) => ToolExecution::new(request.call, Err(error)),
        }
    }

    fn agent_tools(&self) -> impl Iterator<Item = (&str, &AgentTool)> {
        let tools = self.0.tools.iter();
        tools.filter_map(|tool| Some((tool.definition().name(), AgentTool::of(tool)?)))
    }

    fn agent_tool(&self, name: &str) -> Option<&AgentTool> {
        AgentTool::of(self.0.tools.get(name)?)
    }

    fn handoffs(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.handoffs.iter().map(|(name, agent)| (&**name, agent))
    }

    fn agent_at<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<&Self> {
        names.into_iter().try_fold(self, |agent, name| match agent.agent_tool(name) {
            Some(tool) => Some(tool.agent()),
            None => agent.handed_to(name),
        })
    }

    async fn check_decision(&self, wait: &Wait, decision: &Decision) -> Result<(), ResolveError> {
        wait.check(decision)?;
        let (WaitReason::Approval(call), Some(arguments)) = (&wait.reason, decision.edited_arguments())
        else {
            return Ok(());
        };
        let call = ToolCall { arguments: arguments.to_owned(), ..call.clone() };
        let Ok(Some(tools)) = self.tools_with(&call.name, &self.0.context, &[]).await else { return Ok(()) };
        tools.check_arguments(&call).map_err(|error| ResolveError::invalid_arguments(error.to_string()))
    }
}

impl Agent {
    /// Reports to its tool that a call will not be continued. The tool is found as in [`execute_request`](Self::execute_request).
    pub(super) async fn give_up_request(
        &self,
        asked_by: &[&str],
        request: CallRequest,
        context: &ToolContext,
    ) {
        let Ok(performer) = self.performer_at(asked_by, &request, context).await else { return };
        if let Ok(tools) = performer.tools_for(&request).await {
            tools.give_up(request, &performer.tools.context);
        }
    }

    /// Returns what performs the calls of the run to which names lead from this agent: of tools that ask agents, or hand off to them. What the
    /// runs have spent is not known here.
    async fn performer_at(
        &self,
        names: &[&str],
        request: &CallRequest,
        context: &ToolContext,
    ) -> Result<Performer, ToolError> {
        let mut question = QuestionTools { context: context.clone(), ..QuestionTools::default() };
        if let Some(user) = request.user.clone() {
            question.context = question.context.with(user);
        }
        if let Some(conversation) = request.conversation.clone() {
            question.context = question.context.with(conversation);
        }
        let mut performer = self.performer(question);
        performer.open_for(request).await?;
        for name in names {
            let agent = performer.tools.agent.clone();
            if let Some(tool) = agent.agent_tool(name) {
                let question = tool.question(String::new(), None, &performer.tools.context);
                let inside = tool.agent().performer(question.tools);
                performer = inside.asked(tool.asked(), Some(&performer.layers), name);
                performer.open_for(request).await?;
            } else if let Some(next) = agent.handed_to(name) {
                performer.hand_off(name, next);
            } else {
                let why = "the agent that made this call is no longer registered";
                return Err(ToolError::not_executed(why));
            }
        }
        Ok(performer)
    }

    fn performer(&self, question: QuestionTools) -> Performer {
        let spending = Spending::new(self.0.prices.clone(), Ledger::default());
        let emitter = EventEmitter::with_hooks(self.0.hooks.clone());
        Performer::outermost(RunTools::new(self.clone(), question), emitter, spending)
    }

    pub(super) fn handed_to(&self, name: &str) -> Option<&Self> {
        self.handoffs().find(|(tool, _)| *tool == name).map(|(_, agent)| agent)
    }

    /// Returns the agent's tools, or the first provider's tools, that contain the tool with this name. The providers get the replies to what
    /// they have asked, and can ask nothing else.
    async fn tools_with(
        &self,
        name: &str,
        context: &ToolContext,
        asked: &[ProviderNotes],
    ) -> Result<Option<ToolSet>, Box<dyn Error + Send + Sync>> {
        if self.0.tools.get(name).is_some() {
            return Ok(Some(self.0.tools.clone()));
        }
        for index in 0..self.0.providers.len() {
            let request = ToolProviderRequest::new(&[], context);
            let Ok(reply) = self.ask_provider(index, request, asked.iter(), false).await else {
                continue;
            };
            let tools = reply.tools?;
            if tools.get(name).is_some() {
                return Ok(Some(tools));
            }
        }
        Ok(None)
    }
}

impl Performer {
    /// Adds what the application gives the run of a call.
    async fn open_for(&mut self, request: &CallRequest) -> Result<(), ToolError> {
        let info = RunInfo::of_call(request.user.clone(), request.conversation.clone());
        let Some(opening) = self.open(info) else { return Ok(()) };
        match opening.await.and_then(|parts| Ok((parts.offered_tools()?, parts))) {
            Ok((tools, parts)) => {
                self.give(&parts, &tools);
                Ok(())
            }
            // An earlier attempt may have had its effect.
            Err(_) if request.attempt.number > 1 => Err(ToolError::interrupted()),
            Err(kind) => Err(ToolError::not_executed(&RunError::new(kind, Run::new([])).to_string())),
        }
    }

    /// Returns a set that contains the tool of a call, or the agent's own tools, whose error names them. Refuses the call if a
    /// provider fails that could have the tool, because another one of this name must not take its place.
    async fn tools_for(&self, request: &CallRequest) -> Result<ToolSet, Box<ToolExecution>> {
        let (agent, name) = (&self.tools.agent, &*request.call.name);
        // A tool that undoes is bound to the source that names it, also if the application gives another one of this name.
        if let Some(tools) = self.tools.undo.set_with(name).filter(|_| request.undone.is_some()) {
            return tools.accept(request);
        }
        if let Some(tools) = self.tools.further_with(name) {
            return tools.clone().accept(request);
        }
        match agent.tools_with(name, &self.tools.context, &request.providers).await {
            Ok(Some(tools)) => tools.accept(request),
            // It was offered, so the application or a provider had it.
            Ok(None) if request.definition.is_some() => {
                Err(ToolExecution::new(request.call.clone(), Err(withdrawn())).into())
            }
            Ok(None) => Ok(agent.0.tools.clone()),
            Err(_) => {
                let error = ToolError::not_executed("a provider of tools failed; call the tool again later");
                Err(ToolExecution::new(request.call.clone(), Err(error)).into())
            }
        }
    }
}

async fn execute(
    performer: Performer,
    request: CallRequest,
    cancellation: &CancellationToken,
    progress: Progress,
) -> ToolExecution {
    let tools = match performer.tools_for(&request).await {
        Ok(tools) => tools,
        Err(refused) => return *refused,
    };
    let CallRequest { call, attempt, undone, notes, .. } = request;
    let agent = &performer.tools.agent.0;
    let executor = CallExecutor {
        tools,
        context: performer.tools.context.clone().with_rules(performer.layers),
        emitter: performer.emitter,
        trace: RunTrace::new(performer.origin.0.trace).call_trace(),
        cancellation: cancellation.clone(),
        timeout: agent.call_timeout,
        undone,
        stand_in: None,
    };
    let asking = Asking::new(notes.map_or_else(CallNotes::default, |notes| *notes));
    executor.execute_with(call, attempt, progress, asking).await
}
