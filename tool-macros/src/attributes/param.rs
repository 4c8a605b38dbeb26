//! `#[param(…)]`

use syn::{Attribute, Expr, ExprRange, LitBool, LitStr, Meta};

use super::words::Words;
use crate::diagnostics::Diagnostics;
use crate::names::{DEFAULT, EXAMPLE, LENGTH, NAME, PARAM, PARAM_WORDS, PATTERN, RANGE, REQUIRED};

/// `#[param("description", required = false, range = 1..=100, …)]`
#[derive(Default)]
pub(crate) struct ParamAttribute {
    pub(crate) description: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) required: Option<LitBool>,
    pub(crate) default: Option<Expr>,
    pub(crate) range: Option<ExprRange>,
    pub(crate) length: Option<ExprRange>,
    pub(crate) pattern: Option<LitStr>,
    pub(crate) example: Option<Expr>,
}

impl ParamAttribute {
    pub(crate) fn from_attribute(attribute: &Attribute, diagnostics: &mut Diagnostics) -> Self {
        let words = match &attribute.meta {
            Meta::Path(_) => Ok(Words::default()),
            Meta::List(list) => list.parse_args::<Words>(),
            Meta::NameValue(meta) => Err(syn::Error::new_spanned(
                &meta.value,
                "write the description in parentheses: `#[param(\"…\")]`",
            )),
        };
        let words = words.unwrap_or_else(|error| {
            diagnostics.push(error);
            Words::default()
        });
        words.check(PARAM, PARAM_WORDS, diagnostics);
        Self {
            description: words.description(diagnostics),
            name: words.string(NAME, diagnostics),
            required: words.boolean(REQUIRED, diagnostics),
            default: words.expression(DEFAULT, "default = 10", diagnostics),
            range: words.range(RANGE, "1..=100", diagnostics),
            length: words.range(LENGTH, "1..=64", diagnostics),
            pattern: words.string(PATTERN, diagnostics).filter(|text| is_pattern(text, diagnostics)),
            example: words.expression(EXAMPLE, "example = \"Rome\"", diagnostics),
        }
    }
}

/// The same engine will match it.
fn is_pattern(text: &LitStr, diagnostics: &mut Diagnostics) -> bool {
    match regex_lite::Regex::new(&text.value()) {
        Ok(_) => true,
        Err(error) => {
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default();
            let message = format!("the pattern is no regular expression: {}", reason.trim());
            diagnostics.error(text, message);
            false
        }
    }
}
