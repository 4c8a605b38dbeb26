//! The blocks of replies, as they are sent back.
//!
//! A reply of the same provider goes back as it came: order, signatures, hosted tools and their results. Changes of the application
//! take precedence: a changed call changes its block, and a reply whose text or number of calls changed is written anew, without
//! what cannot be written anew.

use std::borrow::Cow;

use tool_core::ToolCall;
use tool_core::model::AssistantMessage;
use tool_core::provider::compact_json;
use tool_http::client::json::{Members, string};
use tool_http::client::{hash_call_id, is_name_char, normalize_arguments, normalize_tool_name};

use super::content::text_block;
use super::tools::MAX_NAME_CHARS;
use crate::response::{Block, BlockKind, ReplyDetails};

/// A block of a reply.
#[derive(Debug, PartialEq)]
pub(super) struct ReplyBlock {
    pub(super) json: String,
    /// The block is bound to what is before it.
    pub(super) is_thinking: bool,
}

/// The blocks of a reply.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ReplyBlocks {
    pub(super) blocks: Vec<ReplyBlock>,
    /// The digest of what the model read before it wrote the reply, if it has thinking.
    pub(super) prefix: Option<String>,
    pub(super) container: Option<String>,
    pub(super) summary: Option<Summary>,
}

/// A summary that the provider wrote.
#[derive(Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) json: String,
    pub(super) text: String,
    /// The digest of what preceded the summarized messages, and the digest that includes them.
    pub(super) seed: String,
    pub(super) prefix: String,
}

/// Returns `true` if a reply has thinking, which is bound to what the model had read.
pub(crate) fn has_thinking(message: &AssistantMessage, provider: &str) -> bool {
    blocks(message, provider, true).prefix.is_some()
}

/// Returns the number of bytes of the thinking in a reply.
pub(crate) fn thinking_bytes(message: &AssistantMessage, provider: &str) -> usize {
    let blocks = blocks(message, provider, true).blocks;
    blocks.iter().filter(|block| block.is_thinking).map(|block| block.json.len()).sum()
}

/// Returns `true` if a message is a summary that this provider wrote. An empty one is none.
pub(crate) fn is_summary(message: &AssistantMessage, provider: &str) -> bool {
    !message.text.is_empty() && blocks(message, provider, true).summary.is_some()
}

/// Returns the blocks of a reply. A refused one has none, as the API asks for.
pub(super) fn blocks(message: &AssistantMessage, provider: &str, is_last: bool) -> ReplyBlocks {
    if message.refusal.is_some() {
        return ReplyBlocks::default();
    }
    let details = ReplyDetails::for_provider(message, provider);
    details
        .and_then(|details| stored_blocks(message, details))
        .unwrap_or_else(|| new_blocks(message, is_last))
}

/// Returns the stored blocks, or `None` if they do not match the message.
fn stored_blocks(message: &AssistantMessage, details: ReplyDetails) -> Option<ReplyBlocks> {
    let stored: Vec<_> = details.blocks.iter().filter_map(|json| Block::whole(json.get())).collect();
    if let Some(seed) = details.summarized_after {
        let block = stored.first().filter(|block| block.summary() == message.text)?;
        let (json, text) = (without_cache_point(block.to_json()?), message.text.clone());
        let summary = Summary { json, text, seed, prefix: details.prefix };
        return Some(ReplyBlocks { summary: Some(summary), ..ReplyBlocks::default() });
    }
    let fallback = stored.iter().rposition(|block| block.kind == BlockKind::Fallback);
    // What another model had begun to do.
    let is_void = |at: usize, kind: BlockKind| {
        fallback.is_some_and(|fallback| at < fallback) && (kind.is_thinking() || kind == BlockKind::ToolUse)
    };
    let valid =
        stored.iter().enumerate().filter(|(at, block)| !is_void(*at, block.kind)).map(|(_, block)| block);
    let text: String = valid.clone().filter(|block| block.kind == BlockKind::Text).map(Block::text).collect();
    let calls = valid.clone().filter(|block| block.kind == BlockKind::ToolUse).count();
    if text != message.text || calls != message.tool_calls.len() {
        return None;
    }
    let mut calls = message.tool_calls.iter();
    let mut blocks = Vec::new();
    for block in valid.filter(|block| !block.is_blank()) {
        let json = without_cache_point(block.to_json()?);
        let call = if block.kind == BlockKind::ToolUse { calls.next() } else { None };
        let updated = call.and_then(|call| updated_call(&json, call));
        blocks.push(ReplyBlock { json: updated.unwrap_or(json), is_thinking: block.kind.is_thinking() });
    }
    let has_thinking = blocks.iter().any(|block| block.is_thinking);
    let prefix = has_thinking.then_some(details.prefix);
    Some(ReplyBlocks { blocks, prefix, container: details.container, summary: None })
}

/// Returns a block without a cache point. Only this crate sets those, because the API accepts four.
fn without_cache_point(json: String) -> String {
    let mut members = Members::parse(&json).unwrap_or_default();
    if members.remove("cache_control") { members.to_json() } else { json }
}

/// Returns the block of a call with the values of the message, or `None` if it already has them. The id changes if another
/// call has it, and the arguments change if a person edits them.
fn updated_call(json: &str, call: &ToolCall) -> Option<String> {
    let mut members = Members::parse(json)?;
    let (id, name, input) = (
        normalize_id(&call.id),
        normalize_tool_name(&call.name, MAX_NAME_CHARS),
        normalize_arguments(&call.arguments),
    );
    let is_same = |name: &str, value: &str| members.text(name).as_deref() == Some(value);
    let stored_input = members.get("input").unwrap_or_default();
    if is_same("id", &id) && is_same("name", &name) && compact_json(stored_input) == compact_json(&input) {
        return None;
    }
    members.set("id", string(&id));
    members.set("name", string(&name));
    members.set("input", input.as_ref());
    Some(members.to_json())
}

