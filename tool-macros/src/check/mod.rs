//! The rules that a tool must follow, each with its diagnostic.

mod literal;
mod name;
mod signature;
mod options;
mod conflicts;
pub(crate) mod assistant;

pub(crate) use self::signature::CONDITIONAL;
use crate::diagnostics::Diagnostics;
use crate::tool_fn::ToolFn;

pub(crate) fn check(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    signature::check_signature(tool, diagnostics);
    name::check_name(tool, diagnostics);
    name::check_undo(tool, diagnostics);
    name::check_parameter_names(tool, diagnostics);
    options::check_options(tool, diagnostics);
    conflicts::check_conflicts(tool, diagnostics);
}
