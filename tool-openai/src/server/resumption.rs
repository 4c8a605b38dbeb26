//! The run that a request continues: one that waits for the caller, or one that is built from the conversation.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ToolChoice, ToolMessage};
use tool_core::run::{Run, RunLimits};
use tool_core::tool::{Timestamp, ToolExecution};
use tool_core::{Agent, Message, ToolOutput};

use super::backend::BackendRequest;
use super::error::ApiError;
use super::paused_run::{Awaited, PausedRun};
use super::questions::{record_answer, refuse_closed_questions, without_questions};
use super::state::ServerState;

/// The results at the end of a request, for calls of a paused run.
pub(super) struct SentResults<'a> {
    pub(super) paused: Arc<PausedRun>,
    /// The results, and user messages.
    messages: &'a [Message],
}

impl<'a> SentResults<'a> {
    /// Returns `None` if there is no paused run, or the caller changed its conversation.
    pub(super) fn find(state: &ServerState, request: &'a BackendRequest) -> Option<Self> {
        let messages = request.chat.messages();
        let reply_index = messages.iter().rposition(|message| matches!(message, Message::Assistant(_)))?;
        let reply = messages[reply_index].as_assistant()?;
        let paused = state.paused_runs.get(&reply.tool_calls.first()?.id, request.caller)?;
        let is_same = paused.conversation == fingerprint(&request.model, &messages[..reply_index])
            && reply.tool_calls.len() == paused.calls.len();
        is_same.then(|| Self { paused, messages: &messages[reply_index + 1..] })
    }

    /// Returns the run with the results recorded, or `None` if they do not fit. Fails if an answer is not valid.
    pub(super) fn record(&self, mut run: Run, param: &str) -> Result<Option<Run>, ApiError> {
        // Expiry precedes answers.
        run.tick(Timestamp::now());
        let mut awaiting: HashMap<_, _> =
            run.awaiting_results().map(|call| (call.id.clone(), call)).collect();
        let results = results_by_id(self.messages);
        for (caller_id, awaited) in &self.paused.calls {
            let Some(result) = results.get(&**caller_id) else { return Ok(None) };
            match awaited {
                Awaited::Answer { wait, .. } => record_answer(&mut run, wait, &result.content.text(), param)?,
                Awaited::Result(id) => {
                    let Some(call) = awaiting.remove(id) else { return Ok(None) };
                    let output = ToolOutput::from(result.content.clone());
                    if run.record_result(ToolExecution::external(call, Ok(output))).is_err() {
                        return Ok(None);
                    }
                }
            }
        }
        for message in self.messages {
            let is_recorded = match message {
                Message::Tool(_) => true,
                Message::User(content) => run.push_user_message(content.clone()).is_ok(),
                _ => false,
            };
            if !is_recorded {
                return Ok(None);
            }
        }
        Ok(Some(run))
    }
}

/// Returns the first result of each call.
fn results_by_id(messages: &[Message]) -> HashMap<&str, &ToolMessage> {
    let results = messages.iter().rev().filter_map(|message| match message {
        Message::Tool(result) => Some((&*result.call_id, result)),
        _ => None,
    });
    results.collect()
}

/// Builds a run from the conversation: the last user message is the question, and the replies and results after it are
/// replayed. Yields in between, because a conversation can be long.
pub(super) async fn rebuild_run(agent: &Agent, chat: &ChatRequest<'_>, param: &str) -> Result<Run, ApiError> {
    let invalid =
        || ApiError::invalid(param, "the last message must be a user message or the result of a call");
    refuse_closed_questions(chat.messages(), param)?;
    let messages = &*without_questions(chat.messages());
    let is_question = |message: &Message| matches!(message, Message::User(_));
    let question_index = messages.iter().rposition(is_question).ok_or_else(invalid)?;
    let Message::User(question) = &messages[question_index] else { return Err(invalid()) };
    let history = messages[..question_index].iter();
    let mut run = agent.ask(question.clone()).history(history).start().into_run();
    if let choice @ (ToolChoice::Required | ToolChoice::Tool(_)) = chat.tool_choice() {
        run = run.with_tool_choice(choice.clone());
    }
    if chat.parallel_tool_calls().is_some() {
        run = run.with_parallel_tool_calls(chat.parallel_tool_calls());
    }
    // Limits do not apply to replayed turns.
    run = run.with_limits(RunLimits::new().max_turns(u32::MAX).max_repeated_calls(u32::MAX));
    let is_result = |message: &Message| matches!(message, Message::Tool(_));
    let mut rest = &messages[question_index + 1..];
    while let Some((Message::Assistant(reply), after)) = rest.split_first() {
        let (results, next) = after.split_at(after.iter().take_while(|one| is_result(one)).count());
        replay_turn(&mut run, reply, results).await.ok_or_else(invalid)?;
        rest = next;
    }
    if rest.is_empty() { Ok(run) } else { Err(invalid()) }
}

