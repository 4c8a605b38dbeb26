//! The output of a chat: text and a spinner.

use std::io::{self, Write};

use tool_core::provider::printable;

/// The frames of the spinner.
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// The width of a spinner's text, so that it does not wrap in a terminal of 80 columns.
const MAX_SPINNER_CHARS: usize = 70;

/// Writes text, and in a terminal a spinner below it.
pub(crate) struct Screen<W> {
    output: W,
    is_terminal: bool,
    /// The last character that was written.
    last: char,
    frame: Option<usize>,
}

impl<W: Write> Screen<W> {
    pub(crate) fn new(output: W, is_terminal: bool) -> Self {
        Self { output, is_terminal, last: '\n', frame: None }
    }

    /// Writes text, which may come from a model or a tool.
    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        self.clear_spinner()?;
        // The text can be part of one, so the character before it decides whether a joiner is visible.
        let before = self.last.to_string();
        let both = format!("{before}{text}");
        let shown = printable(&both);
        let shown = shown.strip_prefix(&*printable(&before)).unwrap_or(&shown);
        self.last = text.chars().last().unwrap_or(self.last);
        self.output.write_all(shown.as_bytes())?;
        self.output.flush()
    }

    /// Writes a line of its own.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        self.write(&format!("{text}\n"))
    }

    /// Ends the line that was begun, if any.
    pub(crate) fn end_line(&mut self) -> io::Result<()> {
        if self.last == '\n' { self.clear_spinner() } else { self.write("\n") }
    }

    /// Records that the user's Enter has ended the line.
    pub(crate) fn line_was_entered(&mut self) {
        self.last = '\n';
    }

    /// Draws the next frame of the spinner. Without a terminal, and within a line of text, nothing is drawn.
    pub(crate) fn spin(&mut self, text: &str) -> io::Result<()> {
        if !self.is_terminal || self.last != '\n' {
            return Ok(());
        }
        let frame = self.frame.map_or(0, |frame| (frame + 1) % FRAMES.len());
        self.frame = Some(frame);
        let text: String =
            printable(text).chars().filter(|char| *char != '\n').take(MAX_SPINNER_CHARS).collect();
        write!(self.output, "\r\x1b[K{} {text}", FRAMES[frame])?;
        self.output.flush()
    }

    fn clear_spinner(&mut self) -> io::Result<()> {
        match self.frame.take() {
            Some(_) => self.output.write_all(b"\r\x1b[K"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinner_is_drawn_below_text_and_removed_before_text() {
        let mut output = Vec::new();
        let mut screen = Screen::new(&mut output, true);
        screen.spin("thinking").unwrap();
        screen.spin("thinking").unwrap();
        screen.write("It is").unwrap();
        screen.spin("thinking").unwrap(); // within a line of text
        screen.line("[sum]").unwrap();
        screen.spin("thinking").unwrap();
        screen.end_line().unwrap();
        let expected = "\r\x1b[K⠋ thinking\r\x1b[K⠙ thinking\r\x1b[KIt is\n[sum]\n\r\x1b[K⠋ thinking\r\x1b[K";
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }

    #[test]
    fn text_of_models_and_tools_is_printable_however_it_arrives() {
        let mut output = Vec::new();
        let mut screen = Screen::new(&mut output, true);
        for part in ["a\x1b[2J\r", "\nb\tc\u{202e}d", "\u{200d}👩", "\u{200d}", "", "🚀\n"] {
            screen.write(part).unwrap();
        }
        let expected = "a\\u{1b}[2J\\u{d}\nb\tc\\u{202e}d\\u{200d}👩\u{200d}🚀\n";
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }
}
