//! Assembles a response from its chunks. A response that is not streamed is a single chunk.

use tool_core::model::{AssistantMessage, ChatResponse, Delta, FinishReason, Usage};
use tool_core::provider::{JsonText, ProviderData, TokenLogprob};
use tool_http::client::sse::Event;
use tool_http::client::{Assembler, EventError, Flow};

use super::reasoning_details::ReasoningDetails;
use super::response::{Choice, Completion, WireCall, WireMessage};
use super::tool_call_assembler::{EntryKind, ToolCallAssembler};
use crate::json::write_string;
use crate::usage::WireUsage;
use crate::{annotations, logprobs, quirks};

/// The data of the event that ends a stream.
const DONE: &str = "[DONE]";

/// Assembles a response from the chunks that have arrived.
#[derive(Default)]
pub(crate) struct ChunkAssembler<'a> {
    /// The name to store provider data under.
    provider: &'a str,
    id: Option<String>,
    model: Option<String>,
    /// The message, in whose citations ranges count characters.
    message: AssistantMessage,
    calls: ToolCallAssembler,
    /// The message has `tool_calls`, so a `function_call` repeats one of them.
    has_tool_calls: bool,
    finish_reason: Option<FinishReason>,
    usage: Option<Usage>,
    logprobs: Vec<TokenLogprob>,
    /// The index of the choice that is read: the first one to arrive.
    choice: Option<u64>,
    /// The server named the reasoning `reasoning_content`, and otherwise `reasoning`: it is sent back under the same name.
    has_reasoning_content: bool,
    has_reasoning: bool,
    reasoning_details: ReasoningDetails,
    /// The message's own `extra_content`, which calls have, too.
    extra_content: Option<Box<str>>,
}

impl<'a> ChunkAssembler<'a> {
    /// Creates an assembler that stores provider data under this name.
    pub(super) fn new(provider: &'a str) -> Self {
        Self { provider, ..Self::default() }
    }

    /// Consumes the JSON of a chunk and emits its deltas.
    fn push_json(&mut self, json: &str, emit: &mut dyn FnMut(Delta)) -> Result<(), EventError> {
        match Completion::parse(json) {
            Err(EventError::Malformed(reason)) => match quirks::try_repair_surrogates(json) {
                Some(repaired) => self.push_chunk(Completion::parse(&repaired)?, emit),
                None => Err(EventError::Malformed(reason)),
            },
            parsed => self.push_chunk(parsed?, emit),
        }
    }

    /// Consumes a chunk and emits its deltas. A finish reason that is a failure of the provider is an error.
    fn push_chunk(&mut self, chunk: Completion<'_>, emit: &mut dyn FnMut(Delta)) -> Result<(), EventError> {
        for (field, text) in [(&mut self.id, chunk.id), (&mut self.model, chunk.model)] {
            *field = field.take().or_else(|| text.non_empty());
        }
        self.usage = chunk.usage.0.and_then(WireUsage::to_usage).or(self.usage);
        let Some(choice) = chunk.choices.0 else { return Ok(()) };
        let is_other = |first: u64| choice.index.0.is_some_and(|index| index != first);
        // Other choices were not requested.
        if self.choice.is_some_and(is_other) { Ok(()) } else { self.push_choice(choice, emit) }
    }

    fn push_choice(&mut self, choice: Choice<'_>, emit: &mut dyn FnMut(Delta)) -> Result<(), EventError> {
        self.choice.get_or_insert(choice.index.0.unwrap_or(0));
        let logprobs = choice.logprobs.0.and_then(|logprobs| logprobs.content);
        self.logprobs.append(&mut logprobs::parse_array(logprobs));
        if let Some(message) = choice.message.0 {
            self.push_message(message, EntryKind::Whole, emit)?;
        }
        if let Some(delta) = choice.delta.0 {
            self.push_message(delta, EntryKind::Fragment, emit)?;
        }
        let reason = choice.finish_reason.0.unwrap_or_default();
        if quirks::is_provider_failure(&reason) {
            return Err(EventError::Aborted(format!(
                "the provider aborted the reply with the finish reason `{reason}`"
            )));
        }
        self.finish_reason = quirks::parse_finish_reason(&reason).or(self.finish_reason.take());
        Ok(())
    }

