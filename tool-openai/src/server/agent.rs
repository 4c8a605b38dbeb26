//! An agent that answers: from a request to its answer, or to calls that the caller is to make.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use tool_core::{
    Agent, Answer, Approval, Ask, AssistantMessage, ChatRequest, ChatResponse, Delta, Event, FinishReason,
    Message, Run, RunError, RunErrorKind, RunLimits, StepError, ToolCall, ToolChoice, ToolExecution,
    ToolOutput, Usage,
};

use super::backend::{Asked, Deltas};
use super::callers::CallersTools;
use super::endpoint::Endpoint;
use super::error::ApiError;
use super::ids;

/// A run that waits for the caller's calls: it goes on where it stood, with what the agent's own calls of the turn gave.
pub(super) struct PausedRun {
    /// The run, as it is kept.
    state: String,
    /// The conversation that the caller had sent.
    conversation: u64,
    /// The ids that the caller knows the calls by, and those of the run.
    calls: Vec<(String, String)>,
}

/// One leg of an agent's run.
pub(super) struct Leg {
    ask: Ask,
    context: Context,
}

/// What is needed when the leg is over.
struct Context {
    endpoint: Arc<Endpoint>,
    callers: CallersTools,
    conversation: u64,
    /// What the run had before.
    messages: usize,
    usage: Usage,
}

/// What a leg came to.
struct Outcome {
    /// What the run added in this leg.
    messages: Vec<Message>,
    /// What tools gave back as the answer.
    returned: Option<String>,
    response: ChatResponse,
}

impl Leg {
    pub(super) fn new(agent: &Agent, asked: &Asked, endpoint: &Arc<Endpoint>) -> Result<Self, ApiError> {
        let chat = &asked.chat;
        let is_offered = *chat.tool_choice() != ToolChoice::None;
        let none = tool_core::ToolDefinitions::default();
        let callers = CallersTools::new(if is_offered { chat.tools() } else { &none }, agent)?;
        let fingerprint = |messages: &[Message]| fingerprint(&asked.model, messages);
        let run = match paused(endpoint, chat.messages(), fingerprint) {
            Some(run) => run,
            None => from_conversation(agent, chat, asked.words.messages)?,
        };
        let context = Context {
            endpoint: Arc::clone(endpoint),
            // Only looked at if the run pauses.
            conversation: if callers.set().is_empty() { 0 } else { fingerprint(chat.messages()) },
            messages: run.new_messages().len(),
            usage: run.usage(),
            callers,
        };
        let limits = limits(agent, &run);
        let mut ask = agent.resume(run).options(chat.options().clone()).limits(limits);
        if let Some(format) = chat.response_format() {
            ask = ask.response_format(format.clone());
        }
        let ask = ask.tools(context.callers.set()).approver(context.callers.approver(agent));
        Ok(Self { ask, context })
    }

    /// The answer in pieces, turn by turn, as they come when it is streamed.
    pub(super) async fn respond(self) -> Result<Vec<Delta>, ApiError> {
        let outcome = self.context.outcome(self.ask.await)?;
        let mut deltas = Vec::new();
        for message in outcome.messages.iter().filter_map(Message::as_assistant) {
            deltas.extend(message.reasoning.clone().map(Delta::Reasoning));
            deltas.extend(Some(message.text.clone()).filter(|text| !text.is_empty()).map(Delta::Text));
            deltas.extend(message.refusal.clone().map(Delta::Refusal));
        }
        deltas.extend(outcome.last_deltas());
        Ok(deltas)
    }

