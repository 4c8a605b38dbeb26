//! Tools that the caller of a run executes.

use crate::model::ToolDefinition;
use crate::tool::{Injection, Tool, ToolContext, ToolError, ToolFuture};

/// A tool without code, whose calls the caller of a run executes, for example in a user's browser.
///
/// A run [waits](crate::run::Step::NeedsResults) for the results of its calls; see
/// [`ToolPolicy::external`](crate::model::ToolPolicy::external).
///
/// ```
/// use serde_json::json;
/// use tool_core::Tool;
/// use tool_core::model::ToolDefinition;
/// use tool_core::tool::ExternalTool;
///
/// let color = json!({ "type": "object", "properties": { "title": { "type": "string" } }, "required": ["title"] });
/// let definition = ToolDefinition::new("pick_color").with_description("Lets the user pick a color").with_parameters(color);
/// assert!(ExternalTool::new(definition).definition().policy().external);
/// ```
#[derive(Clone, Debug)]
pub struct ExternalTool(ToolDefinition);

impl ExternalTool {
    /// Creates a tool with this definition. The rest of its policy remains, such as `needs_approval`.
    #[must_use]
    pub fn new(definition: ToolDefinition) -> Self {
        let mut policy = definition.policy();
        policy.external = true;
        Self(definition.with_policy(policy))
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
