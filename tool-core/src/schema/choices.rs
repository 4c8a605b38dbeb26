//! What a value may be, where a schema leaves a choice.

use std::cell::Cell;

use serde_json::{Map, Value};

/// How many schemas are looked at, in all, for one text.
const MOST_LOOKS: usize = 100_000;

/// Finds the schemas behind references and choices. What it does is bounded, as the schemas may be a stranger's.
pub(crate) struct Choices<'s> {
    /// What `$ref` refers to.
    root: &'s Value,
    left: Cell<usize>,
}

impl<'s> Choices<'s> {
    pub(crate) fn new(root: &'s Value) -> Self {
        Self { root, left: Cell::new(MOST_LOOKS) }
    }

    /// The schemas that say something of a value themselves, out of these and all that these refer to; `None` if there
    /// are too many.
    pub(crate) fn of(
        &self,
        schemas: impl IntoIterator<Item = &'s Value>,
    ) -> Option<Vec<&'s Map<String, Value>>> {
        let mut waiting: Vec<_> = schemas.into_iter().collect();
        // In the order in which they are written.
        waiting.reverse();
        let (mut found, mut followed) = (Vec::new(), Vec::new());
        while let Some(schema) = waiting.pop() {
            self.left.set(self.left.get().checked_sub(1)?);
            let Some(words) = schema.as_object() else { continue };
            if let Some(reference) = words.get("$ref").and_then(Value::as_str) {
                // Looked for among few: a reference is followed once, and cycles of references end there.
                if !followed.contains(&reference) {
                    self.left.set(self.left.get().checked_sub(followed.len())?);
                    followed.push(reference);
                    waiting.extend(reference.strip_prefix('#').and_then(|path| self.root.pointer(path)));
                }
                continue;
            }
            let lists = ["allOf", "oneOf", "anyOf"].iter().filter_map(|word| words.get(*word)?.as_array());
            waiting.extend(lists.flat_map(|list| list.iter().rev()));
            found.push(words);
        }
        Some(found)
    }

    /// `null` is among what the schemas say, in so many words.
    pub(crate) fn admit_null(&self, schemas: impl IntoIterator<Item = &'s Value>) -> bool {
        self.of(schemas).is_some_and(|found| found.into_iter().any(is_nullable))
    }
}

/// The schema itself says that `null` is right.
pub(crate) fn is_nullable(words: &Map<String, Value>) -> bool {
    if words.get("nullable") == Some(&Value::Bool(true)) || words.get("const") == Some(&Value::Null) {
        return true;
    }
    let is_listed = words.get("enum").and_then(Value::as_array).map(|list| list.contains(&Value::Null));
    match words.get("type") {
        Some(Value::String(name)) => name == "null",
        Some(Value::Array(names)) => names.iter().any(|name| name == "null") && is_listed != Some(false),
        _ => is_listed.unwrap_or(false),
    }
}
