//! Changes of what has happened in a run.
//!
//! Amendments name what they change (a question, arguments, the text of a reply, an outcome, instructions), because nothing else ever
//! changes.

use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::tool::ToolExecution;

/// A change of a question, of something in the open turn, of the answer, or of the instructions. Nothing else ever changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Amendment {
    /// Layers rewrote the question in the message at this position, which is the one with this number.
    Question {
        message: usize,
        question: Content,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<usize>,
    },
    /// The call at this position has other arguments.
    Arguments { call: usize, arguments: String, is_rewritten: bool },
    /// The answer has another text.
    Text(String),
    /// Layers replaced the outcome of a call.
    Result(Box<ToolExecution>),
    /// The run has these instructions: of the agent that it was handed off to, or with those that the application gave.
    Instructions { had_some: bool, instructions: Option<Content> },
}
