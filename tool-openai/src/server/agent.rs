//! An agent as a backend: from a request to its answer, or to calls that the caller executes.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use tool_core::agent::Ask;
use tool_core::model::{
    AssistantMessage, ChatResponse, Delta, FinishReason, ToolChoice, ToolDefinitions, Usage,
};
use tool_core::run::{Run, RunLimits};
use tool_core::{Agent, Answer, Event, Message, RunError, RunErrorKind, ToolCall};
use tool_http::random_id;
use tool_http::server::Caller;

use super::backend::{BackendRequest, Deltas, flatten};
use super::caller_tools::{CallerTools, DecidingApprover};
use super::error::ApiError;
use super::paused_run::{Awaited, Continuation, PausedRun, SegmentStart};
use super::questions::{ASK_USER, CallerAnswerer, question_call};
use super::resumption::{SentResults, fingerprint, rebuild_run, request_fingerprint};
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
    let segment = |run: Run, caller_tools, continuation: Option<Continuation>| {
        RunSegment::new(agent, request, state, run, (caller_tools, is_asked), continuation)
            .deltas(is_streamed)
    };
    if let Some(results) = SentResults::find(state, request) {
        let continued = results.paused.answer(
            request_fingerprint(request),
            |run| results.record(run, request.field_names.messages),
            |run, continuation| segment(run, caller_tools.clone(), Some(continuation)),
        )?;
        if let Some(answer) = continued {
            return Ok(answer.deltas());
        }
    }
    let run = rebuild_run(agent, chat, request.field_names.messages).await?;
    Ok(segment(run, caller_tools, None))
}

/// The part of an agent's run that answers one request.
struct RunSegment {
    ask: Ask,
    /// The messages that were added in an earlier attempt, as deltas.
    repeated: Vec<Delta>,
    context: SegmentContext,
}

/// The data that is needed when the segment ends.
struct SegmentContext {
    state: Arc<ServerState>,
    caller: Caller,
    agent: Agent,
    caller_tools: CallerTools,
    /// The fingerprint of the conversation of the request.
    conversation: u64,
    start: SegmentStart,
    /// The segment continues a paused run.
    continuation: Option<Continuation>,
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
    fn new(
        agent: &Agent,
        request: &BackendRequest,
        state: &Arc<ServerState>,
        run: Run,
        (caller_tools, is_asked): (CallerTools, bool),
        continuation: Option<Continuation>,
    ) -> Self {
        let chat = &request.chat;
        let start = continuation.as_ref().map_or_else(|| SegmentStart::at(&run), |from| from.start);
        let context = SegmentContext {
            state: Arc::clone(state),
            caller: request.caller,
            // Used only if the run pauses.
            conversation: if caller_tools.0.is_empty() && !is_asked {
                0
            } else {
                fingerprint(&request.model, chat.messages())
            },
            agent: agent.clone(),
            start,
            caller_tools,
            continuation,
        };
        let repeated = run.new_messages().get(start.messages..).map(text_deltas).unwrap_or_default();
        let limits = extended_limits(agent, &run);
        let mut ask = agent.resume(run).options(chat.options().clone()).limits(limits);
        if let Some(format) = chat.response_format() {
            ask = ask.response_format(format.clone());
        }
        if let Some(continuation) = context.continuation.clone() {
            let agent = agent.clone();
            ask = ask.on_event(move |event| {
                let may_be_at_most_once = match event {
                    Event::CallStarted(call) => may_be_at_most_once(&agent, &call.name),
                    Event::Agent { event, .. } => starts_a_call(event),
                    _ => false,
                };
                if may_be_at_most_once {
                    continuation.note_at_most_once_call();
                }
            });
        }
        let ask = ask.tools(context.caller_tools.0.clone());
        let answerer = CallerAnswerer { of_agent: agent.answerer(), is_caller_asked: is_asked };
        let ask = ask.approver(DecidingApprover(agent.approver())).answerer(answerer);
        Self { ask, repeated, context }
    }

    fn deltas(self, is_streamed: bool) -> Deltas {
        if is_streamed { self.stream() } else { flatten(stream::once(self.respond())) }
    }

