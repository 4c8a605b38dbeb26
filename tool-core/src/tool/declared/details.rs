//! The options that only some tools have. A tool without them does not pay for them.

use std::time::Duration;

use serde_json::Value;

use crate::arguments::{Limit, Parameter};
use crate::model::{ReturnDirect, ToolDefinition, ToolPolicy};
use crate::tool::future::{self, Pending};
use crate::tool::{Injection, ToolContext};

/// The options of `#[tool(…)]` besides name and description, and the options of its parameters.
///
/// Options that need much code contain a function, so that only programs with tools that have the option contain the code. A
/// program with 200 tools and none of these options is a tenth smaller.
#[derive(Debug)]
pub struct Details {
    policy: ToolPolicy,
    undo: Option<&'static str>,
    strict: Option<fn(ToolDefinition) -> ToolDefinition>,
    is_deferred: bool,
    timeout: Option<(Duration, ApplyLimit<Duration>)>,
    max_output_chars: Option<(usize, ApplyLimit<(usize, bool)>)>,
    pub(super) injections: &'static [Injection],
    parameters: &'static [ParameterDetails],
}

type ApplyLimit<L> = fn(Pending<'_>, L) -> Pending<'_>;

impl Details {
    /// No options.
    pub const NONE: Self = Self {
        policy: ToolPolicy::DEFAULT,
        undo: None,
        strict: None,
        is_deferred: false,
        timeout: None,
        max_output_chars: None,
        injections: &[],
        parameters: &[],
    };
}

/// Defines the functions that set an option.
macro_rules! options {
    ($($name:ident($($value:ident: $type:ty)?) $($field:ident).+ = $set:expr;)*) => {
        impl Details {$(
            #[must_use]
            pub const fn $name(mut self $(, $value: $type)?) -> Self {
                self.$($field).+ = $set;
                self
            }
        )*}
    };
}

options! {
    return_direct(condition: ReturnDirect) policy.return_direct = condition;
    needs_approval() policy.needs_approval = true;
    exclusive() policy.exclusive = true;
    at_most_once() policy.at_most_once = true;
    pure() policy.pure = true;
    keep_output() policy.keep_output = true;
    attempts(attempts: u32) policy.attempts = attempts;
    undo(tool: &'static str) undo = Some(tool);
    strict() strict = Some(ToolDefinition::into_strict_or_error);
    deferred() is_deferred = true;
    max_output_chars(limit: usize) max_output_chars = Some((limit, future::with_max_chars));
    timeout(milliseconds: u64) timeout = Some((Duration::from_millis(milliseconds), future::with_timeout));
    injections(injections: &'static [Injection]) injections = injections;
    parameters(parameters: &'static [ParameterDetails]) parameters = parameters;
}

impl Details {
    /// Adds the options to the definition, and the defaults of the parameters with their indices.
    pub(super) fn complete(
        &self,
        definition: ToolDefinition,
        declared: &[Parameter],
        defaults: &[(usize, Value)],
    ) -> ToolDefinition {
        let mut parameters = definition.parameters().clone();
        self.describe_limits(declared, &mut parameters);
        for (index, parameter) in declared.iter().enumerate() {
            let Some(property) = parameters["properties"].get_mut(parameter.name) else { continue };
            let mut details = self.parameters.iter().filter(|details| details.index == index);
            if let Some(example) = details.find_map(|details| details.example?()) {
                property["examples"] = Value::Array(vec![example]);
            }
            if let Some((_, default)) = defaults.iter().find(|(with_default, _)| *with_default == index) {
                property["default"] = default.clone();
                // `null` only means the default.
                if let Some(Value::Array(types)) = property.get_mut("type") {
                    types.retain(|name| name != "null");
                }
            }
        }
        let definition = definition
            .with_parameters(parameters)
            .with_policy(self.policy.clone())
            .with_deferred(self.is_deferred);
        let definition = match self.undo {
            Some(undo) => definition.with_undo(undo),
            None => definition,
        };
        match self.strict {
            Some(strict) => strict(definition),
            None => definition,
        }
    }

    /// Adds the limits of the parameters to the schema of all of them.
    pub(super) fn describe_limits(&self, declared: &[Parameter], schema: &mut Value) {
        for details in self.parameters {
            let Some(parameter) = declared.get(details.index) else { continue };
            let property = &mut schema["properties"][parameter.name];
            details.limits.iter().for_each(|limit| limit.describe(property));
        }
    }

    /// Applies the timeout and the output limit to a call.
    pub(super) fn limit<'a>(&self, mut pending: Pending<'a>, context: &ToolContext) -> Pending<'a> {
        if let Some((duration, apply)) = self.timeout {
            pending = apply(pending, duration);
        }
        if let Some((limit, apply)) = self.max_output_chars {
            pending = apply(pending, (limit, context.stores_outputs()));
        }
        pending
    }
}

/// The options of one parameter besides name, description and `required`.
#[derive(Debug)]
pub struct ParameterDetails {
    index: usize,
    limits: &'static [Limit],
    example: Option<fn() -> Option<Value>>,
}

impl ParameterDetails {
    /// Creates the options of the parameter at `index`.
    #[must_use]
    pub const fn new(index: usize, limits: &'static [Limit], example: Option<fn() -> Option<Value>>) -> Self {
        Self { index, limits, example }
    }
}
