//! Assembles a reply from the events of its stream, or from a whole response.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;
use tool_core::ToolCall;
use tool_core::model::{AssistantMessage, ChatResponse, Delta, FinishReason};
use tool_core::provider::Citation;
use tool_http::client::json::{Members, elements};
use tool_http::client::sse::Event;
use tool_http::client::{Assembler, EventError, Flow, is_error_body};
use tool_http::random_id;

use super::block::{Block, BlockKind};
use super::details::ReplyDetails;
use super::usage::WireUsage;

/// The largest number of blocks of a reply. Small blocks take a multiple of their text in memory.
const MAX_BLOCKS: usize = 10_000;

/// The text of a refusal that the API does not explain.
const REFUSED: &str = "the model refused to answer";

/// The reason for a response that is to be continued with the same messages and its own content.
pub(crate) const PAUSE_TURN: &str = "pause_turn";

/// The reason for a response that is a summary.
const COMPACTION: &str = "compaction";

/// Assembles a reply from what has arrived.
#[derive(Debug, Default)]
pub(crate) struct ReplyAssembler {
    /// The provider's name, under which the blocks are stored.
    provider: Arc<str>,
    /// The digest of what the model read.
    prefix: String,
    /// The digest of what precedes the messages that the response is to summarize.
    summarizes_after: Option<String>,
    /// The response before the pause that this one continues.
    earlier: Option<ChatResponse>,
    blocks: Vec<Block>,
    /// The latest block of each position that the events name.
    positions: HashMap<u64, usize>,
    call_ids: HashSet<String>,
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

    /// Expects a summary of the messages after what has this digest.
    pub(crate) fn summarizing(mut self, after: String) -> Self {
        self.summarizes_after = Some(after);
        self
    }

