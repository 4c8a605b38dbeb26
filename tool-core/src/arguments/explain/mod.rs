//! Explanations of invalid values: all mistakes, each with its path, what is expected there, and what was found.
//!
//! `walk` goes through a value and its schema side by side. Of a value that was refused, `values` and `choices` find everything that
//! its schema does not allow; of a value that was read, `limits` finds which limits it exceeds.

mod mistake;
mod walk;
mod choices;
mod values;
mod limits;

pub(crate) use self::mistake::Mistake;
use self::mistake::MistakeKind;
use self::walk::Walk;
use super::budget::MAX_DEPTH;
use super::members::{Members, join, offset_in};
use super::target::{Ignorance, IgnoredMember, Refused, TypeError};
use super::tokens::is_deeper_than;
use super::validators::SchemaValidator;
use crate::schema::{NodeId, Shape};

/// Explains which limits of its schema a value exceeds that its type accepts. What the type ignores has no limits.
pub(super) fn explain_limits(
    shape: &Shape,
    node: NodeId,
    path: &str,
    text: &str,
    ignored: &[IgnoredMember],
) -> Vec<Mistake> {
    let mut walk = Walk::new(shape, path, text, Ignorance::new(ignored), None);
    walk.limits(node, text.trim_ascii(), 0);
    if walk.mistakes.is_empty() && walk.is_incomplete {
        walk.report(
            match path {
                "" => "they are nested too deeply to check their limits".into(),
                path => format!("`{path}` is nested too deeply to check its limits"),
            },
            text,
        );
    }
    walk.mistakes
}

/// Explains why a value was refused: everything that its schema does not allow, and the error of its type, unless one of these
/// mistakes is where the error was raised, in what contains that place, or in what that place contains. Paths begin with the given one.
pub(super) fn explain(
    shape: &Shape,
    node: NodeId,
    path: &str,
    text: &str,
    refused: &Refused,
    validator: Option<&dyn SchemaValidator>,
) -> Vec<Mistake> {
    let ignorance = match refused {
        Refused::ByType(error) => Ignorance::of_refused(text, error),
        Refused::BySchema => Ignorance::default(),
    };
    let mut walk = Walk::new(shape, path, text, ignorance, validator);
    walk.value(node, text.trim_ascii(), 0);
    if walk.mistakes.is_empty() && matches!(refused, Refused::BySchema) {
        walk.whole_arguments(node, text);
    }
    let mut mistakes = walk.mistakes;
    mistakes.retain(|mistake| mistake.kind != MistakeKind::PossiblyMissing);
    if let Refused::ByType(error) = refused {
        let error = explain_error(path, text, error);
        let explains = |mistake: &Mistake| mistake.explains(&error.span);
        let is_possible = |mistake: &Mistake| mistake.kind == MistakeKind::Possible;
        // What is possible counts where nothing else explains the error.
        let is_explained = mistakes.iter().any(|mistake| !is_possible(mistake) && explains(mistake));
        mistakes.retain(|mistake| !is_possible(mistake) || (!is_explained && explains(mistake)));
        if !mistakes.iter().any(explains) {
            mistakes.push(error);
        }
    }
    // In the order of the text. A missing member counts as standing where its object begins.
    mistakes.sort_by_key(|mistake| mistake.span.start);
    mistakes
}

/// Explains the error of a type.
fn explain_error(path: &str, text: &str, error: &TypeError) -> Mistake {
    let place = error.place(text);
    let start = offset_in(text, place.text);
    let span = start..start + place.text.len();
    // serde_json stops there, so the place says nothing.
    if is_deeper_than(MAX_DEPTH - 1, text) {
        let argument =
            || Members::of(text).0.into_iter().find(|(_, value)| is_deeper_than(MAX_DEPTH - 2, value));
        let path = if path.is_empty() { argument().map_or("".into(), |(name, _)| name) } else { path.into() };
        let text = format!("`{path}` is nested too deeply, {MAX_DEPTH} levels are read at most");
        return Mistake { path: path.into_owned(), text, span, kind: MistakeKind::Wrong };
    }
    let path = join(path, &place.path);
    let text = if path.is_empty() { error.reason.clone() } else { format!("`{path}`: {}", error.reason) };
    Mistake { path, text, span, kind: MistakeKind::Wrong }
}
