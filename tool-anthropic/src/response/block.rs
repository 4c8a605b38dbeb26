//! One block of a reply's content.

use tool_core::ToolCall;
use tool_core::provider::compact_json;
use tool_http::client::is_object;
use tool_http::client::json::{Members, elements, string};

/// A block, which arrives whole or in pieces.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    /// The position among the calls, if it is one.
    pub(crate) call_index: usize,
    /// The block as it started.
    start: String,
    /// The pieces of its text, thinking or input that followed its start.
    pieces: String,
    /// Further members that arrived later, each as JSON.
    members: Vec<(String, String)>,
    citations: Vec<String>,
    is_open: bool,
}

/// The largest number of citations of a block that starts with some.
const MAX_CITATIONS: usize = 1000;

/// The kinds of blocks that are read; all others are only sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Text,
    Thinking,
    RedactedThinking,
    ToolUse,
    ServerToolUse,
    /// The model changed; the calls before it are void.
    Fallback,
    Other,
    /// A piece of an unknown kind arrived, so the block cannot be assembled.
    Unknown,
}

impl BlockKind {
    fn from_type(name: &str) -> Self {
        match name {
            "text" => Self::Text,
            "thinking" => Self::Thinking,
            "redacted_thinking" => Self::RedactedThinking,
            "tool_use" => Self::ToolUse,
            "server_tool_use" => Self::ServerToolUse,
            "fallback" => Self::Fallback,
            _ => Self::Other,
        }
    }

    /// Returns `true` for a block that is bound to the messages before it.
    pub(crate) fn is_thinking(self) -> bool {
        matches!(self, Self::Thinking | Self::RedactedThinking)
    }

    /// Returns the member that the pieces of the block make up.
    fn text_member(self) -> Option<&'static str> {
        match self {
            Self::Text => Some("text"),
            Self::Thinking => Some("thinking"),
            _ => None,
        }
    }
}

impl Block {
    /// Starts a block. Returns `None` if the JSON is no object.
    pub(crate) fn start(json: &str) -> Option<Self> {
        let kind = Members::parse(json)?.text("type").unwrap_or_default();
        Some(Self {
            kind: BlockKind::from_type(&kind),
            call_index: 0,
            start: json.to_owned(),
            pieces: String::new(),
            members: Vec::new(),
            citations: Vec::new(),
            is_open: true,
        })
    }

    /// Returns a block that is whole.
    pub(crate) fn whole(json: &str) -> Option<Self> {
        Some(Self { is_open: false, ..Self::start(json)? })
    }

    /// Adds a piece, and returns what is new of the text, the thinking or the input. Unknown members are ignored.
    pub(crate) fn push(&mut self, delta: &Members<'_>) -> String {
        let piece = match (delta.text("type").as_deref(), self.kind) {
            (Some("text_delta"), BlockKind::Text) => delta.text("text"),
            (Some("thinking_delta"), BlockKind::Thinking) => delta.text("thinking"),
            (Some("input_json_delta"), _) => delta.text("partial_json"),
            (Some("citations_delta"), _) => {
                self.citations.extend(delta.get("citation").map(str::to_owned));
                None
            }
            (Some("signature_delta"), BlockKind::Thinking) | (Some("compaction_delta"), BlockKind::Other) => {
                let is_new =
                    |name: &str| name == "signature" || self.kind == BlockKind::Other && name != "type";
                let members = delta.iter().filter(|(name, _)| is_new(name));
                self.members = members.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                None
            }
            // What is unknown of the blocks that are read can be ignored.
            (_, BlockKind::Text | BlockKind::Thinking | BlockKind::ToolUse) => None,
            _ => {
                self.kind = BlockKind::Unknown;
                None
            }
        };
        let piece = piece.unwrap_or_default();
        self.pieces.push_str(&piece);
        piece
    }

    /// Notes that all of the block has arrived.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// Returns `true` if more of the block may arrive.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the text or the thinking so far.
    pub(crate) fn text(&self) -> String {
        let start = self.kind.text_member().and_then(|name| Members::parse(&self.start)?.text(name));
        start.unwrap_or_default() + &self.pieces
    }

    /// Returns the text of a summary of the conversation.
    pub(crate) fn summary(&self) -> String {
        let members = Members::parse(&self.start)
            .filter(|members| members.text("type").as_deref() == Some("compaction"));
        members.and_then(|members| members.text("content")).unwrap_or_default()
    }

    /// Returns `true` if the text has no visible character. The API returns such blocks, and rejects them.
    pub(crate) fn is_blank(&self) -> bool {
        self.kind == BlockKind::Text && self.text().trim().is_empty()
    }

    /// Returns the arguments of a call so far: the pieces as they arrived, or else the input of the start, once it is known that
    /// there are no pieces.
    pub(crate) fn arguments(&self) -> String {
        if !self.pieces.is_empty() || self.is_open() {
            return self.pieces.clone();
        }
        let start = Members::parse(&self.start).unwrap_or_default();
        compact_json(start.get("input").unwrap_or("{}")).into_owned()
    }

