//! The parser of a streamed reply.

use std::collections::HashSet;

use super::calls::{ParsedCall, is_call_like, parse_calls};
use super::nesting::Nesting;
use crate::prompted::text_joiner::TextJoiner;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const THINK: &str = "<think>";
const END_THINK: &str = "</think>";
const FENCE: &str = "```";

/// The languages of fenced code blocks that can contain calls.
const FENCE_LANGUAGES: [&str; 5] = ["", "json", "tool_call", "tool_calls", "tool_code"];

/// The maximum length of the opening line of a fence that contains calls.
const MAX_FENCE_LINE_LEN: usize = 64;

/// Parses one reply.
pub(in super::super) struct ReplyParser<'t> {
    tools: &'t HashSet<String>,
    joiner: &'t mut TextJoiner,
    state: State,
    /// Text that can become a call. Empty while text is emitted.
    held: String,
    /// Text that is not part of a call and has not passed the joiner.
    plain: String,
    is_line_start: bool,
    parsed: ParsedReply,
}

/// The element of the reply that is being read.
#[derive(Clone, Copy)]
enum State {
    /// Text that is emitted at once.
    Plain(Plain),
    /// A possible start of a tag or a fence, in this text.
    Tag(Plain),
    /// The opening line of a fence.
    FenceLine,
    /// Data that can be calls, from `start` of the held text.
    Data { place: Place, start: usize, nesting: Nesting },
    /// The separators after calls.
    Separator,
    /// The rest of the reply after an error.
    Failed,
}

#[derive(Clone, Copy, PartialEq)]
enum Plain {
    Text,
    /// A fenced code block without calls.
    Code,
    /// A `<think>` block.
    Thinking,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// In `<tool_call>` tags.
    Tags,
    /// In a fenced code block.
    Fence,
    /// An object, or a list of objects, at the start of a line.
    Line,
}

/// The result of parsing a reply.
#[derive(Default)]
pub(in super::super) struct ParsedReply {
    /// The text that was not returned before.
    pub(in super::super) text: String,
    pub(in super::super) calls: Vec<ParsedCall>,
    /// The reason why a call cannot be parsed, written for the model.
    pub(in super::super) error: Option<String>,
}

impl<'t> ReplyParser<'t> {
    /// Creates a parser for calls to the tools with these names.
    pub(in super::super) fn new(tools: &'t HashSet<String>, joiner: &'t mut TextJoiner) -> Self {
        let (held, plain, parsed) = Default::default();
        Self { tools, joiner, state: State::Plain(Plain::Text), held, plain, is_line_start: true, parsed }
    }

    /// Consumes a chunk of the reply and returns text that is certainly not part of a call.
    pub(in super::super) fn push(&mut self, chunk: &str) -> String {
        chunk.chars().for_each(|character| self.consume(character));
        self.join_plain();
        std::mem::take(&mut self.parsed.text)
    }

    /// Ends the reply. If it is truncated, an unclosed element is not a call.
    pub(in super::super) fn finish(mut self, is_truncated: bool) -> ParsedReply {
        let is_started = |content: &str| content.trim_start().starts_with(['{', '[', '`']);
        match self.state {
            _ if is_truncated => {
                self.parsed.error = None;
                self.release();
            }
            State::Data { place, start, .. } if place != Place::Tags || is_started(&self.held[start..]) => {
                self.end_data(place, start, self.held.trim_end_matches('`').len());
            }
            State::Failed => {}
            _ => self.release(),
        }
        self.join_plain();
        self.parsed
    }

    fn consume(&mut self, character: char) {
        match self.state {
            State::Plain(plain) => self.on_plain(plain, character),
            State::Tag(plain) => self.on_tag(plain, character),
            State::FenceLine => self.on_fence_line(character),
            State::Data { place, start, nesting } => self.on_data(place, start, nesting, character),
            State::Separator if ",; \t\r\n".contains(character) => self.held.push(character),
            State::Separator if matches!(character, '{' | '[') => {
                self.held.clear();
                self.start_data(Place::Line);
                self.consume(character);
            }
            State::Separator => {
                self.release_into(Plain::Text);
                self.is_line_start = true;
                self.consume(character);
            }
            State::Failed => self.held.push(character),
        }
    }

    fn on_plain(&mut self, plain: Plain, character: char) {
        match character {
            '{' | '[' if plain == Plain::Text && self.is_line_start => {
                self.start_data(Place::Line);
                self.consume(character);
            }
            '<' | '`' if self.tags(plain).iter().any(|tag| tag.starts_with(character)) => {
                self.held.push(character);
                self.state = State::Tag(plain);
            }
            _ => self.emit(character.encode_utf8(&mut [0; 4])),
        }
    }

