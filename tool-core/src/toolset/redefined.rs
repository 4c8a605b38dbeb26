//! Tools with another definition than their own: renamed, deferred, strict, with extra parameters, or handing off.

use std::panic::Location;
use std::sync::{Arc, OnceLock};

use super::extra_parameters::ExtraArguments;
use crate::arguments::without_omitted_arguments;
use crate::model::ToolDefinition;
use crate::schema::Shape;
use crate::tool::{Injection, Tool, ToolContext, ToolFuture};
use crate::toolset::ToolRef;

/// A tool with another definition.
struct Redefined {
    tool: ToolRef,
    definition: ToolDefinition,
    form: Form,
}

/// The form of the arguments that the model writes, of which the tool receives its own.
pub(super) enum Form {
    /// They are the tool's own.
    Own,
    /// Strict mode requires every property, so the model writes `null` for one that it omits. Has the shape of the tool's own
    /// parameters, once it is needed.
    Strict(OnceLock<Shape>),
    /// Others are added, which require the call itself.
    Extra { extra: Arc<ExtraArguments>, injections: Option<Vec<Injection>> },
}

impl ToolRef {
    /// Returns this tool with another definition.
    pub(super) fn redefined(&self, definition: ToolDefinition, form: Form) -> Self {
        Self::Shared(Arc::new(Redefined { tool: self.clone(), definition, form }))
    }
}

/// Returns the tool with another definition.
pub(crate) fn redefined(tool: impl Tool + 'static, definition: ToolDefinition) -> impl Tool + 'static {
    Redefined { tool: ToolRef::Shared(Arc::new(tool)), definition, form: Form::Own }
}

impl Tool for Redefined {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let tool = self.tool.get();
        let (own, repairs) = match &self.form {
            Form::Own => (None, Vec::new()),
            Form::Strict(shape) => {
                (without_omitted_arguments(shape, tool.definition().parameters(), arguments), Vec::new())
            }
            Form::Extra { extra, .. } => match extra.take(self.definition.name(), arguments, context) {
                Ok(taken) => taken,
                Err(error) => return ToolFuture::ready(Err(error)),
            },
        };
        let future = match own {
            None => tool.call(arguments, context),
            Some(own) => ToolFuture::wrapping(async move { tool.call(&own, context).finish().await }),
        };
        future.with_repairs(repairs)
    }

    fn injections(&self) -> Option<&[Injection]> {
        match &self.form {
            Form::Extra { injections, .. } => injections.as_deref(),
            Form::Own | Form::Strict(_) => self.tool.get().injections(),
        }
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        self.tool.get().declared_at()
    }

    fn origin(&self) -> Option<&str> {
        self.tool.get().origin()
    }

    fn is_agent(&self) -> bool {
        self.tool.get().is_agent()
    }
}
