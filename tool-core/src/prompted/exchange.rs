//! One exchange with the model: a request, its reply, and corrections.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::SinkExt;

use super::conversation::{TextConversation, append_user_text, has_tools};
use super::error::{PromptedToolsError, PromptedToolsErrorKind};

use super::parser::{ParsedCall, ReplyParser};
use super::prompt::{ToolPrompt, malformed_call, required_call};
use super::text_joiner::TextJoiner;
use crate::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, Delta, DeltaSender, FinishReason, Message,
    ModelError, ToolCall, ToolChoice, Usage,
};

/// Returns `true` if the request needs no changes, because it has no tools, calls or results.
pub(super) fn is_pass_through(request: &ChatRequest<'_>) -> bool {
    request.tools().is_empty() && !has_tools(request.messages())
}

/// Obtains one response by sending one or more requests to the model.
pub(super) struct Exchange<'m> {
    model: &'m dyn ChatModel,
    max_corrections: u32,
    /// Receives the deltas; `None` if the model is not to stream.
    sender: Option<DeltaSender>,
    /// The text of all replies so far.
    text: String,
    reasoning: Option<String>,
    /// `None` if a reply did not report its usage.
    usage: Option<Usage>,
}

impl<'m> Exchange<'m> {
    pub(super) fn new(model: &'m dyn ChatModel, max_corrections: u32, sender: Option<DeltaSender>) -> Self {
        Self {
            model,
            max_corrections,
            sender,
            text: String::new(),
            reasoning: None,
            usage: Some(Usage::default()),
        }
    }

    pub(super) async fn run(mut self, request: &ChatRequest<'_>) -> Result<ChatResponse, ModelError> {
        if request.tools().is_empty() || *request.tool_choice() == ToolChoice::None {
            let conversation = TextConversation::from_request(request, None);
            let inner = ChatRequest::borrowing(&conversation.messages)
                .with_cache(&conversation.cache)
                .metered(request.meter())
                .with_options(request.options().clone())
                .with_response_format(request.response_format().cloned());
            return self.send(&inner, None).await;
        }
        let prompt: Arc<ToolPrompt> = request.tools().encoded(ToolPrompt::new);
        let conversation = TextConversation::from_request(request, Some(prompt.text(request)));
        let instruction = required_call(request.tool_choice());
        // Texts for this turn only are added to a copy, as messages that share a cache must not change.
        let mut messages = instruction.as_ref().map(|instruction| {
            let mut messages = conversation.messages.to_vec();
            append_user_text(&mut messages, instruction);
            messages
        });
        let mut joiner = TextJoiner::default();
        let mut requests = 0;
        loop {
            let inner = match &messages {
                Some(messages) => ChatRequest::borrowing(messages),
                None => ChatRequest::borrowing(&conversation.messages).with_cache(&conversation.cache),
            };
            let inner = inner.metered(request.meter()).with_options(request.options().clone());
            let mut parser = ReplyParser::new(&prompt.tool_names, &mut joiner);
            let mut response = self.send(&inner, Some(&mut parser)).await?;
            let is_final = response.finish_reason.is_truncated() || response.message.refusal.is_some();
            let parsed = parser.finish(is_final);
            self.emit_text(parsed.text).await;
            let calls = calls_of_reply(request, &mut response.message, parsed.calls);
            requests += 1;
            let (kind, problem, correction) = match (parsed.error, instruction.as_deref()) {
                (Some(reason), _) => {
                    let problem = format!("the model wrote a call that cannot be parsed: {reason}");
                    (PromptedToolsErrorKind::MalformedCall, problem, malformed_call(&reason))
                }
                (None, Some(instruction)) if !is_final && !is_satisfied(request.tool_choice(), &calls) => {
                    let tool = match request.tool_choice() {
                        ToolChoice::Tool(name) => format!(" to `{name}`"),
                        _ => String::new(),
                    };
                    let problem = format!("the model wrote no call{tool}, although one is required");
                    (
                        PromptedToolsErrorKind::MissingCall,
                        problem,
                        format!("Your reply does not contain the required call. {instruction}"),
                    )
                }
                _ => {
                    self.emit_text(joiner.finish()).await;
                    return Ok(self.finish(response, calls).await);
                }
            };
            let reply = std::mem::take(&mut response.message.text);
            if requests > self.max_corrections {
                return Err(ModelError::new(PromptedToolsError::new(kind, problem, reply, requests)));
            }
            joiner.push_gap();
            let messages = messages.get_or_insert_with(|| conversation.messages.to_vec());
            if !reply.trim().is_empty() {
                messages.push(Message::assistant(reply));
            }
            append_user_text(messages, &correction);
        }
    }

