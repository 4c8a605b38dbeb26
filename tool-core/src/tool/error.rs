//! What can go wrong with one call.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::output::cut_text;
use crate::arguments::{MAX_NAME_CHARS, list, nearest};

/// Why one call of a tool gave no output. By default the model is told, and goes on.
///
/// `Display` is what the model reads. Serialising keeps that text and the kind, not the source.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolError(Box<Inner>);

#[derive(Clone, Serialize, Deserialize)]
struct Inner {
    kind: ToolErrorKind,
    message: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_fatal: bool,
    #[serde(skip)]
    failure: Option<Arc<dyn Error + Send + Sync>>,
}

/// What kind of thing went wrong with a call: what a policy of a run is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// The model called a tool that the set does not have.
    UnknownTool,
    /// The arguments were not what the tool takes; it did not run.
    InvalidArguments,
    /// The tool ran and returned an error.
    Failed,
    /// The tool panicked.
    Panicked,
    /// The tool took longer than it may.
    TimedOut,
    /// The tool takes a value from its context that is not there; it did not run.
    MissingContext,
    /// A person denied the call.
    Denied,
    /// The call was not made.
    NotMade,
    /// The call was started, and nobody knows what came of it.
    OutcomeUnknown,
}

impl ToolError {
    /// The tool ran and failed. The model reads the error and its sources.
    ///
    /// ```
    /// use tool_core::ToolError;
    ///
    /// let error = ToolError::failed("no such city");
    /// assert!(error.is_failed());
    /// assert_eq!(error.to_string(), "no such city");
    /// ```
    #[must_use]
    pub fn failed(failure: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::from_failure(failure.into(), "error")
    }

