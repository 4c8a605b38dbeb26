//! Tools with extra parameters.

use std::borrow::Cow;
use std::panic::Location;
use std::sync::Arc;

use serde_json::Value;

use super::schema::ExtraProperties;
use super::split_arguments::SplitArguments;
use crate::arguments::schemas::parameters_schema;
use crate::arguments::{Contract, Mode, Parameter, Repair, not_an_object, repair_text, write_object};
use crate::model::{ToolCall, ToolDefinition};
use crate::tool::{Injection, Tool, ToolArguments, ToolContext, ToolError, ToolFuture, arguments_contract};
use crate::toolset::ToolRef;

/// A tool with extra parameters, which it does not see.
pub(super) struct ExtendedTool {
    tool: ToolRef,
    definition: ToolDefinition,
    injections: Option<Vec<Injection>>,
    shared: Arc<Shared>,
}

/// The state that all tools of a set share.
pub(super) struct Shared {
    extra: ExtraProperties,
    contract: Contract,
    handler: Handler,
    pub(super) passes_to_tool: bool,
}

/// Decodes the fields from the text of an object and calls the function of the application. Returns the repairs.
pub(super) type Handler =
    Box<dyn Fn(&ToolCall, &str, &Contract, Mode) -> Result<Vec<Repair>, ToolError> + Send + Sync>;

impl ExtendedTool {
    /// Adds the parameters to a tool.
    ///
    /// # Errors
    ///
    /// Returns why the tool cannot have these parameters, as the end of a sentence about it.
    pub(super) fn new(tool: ToolRef, shared: Arc<Shared>) -> Result<Self, String> {
        let definition = tool.get().definition();
        let parameters = shared.extra.merge_into(definition.parameters())?;
        let extended = definition.clone().with_parameters(parameters);
        // A strict definition stays strict.
        let definition = match definition.is_strict() {
            true => extended
                .into_strict()
                .map_err(|error| format!("has no strict form with them, at {}", error.path()))?,
            false => extended,
        };
        let injections = tool.get().injections();
        let injections =
            injections.map(|types| types.iter().copied().chain([Injection::new::<ToolCall>()]).collect());
        Ok(Self { tool, definition, injections, shared })
    }
}

impl Tool for ExtendedTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let mut repairs = Vec::new();
        let direct_call;
        let call = match context.call() {
            Some(call) => call,
            // The tool was not called through a set.
            None => {
                direct_call = ToolCall::new("", self.definition.name(), arguments);
                &direct_call
            }
        };
        let future = match self.shared.process(call, arguments, context, &mut repairs) {
            Err(error) => ToolFuture::ready(Err(error)),
            Ok(None) => self.tool.get().call(arguments, context),
            Ok(Some(arguments)) => ToolFuture::wrapping(async move {
                let mut future = self.tool.get().call(&arguments, context);
                ((&mut future).await, future.take_repairs())
            }),
        };
        future.with_repairs(repairs)
    }

    fn injections(&self) -> Option<&[Injection]> {
        self.injections.as_deref()
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

impl Shared {
    /// Returns `None` if the type is not a struct with named fields.
    pub(super) fn new<T: ToolArguments>(handler: Handler) -> Option<Self> {
        let mut schema = parameters_schema(&[Parameter::new::<T>("", None, true)]);
        let definitions = match schema.get_mut("$defs").map(Value::take) {
            Some(Value::Object(definitions)) => definitions,
            _ => Default::default(),
        };
        let extra = ExtraProperties::new(schema["properties"][""].take(), definitions)?;
        Some(Self { extra, contract: arguments_contract::<T>(), handler, passes_to_tool: false })
    }

    /// Decodes the fields and passes them to the application. Returns the tool's own arguments, or `None` if the tool
    /// receives the arguments unchanged.
    fn process(
        &self,
        call: &ToolCall,
        arguments: &str,
        context: &ToolContext,
        repairs: &mut Vec<Repair>,
    ) -> Result<Option<String>, ToolError> {
        let mode = context.read_mode();
        let is_extra = |name: &str| self.extra.properties.contains_key(name);
        let repaired = match SplitArguments::parse(arguments, is_extra) {
            Err(_) if !mode.is_strict => repair_text(arguments),
            _ => None,
        };
        let split = SplitArguments::parse(repaired.as_deref().unwrap_or(arguments), is_extra)
            .map_err(|error| refusal(&not_an_object(arguments, &error)))?;
        let extra: Vec<_> =
            split.extra.iter().map(|(name, value)| (&**name, Cow::Borrowed(*value))).collect();
        repairs.extend((self.handler)(call, &write_object(&extra), &self.contract, mode)?);
        if self.passes_to_tool {
            return Ok(None);
        }
        if let Some(repaired) = &repaired {
            repairs.insert(0, Repair::for_text(arguments, repaired));
        }
        Ok(split.tool_arguments().or(repaired))
    }
}

fn refusal(mistakes: &str) -> ToolError {
    ToolError::invalid_arguments(format!("invalid arguments: {mistakes}"))
}
