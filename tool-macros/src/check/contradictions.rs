//! Words that cannot both be meant.

use syn::ext::IdentExt;

use crate::attributes::ToolAttribute;
use crate::diagnostics::Diagnostics;
use crate::names::{AT_MOST_ONCE, ATTEMPTS, NEEDS_APPROVAL, PURE, UNDO};
use crate::tool_fn::ToolFn;

/// Two words that contradict each other, and why.
const CONTRADICTIONS: [(&str, &str, &str); 4] = [
    (PURE, NEEDS_APPROVAL, "what changes nothing needs nobody's approval"),
    (PURE, UNDO, "what changes nothing needs no undoing"),
    (PURE, AT_MOST_ONCE, "what changes nothing may be done again"),
    (ATTEMPTS, AT_MOST_ONCE, "a call that failed would be made again"),
];

/// Tells of each word that contradicts one before it, once.
pub(super) fn check_contradictions(tool: &ToolFn, diagnostics: &mut Diagnostics) {
    let mut earlier: Vec<String> = Vec::new();
    for word in &tool.words.order {
        let name = word.unraw().to_string();
        if !says(&tool.words, &name) || earlier.contains(&name) {
            continue;
        }
        let found = earlier.iter().find_map(|other| Some((other, contradiction(&name, other)?)));
        if let Some((other, why)) = found {
            let message = format!("`{name}` contradicts `{other}`: {why}; leave out one of the two");
            diagnostics.error(word, message);
        }
        earlier.push(name);
    }
}

/// The word stands there and says something, as `pure = false` and `attempts = 1` do not.
fn says(words: &ToolAttribute, word: &str) -> bool {
    match word {
        PURE => words.pure.is_some(),
        NEEDS_APPROVAL => words.needs_approval.is_some(),
        AT_MOST_ONCE => words.at_most_once.is_some(),
        ATTEMPTS => words.attempts.is_some_and(|attempts| attempts > 1),
        UNDO => words.undo.is_some(),
        _ => false,
    }
}

/// Why both words cannot be meant.
fn contradiction(one: &str, other: &str) -> Option<&'static str> {
    let found = CONTRADICTIONS.iter().find(|(a, b, _)| [(one, other), (other, one)].contains(&(*a, *b)));
    found.map(|(.., why)| *why)
}
