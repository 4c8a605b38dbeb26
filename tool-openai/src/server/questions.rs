//! Questions of tools to the caller: as calls of a function, whose results are the answers.

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use tool_core::agent::{Answerer, AnswererFuture};
use tool_core::run::{Decision, ResolveErrorKind, Run};
use tool_core::tool::{Question, WaitId};
use tool_core::{Message, ToolCall};
use tool_http::random_id;

use super::error::ApiError;

/// The name of the function that asks the caller.
pub(super) const ASK_USER: &str = "ask_user";

/// The first part of the ids of its calls, by which they are recognized in a conversation.
const ID_PREFIX: &str = "ask_";

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

/// Returns the call that asks a question. Its id is unguessable, because it grants access to the run.
pub(super) fn question_call(question: &Question) -> ToolCall {
    let arguments = Arguments {
        question: question.text(),
        schema: question.schema(),
        choices: question.choices(),
        labels: question.labels(),
        default: question.default(),
        problem: question.problem(),
    };
    let arguments = serde_json::to_string(&arguments).unwrap_or_default();
    ToolCall::new(random_id(ID_PREFIX), ASK_USER, arguments)
}

/// Records the answer of the caller: its text is JSON or a text, and an empty one declines. An answer that comes too late is ignored.
pub(super) fn record_answer(run: &mut Run, wait: &WaitId, text: &str, param: &str) -> Result<(), ApiError> {
    let waits = run.waits();
    let Some(question) = waits.iter().find(|open| open.id == *wait).and_then(|open| open.question()) else {
        return Ok(());
    };
    let decision = match text {
        "" => Decision::decline(),
        text => Decision::answer_text(question, text),
    };
    match run.resolve(wait, decision.by("caller")) {
        Err(error) if error.kind() == ResolveErrorKind::InvalidAnswer => {
            Err(ApiError::invalid(param, error.to_string()).with_code("invalid_answer"))
        }
        Err(_) => Err(ApiError::internal()),
        Ok(()) => Ok(()),
    }
}

/// Asks the agent's answerer. Questions that it leaves open are asked of the caller, if it takes questions. A secret answer would be
/// part of its conversation.
pub(super) struct CallerAnswerer {
    pub(super) of_agent: Option<Arc<dyn Answerer>>,
    pub(super) is_caller_asked: bool,
}

impl Answerer for CallerAnswerer {
    fn answer<'a>(&'a self, question: &'a Question) -> AnswererFuture<'a> {
        Box::pin(async move {
            let decision = match &self.of_agent {
                Some(answerer) => answerer.answer(question).await,
                None => Decision::defer(),
            };
            let is_for_caller = self.is_caller_asked && !question.is_secret();
            if decision.is_deferred() && !is_for_caller { Decision::unavailable() } else { decision }
        })
    }
}

/// Returns a conversation without questions and their answers: like calls of the agent's own tools, they belong to the run that asked.
pub(super) fn without_questions(messages: &[Message]) -> Cow<'_, [Message]> {
    let is_question = |id: &str| id.starts_with(ID_PREFIX);
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
    let Some(closed) = results.into_iter().find(|result| result.call_id.starts_with(ID_PREFIX)) else {
        return Ok(());
    };
    let message = format!(
        "the question `{}` is not open: it was answered before, has expired, or the conversation was changed; add a user message \
         to continue",
        closed.call_id
    );
    Err(ApiError::new(StatusCode::CONFLICT, message).with_param(param).with_code("question_closed"))
}
