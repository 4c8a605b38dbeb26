//! The transitions of the parser: how each state handles the next character.

use super::calls::{CallsError, Location, ParsedCall, parse_calls};
use super::detector::{CallDetector, Detection, Nesting};
use super::{CLOSE, END_THINK, FENCE, FENCE_LANGUAGES, OPEN, ReplyParser, State, THINK};

/// The maximum length of the opening line of a fence that contains calls.
const MAX_FENCE_LINE_LEN: usize = 64;

impl ReplyParser<'_> {
    pub(super) fn on_text(&mut self, character: char) {
        self.state = State::Text;
        match character {
            '<' => {
                self.hold(character, State::Tag(Box::new(State::Text)));
            }
            '`' if self.is_line_start => {
                self.hold(character, State::FenceLine);
            }
            '{' | '[' if self.is_line_start => self.on_object(CallDetector::default(), character),
            _ => self.emit_char(character),
        }
    }

    pub(super) fn on_tag(&mut self, around: Box<State>, character: char) {
        self.held.push(character);
        let can_think = self.is_line_start && matches!(*around, State::Text);
        if self.held == OPEN {
            self.start_block();
        } else if can_think && self.held == THINK {
            self.release();
            self.state = State::Thinking(0);
        } else if OPEN.starts_with(&self.held) || can_think && THINK.starts_with(&self.held) {
            self.state = State::Tag(around);
        } else {
            self.held.pop();
            self.release_and_consume(*around, character);
        }
    }

    pub(super) fn on_fence_line(&mut self, character: char) {
        let backticks = self.held.bytes().take_while(|byte| *byte == b'`').count();
        let language = self.held.get(backticks..).unwrap_or_default().trim().to_ascii_lowercase();
        let allows_calls = FENCE_LANGUAGES.contains(&&*language) && self.held.len() < MAX_FENCE_LINE_LEN;
        let extended = self.held.get(backticks..).unwrap_or_default().to_ascii_lowercase()
            + character.to_ascii_lowercase().encode_utf8(&mut [0; 4]);
        match character {
            '`' if self.held.len() == backticks && allows_calls => {
                self.hold(character, State::FenceLine);
            }
            _ if backticks < FENCE => self.release_and_consume(State::Text, character),
            '\n' if allows_calls => {
                self.held.push(character);
                self.state = self.start_fenced();
            }
            '{' | '[' if allows_calls => {
                self.state = self.start_fenced();
                self.consume(character);
            }
            _ if self.held.len() < MAX_FENCE_LINE_LEN
                && FENCE_LANGUAGES.iter().any(|language| language.starts_with(extended.trim())) =>
            {
                self.hold(character, State::FenceLine);
            }
            _ => self.release_and_consume(State::Code { is_first_line: true, backticks: 0 }, character),
        }
    }

    fn start_fenced(&self) -> State {
        State::Fenced { start: self.held.len(), detector: None, backticks: 0, is_call_like: false }
    }

    pub(super) fn on_code(&mut self, is_first_line: bool, backticks: usize, character: char) {
        let can_close = self.is_line_start || backticks > 0;
        let mut next = State::Code { is_first_line: is_first_line && character != '\n', backticks: 0 };
        match character {
            '<' => {
                let code = State::Code { is_first_line: false, backticks: 0 };
                self.hold(character, State::Tag(Box::new(code)));
                return;
            }
            // A backtick in the opening line of a fence means that it was inline code.
            '`' if is_first_line => next = State::Text,
            '`' if can_close && backticks + 1 == FENCE => next = State::Text,
            '`' if can_close => next = State::Code { is_first_line, backticks: backticks + 1 },
            _ => {}
        }
        self.emit_char(character);
        self.state = next;
    }

    pub(super) fn on_data(&mut self, mut nesting: Nesting, character: char) {
        if character == '<' && self.is_line_start {
            self.hold(character, State::Tag(Box::new(State::Data(nesting))));
            return;
        }
        let is_closed = nesting.push(character);
        self.emit_char(character);
        self.state = if is_closed { State::Text } else { State::Data(nesting) };
    }

    pub(super) fn on_thinking(&mut self, matched: usize, character: char) {
        self.emit_char(character);
        let matched = match END_THINK.get(matched) {
            Some(expected) if *expected == character => matched + 1,
            _ => usize::from(character == '<'),
        };
        if matched == END_THINK.len() {
            self.is_line_start = true;
            self.state = State::Text;
        } else {
            self.state = State::Thinking(matched);
        }
    }

    fn start_block(&mut self) {
        OPEN.clone_into(&mut self.held);
        self.state = State::Block { start: OPEN.len(), nesting: None };
    }

    pub(super) fn on_block(&mut self, start: usize, nesting: Option<Nesting>, character: char) {
        self.held.push(character);
        let nesting = match (nesting, character) {
            (Some(mut nesting), _) => (!nesting.push(character)).then_some(nesting),
            (None, '{' | '[') => {
                let mut nesting = Nesting::default();
                nesting.push(character);
                Some(nesting)
            }
            (None, _) => None,
        };
        if character == '>'
            && let Some(tag) = [CLOSE, OPEN].into_iter().find(|tag| self.held.ends_with(tag))
            && let end = self.held.len() - tag.len()
            && end >= start
        {
            let is_in_value = nesting.is_some_and(|nesting| tag == OPEN || nesting.is_in_string());
            // A tag at the start of a line ends a value that lacks a quote or a bracket.
            if !is_in_value || self.is_at_line_start(start, end) {
                self.end_block(start, end);
                if tag == OPEN && self.error.is_none() {
                    self.start_block();
                }
                return;
            }
        }
        self.state = State::Block { start, nesting };
    }

    /// Returns `true` if the held text has only spaces and tabs between the last line break after `start` and `end`.
    fn is_at_line_start(&self, start: usize, end: usize) -> bool {
        let before = self.held.get(start..end).unwrap_or_default();
        before.trim_end_matches([' ', '\t']).ends_with('\n')
    }

    pub(super) fn on_fenced(
        &mut self,
        start: usize,
        detector: Option<CallDetector>,
        backticks: usize,
        is_call_like: bool,
        character: char,
    ) {
        let Some(mut detector) = detector else {
            match character {
                '`' if backticks + 1 == FENCE => {
                    self.held.push(character);
                    self.end_data(start, self.held.len() - FENCE, is_call_like);
                    return;
                }
                '{' | '[' => {}
                '`' | ',' | ';' => {}
                space if space.is_whitespace() => {}
                other => {
                    self.release_and_consume(State::Code { is_first_line: false, backticks: 0 }, other);
                    return;
                }
            }
            self.held.push(character);
            let detector = matches!(character, '{' | '[').then(|| {
                let mut detector = CallDetector::default();
                detector.push(character, self.tools);
                detector
            });
            let backticks = if character == '`' { backticks + 1 } else { 0 };
            self.state = State::Fenced { start, detector, backticks, is_call_like };
            return;
        };
        self.held.push(character);
        match detector.push(character, self.tools) {
            Detection::Undecided => {
                let is_call_like = is_call_like || detector.is_call_like();
                let end = self.held.len() - character.len_utf8();
                if character == '`'
                    && !detector.nesting().is_in_string()
                    && self.held.ends_with("```")
                    && self.is_at_line_start(start, end + 1 - FENCE)
                {
                    self.end_data(start, end + 1 - FENCE, is_call_like);
                } else if !self.ends_at_tag(start, is_call_like, character) {
                    self.state =
                        State::Fenced { start, detector: Some(detector), backticks: 0, is_call_like };
                }
            }
            Detection::Complete => {
                let is_call_like = is_call_like || detector.is_call_like();
                self.state = State::Fenced { start, detector: None, backticks: 0, is_call_like };
            }
            Detection::NotACall | Detection::NotData => {
                self.held.pop();
                self.release_and_consume(State::Code { is_first_line: false, backticks: 0 }, character);
            }
        }
    }

    pub(super) fn on_object(&mut self, mut detector: CallDetector, character: char) {
        self.held.push(character);
        match detector.push(character, self.tools) {
            Detection::Undecided => {
                if !self.ends_at_tag(0, detector.is_call_like(), character) {
                    self.state = State::Object(detector);
                }
            }
            Detection::Complete => {
                if self.end_data(0, self.held.len(), detector.is_call_like()) {
                    self.state = State::Separator;
                }
            }
            Detection::NotACall => {
                self.release();
                self.state = State::Data(detector.nesting());
            }
            Detection::NotData => {
                self.held.pop();
                self.release_and_consume(State::Text, character);
            }
        }
    }

    /// Ends the data if one of its lines starts with `<tool_call>`, and returns `true` if so. No valid data has such a
    /// line, so the data is incomplete.
    fn ends_at_tag(&mut self, start: usize, is_call_like: bool, character: char) -> bool {
        if character != '>' || !self.held.ends_with(OPEN) {
            return false;
        }
        let end = self.held.len() - OPEN.len();
        if !self.is_at_line_start(start, end) {
            return false;
        }
        if is_call_like {
            self.end_data(start, end, true);
        } else {
            self.held.truncate(end);
            self.release();
            self.start_block();
        }
        true
    }

    pub(super) fn on_separator(&mut self, character: char) {
        match character {
            '{' | '[' => {
                self.held.clear();
                self.on_object(CallDetector::default(), character);
            }
            character if character.is_whitespace() || matches!(character, ',' | ';') => {
                self.hold(character, State::Separator);
            }
            other => {
                self.release();
                self.is_line_start = true;
                self.state = State::Text;
                self.consume(other);
            }
        }
    }

    /// Ends a block whose content is this range of the held text.
    pub(super) fn end_block(&mut self, start: usize, end: usize) {
        let content = self.held.get(start..end).unwrap_or_default();
        match parse_calls(content, Location::InTags, self.tools) {
            Ok(calls) => self.accept(calls),
            Err(CallsError::Malformed(reason)) => self.fail(reason),
            Err(CallsError::NotACall) => self.release_to_text(),
        }
    }

    /// Ends data whose content is this range of the held text. Returns `true` if it is calls.
    pub(super) fn end_data(&mut self, start: usize, end: usize, is_call_like: bool) -> bool {
        let content = self.held.get(start..end).unwrap_or_default();
        match parse_calls(content, Location::InText, self.tools) {
            Ok(calls) => {
                self.accept(calls);
                return true;
            }
            Err(CallsError::Malformed(reason)) if is_call_like => self.fail(reason),
            Err(_) => self.release_to_text(),
        }
        false
    }

    fn accept(&mut self, calls: Vec<ParsedCall>) {
        self.calls.extend(calls);
        self.joiner.push_gap();
        self.held.clear();
        self.is_line_start = true;
        self.state = State::Text;
    }

    fn fail(&mut self, reason: String) {
        self.error = Some(reason);
        self.state = State::Failed;
    }

    fn release_to_text(&mut self) {
        self.release();
        self.state = State::Text;
    }

    /// Emits the held text, which is not a call, and consumes the next character in another state.
    fn release_and_consume(&mut self, state: State, next: char) {
        self.release();
        self.state = state;
        self.consume(next);
    }

    /// Emits the held text.
    pub(super) fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.is_line_start = match held.rsplit_once('\n') {
            Some((_, line)) => line.trim().is_empty(),
            None => self.is_line_start && held.trim().is_empty(),
        };
        self.emit(&held);
    }

    /// Holds the character back until a later one decides what it is.
    fn hold(&mut self, character: char, state: State) {
        self.held.push(character);
        self.state = state;
    }

    fn emit_char(&mut self, character: char) {
        self.is_line_start = character == '\n' || self.is_line_start && character.is_whitespace();
        self.emit(character.encode_utf8(&mut [0; 4]));
    }

    pub(super) fn emit(&mut self, text: &str) {
        self.output.push_str(&self.joiner.push(text));
    }
}
