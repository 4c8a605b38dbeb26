//! The names of a tool and of its parameters.

use std::collections::HashMap;

use proc_macro2::Span;

use crate::diagnostics::Diagnostics;
use crate::input::Argument;
use crate::names::{LONGEST_TOOL_NAME, NAME, PRIMITIVE_TYPES, UNDO};
use crate::tool_fn::ToolFn;

/// What the providers accept: <https://platform.openai.com/docs/api-reference/chat/create>.
pub(super) fn check_name(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    check_text(&tool.name.text, tool.name.span, NAME, diagnostics);
    if tool.is_method {
        return;
    }
    let ident = &tool.signature.ident;
    let ident_text = ident.to_string();
    if PRIMITIVE_TYPES.contains(&&*ident_text) {
        let message = format!(
            "a tool named like the type `{ident}` would hide that type; \
             rename the function, and give it `#[tool(name = \"{ident}\")]` to keep the name for the model"
        );
        diagnostics.error(ident, message);
    }
}

/// The name of the tool that undoes another.
pub(super) fn check_undo(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let Some(undo) = &tool.words.undo else { return };
    let text = undo.value();
    if text == tool.name.text {
        let message = "a tool cannot undo itself; write the name of the tool that undoes what this one does";
        diagnostics.error(undo, message);
    } else {
        check_text(&text, undo.span(), UNDO, diagnostics);
    }
}

/// It is a name for a tool; `word` is the one that it is given by.
fn check_text(text: &str, span: Span, word: &str, diagnostics: &mut Diagnostics) {
    let is_right = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.is_empty() {
        diagnostics.error_at(span, "a tool needs a name: one letter at least");
    } else if let Some(wrong) = text.chars().find(|c| !is_right(*c)) {
        let accepted: String = text.chars().map(|c| if is_right(c) { c } else { '_' }).collect();
        let message = format!(
            "a tool's name has ASCII letters, digits, `_` and `-` only, not `{wrong}`; \
             choose another, such as `{word} = \"{accepted}\"`"
        );
        diagnostics.error_at(span, message);
    } else if text.len() > LONGEST_TOOL_NAME {
        let message = format!(
            "a tool's name has at most {LONGEST_TOOL_NAME} characters, not {}; choose a shorter one with `{word} = \"…\"`",
            text.len()
        );
        diagnostics.error_at(span, message);
    }
}

pub(super) fn check_argument_names(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let mut earlier: HashMap<&str, bool> = HashMap::new();
    for Argument { name, .. } in tool.arguments() {
        if name.is_explicit && name.text.is_empty() {
            diagnostics.error_at(name.span, "a parameter needs a name: one letter at least");
        }
        // Where the same identifier stands twice, rustc says so itself.
        let is_ours = earlier.insert(&name.text, name.is_explicit).map(|other| other || name.is_explicit);
        if is_ours == Some(true) && !name.text.is_empty() {
            diagnostics.error_at(
                name.span,
                format!("two parameters are named `{}`; choose another name", name.text),
            );
        }
    }
}
