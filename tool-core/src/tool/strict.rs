//! Tools of which the provider holds the model to the schema.

use std::fmt;
use std::panic::Location;

use super::absent::without_absent;
use crate::schema::Refusal;
use crate::{Injection, Tool, ToolContext, ToolDefinition, ToolFuture};

/// A tool with a strict definition.
///
/// It is the same tool: a `null` with which the model leaves something out, because strict mode makes it give every
/// property, is taken out before the tool sees it.
pub(crate) struct StrictTool<T> {
    tool: T,
    definition: ToolDefinition,
}

impl<T: AsRef<dyn Tool>> StrictTool<T> {
    pub(crate) fn new(tool: T) -> Result<Self, StrictError> {
        let definition = tool.as_ref().definition().clone().into_strict()?;
        Ok(Self { tool, definition })
    }
}

impl<T: AsRef<dyn Tool> + Send + Sync> Tool for StrictTool<T> {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let tool = self.tool.as_ref();
        match without_absent(tool.definition().parameters(), arguments) {
            None => tool.call(arguments, context),
            Some(arguments) => ToolFuture::boxed(async move { tool.call(&arguments, context).await }),
        }
    }

    fn injections(&self) -> Option<&[Injection]> {
        self.tool.as_ref().injections()
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        self.tool.as_ref().declared_at()
    }
}

/// Why the parameters of a tool have no strict form.
#[derive(thiserror::Error)]
#[error("the tool `{tool}` has no strict form: {refusal}")]
pub struct StrictError {
    tool: String,
    refusal: Refusal,
}

impl StrictError {
    pub(super) fn new(tool: String, refusal: Refusal) -> Self {
        Self { tool, refusal }
    }

    /// The name of the tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The place in its parameters, such as `$.properties.labels`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.refusal.path
    }
}

/// The text, so that a `main` that returns the error shows it readably.
impl fmt::Debug for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
