//! Tools by other names.

use std::panic::Location;
use std::sync::Arc;

use crate::model::ToolDefinition;
use crate::tool::{Injection, Tool, ToolContext, ToolFuture};
use crate::toolset::{ToolRef, ToolSet, ToolSetError};

impl ToolSet {
    /// The same tools, one of them by another name. Nothing else of it changes, and tools that it
    /// [undoes](ToolDefinition::undo) name it by the new one.
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
    /// The set has no tool `from`, it has another one named `to`, or `to` is not 1 to 64 letters from a to
    /// z or A to Z, digits, `_` and `-`.
    pub fn rename(&self, from: &str, to: impl Into<String>) -> Result<Self, ToolSetError> {
        if self.get(from).is_none() {
            return Err(self.unknown(from));
        }
        let to = to.into();
        self.renamed(|name| (name == from).then(|| to.clone()))
    }

    /// The same tools with names that begin with this: `github_` makes `github_search` of `search`.
    /// So do the names of the tools that [undo](ToolDefinition::undo) others, if they are in the set.
    ///
    /// ```
    /// use tool_core::{tool, tools};
    ///
    /// #[tool("Searches the issues")]
    /// fn search(words: String) -> String {
    ///     words
    /// }
    ///
    /// let tools = tools![search].prefix("github_")?;
    /// assert!(tools.get("github_search").is_some());
    /// # Ok::<_, tool_core::toolset::ToolSetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A name gets longer than 64 characters, or the prefix has others than letters from a to z or A to Z,
    /// digits, `_` and `-`.
    pub fn prefix(&self, prefix: &str) -> Result<Self, ToolSetError> {
        self.renamed(|name| Some(format!("{prefix}{name}")))
    }

    fn renamed(&self, new_name: impl Fn(&str) -> Option<String>) -> Result<Self, ToolSetError> {
        self.map(|tool| {
            let definition = tool.get().definition();
            let name = new_name(definition.name());
            // A tool that is not in the set keeps its name.
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
            Ok(ToolRef::Shared(Arc::new(Renamed { tool: tool.clone(), definition })))
        })
    }
}

/// A tool by another name, or whose undoing has another.
struct Renamed {
    tool: ToolRef,
    definition: ToolDefinition,
}

impl Tool for Renamed {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        self.tool.get().call(arguments, context)
    }

    fn injections(&self) -> Option<&[Injection]> {
        self.tool.get().injections()
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        self.tool.get().declared_at()
    }

    fn origin(&self) -> Option<&str> {
        self.tool.get().origin()
    }
}
