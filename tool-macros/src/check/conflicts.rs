//! Options of a tool that exclude each other.

use syn::ext::IdentExt;

use crate::attributes::ToolAttribute;
use crate::diagnostics::Diagnostics;
use crate::names::{AT_MOST_ONCE, ATTEMPTS, NEEDS_APPROVAL, PURE, UNDO};
use crate::tool_fn::ToolFn;

/// Pairs of options that exclude each other, and why.
const CONFLICTS: [(&str, &str, &str); 4] = [
    (PURE, NEEDS_APPROVAL, "a call without effects needs no approval"),
    (PURE, UNDO, "a call without effects needs no undoing"),
    (PURE, AT_MOST_ONCE, "a call without effects can be repeated"),
    (ATTEMPTS, AT_MOST_ONCE, "a failed call would be executed again"),
];

/// Reports each option that conflicts with an earlier one, once.
pub(super) fn check_conflicts(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let mut earlier: Vec<String> = Vec::new();
    for option in &tool.options.names {
        let name = option.unraw().to_string();
        if !is_effective(&tool.options, &name) || earlier.contains(&name) {
            continue;
        }
        let conflict = earlier.iter().find_map(|other| Some((other, conflict_reason(&name, other)?)));
        if let Some((other, reason)) = conflict {
            let message = format!("`{name}` conflicts with `{other}`: {reason}; remove one of the two");
            diagnostics.error(option, message);
        }
        earlier.push(name);
    }
}

/// Returns `true` if the option has an effect, unlike `pure = false` and `attempts = 1`.
fn is_effective(options: &ToolAttribute, name: &str) -> bool {
    match name {
        PURE => options.pure.is_some(),
        NEEDS_APPROVAL => options.needs_approval.is_some(),
        AT_MOST_ONCE => options.at_most_once.is_some(),
        ATTEMPTS => options.attempts.is_some_and(|attempts| attempts > 1),
        UNDO => options.undo.is_some(),
        _ => false,
    }
}

/// Returns why the two options exclude each other, if they do.
fn conflict_reason(one: &str, other: &str) -> Option<&'static str> {
    let found = CONFLICTS.iter().find(|(a, b, _)| [(one, other), (other, one)].contains(&(*a, *b)));
    found.map(|(.., reason)| *reason)
}
