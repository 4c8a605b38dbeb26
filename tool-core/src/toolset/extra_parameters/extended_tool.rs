//! A tool with more parameters than it knows of.

use std::panic::Location;
use std::sync::Arc;

use serde_json::Value;

use super::reading::{Split, object, quoted};
use super::schema::Extra;
use crate::arguments::schemas::{self, of_parameters};
use crate::arguments::{Parameter, Repair, expectation, repair};
use crate::model::{ToolCall, ToolDefinition};
use crate::tool::{Injection, Tool, ToolContext, ToolError, ToolFuture};
use crate::toolset::ToolRef;

/// A tool with more parameters than it knows of.
pub(super) struct Augmented {
    tool: ToolRef,
    definition: ToolDefinition,
    injections: Option<Vec<Injection>>,
    shared: Arc<Shared>,
}

/// What all tools of a set share.
pub(super) struct Shared {
    extra: Extra,
    /// The struct as one parameter without a name, for the words about what is wrong in it.
    parameter: Parameter,
    hand: Hand,
    pub(super) is_kept: bool,
}

/// Reads the fields out of the text of an object and hands them over.
pub(super) type Hand =
    Box<dyn Fn(&ToolCall, &str) -> Result<Result<(), ToolError>, serde_json::Error> + Send + Sync>;

impl Augmented {
    /// # Errors
    ///
    /// Why the tool cannot have these parameters: the end of a sentence about it.
    pub(super) fn new(tool: ToolRef, shared: Arc<Shared>) -> Result<Self, String> {
        let definition = tool.get().definition();
        let parameters = shared.extra.added_to(definition.parameters())?;
        let augmented = definition.clone().with_parameters(parameters);
        // What was strict stays so.
        let definition = match definition.is_strict() {
            true => augmented
                .into_strict()
                .map_err(|error| format!("has no strict form with them, at {}", error.path()))?,
            false => augmented,
        };
        let injections = tool.get().injections();
        let injections =
            injections.map(|own| own.iter().copied().chain([Injection::of::<ToolCall>()]).collect());
        Ok(Self { tool, definition, injections, shared })
    }
}

impl Tool for Augmented {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let mut repairs = Vec::new();
        let by_hand;
        let call = match context.call() {
            Some(call) => call,
            // Not called through a set.
            None => {
                by_hand = ToolCall::new("", self.definition.name(), arguments);
                &by_hand
            }
        };
        let future = match self.shared.hand_over(call, arguments, context, &mut repairs) {
            Err(error) => ToolFuture::ready(Err(error)),
            Ok(None) => self.tool.get().call(arguments, context),
            Ok(Some(own)) => ToolFuture::around(async move {
                let mut future = self.tool.get().call(&own, context);
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
    /// `None` if the parameter is no struct with named fields.
    pub(super) fn of(parameter: Parameter, hand: Hand) -> Option<Self> {
        let parameters = [parameter];
        let mut schema = of_parameters(&parameters);
        let [parameter] = parameters;
        let definitions = match schema.get_mut("$defs").map(Value::take) {
            Some(Value::Object(definitions)) => definitions,
            _ => Default::default(),
        };
        let extra = Extra::of(schema["properties"][parameter.name].take(), definitions)?;
        Some(Self { extra, parameter, hand, is_kept: false })
    }

    /// Reads the fields and hands them over. Gives the arguments that are the tool's own, unless it gets them
    /// all as they are.
    fn hand_over(
        &self,
        call: &ToolCall,
        arguments: &str,
        context: &ToolContext,
        repairs: &mut Vec<Repair>,
    ) -> Result<Option<String>, ToolError> {
        let mends = !context.has_strict_arguments();
        let is_extra = |name: &str| self.extra.properties.contains_key(name);
        let mended = match Split::of(arguments, is_extra) {
            Err(_) if mends => repair::mend_text(arguments),
            _ => None,
        };
        let split = Split::of(mended.as_deref().unwrap_or(arguments), is_extra)
            .map_err(|error| refusal(&expectation::unreadable(arguments, &error)))?;
        self.check(&split)?;
        let text = object(split.extra.iter().map(|(name, value)| (quoted(name), *value)));
        match (self.hand)(call, &text) {
            Ok(handed) => handed?,
            Err(error) => {
                let again = mends.then(|| self.mended(&split, repairs));
                match again.map(|text| (self.hand)(call, &text)) {
                    Some(Ok(handed)) => handed?,
                    _ => return Err(refusal(&self.wrong(&text, &error))),
                }
            }
        }
        if self.is_kept {
            return Ok(None);
        }
        if let Some(mended) = &mended {
            repairs.insert(0, Repair::of_text(arguments, mended));
        }
        Ok(split.own().or(mended))
    }

    /// Every required field is there, and none is there twice.
    fn check(&self, split: &Split<'_>) -> Result<(), ToolError> {
        let count = |name: &str| split.extra.iter().filter(|(other, _)| other == name).count();
        let mut mistakes = Vec::new();
        for (name, schema) in &self.extra.properties {
            match count(name) {
                0 if self.extra.required.contains(name) => {
                    let expected = expectation::of_schema(schema);
                    let description = schema.get("description").and_then(Value::as_str);
                    let description = description.map_or(String::new(), |text| format!(" ({text})"));
                    mistakes.push(format!("`{name}` is missing, expected {expected}{description}"));
                }
                0 | 1 => {}
                _ => mistakes.push(format!("`{name}` is given twice")),
            }
        }
        if mistakes.is_empty() { Ok(()) } else { Err(refusal(&mistakes.join("; "))) }
    }

    /// The fields as their schemas ask for them, as far as they can be had.
    fn mended(&self, split: &Split<'_>, repairs: &mut Vec<Repair>) -> String {
        let mut members = Vec::new();
        for (name, value) in &split.extra {
            // `null` for what may be left out says that it is left out.
            if *value == "null" && !self.extra.required.contains(name) {
                continue;
            }
            let mended = self.extra.property(name).and_then(|schema| repair::mend_value(&schema, value));
            if let Some(mended) = &mended {
                repairs.push(Repair::of_argument(name, value, mended));
            }
            members.push((quoted(name), mended.unwrap_or_else(|| (*value).to_owned())));
        }
        object(members.into_iter())
    }

    fn wrong(&self, text: &str, error: &serde_json::Error) -> String {
        let words = expectation::wrong(&self.parameter, &schemas::of_parameter(&self.parameter), text, error);
        // The struct has no name to the model: its fields stand at the top.
        match (words.strip_prefix("`."), words.strip_prefix("``: ")) {
            (Some(field), _) => format!("`{field}"),
            (_, Some(whole)) => whole.to_owned(),
            _ => words,
        }
    }
}

fn refusal(mistakes: &str) -> ToolError {
    ToolError::invalid_arguments(format!("invalid arguments: {mistakes}"))
}
