//! The output of a chat: text and a spinner.

use std::io::{self, Write};

/// The frames of the spinner.
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// The width of a spinner's text, so that it does not wrap in a terminal of 80 columns.
const MAX_SPINNER_CHARS: usize = 70;

/// Writes text, and in a terminal a spinner below it.
pub(crate) struct Screen<W> {
    output: W,
    is_terminal: bool,
    at_line_start: bool,
    frame: Option<usize>,
}

impl<W: Write> Screen<W> {
    pub(crate) fn new(output: W, is_terminal: bool) -> Self {
        Self { output, is_terminal, at_line_start: true, frame: None }
    }

    /// Writes text, which may come from a model or a tool.
    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        self.clear_spinner()?;
        if let Some(last) = text.chars().last() {
            self.at_line_start = last == '\n';
        }
        self.output.write_all(printable(text).as_bytes())?;
        self.output.flush()
    }

    /// Writes a line of its own.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        self.write(&format!("{text}\n"))
    }

    /// Ends the line that was begun, if any.
    pub(crate) fn end_line(&mut self) -> io::Result<()> {
        if self.at_line_start { self.clear_spinner() } else { self.write("\n") }
    }

    /// Records that the user's Enter has ended the line.
    pub(crate) fn line_was_entered(&mut self) {
        self.at_line_start = true;
    }

    /// Draws the next frame of the spinner. Without a terminal, and within a line of text, nothing is drawn.
    pub(crate) fn spin(&mut self, text: &str) -> io::Result<()> {
        if !self.is_terminal || !self.at_line_start {
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

/// Replaces what would change the terminal or the order of the text: control characters except for line ends and tabs, and marks
/// of direction.
fn printable(text: &str) -> String {
    let is_harmful = |char: char| {
        (char.is_control() && !matches!(char, '\n' | '\t'))
            || matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|char| if is_harmful(char) { '\u{fffd}' } else { char }).collect()
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
    fn control_characters_of_models_and_tools_are_replaced() {
        let mut output = Vec::new();
        Screen::new(&mut output, true).write("a\x1b[2J\rb\tc\u{202e}d\n").unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), "a\u{fffd}[2J\u{fffd}b\tc\u{fffd}d\n");
    }
}
