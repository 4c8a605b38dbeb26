//! Tools by other names.

use std::panic::Location;
use std::sync::Arc;

use super::{ToolRef, ToolSet, ToolSetError};
use crate::{Injection, Tool, ToolContext, ToolDefinition, ToolFuture};

impl ToolSet {
    /// The same tools, one of them by another name. Nothing else of it changes.
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
    /// # Ok::<_, tool_core::ToolSetError>(())
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
    /// # Ok::<_, tool_core::ToolSetError>(())
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
            Ok(match new_name(definition.name()) {
                Some(name) => {
                    let definition = definition.clone().with_name(name);
                    ToolRef::Shared(Arc::new(Renamed { tool: tool.clone(), definition }))
                }
                None => tool.clone(),
            })
        })
    }
}

/// A tool by another name.
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
}