    async fn respond(self) -> Result<Vec<Delta>, ApiError> {
        let outcome = self.context.outcome(self.ask.await)?;
        let mut deltas = text_deltas(&outcome.messages);
        deltas.extend(outcome.final_deltas());
        Ok(deltas)
    }

    fn stream(self) -> Deltas {
        let Self { ask, repeated, context } = self;
        let deltas = ask.stream().map(move |event| match event {
            Ok(Event::Text(text)) => Ok(vec![Delta::Text(text)]),
            Ok(Event::Reasoning(text)) => Ok(vec![Delta::Reasoning(text)]),
            Ok(Event::Refusal(text)) => Ok(vec![Delta::Refusal(text)]),
            Ok(Event::Done(answer)) => {
                // What tools return directly has arrived as text.
                let outcome = SegmentOutcome { returned: None, ..context.answer_outcome(&answer) };
                Ok(outcome.final_deltas())
            }
            Ok(_) => Ok(Vec::new()),
            Err(error) => context.outcome(Err(error)).map(SegmentOutcome::final_deltas),
        });
        flatten(stream::iter([Ok(repeated)]).chain(deltas))
    }
}

impl SegmentContext {
    fn outcome(&self, result: Result<Answer, RunError>) -> Result<SegmentOutcome, ApiError> {
        match result {
            Ok(answer) => Ok(self.answer_outcome(&answer)),
            Err(error) => {
                let calls = self.pending_calls(error.run());
                if matches!(error.kind(), RunErrorKind::Waiting) && !calls.is_empty() {
                    return Ok(self.pause(error.run(), calls));
                }
                if let Some(continuation) = &self.continuation {
                    continuation.note_failure(error.run());
                }
                Err(self.state.config.error_mapper.map_run_error(&error))
            }
        }
    }

    fn answer_outcome(&self, answer: &Answer) -> SegmentOutcome {
        let messages = self.new_messages(answer.messages());
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

    /// Returns the calls that the caller receives for what the run waits for. Their ids are unguessable, because they grant access to
    /// the run.
    fn pending_calls(&self, run: &Run) -> Vec<(ToolCall, Awaited)> {
        let calls = self.caller_tools.pending_calls(run).map(|call| {
            let sent = ToolCall::new(random_id("call_"), call.name, call.arguments);
            (sent, Awaited::Result(call.id))
        });
        let questions = run.waits().into_iter().filter_map(|wait| {
            let is_inner = wait.path.contains('/');
            let may_be_at_most_once = is_inner || may_be_at_most_once(&self.agent, &wait.tool);
            let question = wait.question().filter(|question| !question.is_secret())?;
            Some((question_call(question), Awaited::Answer { wait: wait.id.clone(), may_be_at_most_once }))
        });
        calls.chain(questions).collect()
    }

    /// Stores the run and returns the calls to the caller.
    fn pause(&self, run: &Run, calls: Vec<(ToolCall, Awaited)>) -> SegmentOutcome {
        let (calls, awaited): (Vec<_>, Vec<_>) =
            calls.into_iter().map(|(call, awaited)| (call.clone(), (call.id, awaited))).unzip();
        if let (Ok(saved), Some(first)) = (serde_json::to_string(run), calls.first()) {
            let bytes = saved.len();
            let answer_weight = self.state.paused_runs.add_weight(0);
            let paused = PausedRun::new(saved, self.conversation, awaited, answer_weight);
            self.state.paused_runs.insert(first.id.clone(), self.caller, paused, bytes);
        }
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

/// Returns `true` unless the tool is one of the agent's that may be executed twice.
fn may_be_at_most_once(agent: &Agent, tool: &str) -> bool {
    agent.tools().get(tool).is_none_or(|tool| tool.definition().policy().at_most_once)
}

/// Returns `true` if an agent that the agent asked starts a call. Its tools are unknown here.
fn starts_a_call(event: &Event) -> bool {
    match event {
        Event::Agent { event, .. } => starts_a_call(event),
        event => matches!(event, Event::CallStarted(_)),
    }
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
    let mut limits = agent.start("").run().limits().clone();
    limits.max_turns = limits.max_turns.saturating_add(run.turns());
    let calls = u32::try_from(run.tool_executions().len()).unwrap_or(u32::MAX);
    limits.max_calls = limits.max_calls.map(|limit| limit.saturating_add(calls));
    limits
}
