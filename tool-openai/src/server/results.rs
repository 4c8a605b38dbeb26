//! The results and answers at the end of a request, which continue a stored run.
//!
//! A paused run continues once, and its answer is shared by repeated requests, because clients repeat requests after a timeout. A repeated
//! request resumes the run and forks none, because a fork would execute calls again.

use std::collections::HashMap;

use axum::http::StatusCode;
use tool_core::agent::{Ask, CommandError, CommandErrorKind, OnDrop};
use tool_core::content::Content;
use tool_core::engine::AskExt;
use tool_core::memory::RunStatus;
use tool_core::model::ToolMessage;
use tool_core::run::{Decision, Run, UserMessage, Wait, WaitReason};
use tool_core::signatures::{
    DecisionKind, DecisionRecord, ResolveErrorKind, StepErrorKind, StoredRun, Timestamp,
};
use tool_core::tool::WaitId;
use tool_core::{Agent, Message, ToolCall, ToolOutput};

use super::backend::BackendRequest;
use super::call_ids::{CallIds, request_digest};
use super::caller_tools::waits_for_caller;
use super::error::ApiError;
use super::error_mapping::ErrorMapper;
use super::questions::answer;

/// The results at the end of a request, for calls of a run.
pub(super) struct SentResults<'a> {
    request: &'a BackendRequest,
    /// The number of the run.
    pub(super) number: &'a str,
    /// The digest of the request.
    pub(super) digest: String,
    ids: CallIds,
    calls: &'a [ToolCall],
    /// The results, and user messages.
    messages: &'a [Message],
}

impl<'a> SentResults<'a> {
    /// Returns `None` if the request ends with no calls that it received from this server.
    pub(super) fn find(request: &'a BackendRequest) -> Option<Self> {
        let messages = request.chat.messages();
        let reply_index = messages.iter().rposition(|message| matches!(message, Message::Assistant(_)))?;
        let calls = &*messages[reply_index].as_assistant()?.tool_calls;
        let (number, _) = CallIds::split(&calls.first()?.id)?;
        let ids = CallIds::new(request, number.to_owned(), &messages[..reply_index]);
        let (digest, messages) = (request_digest(request), &messages[reply_index + 1..]);
        Some(Self { request, number, digest, ids, calls, messages })
    }

    /// Returns how the request continues its run, or `None` if the run is gone or over, the caller changed the conversation, or
    /// another request has continued the run.
    pub(super) async fn continuation(
        &self,
        agent: &Agent,
        error_mapper: ErrorMapper,
    ) -> Result<Option<Continuation>, ApiError> {
        let id = CallIds::run_id(self.request, self.number);
        let stored = agent.stored_run(&id).await;
        let stored = stored.map_err(|error| error_mapper.map_internal_error(&error))?;
        let Some(StoredRun { run, status, .. }) = stored else { return Ok(None) };
        if matches!(status, RunStatus::Cancelled | RunStatus::Expired) {
            // A new run would execute its calls again, unless they are before the question.
            let is_repeated = self.messages.iter().all(|message| matches!(message, Message::Tool(_)));
            let would_repeat = is_repeated && run.may_have_had_effects();
            return match would_repeat && self.continue_run(agent, run).is_some() {
                true => Err(ApiError::run_ended()),
                false => Ok(None),
            };
        }
        let has_unknown_outcome =
            run.engine_view().has_unknown_outcome() && status != RunStatus::RunningElsewhere;
        match self.continue_run(agent, run) {
            Some(_) if has_unknown_outcome => Err(ApiError::interrupted()),
            found => Ok(found),
        }
    }

    fn continue_run(&self, agent: &Agent, mut run: Run) -> Option<Continuation> {
        // Expiry precedes answers.
        run.tick(Timestamp::now());
        let by = format!("caller {}", self.digest);
        // The tools of the request may be others by now.
        let waits = waits_for_caller(&run, |tool| agent.tools().get(tool).is_none());
        let waits: HashMap<_, _> = waits.iter().map(|wait| (self.ids.tag(&run, &wait.id), wait)).collect();
        let decided: HashMap<_, _> =
            run.decisions().map(|record| (self.ids.tag(&run, &record.wait), record)).collect();
        let results = results_by_id(self.messages);
        let (mut decisions, mut is_repeated) = (Vec::new(), false);
        for call in self.calls {
            let (result, (_, tag)) = (results.get(&*call.id)?, CallIds::split(&call.id)?);
            match (waits.get(tag), decided.get(tag)) {
                (Some(wait), _) if decisions.iter().all(|(id, _)| *id != wait.id) => {
                    decisions.push((wait.id.clone(), decide(wait, result).by(&*by)))
                }
                (None, Some(DecisionRecord { kind: DecisionKind::Expired, .. })) => {}
                (None, Some(record)) if record.by.as_ref() == Some(&by) => is_repeated = true,
                _ => return None,
            }
        }
        let said = self.messages.iter().filter(|message| !matches!(message, Message::Tool(_)));
        let said = said.map(|message| match message {
            Message::User(content) => Some(content.clone()),
            _ => None,
        });
        let said = if is_repeated { Vec::new() } else { said.collect::<Option<_>>()? };
        // Others wait for the application.
        let declares = |tool: &str| self.request.chat.tools().iter().any(|one| one.name() == tool);
        let is_open = |wait: &&Wait| decisions.iter().all(|(id, _)| *id != wait.id);
        let mut open = waits.values().copied().filter(is_open);
        let is_complete = is_repeated || open.all(|wait| wait.question().is_none() && !declares(&wait.tool));
        let (agent, param) = (agent.clone(), self.request.field_names.messages);
        is_complete.then(|| Continuation { agent, run, decisions, said, by, param })
    }
}

