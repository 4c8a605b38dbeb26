//! Executes the calls of a run.

use std::any::type_name;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use tokio_util::sync::CancellationToken;

use super::emitter::EventEmitter;
use super::interruption::run_until_interrupted;
use super::trace::{CallTrace, Scope};
use crate::agent::{AgentTool, Event};
use crate::model::{ToolCall, ToolKind};
use crate::tool::{
    AgentLink, Asker, Asking, Attempt, AttemptContext, Progress, Returned, Tool, ToolContext, ToolError,
    ToolErrorKind, ToolExecution, Undone,
};
use crate::toolset::ToolSet;

/// Executes the calls of a turn. Independent of the run, which changes while calls are running.
pub(super) struct CallExecutor {
    /// The tools of the turn, or the set of the tool that undoes a call.
    pub(super) tools: ToolSet,
    pub(super) context: ToolContext,
    pub(super) emitter: EventEmitter,
    pub(super) trace: CallTrace,
    /// The token of the run, parent of the calls' tokens.
    pub(super) cancellation: CancellationToken,
    pub(super) timeout: Option<Duration>,
    pub(super) undone: Option<Undone>,
}

/// Connects a call that asks an agent to the driver of its run.
pub(super) struct Link {
    pub(super) agent: AgentLink,
    /// Ends the execution without an outcome.
    pub(super) suspended: CancellationToken,
    /// The span of the call, once it has one.
    pub(super) scope: Arc<OnceLock<Scope>>,
}

impl CallExecutor {
    /// Returns the tool of the agent that the call asks, if it asks one.
    pub(super) fn agent_of(&self, call: &ToolCall) -> Option<&AgentTool> {
        let tool = self.tools.get(&call.name)?;
        AgentTool::of(tool).filter(|_| tool.definition().kind() == ToolKind::Agent)
    }

    /// Returns `true` if a call of this tool can ask a person or record values.
    pub(super) fn has_asker(tool: &dyn Tool) -> bool {
        tool.injections().is_none_or(|all| all.iter().any(|one| one.type_name() == type_name::<Asker>()))
    }

    /// Executes a call whose start was recorded.
    pub(super) fn execute(
        &self,
        call: ToolCall,
        attempt: Attempt,
        link: Option<Link>,
        asking: Asking,
    ) -> impl Future<Output = ToolExecution> + Send {
        let progress = self.emitter.progress_sink(&call).map(Progress::with_sink).unwrap_or_default();
        self.execute_with(call, attempt, progress, link, asking)
    }

    /// Executes a call with this reporter of its progress. Without a link, an agent that it asks runs to its end.
    pub(super) async fn execute_with(
        &self,
        call: ToolCall,
        attempt: Attempt,
        progress: Progress,
        link: Option<Link>,
        asking: Asking,
    ) -> ToolExecution {
        let is_continued = attempt.is_continued;
        let number = attempt.number;
        let delay = attempt.delay();
        // Without a tokio runtime, whose timers must be enabled, a retry does not wait.
        if !delay.is_zero() && tokio::runtime::Handle::try_current().is_ok() {
            tokio::time::sleep(delay).await;
        }
        if !is_continued {
            self.emitter.clone().emit(|| Event::CallStarted(call.clone())).await;
        }
        // Cancelled if this future is dropped before the tool has finished.
        let cancellation = self.cancellation.child_token();
        let cancel_on_drop = cancellation.clone().drop_guard();
        let asking = Arc::new(asking);
        // The run of an agent has askers of its own.
        let may_wait = link.is_none() && self.undone.is_none();
        let policy = self.tools.get(&call.name).map(|tool| tool.definition().policy());
        let asker = policy.map_or(Asker::NOBODY, |policy| Asker::new(&asking, !may_wait, policy));
        let (agent_link, suspended, scope) = match link {
            Some(Link { agent, suspended, scope }) => (Some(agent), Some(suspended), Some(scope)),
            None => (None, None, None),
        };
        let context = self.context.for_attempt(AttemptContext {
            attempt,
            progress,
            cancellation,
            undone: self.undone.clone(),
            asker,
            agent_link,
        });
        let span = self.trace.start_call(&call, &self.tools, number);
        if let Some(scope) = scope {
            let _ = scope.set(span.scope());
        }
        let (started_at, clock) = (SystemTime::now(), Instant::now());
        let executed = self.execute_within_timeout(&call, &context, suspended.is_some());
        let executed = run_until_interrupted(asking.execute(executed), suspended.as_ref(), None);
        let (outcome, history) = match span.scope().instrument(executed).await {
            Ok(Ok(executed)) => executed,
            Ok(Err(notes)) => {
                span.suspend();
                return ToolExecution::waiting(call, Some(notes));
            }
            Err(_) => {
                span.suspend();
                return ToolExecution::waiting(call, None);
            }
        };
        let execution = ToolExecution::new(call, outcome).with_history(history).with_notes(asking.notes());
        let execution = execution.with_timing(started_at, clock.elapsed());
        if !execution.outcome().is_err_and(|error| error.kind() == ToolErrorKind::TimedOut) {
            cancel_on_drop.disarm();
        }
        span.finish(&execution);
        execution
    }

    async fn execute_within_timeout(
        &self,
        call: &ToolCall,
        context: &ToolContext,
        asks_agent: bool,
    ) -> Returned {
        let mut execution = pin!(self.tools.execute_call(call, context));
        let Some(timeout) = self.timeout else { return execution.await };
        match tokio::time::timeout(timeout, execution.as_mut()).await {
            Ok(executed) => executed,
            // The run of an agent has this limit itself, because it undoes its calls when it stops.
            Err(_) if asks_agent => execution.await,
            Err(_) => (Err(ToolError::timed_out(timeout)), None),
        }
    }
}
