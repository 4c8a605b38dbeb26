//! Patterns for calls, as `call!` writes them.

mod argument;

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

pub use self::argument::{ArgumentPattern, Members};
use crate::model::ToolCall;

/// A pattern for calls of one tool: its name, and what its arguments have to be. [`call!`](crate::call) writes it.
///
/// `Display` writes it as the program does.
#[derive(Clone)]
pub struct CallPattern {
    name: Cow<'static, str>,
    text: &'static str,
    /// `None` for any arguments.
    arguments: Option<Members>,
    outcome: Option<CallOutcome>,
}

/// What has become of a call, as far as a [pattern](CallPattern) demands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOutcome {
    /// The tool has returned an output.
    Ok,
    /// The tool has failed, has refused the arguments, or does not exist.
    Failed,
    /// A person or a layer has denied the call.
    Denied,
    /// The call waits, for a person, a result or a time.
    Waiting,
    /// The call was not executed, for another reason than a denial.
    NotExecuted,
}

impl CallPattern {
    pub(crate) fn new(
        name: impl Into<Cow<'static, str>>,
        text: &'static str,
        arguments: Option<Members>,
    ) -> Self {
        Self { name: name.into(), text, arguments, outcome: None }
    }

    /// Demands that the tool has returned an output. What demands an outcome is for checks; before a call is executed, nothing else than the call
    /// is compared.
    #[must_use]
    pub fn ok(self) -> Self {
        Self { outcome: Some(CallOutcome::Ok), ..self }
    }

    /// Demands that the tool has failed, has refused the arguments, or does not exist.
    #[must_use]
    pub fn failed(self) -> Self {
        Self { outcome: Some(CallOutcome::Failed), ..self }
    }

    /// Demands that a person or a layer has denied the call.
    #[must_use]
    pub fn denied(self) -> Self {
        Self { outcome: Some(CallOutcome::Denied), ..self }
    }

    /// Demands that the call waits.
    #[must_use]
    pub fn waiting(self) -> Self {
        Self { outcome: Some(CallOutcome::Waiting), ..self }
    }

    /// Demands that the call was not executed, and not because it was denied.
    #[must_use]
    pub fn not_executed(self) -> Self {
        Self { outcome: Some(CallOutcome::NotExecuted), ..self }
    }

    /// Returns the outcome that the pattern demands.
    #[must_use]
    pub fn outcome(&self) -> Option<CallOutcome> {
        self.outcome
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn tool_name(&self) -> &str {
        &self.name
    }

    /// Returns `true` if a call that a model requests matches. Its arguments are read as
    /// [`ToolCall::arguments_as`] reads a [`Value`]; those that cannot be read match no pattern with arguments.
    ///
    /// They are compared as the model wrote them, before the tool repairs them: `5_000..` does not match the text `"9000"`, which the tool
    /// takes for a number. A guard that must not be evaded reads them with the types of the tool.
    #[must_use]
    pub fn matches(&self, call: &ToolCall) -> bool {
        if call.name != self.name {
            return false;
        }
        let arguments = || call.arguments_as::<Value>().ok();
        self.arguments.is_none()
            || arguments().as_ref().and_then(Value::as_object).is_some_and(|it| self.mismatch(it).is_none())
    }

    /// Returns why these arguments do not match, for a person who may read them, or `None` if they do. The name of the tool is not compared.
    #[must_use]
    pub fn mismatch(&self, arguments: &Map<String, Value>) -> Option<String> {
        self.arguments.as_ref()?.mismatch("", arguments)
    }
}

impl fmt::Display for CallPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)?;
        match self.outcome {
            None => Ok(()),
            Some(outcome) => write!(f, ", {outcome}"),
        }
    }
}

impl fmt::Display for CallOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Waiting => "waiting",
            Self::NotExecuted => "not executed",
        })
    }
}

impl fmt::Debug for CallPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallPattern").field(&self.text).finish()
    }
}
