//! Tools with another definition than their own: renamed, deferred, strict, with extra parameters, or handing off.

use std::sync::Arc;

use super::set::ToolRef;
use crate::arguments::Repair;
use crate::model::ToolDefinition;
use crate::tool::{Injection, Tool, ToolContext, ToolError, ToolFuture};

/// A tool with another definition.
struct Redefined {
    tool: ToolRef,
    definition: ToolDefinition,
    /// Its arguments are passed to the tool as they are, unless they are converted.
    converted: Option<Converted>,
}

/// How the model's arguments map to the wrapped tool's.
pub(super) struct Converted {
    pub(super) convert: Convert,
    /// The values from the context that the tool and the conversion require.
    pub(super) injections: Option<Vec<Injection>>,
}

/// Returns the tool's own arguments, or `None` if it receives them unchanged; and the repairs.
pub(super) type Convert = Box<
    dyn Fn(&str, &ToolContext, Purpose) -> Result<(Option<String>, Vec<Repair>), ToolError> + Send + Sync,
>;

/// Why arguments are converted.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    Call,
    /// Nothing of the application is called.
    Check,
}

impl ToolRef {
    /// Returns this tool with another definition of the same arguments.
    pub(super) fn redefined(&self, definition: ToolDefinition) -> Self {
        Self::Shared(Arc::new(Redefined { tool: self.clone(), definition, converted: None }))
    }

    /// Returns this tool with another definition, of other arguments.
    pub(super) fn converted(&self, definition: ToolDefinition, converted: Converted) -> Self {
        Self::Shared(Arc::new(Redefined { tool: self.clone(), definition, converted: Some(converted) }))
    }
}

/// Returns the tool with another definition.
pub(crate) fn redefined(tool: impl Tool + 'static, definition: ToolDefinition) -> impl Tool + 'static {
    Redefined { tool: ToolRef::Shared(Arc::new(tool)), definition, converted: None }
}

impl Redefined {
    fn convert(
        &self,
        arguments: &str,
        context: &ToolContext,
        purpose: Purpose,
    ) -> Result<(Option<String>, Vec<Repair>), ToolError> {
        match &self.converted {
            Some(converted) => (converted.convert)(arguments, context, purpose),
            None => Ok((None, Vec::new())),
        }
    }
}

impl Tool for Redefined {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let tool = self.tool.get();
        let (own, repairs) = match self.convert(arguments, context, Purpose::Call) {
            Ok(converted) => converted,
            Err(error) => return ToolFuture::ready(Err(error)),
        };
        let future = match own {
            None => tool.call(arguments, context),
            Some(own) => ToolFuture::wrapping(async move {
                let (outcome, mut history) = tool.call(&own, context).finish().await;
                // The wrapped tool has other arguments than this one.
                let written = history.iter_mut().filter_map(|history| history.rewritten_arguments.as_mut());
                written.for_each(|written| arguments.clone_into(written));
                (outcome, history)
            }),
        };
        future.with_repairs(repairs)
    }

    fn check_arguments(&self, arguments: &str, context: &ToolContext) -> Result<(), ToolError> {
        let (own, _) = self.convert(arguments, context, Purpose::Check)?;
        self.tool.get().check_arguments(own.as_deref().unwrap_or(arguments), context)
    }

    fn wrapped(&self) -> Option<&dyn Tool> {
        Some(self.tool.get())
    }

    fn injections(&self) -> Option<&[Injection]> {
        match &self.converted {
            Some(converted) => converted.injections.as_deref(),
            None => self.tool.get().injections(),
        }
    }
}
