//! Templates: texts with placeholders for the parameters of a method.

/// A piece of a template.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    /// `{name}`, or `{name:?}` if `is_debug`
    Placeholder {
        name: String,
        is_debug: bool,
        line: usize,
    },
}

/// A mistake in a template.
#[derive(Debug, PartialEq)]
pub(crate) struct TemplateError {
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// Parses a template. `example` is the name of a parameter, for messages.
///
/// `{{` and `}}` are braces. Nothing is parsed after the first mistake, because it is unclear where the next placeholder begins.
pub(crate) fn parse(template: &str, example: &str) -> Result<Vec<Piece>, TemplateError> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    let line_of = |rest: &str| 1 + template[..template.len() - rest.len()].matches('\n').count();
    while let Some(position) = rest.find(['{', '}']) {
        text.push_str(&rest[..position]);
        rest = &rest[position..];
        let line = line_of(rest);
        if let Some(brace) = ["{{", "}}"].into_iter().find(|brace| rest.starts_with(brace)) {
            text.push_str(&brace[1..]);
            rest = &rest[2..];
            continue;
        }
        let error = |message| Err(TemplateError { line, message });
        if rest.starts_with('}') {
            return error(format!(
                "unmatched `}}` in the template; write `}}}}` for a brace, or `{{{example}}}` for a placeholder"
            ));
        }
        let inside = &rest[1..];
        let end = inside.find(['{', '}']).filter(|end| inside[*end..].starts_with('}'));
        let Some(end) = end else {
            return error(format!(
                "unclosed `{{` in the template; write `{{{{` for a brace, or `{{{example}}}` for a placeholder"
            ));
        };
        let (inside, after) = (&inside[..end], &inside[end + 1..]);
        match parse_placeholder(inside) {
            Some((name, is_debug)) => {
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(Piece::Placeholder { name, is_debug, line });
            }
            None if inside.trim().is_empty() => {
                return error(format!("a placeholder needs the name of a parameter: `{{{example}}}`"));
            }
            None => {
                return error(format!(
                    "`{{{inside}}}` is not a placeholder; write `{{{example}}}` or `{{{example}:?}}`, and `{{{{` and `}}}}` for braces"
                ));
            }
        }
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// Parses `name` or `name:?`.
fn parse_placeholder(inside: &str) -> Option<(String, bool)> {
    let (name, is_debug) = match inside.strip_suffix(":?") {
        Some(name) => (name, true),
        None => (inside, false),
    };
    let name = name.strip_prefix("r#").unwrap_or(name);
    // A keyword is the name of a raw identifier.
    let is_name = name.starts_with(|c: char| c == '_' || c.is_alphabetic())
        && name.chars().all(|c| c == '_' || c.is_alphanumeric());
    is_name.then(|| (name.to_owned(), is_debug))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn placeholder(name: &str, is_debug: bool, line: usize) -> Piece {
        Piece::Placeholder { name: name.to_owned(), is_debug, line }
    }

    #[test]
    fn parses_placeholders_and_braces() {
        let table = [
            ("", vec![]),
            ("{a}", vec![placeholder("a", false, 1)]),
            (
                "x {a}{b:?} y",
                vec![text("x "), placeholder("a", false, 1), placeholder("b", true, 1), text(" y")],
            ),
            ("{{a}} {{{a}}}", vec![text("{a} {"), placeholder("a", false, 1), text("}")]),
            ("one\ntwo {type}", vec![text("one\ntwo "), placeholder("type", false, 2)]),
            ("ß{ä}", vec![text("ß"), placeholder("ä", false, 1)]),
        ];
        for (template, pieces) in table {
            assert_eq!(parse(template, "city").unwrap(), pieces, "{template}");
        }
    }

    #[test]
    fn refuses_everything_else_in_braces() {
        let table = [
            ("{", "unclosed `{`"),
            ("a {b", "unclosed `{`"),
            ("{\"a\": {\"b\": 1}}", "unclosed `{`"),
            ("a } b", "unmatched `}`"),
            ("{}", "a placeholder needs the name of a parameter: `{city}`"),
            ("{ a }", "`{ a }` is not a placeholder"),
            ("{0}", "`{0}` is not a placeholder"),
            ("{a.b}", "`{a.b}` is not a placeholder"),
            ("{a:>5}", "`{a:>5}` is not a placeholder"),
            ("{\"a\": 1}", "`{\"a\": 1}` is not a placeholder"),
        ];
        for (template, message) in table {
            let error = parse(template, "city").unwrap_err();
            assert!(error.message.starts_with(message), "{template}: {}", error.message);
        }
        assert_eq!(parse("a\n\n{", "city").unwrap_err().line, 3);
    }
}
