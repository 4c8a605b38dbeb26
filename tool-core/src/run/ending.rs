//! How a run ends without an answer, for good.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::FinishReason;
use crate::run::RunErrorKind;
use crate::tool::ToolError;

/// How a run ended without an answer. It cannot be driven on from there.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    Turns(u32),
    Calls(u32),
    Tokens(u64),
    Time(Duration),
    Output(usize),
    Repeated(String),
    CutShort(FinishReason),
    Tool { tool: String, error: ToolError },
    WrongAnswer(String),
    Refused(String),
    Cancelled,
}

impl Ending {
    pub(crate) fn is_limit(&self) -> bool {
        use Ending::{Calls, Output, Repeated, Time, Tokens, Turns};
        matches!(self, Turns(_) | Calls(_) | Tokens(_) | Time(_) | Output(_) | Repeated(_))
    }

    pub(super) fn kind(&self) -> RunErrorKind {
        match self {
            Self::Turns(_) => RunErrorKind::TurnLimit,
            Self::Calls(_) => RunErrorKind::CallLimit,
            Self::Tokens(_) => RunErrorKind::TokenLimit,
            Self::Time(_) => RunErrorKind::TimeLimit,
            Self::Output(_) => RunErrorKind::OutputLimit,
            Self::Repeated(_) => RunErrorKind::RepeatLimit,
            Self::CutShort(_) => RunErrorKind::CutShort,
            Self::Tool { .. } => RunErrorKind::Tool,
            Self::WrongAnswer(_) => RunErrorKind::WrongAnswer,
            Self::Refused(_) => RunErrorKind::Refused,
            Self::Cancelled => RunErrorKind::Cancelled,
        }
    }

    /// What the model is told of the calls that were not made for it.
    pub(super) fn why_not_made(&self) -> &'static str {
        match self {
            Self::Turns(_) => "the run had taken all its turns",
            Self::Calls(_) => "the run would have gone beyond its limit of calls",
            Self::Tokens(_) => "the run had used all its tokens",
            Self::Time(_) => "the run had used all its time",
            Self::Output(_) => "the run had read all that it may",
            Self::CutShort(_) => "the reply was cut short",
            Self::Cancelled => "the run was cancelled",
            Self::Repeated(_) | Self::Tool { .. } | Self::WrongAnswer(_) | Self::Refused(_) => {
                "the run had ended"
            }
        }
    }
}

/// Leaves out what the model and the tools said.
impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool { tool, error } => write!(f, "Tool({tool}, {error:?})"),
            Self::WrongAnswer(why) => write!(f, "WrongAnswer({} bytes)", why.len()),
            Self::Refused(refusal) => write!(f, "Refused({} bytes)", refusal.len()),
            other => write!(f, "Ending({other})"),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turns(limit) => write!(
                f,
                "the model still called tools after {limit} turns; \
                 allow more with `max_turns`, or see in `tool_executions()` what it is after"
            ),
            Self::Calls(limit) => write!(
                f,
                "the model asked for more than {limit} calls; allow more with `max_calls`, \
                 or see in `tool_executions()` what it is after"
            ),
            Self::Tokens(limit) => write!(
                f,
                "the run used more than {limit} tokens; allow more with `max_tokens`, or send less history"
            ),
            Self::Time(limit) => write!(f, "the run took longer than {limit:?}; allow more with `max_time`"),
            Self::Output(limit) => write!(
                f,
                "the calls gave back more than {limit} bytes; allow more with `max_run_output_chars`, \
                 or limit what each gives with `max_output_chars`"
            ),
            Self::Repeated(tool) => write!(
                f,
                "the model repeated one call of `{tool}` again and again; \
                 allow more with `max_repeated_calls`, or let the tool's output say what to do next"
            ),
            Self::CutShort(FinishReason::ContentFilter) => f.write_str(
                "a filter of the provider cut the model's reply short in the middle of its calls, so none was made",
            ),
            Self::CutShort(_) => f.write_str(
                "the model's reply was cut short in the middle of its calls, so none was made; ask for less at once",
            ),
            Self::Tool { tool, error } => write!(f, "the tool `{tool}` ended the run: {error}"),
            Self::WrongAnswer(why) => write!(f, "the model gave no answer that will do: {why}"),
            Self::Refused(refusal) => write!(f, "the model refused to answer: {refusal}"),
            Self::Cancelled => f.write_str("the run was cancelled"),
        }
    }
}