    /// A failure of which only the type may be known: its name stands in for a blank message.
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
        let failure = Some(failure.into());
        Self(Box::new(Inner { kind: ToolErrorKind::Failed, message, is_fatal: false, failure }))
    }

    /// The tool failed in a way that the model can do nothing about: the run ends, with this error.
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

    /// The arguments are not what the tool takes: `message` says which, what was expected and what came.
    #[must_use]
    pub fn invalid_arguments(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::InvalidArguments, message.into())
    }

    pub(crate) fn unknown_tool<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Self {
        let name: String = name.chars().take(MAX_NAME_CHARS).collect();
        let name = &*name;
        let mut message = format!("there is no tool `{name}`");
        match list(known.clone()) {
            Some(known) => message.extend(["; the tools are ", &known]),
            None => message.push_str("; there are no tools"),
        }
        if let Some(nearest) = nearest(name, known) {
            message.extend(["; did you mean `", nearest, "`?"]);
        }
        Self::new(ToolErrorKind::UnknownTool, message)
    }

    /// The panic's text stays with the application; the model gets a reference to it.
    pub(crate) fn panicked(reference: &str, panic: &str) -> Self {
        let message = format!("the tool failed (reference {reference})");
        Self(Box::new(Inner {
            kind: ToolErrorKind::Panicked,
            message,
            is_fatal: false,
            failure: Some(Box::<dyn Error + Send + Sync>::from(panic).into()),
        }))
    }

    pub(crate) fn timed_out(after: Duration) -> Self {
        Self::new(ToolErrorKind::TimedOut, format!("the tool was stopped, as it took longer than {after:?}"))
    }

    pub(crate) fn missing_context(type_name: &str) -> Self {
        let message = format!("the tool cannot be called: the application did not hand over a `{type_name}`");
        Self::new(ToolErrorKind::MissingContext, message)
    }

    pub(crate) fn not_made(why: &str) -> Self {
        Self::new(ToolErrorKind::NotMade, format!("the call was not made: {why}"))
    }

    /// The call was denied, by an [`Approver`](crate::Approver) or a person; the model reads why, if a reason is given.
    #[must_use]
    pub fn denied(reason: Option<&str>) -> Self {
        let message = match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
            Some(reason) => format!("the call was denied: {reason}"),
            None => "the call was denied".into(),
        };
        Self::new(ToolErrorKind::Denied, message)
    }

    /// The run ended, or the process did, while the call was under way.
    pub(crate) fn interrupted() -> Self {
        let message = "the call was interrupted before a result was produced";
        Self::new(ToolErrorKind::OutcomeUnknown, message.into())
    }

    /// The same, of a call that must not be made twice.
    pub(crate) fn lost() -> Self {
        let message = "the outcome of the call is unknown: it was interrupted, and may or may not have had its effect; \
                       it is not made again, so find out before you go on";
        Self::new(ToolErrorKind::OutcomeUnknown, message.into())
    }

    /// An error that was kept.
    pub(crate) fn restored(kind: ToolErrorKind, message: String, is_fatal: bool) -> Self {
        Self(Box::new(Inner { kind, message, is_fatal, failure: None }))
    }

    /// The same error with a text that tells nothing of what happened; the application still has the
    /// [`failure`](Self::failure).
    pub(crate) fn hidden(mut self, reference: &str) -> Self {
        let neutral = format!("the tool failed (reference {reference})");
        let message = std::mem::replace(&mut self.0.message, neutral);
        self.0.failure.get_or_insert_with(|| Box::<dyn Error + Send + Sync>::from(message).into());
        self
    }

    /// The same error with so many characters at most for the model, as in
    /// [`ToolOutput::truncated`](crate::ToolOutput::truncated). The [`failure`](Self::failure) stays whole.
    pub(crate) fn truncated(mut self, limit: usize) -> Self {
        if let Some(message) = cut_text(&self.0.message, limit) {
            self.0.message = message;
        }
        self
    }

    fn new(kind: ToolErrorKind, message: String) -> Self {
        Self(Box::new(Inner { kind, message, is_fatal: false, failure: None }))
    }

    /// What the model reads.
    pub(crate) fn text(&self) -> &str {
        &self.0.message
    }

    /// What kind of thing went wrong.
    #[must_use]
    pub fn kind(&self) -> ToolErrorKind {
        self.0.kind
    }

    /// The run ends with this error.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.0.is_fatal
    }

    /// A person denied the call.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.0.kind == ToolErrorKind::Denied
    }

    /// The call was started, and nobody knows what came of it.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        self.0.kind == ToolErrorKind::OutcomeUnknown
    }

    /// The model called a tool that the set does not have.
    #[must_use]
    pub fn is_unknown_tool(&self) -> bool {
        self.0.kind == ToolErrorKind::UnknownTool
    }

    /// The arguments were not what the tool takes; it did not run.
    #[must_use]
    pub fn is_invalid_arguments(&self) -> bool {
        self.0.kind == ToolErrorKind::InvalidArguments
    }

    /// The tool ran and returned an error.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.0.kind == ToolErrorKind::Failed
    }

    /// The tool panicked; [`failure`](Self::failure) has the text of the panic.
    #[must_use]
    pub fn is_panicked(&self) -> bool {
        self.0.kind == ToolErrorKind::Panicked
    }

    /// The tool took longer than its `timeout`.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.0.kind == ToolErrorKind::TimedOut
    }

    /// The tool takes a value from its context that is not there; it did not run.
    #[must_use]
    pub fn is_missing_context(&self) -> bool {
        self.0.kind == ToolErrorKind::MissingContext
    }

    /// The call was not made: the run was over, the reply cut short, or the same call was made too often.
    #[must_use]
    pub fn is_not_made(&self) -> bool {
        self.0.kind == ToolErrorKind::NotMade
    }

    /// The error that the tool returned, or the text of its panic, as long as it was not serialised.
    #[must_use]
    pub fn failure(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.0.failure.as_deref()
    }
}

/// What the model reads.
impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

/// Leaves the message out: it may repeat an argument, which may be a secret.
impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolError({:?}, {} bytes)", self.0.kind, self.0.message.len())
    }
}

/// The message holds the tool's error and its sources already, so there is no source below it.
impl Error for ToolError {}

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
    fn the_model_reads_the_error_and_its_sources() {
        let error = Layer("booking failed", Some(Box::new(Layer("timed out", None))));
        assert_eq!(ToolError::failed(error).to_string(), "booking failed: timed out");
        let repeated = Layer("booking failed: timed out", Some(Box::new(Layer("timed out", None))));
        assert_eq!(ToolError::failed(repeated).to_string(), "booking failed: timed out");
    }

    #[test]
    fn a_blank_message_becomes_the_types_name() {
        let error = ToolError::from_failure(Box::new(Layer(" ", None)), "Layer");
        assert_eq!(error.to_string(), "Layer");
    }

    #[test]
    fn a_tool_error_stays_what_it_is() {
        let error = ToolError::failed(ToolError::invalid_arguments("`x` is odd"));
        assert!(error.is_invalid_arguments());
    }

    #[test]
    fn an_unknown_tool_names_the_known_and_the_nearest() {
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
