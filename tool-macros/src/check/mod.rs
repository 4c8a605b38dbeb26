//! The rules that a tool keeps, each with the words for who breaks it.

mod contradictions;
mod literal;
mod name;
mod signature;
mod words;

use crate::diagnostics::Diagnostics;
use crate::tool_fn::ToolFn;

pub(crate) fn check(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    signature::check_signature(tool, diagnostics);
    name::check_name(tool, diagnostics);
    name::check_undo(tool, diagnostics);
    name::check_argument_names(tool, diagnostics);
    words::check_words(tool, diagnostics);
    contradictions::check_contradictions(tool, diagnostics);
}
