//! Tools that the caller of a run executes.

use crate::model::{ToolDefinition, ToolKind};
use crate::tool::{Injection, Tool, ToolContext, ToolError, ToolFuture};

/// A tool without code, whose calls the caller of a run executes, for example in a user's browser.
///
/// A run [waits](crate::run::WaitReason::CallerResult) for the results of its calls; see
/// [`ToolKind::Caller`].
///
/// ```
/// use serde_json::json;
/// use tool_core::Tool;
/// use tool_core::model::ToolDefinition;
/// use tool_core::provider::ToolKind;
/// use tool_core::tool::ExternalTool;
///
/// let color = json!({ "type": "object", "properties": { "title": { "type": "string" } }, "required": ["title"] });
/// let definition = ToolDefinition::new("pick_color").with_description("Lets the user pick a color").with_parameters(color);
/// assert_eq!(ExternalTool::new(definition).definition().kind(), ToolKind::Caller);
/// ```
#[derive(Clone, Debug)]
pub struct ExternalTool(ToolDefinition);

impl ExternalTool {
    /// Creates a tool with this definition, whose policy remains, such as `needs_approval`.
    #[must_use]
    pub fn new(definition: ToolDefinition) -> Self {
        Self(definition.with_kind(ToolKind::Caller))
    }
}

impl Tool for ExternalTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Err(ToolError::failed("the caller executes this call")))
    }

    fn injections(&self) -> Option<&[Injection]> {
        Some(&[])
    }
}
