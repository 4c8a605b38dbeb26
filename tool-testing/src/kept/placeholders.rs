//! What stands in place of texts that must not be kept.

use std::collections::HashMap;

/// The placeholders of one run: the same text has the same one.
#[derive(Default)]
pub(super) struct Placeholders(HashMap<String, usize>);

impl Placeholders {
    /// Returns texts of the form of this one, of which the first two have the same letters: `C-1815` becomes `C-0001`, then `C-1001`, then
    /// `B-0001`.
    pub(super) fn of_same_form(&mut self, text: &str) -> [String; 3] {
        let next = self.0.len() + 1;
        let number = *self.0.entry(text.to_owned()).or_insert(next);
        let digits = fill(text, number, false);
        let same_length = digits.replacen('0', "1", usize::from(digits.len() > 1));
        [digits, same_length, fill(text, number, true)]
    }
}

/// Writes a number in place of the digits and, if wanted, the letters of a text.
fn fill(text: &str, number: usize, replaces_letters: bool) -> String {
    let (mut digits, mut letters) = (number, number);
    let mut filled: Vec<_> = text.chars().collect();
    for place in filled.iter_mut().rev() {
        let letter = |first: u8, rest: &mut usize| {
            let letter = char::from(first + u8::try_from(*rest % 26).unwrap_or(0));
            *rest /= 26;
            letter
        };
        *place = match *place {
            '0'..='9' => {
                let digit = char::from(b'0' + u8::try_from(digits % 10).unwrap_or(0));
                digits /= 10;
                digit
            }
            'A'..='Z' if replaces_letters => letter(b'A', &mut letters),
            one if replaces_letters && one.is_alphabetic() => letter(b'a', &mut letters),
            one => one,
        };
    }
    filled.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::Placeholders;

    #[test]
    fn the_same_text_has_the_same_placeholder_of_its_form() {
        let mut placeholders = Placeholders::default();
        let first = placeholders.of_same_form("C-1815");
        assert_eq!(first, ["C-0001", "C-1001", "B-0001"]);
        assert_eq!(placeholders.of_same_form("C-1816"), ["C-0002", "C-1002", "C-0002"]);
        assert_eq!(placeholders.of_same_form("C-1815"), first);
        assert_eq!(placeholders.of_same_form("Ada")[2], "Aad");
    }
}
