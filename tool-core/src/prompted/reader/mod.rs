//! Reads calls out of a reply, as it comes: a text is passed on at once, and only what may become a call is held back.
//!
//! It goes character by character, so it makes no difference how a reply is cut. Nothing is looked at again but what was
//! held back, once, when it is whole: the time is linear in the text, whatever it is.

mod brackets;
mod calls;
mod lenient;
mod places;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use self::brackets::{Brackets, Shape};
pub(super) use self::calls::WrittenCall;
use super::texts::Texts;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const THINK: &str = "<think>";
const END_OF_THOUGHT: &[char] = &['<', '/', 't', 'h', 'i', 'n', 'k', '>'];
const FENCE: usize = 3;

/// What may stand behind the marks of a fence with calls in it.
const FENCED: [&str; 5] = ["", "json", "tool_call", "tool_calls", "tool_code"];

/// Reads one reply.
pub(super) struct Reader<'t> {
    tools: &'t HashSet<String>,
    texts: &'t mut Texts,
    place: Place,
    /// What may become a call; nothing where text is passed on.
    held: String,
    is_line_start: bool,
    /// What can be given out.
    out: String,
    calls: Vec<WrittenCall>,
    /// Why something that was meant as a call cannot be read; all from there on is held.
    broken: Option<String>,
}

/// What is being read.
enum Place {
    Text,
    /// What may be the beginning of a tag, in a text of this kind.
    Tag(Around),
    /// The first line of a fence.
    Fence,
    /// Code in a fence, which is no call: whether its first line is over, and the marks that may end it.
    Code {
        is_first_line: bool,
        marks: usize,
    },
    /// Data of another kind.
    Data(Brackets),
    /// What the model thinks, and how much of the tag that ends it has come.
    Thought(usize),
    /// `<tool_call>`, whose content begins there.
    Block {
        from: usize,
        brackets: Option<Brackets>,
    },
    /// A fence that may hold calls, whose content begins there.
    Fenced {
        from: usize,
        shape: Option<Shape>,
        marks: usize,
        is_call_shaped: bool,
    },
    /// An object, or a list of such, at the start of a line.
    Object(Shape),
    /// Behind such an object: what may stand between two calls.
    Separator,
    /// Behind something that cannot be read.
    Broken,
}

/// What a tag stands in.
#[derive(Clone, Copy)]
enum Around {
    Text { is_line_start: bool },
    Code,
    Data(Brackets),
}

/// What was read of a reply.
pub(super) struct Read {
    /// The rest of the text.
    pub(super) text: String,
    pub(super) calls: Vec<WrittenCall>,
    /// Why something that was meant as a call cannot be read, in words for the model.
    pub(super) broken: Option<String>,
}

impl<'t> Reader<'t> {
    /// Reads calls of tools of these names.
    pub(super) fn new(tools: &'t HashSet<String>, texts: &'t mut Texts) -> Self {
        Self {
            tools,
            texts,
            place: Place::Text,
            held: String::new(),
            is_line_start: true,
            out: String::new(),
            calls: Vec::new(),
            broken: None,
        }
    }

    /// Reads more of the reply; gives the text that is no part of a call for sure.
    pub(super) fn push(&mut self, text: &str) -> String {
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let length = self.plain(rest).max(character.len_utf8());
            let (now, behind) = rest.split_at_checked(length).unwrap_or((rest, ""));
            if length > character.len_utf8() {
                self.give(now);
            } else {
                self.take(character);
            }
            rest = behind;
        }
        std::mem::take(&mut self.out)
    }

    /// How much of a text can begin nothing, so that it need not be looked at one by one.
    fn plain(&self, text: &str) -> usize {
        let length = match self.place {
            Place::Text if !self.is_line_start => text.find(['<', '\n']),
            Place::Thought(0) => text.find('<'),
            _ => Some(0),
        };
        length.unwrap_or(text.len())
    }

    /// The reply is whole, or cut short: then what is open is no call.
    pub(super) fn finish(mut self, is_cut_short: bool) -> Read {
        match std::mem::replace(&mut self.place, Place::Text) {
            _ if is_cut_short => {
                self.broken = None;
                self.release();
            }
            Place::Block { from, .. } => {
                let content = self.held.get(from..).unwrap_or_default().trim_start();
                if content.starts_with(['{', '[', '`']) {
                    self.end_block(from, self.held.len());
                } else {
                    self.release();
                }
            }
            Place::Fenced { from, shape, is_call_shaped, .. } => {
                let is_call_shaped = is_call_shaped || shape.is_some_and(|shape| shape.is_call_shaped());
                self.end_data(from, self.held.trim_end_matches('`').len(), is_call_shaped);
            }
            Place::Object(shape) => {
                self.end_data(0, self.held.len(), shape.is_call_shaped());
            }
            Place::Broken => {}
            _ => self.release(),
        }
        Read { text: std::mem::take(&mut self.out), calls: self.calls, broken: self.broken }
    }

    fn take(&mut self, character: char) {
        match std::mem::replace(&mut self.place, Place::Broken) {
            Place::Text => self.take_text(character),
            Place::Tag(around) => self.take_tag(around, character),
            Place::Fence => self.take_fence(character),
            Place::Code { is_first_line, marks } => self.take_code(is_first_line, marks, character),
            Place::Data(brackets) => self.take_data(brackets, character),
            Place::Thought(matched) => self.take_thought(matched, character),
            Place::Block { from, brackets } => self.take_block(from, brackets, character),
            Place::Fenced { from, shape, marks, is_call_shaped } => {
                self.take_fenced(from, shape, marks, is_call_shaped, character);
            }
            Place::Object(shape) => self.take_object(shape, character),
            Place::Separator => self.take_separator(character),
            Place::Broken => self.held.push(character),
        }
    }
}
