//! Builds a run from the messages of a request.

use tool_core::engine::AskExt;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ToolChoice};
use tool_core::run::{Run, RunLimits};
use tool_core::tool::ToolExecution;
use tool_core::{Agent, ConversationId, Message, ToolOutput};

use super::error::ApiError;
use super::questions::{refuse_closed_questions, without_questions};
use super::results::results_by_id;

/// Builds a run from the conversation: the last user message is the question, and the replies and results after it are
/// replayed. Yields in between, because a conversation can be long.
pub(super) async fn rebuild_run(
    agent: &Agent,
    chat: &ChatRequest<'_>,
    id: String,
    param: &str,
) -> Result<Run, ApiError> {
    let invalid =
        || ApiError::invalid(param, "the last message must be a user message or the result of a call");
    refuse_closed_questions(chat.messages(), param)?;
    let messages = &*without_questions(chat.messages());
    let is_question = |message: &Message| matches!(message, Message::User(_));
    let question_index = messages.iter().rposition(is_question).ok_or_else(invalid)?;
    let Message::User(question) = &messages[question_index] else { return Err(invalid()) };
    let history = messages[..question_index].iter();
    let ask = agent.ask(question.clone()).run_id(id).history(history).conversation(ConversationId::unique());
    let mut run = ask.start().into_run();
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use tool_core::ToolCall;
    use tool_core::model::ToolMessage;
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
        let mut replay = pin!(rebuild_run(&agent, &chat, "run_1".into(), "messages"));
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
