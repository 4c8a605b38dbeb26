//! The names of a tool and of its parameters.

use std::collections::HashMap;

use proc_macro2::Span;

use crate::diagnostics::Diagnostics;
use crate::names::{MAX_TOOL_NAME_LEN, NAME, PRIMITIVE_TYPES, UNDO};
use crate::parameter::ModelParameter;
use crate::tool_fn::ToolFn;

/// Checks that the providers accept the name: <https://platform.openai.com/docs/api-reference/chat/create>.
/// A constant is checked when it is evaluated.
pub(super) fn check_name(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let fix = |value: &str| match tool.name.is_explicit {
        true => format!("`{NAME} = \"{value}\"`"),
        false => format!("`#[tool({NAME} = \"{value}\")]`"),
    };
    if tool.name.constant.is_none() {
        check_tool_name(&tool.name.text, tool.name.span, fix, diagnostics);
    }
    let ident = &tool.signature.ident;
    if !tool.is_method && PRIMITIVE_TYPES.iter().any(|primitive| ident == primitive) {
        let message = format!(
            "a tool named `{ident}` would shadow the type `{ident}`; \
             rename the function and keep the name for the model: `#[tool(name = \"{ident}\")]`"
        );
        diagnostics.error(ident, message);
    }
}

/// Checks the name of the tool that undoes this one.
pub(super) fn check_undo(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let Some(undo) = &tool.options.undo else { return };
    let text = undo.value();
    if text == tool.name.text {
        diagnostics.error(undo, "a tool cannot undo itself; write the name of another tool: `undo = \"…\"`");
    } else {
        check_tool_name(&text, undo.span(), |value| format!("`{UNDO} = \"{value}\"`"), diagnostics);
    }
}

/// Checks that a text can be the name of a tool. `fix` shows how to write a given name.
fn check_tool_name(text: &str, span: Span, fix: impl Fn(&str) -> String, diagnostics: &mut Diagnostics) {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.is_empty() {
        diagnostics.error_at(span, format!("the name of a tool must not be empty: {}", fix("…")));
    } else if let Some(wrong) = text.chars().find(|c| !is_allowed(*c)) {
        let allowed: String = text.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
        let wrong = if wrong == ' ' { String::from("a space") } else { format!("`{wrong}`") };
        let message = format!(
            "{wrong} is not allowed in the name of a tool; use ASCII letters, digits, `_` and `-`: {}",
            fix(&allowed)
        );
        diagnostics.error_at(span, message);
    } else if text.len() > MAX_TOOL_NAME_LEN {
        let message = format!(
            "the name of a tool has at most {MAX_TOOL_NAME_LEN} characters, but this one has {}; write a shorter one: {}",
            text.len(),
            fix("…")
        );
        diagnostics.error_at(span, message);
    }
}

/// Checks that no parameter name is empty or taken.
pub(super) fn check_parameter_names(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let mut earlier: HashMap<&str, bool> = HashMap::new();
    for ModelParameter { name, .. } in tool.model_parameters() {
        if name.is_explicit && name.text.is_empty() {
            diagnostics.error_at(name.span, "the name of a parameter must not be empty: `name = \"…\"`");
        }
        // rustc reports two identifiers of the same name itself.
        let is_ours = earlier.insert(&name.text, name.is_explicit).map(|other| other || name.is_explicit);
        if is_ours == Some(true) && !name.text.is_empty() {
            let message =
                format!("two parameters are named `{}`; rename one: `#[param(name = \"…\")]`", name.text);
            diagnostics.error_at(name.span, message);
        }
    }
}
