//! The words of the attributes: where each has a meaning, and what it fits.

use syn::{Expr, ExprLit, ExprRange, Lit, RangeLimits, Type};

use super::literal::{Kind, Literal, written};
use crate::diagnostics::Diagnostics;
use crate::input::{Argument, ArgumentType, inside_option};
use crate::tool_fn::ToolFn;

pub(super) fn check_words(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let is_async = tool.signature.asyncness.is_some();
    let words = &tool.words;
    if let Some(blocking) = words.blocking.as_ref().filter(|_| is_async) {
        let message = "`blocking` has no meaning on an `async fn`; leave it out, or leave `async` out";
        diagnostics.error(blocking, message);
    }
    if let Some(timeout) = words.timeout.as_ref().filter(|_| !is_async && words.blocking.is_none()) {
        let message = "a function that is not `async` cannot be stopped; \
             write `async fn`, or add `blocking`, so that nobody waits for it any longer";
        diagnostics.error_at(timeout.span, message);
    }
    if let Some(limit) = &words.max_output_chars
        && let Some(literal) = Literal::of(limit)
        && !matches!(literal, Literal::Integer(1..))
    {
        diagnostics.error(limit, "`max_output_chars` is a number of characters: `max_output_chars = 4000`");
    }
    for argument in tool.arguments() {
        check_required(argument, diagnostics);
        check_default(argument, diagnostics);
        check_range(argument, diagnostics);
        check_length(argument, diagnostics);
        check_pattern(argument, diagnostics);
        check_example(argument, diagnostics);
    }
}

fn check_required(argument: &Argument, diagnostics: &mut Diagnostics) {
    if let (Some(required), Some(_)) = (&argument.required, &argument.default)
        && required.value
    {
        let message =
            "a parameter that is required needs no default; leave out `required = true` or `default`";
        diagnostics.error(required, message);
    }
}

fn check_default(argument: &Argument, diagnostics: &mut Diagnostics) {
    let Some(default) = &argument.default else { return };
    let Some(literal) = Literal::of(default) else { return };
    if let Some(inner) = optional(&argument.ty) {
        let message = format!(
            "`default` of another type: the parameter is an `Option`; write `Some({})`, or `{}` as the parameter's type",
            written(default),
            quote::ToTokens::to_token_stream(inner),
        );
        diagnostics.error(default, message);
        return;
    }
    let Some((kind, name)) = Kind::of(&argument.ty) else { return };
    if !literal.is_of(kind) {
        let message = not_of(&literal, default, kind, &name);
        diagnostics.error(default, format!("`default` of another type: {message}"));
    } else if let Some(number) = literal.number()
        && let Some(range) = &argument.range
        && !is_in(number, range)
    {
        diagnostics.error(default, "the default is outside of the `range`");
    }
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = default else { return };
    let length = text.value().chars().count();
    if argument.length.as_ref().is_some_and(|limit| !is_in(length as f64, limit)) {
        diagnostics.error(default, "the default is not of the `length` that is asked for");
    }
    if let Some(pattern) = &argument.pattern
        && regex_lite::Regex::new(&pattern.value()).is_ok_and(|regex| !regex.is_match(&text.value()))
    {
        diagnostics.error(default, "the default does not match the `pattern`");
    }
}

fn optional(ty: &ArgumentType) -> Option<&Type> {
    match ty {
        ArgumentType::Owned(ty) => inside_option(ty),
        ArgumentType::Borrowed { .. } => None,
    }
}

fn check_range(argument: &Argument, diagnostics: &mut Diagnostics) {
    let Some(range) = &argument.range else { return };
    check_order("range", range, diagnostics);
    let Some((kind, name)) = Kind::of(&argument.ty) else { return };
    if !matches!(kind, Kind::Integer { .. } | Kind::Float) {
        let instead = if matches!(kind, Kind::Text | Kind::List) { "write `length`" } else { "leave it out" };
        let message = format!("`range` has no meaning for a `{name}`, it is for numbers; {instead}");
        diagnostics.error(range, message);
        return;
    }
    for bound in bounds(range) {
        let Some(literal) = Literal::of(bound) else { continue };
        // A whole number is a bound of any number.
        let is_whole = kind == Kind::Float && matches!(literal, Literal::Integer(_));
        if !literal.is_of(kind) && !is_whole {
            let message = not_of(&literal, bound, kind, &name);
            diagnostics.error(bound, format!("the `range` does not fit: {message}"));
        }
    }
}

