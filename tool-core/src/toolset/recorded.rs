//! Tools as a run was given them: the model keeps their definitions, and only those that the run still has can be called.
//!
//! Whether a tool may be called is asked again in each process, because rights are withdrawn meanwhile.

use std::sync::Arc;

use super::set::ToolRef;
use crate::model::ToolDefinition;
use crate::tool::{Tool, ToolContext, ToolError, ToolFuture};
use crate::toolset::{ToolSet, ToolSetError};

/// A tool that the run no longer has.
struct Withdrawn(ToolDefinition);

impl Tool for Withdrawn {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Err(withdrawn()))
    }
}

/// Returns the error of a call of a tool that the run no longer has.
pub(crate) fn withdrawn() -> ToolError {
    ToolError::denied(Some("this tool is no longer available here"))
}

impl ToolSet {
    /// Returns the tools that have these names, with these definitions and the stricter policies. Calls of those that this set lacks are
    /// denied.
    pub(crate) fn as_recorded(&self, definitions: &[ToolDefinition]) -> Result<Self, ToolSetError> {
        if self.definitions().iter().eq(definitions) {
            return Ok(self.clone());
        }
        let recorded = |recorded: &ToolDefinition| {
            let mut tools = self.0.tools.iter();
            let definition = recorded.clone();
            match tools.find(|tool| tool.get().definition().name() == recorded.name()) {
                Some(tool) => {
                    let policy = recorded.policy().stricter(tool.get().definition().policy());
                    tool.redefined(definition.with_policy(policy))
                }
                // The same definition, to which an approval is bound.
                None => ToolRef::Shared(Arc::new(Withdrawn(definition))),
            }
        };
        let tools = definitions.iter().map(recorded).collect();
        Ok(Self::from_refs(tools)?.with_settings(self.0.settings))
    }
}