    pub(super) fn stream(self) -> Deltas {
        let context = self.context;
        let deltas = self.ask.stream().flat_map(move |event| {
            let outcome = match event {
                Ok(Event::Text(text)) => return stream::iter(vec![Ok(Delta::Text(text))]),
                Ok(Event::Reasoning(text)) => return stream::iter(vec![Ok(Delta::Reasoning(text))]),
                Ok(Event::Refusal(text)) => return stream::iter(vec![Ok(Delta::Refusal(text))]),
                Ok(Event::Done(answer)) => context.outcome(Ok(answer)),
                Ok(_) => return stream::iter(Vec::new()),
                Err(error) => context.outcome(Err(error)),
            };
            stream::iter(match outcome {
                Ok(outcome) => outcome.last_deltas().into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        });
        deltas.boxed()
    }
}

impl Context {
    fn outcome(&self, outcome: Result<Answer, RunError>) -> Result<Outcome, ApiError> {
        match outcome {
            Ok(answer) => Ok(self.answered(&answer)),
            Err(error) => {
                let calls = self.callers.calls(error.run());
                if matches!(error.kind(), RunErrorKind::ApprovalNeeded) && !calls.is_empty() {
                    return Ok(self.pause(error.run(), calls));
                }
                Err(self.endpoint.settings.telling.run(&error))
            }
        }
    }

    fn answered(&self, answer: &Answer) -> Outcome {
        let messages = self.of_this_leg(answer.messages());
        // What tools returned directly is in no message of the model.
        let returned = match messages.last() {
            Some(Message::Tool(_)) => Some(answer.text().to_owned()),
            _ => None,
        };
        let mut message = merged(&messages);
        message.text.push_str(returned.as_deref().unwrap_or_default());
        message.refusal = answer.refusal().map(str::to_owned);
        let reason = answer.finish_reason().clone();
        let response = ChatResponse::new(message).with_usage(self.usage_of_this_leg(answer.usage()));
        Outcome { messages, returned, response: response.with_finish_reason(reason) }
    }

    /// Keeps the run, and hands the calls to the caller, under ids that nobody can guess: who has them may go on with it.
    fn pause(&self, run: &Run, calls: Vec<ToolCall>) -> Outcome {
        let ids: Vec<_> = calls.iter().map(|call| (ids::unique("call_"), call.id.clone())).collect();
        if let (Ok(state), Some((first, _))) = (serde_json::to_string(run), ids.first()) {
            let (first, bytes) = (first.clone(), state.len());
            let paused = PausedRun { state, conversation: self.conversation, calls: ids.clone() };
            self.endpoint.runs.insert(first, paused, bytes);
        }
        let messages = self.of_this_leg(run.new_messages());
        let calls =
            ids.into_iter().zip(calls).map(|((id, _), call)| ToolCall::new(id, call.name, call.arguments));
        let message = merged(&messages).with_tool_calls(calls);
        let response = ChatResponse::new(message).with_usage(self.usage_of_this_leg(run.usage()));
        Outcome { messages, returned: None, response: response.with_finish_reason(FinishReason::ToolCalls) }
    }

    fn of_this_leg(&self, added: &[Message]) -> Vec<Message> {
        added.iter().skip(self.messages).cloned().collect()
    }

    fn usage_of_this_leg(&self, all: Usage) -> Usage {
        let less = |all: Option<u64>, before: Option<u64>| {
            all.map(|all| all.saturating_sub(before.unwrap_or_default()))
        };
        let mut usage = all;
        usage.input_tokens = all.input_tokens.saturating_sub(self.usage.input_tokens);
        usage.output_tokens = all.output_tokens.saturating_sub(self.usage.output_tokens);
        usage.total_tokens = all.total_tokens.saturating_sub(self.usage.total_tokens);
        usage.cached_tokens = less(all.cached_tokens, self.usage.cached_tokens);
        usage.reasoning_tokens = less(all.reasoning_tokens, self.usage.reasoning_tokens);
        usage
    }
}

impl Outcome {
    /// What comes behind the texts of the turns.
    fn last_deltas(self) -> Vec<Delta> {
        let mut deltas: Vec<_> = self.returned.map(Delta::Text).into_iter().collect();
        for (index, call) in self.response.message.tool_calls.iter().enumerate() {
            deltas.push(Delta::ToolCall { index, id: call.id.clone(), name: call.name.clone() });
            deltas.push(Delta::Arguments { index, text: call.arguments.clone() });
        }
        deltas.push(Delta::Done(self.response));
        deltas
    }
}

/// The answer is one message, with the texts of all turns, as they are when it is streamed.
fn merged(messages: &[Message]) -> AssistantMessage {
    let replies = || messages.iter().filter_map(Message::as_assistant);
    let mut message = AssistantMessage::text(replies().map(|reply| &*reply.text).collect::<String>());
    let reasoning: String = replies().filter_map(|reply| reply.reasoning.as_deref()).collect();
    message.reasoning = Some(reasoning).filter(|reasoning| !reasoning.is_empty());
    message
}

/// What tells one conversation with a model from another.
fn fingerprint(model: &str, messages: &[Message]) -> u64 {
    static STATE: OnceLock<RandomState> = OnceLock::new();
    STATE.get_or_init(RandomState::new).hash_one(json!([model, messages]).to_string())
}

/// How far the run may go from here: as far as the agent says, since the caller had a hand in what came before.
fn limits(agent: &Agent, run: &Run) -> RunLimits {
    let mut limits = agent.start("").run().limits().clone();
    limits.max_turns = limits.max_turns.saturating_add(run.turns());
    let calls = u32::try_from(run.tool_executions().len()).unwrap_or(u32::MAX);
    limits.max_calls = limits.max_calls.map(|limit| limit.saturating_add(calls));
    limits
}

/// The run that waits for the results that these messages end with, if it is kept and they are all there. A conversation that
/// was changed is another one.
fn paused(endpoint: &Endpoint, messages: &[Message], fingerprint: impl Fn(&[Message]) -> u64) -> Option<Run> {
    let asked = messages.iter().rposition(|message| matches!(message, Message::Assistant(_)))?;
    let reply = messages[asked].as_assistant()?;
    let paused = endpoint.runs.get(&reply.tool_calls.first()?.id)?;
    if paused.conversation != fingerprint(&messages[..asked]) || reply.tool_calls.len() != paused.calls.len()
    {
        return None;
    }
    let mut run: Run = serde_json::from_str(&paused.state).ok()?;
    for (outer, inner) in &paused.calls {
        let call = run.awaiting_approval().find(|call| call.id == *inner)?.clone();
        let output = result_of(outer, &messages[asked + 1..])?;
        run.resolve_approval(inner, Approval::Approve).ok()?;
        run.record_result(ToolExecution::new(call, Ok(output))).ok()?;
    }
    for message in &messages[asked + 1..] {
        match message {
            Message::Tool(_) => {}
            Message::User(said) => run.push_user_message(said.clone()).ok()?,
            _ => return None,
        }
    }
    Some(run)
}

fn result_of(call_id: &str, results: &[Message]) -> Option<ToolOutput> {
    results.iter().find_map(|message| match message {
        Message::Tool(result) if result.call_id == call_id => Some(ToolOutput::from(result.content.clone())),
        _ => None,
    })
}

/// A run over the conversation: the last question, and what came of it so far.
fn from_conversation(agent: &Agent, chat: &ChatRequest<'_>, param: &str) -> Result<Run, ApiError> {
    let wrong = || ApiError::invalid(param, "the last message must be the user's, or the result of a call");
    let messages = chat.messages();
    let is_question = |message: &Message| matches!(message, Message::User(_));
    let asked = messages.iter().rposition(is_question).ok_or_else(wrong)?;
    let Message::User(question) = &messages[asked] else { return Err(wrong()) };
    let history = messages[..asked].to_vec();
    let mut run = agent.ask(question.clone()).history(history).start().into_run();
    if let choice @ (ToolChoice::Required | ToolChoice::Tool(_)) = chat.tool_choice() {
        run = run.with_tool_choice(choice.clone());
    }
    if chat.parallel_tool_calls().is_some() {
        run = run.with_parallel_tool_calls(chat.parallel_tool_calls());
    }
    // What was done already is not bounded again.
    run = run.with_limits(RunLimits::new().max_turns(u32::MAX).max_repeated_calls(u32::MAX));
    let mut since = messages[asked + 1..].iter().peekable();
    while let Some(message) = since.next() {
        let Message::Assistant(reply) = message else { return Err(wrong()) };
        let mut results = Vec::new();
        while let Some(result @ Message::Tool(_)) = since.peek() {
            results.push((*result).clone());
            since.next();
        }
        replay(&mut run, reply, &results).map_err(|_| wrong())?;
        // A call that is still open would be made here, though the caller wrote it.
        if run.is_done() || run.current_calls().next().is_some() {
            return Err(wrong());
        }
    }
    Ok(run)
}

/// Tells the run what the model replied, and what came of its calls.
fn replay(run: &mut Run, reply: &AssistantMessage, results: &[Message]) -> Result<(), StepError> {
    run.record_response(ChatResponse::new(reply.clone()))?;
    let open: Vec<_> = run.current_calls().map(|(call, outcome)| (call.clone(), outcome.is_some())).collect();
    // The run may have given the calls other ids.
    for ((call, is_over), asked) in open.into_iter().zip(&reply.tool_calls) {
        if let Some(output) = result_of(&asked.id, results).filter(|_| !is_over) {
            run.record_result(ToolExecution::new(call, Ok(output)))?;
        }
    }
    Ok(())
}
