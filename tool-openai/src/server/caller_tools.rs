//! Tools of the caller beside the agent's.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use tool_core::provider::ToolDefinitions;
use tool_core::run::{Run, Wait, WaitReason};
use tool_core::tool::ExternalTool;
use tool_core::{Agent, Tool, ToolSet};

use super::error::ApiError;

/// The tools that the caller declares to an agent.
///
/// They are external: the run pauses, the caller executes their calls, and the run continues when it sends the results.
#[derive(Clone)]
pub(super) struct CallerTools(pub(super) ToolSet);

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
            if !names.insert(name) {
                return invalid(format!("duplicate tool `{name}`"));
            }
        }
        let tools = definitions
            .iter()
            .map(|definition| Arc::new(ExternalTool::new(definition.clone())) as Arc<dyn Tool>);
        let set = ToolSet::new(tools).map_err(|error| ApiError::invalid("tools", error.to_string()))?;
        Ok(Self(set))
    }
}

/// Returns what a run waits for of the caller: results of its own tools and then answers, but no secrets. Calls of agents that the run asked
/// are not among them: their tools are not the caller's, whatever their names.
pub(super) fn waits_for_caller(run: &Run, is_tool_of_caller: impl Fn(&str) -> bool) -> Vec<Wait> {
    let own: HashSet<_> = run.current_calls().map(|(call, _)| &*call.id).collect();
    let mut waits = run.waits();
    waits.retain(|wait| match &wait.reason {
        WaitReason::CallerResult(call) => own.contains(&*wait.path) && is_tool_of_caller(&call.name),
        WaitReason::Answer(question) => !question.is_secret(),
        _ => false,
    });
    waits.sort_by_key(|wait| wait.question().is_some());
    waits
}
