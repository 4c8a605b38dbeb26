//! Where JSON or Python data ends.

/// The nesting in brackets and quotes at a position of a text.
#[derive(Clone, Copy, Default)]
pub(super) struct Nesting {
    brackets: usize,
    quote: Option<char>,
    is_escaped: bool,
}

impl Nesting {
    /// Consumes the next character. Returns `true` if it closes the outermost bracket.
    pub(super) fn push(&mut self, character: char) -> bool {
        match (self.quote, character) {
            (Some(_), _) if self.is_escaped => self.is_escaped = false,
            (Some(_), '\\') => self.is_escaped = true,
            (Some(quote), _) if quote == character => self.quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if self.is_open() => self.quote = Some(character),
            (None, '{' | '[' | '(') => self.brackets += 1,
            (None, '}' | ']' | ')') => {
                self.brackets = self.brackets.saturating_sub(1);
                return !self.is_open();
            }
            (None, _) => {}
        }
        false
    }

    /// Returns `true` inside brackets.
    pub(super) fn is_open(&self) -> bool {
        self.brackets > 0
    }

    pub(super) fn is_in_string(&self) -> bool {
        self.quote.is_some()
    }
}