    /// Sends one request. With a parser, the text passes through it, and only what it releases is emitted as text.
    async fn send(
        &mut self,
        request: &ChatRequest<'_>,
        mut parser: Option<&mut ReplyParser<'_>>,
    ) -> Result<ChatResponse, ModelError> {
        let mut streamed = 0;
        let mut deltas = request.reply_of(self.model, self.sender.is_some());
        let response = loop {
            let Some(delta) = deltas.next().await.transpose()? else {
                return Err(ModelError::cut_off());
            };
            match (delta, &mut parser) {
                (Delta::Done(response), _) => break response,
                (Delta::Text(text), Some(parser)) => {
                    streamed += text.len();
                    self.emit_text(parser.push(&text)).await;
                }
                // Emitted at the end, together with the calls in the text.
                (Delta::ToolCall { .. } | Delta::Arguments { .. }, Some(_)) => {}
                (other, _) => self.emit(other).await,
            }
        };
        if let Some(parser) = parser {
            let not_streamed = response.message.text.get(streamed..).unwrap_or_default();
            self.emit_text(parser.push(not_streamed)).await;
            if let Some(more) = &response.message.reasoning {
                self.reasoning.get_or_insert_default().push_str(more);
            }
            self.usage = self.usage.zip(response.credible_usage()).map(|(mut sum, more)| {
                sum += more;
                sum
            });
        }
        Ok(response)
    }

    async fn emit_text(&mut self, text: String) {
        if !text.is_empty() {
            self.text.push_str(&text);
            self.emit(Delta::Text(text)).await;
        }
    }

    async fn emit(&mut self, delta: Delta) {
        if let Some(sender) = &mut self.sender {
            // The receiver is never dropped before this future, as the stream owns both.
            let _ = sender.send(Ok(delta)).await;
        }
    }

    /// Completes the last reply with the text, reasoning and usage of all replies.
    async fn finish(mut self, mut response: ChatResponse, calls: Vec<ToolCall>) -> ChatResponse {
        for (index, call) in calls.iter().enumerate() {
            self.emit(Delta::ToolCall { index, id: call.id.clone(), name: call.name.clone() }).await;
            self.emit(Delta::Arguments { index, text: call.arguments.clone() }).await;
        }
        if !calls.is_empty() && !response.finish_reason.is_truncated() {
            response.finish_reason = FinishReason::ToolCalls;
        }
        response.message.text = self.text;
        response.message.reasoning = self.reasoning;
        response.message.tool_calls = calls;
        response.usage = self.usage;
        response
    }
}

/// Returns the calls of a reply: those that the model's server parsed, although it received no tools, followed by those
/// in the text.
fn calls_of_reply(
    request: &ChatRequest<'_>,
    reply: &mut AssistantMessage,
    parsed: Vec<ParsedCall>,
) -> Vec<ToolCall> {
    let mut calls = std::mem::take(&mut reply.tool_calls);
    let replies = request.messages().iter().filter_map(Message::as_assistant);
    let used_ids: HashSet<_> =
        replies.clone().flat_map(|reply| &reply.tool_calls).map(|call| &*call.id).collect();
    let turn = replies.count();
    // A conversation whose beginning was removed can contain ids of later turns.
    let ids =
        (calls.len()..).map(|index| format!("call_{turn}_{index}")).filter(|id| !used_ids.contains(&**id));
    calls.extend(parsed.into_iter().zip(ids).map(|(call, id)| ToolCall::new(id, call.name, call.arguments)));
    if request.parallel_tool_calls() == Some(false) {
        calls.truncate(1);
    }
    calls
}

/// Returns `true` if the calls satisfy the tool choice.
fn is_satisfied(choice: &ToolChoice, calls: &[ToolCall]) -> bool {
    match choice {
        ToolChoice::Required => !calls.is_empty(),
        ToolChoice::Tool(name) => calls.iter().any(|call| call.name == *name),
        _ => true,
    }
}
