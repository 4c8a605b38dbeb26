//! What only some tools say of themselves: so a tool that says none of it pays for none of it.
//!
//! Tools see them through the trait [`Words`], and what takes more code, such as a timer, stands here as a function
//! pointer that is written where the word stands: a program without the word is linked without the code. Its functions
//! are `#[inline]` for the same end: they are compiled where they are used, and leave no tables of theirs elsewhere.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde_json::Value;

use super::arguments::Arguments;
use super::declaration::{Declaration, Describe};
use crate::arguments::{Limit, LimitViolation, Parameter, schema_limits, schemas, without_omitted};
use crate::model::{ReturnDirect, ToolDefinition, ToolPolicy};
use crate::tool::Injection;
use crate::tool::future::{self, Pending};

/// The words of `#[tool(…)]` beyond name and description, and of its parameters.
#[derive(Debug)]
pub struct Details {
    policy: ToolPolicy,
    undo: Option<&'static str>,
    strict: Option<Strict>,
    promises: Option<Promises>,
    timeout: Option<(Duration, Within)>,
    max_output_chars: Option<(usize, Cut)>,
    injections: &'static [Injection],
    parameters: &'static [ParameterDetails],
}

/// What makes a tool strict.
#[derive(Clone, Copy, Debug)]
struct Strict {
    form: fn(ToolDefinition) -> ToolDefinition,
    without_omitted: fn(&Value, &str) -> Option<String>,
}

/// What sees to the promises of types.
#[derive(Clone, Copy, Debug)]
struct Promises {
    of: fn(&[Parameter]) -> Option<Value>,
    broken: for<'t> fn(&Value, &Value, &'t str) -> Option<LimitViolation<'t>>,
}

/// Ends a call that takes longer than it may.
type Within = for<'a> fn(Pending<'a>, Duration) -> Pending<'a>;

/// Cuts what a call gives back when it is longer than it may be.
type Cut = for<'a> fn(Pending<'a>, usize) -> Pending<'a>;

impl Details {
    /// Nothing out of the ordinary.
    pub const NONE: Self = Self {
        policy: ToolPolicy::DEFAULT,
        undo: None,
        strict: None,
        promises: None,
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

    /// The name of the tool that undoes what this one does.
    #[must_use]
    pub const fn undo(mut self, tool: &'static str) -> Self {
        self.undo = Some(tool);
        self
    }

    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.strict = Some(Strict { form: ToolDefinition::into_strict_or_refused, without_omitted });
        self
    }

    /// A parameter is of a type that may promise more than reading it sees to.
    #[must_use]
    pub const fn promises(mut self) -> Self {
        self.promises =
            Some(Promises { of: schema_limits::limited_schema, broken: schema_limits::find_violation });
        self
    }

    #[must_use]
    pub const fn max_output_chars(mut self, characters: usize) -> Self {
        self.max_output_chars = Some((characters, future::cut));
        self
    }

    #[must_use]
    pub const fn timeout(mut self, milliseconds: u64) -> Self {
        self.timeout = Some((Duration::from_millis(milliseconds), future::within));
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

/// The details as a declaration sees them. Where there are none, this leaves nothing in the program.
#[inline]
pub(crate) const fn words(details: Option<&'static Details>) -> Option<&'static dyn Words> {
    match details {
        Some(details) => Some(details),
        None => None,
    }
}

/// What a [`Declaration`] sees of its details.
pub(crate) trait Words: fmt::Debug + Sync {
    /// The definition with all that is said; `call` is asked for the defaults of its parameters, and calls nothing.
    fn complete(
        &self,
        definition: ToolDefinition,
        declaration: &Declaration,
        call: Describe<'_>,
    ) -> ToolDefinition;

    /// Adds to the schema of a parameter what its words say.
    fn describe(&self, index: usize, schema: &mut Value);

    /// The text of the arguments without what a strict tool's model leaves out by `null`; nothing if it stays as it is.
    fn prepare(&self, text: &str, declaration: &Declaration) -> Option<String>;

    /// The schemas of the parameters' types, if they promise what reading the types does not see to.
    fn promises(&self, parameters: &[Parameter]) -> Option<Value>;

    /// The first value of an argument that breaks such a promise of its schema.
    fn broken<'t>(&self, promises: &Value, schema: &Value, text: &'t str) -> Option<LimitViolation<'t>>;

    /// The argument keeps to all limits of its parameter.
    fn allows(&self, index: usize, text: &str) -> bool;

    /// The call with what is put around it.
    fn around<'a>(&self, pending: Pending<'a>) -> Pending<'a>;

    /// What is taken from the context.
    fn injections(&self) -> &'static [Injection];
}

impl Words for Details {
    #[inline]
    fn complete(
        &self,
        definition: ToolDefinition,
        declaration: &Declaration,
        call: Describe<'_>,
    ) -> ToolDefinition {
        let mut slots = vec![None; declaration.parameters.len()];
        let mut arguments = Arguments::describing(declaration, &mut slots);
        // A default that panics shows nothing; it fails the calls that need it, and nothing else.
        let _ = catch_unwind(AssertUnwindSafe(|| call(&mut arguments)));
        let defaults = arguments.into_defaults();
        let mut parameters = definition.parameters().clone();
        for (index, parameter) in declaration.parameters.iter().enumerate() {
            let Some(property) = parameters["properties"].get_mut(parameter.name) else { continue };
            self.describe(index, property);
            if let Some((_, default)) = defaults.iter().find(|(with_default, _)| *with_default == index) {
                property["default"] = default.clone();
                // `null` stands for the default, and for nothing else.
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
            Some(strict) => (strict.form)(definition),
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
    fn promises(&self, parameters: &[Parameter]) -> Option<Value> {
        (self.promises?.of)(parameters)
    }

    #[inline]
    fn broken<'t>(&self, promises: &Value, schema: &Value, text: &'t str) -> Option<LimitViolation<'t>> {
        (self.promises?.broken)(promises, schema, text)
    }

    #[inline]
    fn allows(&self, index: usize, text: &str) -> bool {
        let mut parameters = self.parameters.iter().filter(|parameter| parameter.index == index);
        // `null` stands for an argument that is left out.
        text == "null" || parameters.all(|parameter| parameter.limits.iter().all(|limit| limit.allows(text)))
    }

    #[inline]
    fn around<'a>(&self, pending: Pending<'a>) -> Pending<'a> {
        let pending = match self.timeout {
            Some((duration, within)) => within(pending, duration),
            None => pending,
        };
        match self.max_output_chars {
            Some((characters, cut)) => cut(pending, characters),
            None => pending,
        }
    }

    #[inline]
    fn injections(&self) -> &'static [Injection] {
        self.injections
    }
}

/// The words of one parameter beyond name, description and `required`.
#[derive(Debug)]
pub struct ParameterDetails {
    index: usize,
    limits: &'static [&'static dyn Limit],
    example: Option<fn() -> Option<Value>>,
}

impl ParameterDetails {
    /// Of the parameter at this place.
    #[must_use]
    pub const fn of(
        index: usize,
        limits: &'static [&'static dyn Limit],
        example: Option<fn() -> Option<Value>>,
    ) -> Self {
        Self { index, limits, example }
    }
}
