//! Reads the JSON Schema of a tool's parameters into slots, the values that a call needs.

use serde_json::{Map, Value};

use crate::text::{TokenKind, tokenize};
use crate::words::{PREPOSITIONS, keys};

/// The number of nested objects that a question can fill, and of slots, because schemas can be recursive.
const MAX_OBJECTS: usize = 6;
const MAX_SLOTS: usize = 64;

/// The values that an object needs.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) slots: Vec<Slot>,
}

/// A parameter, or a property of a nested object.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) kind: SlotKind,
    /// The names from the outermost object.
    pub(crate) path: Vec<String>,
    /// The words of the name, and the preposition before the name in the description of the tool: `from` for `a` in "subtracts b from a".
    pub(crate) words: Vec<String>,
    pub(crate) is_required: bool,
    /// The value without a fact: null where the object must have a value.
    default: Option<Value>,
}

#[derive(Debug)]
pub(crate) enum SlotKind {
    Number,
    Integer,
    Boolean,
    OneOf(Vec<String>),
    /// A text, and what it looks like.
    Text(TokenKind),
    /// A kind that words cannot fill.
    Other,
}

impl Form {
    pub(crate) fn new(root: &Value, description: &str) -> Self {
        let mut form = Self { slots: Vec::new() };
        form.add_slots(root, root, &[], true, description);
        form
    }

    fn add_slots(
        &mut self,
        root: &Value,
        object: &Value,
        outer: &[String],
        is_required: bool,
        description: &str,
    ) {
        let required = object.get("required").and_then(Value::as_array);
        for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if self.slots.len() >= MAX_SLOTS {
                return;
            }
            let (schema, is_nullable) = resolve(root, property);
            let is_listed = required.is_some_and(|required| required.iter().any(|one| one == name));
            // A value that may be null can be left out.
            let is_needed = is_required && is_listed && !is_nullable;
            let path = [outer, std::slice::from_ref(name)].concat();
            if schema.get("properties").is_some() && outer.len() < MAX_OBJECTS {
                self.add_slots(root, schema, &path, is_needed, description);
                continue;
            }
            let mut words = keys(name);
            // Also the names that are stop words, such as `from` and `x`.
            words.push(name.to_lowercase().split('_').next().unwrap_or_default().to_owned());
            words.extend(preposition_before(name, description));
            let own_description = property.get("description").or(schema.get("description"));
            let own_description = own_description.and_then(Value::as_str).unwrap_or_default();
            let kind = kind(schema, &words, own_description);
            let default = (is_required && is_listed && is_nullable).then_some(Value::Null);
            self.slots.push(Slot { kind, path, words, is_required: is_needed, default });
        }
    }

    /// Returns `true` if a word names a slot or a choice, and is no value.
    pub(crate) fn explains(&self, key: &str) -> bool {
        let names = |text: &String| keys(text).iter().any(|one| one == key);
        self.slots.iter().any(|slot| {
            let has_choice = matches!(&slot.kind, SlotKind::OneOf(values) if values.iter().any(names));
            has_choice || slot.words.iter().any(|word| word == key)
        })
    }

    /// Puts the values of the slots together.
    pub(crate) fn assemble(&self, values: Vec<Option<Value>>) -> Value {
        let mut object = Value::Object(Map::new());
        for (slot, value) in self.slots.iter().zip(values) {
            if let Some(value) = value.or_else(|| slot.default.clone()) {
                let place = slot.path.iter().fold(&mut object, |place, name| &mut place[&**name]);
                *place = value;
            }
        }
        object
    }
}

/// Follows references, and takes the first alternative that is not null. Returns whether null is one of them.
fn resolve<'a>(root: &'a Value, mut schema: &'a Value) -> (&'a Value, bool) {
    let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
    let mut is_nullable = false;
    for _ in 0..MAX_OBJECTS {
        let alternatives = ["anyOf", "oneOf", "allOf"].iter().find_map(|word| schema.get(word)?.as_array());
        is_nullable |= alternatives.is_some_and(|all| all.iter().any(is_null));
        let next = match schema.get("$ref").and_then(Value::as_str) {
            Some(reference) => reference.strip_prefix('#').and_then(|path| root.pointer(path)),
            None if constants(schema).is_some() => None,
            None => alternatives.and_then(|all| all.iter().find(|one| !is_null(one))),
        };
        let Some(next) = next else { break };
        schema = next;
    }
    let kinds = schema.get("type").and_then(Value::as_array);
    (schema, is_nullable || kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "null")))
}

fn kind(schema: &Value, words: &[String], description: &str) -> SlotKind {
    if let Some(values) = constants(schema) {
        return SlotKind::OneOf(values);
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().find(|kind| *kind != "null"),
        kind => kind,
    };
    match kind.and_then(Value::as_str) {
        Some("number") => SlotKind::Number,
        Some("integer") => SlotKind::Integer,
        Some("boolean") => SlotKind::Boolean,
        Some("string") => SlotKind::Text(look(schema, words, description)),
        _ => SlotKind::Other,
    }
}

/// Returns what a text looks like, by its format, its name, or an example in its description.
fn look(schema: &Value, words: &[String], description: &str) -> TokenKind {
    match schema.get("format").and_then(Value::as_str) {
        Some("email") => TokenKind::Email,
        Some("date" | "date-time") => TokenKind::Date,
        _ if words.iter().any(|word| word == "email") => TokenKind::Email,
        _ => {
            let mut kinds = tokenize(description).into_iter().map(|token| token.kind);
            let example = kinds.find(|kind| matches!(kind, TokenKind::Email | TokenKind::Date));
            example.unwrap_or(TokenKind::Word)
        }
    }
}

fn preposition_before(name: &str, description: &str) -> Option<String> {
    let tokens = tokenize(description);
    let at = tokens.iter().position(|token| token.text == name)?.checked_sub(1)?;
    Some(tokens.get(at)?.text.to_lowercase()).filter(|word| PREPOSITIONS.contains(&&**word))
}

/// Returns the only values that a schema allows, if they are texts.
fn constants(schema: &Value) -> Option<Vec<String>> {
    let values: Vec<_> =
        match (schema.get("enum"), ["oneOf", "anyOf"].iter().find_map(|word| schema.get(word))) {
            (Some(values), _) => values.as_array()?.iter().collect(),
            (None, Some(several)) => several.as_array()?.iter().filter_map(|one| one.get("const")).collect(),
            (None, None) => vec![schema.get("const")?],
        };
    let values: Vec<_> = values.into_iter().filter_map(Value::as_str).map(str::to_owned).collect();
    (!values.is_empty()).then_some(values)
}
