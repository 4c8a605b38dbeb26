//! What ends a run without an answer.

use std::error::Error;
use std::fmt;

use super::OutOfStep;
use crate::{FinishReason, Message, MissingContext, ModelError, Run, ToolExecution};

/// Why a run ended without an answer. It carries the run, so nothing of what was done is lost.
pub struct RunError {
    kind: Kind,
    run: Box<Run>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Model(ModelError),
    TurnLimit(u32),
    CutShort(FinishReason),
    OutOfStep(OutOfStep),
    MissingContext(MissingContext),
    Tools { what: String, error: Box<dyn Error + Send + Sync> },
}

impl Kind {
    /// The tools of a turn could not be had: what of it failed, and why.
    #[cold]
    pub(crate) fn tools(what: String, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Tools { what, error: error.into() }
    }
}

impl RunError {
    pub(crate) fn new(kind: Kind, run: Run) -> Self {
        Self { kind, run: Box::new(run) }
    }

    /// The model could not be asked: [`model_error`](Self::model_error) says why.
    #[must_use]
    pub fn is_model(&self) -> bool {
        matches!(self.kind, Kind::Model(_))
    }

    /// The model still called tools when the run had taken all its turns.
    #[must_use]
    pub fn is_turn_limit(&self) -> bool {
        matches!(self.kind, Kind::TurnLimit(_))
    }

    /// The model's reply was cut short in the middle of its calls.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        matches!(self.kind, Kind::CutShort(_))
    }

    /// The run was handed what it had not asked for.
    #[must_use]
    pub fn is_out_of_step(&self) -> bool {
        matches!(self.kind, Kind::OutOfStep(_))
    }

    /// Tools lack what they take from the context; [`missing_context`](Self::missing_context) says which and
    /// what. The model was not asked for this turn.
    #[must_use]
    pub fn is_missing_context(&self) -> bool {
        matches!(self.kind, Kind::MissingContext(_))
    }

    /// The tools of a turn could not be put together: a [provider](crate::ToolProvider) failed, or two tools
    /// have one name. [`tools_error`](Self::tools_error) says why. The model was not asked for this turn.
    #[must_use]
    pub fn is_tools(&self) -> bool {
        matches!(self.kind, Kind::Tools { .. })
    }

    /// What tools lack, if that is what ended the run.
    #[must_use]
    pub fn missing_context(&self) -> Option<&MissingContext> {
        match &self.kind {
            Kind::MissingContext(missing) => Some(missing),
            _ => None,
        }
    }

    /// The error of the provider, or the [`ToolSetError`](crate::ToolSetError), if the tools could not be put
    /// together.
    #[must_use]
    pub fn tools_error(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        match &self.kind {
            Kind::Tools { error, .. } => Some(&**error),
            _ => None,
        }
    }

    /// The model's error, if that is what ended the run.
    #[must_use]
    pub fn model_error(&self) -> Option<&ModelError> {
        match &self.kind {
            Kind::Model(error) => Some(error),
            _ => None,
        }
    }

    /// The calls that were made.
    #[must_use]
    pub fn tool_executions(&self) -> &[ToolExecution] {
        self.run.tool_executions()
    }

    /// The messages that the run added to the conversation.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        self.run.added()
    }

    /// The run as it stands. After [`is_model`](Self::is_model), [`is_tools`](Self::is_tools) and
    /// [`is_missing_context`](Self::is_missing_context) it can be driven on: it goes on with what failed.
    #[must_use]
    pub fn into_run(self) -> Run {
        *self.run
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Model(error) => write!(f, "the model could not be asked: {error}"),
            Kind::TurnLimit(limit) => write!(
                f,
                "the model still called tools after {limit} turns; \
                 allow more with `max_turns`, or see in `tool_executions()` what it is after"
            ),
            Kind::CutShort(FinishReason::ContentFilter) => f.write_str(
                "a filter of the provider cut the model's reply short in the middle of its calls, so none was made",
            ),
            Kind::CutShort(_) => f.write_str(
                "the model's reply was cut short in the middle of its calls, so none was made; ask for less at once",
            ),
            Kind::OutOfStep(error) => fmt::Display::fmt(error, f),
            Kind::MissingContext(missing) => fmt::Display::fmt(missing, f),
            Kind::Tools { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

/// The text and the sources, so that a `main` that returns the error shows it readably.
impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = self.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            // These errors are in the text already.
            Kind::Model(error) => error.source(),
            Kind::Tools { error, .. } => error.source(),
            _ => None,
        }
    }
}
