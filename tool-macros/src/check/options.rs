//! The options of tools and parameters: where each applies, and which values fit the types.

use syn::{Expr, ExprLit, ExprRange, Lit, RangeLimits, Type};

use super::literal::{Literal, ValueKind, source};
use crate::diagnostics::Diagnostics;
use crate::names::{LENGTH, RANGE};
use crate::parameter::{ModelParameter, ParameterType, option_argument};
use crate::tool_fn::ToolFn;

pub(super) fn check_options(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let is_async = tool.signature.asyncness.is_some();
    let options = &tool.options;
    if let Some(blocking) = options.blocking.as_ref().filter(|_| is_async) {
        let message = "`blocking` does not apply to an `async fn`; remove `blocking` or `async`";
        diagnostics.error(blocking, message);
    }
    if let Some(timeout) = options.timeout.as_ref().filter(|_| !is_async && options.blocking.is_none()) {
        let message = "`timeout` cannot interrupt a synchronous function; \
             write `async fn`, or add `blocking` so that the call ends while the function runs on";
        diagnostics.error_at(timeout.span, message);
    }
    if let Some(limit) = &options.max_output_chars
        && let Some(literal) = Literal::from_expr(limit)
        && !matches!(literal, Literal::Integer(1..))
    {
        let message = "`max_output_chars` must be a positive integer: `max_output_chars = 4000`";
        diagnostics.error(limit, message);
    }
    for parameter in tool.model_parameters() {
        check_required(parameter, diagnostics);
        check_default(parameter, diagnostics);
        check_range(parameter, diagnostics);
        check_length(parameter, diagnostics);
        check_pattern(parameter, diagnostics);
        check_example(parameter, diagnostics);
    }
}

fn check_required(parameter: &ModelParameter, diagnostics: &mut Diagnostics) {
    if let (Some(required), Some(_)) = (&parameter.options.required, &parameter.options.default)
        && required.value
    {
        let message = "a required parameter cannot have a default; remove `required = true` or `default`";
        diagnostics.error(required, message);
    }
}

fn check_default(parameter: &ModelParameter, diagnostics: &mut Diagnostics) {
    let Some(default) = &parameter.options.default else { return };
    let Some(literal) = Literal::from_expr(default) else { return };
    if let Some(inner) = optional_type(&parameter.ty) {
        let message = format!(
            "`default` must be an `Option`, like the parameter; write `Some({})`, or change the type to `{}`",
            source(default),
            quote::ToTokens::to_token_stream(inner),
        );
        diagnostics.error(default, message);
        return;
    }
    let Some((kind, name)) = ValueKind::from_parameter(&parameter.ty) else { return };
    if !literal.fits(kind) {
        diagnostics.error(default, mismatch("`default`", &literal, default, kind, &name));
    } else if let Some(number) = literal.as_number()
        && let Some(range) = &parameter.options.range
        && !contains(range, number)
    {
        diagnostics.error(default, "`default` is outside of `range`; change one of the two");
    }
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = default else { return };
    let length = text.value().chars().count();
    if parameter.options.length.as_ref().is_some_and(|limit| !contains(limit, length as f64)) {
        diagnostics.error(default, "the length of `default` is outside of `length`; change one of the two");
    }
    if let Some(pattern) = &parameter.options.pattern
        && regex_lite::Regex::new(&pattern.value()).is_ok_and(|regex| !regex.is_match(&text.value()))
    {
        diagnostics.error(default, "`default` does not match `pattern`; change one of the two");
    }
}

/// Returns the `T` of a parameter of type `Option<T>`.
fn optional_type(ty: &ParameterType) -> Option<&Type> {
    match ty {
        ParameterType::Owned(ty) => option_argument(ty),
        ParameterType::Borrowed { .. } => None,
    }
}

fn check_range(parameter: &ModelParameter, diagnostics: &mut Diagnostics) {
    let Some(range) = &parameter.options.range else { return };
    check_not_empty(RANGE, range, diagnostics);
    let Some((kind, name)) = ValueKind::from_parameter(&parameter.ty) else { return };
    if !matches!(kind, ValueKind::Integer { .. } | ValueKind::Float) {
        let instead = match kind {
            ValueKind::String | ValueKind::List => "write `length`",
            _ => "remove `range`",
        };
        diagnostics.error(range, format!("`range` applies to numbers, not to `{name}`; {instead}"));
        return;
    }
    for bound in bounds(range) {
        let Some(literal) = Literal::from_expr(bound) else { continue };
        if !literal.fits(kind) && !is_integer_for_float(&literal, kind) {
            diagnostics.error(bound, mismatch("each bound of `range`", &literal, bound, kind, &name));
            break;
        }
    }
}

