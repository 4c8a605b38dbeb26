//! One call of a host, as a run with one call and no model.
//!
//! What the call waits for, whether it is approved, retried or has expired, is decided by its run. The host decides how it leaves this loop:
//! with an outcome, with questions, or as a task.

use tokio::runtime::Handle;
use tool_core::engine::{CallRequest, ToolSetExt};
use tool_core::run::Step;
use tool_core::signatures::Timestamp;
use tool_core::tool::{Progress, ToolErrorKind};
use tool_core::{CancellationToken, ToolContext, ToolError, ToolExecution, ToolOutput, ToolSet};

use super::config::Config;
use super::exclusivity::Exclusivity;
use super::questions::{HostCall, Next};
use crate::quiet::run_on;

/// What a call has led to.
pub(super) enum Executed {
    Output(ToolOutput),
    /// The call has asked the user.
    Asks(Box<HostCall>),
    /// The call waits, or takes long, and goes on as a task.
    Waits(Box<HostCall>),
}

/// Executes a call until it has ended or its host has to act. Dropping the future cancels it.
pub(super) async fn execute(
    tools: &ToolSet,
    config: &Config,
    exclusivity: &Exclusivity,
    mut call: HostCall,
    context: &ToolContext,
    progress: Progress,
) -> Result<Executed, ToolError> {
    // A task asks for approval itself.
    if call.can_become_task() && !call.is_continued() && config.long_calls.contains(call.tool()) {
        return Ok(Executed::Waits(Box::new(call)));
    }
    let id = call.id().to_owned();
    loop {
        call.run.tick(Timestamp::now());
        let waits = match call.run.next(tools.definitions()) {
            Step::Waiting(waits) => waits,
            // The effects of a call that has ended its run are not undone.
            Step::CallTools(calls) if calls.first().is_some_and(|next| next.id == id) => {
                let request = call.request()?;
                let execution = execute_once(tools, exclusivity, request, context, progress.clone()).await;
                call.run.record_result(execution).map_err(ToolError::failed)?;
                continue;
            }
            _ => return call.into_outcome().map(Executed::Output),
        };
        match call.decide(waits, config.decider.as_ref()).await? {
            Next::Decided => {}
            Next::Asks => return Ok(Executed::Asks(Box::new(call))),
            Next::Waits => return Ok(Executed::Waits(Box::new(call))),
            Next::Sleeps(until) => tokio::time::sleep(until.since(Timestamp::now())).await,
        }
    }
}

/// Executes one attempt of a call, alone if its tool is exclusive.
async fn execute_once(
    tools: &ToolSet,
    exclusivity: &Exclusivity,
    request: CallRequest,
    context: &ToolContext,
    progress: Progress,
) -> ToolExecution {
    let is_exclusive = tools.get(&request.call.name).is_some_and(|tool| tool.definition().policy().exclusive);
    let cancellation = CancellationToken::new();
    // Cancels the token if the call ends before its tool does.
    let guard = cancellation.clone().drop_guard();
    let execution = {
        let _running = exclusivity.enter(is_exclusive).await;
        tools.execute_request(request, context, &cancellation, progress).await
    };
    // After a timeout, the tool may still run in a task that it spawned.
    if execution.error().is_none_or(|error| error.kind() != ToolErrorKind::TimedOut) {
        drop(guard.disarm());
    }
    execution
}

/// Reports to its tool that a call was executed and cannot go on. Returns what the host reads, for this reason.
pub(super) async fn abandon(
    host: &Handle,
    tools: &ToolSet,
    call: HostCall,
    context: &ToolContext,
    why: ToolError,
) -> ToolError {
    let (tools, context) = (tools.clone(), context.clone());
    let _ = run_on(host, async move { call.give_up(&tools, &context) }).await;
    ToolError::failed(format!("{why}; the call may have had an effect"))
}
