//! `#[param(…)]`

use syn::{Attribute, Expr, ExprRange, LitBool, LitStr};

use super::options::{Options, parse_arguments};
use crate::diagnostics::Diagnostics;
use crate::names::{DEFAULT, EXAMPLE, LENGTH, NAME, PARAM, PARAM_OPTIONS, PATTERN, RANGE, REQUIRED};

/// `#[param("description", required = false, range = 1..=100, …)]`
#[derive(Default)]
pub(crate) struct ParamAttribute {
    pub(crate) description: Option<Expr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) required: Option<LitBool>,
    pub(crate) default: Option<Expr>,
    pub(crate) range: Option<ExprRange>,
    pub(crate) length: Option<ExprRange>,
    pub(crate) pattern: Option<LitStr>,
    pub(crate) example: Option<Expr>,
}

impl ParamAttribute {
    pub(crate) fn parse(attribute: &Attribute, diagnostics: &mut Diagnostics) -> Self {
        let options: Options = diagnostics.recover(parse_arguments(attribute, PARAM, "description"));
        options.check(PARAM, PARAM_OPTIONS, diagnostics);
        Self {
            description: options.description(PARAM, diagnostics),
            name: options.string(NAME, "\"…\"", diagnostics),
            required: options.boolean(REQUIRED, diagnostics),
            default: options.expression(DEFAULT, "10", diagnostics),
            range: options.range(RANGE, "1..=100", diagnostics),
            length: options.range(LENGTH, "1..=64", diagnostics),
            pattern: options
                .string(PATTERN, "\"^[a-z]+$\"", diagnostics)
                .filter(|text| is_regex(text, diagnostics)),
            example: options.expression(EXAMPLE, "\"Rome\"", diagnostics),
        }
    }
}

/// Returns `true` if the engine that matches the pattern at run time can compile it.
fn is_regex(text: &LitStr, diagnostics: &mut Diagnostics) -> bool {
    match regex_lite::Regex::new(&text.value()) {
        Ok(_) => true,
        Err(error) => {
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default().trim();
            diagnostics.error(text, format!("`pattern` is not a valid regular expression: {reason}"));
            false
        }
    }
}
