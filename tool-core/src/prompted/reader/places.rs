//! What the next character means in each place.

use super::brackets::{Brackets, Shape, Step};
use super::calls::{NoCalls, Stands, read};
use super::{Around, CLOSE, END_OF_THOUGHT, FENCE, FENCED, OPEN, Place, Reader, THINK};

/// How long the first line of a fence may be that holds calls.
const LONGEST_FIRST_LINE: usize = 64;

impl Reader<'_> {
    pub(super) fn take_text(&mut self, character: char) {
        self.place = Place::Text;
        match character {
            '<' => {
                self.held.push(character);
                self.place = Place::Tag(Around::Text { is_line_start: self.is_line_start });
            }
            '`' if self.is_line_start => {
                self.held.push(character);
                self.place = Place::Fence;
            }
            '{' | '[' if self.is_line_start => self.take_object(Shape::new(), character),
            _ => self.pass(character),
        }
    }

    pub(super) fn take_tag(&mut self, around: Around, character: char) {
        self.held.push(character);
        let may_think = matches!(around, Around::Text { is_line_start: true });
        if self.held == OPEN {
            self.begin_block();
        } else if may_think && self.held == THINK {
            self.release();
            self.place = Place::Thought(0);
        } else if OPEN.starts_with(&self.held) || may_think && THINK.starts_with(&self.held) {
            self.place = Place::Tag(around);
        } else {
            self.held.pop();
            self.release();
            self.place = match around {
                Around::Text { .. } => Place::Text,
                Around::Code => Place::Code { is_first_line: false, marks: 0 },
                Around::Data(brackets) => Place::Data(brackets),
            };
            self.take(character);
        }
    }

    pub(super) fn take_fence(&mut self, character: char) {
        let marks = self.held.bytes().take_while(|byte| *byte == b'`').count();
        let kind = self.held.get(marks..).unwrap_or_default().trim().to_ascii_lowercase();
        let holds_calls = FENCED.contains(&&*kind) && self.held.len() < LONGEST_FIRST_LINE;
        let with_this = self.held.get(marks..).unwrap_or_default().to_ascii_lowercase()
            + character.to_ascii_lowercase().encode_utf8(&mut [0; 4]);
        match character {
            '`' if self.held.len() == marks && holds_calls => {
                self.held.push(character);
                self.place = Place::Fence;
            }
            _ if marks < FENCE => self.release_to(Place::Text, character),
            '\n' if holds_calls => {
                self.held.push(character);
                self.place = self.fenced();
            }
            '{' | '[' if holds_calls => {
                self.place = self.fenced();
                self.take(character);
            }
            _ if self.held.len() < LONGEST_FIRST_LINE
                && FENCED.iter().any(|kind| kind.starts_with(with_this.trim())) =>
            {
                self.held.push(character);
                self.place = Place::Fence;
            }
            _ => self.release_to(Place::Code { is_first_line: true, marks: 0 }, character),
        }
    }

    fn fenced(&self) -> Place {
        Place::Fenced { from: self.held.len(), shape: None, marks: 0, is_call_shaped: false }
    }

    pub(super) fn take_code(&mut self, is_first_line: bool, marks: usize, character: char) {
        let ends_fence = self.is_line_start || marks > 0;
        let mut next = Place::Code { is_first_line: is_first_line && character != '\n', marks: 0 };
        match character {
            '<' => {
                self.held.push(character);
                self.place = Place::Tag(Around::Code);
                return;
            }
            // There are no such marks in the first line of a fence: it was a piece of code in a line.
            '`' if is_first_line => next = Place::Text,
            '`' if ends_fence && marks + 1 == FENCE => next = Place::Text,
            '`' if ends_fence => next = Place::Code { is_first_line, marks: marks + 1 },
            _ => {}
        }
        self.pass(character);
        self.place = next;
    }

    pub(super) fn take_data(&mut self, mut brackets: Brackets, character: char) {
        if character == '<' && self.is_line_start {
            self.held.push(character);
            self.place = Place::Tag(Around::Data(brackets));
            return;
        }
        let is_over = brackets.take(character);
        self.pass(character);
        self.place = if is_over { Place::Text } else { Place::Data(brackets) };
    }

    pub(super) fn take_thought(&mut self, matched: usize, character: char) {
        self.pass(character);
        let matched = match END_OF_THOUGHT.get(matched) {
            Some(expected) if *expected == character => matched + 1,
            _ => usize::from(character == '<'),
        };
        if matched == END_OF_THOUGHT.len() {
            self.is_line_start = true;
            self.place = Place::Text;
        } else {
            self.place = Place::Thought(matched);
        }
    }

    fn begin_block(&mut self) {
        OPEN.clone_into(&mut self.held);
        self.place = Place::Block { from: OPEN.len(), brackets: None };
    }

    pub(super) fn take_block(&mut self, from: usize, brackets: Option<Brackets>, character: char) {
        self.held.push(character);
        let brackets = match (brackets, character) {
            (Some(mut brackets), _) => (!brackets.take(character)).then_some(brackets),
            (None, '{' | '[') => {
                let mut brackets = Brackets::default();
                brackets.take(character);
                Some(brackets)
            }
            (None, _) => None,
        };
        if character == '>'
            && let Some(tag) = [CLOSE, OPEN].into_iter().find(|tag| self.held.ends_with(tag))
            && let end = self.held.len() - tag.len()
            && end >= from
        {
            let is_in_value = brackets.is_some_and(|brackets| tag == OPEN || brackets.is_in_string());
            // A line that begins with a tag ends a value in which a quote or a bracket is missing.
            if !is_in_value || self.is_at_line_start(from, end) {
                self.end_block(from, end);
                if tag == OPEN && self.broken.is_none() {
                    self.begin_block();
                }
                return;
            }
        }
        self.place = Place::Block { from, brackets };
    }

    /// There are only blanks in front of what is held from there on, in its line.
    fn is_at_line_start(&self, from: usize, end: usize) -> bool {
        let before = self.held.get(from..end).unwrap_or_default();
        before.trim_end_matches([' ', '\t']).ends_with('\n')
    }

    pub(super) fn take_fenced(
        &mut self,
        from: usize,
        shape: Option<Shape>,
        marks: usize,
        is_call_shaped: bool,
        character: char,
    ) {
        let Some(mut shape) = shape else {
            match character {
                '`' if marks + 1 == FENCE => {
                    self.held.push(character);
                    self.end_data(from, self.held.len() - FENCE, is_call_shaped);
                    return;
                }
                '{' | '[' => {}
                '`' | ',' | ';' => {}
                blank if blank.is_whitespace() => {}
                other => {
                    self.release_to(Place::Code { is_first_line: false, marks: 0 }, other);
                    return;
                }
            }
            self.held.push(character);
            let shape = matches!(character, '{' | '[').then(|| {
                let mut shape = Shape::new();
                shape.take(character, self.tools);
                shape
            });
            let marks = if character == '`' { marks + 1 } else { 0 };
            self.place = Place::Fenced { from, shape, marks, is_call_shaped };
            return;
        };
        self.held.push(character);
        match shape.take(character, self.tools) {
            Step::Goes => {
                let is_call_shaped = is_call_shaped || shape.is_call_shaped();
                let end = self.held.len() - character.len_utf8();
                if character == '`'
                    && !shape.brackets().is_in_string()
                    && self.held.ends_with("```")
                    && self.is_at_line_start(from, end + 1 - FENCE)
                {
                    self.end_data(from, end + 1 - FENCE, is_call_shaped);
                } else if !self.is_broken_by_tag(from, is_call_shaped, character) {
                    self.place = Place::Fenced { from, shape: Some(shape), marks: 0, is_call_shaped };
                }
            }
            Step::Ends => {
                let is_call_shaped = is_call_shaped || shape.is_call_shaped();
                self.place = Place::Fenced { from, shape: None, marks: 0, is_call_shaped };
            }
            Step::IsNoCall | Step::IsNoData => {
                self.held.pop();
                self.release_to(Place::Code { is_first_line: false, marks: 0 }, character);
            }
        }
    }

    pub(super) fn take_object(&mut self, mut shape: Shape, character: char) {
        self.held.push(character);
        match shape.take(character, self.tools) {
            Step::Goes => {
                if !self.is_broken_by_tag(0, shape.is_call_shaped(), character) {
                    self.place = Place::Object(shape);
                }
            }
            Step::Ends => {
                if self.end_data(0, self.held.len(), shape.is_call_shaped()) {
                    self.place = Place::Separator;
                }
            }
            Step::IsNoCall => {
                self.release();
                self.place = Place::Data(shape.brackets());
            }
            Step::IsNoData => {
                self.held.pop();
                self.release_to(Place::Text, character);
            }
        }
    }

    /// Looks whether a line of data begins with `<tool_call>`, as no data does: then the data is not whole.
    fn is_broken_by_tag(&mut self, from: usize, is_call_shaped: bool, character: char) -> bool {
        if character != '>' || !self.held.ends_with(OPEN) {
            return false;
        }
        let end = self.held.len() - OPEN.len();
        if !self.is_at_line_start(from, end) {
            return false;
        }
        if is_call_shaped {
            self.end_data(from, end, true);
        } else {
            self.held.truncate(end);
            self.release();
            self.begin_block();
        }
        true
    }

    pub(super) fn take_separator(&mut self, character: char) {
        match character {
            '{' | '[' => {
                self.held.clear();
                self.take_object(Shape::new(), character);
            }
            ',' | ';' => {
                self.held.push(character);
                self.place = Place::Separator;
            }
            blank if blank.is_whitespace() => {
                self.held.push(character);
                self.place = Place::Separator;
            }
            other => {
                self.release();
                self.is_line_start = true;
                self.place = Place::Text;
                self.take(other);
            }
        }
    }

    /// What is held is a block, with this content.
    pub(super) fn end_block(&mut self, from: usize, end: usize) {
        let content = self.held.get(from..end).unwrap_or_default();
        match read(content, Stands::InTags, self.tools) {
            Ok(calls) => self.keep(calls),
            Err(NoCalls::Broken(why)) => self.is_broken(why),
            Err(NoCalls::OtherData) => self.release_to_text(),
        }
    }

    /// What is held is data, with this content; says whether it is calls.
    pub(super) fn end_data(&mut self, from: usize, end: usize, is_call_shaped: bool) -> bool {
        let content = self.held.get(from..end).unwrap_or_default();
        match read(content, Stands::Anywhere, self.tools) {
            Ok(calls) => {
                self.keep(calls);
                return true;
            }
            Err(NoCalls::Broken(why)) if is_call_shaped => self.is_broken(why),
            Err(_) => self.release_to_text(),
        }
        false
    }

    fn keep(&mut self, calls: Vec<super::WrittenCall>) {
        self.calls.extend(calls);
        self.texts.gap();
        self.held.clear();
        self.is_line_start = true;
        self.place = Place::Text;
    }

    fn is_broken(&mut self, why: String) {
        self.broken = Some(why);
        self.place = Place::Broken;
    }

    fn release_to_text(&mut self) {
        self.release();
        self.place = Place::Text;
    }

    /// What is held is no call; the next character stands in another place.
    fn release_to(&mut self, place: Place, next: char) {
        self.release();
        self.place = place;
        self.take(next);
    }

    /// Gives out what is held.
    pub(super) fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.is_line_start = match held.rsplit_once('\n') {
            Some((_, line)) => line.trim().is_empty(),
            None => self.is_line_start && held.trim().is_empty(),
        };
        self.give(&held);
    }

    fn pass(&mut self, character: char) {
        self.is_line_start = character == '\n' || self.is_line_start && character.is_whitespace();
        self.give(character.encode_utf8(&mut [0; 4]));
    }

    pub(super) fn give(&mut self, text: &str) {
        self.out.push_str(&self.texts.add(text));
    }
}
