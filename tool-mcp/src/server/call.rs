//! Execution of a call under the options of its tool.

use tokio::sync::RwLock;
use tool_core::agent::Decider;
use tool_core::model::RunUser;
use tool_core::run::Wait;
use tool_core::tool::DecisionKind;
use tool_core::tool::{Attempt, Progress, ToolErrorKind};
use tool_core::{CancellationToken, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet};

use super::config::Config;

/// Executes a call. Dropping the future cancels it. `exclusivity` is locked exclusively by calls of exclusive tools, and shared by all
/// others.
pub(super) async fn execute(
    tools: &ToolSet,
    config: &Config,
    exclusivity: &RwLock<()>,
    mut call: ToolCall,
    user: Option<RunUser>,
    progress: Progress,
) -> Result<ToolOutput, ToolError> {
    let policy = tools.get(&call.name).map(|tool| tool.definition().policy().clone()).unwrap_or_default();
    if policy.needs_approval
        && let Some(decider) = &config.decider
    {
        approve(&**decider, &mut call).await?;
    }
    let (_exclusive, _shared) = if policy.exclusive {
        (Some(exclusivity.write().await), None)
    } else {
        (None, Some(exclusivity.read().await))
    };
    let context_of_call = user.into_iter().fold(config.context.clone(), ToolContext::with);
    let mut attempt = Attempt::standalone(&call.id);
    loop {
        let cancellation = CancellationToken::new();
        let context = context_of_call.for_standalone_call(attempt.clone(), &cancellation, progress.clone());
        // Cancels the token if the call ends before its tool does.
        let guard = cancellation.drop_guard();
        let outcome = tools.call(&call, &context).await;
        match &outcome {
            // The tool may still run in a task that it spawned.
            Err(error) if error.kind() == ToolErrorKind::TimedOut => drop(guard),
            _ => drop(guard.disarm()),
        }
        let next = outcome.as_ref().err().and_then(|error| policy.next_attempt(&attempt, error));
        let Some(next) = next else { return outcome };
        attempt = next;
        tokio::time::sleep(attempt.delay()).await;
    }
}

async fn approve(decider: &dyn Decider, call: &mut ToolCall) -> Result<(), ToolError> {
    let wait = Wait::for_approval(call.clone());
    let decision = decider.decide(&wait).await;
    let record = decision.record(&wait.id);
    match record.as_ref().map(|record| record.kind) {
        Some(DecisionKind::Approved) => Ok(()),
        Some(DecisionKind::ApprovedWithChanges) => {
            if let Some(arguments) = decision.edited_arguments() {
                arguments.clone_into(&mut call.arguments);
            }
            Ok(())
        }
        Some(DecisionKind::Denied | DecisionKind::Declined) => {
            Err(ToolError::denied(record.and_then(|record| record.why).as_deref()))
        }
        // The protocol cannot express a call that awaits approval.
        _ => Err(ToolError::denied(Some("no one is available to approve it"))),
    }
}