fn check_length(parameter: &ModelParameter, diagnostics: &mut Diagnostics) {
    let Some(length) = &parameter.options.length else { return };
    check_not_empty(LENGTH, length, diagnostics);
    if let Some((kind, name)) = ValueKind::from_parameter(&parameter.ty)
        && !matches!(kind, ValueKind::String | ValueKind::List)
    {
        let instead = match kind {
            ValueKind::Integer { .. } | ValueKind::Float => "write `range`",
            _ => "remove `length`",
        };
        let message = format!("`length` applies to strings, lists and maps, not to `{name}`; {instead}");
        diagnostics.error(length, message);
        return;
    }
    for bound in bounds(length) {
        if let Some(literal) = Literal::from_expr(bound)
            && !matches!(literal, Literal::Integer(0..))
        {
            let message = "each bound of `length` must be a non-negative integer: `length = 1..=64`";
            diagnostics.error(bound, message);
        }
    }
}

fn check_pattern(parameter: &ModelParameter, diagnostics: &mut Diagnostics) {
    let Some(pattern) = &parameter.options.pattern else { return };
    if let Some((kind, name)) = ValueKind::from_parameter(&parameter.ty)
        && kind != ValueKind::String
    {
        let message = format!("`pattern` applies to strings, not to `{name}`; remove `pattern`");
        diagnostics.error(pattern, message);
    }
}

fn check_example(parameter: &ModelParameter, diagnostics: &mut Diagnostics) {
    let Some(example) = &parameter.options.example else { return };
    let (Some(literal), Some((kind, name))) =
        (Literal::from_expr(example), ValueKind::from_parameter(&parameter.ty))
    else {
        return;
    };
    if !literal.fits(kind) && !is_integer_for_float(&literal, kind) {
        diagnostics.error(example, mismatch("`example`", &literal, example, kind, &name));
    }
}

/// Returns `true` for an integer where floats are expected, which is accepted outside of defaults.
fn is_integer_for_float(literal: &Literal, kind: ValueKind) -> bool {
    kind == ValueKind::Float && matches!(literal, Literal::Integer(_))
}

/// Returns the message for a literal that does not fit the parameter's type.
fn mismatch(subject: &str, literal: &Literal, expression: &Expr, kind: ValueKind, type_name: &str) -> String {
    let source = source(expression);
    let (expected, instead) = match (literal, kind) {
        (Literal::Integer(_), ValueKind::Float) => (String::from("a float"), format!("; write `{source}.0`")),
        (Literal::Integer(_) | Literal::Float(_), ValueKind::String) => {
            (String::from("a string"), format!("; write `\"{source}\"`"))
        }
        _ => (kind.describe(), String::new()),
    };
    format!("{subject} must be {expected} for the type `{type_name}`{instead}")
}

/// Reports a range without values.
fn check_not_empty(option: &str, range: &ExprRange, diagnostics: &mut Diagnostics) {
    let (Some(start), Some(end)) = (&range.start, &range.end) else { return };
    let number = |bound: &Expr| Literal::from_expr(bound)?.as_number();
    let (Some(lowest), Some(highest)) = (number(start), number(end)) else { return };
    if lowest > highest {
        let limits = match range.limits {
            RangeLimits::Closed(_) => "..=",
            RangeLimits::HalfOpen(_) => "..",
        };
        let (start, end) = (source(start), source(end));
        let message =
            format!("`{option}` is empty; write the lower bound first: `{option} = {end}{limits}{start}`");
        diagnostics.error(range, message);
    } else if lowest == highest && matches!(range.limits, RangeLimits::HalfOpen(_)) {
        let (start, end) = (source(start), source(end));
        let message = format!("`{option}` is empty; include the upper bound: `{option} = {start}..={end}`");
        diagnostics.error(range, message);
    }
}

fn bounds(range: &ExprRange) -> impl Iterator<Item = &Expr> {
    range.start.iter().chain(&range.end).map(|bound| &**bound)
}

/// Returns `false` if a literal bound excludes the number.
fn contains(range: &ExprRange, number: f64) -> bool {
    let bound = |bound: &Option<Box<Expr>>| Literal::from_expr(bound.as_deref()?)?.as_number();
    let is_below = |highest: f64| match range.limits {
        RangeLimits::Closed(_) => number <= highest,
        RangeLimits::HalfOpen(_) => number < highest,
    };
    bound(&range.start).is_none_or(|lowest| lowest <= number) && bound(&range.end).is_none_or(is_below)
}
