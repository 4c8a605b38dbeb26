//! The errors of calls.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::truncate::truncate_text;
use crate::arguments::{ArgumentErrors, MAX_NAME_CHARS, list_names, nearest_name};
use crate::content::first_chars;
use crate::model::INTERRUPTED;

/// The error of a call that produced no output. By default it is reported to the model, and the run continues.
///
/// `Display` writes the text that the model reads. The serialized form contains this text and the kind, but not the
/// source.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolError(Box<Inner>);

#[derive(Clone, Serialize, Deserialize)]
struct Inner {
    kind: ToolErrorKind,
    message: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_fatal: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_last: bool,
    #[serde(skip)]
    failure: Option<Arc<dyn Error + Send + Sync>>,
}

/// The kind of a [`ToolError`]. The [`ErrorPolicy`](crate::run::ErrorPolicy) of a run can depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// The model called a tool that the set does not contain.
    UnknownTool,
    /// The arguments were invalid. The tool was not executed.
    InvalidArguments,
    /// The tool returned an error.
    Failed,
    /// The tool panicked. [`ToolError::failure`] returns the text of the panic.
    Panicked,
    /// The tool exceeded its `timeout` or the run's timeout for calls.
    TimedOut,
    /// The context lacked a value that the tool takes from it. The tool was not executed.
    MissingContext,
    /// The call was denied, by a person or by a [`Decider`](crate::agent::Decider).
    Denied,
    /// The call was not executed: the run had ended, the reply was truncated, or the same call was repeated too often.
    #[serde(rename = "not_made")]
    NotExecuted,
    /// The call was started, and its outcome is unknown.
    OutcomeUnknown,
}

impl ToolErrorKind {
    /// Returns the name of the kind in traces and logs, such as `timed_out`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed_out",
            Self::MissingContext => "missing_context",
            Self::Denied => "denied",
            Self::NotExecuted => "not_made",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }

    /// Returns `true` if the failed call may have had its effect.
    pub(crate) fn leaves_effect_unknown(self) -> bool {
        matches!(self, Self::Panicked | Self::TimedOut | Self::OutcomeUnknown)
    }
}

impl ToolError {
    /// Creates the error of a tool that failed. The model reads the error and its sources.
    ///
    /// ```
    /// use tool_core::tool::ToolErrorKind;
    /// use tool_core::ToolError;
    ///
    /// let error = ToolError::failed("no such city");
    /// assert_eq!(error.kind(), ToolErrorKind::Failed);
    /// assert_eq!(error.to_string(), "no such city");
    /// ```
    #[must_use]
    pub fn failed(failure: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::from_failure(failure.into(), "error")
    }

    /// Creates the error of a tool that failed. The name of the error's type replaces a blank message.
    pub(crate) fn from_failure(failure: Box<dyn Error + Send + Sync>, type_name: &str) -> Self {
        let failure = match failure.downcast::<ToolError>() {
            Ok(error) => return *error,
            Err(other) => other,
        };
        let mut message = failure.to_string();
        if message.trim().is_empty() {
            type_name.clone_into(&mut message);
        }
        let mut source = failure.source();
        while let Some(error) = source {
            let text = error.to_string();
            // Many errors repeat their source in their own text.
            if !text.trim().is_empty() && !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            source = error.source();
        }
        let mut error = Self::new(ToolErrorKind::Failed, message);
        error.0.failure = Some(failure.into());
        error
    }

    /// Creates the error of a tool that failed in a way that the model cannot handle: the run ends with this error.
    ///
    /// ```
    /// use tool_core::{ToolError, tool};
    ///
    /// #[tool("Charges the customer's card")]
    /// fn charge(cents: u32) -> Result<(), ToolError> {
    ///     Err(ToolError::fatal("the payment service has revoked our key"))
    /// }
    ///
    /// assert!(charge(500).unwrap_err().is_fatal());
    /// ```
    #[must_use]
    pub fn fatal(failure: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let mut error = Self::failed(failure);
        error.0.is_fatal = true;
        error
    }

