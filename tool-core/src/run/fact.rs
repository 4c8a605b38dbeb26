//! What an entry of the log of a run states.

use crate::content::Content;
use crate::model::{AssistantMessage, Message};
use crate::tool::{ToolExecution, VerdictRecord};

/// One thing that has happened in a run.
#[derive(Clone, Debug)]
pub(super) enum Fact {
    /// The messages of the conversation were inserted after the instructions and before the question.
    Remembered(Vec<Message>),
    /// The model replied, or a layer in its place.
    Replied(AssistantMessage),
    /// A call of the open turn has an outcome.
    Finished(Box<ToolExecution>),
    /// An attempt of this call failed, and another one follows.
    Retried(String),
    /// The open turn is over: its results follow the reply in the order of the calls. Those without an outcome were not executed,
    /// for this reason.
    Closed(String),
    /// A message of the user, or one that rejects an answer.
    Said(Content),
    /// A call undid another.
    Undone(Box<ToolExecution>),
    /// A layer decided about the question or the answer.
    Judged(VerdictRecord),
    /// The model is offered further tools.
    Found(Vec<String>),
    Amended(Amendment),
}

/// A change of something in the open turn, of the answer, or of the instructions. Nothing else ever changes.
#[derive(Clone, Debug)]
pub(super) enum Amendment {
    /// The call at this position has other arguments.
    Arguments { call: usize, arguments: String, is_rewritten: bool },
    /// The answer has another text.
    Text(String),
    /// Layers replaced the outcome of a call.
    Result(Box<ToolExecution>),
    /// The run was handed off to an agent with these instructions.
    Instructions { had_some: bool, instructions: Option<Content> },
}
