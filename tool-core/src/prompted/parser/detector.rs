//! Follows data character by character: where it ends, and whether it can still be a call.

use std::collections::HashSet;

/// The members that contain the name of a tool.
pub(super) const NAME_KEYS: [&str; 4] = ["name", "tool", "tool_name", "function"];

/// The members that contain the arguments of a call.
pub(super) const ARGUMENT_KEYS: [&str; 4] = ["arguments", "parameters", "args", "input"];

/// The members that contain a whole call, or a list of calls.
pub(super) const CALL_KEYS: [&str; 4] = ["function", "function_call", "tool_call", "tool_calls"];

/// Other members that can be the first of a call.
const OTHER_KEYS: [&str; 2] = ["id", "type"];

/// The nesting in brackets and quotes at a position of a text.
#[derive(Clone, Copy, Default)]
pub(super) struct Nesting {
    depth: usize,
    quote: Option<char>,
    is_escaped: bool,
}

impl Nesting {
    /// Consumes the next character. Returns `true` if it closes the outermost bracket.
    pub(super) fn push(&mut self, character: char) -> bool {
        if let Some(quote) = self.quote {
            match character {
                _ if self.is_escaped => self.is_escaped = false,
                '\\' => self.is_escaped = true,
                _ if character == quote => self.quote = None,
                _ => {}
            }
            return false;
        }
        match character {
            '"' | '\'' => self.quote = Some(character),
            '{' | '[' | '(' => self.depth += 1,
            '}' | ']' | ')' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }

    pub(super) fn is_in_string(&self) -> bool {
        self.quote.is_some()
    }
}

/// The state of a [`CallDetector`] after a character.
pub(super) enum Detection {
    /// The data can still be a call.
    Undecided,
    /// The data is complete and can be a call.
    Complete,
    /// The data is not a call.
    NotACall,
    /// The text is not data.
    NotData,
}

/// Follows an object, or a list of objects, as long as it can be a call to one of the tools.
#[derive(Default)]
pub(super) struct CallDetector {
    nesting: Nesting,
    opening: Opening,
    is_in_list: bool,
    /// The current or last string.
    string: String,
    /// The last member name.
    key: String,
    is_after_colon: bool,
    has_member: bool,
    names_tool: bool,
    has_arguments: bool,
}

/// The progress in the brackets that open a call.
#[derive(Clone, Copy, Default)]
enum Opening {
    #[default]
    Start,
    List,
    Object,
    Done,
}

impl CallDetector {
    pub(super) fn nesting(&self) -> Nesting {
        self.nesting
    }

    /// Returns `true` if the data is meant as a call even if it is malformed: it names a tool and has arguments.
    pub(super) fn is_call_like(&self) -> bool {
        self.names_tool && self.has_arguments
    }

    /// Consumes the next character, starting with the opening bracket.
    pub(super) fn push(&mut self, character: char, tools: &HashSet<String>) -> Detection {
        let was_in_string = self.nesting.is_in_string();
        let is_closed = self.nesting.push(character);
        if !self.accepts_opening(character) {
            return Detection::NotData;
        }
        match (was_in_string, self.nesting.is_in_string()) {
            (false, true) => self.string.clear(),
            (true, true) => self.string.push(character),
            (true, false) => return self.end_string(tools),
            (false, false) if is_closed => return Detection::Complete,
            (false, false) => match character {
                ':' => self.is_after_colon = true,
                ',' | '{' | '[' | '(' => self.is_after_colon = false,
                _ => {}
            },
        }
        Detection::Undecided
    }

    /// Returns `true` if the text still starts like an object with a member, or like a list of such objects.
    fn accepts_opening(&mut self, character: char) -> bool {
        self.opening = match (self.opening, character) {
            (Opening::Done, _) => return true,
            (Opening::Start, '[') => Opening::List,
            (Opening::List, '{') => {
                self.is_in_list = true;
                Opening::Object
            }
            (Opening::Start, '{') => Opening::Object,
            (Opening::Object, '"' | '\'') => Opening::Done,
            (same, character) if character.is_whitespace() => same,
            _ => return false,
        };
        true
    }

    fn end_string(&mut self, tools: &HashSet<String>) -> Detection {
        let is_call_member = self.nesting.depth == 1 + usize::from(self.is_in_list);
        if !self.is_after_colon {
            self.key.clone_from(&self.string);
            let is_one_of = |keys: &[&str]| keys.contains(&&*self.key);
            self.has_arguments |= is_one_of(&ARGUMENT_KEYS);
            let is_first = is_call_member && !self.has_member;
            self.has_member |= is_call_member;
            let can_start_call = is_one_of(&NAME_KEYS)
                || is_one_of(&ARGUMENT_KEYS)
                || is_one_of(&CALL_KEYS)
                || is_one_of(&OTHER_KEYS);
            if is_first && !can_start_call {
                return Detection::NotACall;
            }
            return Detection::Undecided;
        }
        self.is_after_colon = false;
        if NAME_KEYS.contains(&&*self.key) {
            if tools.contains(&self.string) {
                self.names_tool = true;
                // `name` is a common member of other data; the other keys identify a call by themselves.
                self.has_arguments |= self.key != "name";
            } else if is_call_member && !self.string.contains('\\') {
                return Detection::NotACall;
            }
        }
        Detection::Undecided
    }
}
