//! The options that only some tools have. A tool without them does not pay for them.
//!
//! Tools access them through the trait [`DynDetails`]. Options that need more code, such as a timer, are function pointers
//! set by the option's builder method, so a program that does not use the option does not link the code. The functions
//! are `#[inline]` for the same reason: they are compiled where they are used and leave no unwind tables elsewhere.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde_json::Value;

use super::arguments::Arguments;
use super::declaration::{Declaration, Describe};
use crate::arguments::{Limit, schemas, without_omitted};
use crate::model::{ReturnDirect, ToolDefinition, ToolPolicy};
use crate::tool::Injection;
use crate::tool::future::{self, Pending};

/// The options of `#[tool(…)]` besides name and description, and those of its parameters.
#[derive(Debug)]
pub struct Details {
    policy: ToolPolicy,
    undo: Option<&'static str>,
    strict: Option<Strict>,
    timeout: Option<(Duration, WithTimeout)>,
    max_output_chars: Option<(usize, WithMaxChars)>,
    injections: &'static [Injection],
    parameters: &'static [ParameterDetails],
}

/// The functions that make a tool strict.
#[derive(Clone, Copy, Debug)]
struct Strict {
    into_strict: fn(ToolDefinition) -> ToolDefinition,
    without_omitted: fn(&Value, &str) -> Option<String>,
}

/// Limits the duration of a call.
type WithTimeout = for<'a> fn(Pending<'a>, Duration) -> Pending<'a>;

/// Truncates the outcome of a call.
type WithMaxChars = for<'a> fn(Pending<'a>, usize) -> Pending<'a>;

impl Details {
    /// No options.
    pub const NONE: Self = Self {
        policy: ToolPolicy::DEFAULT,
        undo: None,
        strict: None,
        timeout: None,
        max_output_chars: None,
        injections: &[],
        parameters: &[],
    };

    #[must_use]
    pub const fn return_direct(mut self, return_direct: ReturnDirect) -> Self {
        self.policy.return_direct = return_direct;
        self
    }

    #[must_use]
    pub const fn needs_approval(mut self) -> Self {
        self.policy.needs_approval = true;
        self
    }

    #[must_use]
    pub const fn exclusive(mut self) -> Self {
        self.policy.exclusive = true;
        self
    }

    #[must_use]
    pub const fn at_most_once(mut self) -> Self {
        self.policy.at_most_once = true;
        self
    }

    #[must_use]
    pub const fn pure(mut self) -> Self {
        self.policy.pure = true;
        self
    }

    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.policy.attempts = attempts;
        self
    }

    /// Sets the name of the tool that undoes the calls of this one.
    #[must_use]
    pub const fn undo(mut self, tool: &'static str) -> Self {
        self.undo = Some(tool);
        self
    }

    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.strict = Some(Strict { into_strict: ToolDefinition::into_strict_or_error, without_omitted });
        self
    }

    #[must_use]
    pub const fn max_output_chars(mut self, limit: usize) -> Self {
        self.max_output_chars = Some((limit, future::with_max_chars));
        self
    }

    #[must_use]
    pub const fn timeout(mut self, milliseconds: u64) -> Self {
        self.timeout = Some((Duration::from_millis(milliseconds), future::with_timeout));
        self
    }

    #[must_use]
    pub const fn injections(mut self, injections: &'static [Injection]) -> Self {
        self.injections = injections;
        self
    }

    #[must_use]
    pub const fn parameters(mut self, parameters: &'static [ParameterDetails]) -> Self {
        self.parameters = parameters;
        self
    }
}

