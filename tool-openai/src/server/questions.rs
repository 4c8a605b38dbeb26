//! Questions of tools to the caller: as calls of a function, whose results are the answers.
//!
//! A question is sent in the same way as a call of a caller's tool (`ask_user`), and is removed from conversations, because the agent's
//! model has never called that function.

use std::borrow::Cow;
use std::future::ready;

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use tool_core::agent::{Decider, DeciderFuture};
use tool_core::run::{Decision, Wait};
use tool_core::tool::Question;
use tool_core::{Message, ToolCall};

use super::call_ids::QUESTION;
use super::error::ApiError;

/// The name of the function that asks the caller.
pub(super) const ASK_USER: &str = "ask_user";

/// The arguments of the function.
#[derive(Serialize)]
struct Arguments<'q> {
    question: &'q str,
    /// The JSON Schema of the answer.
    schema: &'q Value,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    choices: &'q [Value],
    /// What a person sees in place of the choices, if they have labels.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    labels: &'q [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<&'q Value>,
    /// What was wrong with the last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'q str>,
}

/// Returns the call that asks a question.
pub(super) fn question_call(id: String, question: &Question) -> ToolCall {
    let arguments = Arguments {
        question: question.text(),
        schema: question.schema(),
        choices: question.choices(),
        labels: question.labels(),
        default: question.default(),
        problem: question.problem(),
    };
    let arguments = serde_json::to_string(&arguments).unwrap_or_default();
    ToolCall::new(id, ASK_USER, arguments)
}

/// Returns the decision that the answer of the caller is: JSON or a text, and an empty one declines.
pub(super) fn answer(question: &Question, text: &str) -> Decision {
    match text {
        "" => Decision::decline(),
        text => Decision::answer_text(question, text),
    }
}

/// Decides about what the agent leaves open. Calls are denied, because the API cannot express one that awaits approval. Questions are asked
/// of the caller, if it takes some; a secret answer would be part of its conversation.
pub(super) struct CallerDecider {
    pub(super) is_caller_asked: bool,
}

impl Decider for CallerDecider {
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
        let decision = match wait.question() {
            None => Decision::deny("no one is available to approve it"),
            Some(question) if self.is_caller_asked && !question.is_secret() => Decision::defer(),
            Some(_) => Decision::unavailable(),
        };
        Box::pin(ready(decision))
    }
}

/// Returns a conversation without questions and their answers: like calls of the agent's own tools, they belong to the run that asked.
pub(super) fn without_questions(messages: &[Message]) -> Cow<'_, [Message]> {
    let is_question = |id: &str| id.starts_with(QUESTION);
    let has_questions = |message: &Message| {
        message.as_assistant().is_some_and(|reply| reply.tool_calls.iter().any(|call| is_question(&call.id)))
    };
    if !messages.iter().any(has_questions) {
        return Cow::Borrowed(messages);
    }
    let others = messages.iter().filter_map(|message| match message {
        Message::Tool(result) if is_question(&result.call_id) => None,
        Message::Assistant(reply) if has_questions(message) => {
            let mut reply = reply.clone();
            reply.tool_calls.retain(|call| !is_question(&call.id));
            (!reply.tool_calls.is_empty()).then_some(Message::Assistant(reply))
        }
        other => Some(other.clone()),
    });
    Cow::Owned(others.collect())
}

/// Fails if the results at the end answer questions: their run has not been found.
pub(super) fn refuse_closed_questions(messages: &[Message], param: &str) -> Result<(), ApiError> {
    let results = messages.iter().rev().map_while(|message| match message {
        Message::Tool(result) => Some(result),
        _ => None,
    });
    let Some(closed) = results.into_iter().find(|result| result.call_id.starts_with(QUESTION)) else {
        return Ok(());
    };
    let message = format!(
        "the question `{}` is not open: it was answered before, has expired, or the conversation was changed; add a user message \
         to continue",
        closed.call_id
    );
    Err(ApiError::new(StatusCode::CONFLICT, message).with_param(param).with_code("question_closed"))
}