/// Records a reply of the model and the results of its calls. Returns `None` if the reply is the end of the run or has other
/// calls than those with results: the agent would execute a call that is still open, although the caller wrote it.
async fn replay_turn(run: &mut Run, reply: &AssistantMessage, results: &[Message]) -> Option<()> {
    // The run would split such a call into any number of others without results.
    if reply.tool_calls.iter().any(|call| call.name.contains("multi_tool_use.parallel")) {
        return None;
    }
    run.record_response(ChatResponse::new(reply.clone())).ok()?;
    let results = results_by_id(results);
    let open: Vec<_> = run.current_calls().map(|(call, outcome)| (call.clone(), outcome.is_some())).collect();
    // The run may have replaced the ids of the calls.
    for ((call, is_finished), requested) in open.into_iter().zip(&reply.tool_calls) {
        tokio::task::consume_budget().await;
        if let Some(result) = results.get(&*requested.id).filter(|_| !is_finished) {
            let output = ToolOutput::from(result.content.clone());
            run.record_result(ToolExecution::external(call, Ok(output))).ok()?;
        }
    }
    (!run.is_done() && run.current_calls().next().is_none()).then_some(())
}

/// Returns a hash that identifies a conversation with a model.
pub(super) fn fingerprint(model: &str, messages: &[Message]) -> u64 {
    hash(&(model, messages))
}

/// Returns a hash that identifies a request, whether or not its answer is streamed.
pub(super) fn request_fingerprint(BackendRequest { model, chat, .. }: &BackendRequest) -> u64 {
    let tools: Vec<_> = chat.tools().iter().collect();
    let settings = (chat.tool_choice(), chat.parallel_tool_calls(), chat.response_format(), chat.options());
    hash(&(model, chat.messages(), tools, settings))
}

/// Hashes the JSON of a value.
fn hash(value: &impl Serialize) -> u64 {
    static STATE: OnceLock<RandomState> = OnceLock::new();
    let mut hasher = STATE.get_or_init(RandomState::new).build_hasher();
    // These values can always be written.
    hasher.write(&serde_json::to_vec(value).unwrap_or_default());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use tool_core::ToolCall;
    use tool_core::testing::ScriptedModel;

    use super::*;

    /// Other requests are answered in between.
    #[tokio::test]
    async fn yields_while_a_long_conversation_is_replayed() {
        const TURNS: usize = 1000;
        let turn = |_| {
            let call = ToolCall::new("abc", "sum", "{}");
            let reply = AssistantMessage::default().with_tool_calls([call]);
            [Message::Assistant(reply), Message::Tool(ToolMessage::new("abc", "sum", "3"))]
        };
        let messages: Vec<_> = [Message::user("Hi")].into_iter().chain((0..TURNS).flat_map(turn)).collect();
        let agent = Agent::builder(ScriptedModel::new()).build().unwrap();
        let chat = ChatRequest::new(messages);
        let mut replay = pin!(rebuild_run(&agent, &chat, "messages"));
        let mut polls = 0;
        let run = poll_fn(|context| {
            polls += 1;
            replay.as_mut().poll(context)
        });
        assert_eq!(run.await.unwrap().tool_executions().len(), TURNS);
        // Tokio lets a task take 128 such steps at once.
        assert!(polls > TURNS / 128, "{polls} polls");
    }
}
