//! Executes the calls of a run.

use std::time::{Duration, Instant, SystemTime};

use tokio_util::sync::CancellationToken;

use super::emitter::EventEmitter;
use super::trace::CallTrace;
use crate::agent::Event;
use crate::model::ToolCall;
use crate::tool::{
    Attempt, AttemptContext, Progress, ToolContext, ToolError, ToolErrorKind, ToolExecution, Undone,
};
use crate::toolset::ToolSet;

/// Executes the calls of a turn. Independent of the run, which changes while calls are running.
pub(super) struct CallExecutor {
    /// The tools of the turn, or the set of the tool that undoes a call.
    pub(super) tools: ToolSet,
    pub(super) context: ToolContext,
    pub(super) emitter: EventEmitter,
    pub(super) trace: CallTrace,
    /// The token of the run, parent of those of the calls.
    pub(super) cancellation: CancellationToken,
    pub(super) timeout: Option<Duration>,
    pub(super) undone: Option<Undone>,
}

impl CallExecutor {
    /// Executes a call whose start was recorded.
    pub(super) async fn execute(&self, call: ToolCall, attempt: Attempt) -> ToolExecution {
        let progress = self.emitter.progress_sink(&call).map(Progress::with_sink).unwrap_or_default();
        self.execute_with(call, attempt, progress).await
    }

    /// Executes a call with this reporter of its progress.
    pub(super) async fn execute_with(
        &self,
        call: ToolCall,
        attempt: Attempt,
        progress: Progress,
    ) -> ToolExecution {
        let number = attempt.number;
        // Without a tokio runtime, whose timers must be enabled, a retry does not wait.
        if number > 1 && tokio::runtime::Handle::try_current().is_ok() {
            tokio::time::sleep(attempt.delay()).await;
        }
        self.emitter.clone().emit(|| Event::CallStarted(call.clone())).await;
        // Cancelled if this future is dropped before the tool has finished.
        let cancellation = self.cancellation.child_token();
        let cancel_on_drop = cancellation.clone().drop_guard();
        let context = self.context.for_attempt(AttemptContext {
            attempt,
            progress,
            cancellation,
            undone: self.undone.clone(),
        });
        let span = self.trace.start_call(&call, &self.tools, number);
        let execution = span.scope().instrument(self.execute_within_timeout(call, &context)).await;
        if !execution.outcome().is_err_and(|error| error.kind() == ToolErrorKind::TimedOut) {
            cancel_on_drop.disarm();
        }
        span.finish(&execution);
        execution
    }

    async fn execute_within_timeout(&self, call: ToolCall, context: &ToolContext) -> ToolExecution {
        let tools = &self.tools;
        let Some(timeout) = self.timeout else { return tools.execute(call, context).await };
        let (started_at, clock) = (SystemTime::now(), Instant::now());
        match tokio::time::timeout(timeout, tools.execute(call.clone(), context)).await {
            Ok(execution) => execution,
            Err(_) => ToolExecution::new(call, Err(ToolError::timed_out(timeout)))
                .with_timing(started_at, clock.elapsed()),
        }
    }
}
