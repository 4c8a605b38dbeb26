//! Explanations of arguments one by one: a type stops at its first error, which hides the others that only it knows.

use serde_json::Value;

use super::{Mistake, explain_at_once, explain_limits, offset_in, refused_value};
use crate::arguments::{Members, Target};
use crate::schema::{NodeId, Shape};

/// Replaces the mistakes in each argument by those that are found if it is the only one.
pub(super) fn explain_one_by_one(
    shape: &Shape,
    node: NodeId,
    text: &str,
    target: &dyn Target,
    mistakes: &mut Vec<Mistake>,
) {
    let Ok(Members(members)) = serde_json::from_str(text) else { return };
    for (name, value) in &members {
        let value = value.get();
        let name = Value::from(&**name).to_string();
        let alone = format!("{{{name}:{value}}}");
        let part = name.len() + 2..alone.len() - 1;
        let error = target.error(&alone).filter(|error| !refused_value(&alone, target, error).0.is_empty());
        let found = match &error {
            Some(error) => explain_at_once(shape, node, "", &alone, target, Some(error)),
            None if is_flattened(target, "{", &name, value) => continue,
            None => explain_limits(shape, node, "", &alone),
        };
        let start = offset_in(text, value);
        let place = start..start + value.len();
        mistakes.retain(|mistake| !mistake.is_within(&place) || (error.is_none() && mistake.is_unknown));
        let found = found.into_iter().filter(|mistake| mistake.is_within(&part));
        mistakes.extend(found.map(|mistake| mistake.moved(part.start, start)));
    }
}

/// Returns `true` if the type of an object has flattened a member, which it then reads after all others. A type refuses a member of
/// its own that is given twice, before it finds that the text ends. `start` is the text in front of the members.
pub(super) fn is_flattened(target: &dyn Target, start: &str, quoted_name: &str, value: &str) -> bool {
    let error = target.error(&format!("{start}{quoted_name}:{value},{quoted_name}:{value}"));
    error.is_some_and(|error| error.is_eof())
}

impl Mistake {
    /// Moves the positions of a mistake, so that `from` becomes `to`.
    fn moved(mut self, from: usize, to: usize) -> Self {
        let moved = |position: usize| position.saturating_sub(from) + to;
        self.span = moved(self.span.start)..moved(self.span.end);
        self.read_until = moved(self.read_until);
        self
    }
}
