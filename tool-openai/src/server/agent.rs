//! An agent as a backend: from a request to its answer, or to calls that the caller executes.
//!
//! Agents run through the same `Run` as everywhere; a tool of the caller is a call whose result the caller supplies, because the run then
//! keeps all its rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::OwnedSemaphorePermit;
use tool_core::agent::Ask;
use tool_core::engine::AskExt;
use tool_core::model::{
    AssistantMessage, ChatResponse, Delta, FinishReason, ModelOptions, RunUser, ToolChoice, Usage,
};
use tool_core::provider::{ResponseFormat, ToolDefinitions};
use tool_core::run::{Run, RunLimits, Wait, WaitReason};
use tool_core::store::RunStore;
use tool_core::{Agent, Answer, Event, Message, RunError, RunErrorKind, ToolCall};

use super::backend::{BackendRequest, Deltas, flatten};
use super::call_ids::CallIds;
use super::caller_tools::{CallerTools, waits_for_caller};
use super::error::ApiError;
use super::questions::{ASK_USER, CallerDecider, question_call};
use super::rebuilding::rebuild_run;
use super::results::SentResults;
use super::state::ServerState;

/// Returns the answer of an agent as deltas, of all turns in the order in which they would be streamed.
pub(super) async fn answer(
    agent: &Agent,
    request: &BackendRequest,
    state: &Arc<ServerState>,
    is_streamed: bool,
) -> Result<Deltas, ApiError> {
    let chat = &request.chat;
    let none = ToolDefinitions::default();
    let declared = if *chat.tool_choice() == ToolChoice::None { &none } else { chat.tools() };
    let caller_tools = CallerTools::new(declared, agent)?;
    let is_declared = declared.iter().any(|tool| tool.name() == ASK_USER);
    let is_asked = is_declared || request.is_asked && *chat.tool_choice() != ToolChoice::None;
    let segment = |number: String, start, reserved| RunSegment {
        // Used only if the run pauses.
        ids: (is_asked || !declared.is_empty()).then(|| CallIds::new(request, number, chat.messages())),
        state: Arc::clone(state),
        user: request.user.clone(),
        caller_tools,
        is_asked,
        options: chat.options().clone(),
        response_format: chat.response_format().cloned(),
        start,
        _reserved: reserved,
        fresh: None,
        is_paused: AtomicBool::new(false),
    };
    if let Some(results) = SentResults::find(request) {
        if let Some(answer) = state.answers.get(&results.digest) {
            return Ok(answer.deltas());
        }
        let error_mapper = state.config.error_mapper;
        if let Some(continuation) = results.continuation(agent, error_mapper).await? {
            let start = SegmentStart::new(agent, &continuation.run, continuation.start());
            // A small request can continue a large run.
            let bytes = continuation.run.messages().iter().map(Message::approximate_bytes).sum();
            let reserved = state.limiter.reserve(bytes)?;
            let segment = segment(results.number.to_owned(), start, Some(reserved));
            let continued = async move {
                let ask = continuation.resume(error_mapper).await?;
                Ok::<_, ApiError>(segment.deltas(ask, is_streamed))
            };
            let generate = || stream::once(continued).try_flatten().boxed();
            return Ok(state.answers.share(results.digest, generate).deltas());
        }
    }
    let number = CallIds::new_number();
    let id = CallIds::run_id(request, &number);
    let run = rebuild_run(agent, chat, id, request.field_names.messages).await?;
    let start = SegmentStart::new(agent, &run, run.new_messages().len());
    let mut segment = segment(number, start, None);
    segment.fresh = Some(run.id().to_string());
    Ok(segment.deltas(agent.resume(run), is_streamed))
}

/// The part of an agent's run that answers one request.
struct RunSegment {
    state: Arc<ServerState>,
    user: Option<RunUser>,
    caller_tools: CallerTools,
    is_asked: bool,
    options: ModelOptions,
    response_format: Option<ResponseFormat>,
    ids: Option<CallIds>,
    start: SegmentStart,
    /// The memory for the stored run that the segment continues. A repeated request can continue it as well.
    _reserved: Option<OwnedSemaphorePermit>,
    /// The id of the run if the segment starts it.
    fresh: Option<String>,
    is_paused: AtomicBool,
}

