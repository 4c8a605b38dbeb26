//! Execution of a call under the options of its tool.

use tokio::runtime::Handle;
use tool_core::__internals::CallRequest;
use tool_core::agent::Decider;
use tool_core::run::Wait;
use tool_core::tool::{DecisionKind, Progress, Timestamp, ToolErrorKind};
use tool_core::{CancellationToken, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet};

use super::config::Config;
use super::decider::ServerDecider;
use super::exclusivity::Exclusivity;
use super::questions::HostCall;
use crate::quiet::run_on;

/// The most bytes of the arguments of a task.
const MAX_ARGUMENTS_BYTES: usize = 64 << 10;

/// Returns `true` if a call has too many arguments to be stored.
pub(super) fn has_long_arguments(call: &ToolCall) -> bool {
    call.arguments.len() > MAX_ARGUMENTS_BYTES
}

/// What a call has led to.
pub(super) enum Executed {
    Output(ToolOutput),
    /// The call has asked the user.
    Asks(Box<HostCall>),
    /// The call waits, or takes long, and goes on as a task.
    Waits(Box<HostCall>),
}

/// Executes a call. Dropping the future cancels it.
pub(super) async fn execute(
    tools: &ToolSet,
    config: &Config,
    exclusivity: &Exclusivity,
    mut call: HostCall,
    context: &ToolContext,
    progress: Progress,
) -> Result<Executed, ToolError> {
    if call.has_to_ask() {
        return Ok(Executed::Asks(Box::new(call)));
    }
    let definition = tools.get(&call.request.call.name).map(|tool| tool.definition().clone());
    let policy = definition.as_ref().map(|definition| definition.policy().clone()).unwrap_or_default();
    // The call, and its approval, are for the tool as it is now, also if the call waits.
    call.request.definition = definition.map(|definition| definition.hash().to_owned());
    // A task asks for approval itself.
    if call.can_become_task() && !call.is_continued() && config.long_calls.contains(&call.request.call.name) {
        return Ok(Executed::Waits(Box::new(call)));
    }
    // A call that has asked was approved before.
    if policy.needs_approval
        && !call.is_continued()
        && let Some(decider) = &config.decider
    {
        match approve(decider, &mut call.request.call).await? {
            Approval::Given => {}
            Approval::Deferred if call.can_become_task() => {
                call.defer();
                return Ok(Executed::Waits(Box::new(call)));
            }
            Approval::Deferred => return Err(ToolError::denied(Some(call.why_not_approved()))),
        }
    }
    if has_long_arguments(&call.request.call) {
        // It would be refused only after its effect.
        call.refuse_task();
    }
    loop {
        let request = &mut call.request;
        let cancellation = CancellationToken::new();
        // Cancels the token if the call ends before its tool does.
        let guard = cancellation.clone().drop_guard();
        let execution = {
            let _running = exclusivity.enter(policy.exclusive).await;
            tools.execute_request(request.clone(), context, &cancellation, progress.clone()).await
        };
        match execution.error() {
            // The tool may still run in a task that it spawned.
            Some(error) if error.kind() == ToolErrorKind::TimedOut => drop(guard),
            _ => drop(guard.disarm()),
        }
        request.record(&execution);
        let waits = request.waits();
        if execution.is_waiting() && !waits.is_empty() {
            request.tick(Timestamp::now());
            if call.has_to_ask() {
                return Ok(Executed::Asks(Box::new(call)));
            }
            if call.can_become_task() && !call.request.waits().is_empty() {
                return Ok(Executed::Waits(Box::new(call)));
            }
            // The host waits for what the call was parked for.
            let until = waits.iter().filter(|wait| wait.is_until()).filter_map(|wait| wait.deadline).max();
            tokio::time::sleep(until.map(|until| until.since(Timestamp::now())).unwrap_or_default()).await;
            continue;
        }
        let next = execution.error().and_then(|error| policy.next_attempt(&request.attempt, error));
        let Some(next) = next else { return execution.into_outcome().map(Executed::Output) };
        request.attempt = next;
    }
}

/// Reports to its tool that a call was executed and cannot go on. Returns what the host reads, for this reason.
pub(super) async fn abandon(
    host: &Handle,
    tools: &ToolSet,
    request: CallRequest,
    context: &ToolContext,
    why: ToolError,
) -> ToolError {
    let (tools, context) = (tools.clone(), context.clone());
    let _ = run_on(host, async move { tools.give_up(request, &context) }).await;
    ToolError::failed(format!("{why}; the call may have had an effect"))
}

enum Approval {
    Given,
    /// Nobody has decided yet.
    Deferred,
}

async fn approve(decider: &ServerDecider, call: &mut ToolCall) -> Result<Approval, ToolError> {
    let wait = Wait::for_approval(call.clone());
    let decision = decider.decide(&wait).await;
    let record = decision.record(&wait.id);
    match record.as_ref().map(|record| record.kind) {
        Some(DecisionKind::Approved) => Ok(Approval::Given),
        Some(DecisionKind::ApprovedWithChanges) => {
            if let Some(arguments) = decision.edited_arguments() {
                arguments.clone_into(&mut call.arguments);
            }
            Ok(Approval::Given)
        }
        Some(DecisionKind::Denied | DecisionKind::Declined) => {
            Err(ToolError::denied(record.and_then(|record| record.why).as_deref()))
        }
        _ => Ok(Approval::Deferred),
    }
}
