//! Makes the calls of a run.

use std::time::{Duration, Instant, SystemTime};

use super::observers::Observers;
use super::trace::CallTrace;
use crate::agent::Event;
use crate::model::ToolCall;
use crate::tool::{
    Attempt, AttemptContext, CancellationToken, OfCall, Progress, ToolContext, ToolError, ToolErrorKind,
    ToolExecution, Undone,
};
use crate::toolset::ToolSet;

/// How long a call that failed waits for its second attempt; each further one waits twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How long it waits at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the calls of a turn are made with. It is apart from the run, which is written to while they are under way.
pub(super) struct Caller {
    pub(super) tools: ToolSet,
    pub(super) undo_tools: ToolSet,
    /// For what undoes: a hook may have left fewer to the model.
    pub(super) all_tools: Option<ToolSet>,
    pub(super) context: ToolContext,
    pub(super) observers: Observers,
    pub(super) trace: CallTrace,
    pub(super) cancellation: CancellationToken,
    pub(super) timeout: Option<Duration>,
    pub(super) undone: Option<Undone>,
}

impl Caller {
    /// Makes a call that was begun.
    pub(super) async fn make(&self, call: ToolCall, attempt: Attempt) -> ToolExecution {
        let number = attempt.number;
        if number > 1 {
            pause(number).await;
        }
        self.observers.clone().tell(|| Event::CallStarted(call.clone())).await;
        let progress = self.observers.progress_of(&call).map(Progress::with_sink).unwrap_or_default();
        // Whatever ends the call before its tool does, the tool sees that nobody waits any more.
        let cancellation = OfCall::of(&self.cancellation);
        let mut on_drop = cancellation.cancel_on_drop();
        let context = self.context.for_attempt(AttemptContext {
            attempt,
            progress,
            cancellation,
            undone: self.undone.clone(),
        });
        let undo_tools;
        let tools = if self.undone.is_some() {
            // The arguments are those of the call that is undone, of which its tool needs some or none.
            undo_tools = self.tools_to_undo(&call.name).clone().ignore_unknown_arguments();
            &undo_tools
        } else {
            &self.tools
        };
        let span = self.trace.calls(&call, tools, number);
        let execution = span.scope().holds(self.execute(tools, call, &context)).await;
        if !execution.outcome().is_err_and(|error| error.kind() == ToolErrorKind::TimedOut) {
            on_drop.disarm();
        }
        span.called(&execution);
        execution
    }

    fn tools_to_undo(&self, name: &str) -> &ToolSet {
        let all = [Some(&self.tools), Some(&self.undo_tools), self.all_tools.as_ref()];
        all.into_iter().flatten().find(|tools| tools.get(name).is_some()).unwrap_or(&self.undo_tools)
    }

    async fn execute(&self, tools: &ToolSet, call: ToolCall, context: &ToolContext) -> ToolExecution {
        let Some(timeout) = self.timeout else { return tools.execute(call, context).await };
        let (started_at, clock) = (SystemTime::now(), Instant::now());
        match tokio::time::timeout(timeout, tools.execute(call.clone(), context)).await {
            Ok(execution) => execution,
            Err(_) => ToolExecution::new(call, Err(ToolError::timed_out(timeout)))
                .with_timing(started_at, clock.elapsed()),
        }
    }
}

/// Waits before a further attempt, where there are timers.
async fn pause(attempt: u32) {
    if tokio::runtime::Handle::try_current().is_ok() {
        let doublings = attempt.saturating_sub(2).min(16);
        tokio::time::sleep(FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)).await;
    }
}
