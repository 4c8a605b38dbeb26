//! Executes the calls of a run.

use std::any::type_name;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio_util::sync::CancellationToken;

use super::emitter::EventEmitter;
use super::replay::StandIn;
use super::trace::{CallSpan, CallTrace};
use crate::agent::{AgentTool, Event};
use crate::model::{ToolCall, ToolKind};
use crate::run::RunId;
use crate::tool::{
    AgentNote, Asker, Asking, AskingAgent, Attempt, AttemptContext, CallToUndo, Outcome, Progress, Returned,
    Tool, ToolContext, ToolError, ToolErrorKind, ToolExecution,
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
    pub(super) undone: Option<CallToUndo>,
    /// What stands in for the tools, and the run of the calls.
    pub(super) stand_in: Option<(Arc<StandIn>, RunId)>,
}

/// A call that asks its agent, and is executed again with the answer.
pub(super) struct AskedCall {
    pub(super) call: ToolCall,
    attempt: Attempt,
    pub(super) note: AgentNote,
    pub(super) span: CallSpan,
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
        asking: Asking,
    ) -> impl Future<Output = ToolExecution> + Send {
        let progress = self.progress_of(&call);
        self.execute_with(call, attempt, progress, asking)
    }

    /// Executes a call with this reporter of its progress. An agent that it asks runs to its end.
    pub(super) async fn execute_with(
        &self,
        call: ToolCall,
        attempt: Attempt,
        progress: Progress,
        asking: Asking,
    ) -> ToolExecution {
        if let Some((stand_in, run)) = &self.stand_in {
            return match self.refusal(&call) {
                Some(refusal) => ToolExecution::new(call, Err(refusal)),
                None => stand_in.outcome(run, call).map_outcome(|outcome| self.tools.limited(outcome)),
            };
        }
        self.announce(&call, &attempt).await;
        let asking = Arc::new(asking);
        let policy = self.tools.get(&call.name).map(|tool| tool.definition().policy());
        let asker = policy.map_or(Asker::NOBODY, |policy| Asker::new(&asking, self.undone.is_some(), policy));
        let span = self.trace.start_call(&call, &self.tools, attempt.number);
        let context = AttemptContext {
            attempt,
            progress,
            // Cancelled if this future is dropped before the tool has finished.
            cancellation: self.cancellation.child_token(),
            undone: self.undone.clone(),
            asker,
            agent: None,
        };
        let (started_at, clock) = (SystemTime::now(), Instant::now());
        let executed = asking.execute(self.execute_within_timeout(&call, context));
        match span.scope().instrument(executed).await {
            Ok((outcome, history)) => {
                let execution = ToolExecution::new(call, outcome).with_history(history);
                let execution = execution.with_notes(asking.notes());
                let execution = execution.with_timing(started_at, clock.elapsed());
                span.finish(&execution);
                execution
            }
            Err(notes) => {
                span.suspend();
                ToolExecution::waiting(call, Some(notes))
            }
        }
    }

    /// Executes a call whose start was recorded, until it asks its agent, with this question, or ends.
    pub(super) async fn ask(
        &self,
        call: ToolCall,
        attempt: Attempt,
    ) -> Result<ToolExecution, (String, Box<AskedCall>)> {
        if let Some((stand_in, run)) = &self.stand_in {
            let refusal = self.refusal(&call);
            let question = stand_in.question(run, &call).filter(|_| refusal.is_none());
            return match (question, refusal) {
                (Some(question), _) => {
                    Err((question, Box::new(self.reopen(call, attempt, AgentNote::default()))))
                }
                (None, Some(refusal)) => Ok(ToolExecution::new(call, Err(refusal))),
                (None, None) => Ok(stand_in.outcome(run, call)),
            };
        }
        self.announce(&call, &attempt).await;
        let asked = self.reopen(call, attempt, AgentNote::default());
        let asking = AskingAgent::first(asked.note.clone());
        self.execute_asking(asked, asking).await
    }

    /// Returns a call that asks its agent, or whose agent goes on.
    pub(super) fn reopen(&self, call: ToolCall, attempt: Attempt, mut note: AgentNote) -> AskedCall {
        note.started_at.get_or_insert_with(SystemTime::now);
        let span = self.trace.start_call(&call, &self.tools, attempt.number);
        AskedCall { call, attempt, note, span }
    }

    /// Executes a call again with the answer of its agent.
    pub(super) async fn answer(&self, asked: AskedCall, answer: Outcome) -> ToolExecution {
        if let Some((stand_in, run)) = &self.stand_in {
            let answer = ToolExecution::new(asked.call.clone(), answer);
            return if self.undone.is_some() { answer } else { stand_in.recorded(run, answer) };
        }
        let call = asked.call.clone();
        let asking = AskingAgent::answered(asked.note.clone(), answer);
        let executed = self.execute_asking(asked, asking).await;
        // It cannot ask again.
        executed.unwrap_or_else(|_| ToolExecution::new(call, Err(ToolError::interrupted())))
    }

    async fn execute_asking(
        &self,
        asked: AskedCall,
        asking: AskingAgent,
    ) -> Result<ToolExecution, (String, Box<AskedCall>)> {
        let (AskedCall { call, attempt, note, span }, asking) = (asked, Arc::new(asking));
        let cancellation = self.cancellation.child_token();
        let cancel_on_drop = cancellation.clone().drop_guard();
        let context = self.context.for_attempt(AttemptContext {
            attempt: attempt.clone(),
            progress: self.progress_of(&call),
            cancellation,
            undone: self.undone.clone(),
            // The run of the agent has askers of its own.
            asker: Asker::NOBODY,
            agent: Some(Arc::clone(&asking)),
        });
        // The run of the agent has the time limit of calls, because it undoes its calls when it stops.
        let executed = asking.execute(self.tools.execute_call(&call, &context));
        let executed = span.scope().instrument(executed).await;
        cancel_on_drop.disarm();
        match executed {
            Ok((outcome, history)) => {
                let started_at = note.started_at.unwrap_or_else(SystemTime::now);
                let execution = ToolExecution::new(call, outcome).with_history(history);
                let execution = execution.with_timing(started_at, started_at.elapsed().unwrap_or_default());
                span.finish(&execution);
                Ok(execution)
            }
            Err((question, note)) => Err((question, Box::new(AskedCall { call, attempt, note, span }))),
        }
    }

    /// Returns why a call is refused before anything is executed, if it is.
    fn refusal(&self, call: &ToolCall) -> Option<ToolError> {
        match self.tools.get(&call.name) {
            None => Some(self.tools.unknown_tool_error(call)),
            Some(_) => self.tools.check_arguments(call).err(),
        }
    }

    fn progress_of(&self, call: &ToolCall) -> Progress {
        self.emitter.progress_sink(call).map(Progress::with_sink).unwrap_or_default()
    }

    /// Waits for the delay of an attempt, and emits its start, unless it continues.
    pub(super) async fn announce(&self, call: &ToolCall, attempt: &Attempt) {
        let delay = attempt.delay();
        // Without a tokio runtime, whose timers must be enabled, a retry does not wait.
        if !delay.is_zero() && tokio::runtime::Handle::try_current().is_ok() {
            tokio::time::sleep(delay).await;
        }
        if !attempt.is_continued {
            self.emitter.apart().emit(|| Event::CallStarted(call.clone())).await;
        }
    }

    async fn execute_within_timeout(&self, call: &ToolCall, context: AttemptContext) -> Returned {
        let cancel_on_drop = context.cancellation.clone().drop_guard();
        let context = self.context.for_attempt(context);
        let execution = self.tools.execute_call(call, &context);
        let executed = match self.timeout {
            None => Ok(execution.await),
            Some(timeout) => tokio::time::timeout(timeout, execution).await.map_err(|_| timeout),
        };
        match executed {
            Ok(executed) => {
                let is_timed_out =
                    executed.0.as_ref().is_err_and(|error| error.kind() == ToolErrorKind::TimedOut);
                if !is_timed_out {
                    cancel_on_drop.disarm();
                }
                executed
            }
            Err(timeout) => (Err(ToolError::timed_out(timeout)), None),
        }
    }
}