    /// Returns the call of a block that is one. An id that is missing stays empty.
    pub(crate) fn to_call(&self) -> ToolCall {
        let start = Members::parse(&self.start).unwrap_or_default();
        let text = |name| start.text(name).unwrap_or_default();
        let given = self.members.iter().find(|(name, _)| name == "id");
        let id = given.and_then(|(_, id)| serde_json::from_str(id).ok()).unwrap_or_else(|| text("id"));
        ToolCall::new(id, text("name"), self.arguments())
    }

    /// Returns the model that goes on after a fallback.
    pub(crate) fn model(&self) -> Option<String> {
        let start = Members::parse(&self.start)?;
        start.text("to").or_else(|| Members::parse(start.get("to")?)?.text("model"))
    }

    /// Gives the call an id.
    pub(crate) fn set_id(&mut self, id: &str) {
        self.members.push(("id".into(), string(id)));
    }

    /// Returns the citations of a text, each as JSON.
    pub(crate) fn citations(&self) -> Vec<String> {
        let start = Members::parse(&self.start).unwrap_or_default();
        let list = start.get("citations").and_then(|list| elements(list, MAX_CITATIONS).ok());
        list.iter()
            .flatten()
            .map(|citation| citation.get().to_owned())
            .chain(self.citations.iter().cloned())
            .collect()
    }

    /// Returns the block as it is sent back, or `None` if it cannot be assembled.
    pub(crate) fn to_json(&self) -> Option<String> {
        if self.kind == BlockKind::Unknown {
            return None;
        }
        if self.pieces.is_empty() && self.members.is_empty() && self.citations.is_empty() {
            return Some(self.start.clone());
        }
        let mut members = Members::parse(&self.start)?;
        match self.kind.text_member() {
            Some(name) => members.set(name, string(&self.text())),
            None if is_object(&self.pieces) => members.set("input", &*self.pieces),
            // A truncated input is none.
            None => {}
        }
        if !self.citations.is_empty() {
            members.set("citations", format!("[{}]", self.citations().join(",")));
        }
        for (name, value) in &self.members {
            members.set(name, &**value);
        }
        Some(members.to_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(start: &str, pieces: &[&str]) -> Block {
        let mut block = Block::start(start).unwrap();
        for piece in pieces {
            block.push(&Members::parse(piece).unwrap());
        }
        block.close();
        block
    }

    #[test]
    fn assembles_blocks() {
        // The start, the pieces, and the block.
        type Row = (&'static str, &'static [&'static str], Option<&'static str>);
        let table: [Row; 7] = [
            (
                r#"{"type":"redacted_thinking","data": "ZW5j"}"#,
                &[],
                Some(r#"{"type":"redacted_thinking","data": "ZW5j"}"#),
            ),
            (
                r#"{"type":"text","text":"a"}"#,
                &[
                    r#"{"type":"citations_delta","citation":{"url": "u"}}"#,
                    r#"{"type":"text_delta","text":"b"}"#,
                ],
                Some(r#"{"type":"text","text":"ab","citations":[{"url": "u"}]}"#),
            ),
            (
                r#"{"type":"thinking","thinking":"","signature":""}"#,
                &[
                    r#"{"type":"signature_delta","signature":"x"}"#,
                    r#"{"type":"signature_delta","signature":"y"}"#,
                ],
                Some(r#"{"type":"thinking","thinking":"","signature":"y"}"#),
            ),
            (
                r#"{"type":"tool_use","id":"1","name":"f","input":{}}"#,
                &[
                    r#"{"type":"input_json_delta","partial_json":"{\"a\":1.1"}"#,
                    r#"{"type":"input_json_delta","partial_json":"0}"}"#,
                ],
                Some(r#"{"type":"tool_use","id":"1","name":"f","input":{"a":1.10}}"#),
            ),
            (
                r#"{"type":"tool_use","id":"1","name":"f","input":{}}"#,
                &[r#"{"type":"input_json_delta","partial_json":"{\"a\":"}"#],
                Some(r#"{"type":"tool_use","id":"1","name":"f","input":{}}"#),
            ),
            (
                r#"{"type":"compaction","content":null}"#,
                &[r#"{"type":"compaction_delta","content":"sum","encrypted_content":"e"}"#],
                Some(r#"{"type":"compaction","content":"sum","encrypted_content":"e"}"#),
            ),
            (r#"{"type":"new"}"#, &[r#"{"type":"new_delta"}"#], None),
        ];
        for (start, pieces, expected) in table {
            assert_eq!(assembled(start, pieces).to_json().as_deref(), expected, "{start}");
        }
    }

    #[test]
    fn arguments_are_the_pieces_or_the_input() {
        let start = r#"{"type":"tool_use","id":"1","name":"f","input":{"z": 1, "a": 1.10}}"#;
        assert_eq!(
            assembled(start, &[r#"{"type":"input_json_delta","partial_json":""}"#]).arguments(),
            r#"{"z":1,"a":1.10}"#
        );
        assert_eq!(Block::start(start).unwrap().arguments(), "");
        let piece = r#"{"type":"input_json_delta","partial_json":"{\"a\": 2}"}"#;
        assert_eq!(assembled(start, &[piece]).to_call(), ToolCall::new("1", "f", r#"{"a": 2}"#));
    }
}