    /// Returns the tags that have a meaning here.
    fn tags(&self, plain: Plain) -> &'static [&'static str] {
        match plain {
            Plain::Text if self.is_line_start => &[OPEN, THINK, FENCE],
            Plain::Text => &[OPEN],
            Plain::Code => &[OPEN, FENCE],
            Plain::Thinking => &[END_THINK],
        }
    }

    fn on_tag(&mut self, plain: Plain, character: char) {
        let is_continued =
            |tag: &str| tag.strip_prefix(&*self.held).is_some_and(|rest| rest.starts_with(character));
        let Some(tag) = self.tags(plain).iter().find(|tag| is_continued(tag)) else {
            return self.release_and_continue(plain, character);
        };
        self.held.push(character);
        match (&*self.held, plain) {
            (OPEN, _) => self.start_data(Place::Tags),
            (FENCE, Plain::Text) => self.state = State::FenceLine,
            (THINK, _) => self.release_into(Plain::Thinking),
            (END_THINK, _) => {
                self.release_into(Plain::Text);
                self.is_line_start = true;
            }
            (held, _) if held == *tag => self.release_into(Plain::Text),
            _ => {}
        }
    }

    fn on_fence_line(&mut self, character: char) {
        let language = self.held[FENCE.len()..].trim().to_ascii_lowercase();
        match character {
            '`' => self.release_and_continue(Plain::Text, character),
            '\n' | '{' | '[' if FENCE_LANGUAGES.contains(&&*language) => {
                self.start_data(Place::Fence);
                self.consume(character);
            }
            _ if character != '\n' && self.held.len() < MAX_FENCE_LINE_LEN => self.held.push(character),
            _ => self.release_and_continue(Plain::Code, character),
        }
    }

    fn start_data(&mut self, place: Place) {
        self.state = State::Data { place, start: self.held.len(), nesting: Nesting::default() };
    }

    fn on_data(&mut self, place: Place, start: usize, mut nesting: Nesting, character: char) {
        let is_between = !nesting.is_open() && !character.is_whitespace() && !"{[,;`".contains(character);
        if place == Place::Fence && is_between {
            return self.release_and_continue(Plain::Code, character);
        }
        self.held.push(character);
        let is_closed = nesting.push(character);
        self.state = State::Data { place, start, nesting };
        let length = self.held.len();
        let is_at_end = |tag: &str| self.held.ends_with(tag) && length - tag.len() >= start;
        // A tag at the start of a line ends a value that lacks a quote or a bracket.
        let is_at_line_start =
            |tag: &str| self.held[start..length - tag.len()].trim_end_matches([' ', '\t']).ends_with('\n');
        let is_next_block = place == Place::Tags && !nesting.is_open();
        match place {
            _ if is_at_end(OPEN) && (is_next_block || is_at_line_start(OPEN)) => {
                self.held.truncate(length - OPEN.len());
                self.end_data(place, start, self.held.len());
                self.held.push_str(OPEN);
                if self.parsed.error.is_none() {
                    self.start_data(Place::Tags);
                }
            }
            Place::Tags if is_at_end(CLOSE) && (!nesting.is_in_string() || is_at_line_start(CLOSE)) => {
                self.end_data(place, start, length - CLOSE.len());
            }
            Place::Fence if is_at_end(FENCE) && !nesting.is_in_string() => {
                self.end_data(place, start, length - FENCE.len());
            }
            Place::Line if is_closed => self.end_data(place, start, length),
            _ => {}
        }
    }

    /// Ends data whose content is this range of the held text.
    fn end_data(&mut self, place: Place, start: usize, end: usize) {
        let content = &self.held[start..end];
        let is_in_tags = place == Place::Tags;
        match parse_calls(content, is_in_tags, self.tools) {
            Ok(calls) => {
                self.join_plain();
                self.joiner.push_gap();
                self.parsed.calls.extend(calls);
                self.held.clear();
                self.is_line_start = true;
                self.state = State::Separator;
            }
            Err(reason) if is_in_tags || is_call_like(content, self.tools) => {
                self.parsed.error = Some(reason);
                self.state = State::Failed;
            }
            Err(_) => self.release_into(Plain::Text),
        }
    }

    fn release_into(&mut self, plain: Plain) {
        self.release();
        self.state = State::Plain(plain);
    }

    /// Emits the held text, which is not a call, and consumes the next character in this text.
    fn release_and_continue(&mut self, plain: Plain, next: char) {
        self.release_into(plain);
        self.consume(next);
    }

    /// Emits the held text.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.emit(&held);
    }

    fn emit(&mut self, text: &str) {
        for character in text.chars() {
            self.is_line_start = character == '\n' || self.is_line_start && character.is_whitespace();
        }
        self.plain.push_str(text);
    }

    fn join_plain(&mut self) {
        self.parsed.text.push_str(&self.joiner.push(&self.plain));
        self.plain.clear();
    }
}
