//! Assembles a reply from the events of its stream, or from a whole response.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde_json::value::RawValue;
use tool_core::ToolCall;
use tool_core::model::{AssistantMessage, ChatResponse, Citation, Delta, FinishReason};
use tool_http::client::assembler::Flow;

use super::block::{Block, BlockKind};
use super::details::ReplyDetails;
use super::usage::WireUsage;
use crate::json::Members;

/// The largest number of blocks of a reply. Small blocks take a multiple of their text in memory.
const MAX_BLOCKS: usize = 10_000;

/// The text of a refusal that the API does not explain.
const REFUSED: &str = "the model refused to answer";

/// The reason for a response that is to be continued with the same messages and its own content.
pub(crate) const PAUSE_TURN: &str = "pause_turn";

/// The reason that an event or a response cannot be used.
#[derive(Debug)]
pub(crate) enum EventError {
    /// This JSON reports an error.
    Api(String),
    /// It does not follow the API, for this reason.
    Malformed(String),
}

/// Assembles a reply from what has arrived.
#[derive(Debug, Default)]
pub(crate) struct ReplyAssembler {
    /// The provider's name, under which the blocks are stored.
    provider: Arc<str>,
    /// The digest of what the model read.
    prefix: String,
    /// The response before the pause that this one continues.
    earlier: Option<ChatResponse>,
    blocks: Vec<Block>,
    has_started: bool,
    id: Option<String>,
    model: Option<String>,
    container: Option<String>,
    stop_reason: Option<String>,
    refusal: Option<String>,
    usage: WireUsage,
}

impl ReplyAssembler {
    pub(crate) fn new(provider: Arc<str>, prefix: String) -> Self {
        Self { provider, prefix, ..Self::default() }
    }

    /// Continues a reply that paused. Its blocks are part of the result, and are not emitted again.
    pub(crate) fn resuming(mut self, paused: &ChatResponse) -> Self {
        if let Some(details) = ReplyDetails::for_provider(&paused.message, &self.provider) {
            self.blocks = details.blocks.iter().filter_map(|json| Block::whole(json.get())).collect();
            (self.prefix, self.container) = (details.prefix, details.container);
        }
        self.earlier = Some(paused.clone());
        self
    }

    /// Consumes the data of an event and emits its deltas.
    pub(crate) fn push(&mut self, data: &str, emit: &mut dyn FnMut(Delta)) -> Result<Flow, EventError> {
        let event = parse(data)?;
        match event.text("type").as_deref() {
            Some("message_start") => {
                let message = parse(event.get("message").unwrap_or("{}"))?;
                self.has_started = true;
                self.update(&message, emit);
            }
            Some("content_block_start") => {
                self.has_started = true;
                let block = Block::start(position(&event), event.get("content_block").unwrap_or("{}"));
                let block = block.ok_or_else(|| EventError::Malformed("a block is no object".into()))?;
                self.add(block, emit)?;
            }
            Some("content_block_delta") => self.push_piece(&event, emit)?,
            Some("content_block_stop") => {
                if let Some(at) = self.find(position(&event)) {
                    self.close(at, emit);
                }
            }
            Some("message_delta") => {
                self.update(&parse(event.get("delta").unwrap_or("{}"))?, emit);
                self.update(&event, emit);
            }
            Some("message_stop") => return Ok(Flow::End),
            Some("error") => return Err(EventError::Api(data.to_owned())),
            None if event.get("error").is_some() => return Err(EventError::Api(data.to_owned())),
            // Pings, and what the API may add.
            _ => {}
        }
        Ok(Flow::Continue)
    }

    /// Consumes a response that is not streamed.
    pub(crate) fn push_whole(&mut self, json: &str) -> Result<(), EventError> {
        let message = parse(json)?;
        if message.text("type").as_deref() == Some("error")
            || message.get("error").is_some_and(|error| error != "null")
        {
            return Err(EventError::Api(json.to_owned()));
        }
        let Some(content) = message.get("content") else {
            return Err(EventError::Malformed("the response has no `content`".into()));
        };
        let blocks: Vec<&RawValue> = serde_json::from_str(content).map_err(malformed)?;
        for json in blocks {
            let block = Block::whole(json.get());
            self.add(block.ok_or_else(|| EventError::Malformed("a block is no object".into()))?, &mut drop)?;
        }
        self.has_started = true;
        self.update(&message, &mut drop);
        Ok(())
    }

