//! Parses calls from a reply while it is streamed: text is emitted at once, and only what can become a call is held back.
//!
//! The parser consumes single characters, so the result does not depend on how a reply is split into chunks. Held text is
//! read again only once, when it is complete, so parsing takes linear time for any input.

mod calls;
mod detector;
mod states;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

pub(super) use self::calls::ParsedCall;
use self::detector::{CallDetector, Nesting};
use super::text_joiner::TextJoiner;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const THINK: &str = "<think>";
const END_THINK: &[char] = &['<', '/', 't', 'h', 'i', 'n', 'k', '>'];
const FENCE: usize = 3;

/// The languages of fenced code blocks that can contain calls.
const FENCE_LANGUAGES: [&str; 5] = ["", "json", "tool_call", "tool_calls", "tool_code"];

/// Parses one reply.
pub(super) struct ReplyParser<'t> {
    tools: &'t HashSet<String>,
    joiner: &'t mut TextJoiner,
    state: State,
    /// Text that can become a call. Empty while text is emitted.
    held: String,
    is_line_start: bool,
    /// Text that is not part of a call.
    output: String,
    calls: Vec<ParsedCall>,
    /// The reason why a call cannot be parsed. The rest of the reply is held back.
    error: Option<String>,
}

/// The element of the reply that is being read.
enum State {
    Text,
    /// A possible start of a tag, in this state.
    Tag(Box<State>),
    /// The opening line of a fence.
    FenceLine,
    /// A fenced code block without calls, with the number of backticks read of its closing fence.
    Code {
        is_first_line: bool,
        backticks: usize,
    },
    /// JSON that is not a call.
    Data(Nesting),
    /// A `<think>` block, with the number of characters matched of its closing tag.
    Thinking(usize),
    /// A `<tool_call>` block, whose content starts at `start` of the held text.
    Block {
        start: usize,
        nesting: Option<Nesting>,
    },
    /// A fenced code block that can contain calls, whose content starts at `start` of the held text.
    Fenced {
        start: usize,
        detector: Option<CallDetector>,
        backticks: usize,
        is_call_like: bool,
    },
    /// An object, or a list of objects, at the start of a line.
    Object(CallDetector),
    /// The separators after such an object.
    Separator,
    /// The rest of the reply after an error.
    Failed,
}

/// The result of parsing a reply.
pub(super) struct ParsedReply {
    /// The rest of the text.
    pub(super) text: String,
    pub(super) calls: Vec<ParsedCall>,
    /// The reason why a call cannot be parsed, written for the model.
    pub(super) error: Option<String>,
}

impl<'t> ReplyParser<'t> {
    /// Creates a parser for calls to the tools with these names.
    pub(super) fn new(tools: &'t HashSet<String>, joiner: &'t mut TextJoiner) -> Self {
        Self {
            tools,
            joiner,
            state: State::Text,
            held: String::new(),
            is_line_start: true,
            output: String::new(),
            calls: Vec::new(),
            error: None,
        }
    }

    /// Consumes a chunk of the reply and returns text that is certainly not part of a call.
    pub(super) fn push(&mut self, chunk: &str) -> String {
        let mut rest = chunk;
        while let Some(character) = rest.chars().next() {
            let len = self.plain_prefix_len(rest).max(character.len_utf8());
            let (prefix, suffix) = rest.split_at_checked(len).unwrap_or((rest, ""));
            if len > character.len_utf8() {
                self.emit(prefix);
            } else {
                self.consume(character);
            }
            rest = suffix;
        }
        std::mem::take(&mut self.output)
    }

    /// Returns the length of the prefix that cannot start anything, which can be emitted at once.
    fn plain_prefix_len(&self, text: &str) -> usize {
        let len = match self.state {
            State::Text if !self.is_line_start => text.find(['<', '\n']),
            State::Thinking(0) => text.find('<'),
            _ => Some(0),
        };
        len.unwrap_or(text.len())
    }

    /// Ends the reply. If it is truncated, an unclosed element is not a call.
    pub(super) fn finish(mut self, is_truncated: bool) -> ParsedReply {
        match std::mem::replace(&mut self.state, State::Text) {
            _ if is_truncated => {
                self.error = None;
                self.release();
            }
            State::Block { start, .. } => {
                let content = self.held.get(start..).unwrap_or_default().trim_start();
                if content.starts_with(['{', '[', '`']) {
                    self.end_block(start, self.held.len());
                } else {
                    self.release();
                }
            }
            State::Fenced { start, detector, is_call_like, .. } => {
                let is_call_like = is_call_like || detector.is_some_and(|detector| detector.is_call_like());
                self.end_data(start, self.held.trim_end_matches('`').len(), is_call_like);
            }
            State::Object(detector) => {
                self.end_data(0, self.held.len(), detector.is_call_like());
            }
            State::Failed => {}
            _ => self.release(),
        }
        ParsedReply { text: std::mem::take(&mut self.output), calls: self.calls, error: self.error }
    }

    fn consume(&mut self, character: char) {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Text => self.on_text(character),
            State::Tag(around) => self.on_tag(around, character),
            State::FenceLine => self.on_fence_line(character),
            State::Code { is_first_line, backticks } => self.on_code(is_first_line, backticks, character),
            State::Data(nesting) => self.on_data(nesting, character),
            State::Thinking(matched) => self.on_thinking(matched, character),
            State::Block { start, nesting } => self.on_block(start, nesting, character),
            State::Fenced { start, detector, backticks, is_call_like } => {
                self.on_fenced(start, detector, backticks, is_call_like, character);
            }
            State::Object(detector) => self.on_object(detector, character),
            State::Separator => self.on_separator(character),
            State::Failed => self.held.push(character),
        }
    }
}
