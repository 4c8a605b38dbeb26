//! The verdicts of layers, one type per method.

use std::fmt;

use crate::content::Content;
use crate::tool::{ToolError, ToolOutput};

/// The verdict about the question of a run.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum QuestionVerdict {
    /// The question is asked.
    Pass,
    /// This question is asked instead. The run, its conversation and its events have only this one. A layer that judges the question
    /// [beside](crate::signatures::QuestionGuard::beside) the model cannot rewrite it.
    Rewrite(Content),
    /// The model is not asked: this is the answer. Neither is stored in a conversation.
    Answer(String),
    /// The run ends with [`StopReason::Blocked`](crate::run::StopReason::Blocked) and this reason.
    End(String),
}

/// The verdict about a call, with its final arguments.
#[derive(Clone)]
#[non_exhaustive]
pub enum CallVerdict {
    /// The call is executed, unless another rule decides otherwise.
    Pass,
    /// The call is not executed, and the model reads this reason. Final.
    Deny(String),
    /// A person has to approve the call, at the level of the layer's agent.
    NeedsApproval,
    /// The caller of the run executes the call and supplies its result.
    LeaveToCaller,
    /// The call is not executed, and this is its outcome.
    Replace(Result<ToolOutput, ToolError>),
    /// The run ends with [`StopReason::Blocked`](crate::run::StopReason::Blocked) and this reason.
    End(String),
}

/// The verdict about the outcome of a call.
#[derive(Clone)]
#[non_exhaustive]
pub enum OutputVerdict {
    /// The outcome is recorded.
    Pass,
    /// This outcome is recorded in place of the call's. The record contains both.
    Replace(Result<ToolOutput, ToolError>),
    /// The run ends with [`StopReason::Blocked`](crate::run::StopReason::Blocked) and this reason.
    End(String),
}

/// The verdict about the text of a reply.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerVerdict {
    /// The text is shown.
    Pass,
    /// The model reads this message and answers again, at most [`max_wrong_answers`](crate::run::RunLimits::max_wrong_answers) times. The
    /// text beside calls is left out, and the calls continue.
    Retry(String),
    /// This text takes the place of the reply's.
    Replace(String),
    /// The run ends with [`StopReason::Blocked`](crate::run::StopReason::Blocked) and this reason.
    End(String),
}

/// The verdict about the last part of a reply that is being streamed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextVerdict {
    /// The text is passed on.
    Pass,
    /// The run ends with [`StopReason::Blocked`](crate::run::StopReason::Blocked) and this reason.
    End(String),
}

macro_rules! constructors {
    ($verdict:ident: $($(#[$doc:meta])* $name:ident => $variant:ident),+) => {
        impl $verdict {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(text: impl Into<String>) -> Self {
                Self::$variant(text.into())
            })+
        }
    };
}

constructors!(QuestionVerdict:
    /// Answers in place of the model.
    answer => Answer,
    /// Ends the run.
    end => End);
constructors!(CallVerdict:
    /// Denies the call with a reason that the model reads.
    deny => Deny,
    /// Ends the run.
    end => End);
constructors!(OutputVerdict:
    /// Ends the run.
    end => End);
constructors!(AnswerVerdict:
    /// Sends the answer back with a message.
    retry => Retry,
    /// Replaces the text of the reply.
    replace => Replace,
    /// Ends the run.
    end => End);
constructors!(TextVerdict:
    /// Ends the run.
    end => End);

impl QuestionVerdict {
    /// Asks another question instead.
    #[must_use]
    pub fn rewrite(question: impl Into<Content>) -> Self {
        Self::Rewrite(question.into())
    }
}

impl CallVerdict {
    /// Gives the call an output without executing it.
    #[must_use]
    pub fn replace(output: impl Into<ToolOutput>) -> Self {
        Self::Replace(Ok(output.into()))
    }
}

impl OutputVerdict {
    /// Replaces the outcome by an output.
    #[must_use]
    pub fn replace(output: impl Into<ToolOutput>) -> Self {
        Self::Replace(Ok(output.into()))
    }

    /// Replaces the outcome by an error.
    #[must_use]
    pub fn fail(error: ToolError) -> Self {
        Self::Replace(Err(error))
    }
}

/// Omits texts, outputs and reasons.
macro_rules! debug {
    ($verdict:ident: $($variant:ident $(($text:tt))?),+) => {
        impl fmt::Debug for $verdict {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant $(($text))? => stringify!($variant),)+
                })
            }
        }
    };
}

debug!(QuestionVerdict: Pass, Rewrite(_), Answer(_), End(_));
debug!(CallVerdict: Pass, Deny(_), NeedsApproval, LeaveToCaller, Replace(_), End(_));
debug!(OutputVerdict: Pass, Replace(_), End(_));
debug!(AnswerVerdict: Pass, Retry(_), Replace(_), End(_));
debug!(TextVerdict: Pass, End(_));
