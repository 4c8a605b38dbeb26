//! `#[tool(…)]`

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Path};

use super::options::{Options, default_crate};
use crate::diagnostics::Diagnostics;
use crate::names::{
    AT_MOST_ONCE, ATTEMPTS, BLOCKING, CONVERT, CRATE, DEFERRED, EXCLUSIVE, KEEP_OUTPUT, MAX_ATTEMPTS,
    MAX_OUTPUT_CHARS, NAME, NEEDS_APPROVAL, PURE, RETURN_DIRECT, RETURN_DIRECT_VALUES, STRICT, TIMEOUT, TOOL,
    TOOL_OPTIONS, UNDO,
};

/// `#[tool("description", name = "…", timeout = "5s", …)]`
pub(crate) struct ToolAttribute {
    pub(crate) description: Option<Expr>,
    pub(crate) name: Option<Expr>,
    pub(crate) krate: Path,
    /// The name of the option `crate`, if it is given.
    pub(crate) crate_option: Option<Ident>,
    /// One of `RETURN_DIRECT_VALUES`.
    pub(crate) return_direct: Option<&'static str>,
    pub(crate) blocking: Option<Ident>,
    pub(crate) strict: Option<Ident>,
    pub(crate) needs_approval: Option<Ident>,
    pub(crate) exclusive: Option<Ident>,
    pub(crate) at_most_once: Option<Ident>,
    pub(crate) pure: Option<Ident>,
    pub(crate) keep_output: Option<Ident>,
    pub(crate) deferred: Option<Ident>,
    pub(crate) attempts: Option<u32>,
    pub(crate) undo: Option<LitStr>,
    pub(crate) timeout: Option<Timeout>,
    pub(crate) convert: Option<Path>,
    pub(crate) max_output_chars: Option<Expr>,
    /// The names of all options in source order.
    pub(crate) names: Vec<Ident>,
}

/// `timeout = "5s"`
pub(crate) struct Timeout {
    pub(crate) milliseconds: u64,
    pub(crate) span: Span,
}

impl ToolAttribute {
    pub(crate) fn parse(tokens: TokenStream, diagnostics: &mut Diagnostics) -> Self {
        let options: Options = diagnostics.recover(syn::parse2(tokens));
        options.check(TOOL, TOOL_OPTIONS, diagnostics);
        Self {
            description: options.description(TOOL, diagnostics),
            name: options.string_or_constant(NAME, "\"…\"", diagnostics),
            krate: options
                .quoted_path(CRATE, "\"my_crate::tool_core\"", diagnostics)
                .unwrap_or_else(default_crate),
            crate_option: options.name_of(CRATE),
            return_direct: options.choice(RETURN_DIRECT, RETURN_DIRECT_VALUES, diagnostics),
            blocking: options.flag(BLOCKING, diagnostics),
            strict: options.flag(STRICT, diagnostics),
            needs_approval: options.flag(NEEDS_APPROVAL, diagnostics),
            exclusive: options.flag(EXCLUSIVE, diagnostics),
            at_most_once: options.flag(AT_MOST_ONCE, diagnostics),
            pure: options.flag(PURE, diagnostics),
            keep_output: options.flag(KEEP_OUTPUT, diagnostics),
            deferred: options.flag(DEFERRED, diagnostics),
            attempts: options
                .expression(ATTEMPTS, "3", diagnostics)
                .and_then(|count| parse_attempts(&count, diagnostics)),
            undo: options.string(UNDO, "\"…\"", diagnostics),
            timeout: options
                .string(TIMEOUT, "\"5s\"", diagnostics)
                .and_then(|text| Timeout::parse(&text, diagnostics)),
            convert: options.path(CONVERT, "as_table", diagnostics),
            max_output_chars: options.expression(MAX_OUTPUT_CHARS, "4000", diagnostics),
            names: options.names(),
        }
    }
}

/// Returns the value of `attempts`, which must be an integer literal.
fn parse_attempts(count: &Expr, diagnostics: &mut Diagnostics) -> Option<u32> {
    let number = match count {
        Expr::Lit(ExprLit { lit: Lit::Int(integer), .. }) if integer.suffix().is_empty() => {
            integer.base10_parse().ok()
        }
        _ => None,
    };
    match number {
        Some(1..=MAX_ATTEMPTS) => return number,
        Some(0) => diagnostics.error(
            count,
            "`attempts` must be at least 1 because the first attempt counts; \
             write `attempts = 1`, or remove the option",
        ),
        _ => diagnostics.error(
            count,
            format!("`attempts` must be an integer literal from 1 to {MAX_ATTEMPTS}: `attempts = 3`"),
        ),
    }
    None
}

impl Timeout {
    fn parse(text: &LitStr, diagnostics: &mut Diagnostics) -> Option<Self> {
        let Some(milliseconds) = parse_milliseconds(&text.value()) else {
            let message = "`timeout` must be a number followed by `ms`, `s`, `m` or `h`: `timeout = \"5s\"`";
            diagnostics.error(text, message);
            return None;
        };
        if milliseconds == 0 {
            diagnostics.error(text, "`timeout` must be greater than zero: `timeout = \"5s\"`");
            return None;
        }
        Some(Self { milliseconds, span: text.span() })
    }
}

fn parse_milliseconds(text: &str) -> Option<u64> {
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
    use super::parse_milliseconds;

    #[test]
    fn timeouts_have_a_unit() {
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
            assert_eq!(parse_milliseconds(text), expected, "{text}");
        }
    }
}
