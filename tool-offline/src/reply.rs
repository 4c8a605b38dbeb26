//! Responds to a request: with the calls that are ready, or with an answer.

use std::collections::HashSet;

use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ToolChoice, ToolDefinition, Usage};
use tool_core::{Message, ToolCall};

use crate::answer;
use crate::plan::{Outcome, Plan, Tool};
use crate::question::{Candidate, Question, Source};

/// The model's name, as reported in its responses.
pub(crate) const NAME: &str = "offline";

/// Returns the model's response, with an estimate of its usage.
pub(crate) fn respond(request: &ChatRequest<'_>) -> ChatResponse {
    let message = message(request);
    let messages: usize = request.messages().iter().map(|message| message.text().len()).sum();
    let tools = request.tools().iter();
    let tools: usize = tools.map(|tool| tool.name().len() + tool.description().unwrap_or("").len()).sum();
    let calls: usize = message.tool_calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
    let usage = Usage::new(estimate_tokens(messages + tools), estimate_tokens(calls + message.text.len()));
    let mut response = ChatResponse::new(message).with_usage(usage);
    response.model = Some(NAME.to_owned());
    response
}

/// Estimates the tokens of English text.
fn estimate_tokens(bytes: usize) -> u64 {
    u64::try_from(bytes / 4).unwrap_or(u64::MAX).max(1)
}

fn message(request: &ChatRequest<'_>) -> AssistantMessage {
    let (messages, choice) = (request.messages(), request.tool_choice());
    let last = messages.iter().rposition(|message| matches!(message, Message::User(_)));
    let (before, rest) = messages.split_at(last.unwrap_or(messages.len()));
    let text = rest.first().map(Message::text).unwrap_or_default();
    let question = Question::new(&text);
    let is_offered =
        |tool: &&ToolDefinition| !matches!(choice, ToolChoice::Tool(name) if tool.name() != name);
    let tools: Vec<_> = request.tools().iter().filter(is_offered).map(Tool::new).collect();
    let earlier = before.iter().rev().find_map(|message| match message {
        Message::Tool(result) if !result.is_error => Some(result.content.text().into_owned()),
        _ => None,
    });
    let earlier = earlier.map(|text| Candidate::result(Source::Text(text), 0));
    let must_call = matches!(choice, ToolChoice::Required | ToolChoice::Tool(_));
    let mut plan = Plan::new(&question, &tools, earlier, must_call);

    let executed = executed_calls(rest);
    for (call, outcome) in &executed {
        plan.record(call, outcome);
    }
    let mut known = HashSet::new();
    let mut calls = plan.ready_calls();
    calls.retain(|call| known.insert((call.name, call.arguments.clone())));
    match choice {
        ToolChoice::None => calls.clear(),
        _ if request.parallel_tool_calls() == Some(false) => calls.truncate(1),
        _ => {}
    }
    if calls.is_empty() {
        let results: Vec<_> = executed.iter().filter_map(|(_, outcome)| outcome.as_deref().ok()).collect();
        return AssistantMessage::text(match request.response_format() {
            Some(format) => answer::structured(format, &question, &results),
            None => answer::answer(&plan),
        });
    }
    let calls = calls.into_iter().zip(next_call_number(messages)..);
    let calls =
        calls.map(|(call, number)| ToolCall::new(format!("call_{number}"), call.name, call.arguments));
    AssistantMessage::default().with_tool_calls(calls)
}

/// Returns the calls in the messages with their outcomes.
fn executed_calls(messages: &[Message]) -> Vec<(&ToolCall, Outcome)> {
    let outcome = |call: &ToolCall| {
        let result = messages.iter().find_map(|message| match message {
            Message::Tool(result) if result.call_id == call.id => Some(result),
            _ => None,
        });
        let result = result.ok_or("it has no result")?;
        let text = result.content.text().into_owned();
        if result.is_error { Err(text) } else { Ok(text) }
    };
    let replies = messages.iter().filter_map(Message::as_assistant);
    replies.flat_map(|reply| &reply.tool_calls).map(|call| (call, outcome(call))).collect()
}

/// Returns a number that no call in the conversation has reached.
fn next_call_number(messages: &[Message]) -> u64 {
    let calls = messages.iter().filter_map(Message::as_assistant).flat_map(|reply| &reply.tool_calls);
    let numbers = calls.filter_map(|call| call.id.strip_prefix("call_")?.parse::<u32>().ok());
    numbers.max().map_or(1, |number| u64::from(number) + 1)
}