    fn push_message(
        &mut self,
        message: WireMessage<'_>,
        entry_kind: EntryKind,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<(), EventError> {
        self.has_reasoning_content |= message.reasoning_content.0.is_some();
        self.has_reasoning |= message.reasoning.0.as_ref().is_some_and(|text| !text.is_empty());
        // If both are present, they are the same.
        let reasoning = message.reasoning_content.0.filter(|text| !text.is_empty()).or(message.reasoning.0);
        for thought in [reasoning.unwrap_or_default(), message.content.thinking] {
            if !thought.is_empty() {
                self.message.reasoning.get_or_insert_default().push_str(&thought);
                emit(Delta::Reasoning(thought.into_owned()));
            }
        }
        if let Some(details) = message.reasoning_details {
            self.reasoning_details.push(details)?;
        }
        self.message.citations.append(&mut annotations::parse_array(message.annotations));
        if let Some(extra) = message.extra_content {
            self.extra_content = Some(extra.get().into());
        }
        if let Some(refusal) = message.refusal.0.filter(|refusal| !refusal.is_empty()) {
            self.message.refusal.get_or_insert_default().push_str(&refusal);
            emit(Delta::Refusal(refusal.into_owned()));
        }
        let text = message.content.text;
        if !text.is_empty() {
            self.message.text.push_str(&text);
            emit(Delta::Text(text.into_owned()));
        }
        self.has_tool_calls |= !message.tool_calls.0.is_empty();
        for call in message.tool_calls.0 {
            self.calls.push(call, entry_kind, emit)?;
        }
        let function = message.function_call;
        if function.0.is_none() || self.has_tool_calls {
            return Ok(());
        }
        self.calls.push(WireCall { function, ..WireCall::default() }, entry_kind, emit)
    }

    /// Returns an object with the fields of the message that must be sent back unchanged.
    fn provider_data(&self) -> Option<ProviderData> {
        let mut json = Vec::new();
        let name = match self.has_reasoning_content {
            true => Some("reasoning_content"),
            // OpenRouter's parts contain the same text.
            false if self.has_reasoning && self.reasoning_details.is_empty() => Some("reasoning"),
            false => None,
        };
        if let Some(name) = name {
            json.push(b',');
            write_string(&mut json, name);
            json.push(b':');
            write_string(&mut json, self.message.reasoning.as_deref().unwrap_or_default());
        }
        if !self.reasoning_details.is_empty() {
            json.extend_from_slice(br#","reasoning_details":"#);
            self.reasoning_details.write(&mut json);
        }
        if let Some(extra) = &self.extra_content {
            json.extend_from_slice(br#","extra_content":"#);
            json.extend_from_slice(extra.as_bytes());
        }
        *json.first_mut()? = b'{';
        json.push(b'}');
        let json = JsonText::from_json(&String::from_utf8(json).ok()?).ok()?;
        Some(ProviderData::new(self.provider, json))
    }
}

impl Assembler for ChunkAssembler<'_> {
    fn push(&mut self, event: &Event<'_>, emit: &mut dyn FnMut(Delta)) -> Result<Flow, EventError> {
        let data = event.data.trim_ascii();
        if data.is_empty() {
            return Ok(Flow::Continue);
        }
        if data == DONE {
            return Ok(Flow::End);
        }
        if event.name == "error" && event.is_whole {
            return Err(EventError::Api(data.to_owned()));
        }
        self.push_json(data, emit)?;
        Ok(Flow::Continue)
    }

    fn push_whole(&mut self, json: &str) -> Result<(), EventError> {
        self.push_json(json, &mut drop)?;
        if self.has_started() {
            return Ok(());
        }
        let has_choices = json.contains("\"choices\"");
        Err(if has_choices { EventError::Empty } else { EventError::Malformed("it has no choices".into()) })
    }

    fn has_started(&self) -> bool {
        self.choice.is_some()
    }

    fn is_complete(&self) -> bool {
        self.finish_reason.is_some()
    }

    fn finish(mut self) -> ChatResponse {
        self.message.tool_calls = std::mem::take(&mut self.calls).finish(self.provider);
        self.message.provider_data = self.provider_data();
        self.message.citations =
            annotations::with_byte_ranges(&self.message.citations, &self.message.text, 0);
        let mut response = ChatResponse::new(self.message);
        if let Some(reason) = self.finish_reason {
            response.finish_reason = reason;
        }
        response.usage = self.usage;
        response.id = self.id;
        response.model = self.model;
        response.logprobs = self.logprobs;
        response
    }
}
