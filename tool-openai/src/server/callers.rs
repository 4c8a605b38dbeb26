//! Tools of the caller beside those of an agent.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;

use tool_core::{
    Agent, Approval, Approver, ApproverFuture, Run, Tool, ToolCall, ToolContext, ToolDefinition,
    ToolDefinitions, ToolError, ToolFuture, ToolSet,
};

use super::error::ApiError;

/// The tools that the caller offers to the model of an agent. Their calls are not made here: the run waits for them, as it
/// waits for a person, and goes on when the caller comes back with what they gave.
pub(super) struct CallersTools {
    names: Arc<BTreeSet<String>>,
    set: ToolSet,
}

impl CallersTools {
    pub(super) fn new(definitions: &ToolDefinitions, agent: &Agent) -> Result<Self, ApiError> {
        let mut names = BTreeSet::new();
        for (index, definition) in definitions.iter().enumerate() {
            let name = definition.name();
            let wrong = |message| Err(ApiError::invalid(format!("tools[{index}]"), message));
            if agent.tools().definitions().iter().any(|own| own.name() == name) {
                return wrong(format!(
                    "the agent has a tool `{name}` itself, which is called here; give this one another name"
                ));
            }
            if !names.insert(name.to_owned()) {
                return wrong(format!("there are two tools `{name}`"));
            }
        }
        let tools =
            definitions.iter().map(|definition| Arc::new(CallersTool::new(definition)) as Arc<dyn Tool>);
        let set = ToolSet::new(tools).map_err(|error| ApiError::invalid("tools", error.to_string()))?;
        Ok(Self { names: Arc::new(names), set })
    }

    pub(super) fn set(&self) -> ToolSet {
        self.set.clone()
    }

    /// Who decides on the calls that wait: nobody on those of the caller.
    pub(super) fn approver(&self, agent: &Agent) -> impl Approver + use<> {
        CallersApprover { callers: Arc::clone(&self.names), own: agent.approver() }
    }

    /// The calls that the caller is to make.
    pub(super) fn calls(&self, run: &Run) -> Vec<ToolCall> {
        run.awaiting_approval().filter(|call| self.names.contains(&call.name)).cloned().collect()
    }
}

struct CallersTool(ToolDefinition);

impl CallersTool {
    fn new(definition: &ToolDefinition) -> Self {
        let mut policy = definition.policy();
        policy.needs_approval = true;
        Self(definition.clone().with_policy(policy))
    }
}

impl Tool for CallersTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Err(ToolError::failed("the caller makes this call")))
    }

    fn injections(&self) -> Option<&[tool_core::Injection]> {
        Some(&[])
    }
}

struct CallersApprover {
    callers: Arc<BTreeSet<String>>,
    own: Option<Arc<dyn Approver>>,
}

impl Approver for CallersApprover {
    fn approve<'a>(&'a self, call: &'a ToolCall) -> ApproverFuture<'a> {
        if self.callers.contains(&call.name) {
            return Box::pin(ready(Approval::Defer));
        }
        // The protocol has no word for a call that waits for a person.
        let denied = || Approval::deny("nobody is there to approve it");
        let Some(own) = &self.own else { return Box::pin(ready(denied())) };
        Box::pin(async move {
            match own.approve(call).await {
                Approval::Defer => denied(),
                approval => approval,
            }
        })
    }
}
