//! Responds to a request: with the calls that are ready, or with an answer.

use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ToolChoice, ToolDefinition, Usage};
use tool_core::{Message, ToolCall};

use crate::NAME;
use crate::matching::Tools;
use crate::progress::{self, StepState};
use crate::{planner, structured, wording};

/// Returns the model's response, with an estimate of its usage.
pub(crate) fn respond(request: &ChatRequest<'_>) -> ChatResponse {
    let message = message(request);
    let messages: usize = request.messages().iter().map(|message| message.text().len()).sum();
    let tools = request.tools().iter();
    let tools: usize = tools.map(|tool| tool.name().len() + tool.description().unwrap_or("").len()).sum();
    let calls = message.tool_calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>();
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
    let messages = request.messages();
    let last = messages.iter().rposition(|message| matches!(message, Message::User(_)));
    let (before, rest) = messages.split_at(last.unwrap_or(0));
    let question = rest.first().map(Message::text).filter(|_| last.is_some()).unwrap_or_default();
    let executed = progress::executed_calls(rest);
    let choice = request.tool_choice();
    let is_offered = |tool: &&ToolDefinition| match choice {
        ToolChoice::None => !executed.is_empty(),
        ToolChoice::Tool(name) => tool.name() == name,
        _ => true,
    };
    let must_call = matches!(choice, ToolChoice::Required | ToolChoice::Tool(_));
    let tools = Tools::new(request.tools().iter().filter(is_offered));
    let earlier_result = before.iter().rev().find_map(|message| match message {
        Message::Tool(result) if !result.is_error => Some(result.content.text()),
        _ => None,
    });
    let plan = planner::plan(&question, &tools, earlier_result.as_deref(), must_call);
    let progress = progress::evaluate(&plan, &tools, &executed);
    let mut calls: Vec<(String, String)> = Vec::new();
    for (step, state) in plan.steps.iter().zip(&progress.states) {
        if let (Some(tool), StepState::Ready(arguments)) = (tools.get(step.tool), state) {
            let call = (tool.name().to_owned(), arguments.to_string());
            if !calls.contains(&call) {
                calls.push(call);
            }
        }
    }
    if *choice == ToolChoice::None {
        calls.clear();
    } else if request.parallel_tool_calls() == Some(false) {
        calls.truncate(1);
    }
    if calls.is_empty() {
        let structured = request.response_format().map(|format| structured::answer(format, messages));
        return AssistantMessage::text(match structured {
            Some(Ok(json)) => json,
            Some(Err(missing)) => wording::missing_fields(&missing),
            None => wording::answer(&plan, &tools, &progress, &executed),
        });
    }
    let first = next_call_number(messages);
    let calls = calls.into_iter().zip(first..);
    let calls =
        calls.map(|((name, arguments), number)| ToolCall::new(format!("call_{number}"), name, arguments));
    AssistantMessage::default().with_tool_calls(calls)
}

/// Returns a number greater than that of every call in the conversation.
fn next_call_number(messages: &[Message]) -> u64 {
    let calls = messages.iter().flat_map(|message| match message {
        Message::Assistant(message) => &message.tool_calls[..],
        _ => &[],
    });
    let numbers = calls.filter_map(|call| call.id.strip_prefix("call_")?.parse::<u32>().ok());
    numbers.max().map_or(1, |number| u64::from(number) + 1)
}