    /// Returns `true` once any part of the response has arrived.
    pub(crate) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Returns `true` if the response is complete even if the stream ends here.
    pub(crate) fn is_complete(&self) -> bool {
        self.stop_reason.is_some() && !self.blocks.iter().any(Block::is_open)
    }

    /// Returns the response assembled so far. It is sent back unchanged only if it is complete.
    pub(crate) fn finish(self) -> ChatResponse {
        let is_complete = self.is_complete();
        let last_fallback = self.blocks.iter().rposition(|block| block.kind == BlockKind::Fallback);
        let mut message = AssistantMessage::default();
        let mut reasoning = String::new();
        for (at, block) in self.blocks.iter().enumerate() {
            match block.kind {
                BlockKind::Text => {
                    let start = message.text.len();
                    message.text.push_str(&block.text());
                    let range = start..message.text.len();
                    message
                        .citations
                        .extend(block.citations().iter().map(|json| citation(range.clone(), json)));
                }
                BlockKind::Thinking => reasoning.push_str(&block.text()),
                BlockKind::ToolUse if last_fallback.is_none_or(|fallback| at > fallback) => {
                    message.tool_calls.push(block.to_call());
                }
                _ => {}
            }
        }
        message.reasoning = Some(reasoning).filter(|reasoning| !reasoning.is_empty());
        message.refusal = self.refusal;
        if is_complete {
            let blocks = self.blocks.iter().filter_map(|block| RawValue::from_string(block.to_json()?).ok());
            let mut details = ReplyDetails {
                prefix: self.prefix,
                blocks: blocks.collect(),
                hosted_tool_uses: self.usage.hosted_tool_uses(),
                long_cache_write_tokens: self.usage.long_cache_writes(),
                container: self.container,
            };
            let earlier =
                self.earlier.as_ref().and_then(|earlier| ReplyDetails::from_message(&earlier.message));
            for (name, count) in earlier.iter().flat_map(|earlier| &earlier.hosted_tool_uses) {
                *details.hosted_tool_uses.entry(name.clone()).or_default() += count;
            }
            if let Some(tokens) = earlier.and_then(|earlier| earlier.long_cache_write_tokens) {
                *details.long_cache_write_tokens.get_or_insert(0) += tokens;
            }
            message.provider_data = details.to_provider_data(&self.provider);
        }
        let mut response = ChatResponse::new(message);
        if let Some(reason) = self.stop_reason {
            response.finish_reason = finish_reason(reason);
        }
        response.usage = self.usage.to_usage();
        if let Some(earlier) = self.earlier.and_then(|earlier| earlier.usage) {
            let mut usage = response.usage.unwrap_or_default();
            usage += earlier;
            response.usage = Some(usage);
        }
        (response.id, response.model) = (self.id, self.model);
        response
    }

    /// Takes over what a message, or a change of one, contains besides its blocks.
    fn update(&mut self, message: &Members<'_>, emit: &mut dyn FnMut(Delta)) {
        let replace = |field: &mut Option<String>, name: &str| {
            if let Some(text) = message.text(name).filter(|text| !text.is_empty()) {
                *field = Some(text);
            }
        };
        replace(&mut self.id, "id");
        replace(&mut self.model, "model");
        replace(&mut self.stop_reason, "stop_reason");
        if let Some(id) = message.get("container").and_then(|json| Members::parse(json)?.text("id")) {
            self.container = Some(id);
        }
        if let Some(counts) = message.get("usage") {
            self.usage.update(counts);
        }
        if self.stop_reason.as_deref() == Some("refusal") && self.refusal.is_none() {
            let details = message.get("stop_details").and_then(Members::parse).unwrap_or_default();
            let explanation = details.text("explanation").filter(|text| !text.trim().is_empty());
            let refusal = explanation.unwrap_or_else(|| REFUSED.to_owned());
            emit(Delta::Refusal(refusal.clone()));
            self.refusal = Some(refusal);
        }
    }

