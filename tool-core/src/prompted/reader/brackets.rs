//! Follows data as it comes: where it ends, and whether it can still be a call.

use std::collections::HashSet;

/// The members that hold the name of a tool.
pub(super) const NAMES: [&str; 4] = ["name", "tool", "tool_name", "function"];

/// The members that hold the arguments of a call.
pub(super) const ARGUMENTS: [&str; 4] = ["arguments", "parameters", "args", "input"];

/// The members that hold a whole call, or a list of them.
pub(super) const WHOLE_CALLS: [&str; 4] = ["function", "function_call", "tool_call", "tool_calls"];

/// The members that a call may begin with beside those.
const OTHERS: [&str; 2] = ["id", "type"];

/// How deep a text is inside of brackets and quotes, after each of its characters.
#[derive(Clone, Copy, Default)]
pub(super) struct Brackets {
    depth: usize,
    quote: Option<char>,
    is_escaped: bool,
}

impl Brackets {
    /// Takes the next character; says whether it closes the first bracket.
    pub(super) fn take(&mut self, character: char) -> bool {
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

/// What is known of data after one more character.
pub(super) enum Step {
    /// It may become a call.
    Goes,
    /// It is whole, and may be a call.
    Ends,
    /// It is data of another kind.
    IsNoCall,
    /// It is no data.
    IsNoData,
}

/// Follows an object, or a list of objects, for as long as it may be a call of one of the tools.
pub(super) struct Shape {
    brackets: Brackets,
    beginning: Beginning,
    /// How deep the members of a call stand.
    members_at: usize,
    /// The string that is read, or was read last.
    word: String,
    /// The member that was named last.
    member: String,
    is_behind_colon: bool,
    has_member: bool,
    names_a_tool: bool,
    has_arguments: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Beginning {
    Nothing,
    List,
    Object,
    Over,
}

impl Shape {
    pub(super) fn new() -> Self {
        Self {
            brackets: Brackets::default(),
            beginning: Beginning::Nothing,
            members_at: 1,
            word: String::new(),
            member: String::new(),
            is_behind_colon: false,
            has_member: false,
            names_a_tool: false,
            has_arguments: false,
        }
    }

    pub(super) fn brackets(&self) -> Brackets {
        self.brackets
    }

    /// It was meant as a call, even if it cannot be read: it names a tool, and arguments for it.
    pub(super) fn is_call_shaped(&self) -> bool {
        self.names_a_tool && self.has_arguments
    }

    /// Takes the next character, the opening bracket first.
    pub(super) fn take(&mut self, character: char, tools: &HashSet<String>) -> Step {
        let was_in_string = self.brackets.is_in_string();
        let is_closed = self.brackets.take(character);
        if !self.begins(character) {
            return Step::IsNoData;
        }
        match (was_in_string, self.brackets.is_in_string()) {
            (false, true) => self.word.clear(),
            (true, true) => self.word.push(character),
            (true, false) => return self.end_string(tools),
            (false, false) if is_closed => return Step::Ends,
            (false, false) => match character {
                ':' => self.is_behind_colon = true,
                ',' | '{' | '[' | '(' => self.is_behind_colon = false,
                _ => {}
            },
        }
        Step::Goes
    }

    /// The first characters are those of an object with a member, or of a list that begins with one.
    fn begins(&mut self, character: char) -> bool {
        self.beginning = match (self.beginning, character) {
            (Beginning::Over, _) => return true,
            (Beginning::Nothing, '[') => Beginning::List,
            (Beginning::List, '{') => {
                self.members_at = 2;
                Beginning::Object
            }
            (Beginning::Nothing, '{') => Beginning::Object,
            (Beginning::Object, '"' | '\'') => Beginning::Over,
            (same, character) if character.is_whitespace() => same,
            _ => return false,
        };
        true
    }

    fn end_string(&mut self, tools: &HashSet<String>) -> Step {
        let is_of_call = self.brackets.depth == self.members_at;
        if !self.is_behind_colon {
            self.member.clone_from(&self.word);
            let is = |names: &[&str]| names.contains(&&*self.member);
            self.has_arguments |= is(&ARGUMENTS);
            let is_first = is_of_call && !self.has_member;
            self.has_member |= is_of_call;
            if is_first && !(is(&NAMES) || is(&ARGUMENTS) || is(&WHOLE_CALLS) || is(&OTHERS)) {
                return Step::IsNoCall;
            }
            return Step::Goes;
        }
        self.is_behind_colon = false;
        if NAMES.contains(&&*self.member) {
            if tools.contains(&self.word) {
                self.names_a_tool = true;
                // A name may be that of anything; a tool is a tool.
                self.has_arguments |= self.member != "name";
            } else if is_of_call && !self.word.contains('\\') {
                return Step::IsNoCall;
            }
        }
        Step::Goes
    }
}