/// A run that does not wait for its caller is continued by nobody, and must not displace others in the store of the server.
impl Drop for RunSegment {
    fn drop(&mut self) {
        if let Some(id) = self.fresh.take().filter(|_| !self.is_paused.load(Ordering::Relaxed)) {
            // The store in memory does this at once.
            let _ = self.state.runs.remove_run(&id).now_or_never();
        }
    }
}

/// What a run had done before a request.
struct SegmentStart {
    /// The number of messages that it had added.
    messages: usize,
    usage: Usage,
    limits: RunLimits,
    /// The messages that were added in an earlier attempt, as deltas.
    repeated: Vec<Delta>,
}

impl SegmentStart {
    fn new(agent: &Agent, run: &Run, messages: usize) -> Self {
        let repeated = run.new_messages().get(messages..).map(text_deltas).unwrap_or_default();
        Self { messages, usage: run.usage(), limits: extended_limits(agent, run), repeated }
    }
}

/// The result of a segment.
struct SegmentOutcome {
    /// The messages that the run added in this segment.
    messages: Vec<Message>,
    /// The output of tools that is the answer itself.
    returned: Option<String>,
    response: ChatResponse,
}

impl RunSegment {
    /// Returns the deltas of the answer to a question that starts or resumes the run.
    fn deltas(mut self, ask: Ask, is_streamed: bool) -> Deltas {
        let mut ask = ask.options(self.options.clone()).limits(|_| self.start.limits.clone());
        if let Some(format) = &self.response_format {
            ask = ask.response_format(format.clone());
        }
        if let Some(user) = self.user.take() {
            ask = ask.user(user);
        }
        let ask = ask.tools(self.caller_tools.0.clone());
        let ask = ask.last_decider(CallerDecider { is_caller_asked: self.is_asked });
        if !is_streamed {
            return flatten(stream::once(async move {
                let outcome = self.outcome(ask.await)?;
                let mut deltas = text_deltas(&outcome.messages);
                deltas.extend(outcome.final_deltas());
                Ok(deltas)
            }));
        }
        let repeated = std::mem::take(&mut self.start.repeated);
        let deltas = ask.stream().map(move |event| match event {
            Ok(Event::Text(text)) => Ok(vec![Delta::Text(text)]),
            Ok(Event::Reasoning(text)) => Ok(vec![Delta::Reasoning(text)]),
            Ok(Event::Refusal(text)) => Ok(vec![Delta::Refusal(text)]),
            Ok(Event::Done(answer)) => {
                // What tools return directly has arrived as text.
                let outcome = SegmentOutcome { returned: None, ..self.answer_outcome(&answer) };
                Ok(outcome.final_deltas())
            }
            Ok(_) => Ok(Vec::new()),
            Err(error) => self.outcome(Err(error)).map(SegmentOutcome::final_deltas),
        });
        flatten(stream::iter([Ok(repeated)]).chain(deltas))
    }

    fn outcome(&self, result: Result<Answer, RunError>) -> Result<SegmentOutcome, ApiError> {
        let error = match result {
            Ok(answer) => return Ok(self.answer_outcome(&answer)),
            Err(error) => error,
        };
        let waits = waits_for_caller(error.run(), |tool| self.caller_tools.0.get(tool).is_some());
        if let (RunErrorKind::Waiting, false, Some(ids)) = (error.kind(), waits.is_empty(), &self.ids) {
            return Ok(self.pause(error.run(), &waits, ids));
        }
        Err(self.state.config.error_mapper.map_run_error(&error))
    }

    fn answer_outcome(&self, answer: &Answer) -> SegmentOutcome {
        let messages = self.new_messages(answer.new_messages());
        // Output that tools return directly is in no message of the model.
        let returned = match messages.last() {
            Some(Message::Tool(_)) => Some(answer.text().to_owned()),
            _ => None,
        };
        let mut message = merge_replies(&messages);
        message.text.push_str(returned.as_deref().unwrap_or_default());
        message.refusal = answer.refusal().map(str::to_owned);
        let reason = answer.finish_reason().clone();
        let response = ChatResponse::new(message).with_usage(self.new_usage(answer.usage()));
        SegmentOutcome { messages, returned, response: response.with_finish_reason(reason) }
    }

