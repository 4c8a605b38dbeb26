//! What ends a run without an answer.

use std::error::Error;
use std::fmt;

use super::ending::Ending;
use crate::model::{Message, ModelError, ToolCall};
use crate::run::{Run, StepError};
use crate::tool::{ToolError, ToolExecution};
use crate::toolset::MissingContext;
use crate::transcript::Transcript;

/// Why a run ended without an answer. It carries the run, so nothing of what was done is lost.
///
/// `Display` is for who runs the program, and may hold what a tool's error says. What a user is to read depends on what can be
/// done about it:
///
/// ```
/// use tool_core::RunError;
///
/// fn told(error: &RunError) -> &'static str {
///     match error {
///         error if error.is_approval_needed() => "Somebody has to approve this first.", // decide, and resume
///         error if error.is_model() => "The service is busy. Please try again.", // is_resumable, too
///         error if error.is_refused() => "I cannot help with that.",
///         error if error.is_cancelled() => "Stopped.",
///         error if error.is_time_limit() => "This took too long.",
///         error if error.is_limit() => "This was too much at once. Please ask for less.",
///         error if error.is_tool() => "One of the services behind me failed.",
///         _ => "Something went wrong.", // such as is_wrong_answer, is_not_kept, is_missing_context
///     }
/// }
/// ```
///
/// A run that is not [resumable](Self::is_resumable) can be gone on from all the same: its [`messages`](Self::messages), behind
/// those that stood before the question, are the [`history`](crate::Ask::history) of the next one. A
/// [memory](crate::AgentBuilder::memory) does not do so by itself, as it keeps runs with an answer only.
pub struct RunError {
    kind: Kind,
    run: Box<Run>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Model(ModelError),
    Ended(Ending),
    ApprovalNeeded,
    NotKept(Box<dyn Error + Send + Sync>),
    StepError(StepError),
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

/// What kind of thing ended a run: [`RunError`] has a query for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunErrorKind {
    /// The model could not be asked.
    Model,
    /// The tools of a turn could not be put together.
    Tools,
    /// Tools lack what they take from the context.
    MissingContext,
    /// The run could not be kept, or what was said before could not be had.
    NotKept,
    /// The run was handed what it had not asked for.
    StepError,
    /// Calls wait for a person.
    ApprovalNeeded,
    /// The model still called tools when the run had taken all its turns.
    TurnLimit,
    /// The model asked for more calls than the run may make.
    CallLimit,
    /// The run used more tokens than it may.
    TokenLimit,
    /// The run was under way for longer than it may.
    TimeLimit,
    /// The calls gave back more than the run may read.
    OutputLimit,
    /// The model repeated one call again and again.
    RepeatLimit,
    /// The model's reply was cut short in the middle of its calls.
    CutShort,
    /// The model's answer was not of the form that was asked for.
    WrongAnswer,
    /// The model refused to give an answer of that form.
    Refused,
    /// The run was cancelled.
    Cancelled,
    /// A call failed in a way that ends the run.
    Tool,
}

impl RunError {
    pub(crate) fn new(kind: Kind, run: Run) -> Self {
        Self { kind, run: Box::new(run) }
    }

    /// What kind of thing ended the run: one word for each of the queries below.
    #[must_use]
    pub fn kind(&self) -> RunErrorKind {
        match &self.kind {
            Kind::Model(_) => RunErrorKind::Model,
            Kind::ApprovalNeeded => RunErrorKind::ApprovalNeeded,
            Kind::NotKept(_) => RunErrorKind::NotKept,
            Kind::StepError(_) => RunErrorKind::StepError,
            Kind::MissingContext(_) => RunErrorKind::MissingContext,
            Kind::Tools { .. } => RunErrorKind::Tools,
            Kind::Ended(ending) => ending.kind(),
        }
    }

    /// The model could not be asked: [`model_error`](Self::model_error) says why.
    #[must_use]
    pub fn is_model(&self) -> bool {
        matches!(self.kind, Kind::Model(_))
    }

    /// Calls wait for a person, and nothing else is left to do: see [`waiting`](Self::waiting). Keep the
    /// [run](Self::into_run), [decide](Run::resolve_approval) on each call, and [resume](crate::Agent::resume) it.
    #[must_use]
    pub fn is_approval_needed(&self) -> bool {
        matches!(self.kind, Kind::ApprovalNeeded)
    }

    /// The calls that wait for a person.
    pub fn waiting(&self) -> impl Iterator<Item = &ToolCall> {
        self.run.waiting()
    }

