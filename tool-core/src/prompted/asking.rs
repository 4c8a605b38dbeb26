//! Asks the model, and asks again.

use std::collections::HashSet;
use std::sync::Arc;

use futures_channel::mpsc;
use futures_util::{SinkExt, StreamExt};

use super::conversation::{Conversation, has_tools, say};
use super::error::{Kind, PromptedToolsError};
use super::prompt::{Offer, demand, missing, unreadable};
use super::reader::{Reader, WrittenCall};
use super::texts::Texts;
use crate::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, Delta, FinishReason, Message, ModelError,
    ToolCall, ToolChoice, Usage,
};

/// Where the pieces of a reply are sent.
type Listener = mpsc::Sender<Result<Delta, ModelError>>;

/// The request can be sent as it is.
pub(super) fn is_transparent(request: &ChatRequest<'_>) -> bool {
    request.tools().is_empty() && !has_tools(request.messages())
}

/// One reply, for which a model is asked once or several times.
pub(super) struct Asking<'m> {
    model: &'m dyn ChatModel,
    corrections: u32,
    /// Who reads the reply as it comes; nobody if the model is to be asked for whole replies.
    listener: Option<Listener>,
    /// The text so far, of all replies.
    text: String,
    reasoning: Option<String>,
    usage: Option<Usage>,
}

impl<'m> Asking<'m> {
    pub(super) fn new(model: &'m dyn ChatModel, corrections: u32, listener: Option<Listener>) -> Self {
        Self { model, corrections, listener, text: String::new(), reasoning: None, usage: None }
    }

    pub(super) async fn ask(mut self, request: &ChatRequest<'_>) -> Result<ChatResponse, ModelError> {
        if request.tools().is_empty() || *request.tool_choice() == ToolChoice::None {
            let conversation = Conversation::of(request, None);
            let inner = ChatRequest::borrowing(&conversation.messages)
                .with_cache(&conversation.cache)
                .with_options(request.options().clone())
                .with_response_format(request.response_format().cloned());
            return self.reply(&inner, None).await;
        }
        let offer: Arc<Offer> = request.tools().encoded(Offer::of);
        let conversation = Conversation::of(request, Some(offer.prompt(request)));
        let demand = demand(request.tool_choice());
        // What is said in this turn only stands in messages of its own, as those of the cache stay as they were sent.
        let mut messages = demand.as_ref().map(|demand| {
            let mut messages = conversation.messages.to_vec();
            say(&mut messages, demand);
            messages
        });
        let mut texts = Texts::default();
        let mut times = 0;
        loop {
            let inner = match &messages {
                Some(messages) => ChatRequest::borrowing(messages),
                None => ChatRequest::borrowing(&conversation.messages).with_cache(&conversation.cache),
            };
            let inner = inner.with_options(request.options().clone());
            let mut reader = Reader::new(&offer.names, &mut texts);
            let mut response = self.reply(&inner, Some(&mut reader)).await?;
            let is_over = response.finish_reason.is_truncated() || response.message.refusal.is_some();
            let read = reader.finish(is_over);
            self.tell_text(read.text).await;
            let calls = calls_of(request, &mut response.message, read.calls);
            times += 1;
            let (kind, complaint) = match (read.broken, demand.as_deref()) {
                (Some(why), _) => {
                    let complaint = unreadable(&why);
                    (Kind::Unreadable(why), complaint)
                }
                (None, Some(demand)) if !is_over && !is_met(request.tool_choice(), &calls) => {
                    let wanted = match request.tool_choice() {
                        ToolChoice::Tool(name) => Some(name.clone()),
                        _ => None,
                    };
                    (Kind::Missing(wanted), missing(demand))
                }
                _ => {
                    self.tell_text(texts.finish()).await;
                    return Ok(self.whole(response, calls).await);
                }
            };
            let reply = std::mem::take(&mut response.message.text);
            if times > self.corrections {
                return Err(ModelError::new(PromptedToolsError::new(kind, reply, times)));
            }
            texts.gap();
            let messages = messages.get_or_insert_with(|| conversation.messages.to_vec());
            if !reply.trim().is_empty() {
                messages.push(Message::assistant(reply));
            }
            say(messages, &complaint);
        }
    }