    /// Continues a reply that paused. Its blocks are part of the result, and are not emitted again.
    pub(crate) fn resuming(mut self, paused: &ChatResponse) -> Self {
        if let Some(details) = ReplyDetails::for_provider(&paused.message, &self.provider) {
            self.blocks = details.blocks.iter().filter_map(|json| Block::whole(json.get())).collect();
            let calls = self.blocks.iter().filter(|block| block.kind == BlockKind::ToolUse);
            self.call_ids = calls.map(|block| block.to_call().id).collect();
            (self.prefix, self.container) = (details.prefix, details.container);
        }
        self.earlier = Some(paused.clone());
        self
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
    fn add(&mut self, block: Option<Block>, emit: &mut dyn FnMut(Delta)) -> Result<(), EventError> {
        let mut block = block.ok_or_else(|| EventError::Malformed("a block is no object".into()))?;
        if self.blocks.len() == MAX_BLOCKS {
            return Err(EventError::Malformed(format!("more than {MAX_BLOCKS} blocks")));
        }
        match block.kind {
            BlockKind::ToolUse => {
                let ToolCall { mut id, name, .. } = block.to_call();
                if id.is_empty() || self.call_ids.contains(&id) {
                    id = random_id("toolu_");
                    block.set_id(&id);
                }
                block.call_index = self.call_ids.len();
                self.call_ids.insert(id.clone());
                emit(Delta::ToolCall { index: block.call_index, id, name });
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
                emit(Delta::Arguments { index: block.call_index, text: piece });
            }
            kind => emit_text(kind, &piece, emit),
        }
        Ok(())
    }

    /// Ends a block. The arguments of a call that had no pieces are known only then.
    fn close(&mut self, at: usize, emit: &mut dyn FnMut(Delta)) {
        let block = &mut self.blocks[at];
        if !block.is_open() {
            return;
        }
        let had_pieces = !block.arguments().is_empty();
        block.close();
        if block.kind == BlockKind::ToolUse && !had_pieces {
            emit(Delta::Arguments { index: block.call_index, text: block.arguments() });
        }
    }

    /// Returns the open block that an event belongs to: without a position, the last block.
    fn find(&self, position: Option<u64>) -> Option<usize> {
        let at = match position {
            Some(position) => *self.positions.get(&position)?,
            None => self.blocks.len().checked_sub(1)?,
        };
        self.blocks[at].is_open().then_some(at)
    }
}

impl Assembler for ReplyAssembler {
    fn push(&mut self, event: &Event<'_>, emit: &mut dyn FnMut(Delta)) -> Result<Flow, EventError> {
        let data = event.data.trim_ascii();
        let event = parse(data)?;
        match event.text("type").as_deref() {
            Some("message_start") => {
                let message = parse(event.get("message").unwrap_or("{}"))?;
                self.has_started = true;
                self.update(&message, emit);
                self.usage.forget_output();
            }
            Some("content_block_start") => {
                self.has_started = true;
                self.add(Block::start(event.get("content_block").unwrap_or("{}")), emit)?;
                if let Some(position) = position(&event) {
                    self.positions.insert(position, self.blocks.len() - 1);
                }
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
            Some("message_stop") => {
                (0..self.blocks.len()).for_each(|at| self.close(at, emit));
                return Ok(Flow::End);
            }
            Some("error") => return Err(EventError::Api(data.to_owned())),
            None if event.get("error").is_some() => return Err(EventError::Api(data.to_owned())),
            // Pings, and what the API may add.
            _ => {}
        }
        Ok(Flow::Continue)
    }

    fn push_whole(&mut self, json: &str) -> Result<(), EventError> {
        let message = parse(json)?;
        if message.text("type").as_deref() == Some("error")
            || message.get("error").is_some_and(|error| error != "null")
        {
            return Err(EventError::Api(json.to_owned()));
        }
        let Some(content) = message.get("content") else {
            // Bedrock answers to unknown routes with status 200.
            return Err(match is_error_body(json) {
                true => EventError::Api(json.to_owned()),
                false => EventError::Malformed("the response has no `content`".into()),
            });
        };
        for json in elements(content, MAX_BLOCKS).map_err(malformed)? {
            self.add(Block::whole(json.get()), &mut drop)?;
        }
        self.has_started = true;
        self.update(&message, &mut drop);
        Ok(())
    }

    fn has_started(&self) -> bool {
        self.has_started
    }

    fn is_complete(&self) -> bool {
        self.stop_reason.is_some() && !self.blocks.iter().any(Block::is_open)
    }

    /// Returns the response so far. It is sent back unchanged only if it is complete.
    fn finish(self) -> ChatResponse {
        let is_complete = self.is_complete();
        let is_summary = self.stop_reason.as_deref() == Some(COMPACTION) && self.blocks.len() == 1;
        let summarized_after = self.summarizes_after.filter(|_| is_summary);
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
        if let [summary] = &*self.blocks
            && summarized_after.is_some()
        {
            message.text = summary.summary();
        }
        message.refusal = self.refusal;
        if is_complete {
            let blocks = self.blocks.iter().filter_map(|block| RawValue::from_string(block.to_json()?).ok());
            let mut details = ReplyDetails {
                prefix: self.prefix,
                blocks: blocks.collect(),
                hosted_tool_uses: self.usage.hosted_tool_uses(),
                long_cache_write_tokens: self.usage.long_cache_writes(),
                container: self.container,
                summarized_after: summarized_after.clone(),
            };
            let earlier =
                self.earlier.as_ref().and_then(|earlier| ReplyDetails::from_message(&earlier.message));
            for (name, count) in earlier.iter().flat_map(|earlier| &earlier.hosted_tool_uses) {
                let sum = details.hosted_tool_uses.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
            if let Some(tokens) = earlier.and_then(|earlier| earlier.long_cache_write_tokens) {
                let sum = details.long_cache_write_tokens.get_or_insert(0);
                *sum = sum.saturating_add(tokens);
            }
            message.provider_data = details.to_provider_data(&self.provider);
        }
        let mut response = ChatResponse::new(message);
        if let Some(reason) = self.stop_reason {
            response.finish_reason = finish_reason(reason);
        }
        if summarized_after.is_some() {
            response.finish_reason = FinishReason::Compaction;
        }
        response.usage = self.usage.to_usage();
        if let Some(earlier) = self.earlier {
            response.usage = response.usage.zip(earlier.usage).map(|(mut usage, earlier)| {
                usage += earlier;
                usage
            });
        }
        (response.id, response.model) = (self.id, self.model);
        response
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
    // The parser's error quotes a value of another type, which may be a part of the reply.
    if !json.trim_ascii_start().starts_with('{') {
        return Err(EventError::Malformed("expected an object".into()));
    }
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

/// What a malicious or broken server sends.
#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const CALL: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"add","input":{"a": 1}}}"#;
    const STOP: &str = r#"{"type":"content_block_stop","index":0}"#;

    fn start(index: usize, block: &str) -> String {
        format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
    }

    fn delta(index: usize, delta: &str) -> String {
        format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
    }

    fn event(data: &str) -> Event<'_> {
        Event { data: data.into(), is_whole: true, ..Event::default() }
    }

    /// Returns the deltas, and the reply or the reason for which an event cannot be used.
    fn assembled<T: AsRef<str>>(
        events: impl IntoIterator<Item = T>,
    ) -> (Vec<Delta>, Result<ChatResponse, EventError>) {
        let mut assembler = ReplyAssembler::new("anthropic".into(), String::new());
        let mut deltas = Vec::new();
        for data in events {
            if let Err(error) = assembler.push(&event(data.as_ref()), &mut |delta| deltas.push(delta)) {
                return (deltas, Err(error));
            }
        }
        (deltas, Ok(assembler.finish()))
    }

    fn reply<T: AsRef<str>>(events: impl IntoIterator<Item = T>) -> ChatResponse {
        assembled(events).1.unwrap()
    }

    fn stored(response: &ChatResponse) -> Vec<String> {
        let details = ReplyDetails::from_message(&response.message).unwrap_or_default();
        details.blocks.iter().map(|block| block.get().to_owned()).collect()
    }

    const ENDED: &str = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;

    #[test]
    fn unknown_blocks_are_ignored_with_all_their_deltas() {
        let unknown = delta(0, r#"{"type":"new_delta","new":"a"}"#);
        let new = start(0, r#"{"type":"new_block"}"#);
        let text = start(1, r#"{"type":"text","text":"Hello"}"#);
        let stops = [STOP.to_owned(), STOP.replace('0', "1"), ENDED.to_owned()];
        let events = [new, unknown.clone(), unknown, text].into_iter().chain(stops);
        let response = reply(events);
        assert_eq!(response.message.text, "Hello");
        assert_eq!(stored(&response), [r#"{"type":"text","text":"Hello"}"#]);
    }

    #[test]
    fn a_signature_changes_nothing_else() {
        let forged = r#"{"type":"signature_delta","signature":"s","id":"c9","name":"rm","input":{"b":2},"thinking":"x"}"#;
        let response = reply([CALL, &delta(0, forged), STOP, ENDED]);
        assert_eq!(response.message.tool_calls, [ToolCall::new("c1", "add", r#"{"a":1}"#)]);
        assert_eq!(stored(&response), [r#"{"type":"tool_use","id":"c1","name":"add","input":{"a": 1}}"#]);
        let thinking = start(0, r#"{"type":"thinking","thinking":"","signature":""}"#);
        let response = reply([&thinking, &delta(0, forged), STOP, ENDED]);
        assert_eq!(stored(&response), [r#"{"type":"thinking","thinking":"","signature":"s"}"#]);
    }

    #[test]
    fn a_block_ends_once() {
        let stop = r#"{"type":"content_block_stop"}"#;
        let (deltas, response) = assembled([CALL, STOP, stop, stop, ENDED]);
        assert_eq!(response.unwrap().message.tool_calls[0].arguments, r#"{"a":1}"#);
        assert_eq!(deltas.len(), 2, "{deltas:?}");
        let more =
            r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
        let error = assembled([CALL, STOP, more]).1.unwrap_err();
        assert!(matches!(error, EventError::Malformed(reason) if reason == "a delta belongs to no block"));
    }

    #[test]
    fn calls_end_with_the_message() {
        let (deltas, response) = assembled([CALL, ENDED, r#"{"type":"message_stop"}"#]);
        let response = response.unwrap();
        assert_eq!(response.message.tool_calls[0].arguments, r#"{"a":1}"#);
        assert!(
            matches!(&deltas[1], Delta::Arguments { index: 0, text } if text == r#"{"a":1}"#),
            "{deltas:?}"
        );
    }

    #[test]
    fn counts_do_not_overflow() {
        let usage = format!(
            r#"{{"input_tokens":{max},"output_tokens":{max},"server_tool_use":{{"web_search_requests":{max}}},"cache_creation":{{"ephemeral_1h_input_tokens":{max}}}}}"#,
            max = u64::MAX
        );
        let ended =
            format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"pause_turn"}},"usage":{usage}}}"#);
        let paused = reply([&*ended]);
        let mut assembler = ReplyAssembler::new("anthropic".into(), String::new()).resuming(&paused);
        assembler.push(&event(&ended), &mut drop).unwrap();
        let response = assembler.finish();
        let details = ReplyDetails::from_message(&response.message).unwrap();
        assert_eq!(details.hosted_tool_uses["web_search_requests"], u64::MAX);
        assert_eq!(details.long_cache_write_tokens, Some(u64::MAX));
        assert_eq!(response.usage.unwrap().total_tokens, u64::MAX);
    }

    #[test]
    fn the_usage_of_a_stream_without_its_final_count_is_unknown() {
        let begun = r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}"#;
        let ended = |usage: &str| {
            format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#)
        };
        for (usage, expected) in [
            (r#"{"output_tokens":9}"#, Some(tool_core::model::Usage::new(3, 9))),
            (r#"{"output_tokens":null}"#, None),
            ("{}", None),
        ] {
            assert_eq!(reply([begun, &ended(usage)]).usage, expected, "{usage}");
        }
    }

    #[test]
    fn the_usage_of_a_resumed_reply_is_unknown_if_a_part_of_it_is() {
        let ended = |usage: &str| {
            format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"pause_turn"}},"usage":{usage}}}"#)
        };
        let (known, unknown) = (ended(r#"{"input_tokens":3,"output_tokens":4}"#), ended("{}"));
        for (first, second, tokens) in
            [(&known, &known, Some(14)), (&known, &unknown, None), (&unknown, &known, None)]
        {
            let paused = reply([&**first]);
            let mut assembler = ReplyAssembler::new("anthropic".into(), String::new()).resuming(&paused);
            assembler.push(&event(second), &mut drop).unwrap();
            assert_eq!(assembler.finish().usage.map(|usage| usage.total_tokens), tokens);
        }
    }

    #[test]
    fn what_takes_a_multiple_of_its_text_is_bounded() {
        let wide = format!(r#"{{"type":"ping"{}}}"#, r#","a":1"#.repeat(2000));
        let list = |count| format!("[{}]", vec!["1"; count].join(","));
        let cited = start(0, &format!(r#"{{"type":"text","text":"a","citations":{}}}"#, list(20_000)));
        let whole = format!(r#"{{"content":{}}}"#, list(20_000));
        assert!(matches!(assembled([wide]).1, Err(EventError::Malformed(_))));
        assert_eq!(reply([&cited, STOP, ENDED]).message.citations, []);
        let error = ReplyAssembler::default().push_whole(&whole).unwrap_err();
        assert!(
            matches!(&error, EventError::Malformed(reason) if reason.starts_with("more than 10000 elements")),
            "{error:?}"
        );
        let mut usage = WireUsage::default();
        usage.update(&format!(r#"{{"a":1,"input_tokens":1,"iterations":{}}}"#, list(1 << 20)));
        assert_eq!(usage.to_usage(), None);
    }

    /// Checks that a flood was read in linear time. Quadratic work takes longer on any machine.
    fn assert_fast(clock: Instant) {
        assert!(clock.elapsed() < Duration::from_secs(20), "{:?}", clock.elapsed());
    }

    #[test]
    fn many_signatures_take_linear_time() {
        let clock = Instant::now();
        let signature = delta(0, r#"{"type":"signature_delta","signature":"s"}"#);
        let thinking = start(0, r#"{"type":"thinking","thinking":""}"#);
        let flood = std::iter::repeat_n(signature, 50_000);
        let response = reply([thinking].into_iter().chain(flood).chain([STOP.into(), ENDED.into()]));
        assert_eq!(stored(&response), [r#"{"type":"thinking","thinking":"","signature":"s"}"#]);
        assert_fast(clock);
    }

    #[test]
    fn many_long_calls_take_linear_time() {
        let clock = Instant::now();
        let input = format!(r#"{{"a":"{}"}}"#, "x".repeat(2000));
        let call = |id| {
            let block = format!(r#"{{"type":"tool_use","id":"c{id}","name":"add","input":{input}}}"#);
            [start(0, &block), STOP.to_owned()]
        };
        let response = reply((0..4000).flat_map(call));
        assert_eq!(response.message.tool_calls.len(), 4000);
        assert_fast(clock);
    }

    #[test]
    fn open_calls_that_receive_their_pieces_in_turn_take_linear_time() {
        let clock = Instant::now();
        let call =
            |id| start(id, &format!(r#"{{"type":"tool_use","id":"c{id}","name":"add","input":{{}}}}"#));
        let piece =
            |number: usize| delta(number % MAX_BLOCKS, r#"{"type":"input_json_delta","partial_json":" "}"#);
        let events = (0..MAX_BLOCKS).map(call).chain((0..150_000).map(piece));
        assert_eq!(reply(events).message.tool_calls.len(), MAX_BLOCKS);
        assert_fast(clock);
    }
}