/// Returns the blocks of a reply of another model, or of one that changed.
fn new_blocks(message: &AssistantMessage, is_last: bool) -> ReplyBlocks {
    // The API rejects trailing whitespace at the end of a request.
    let text = if is_last { message.text.trim_end() } else { &message.text };
    let text = (!text.trim().is_empty()).then(|| text_block(text));
    let calls = message.tool_calls.iter().map(|call| {
        let (id, name) =
            (string(&normalize_id(&call.id)), string(&normalize_tool_name(&call.name, MAX_NAME_CHARS)));
        format!(
            r#"{{"type":"tool_use","id":{id},"name":{name},"input":{}}}"#,
            normalize_arguments(&call.arguments)
        )
    });
    let blocks = text.into_iter().chain(calls).map(|json| ReplyBlock { json, is_thinking: false });
    ReplyBlocks { blocks: blocks.collect(), ..ReplyBlocks::default() }
}

/// Returns the id of a call in a form that the API accepts, always the same one for the same id.
pub(super) fn normalize_id(id: &str) -> Cow<'_, str> {
    if !id.is_empty() && id.chars().all(is_name_char) {
        return id.into();
    }
    format!("call_{:016x}", hash_call_id(id)).into()
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    const THINKING: &str = r#"{"type":"thinking","thinking":"","signature":"c2ln"}"#;
    const TEXT: &str = r#"{"type":"text","text":"Looking. "}"#;
    const CALL: &str = r#"{"type":"tool_use","id":"toolu_1","name":"get_tide","input":{"b": 1.10},"caller":{"type":"direct"}}"#;
    const SEARCH: &str = r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#;

    fn reply(stored: &[&str]) -> AssistantMessage {
        let raw = |json: &&str| RawValue::from_string((*json).to_owned()).unwrap();
        let blocks = stored.iter().map(raw).collect();
        let details = ReplyDetails { prefix: "p".into(), blocks, ..ReplyDetails::default() };
        let mut message = AssistantMessage::text("Looking. ").with_tool_calls([ToolCall::new(
            "toolu_1",
            "get_tide",
            r#"{"b":1.10}"#,
        )]);
        message.provider_data = details.to_provider_data("anthropic");
        message
    }

    fn sent(message: &AssistantMessage, provider: &str) -> Vec<String> {
        blocks(message, provider, false).blocks.into_iter().map(|block| block.json).collect()
    }

    #[test]
    fn blocks_go_back_as_they_came() {
        let message = reply(&[THINKING, SEARCH, TEXT, r#"{"type":"text","text":""}"#, CALL]);
        assert_eq!(sent(&message, "anthropic"), [THINKING, SEARCH, TEXT, CALL]);
        assert_eq!(blocks(&message, "anthropic", false).prefix.as_deref(), Some("p"));
        assert_eq!(blocks(&reply(&[TEXT, CALL]), "anthropic", false).prefix, None);
    }

    #[test]
    fn cache_points_do_not_go_back() {
        let cached = TEXT.replace('}', r#","cache_control":{"type":"ephemeral"}}"#);
        let call = CALL.replace(r#"{"b": 1.10}"#, r#"{"cache_control": 1}"#);
        let mut message = reply(&[&cached, &call]);
        message.tool_calls[0].arguments = r#"{"cache_control":1}"#.into();
        assert_eq!(sent(&message, "anthropic"), [TEXT, &call]);
    }

    #[test]
    fn another_provider_gets_text_and_calls() {
        let message = reply(&[THINKING, SEARCH, TEXT, CALL]);
        let call = r#"{"type":"tool_use","id":"toolu_1","name":"get_tide","input":{"b":1.10}}"#;
        assert_eq!(sent(&message, "deepseek"), [r#"{"type":"text","text":"Looking. "}"#, call]);
    }

    #[test]
    fn changes_take_precedence() {
        let original = reply(&[THINKING, TEXT, CALL]);
        let mut edited = original.clone();
        edited.tool_calls[0].arguments = r#"{"b": 2}"#.into();
        edited.tool_calls[0].id = "toolu 2".into();
        let id = normalize_id("toolu 2");
        let call = format!(
            r#"{{"type":"tool_use","id":"{id}","name":"get_tide","input":{{"b": 2}},"caller":{{"type":"direct"}}}}"#
        );
        assert_eq!(sent(&edited, "anthropic"), [THINKING, TEXT, &call]);
        let mut edited = original.clone();
        edited.text = "Wait.".into();
        let call = r#"{"type":"tool_use","id":"toolu_1","name":"get_tide","input":{"b":1.10}}"#;
        assert_eq!(sent(&edited, "anthropic"), [r#"{"type":"text","text":"Wait."}"#, call]);
        let mut refused = original;
        refused.refusal = Some("No.".into());
        assert_eq!(blocks(&refused, "anthropic", false), ReplyBlocks::default());
    }

    #[test]
    fn what_precedes_a_fallback_is_void() {
        let fallback = r#"{"type":"fallback","to":"claude-haiku-4-5"}"#;
        let void = r#"{"type":"tool_use","id":"toolu_0","name":"get_tide","input":{}}"#;
        let message = reply(&[THINKING, void, fallback, TEXT, CALL]);
        assert_eq!(sent(&message, "anthropic"), [fallback, TEXT, CALL]);
    }

    #[test]
    fn ids_are_normalized() {
        assert_eq!(normalize_id("call_1-a"), "call_1-a");
        assert_ne!(normalize_id("a.b"), normalize_id("a:b"));
        assert_eq!(normalize_id(""), "call_cbf29ce484222325");
    }
}