    /// Asks the model once. What it writes goes through the reader to the listener, and only then counts as text.
    async fn reply(
        &mut self,
        request: &ChatRequest<'_>,
        mut reader: Option<&mut Reader<'_>>,
    ) -> Result<ChatResponse, ModelError> {
        let mut told = 0;
        let response = if self.listener.is_some() {
            let mut deltas = self.model.stream(request);
            loop {
                match deltas.next().await.transpose()? {
                    Some(Delta::Done(response)) => break response,
                    Some(Delta::Text(text)) if reader.is_some() => {
                        told += text.len();
                        self.read(&mut reader, &text).await;
                    }
                    // They come at the end, with those of the text.
                    Some(Delta::ToolCall { .. } | Delta::Arguments { .. }) if reader.is_some() => {}
                    Some(other) => self.tell(other).await,
                    None => {
                        return Err(ModelError::new(
                            "the stream of the model ended before the reply was whole",
                        ));
                    }
                }
            }
        } else {
            self.model.chat(request).await?
        };
        if reader.is_some() {
            // All of it, if it was not streamed.
            self.read(&mut reader, response.message.text.get(told..).unwrap_or_default()).await;
            if let Some(more) = &response.message.reasoning {
                self.reasoning.get_or_insert_default().push_str(more);
            }
            if let Some(more) = response.usage {
                *self.usage.get_or_insert_default() += more;
            }
        }
        Ok(response)
    }

    async fn read(&mut self, reader: &mut Option<&mut Reader<'_>>, text: &str) {
        if let Some(reader) = reader {
            let text = reader.push(text);
            self.tell_text(text).await;
        }
    }

    async fn tell_text(&mut self, text: String) {
        if !text.is_empty() {
            self.text.push_str(&text);
            self.tell(Delta::Text(text)).await;
        }
    }

    async fn tell(&mut self, delta: Delta) {
        if let Some(listener) = &mut self.listener {
            // Whoever drops the stream drops this too.
            let _ = listener.send(Ok(delta)).await;
        }
    }

    /// The reply that the last response makes with those before.
    async fn whole(mut self, mut response: ChatResponse, calls: Vec<ToolCall>) -> ChatResponse {
        for (index, call) in calls.iter().enumerate() {
            self.tell(Delta::ToolCall { index, id: call.id.clone(), name: call.name.clone() }).await;
            self.tell(Delta::Arguments { index, text: call.arguments.clone() }).await;
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

/// The calls of a reply: those that the model's server read, though it was told of no tools, and those of the text.
fn calls_of(
    request: &ChatRequest<'_>,
    reply: &mut AssistantMessage,
    written: Vec<WrittenCall>,
) -> Vec<ToolCall> {
    let mut calls = std::mem::take(&mut reply.tool_calls);
    if !written.is_empty() {
        let replies = request.messages().iter().filter_map(Message::as_assistant);
        let before: HashSet<_> =
            replies.clone().flat_map(|reply| &reply.tool_calls).map(|call| &*call.id).collect();
        let mut turn = replies.count();
        let first = calls.len();
        // A conversation of which the beginning was left out has ids of later turns.
        while (0..written.len()).any(|position| before.contains(&*id_of(turn, first + position))) {
            turn += 1;
        }
        let named = written.into_iter().enumerate();
        calls.extend(
            named.map(|(position, call)| {
                ToolCall::new(id_of(turn, first + position), call.name, call.arguments)
            }),
        );
    }
    if request.parallel_tool_calls() == Some(false) {
        calls.truncate(1);
    }
    calls
}

fn id_of(turn: usize, position: usize) -> String {
    format!("call_{turn}_{position}")
}

/// The calls are what was asked for.
fn is_met(choice: &ToolChoice, calls: &[ToolCall]) -> bool {
    match choice {
        ToolChoice::Required => !calls.is_empty(),
        ToolChoice::Tool(name) => calls.iter().any(|call| call.name == *name),
        _ => true,
    }
}