    fn ending(&self) -> Option<&Ending> {
        match &self.kind {
            Kind::Ended(ending) => Some(ending),
            _ => None,
        }
    }

    /// The run would have gone beyond one of its [limits](crate::RunLimits).
    #[must_use]
    pub fn is_limit(&self) -> bool {
        self.ending().is_some_and(Ending::is_limit)
    }

    /// The model still called tools when the run had taken all its turns.
    #[must_use]
    pub fn is_turn_limit(&self) -> bool {
        matches!(self.ending(), Some(Ending::Turns(_)))
    }

    /// The model asked for more calls than the run may make.
    #[must_use]
    pub fn is_call_limit(&self) -> bool {
        matches!(self.ending(), Some(Ending::Calls(_)))
    }

    /// The run used more tokens than it may.
    #[must_use]
    pub fn is_token_limit(&self) -> bool {
        matches!(self.ending(), Some(Ending::Tokens(_)))
    }

    /// The run was under way for longer than it may.
    #[must_use]
    pub fn is_time_limit(&self) -> bool {
        matches!(self.ending(), Some(Ending::Time(_)))
    }

    /// The calls gave back more than the run may read.
    #[must_use]
    pub fn is_output_limit(&self) -> bool {
        matches!(self.ending(), Some(Ending::Output(_)))
    }

    /// The model repeated one call again and again.
    #[must_use]
    pub fn is_repeat_limit(&self) -> bool {
        matches!(self.ending(), Some(Ending::Repeated(_)))
    }

    /// The model's reply was cut short in the middle of its calls.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        matches!(self.ending(), Some(Ending::CutShort(_)))
    }

    /// The model's answer was not of the form that was asked for, however often it was told.
    #[must_use]
    pub fn is_wrong_answer(&self) -> bool {
        matches!(self.ending(), Some(Ending::WrongAnswer(_)))
    }

    /// The model refused to give an answer of the [type](crate::Ask::answer_as) that was asked for. A refusal where any text
    /// would do is [an answer](crate::Answer::refusal).
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.ending(), Some(Ending::Refused(_)))
    }

    /// Why the model refused, if it did.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match self.ending() {
            Some(Ending::Refused(refusal)) => Some(refusal),
            _ => None,
        }
    }

    /// The run was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.ending(), Some(Ending::Cancelled))
    }

    /// A call failed in a way that ends the run: [`tool_error`](Self::tool_error) says how.
    #[must_use]
    pub fn is_tool(&self) -> bool {
        matches!(self.ending(), Some(Ending::Tool { .. }))
    }

    /// The error of the call that ended the run, if one did.
    #[must_use]
    pub fn tool_error(&self) -> Option<&ToolError> {
        match self.ending() {
            Some(Ending::Tool { error, .. }) => Some(error),
            _ => None,
        }
    }

    /// The run could not be kept, or what was said before could not be had; the [source](Error::source) says why.
    #[must_use]
    pub fn is_not_kept(&self) -> bool {
        matches!(self.kind, Kind::NotKept(_))
    }

    /// The [run](Self::into_run) can be driven on: it goes on with what failed, waits for a person, or has an answer that is
    /// [not kept](Self::is_not_kept) yet.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        !self.run.is_done() || matches!(self.kind, Kind::NotKept(_))
    }

    /// The run was handed what it had not asked for.
    #[must_use]
    pub fn is_out_of_step(&self) -> bool {
        matches!(self.kind, Kind::StepError(_))
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

    /// The conversation as something to read; see [`Answer::transcript`](crate::Answer::transcript).
    pub fn transcript(&self) -> Transcript<'_> {
        Transcript::new(self.messages(), self.tool_executions())
    }

    /// The run as it stands.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The run as it stands. If it [`is_resumable`](Self::is_resumable) it can be driven on: it goes on with what failed.
    #[must_use]
    pub fn into_run(self) -> Run {
        *self.run
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Model(error) => write!(f, "the model could not be asked: {error}"),
            Kind::Ended(ending) => fmt::Display::fmt(ending, f),
            Kind::ApprovalNeeded => {
                let calls: Vec<_> = self.run.waiting().map(|call| format!("`{}`", call.name)).collect();
                write!(
                    f,
                    "a person has to approve the call of {}: keep `into_run()`, `resolve_approval` on each of `waiting()`, \
                     and `resume` it",
                    calls.join(", ")
                )
            }
            Kind::NotKept(error) => write!(f, "the run could not be kept: {error}"),
            Kind::StepError(error) => fmt::Display::fmt(error, f),
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
            Kind::Tools { error, .. } | Kind::NotKept(error) => error.source(),
            _ => None,
        }
    }
}
