//! A cursor over the members of an object that are in the order of the parameters, as models usually write them. Each
//! value is parsed in place, so the text is read only once.

use crate::arguments::Parameter;

/// A position between the members of the text of an object. It becomes invalid where the text is not as expected; then the
/// text must be read in another way.
#[derive(Debug)]
pub(crate) struct MemberCursor<'a> {
    /// The text from the next name on, empty after the last member, `None` if the cursor is invalid.
    rest: Option<&'a str>,
}

impl<'a> MemberCursor<'a> {
    /// Creates a cursor in front of the first member.
    pub(crate) fn new(text: &'a str) -> Self {
        let inside = skip_whitespace(text).strip_prefix('{').map(skip_whitespace);
        Self {
            rest: inside.and_then(|inside| if inside.starts_with('"') { Some(inside) } else { end(inside) }),
        }
    }

    /// Returns the text from the value of this parameter on, if the parameter is the next member and its name is written
    /// without escapes.
    #[inline]
    pub(crate) fn value_of(&self, parameter: &Parameter) -> Option<&'a str> {
        let rest = self.rest.filter(|_| parameter.is_plain)?;
        let rest = rest.strip_prefix('"')?.strip_prefix(parameter.name)?.strip_prefix('"')?;
        skip_whitespace(rest).strip_prefix(':').map(skip_whitespace)
    }

    /// Moves behind a value, given the rest of the text after it.
    #[inline]
    pub(crate) fn advance(&mut self, rest: &'a str) {
        let rest = skip_whitespace(rest);
        self.rest = match rest.strip_prefix(',') {
            Some(rest) => Some(skip_whitespace(rest)).filter(|rest| rest.starts_with('"')),
            None => end(rest),
        };
    }

    /// Returns `true` if the object ends after the last value.
    pub(crate) fn is_at_end(&self) -> bool {
        self.rest == Some("")
    }

    /// Makes the cursor invalid.
    pub(crate) fn invalidate(&mut self) {
        self.rest = None;
    }
}

/// Returns the empty rest of the text after the end of an object, or `None` if anything else follows.
fn end(text: &str) -> Option<&str> {
    text.strip_prefix('}').map(skip_whitespace).filter(|rest| rest.is_empty())
}

/// Removes JSON whitespace at the beginning of the text.
fn skip_whitespace(text: &str) -> &str {
    let length = text.bytes().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
    text.get(length..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the values of `a` and `b`, in this order, and whether the object has no other members.
    fn read(text: &str) -> (Vec<&str>, bool) {
        let mut cursor = MemberCursor::new(text);
        let mut values = Vec::new();
        for parameter in [Parameter::new::<u8>("a", None, true), Parameter::new::<u8>("b", None, true)] {
            if let Some(text) = cursor.value_of(&parameter) {
                let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
                values.push(&text[..end]);
                cursor.advance(&text[end..]);
            }
        }
        (values, cursor.is_at_end())
    }

    #[test]
    fn reads_members_in_order() {
        let table: &[(&str, &[&str], bool)] = &[
            (r#"{"a":1,"b":2}"#, &["1", "2"], true),
            (" {\n\"a\"\t: 1 ,\r\"b\" :2 } \n", &["1", "2"], true),
            (r#"{"b":2}"#, &["2"], true),
            ("{}", &[], true),
            (" { } ", &[], true),
            (r#"{"b":2,"a":1}"#, &["2"], false),
            (r#"{"a":1,"a":1,"b":2}"#, &["1"], false),
            (r#"{"a":1,"b":2,"c":3}"#, &["1", "2"], false),
            (r#"{"\u0061":1,"b":2}"#, &[], false),
            (r#"{"a":1,"b":2,}"#, &["1", "2"], false),
            (r#"{"a":1 "b":2}"#, &["1"], false),
            (r#"{"a":1,,"b":2}"#, &["1"], false),
            (r#"{,"a":1}"#, &[], false),
            (r#"{"a":1}}"#, &["1"], false),
            (r#"{"a":1} x"#, &["1"], false),
            (r#"{"a":1"#, &["1"], false),
            (r#"{"a" 1}"#, &[], false),
            ("{\u{c}}", &[], false),
            (r#"["a":1]"#, &[], false),
            ("{", &[], false),
            ("null", &[], false),
            ("", &[], false),
        ];
        for (text, values, is_at_end) in table {
            assert_eq!(read(text), (values.to_vec(), *is_at_end), "{text}");
        }
    }

    #[test]
    fn names_with_escapes_are_not_found() {
        for name in ["a\\n", "a\"", "a\n"] {
            let text = format!("{{\"{name}\":1}}");
            assert_eq!(
                MemberCursor::new(&text).value_of(&Parameter::new::<u8>(name, None, true)),
                None,
                "{text}"
            );
        }
    }
}
