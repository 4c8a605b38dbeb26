//! What `call!` expands to: its checks at compile time, and the pattern.

use std::borrow::Cow;

use super::text::{Text, is_equal};
use crate::arguments::private::{Parameter, ParameterKind};
use crate::tool::CallPattern;
use crate::tool::private::{Members, Signature};

/// Creates the pattern of `call!(..)`.
#[must_use]
pub fn call_pattern(
    name: impl Into<Cow<'static, str>>,
    text: &'static str,
    members: Option<Members>,
) -> CallPattern {
    CallPattern::new(name, text, members)
}

/// Returns a list. Generated code calls no method of a trait, which need not be in scope.
#[must_use]
pub fn list<T, const N: usize>(items: [T; N]) -> Vec<T> {
    Vec::from(items)
}

/// Returns a text as the bound of a range.
#[must_use]
pub fn text(text: &str) -> String {
    text.to_owned()
}

/// Returns the name of a tool.
#[must_use]
pub const fn name_of(tool: &Signature) -> &'static str {
    tool.name
}

/// Checks at compile time that a tool has this parameter.
///
/// # Panics
///
/// Panics if it has not. The message names the parameters.
pub const fn refuse_unknown(tool: &Signature, name: &str) {
    let Some(parameters) = tool.parameters else { return };
    if position_of(parameters, name) < parameters.len() {
        return;
    }
    let mut text = Text::EMPTY;
    text.push("the tool `");
    text.push(tool.name);
    text.push("` has no parameter `");
    text.push(name);
    if parameters.is_empty() {
        text.push("`, and no other; remove it");
    } else {
        text.push("`; it has ");
        let mut i = 0;
        while i < parameters.len() {
            text.push(if i > 0 { ", `" } else { "`" });
            text.push(parameters[i].name);
            text.push("`");
            i += 1;
        }
    }
    panic!("{}", text.as_str());
}

/// Checks at compile time that a parameter can have a value of this kind. One that the tool does not have is not refused again.
///
/// # Panics
///
/// Panics if it cannot.
pub const fn refuse_kind(tool: &Signature, name: &str, written: ParameterKind) {
    use ParameterKind as Kind;

    let Some(parameters) = tool.parameters else { return };
    let position = position_of(parameters, name);
    if position == parameters.len() {
        return;
    }
    let kind = parameters[position].kind;
    let fits = match (kind, written) {
        (Kind::Other, _) | (_, Kind::Other) | (Kind::Number, Kind::Integer) => true,
        (kind, written) => kind as u8 == written as u8,
    };
    if !fits {
        let mut text = Text::EMPTY;
        text.push("`");
        text.push(name);
        text.push("` of the tool `");
        text.push(tool.name);
        text.push("` is ");
        text.push(describe(kind));
        text.push(", so it never is ");
        text.push(match written {
            Kind::Number => "a number with a fraction",
            _ => describe(written),
        });
        text.push("; write ");
        text.push(describe(kind));
        text.push(", or `_` for any");
        panic!("{}", text.as_str());
    }
}

const fn describe(kind: ParameterKind) -> &'static str {
    match kind {
        ParameterKind::Bool => "a truth value",
        ParameterKind::Integer => "an integer",
        ParameterKind::Number => "a number",
        ParameterKind::Text => "a text",
        ParameterKind::List => "a list",
        ParameterKind::Object => "an object",
        ParameterKind::Other => "any value",
    }
}

/// Checks at compile time that a pattern without `..` has all required parameters of a tool.
///
/// # Panics
///
/// Panics if it has not.
pub const fn refuse_missing(tool: &Signature, names: &[&str]) {
    let Some(parameters) = tool.parameters else { return };
    let mut i = 0;
    while i < parameters.len() {
        let Parameter { name, is_required, .. } = parameters[i];
        let mut position = 0;
        while position < names.len() && !is_equal(names[position], name) {
            position += 1;
        }
        if is_required && position == names.len() {
            let mut text = Text::EMPTY;
            text.push("the tool `");
            text.push(tool.name);
            text.push("` requires `");
            text.push(name);
            text.push("`, which the pattern does not have; write `");
            text.push(name);
            text.push(": _`, or `..` at the end for all other parameters");
            panic!("{}", text.as_str());
        }
        i += 1;
    }
}

/// Returns the position of a parameter, or their number if there is none of this name.
const fn position_of(parameters: &[Parameter], name: &str) -> usize {
    let mut i = 0;
    while i < parameters.len() && !is_equal(parameters[i].name, name) {
        i += 1;
    }
    i
}