    /// Returns the calls that the caller receives for what the run waits for.
    fn pause(&self, run: &Run, waits: &[Wait], ids: &CallIds) -> SegmentOutcome {
        self.is_paused.store(true, Ordering::Relaxed);
        let calls = waits.iter().filter_map(|wait| match &wait.reason {
            WaitReason::Answer(question) => Some(question_call(ids.question(run, &wait.id), question)),
            WaitReason::CallerResult(call) => {
                Some(ToolCall::new(ids.call(run, &wait.id), &*call.name, &*call.arguments))
            }
            _ => None,
        });
        let messages = self.new_messages(run.new_messages());
        let message = merge_replies(&messages).with_tool_calls(calls);
        let response = ChatResponse::new(message).with_usage(self.new_usage(run.usage()));
        let response = response.with_finish_reason(FinishReason::ToolCalls);
        SegmentOutcome { messages, returned: None, response }
    }

    /// Returns the messages that were added in this segment.
    fn new_messages(&self, added: &[Message]) -> Vec<Message> {
        added.iter().skip(self.start.messages).cloned().collect()
    }

    /// Returns the usage of this segment.
    fn new_usage(&self, total: Usage) -> Usage {
        let earlier = self.start.usage;
        let subtract = |total: Option<u64>, earlier: Option<u64>| {
            total.map(|total| total.saturating_sub(earlier.unwrap_or_default()))
        };
        let mut usage = total;
        usage.input_tokens = total.input_tokens.saturating_sub(earlier.input_tokens);
        usage.output_tokens = total.output_tokens.saturating_sub(earlier.output_tokens);
        usage.total_tokens = total.total_tokens.saturating_sub(earlier.total_tokens);
        usage.cached_tokens = subtract(total.cached_tokens, earlier.cached_tokens);
        usage.cache_write_tokens = subtract(total.cache_write_tokens, earlier.cache_write_tokens);
        usage.reasoning_tokens = subtract(total.reasoning_tokens, earlier.reasoning_tokens);
        usage
    }
}

impl SegmentOutcome {
    /// Returns the deltas that follow the texts of the turns.
    fn final_deltas(self) -> Vec<Delta> {
        let mut deltas: Vec<_> = self.returned.map(Delta::Text).into_iter().collect();
        for (index, call) in self.response.message.tool_calls.iter().enumerate() {
            deltas.push(Delta::ToolCall { index, id: call.id.clone(), name: call.name.clone() });
            deltas.push(Delta::Arguments { index, text: call.arguments.clone() });
        }
        deltas.push(Delta::Done(self.response));
        deltas
    }
}

/// Returns the model's messages, without those that a layer has sent back: the model reads why right after them.
fn replies(messages: &[Message]) -> impl Iterator<Item = &AssistantMessage> {
    let is_sent_back = |next: Option<&Message>| matches!(next, Some(Message::User(_)));
    let kept = messages.iter().enumerate().filter(move |(at, _)| !is_sent_back(messages.get(at + 1)));
    kept.filter_map(|(_, message)| message.as_assistant())
}

/// Returns the texts of the model's messages.
fn text_deltas(messages: &[Message]) -> Vec<Delta> {
    let mut deltas = Vec::new();
    for message in replies(messages) {
        deltas.extend(message.reasoning.clone().map(Delta::Reasoning));
        deltas.extend(Some(message.text.clone()).filter(|text| !text.is_empty()).map(Delta::Text));
        deltas.extend(message.refusal.clone().map(Delta::Refusal));
    }
    deltas
}

/// Merges the replies of all turns into one message, whose text equals the streamed text.
fn merge_replies(messages: &[Message]) -> AssistantMessage {
    let mut message = AssistantMessage::text(replies(messages).map(|reply| &*reply.text).collect::<String>());
    let reasoning: String = replies(messages).filter_map(|reply| reply.reasoning.as_deref()).collect();
    message.reasoning = Some(reasoning).filter(|reasoning| !reasoning.is_empty());
    message
}

/// Returns the limits of the agent plus the turns and calls that the run has taken: every request of the caller gets the full
/// limits.
fn extended_limits(agent: &Agent, run: &Run) -> RunLimits {
    let mut limits = agent.limits().clone();
    limits.max_turns = limits.max_turns.saturating_add(run.turns());
    let calls = run.tool_executions().len() + run.current_calls().count();
    let calls = u32::try_from(calls).unwrap_or(u32::MAX);
    limits.max_calls = limits.max_calls.map(|limit| limit.saturating_add(calls));
    limits
}