    /// Creates the error of a call with invalid arguments. The message names each invalid argument, what was expected,
    /// and the value found.
    #[must_use]
    pub fn invalid_arguments(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::InvalidArguments, message.into())
    }

    /// Creates the error of a call of a tool that was not offered. The message lists the known tools.
    #[must_use]
    pub fn unknown_tool<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Self {
        let name = first_chars(name, MAX_NAME_CHARS);
        let mut message = format!("there is no tool `{name}`");
        match list_names(known.clone()) {
            Some(known) => message.extend(["; the tools are ", &known]),
            None => message.push_str("; there are no tools"),
        }
        if let Some(nearest) = nearest_name(name, known) {
            message.extend(["; did you mean `", nearest, "`?"]);
        }
        Self::new(ToolErrorKind::UnknownTool, message)
    }

    /// Creates the error of a tool that panicked. The model reads only the reference; the application can read the
    /// text of the panic.
    pub(crate) fn panicked(reference: &str, panic: &str) -> Self {
        Self::new(ToolErrorKind::Panicked, panic.to_owned()).hidden(reference)
    }

    pub(crate) fn timed_out(after: Duration) -> Self {
        Self::new(ToolErrorKind::TimedOut, format!("the tool timed out after {after:?}"))
    }

    pub(crate) fn missing_context(type_name: &str) -> Self {
        let message = format!("the tool cannot be called: the application did not provide a `{type_name}`");
        Self::new(ToolErrorKind::MissingContext, message)
    }

    /// Creates the error of a call that was not executed. The model reads the reason.
    #[must_use]
    pub fn not_executed(reason: &str) -> Self {
        Self::new(ToolErrorKind::NotExecuted, format!("the call was not executed: {reason}"))
    }

    /// Creates the error of a call that a person or a [`Decider`](crate::agent::Decider) denied. The model reads the reason,
    /// if there is one.
    #[must_use]
    pub fn denied(reason: Option<&str>) -> Self {
        let message = match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
            Some(reason) => format!("the call was denied: {reason}"),
            None => "the call was denied".into(),
        };
        Self::new(ToolErrorKind::Denied, message)
    }

    /// Creates the error of a call that was interrupted by the end of the run or of the process.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(ToolErrorKind::OutcomeUnknown, INTERRUPTED.into())
    }

    /// Creates the error of an interrupted call that must not be executed twice.
    #[must_use]
    pub fn outcome_unknown() -> Self {
        let message = "the outcome of the call is unknown: it was interrupted and may or may not have taken effect; \
                       it is not retried, so find out before you continue";
        Self::new(ToolErrorKind::OutcomeUnknown, message.into())
    }

    /// Restores an error from a stored run.
    pub(crate) fn restored(kind: ToolErrorKind, message: String, is_fatal: bool) -> Self {
        let mut error = Self::new(kind, message);
        error.0.is_fatal = is_fatal;
        error
    }

    /// Returns this error with another text, and without the failure that it came from.
    pub(crate) fn with_text(&self, text: String) -> Self {
        Self::restored(self.kind(), text, self.is_fatal())
    }

    /// Returns this error as the last attempt's.
    pub(crate) fn without_retry(mut self) -> Self {
        self.0.is_last = true;
        self
    }

    /// Returns `true` if no further attempt follows, whatever the policy of the tool is.
    pub(super) fn is_last(&self) -> bool {
        self.0.is_last
    }

    /// Replaces the message with one that contains only the reference. The application can still read the
    /// [`failure`](Self::failure).
    pub(crate) fn hidden(mut self, reference: &str) -> Self {
        let neutral = format!("the tool failed (reference {reference})");
        let message = std::mem::replace(&mut self.0.message, neutral);
        self.0.failure.get_or_insert_with(|| Box::<dyn Error + Send + Sync>::from(message).into());
        self
    }

    /// Truncates the message to `limit` characters, like [`ToolOutput::truncated`](crate::ToolOutput::truncated). The
    /// [`failure`](Self::failure) is unchanged.
    pub(crate) fn truncated(mut self, limit: usize) -> Self {
        if let Some(message) = truncate_text(&self.0.message, limit) {
            self.0.message = message;
        }
        self
    }

    fn new(kind: ToolErrorKind, message: String) -> Self {
        Self(Box::new(Inner { kind, message, is_fatal: false, is_last: false, failure: None }))
    }

    /// Returns the text that the model reads.
    pub(crate) fn text(&self) -> &str {
        &self.0.message
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ToolErrorKind {
        self.0.kind
    }

    /// Returns `true` if the error ends the run.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.0.is_fatal
    }

    /// Returns the error that the tool returned, or the text of its panic. It is lost when the error is serialized.
    #[must_use]
    pub fn failure(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.0.failure.as_deref()
    }
}

/// Writes the text that the model reads.
impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

/// Shows the text, except for [invalid arguments](ToolErrorKind::InvalidArguments), whose text quotes them: arguments can be
/// secret. `Display` writes it.
impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.0.kind;
        match kind {
            ToolErrorKind::InvalidArguments => {
                write!(f, "ToolError({kind:?}, {} bytes)", self.0.message.len())
            }
            _ => write!(f, "ToolError({kind:?}: {})", self.0.message),
        }
    }
}

/// Has no source: the message already contains the tool's error and its sources.
impl Error for ToolError {}

impl From<ArgumentErrors> for ToolError {
    fn from(ArgumentErrors(text): ArgumentErrors) -> Self {
        Self::invalid_arguments(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|layer| layer as _)
        }
    }

    #[test]
    fn includes_the_sources_in_the_message() {
        let error = Layer("booking failed", Some(Box::new(Layer("timed out", None))));
        assert_eq!(ToolError::failed(error).to_string(), "booking failed: timed out");
        let repeated = Layer("booking failed: timed out", Some(Box::new(Layer("timed out", None))));
        assert_eq!(ToolError::failed(repeated).to_string(), "booking failed: timed out");
    }

    #[test]
    fn replaces_a_blank_message_with_the_type_name() {
        let error = ToolError::from_failure(Box::new(Layer(" ", None)), "Layer");
        assert_eq!(error.to_string(), "Layer");
    }

    #[test]
    fn keeps_the_kind_of_a_wrapped_tool_error() {
        let error = ToolError::failed(ToolError::invalid_arguments("`x` is odd"));
        assert_eq!(error.kind(), ToolErrorKind::InvalidArguments);
    }

    #[test]
    fn suggests_the_nearest_of_the_known_tools() {
        let error = ToolError::unknown_tool("squareRoot", ["sum", "square_root"].into_iter());
        let expected =
            "there is no tool `squareRoot`; the tools are `sum`, `square_root`; did you mean `square_root`?";
        assert_eq!(error.to_string(), expected);
        let error = ToolError::unknown_tool("weather", ["sum"].into_iter());
        assert_eq!(error.to_string(), "there is no tool `weather`; the tools are `sum`");
        let error = ToolError::unknown_tool("weather", [].into_iter());
        assert_eq!(error.to_string(), "there is no tool `weather`; there are no tools");
    }
}
