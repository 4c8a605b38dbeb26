//! Tools under other names, and deferred ones.

use super::set::ToolRef;
use crate::toolset::{ToolSet, ToolSetError};

impl ToolSet {
    /// Renames a tool. Tools that it [undoes](crate::model::ToolDefinition::undo) refer to it by the new name if they are in the set, so
    /// rename tools before you select from a set.
    ///
    /// ```
    /// use tool_core::{tool, tools};
    ///
    /// #[tool("Sums two numbers")]
    /// fn sum(a: f64, b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// let tools = tools![sum].rename("sum", "add")?;
    /// assert_eq!(tools.definitions()[0].name(), "add");
    /// # Ok::<_, tool_core::toolset::ToolSetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the set has no tool `from`, if it has another tool named `to`, or if `to` is not 1 to 64 letters `a` to
    /// `z` or `A` to `Z`, digits, `_` and `-`.
    pub fn rename(self, from: &str, to: impl Into<String>) -> Result<Self, ToolSetError> {
        if self.get(from).is_none() {
            return Err(self.unknown_tool(from));
        }
        let to = to.into();
        self.rename_tools(|name| (name == from).then(|| to.clone()))
    }

    /// Adds a prefix to the names of all tools: `github_` turns `search` into `github_search`. References to tools that
    /// [undo](crate::model::ToolDefinition::undo) others are updated if these tools are in the set.
    ///
    /// # Errors
    ///
    /// Fails if a name becomes longer than 64 characters, or if the prefix contains anything other than letters `a` to
    /// `z` or `A` to `Z`, digits, `_` and `-`.
    pub fn prefix(self, prefix: &str) -> Result<Self, ToolSetError> {
        self.rename_tools(|name| Some(format!("{prefix}{name}")))
    }

    /// Marks all tools as [deferred](crate::model::ToolDefinition::with_deferred): the model is offered them only once it has found them by
    /// [search](crate::agent::AgentBuilder::tool_search). For example, the tools of one server can be deferred, however few they are.
    #[must_use]
    pub fn deferred(self) -> Self {
        let defer = |tool: &ToolRef| {
            let definition = tool.get().definition().clone().with_deferred(true);
            Ok(tool.redefined(definition))
        };
        // The names are valid, because they come from a set.
        self.map_tools(defer).unwrap_or(self)
    }

    fn rename_tools(&self, new_name: impl Fn(&str) -> Option<String>) -> Result<Self, ToolSetError> {
        self.map_tools(|tool| {
            let definition = tool.get().definition();
            let name = new_name(definition.name());
            // A tool that is not in the set is not renamed.
            let undo = definition.undo().filter(|undo| self.get(undo).is_some()).and_then(&new_name);
            if name.is_none() && undo.is_none() {
                return Ok(tool.clone());
            }
            let mut definition = definition.clone();
            if let Some(name) = name {
                definition = definition.with_name(name);
            }
            if let Some(undo) = undo {
                definition = definition.with_undo(undo);
            }
            Ok(tool.redefined(definition))
        })
    }
}