fn check_length(argument: &Argument, diagnostics: &mut Diagnostics) {
    let Some(length) = &argument.length else { return };
    check_order("length", length, diagnostics);
    if let Some((kind, name)) = Kind::of(&argument.ty)
        && !matches!(kind, Kind::Text | Kind::List)
    {
        let instead =
            if matches!(kind, Kind::Integer { .. } | Kind::Float) { "write `range`" } else { "leave it out" };
        let message =
            format!("`length` has no meaning for a `{name}`, it is for texts, lists and maps; {instead}");
        diagnostics.error(length, message);
        return;
    }
    for bound in bounds(length) {
        if let Some(literal) = Literal::of(bound)
            && !matches!(literal, Literal::Integer(0..))
        {
            diagnostics.error(bound, "a length is a whole number, and not negative");
        }
    }
}

fn check_pattern(argument: &Argument, diagnostics: &mut Diagnostics) {
    let Some(pattern) = &argument.pattern else { return };
    if let Some((kind, name)) = Kind::of(&argument.ty)
        && kind != Kind::Text
    {
        let message = format!("`pattern` has no meaning for a `{name}`, it is for texts; leave it out");
        diagnostics.error(pattern, message);
    }
}

fn check_example(argument: &Argument, diagnostics: &mut Diagnostics) {
    let Some(example) = &argument.example else { return };
    let (Some(literal), Some((kind, name))) = (Literal::of(example), Kind::of(&argument.ty)) else { return };
    let is_whole = kind == Kind::Float && matches!(literal, Literal::Integer(_));
    if !literal.is_of(kind) && !is_whole {
        let message = not_of(&literal, example, kind, &name);
        diagnostics.error(example, format!("`example` of another type: {message}"));
    }
}

/// What is wrong with a literal that is not of the parameter's kind.
fn not_of(literal: &Literal, expression: &Expr, kind: Kind, name: &str) -> String {
    let written = written(expression);
    match (literal, kind) {
        (Literal::Integer(_) | Literal::Float(_), Kind::Integer { lowest, highest }) => {
            format!("{written} is not a `{name}`, which goes from {lowest} to {highest}")
        }
        (Literal::Integer(_), Kind::Float) => {
            format!("the parameter is a `{name}`; write {written}.0")
        }
        _ => format!("the parameter is a `{name}`; write {}", kind.in_words()),
    }
}

/// Some value lies in the range.
fn check_order(word: &str, range: &ExprRange, diagnostics: &mut Diagnostics) {
    let number = |bound: &Option<Box<Expr>>| Literal::of(bound.as_deref()?)?.number();
    let (Some(lowest), Some(highest)) = (number(&range.start), number(&range.end)) else { return };
    let is_empty = match range.limits {
        RangeLimits::Closed(_) => lowest > highest,
        RangeLimits::HalfOpen(_) => lowest >= highest,
    };
    if is_empty {
        diagnostics.error(range, format!("nothing lies in this `{word}`; write the lower bound first"));
    }
}

fn bounds(range: &ExprRange) -> impl Iterator<Item = &Expr> {
    range.start.iter().chain(&range.end).map(|bound| &**bound)
}

fn is_in(number: f64, range: &ExprRange) -> bool {
    let bound = |bound: &Option<Box<Expr>>| Literal::of(bound.as_deref()?)?.number();
    let is_below = |highest: f64| match range.limits {
        RangeLimits::Closed(_) => number <= highest,
        RangeLimits::HalfOpen(_) => number < highest,
    };
    bound(&range.start).is_none_or(|lowest| lowest <= number) && bound(&range.end).is_none_or(is_below)
}
