//! The text of a reply without the blanks that stood around its calls.

/// Joins the pieces of a text: the blanks at a gap, where a call stood, are given out only between two texts.
#[derive(Default)]
pub(super) struct Texts {
    /// Blanks that came last.
    blanks: String,
    /// There is a gap behind the last text.
    has_gap: bool,
    has_text: bool,
}

impl Texts {
    /// Adds a piece; gives what can be given out.
    pub(super) fn add(&mut self, piece: &str) -> String {
        let text = piece.trim_start();
        let (leading, trailing) =
            (piece.len() - text.len(), piece.get(piece.trim_end().len()..).unwrap_or_default());
        // Those in front of a gap are enough.
        if !self.has_gap || self.blanks.is_empty() {
            self.blanks.push_str(piece.get(..leading).unwrap_or_default());
        }
        if text.is_empty() {
            return String::new();
        }
        let mut out = match (self.has_gap, self.has_text) {
            (true, false) => String::new(),
            (true, true) if self.blanks.is_empty() => "\n".to_owned(),
            _ => std::mem::take(&mut self.blanks),
        };
        out.push_str(text.trim_end());
        trailing.clone_into(&mut self.blanks);
        (self.has_gap, self.has_text) = (false, true);
        out
    }

    /// A call stands here.
    pub(super) fn gap(&mut self) {
        self.has_gap = true;
    }

    /// What is left to give out at the end.
    pub(super) fn finish(&mut self) -> String {
        if self.has_gap { String::new() } else { std::mem::take(&mut self.blanks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_at_gaps() {
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
            for is_in_pieces in [false, true] {
                let mut texts = Texts::default();
                let mut out = String::new();
                let mut add = |texts: &mut Texts, piece: &str| out.push_str(&texts.add(piece));
                for (at, piece) in text.split('|').enumerate() {
                    if at > 0 {
                        texts.gap();
                    }
                    if is_in_pieces {
                        piece.chars().for_each(|one| add(&mut texts, one.encode_utf8(&mut [0; 4])));
                    } else {
                        add(&mut texts, piece);
                    }
                }
                out.push_str(&texts.finish());
                assert_eq!(out, expected, "{text:?} in pieces: {is_in_pieces}");
            }
        }
    }
}
