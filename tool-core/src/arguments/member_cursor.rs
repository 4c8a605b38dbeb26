//! Arguments in the order of the parameters, as models write them: each is read where it stands, and the text once.

use crate::arguments::Parameter;

/// A place in the text of an object, between its members. It is lost where anything else stands than was looked for:
/// then the text has to be read in another way.
#[derive(Debug)]
pub(crate) struct InOrder<'a> {
    /// The text from the next name on; empty behind the last member.
    rest: Option<&'a str>,
}

impl<'a> InOrder<'a> {
    /// In front of the first member.
    pub(crate) fn new(text: &'a str) -> Self {
        let inside = without_blanks(text).strip_prefix('{').map(without_blanks);
        Self {
            rest: inside.and_then(|inside| if inside.starts_with('"') { Some(inside) } else { end(inside) }),
        }
    }

    /// The text from the value of this parameter on, if that is the next member, and its name is written as it is.
    #[inline]
    pub(crate) fn value_of(&self, parameter: &Parameter) -> Option<&'a str> {
        let rest = self.rest.filter(|_| parameter.is_plain)?;
        let rest = rest.strip_prefix('"')?.strip_prefix(parameter.name)?.strip_prefix('"')?;
        without_blanks(rest).strip_prefix(':').map(without_blanks)
    }

    /// Goes on behind a value, from where the rest of the text begins.
    #[inline]
    pub(crate) fn go_on(&mut self, rest: &'a str) {
        let rest = without_blanks(rest);
        self.rest = match rest.strip_prefix(',') {
            Some(rest) => Some(without_blanks(rest)).filter(|rest| rest.starts_with('"')),
            None => end(rest),
        };
    }

    /// There is nothing behind the last value that was passed.
    pub(crate) fn is_over(&self) -> bool {
        self.rest == Some("")
    }

    pub(crate) fn lose(&mut self) {
        self.rest = None;
    }
}

/// Behind the end of an object, if nothing follows it.
fn end(text: &str) -> Option<&str> {
    text.strip_prefix('}').map(without_blanks).filter(|rest| rest.is_empty())
}

/// The text without the blanks of JSON in front of it.
fn without_blanks(text: &str) -> &str {
    let blanks = text.bytes().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
    text.get(blanks..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of `a` and `b`, in this order, and whether nothing else is there.
    fn read(text: &str) -> (Vec<&str>, bool) {
        let mut place = InOrder::new(text);
        let mut values = Vec::new();
        for parameter in [Parameter::new::<u8>("a", None, true), Parameter::new::<u8>("b", None, true)] {
            if let Some(text) = place.value_of(&parameter) {
                let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
                values.push(&text[..end]);
                place.go_on(&text[end..]);
            }
        }
        (values, place.is_over())
    }

    #[test]
    fn members_in_order_and_nothing_else() {
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
        for (text, values, is_over) in table {
            assert_eq!(read(text), (values.to_vec(), *is_over), "{text}");
        }
    }

    #[test]
    fn a_name_that_needs_escapes_is_never_found() {
        for name in ["a\\n", "a\"", "a\n"] {
            let text = format!("{{\"{name}\":1}}");
            assert_eq!(InOrder::new(&text).value_of(&Parameter::new::<u8>(name, None, true)), None, "{text}");
        }
    }
}
