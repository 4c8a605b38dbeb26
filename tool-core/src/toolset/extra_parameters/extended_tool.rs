//! Tools with extra parameters.

use std::panic::Location;
use std::sync::Arc;

use serde_json::Value;

use super::schema::ExtraProperties;
use super::split_arguments::{SplitArguments, write_name, write_object};
use crate::arguments::schemas::{parameter_schema, parameters_schema};
use crate::arguments::{Parameter, Repair, duplicate_members, explain, repair};
use crate::model::{ToolCall, ToolDefinition};
use crate::tool::{Injection, Tool, ToolContext, ToolError, ToolFuture};
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
    /// The struct as one parameter without a name, to explain invalid fields.
    parameter: Parameter,
    handler: Handler,
    pub(super) passes_to_tool: bool,
}

/// Parses the fields from the text of an object and calls the function of the application.
pub(super) type Handler =
    Box<dyn Fn(&ToolCall, &str) -> Result<Result<(), ToolError>, serde_json::Error> + Send + Sync>;

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
}

impl Shared {
    /// Returns `None` if the parameter is not a struct with named fields.
    pub(super) fn new(parameter: Parameter, handler: Handler) -> Option<Self> {
        let parameters = [parameter];
        let mut schema = parameters_schema(&parameters);
        let [parameter] = parameters;
        let definitions = match schema.get_mut("$defs").map(Value::take) {
            Some(Value::Object(definitions)) => definitions,
            _ => Default::default(),
        };
        let extra = ExtraProperties::new(schema["properties"][parameter.name].take(), definitions)?;
        Some(Self { extra, parameter, handler, passes_to_tool: false })
    }

    /// Parses the fields and passes them to the application. Returns the tool's own arguments, or `None` if the tool
    /// receives the arguments unchanged.
    fn process(
        &self,
        call: &ToolCall,
        arguments: &str,
        context: &ToolContext,
        repairs: &mut Vec<Repair>,
    ) -> Result<Option<String>, ToolError> {
        let repairs_arguments = !context.has_strict_arguments();
        let is_extra = |name: &str| self.extra.properties.contains_key(name);
        let repaired = match SplitArguments::parse(arguments, is_extra) {
            Err(_) if repairs_arguments => repair::repair_text(arguments),
            _ => None,
        };
        let split = SplitArguments::parse(repaired.as_deref().unwrap_or(arguments), is_extra)
            .map_err(|error| refusal(&explain::not_an_object(arguments, &error)))?;
        let text = write_object(split.extra.iter().map(|(name, value)| (write_name(name), *value)));
        self.check(&split, &text)?;
        match (self.handler)(call, &text) {
            Ok(accepted) => accepted?,
            Err(error) => {
                let repaired = repairs_arguments.then(|| self.repair(&split, repairs));
                // A string that turned out to be an object can contain a member twice.
                self.check(&split, repaired.as_deref().unwrap_or_default())?;
                match repaired.map(|text| (self.handler)(call, &text)) {
                    Some(Ok(accepted)) => accepted?,
                    _ => return Err(refusal(&self.explain(&text, &error))),
                }
            }
        }
        if self.passes_to_tool {
            return Ok(None);
        }
        if let Some(repaired) = &repaired {
            repairs.insert(0, Repair::for_text(arguments, repaired));
        }
        Ok(split.tool_arguments().or(repaired))
    }

    /// Checks that every required field is present, and that their text contains no member twice.
    fn check(&self, split: &SplitArguments<'_>, text: &str) -> Result<(), ToolError> {
        let mut mistakes = Vec::new();
        for (name, schema) in &self.extra.properties {
            let is_present = split.extra.iter().any(|(other, _)| other == name);
            if !is_present && self.extra.required.contains(name) {
                let description = schema.get("description").and_then(Value::as_str);
                mistakes.push(explain::missing_value(name, &explain::describe_schema(schema), description));
            }
        }
        mistakes.extend(duplicate_members(text).iter().map(|path| explain::duplicate_member(path)));
        if mistakes.is_empty() { Ok(()) } else { Err(refusal(&mistakes.join("; "))) }
    }

    /// Repairs the fields as far as possible.
    fn repair(&self, split: &SplitArguments<'_>, repairs: &mut Vec<Repair>) -> String {
        let mut members = Vec::new();
        for (name, value) in &split.extra {
            // `null` stands for an optional field that is omitted.
            if *value == "null" && !self.extra.required.contains(name) {
                continue;
            }
            let schema = self.extra.property_schema(name);
            let repaired = schema.and_then(|schema| repair::repair_value(&schema, value));
            if let Some(repaired) = &repaired {
                repairs.push(Repair::for_argument(name, value, repaired));
            }
            members.push((write_name(name), repaired.unwrap_or_else(|| (*value).to_owned())));
        }
        write_object(members.into_iter())
    }

    /// Explains to the model which field is invalid.
    fn explain(&self, text: &str, error: &serde_json::Error) -> String {
        let message = explain::wrong_value(&self.parameter, &parameter_schema(&self.parameter), text, error);
        // The model does not know the struct, as its fields are at the top level.
        match (message.strip_prefix("`."), message.strip_prefix("``: ")) {
            (Some(field), _) => format!("`{field}"),
            (_, Some(whole)) => whole.to_owned(),
            _ => message,
        }
    }
}

fn refusal(mistakes: &str) -> ToolError {
    ToolError::invalid_arguments(format!("invalid arguments: {mistakes}"))
}