    /// Adds a block that starts or is whole.
    fn add(&mut self, mut block: Block, emit: &mut dyn FnMut(Delta)) -> Result<(), EventError> {
        if self.blocks.len() == MAX_BLOCKS {
            return Err(EventError::Malformed(format!("more than {MAX_BLOCKS} blocks")));
        }
        match block.kind {
            BlockKind::ToolUse => {
                let call = block.to_call();
                if call.id.is_empty() || self.calls().any(|known| known.id == call.id) {
                    block.set_id(&random_id());
                }
                let ToolCall { id, name, .. } = block.to_call();
                emit(Delta::ToolCall { index: self.calls().count(), id, name });
            }
            BlockKind::Fallback => {
                if let Some(model) = block.model() {
                    self.model = Some(model);
                }
            }
            kind => emit_text(kind, &block.text(), emit),
        }
        self.blocks.push(block);
        Ok(())
    }

    fn push_piece(&mut self, event: &Members<'_>, emit: &mut dyn FnMut(Delta)) -> Result<(), EventError> {
        let at = self.find(position(event));
        let at = at.ok_or_else(|| EventError::Malformed("a delta belongs to no block".into()))?;
        let block = &mut self.blocks[at];
        let kind = block.kind;
        let piece = block.push(&parse(event.get("delta").unwrap_or("{}"))?);
        match kind {
            BlockKind::ToolUse if !piece.is_empty() => {
                let index = self.call_index(at);
                emit(Delta::Arguments { index, text: piece });
            }
            kind => emit_text(kind, &piece, emit),
        }
        Ok(())
    }

    /// Ends a block. The arguments of a call that had no pieces are known only then.
    fn close(&mut self, at: usize, emit: &mut dyn FnMut(Delta)) {
        let had_pieces = !self.blocks[at].arguments().is_empty();
        self.blocks[at].close();
        if self.blocks[at].kind == BlockKind::ToolUse && !had_pieces {
            let text = self.blocks[at].arguments();
            emit(Delta::Arguments { index: self.call_index(at), text });
        }
    }

    fn find(&self, index: Option<u64>) -> Option<usize> {
        match index {
            Some(_) => self.blocks.iter().rposition(|block| block.index == index && block.is_open()),
            None => self.blocks.len().checked_sub(1),
        }
    }

    fn calls(&self) -> impl Iterator<Item = ToolCall> {
        self.blocks.iter().filter(|block| block.kind == BlockKind::ToolUse).map(Block::to_call)
    }

    /// Returns the position of a block among the calls.
    fn call_index(&self, at: usize) -> usize {
        self.blocks[..at].iter().filter(|block| block.kind == BlockKind::ToolUse).count()
    }
}

fn emit_text(kind: BlockKind, text: &str, emit: &mut dyn FnMut(Delta)) {
    match kind {
        _ if text.is_empty() => {}
        BlockKind::Text => emit(Delta::Text(text.to_owned())),
        BlockKind::Thinking => emit(Delta::Reasoning(text.to_owned())),
        _ => {}
    }
}

fn parse(json: &str) -> Result<Members<'_>, EventError> {
    serde_json::from_str(json).map_err(malformed)
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn malformed(error: serde_json::Error) -> EventError {
    EventError::Malformed(error.to_string())
}

fn position(event: &Members<'_>) -> Option<u64> {
    event.get("index")?.parse().ok()
}

fn finish_reason(reason: String) -> FinishReason {
    match &*reason {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Other(reason),
    }
}

fn citation(range: std::ops::Range<usize>, json: &str) -> Citation {
    let members = Members::parse(json).unwrap_or_default();
    let mut citation = Citation::new(range);
    citation.url = members.text("url").or_else(|| members.text("source"));
    citation.title = members.text("title").or_else(|| members.text("document_title"));
    citation.quote = members.text("cited_text");
    citation
}

/// Returns an id for a call that has none, or one that another call has.
fn random_id() -> String {
    // Every `RandomState` has its own keys, seeded randomly.
    let bits = || RandomState::new().hash_one(std::process::id());
    format!("toolu_{:016x}{:016x}", bits(), bits())
}
