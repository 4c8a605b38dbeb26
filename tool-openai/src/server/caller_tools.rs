//! Tools of the caller in addition to those of an agent.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;

use tool_core::agent::{Approver, ApproverFuture};
use tool_core::model::{ToolDefinition, ToolDefinitions};
use tool_core::run::Run;
use tool_core::tool::ToolFuture;
use tool_core::{Agent, Approval, Tool, ToolCall, ToolContext, ToolError, ToolSet};

use super::error::ApiError;

/// The tools that the caller declares to an agent.
///
/// The caller executes their calls: the run pauses as if they awaited approval, and continues when the caller sends the
/// results.
#[derive(Clone)]
pub(super) struct CallerTools {
    names: Arc<BTreeSet<String>>,
    set: ToolSet,
}

impl CallerTools {
    pub(super) fn new(definitions: &ToolDefinitions, agent: &Agent) -> Result<Self, ApiError> {
        let mut names = BTreeSet::new();
        for (index, definition) in definitions.iter().enumerate() {
            let name = definition.name();
            let invalid = |message| Err(ApiError::invalid(format!("tools[{index}]"), message));
            // Undo tools are not offered, but a tool of the caller must not have their names either.
            if agent.tools().get(name).or(agent.undo_tools().get(name)).is_some() {
                return invalid(format!(
                    "the agent already has a tool `{name}`; rename the tool of the request"
                ));
            }
            if !names.insert(name.to_owned()) {
                return invalid(format!("duplicate tool `{name}`"));
            }
        }
        let tools =
            definitions.iter().map(|definition| Arc::new(CallerTool::new(definition)) as Arc<dyn Tool>);
        let set = ToolSet::new(tools).map_err(|error| ApiError::invalid("tools", error.to_string()))?;
        Ok(Self { names: Arc::new(names), set })
    }

    pub(super) fn set(&self) -> ToolSet {
        self.set.clone()
    }

    /// Returns an approver that defers the calls of the caller's tools and asks the agent's approver about all others.
    pub(super) fn approver(&self, agent: &Agent) -> impl Approver + use<> {
        CallerToolsApprover { caller_tools: Arc::clone(&self.names), agent_approver: agent.approver() }
    }

    /// Returns the calls of a run that the caller executes.
    pub(super) fn pending_calls(&self, run: &Run) -> Vec<ToolCall> {
        run.awaiting_approval().filter(|call| self.names.contains(&call.name)).cloned().collect()
    }
}

struct CallerTool(ToolDefinition);

impl CallerTool {
    fn new(definition: &ToolDefinition) -> Self {
        let mut policy = definition.policy();
        policy.needs_approval = true;
        Self(definition.clone().with_policy(policy))
    }
}

impl Tool for CallerTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Err(ToolError::failed("the caller executes this call")))
    }

    fn injections(&self) -> Option<&[tool_core::tool::Injection]> {
        Some(&[])
    }
}

struct CallerToolsApprover {
    caller_tools: Arc<BTreeSet<String>>,
    agent_approver: Option<Arc<dyn Approver>>,
}

impl Approver for CallerToolsApprover {
    fn approve<'a>(&'a self, call: &'a ToolCall) -> ApproverFuture<'a> {
        if self.caller_tools.contains(&call.name) {
            return Box::pin(ready(Approval::Defer));
        }
        // The API cannot express a call that awaits approval.
        let denied = || Approval::deny("no one is available to approve it");
        let Some(approver) = &self.agent_approver else { return Box::pin(ready(denied())) };
        Box::pin(async move {
            match approver.approve(call).await {
                Approval::Defer => denied(),
                approval => approval,
            }
        })
    }
}
