//! `#[tool(…)]`

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Path};

use super::words::{Words, default_crate};
use crate::diagnostics::Diagnostics;
use crate::names::{
    ALWAYS, AT_MOST_ONCE, ATTEMPTS, BLOCKING, CONVERT, CRATE, EXCLUSIVE, IF_LAST, MAX_OUTPUT_CHARS,
    MOST_ATTEMPTS, NAME, NEEDS_APPROVAL, PURE, RETURN_DIRECT, RETURN_DIRECT_CHOICES, STRICT, TIMEOUT, TOOL,
    TOOL_WORDS, UNDO,
};

/// `#[tool("description", name = "…", timeout = "5s", …)]`
pub(crate) struct ToolAttribute {
    pub(crate) description: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) krate: Path,
    pub(crate) crate_is_given: bool,
    pub(crate) return_direct: Option<ReturnDirect>,
    pub(crate) blocking: Option<Ident>,
    pub(crate) strict: Option<Ident>,
    pub(crate) needs_approval: Option<Ident>,
    pub(crate) exclusive: Option<Ident>,
    pub(crate) at_most_once: Option<Ident>,
    pub(crate) pure: Option<Ident>,
    pub(crate) attempts: Option<u32>,
    pub(crate) undo: Option<LitStr>,
    pub(crate) timeout: Option<Timeout>,
    pub(crate) convert: Option<Path>,
    pub(crate) max_output_chars: Option<Expr>,
    /// All words, in the order in which they stand.
    pub(crate) order: Vec<Ident>,
}

/// `return_direct`, `return_direct = "if_last"`, `return_direct = "always"`
#[derive(Clone, Copy)]
pub(crate) enum ReturnDirect {
    IfAll,
    IfLast,
    Always,
}

/// `timeout = "5s"`
pub(crate) struct Timeout {
    pub(crate) milliseconds: u64,
    pub(crate) span: Span,
}

impl ToolAttribute {
    pub(crate) fn from_tokens(tokens: TokenStream, diagnostics: &mut Diagnostics) -> Self {
        let words = syn::parse2::<Words>(tokens).unwrap_or_else(|error| {
            diagnostics.push(error);
            Words::default()
        });
        words.check(TOOL, TOOL_WORDS, diagnostics);
        Self {
            description: words.description(diagnostics),
            name: words.string(NAME, diagnostics),
            krate: words.path_in_quotes(CRATE, diagnostics).unwrap_or_else(default_crate),
            crate_is_given: words.has(CRATE),
            return_direct: ReturnDirect::of(&words, diagnostics),
            blocking: words.flag(BLOCKING, diagnostics),
            strict: words.flag(STRICT, diagnostics),
            needs_approval: words.flag(NEEDS_APPROVAL, diagnostics),
            exclusive: words.flag(EXCLUSIVE, diagnostics),
            at_most_once: words.flag(AT_MOST_ONCE, diagnostics),
            pure: words.flag(PURE, diagnostics),
            attempts: words
                .expression(ATTEMPTS, "attempts = 3", diagnostics)
                .and_then(|count| attempts(&count, diagnostics)),
            undo: words.string(UNDO, diagnostics),
            timeout: words.string(TIMEOUT, diagnostics).and_then(|text| Timeout::parse(&text, diagnostics)),
            convert: words.path(CONVERT, diagnostics),
            max_output_chars: words.expression(MAX_OUTPUT_CHARS, "max_output_chars = 4000", diagnostics),
            order: words.order(),
        }
    }
}

impl ReturnDirect {
    fn of(words: &Words, diagnostics: &mut Diagnostics) -> Option<Self> {
        match words.choice(RETURN_DIRECT, RETURN_DIRECT_CHOICES, diagnostics)? {
            IF_LAST => Some(Self::IfLast),
            ALWAYS => Some(Self::Always),
            _ => Some(Self::IfAll),
        }
    }
}

/// How often a call is made at most.
fn attempts(count: &Expr, diagnostics: &mut Diagnostics) -> Option<u32> {
    let number = match count {
        Expr::Lit(ExprLit { lit: Lit::Int(integer), .. }) if integer.suffix().is_empty() => {
            integer.base10_parse().ok()
        }
        _ => None,
    };
    match number {
        Some(1..=MOST_ATTEMPTS) => return number,
        Some(0) => {
            diagnostics.error(count, "a call is made once at least; write more, or leave `attempts` out");
        }
        _ => {
            let message =
                format!("`attempts` is a number from 1 to {MOST_ATTEMPTS}, in digits: `attempts = 3`");
            diagnostics.error(count, message);
        }
    }
    None
}

impl Timeout {
    fn parse(text: &LitStr, diagnostics: &mut Diagnostics) -> Option<Self> {
        let Some(milliseconds) = milliseconds(&text.value()) else {
            let message = "a timeout is a number and a unit, `ms`, `s`, `m` or `h`: `timeout = \"5s\"`";
            diagnostics.error(text, message);
            return None;
        };
        if milliseconds == 0 {
            diagnostics.error(text, "a tool needs some time; write more, or leave `timeout` out");
            return None;
        }
        Some(Self { milliseconds, span: text.span() })
    }
}

fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "ms" => 1.0,
        "s" | "sec" => 1_000.0,
        "m" | "min" => 60_000.0,
        "h" => 3_600_000.0,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok().filter(|number: &f64| *number >= 0.0)?;
    let duration = Duration::try_from_secs_f64(number * factor / 1_000.0).ok()?;
    u64::try_from(duration.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn units_of_time() {
        let table = [
            ("5s", Some(5_000)),
            ("250 ms", Some(250)),
            ("1.5m", Some(90_000)),
            ("2h", Some(7_200_000)),
            (" 1 min ", Some(60_000)),
            ("0s", Some(0)),
            ("5", None),
            ("s", None),
            ("-1s", None),
            ("5 days", None),
            ("1e400s", None),
            ("5s 3ms", None),
        ];
        for (text, expected) in table {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
    }
}
