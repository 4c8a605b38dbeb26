//! The text of a reply without the whitespace around its calls.

/// Joins the chunks of a text. Whitespace around a gap, from which a call was removed, is emitted only between two texts.
#[derive(Default)]
pub(super) struct TextJoiner {
    /// Trailing whitespace that is not emitted yet.
    whitespace: String,
    /// `true` if there is a gap after the last text.
    has_gap: bool,
    has_text: bool,
}

impl TextJoiner {
    /// Adds a chunk and returns the text that can be emitted.
    pub(super) fn push(&mut self, chunk: &str) -> String {
        let text = chunk.trim_start();
        let (leading, trailing) =
            (chunk.len() - text.len(), chunk.get(chunk.trim_end().len()..).unwrap_or_default());
        // Whitespace before a gap suffices to separate the texts.
        if !self.has_gap || self.whitespace.is_empty() {
            self.whitespace.push_str(chunk.get(..leading).unwrap_or_default());
        }
        if text.is_empty() {
            return String::new();
        }
        let mut output = match (self.has_gap, self.has_text) {
            (true, false) => String::new(),
            (true, true) if self.whitespace.is_empty() => "\n".to_owned(),
            _ => std::mem::take(&mut self.whitespace),
        };
        output.push_str(text.trim_end());
        trailing.clone_into(&mut self.whitespace);
        (self.has_gap, self.has_text) = (false, true);
        output
    }

    /// Marks the position of a removed call.
    pub(super) fn push_gap(&mut self) {
        self.has_gap = true;
    }

    /// Returns the rest of the text.
    pub(super) fn finish(&mut self) -> String {
        if self.has_gap { String::new() } else { std::mem::take(&mut self.whitespace) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_whitespace_around_gaps() {
        // `|` is a gap.
        let table = [
            ("a b\n", "a b\n"),
            (" \n a \n", " \n a \n"),
            ("  ", "  "),
            ("a \n|", "a"),
            ("\n|\n", ""),
            ("|\na", "a"),
            (" |a", "a"),
            ("a\n\n|\nb", "a\n\nb"),
            ("a|\nb", "a\nb"),
            ("a|b", "a\nb"),
            ("a |  | b|\n", "a b"),
        ];
        for (text, expected) in table {
            for by_character in [false, true] {
                let mut joiner = TextJoiner::default();
                let mut output = String::new();
                let mut push = |joiner: &mut TextJoiner, chunk: &str| output.push_str(&joiner.push(chunk));
                for (index, chunk) in text.split('|').enumerate() {
                    if index > 0 {
                        joiner.push_gap();
                    }
                    if by_character {
                        chunk.chars().for_each(|one| push(&mut joiner, one.encode_utf8(&mut [0; 4])));
                    } else {
                        push(&mut joiner, chunk);
                    }
                }
                output.push_str(&joiner.finish());
                assert_eq!(output, expected, "{text:?} by character: {by_character}");
            }
        }
    }
}
