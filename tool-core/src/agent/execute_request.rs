//! Executes a call apart from its run, for drivers whose calls run in other processes.

use std::error::Error;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::emitter::EventEmitter;
use super::executor::CallExecutor;
use super::gate::Gate;
use super::layers::Layers;
use super::spending::Spending;
use super::trace::RunTrace;
use crate::agent::{Agent, AgentTool};
use crate::model::ToolCall;
use crate::run::{Decision, Ledger, ResolveError, Run, RunError, Wait, WaitReason};
use crate::tool::{Asking, CallNotes, CallRequest, Progress, ToolContext, ToolError, ToolExecution};
use crate::toolset::{ToolProviderRequest, ToolSet};

/// The call that asks an agent, of which a call is executed.
struct Outer<'a> {
    layers: Arc<Layers>,
    name: &'a str,
    tool: &'a AgentTool,
}

impl Agent {
    /// Executes a call of a run that this agent or a copy of it in another process drives, with the values and the settings of
    /// this agent. The tool is one of the agent's own, or one of its providers', which are asked without messages. It is not executed if
    /// it is another one than the [request's](CallRequest::definition), or if a provider that could have it fails.
    ///
    /// `context` takes precedence over the values of the agent. The attempts of the call are counted by the run: an attempt after
    /// the first begins with its [delay](crate::tool::Attempt::delay). The agent's
    /// [layers](crate::agent::AgentBuilder::layer) see the outcome if no further attempt follows; a
    /// [`RunDriver`](crate::agent::RunDriver) that records it asks them again, so [`execute_unjudged`](Self::execute_unjudged) is for
    /// runs that one drives.
    ///
    /// ```
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
    /// let mut driver = agent.start("What is 2 + 40?");
    /// driver.advance().await?;
    /// let mut run = driver.into_run();
    ///
    /// // The request is serialized, and executed by another process:
    /// let request = run.request_call("call_1_0")?;
    /// let never = CancellationToken::new();
    /// let execution =
    ///     agent.execute_request(request, &ToolContext::new(), &never, Progress::default()).await;
    /// run.record_result(execution)?;
    /// assert_eq!(agent.resume(run).await?.text(), "It is 42.");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn execute_request(
        &self,
        request: CallRequest,
        context: &ToolContext,
        cancellation: &CancellationToken,
        progress: Progress,
    ) -> ToolExecution {
        self.execute(request, context, cancellation, progress, None, true).await
    }

    /// Executes a call like [`execute_request`](Self::execute_request), but leaves the judgement of its outcome to the driver of the run:
    /// [`RunDriver::record_result`](crate::agent::RunDriver::record_result). The call is of the agent that is asked by the tools with
    /// these names, one inside the other; of this agent if there are none.
    pub async fn execute_unjudged(
        &self,
        asked_by: &[&str],
        request: CallRequest,
        context: &ToolContext,
        cancellation: &CancellationToken,
        progress: Progress,
    ) -> ToolExecution {
        let (mut agent, mut context, mut outer) = (self, context.clone(), None);
        for name in asked_by {
            let Some(tool) = agent.agent_tool(name) else {
                let error = ToolError::not_executed(&format!("the agent `{name}` is no longer there"));
                return ToolExecution::new(request.call, Err(error));
            };
            context = context.with_defaults(&agent.0.context);
            outer = Some(Outer { layers: agent.layers_of_calls(&context, outer), name, tool });
            (agent, context) = (tool.agent(), tool.context_inside(&context));
        }
        agent.execute(request, &context, cancellation, progress, outer, false).await
    }

    /// Returns the agents that are [tools](Agent::as_tool) of this one, with the names of the tools.
    pub fn agent_tools(&self) -> impl Iterator<Item = (&str, &AgentTool)> {
        let tools = self.0.tools.iter();
        tools.filter_map(|tool| Some((tool.definition().name(), tool.as_agent()?.downcast_ref()?)))
    }

    /// Returns the agent that is a tool with this name.
    #[must_use]
    pub fn agent_tool(&self, name: &str) -> Option<&AgentTool> {
        self.0.tools.get(name)?.as_agent()?.downcast_ref()
    }

    /// Returns the agent that is asked by the tools with these names, one inside the other.
    pub fn agent_inside<'a>(&self, asked_by: impl IntoIterator<Item = &'a str>) -> Option<&Self> {
        asked_by.into_iter().try_fold(self, |agent, name| Some(agent.agent_tool(name)?.agent()))
    }

    /// Returns the layers around calls of this agent, of which it is not known what their run has spent.
    fn layers_of_calls(&self, context: &ToolContext, outer: Option<Outer<'_>>) -> Arc<Layers> {
        let spending = Spending::new(self.0.prices.clone(), Ledger::new(None, None));
        let layers = Layers::new(self.clone(), context.clone(), spending);
        Arc::new(match outer {
            Some(outer) => layers.inside(&outer.layers, outer.name),
            None => layers,
        })
    }

    async fn execute(
        &self,
        request: CallRequest,
        context: &ToolContext,
        cancellation: &CancellationToken,
        progress: Progress,
        outer: Option<Outer<'_>>,
        is_judged: bool,
    ) -> ToolExecution {
        let mut context = context.clone().with_defaults(&self.0.context);
        if let Some(conversation) = request.conversation.clone() {
            context = context.with(conversation);
        }
        let answer_tool = outer.as_ref().map(|outer| outer.tool.answer_tool());
        let tools = match self.tools_for(&request, answer_tool, &context).await {
            Ok(tools) => tools,
            Err(refused) => return *refused,
        };
        let CallRequest { call, attempt, undone, notes, .. } = request;
        let layers = self.layers_of_calls(&context, outer);
        let context = context.with_rules(Arc::clone(&layers) as _);
        let policy = tools.get(&call.name).map(|tool| tool.definition().policy().clone());
        let executor = CallExecutor {
            tools,
            context,
            gate: Gate::default(),
            emitter: EventEmitter::with_hooks(self.0.hooks.clone()),
            trace: RunTrace::new(self.0.trace).call_trace(),
            cancellation: cancellation.clone(),
            timeout: self.0.call_timeout,
            undone,
        };
        let asking = Asking::new(notes.map_or_else(CallNotes::default, |notes| *notes));
        let mut execution = executor.execute_with(call, attempt.clone(), progress, None, asking).await;
        let retries = |error| policy.is_some_and(|policy| policy.next_attempt(&attempt, error).is_some());
        if !is_judged || execution.is_waiting() || execution.error().is_some_and(retries) {
            return execution;
        }
        match layers.output(&mut execution, &Run::new([])).await {
            Ok(None) => execution,
            Ok(Some(end)) => execution.with_outcome(Err(ToolError::fatal(end.why.unwrap_or_default()))),
            Err(error) => {
                execution.with_outcome(Err(ToolError::fatal(RunError::new(error, Run::new([])).to_string())))
            }
        }
    }

    /// Checks that a decision fits a wait of a run of this agent, with the tools that [`execute_request`](Self::execute_request) would
    /// use: new arguments must match the tool. Those of a tool that is not found are accepted.
    ///
    /// # Errors
    ///
    /// Fails for the reasons of [`Wait::check`], or if new arguments do not match the tool.
    pub async fn check_decision(&self, wait: &Wait, decision: &Decision) -> Result<(), ResolveError> {
        wait.check(decision)?;
        let (WaitReason::Approval(call), Some(arguments)) = (&wait.reason, decision.edited_arguments())
        else {
            return Ok(());
        };
        let call = ToolCall { arguments: arguments.to_owned(), ..call.clone() };
        let Ok(Some(tools)) = self.tools_with(&call.name, &self.0.context).await else { return Ok(()) };
        tools.check_arguments(&call).map_err(|error| ResolveError::invalid_arguments(error.to_string()))
    }

    /// Returns a set that contains the tool of a call, or the agent's own tools, whose error names them. Refuses the call if a
    /// provider fails that could have the tool, because another one of this name must not take its place.
    async fn tools_for(
        &self,
        request: &CallRequest,
        answer_tool: Option<ToolSet>,
        context: &ToolContext,
    ) -> Result<ToolSet, Box<ToolExecution>> {
        let (agent, name) = (&self.0, &*request.call.name);
        if let Some(tools) = answer_tool.filter(|tools| tools.get(name).is_some()) {
            return tools.accept(request);
        }
        if let Some(tools) = agent.bound_undo_tools.set_with(name).filter(|_| request.undone.is_some()) {
            return tools.accept(request);
        }
        match self.tools_with(name, context).await {
            Ok(Some(tools)) => tools.accept(request),
            Ok(None) => Ok(agent.tools.clone()),
            Err(_) => {
                let error = ToolError::not_executed("a provider of tools failed; call the tool again later");
                Err(ToolExecution::new(request.call.clone(), Err(error)).into())
            }
        }
    }

    /// Returns the agent's tools, or those of the first provider, among which the tool with this name is.
    async fn tools_with(
        &self,
        name: &str,
        context: &ToolContext,
    ) -> Result<Option<ToolSet>, Box<dyn Error + Send + Sync>> {
        if self.0.tools.get(name).is_some() {
            return Ok(Some(self.0.tools.clone()));
        }
        for provider in &self.0.providers {
            let tools = provider.tools(&ToolProviderRequest::new(&[], context)).await?;
            if tools.get(name).is_some() {
                return Ok(Some(tools));
            }
        }
        Ok(None)
    }
}