/// Returns the decision that a result of the caller is.
fn decide(wait: &Wait, result: &ToolMessage) -> Decision {
    match &wait.reason {
        WaitReason::Answer(question) => answer(question, &result.content.text()),
        _ => Decision::result(Ok(ToolOutput::from(result.content.clone()))),
    }
}

/// Returns the first result of each call.
pub(super) fn results_by_id(messages: &[Message]) -> HashMap<&str, &ToolMessage> {
    let results = messages.iter().rev().filter_map(|message| match message {
        Message::Tool(result) => Some((&*result.call_id, result)),
        _ => None,
    });
    results.collect()
}

/// The continuation of a stored run by a request, or by its repetition.
///
/// A run continues once, because clients repeat requests after a timeout, and users click twice. The decisions in the run name the request
/// that continued it. If the run failed, or was dropped because the callers had disconnected, a repeated request continues there.
pub(super) struct Continuation {
    agent: Agent,
    /// The run as it was loaded.
    pub(super) run: Run,
    decisions: Vec<(WaitId, Decision)>,
    /// The user messages behind the results.
    said: Vec<Content>,
    by: String,
    param: &'static str,
}

impl Continuation {
    /// Returns the number of messages that the run had added before the request.
    pub(super) fn start(&self) -> usize {
        let is_own = |record: &DecisionRecord| record.by.as_ref() == Some(&self.by);
        let finished = self.run.tool_executions().iter().find(|one| one.decisions().iter().any(is_own));
        let is_decided = |call: &ToolCall| finished.is_none_or(|finished| finished.call().id == call.id);
        // A call that has not finished is in the last turn.
        let is_turn = |message: &Message| {
            message.as_assistant().is_some_and(|reply| reply.tool_calls.iter().any(is_decided))
        };
        self.run.new_messages().iter().rposition(is_turn).map_or(0, |index| index + 1)
    }

    /// Records what the caller has sent, and returns the question that continues the run.
    pub(super) async fn resume(self, error_mapper: ErrorMapper) -> Result<Ask, ApiError> {
        let Self { agent, run, decisions, said, by, param } = self;
        let said: Vec<_> = said.into_iter().map(|content| UserMessage::new(content).by(&by)).collect();
        // Found out before the decisions are recorded.
        let mut copy = run.clone();
        let refused = said.iter().find_map(|message| copy.say(message.clone()).err());
        if let Some(error) = refused.filter(|error| error.kind() == StepErrorKind::Full) {
            return Err(ApiError::invalid(param, error.to_string()));
        }
        let mut decided = agent.decide_all(run.id(), decisions).await;
        let is_own =
            |error: &CommandError| error.decided().is_some_and(|first| first.by.as_ref() == Some(&by));
        if decided.as_ref().is_err_and(is_own) {
            // An earlier attempt was dropped before the run took its decisions.
            decided = agent.decide_all(run.id(), Vec::new()).await;
        }
        let decided = decided.map_err(|error| refusal(&error, param, error_mapper))?;
        let ask = decided.resume().ok_or_else(ApiError::run_conflict)?.on_drop(OnDrop::Keep);
        said.into_iter().try_fold(ask, Ask::with_message).map_err(|_| ApiError::run_conflict())
    }
}

fn refusal(error: &CommandError, param: &str, error_mapper: ErrorMapper) -> ApiError {
    match error.kind() {
        CommandErrorKind::Refused(error) if error.kind() == ResolveErrorKind::InvalidAnswer => {
            ApiError::invalid(param, error.to_string()).with_code("invalid_answer")
        }
        CommandErrorKind::NotAllowed { .. } => {
            ApiError::new(StatusCode::FORBIDDEN, error.to_string()).with_param(param)
        }
        CommandErrorKind::Store(_) => error_mapper.map_internal_error(error),
        _ => ApiError::run_conflict(),
    }
}
