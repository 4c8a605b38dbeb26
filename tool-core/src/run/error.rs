//! What ends a run without an answer.

use std::error::Error;
use std::fmt;

use super::OutOfStep;
use crate::{FinishReason, Message, ModelError, Run, ToolExecution};

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

    /// The run as it stands. After [`is_model`](Self::is_model) it can be driven on: it asks the model again.
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
            // The model's error is in the text already.
            Kind::Model(error) => error.source(),
            _ => None,
        }
    }
}