/// Returns the details as a trait object. Without details, no code remains in the program.
#[inline]
pub(crate) const fn as_dyn(details: Option<&'static Details>) -> Option<&'static dyn DynDetails> {
    match details {
        Some(details) => Some(details),
        None => None,
    }
}

/// The interface through which a [`Declaration`] accesses its details.
pub(crate) trait DynDetails: fmt::Debug + Sync {
    /// Adds the options to the definition. `call` only provides the defaults of the parameters.
    fn complete(
        &self,
        definition: ToolDefinition,
        declaration: &Declaration,
        call: Describe<'_>,
    ) -> ToolDefinition;

    /// Adds the options of a parameter to its schema.
    fn describe(&self, index: usize, schema: &mut Value);

    /// Removes each `null` that means an omitted argument in strict mode. Returns `None` if the text is unchanged.
    fn prepare(&self, text: &str, declaration: &Declaration) -> Option<String>;

    /// Returns `true` if the argument is within all limits of its parameter.
    fn allows(&self, index: usize, text: &str) -> bool;

    /// Applies the timeout and the output limit to a call.
    fn limit<'a>(&self, pending: Pending<'a>) -> Pending<'a>;

    /// Returns the values that the tool takes from its context.
    fn injections(&self) -> &'static [Injection];
}

impl DynDetails for Details {
    #[inline]
    fn complete(
        &self,
        definition: ToolDefinition,
        declaration: &Declaration,
        call: Describe<'_>,
    ) -> ToolDefinition {
        let mut slots = vec![None; declaration.parameters.len()];
        let mut arguments = Arguments::describing(declaration, &mut slots);
        // A default that panics is omitted from the schema. It fails only the calls that need it.
        let _ = catch_unwind(AssertUnwindSafe(|| call(&mut arguments)));
        let defaults = arguments.into_defaults();
        let mut parameters = definition.parameters().clone();
        for (index, parameter) in declaration.parameters.iter().enumerate() {
            let Some(property) = parameters["properties"].get_mut(parameter.name) else { continue };
            self.describe(index, property);
            if let Some((_, default)) = defaults.iter().find(|(with_default, _)| *with_default == index) {
                property["default"] = default.clone();
                // `null` only means the default.
                if let Some(Value::Array(types)) = property.get_mut("type") {
                    types.retain(|name| name != "null");
                }
            }
        }
        let definition = definition.with_parameters(parameters).with_policy(self.policy);
        let definition = match self.undo {
            Some(undo) => definition.with_undo(undo),
            None => definition,
        };
        match self.strict {
            Some(strict) => (strict.into_strict)(definition),
            None => definition,
        }
    }

    #[inline]
    fn describe(&self, index: usize, schema: &mut Value) {
        for parameter in self.parameters.iter().filter(|parameter| parameter.index == index) {
            for limit in parameter.limits {
                limit.describe(schema);
            }
            if let Some(example) = parameter.example.and_then(|example| example()) {
                schema["examples"] = Value::Array(vec![example]);
            }
        }
    }

    #[inline]
    fn prepare(&self, text: &str, declaration: &Declaration) -> Option<String> {
        let strict = self.strict.filter(|_| text.contains("null"))?;
        (strict.without_omitted)(&schemas::parameters_schema(declaration.parameters), text)
    }

    #[inline]
    fn allows(&self, index: usize, text: &str) -> bool {
        let mut parameters = self.parameters.iter().filter(|parameter| parameter.index == index);
        // `null` means that the argument is omitted.
        text == "null" || parameters.all(|parameter| parameter.limits.iter().all(|limit| limit.allows(text)))
    }

    #[inline]
    fn limit<'a>(&self, pending: Pending<'a>) -> Pending<'a> {
        let pending = match self.timeout {
            Some((duration, with_timeout)) => with_timeout(pending, duration),
            None => pending,
        };
        match self.max_output_chars {
            Some((limit, with_max_chars)) => with_max_chars(pending, limit),
            None => pending,
        }
    }

    #[inline]
    fn injections(&self) -> &'static [Injection] {
        self.injections
    }
}

/// The options of one parameter besides name, description and `required`.
#[derive(Debug)]
pub struct ParameterDetails {
    index: usize,
    limits: &'static [&'static dyn Limit],
    example: Option<fn() -> Option<Value>>,
}

impl ParameterDetails {
    /// Creates the options of the parameter at `index`.
    #[must_use]
    pub const fn new(
        index: usize,
        limits: &'static [&'static dyn Limit],
        example: Option<fn() -> Option<Value>>,
    ) -> Self {
        Self { index, limits, example }
    }
}
