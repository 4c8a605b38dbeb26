//! Reads the JSON Schema of a tool's parameters into slots, the values that a call needs.

use serde_json::{Map, Value};

use crate::text::{TokenKind, tokenize};
use crate::words::{PREPOSITIONS, keys};

/// The number of nested objects that a question can fill, and of slots, because schemas can be recursive.
const MAX_OBJECTS: usize = 6;
const MAX_SLOTS: usize = 64;

/// The values that an object needs.
#[derive(Debug)]
pub(crate) struct Form<'a> {
    pub(crate) slots: Vec<Slot>,
    root: &'a Value,
    description: &'a str,
}

/// A parameter, or a property of a nested object.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) kind: SlotKind,
    /// The names from the outermost object, joined by `.`.
    pub(crate) path: String,
    /// The words of the name, and the preposition before the name in the description of the tool: `from` for `a` in "subtracts b from a".
    pub(crate) words: Vec<String>,
    pub(crate) is_required: bool,
}

#[derive(Debug)]
pub(crate) enum SlotKind {
    Number,
    Integer,
    Boolean,
    OneOf(Vec<String>),
    List(Box<SlotKind>),
    /// A text, and what it looks like.
    Text(TokenKind),
    /// A kind that words cannot fill.
    Other,
}

/// A property of an object, with its resolved schema.
struct Property<'a> {
    name: &'a str,
    path: String,
    schema: &'a Value,
    description: &'a str,
    is_required: bool,
    is_nullable: bool,
    is_object: bool,
}

impl<'a> Form<'a> {
    /// Returns `true` if a word names a slot or a choice, and is no value.
    pub(crate) fn explains(&self, key: &str) -> bool {
        let names = |text: &String| keys(text).iter().any(|one| one == key);
        self.slots.iter().any(|slot| {
            let has_choice = matches!(&slot.kind, SlotKind::OneOf(values) if values.iter().any(names));
            has_choice || slot.words.iter().any(|word| word == key)
        })
    }

    pub(crate) fn new(root: &'a Value, description: &'a str) -> Self {
        let mut form = Self { slots: Vec::new(), root, description };
        form.add_slots(root, "", true);
        form
    }

    fn add_slots(&mut self, object: &'a Value, path: &str, is_required: bool) {
        for property in self.properties(object, path) {
            let Property { name, path, schema, description, .. } = property;
            // A value that may be null can be left out.
            let is_required = is_required && property.is_required && !property.is_nullable;
            if self.slots.len() >= MAX_SLOTS {
                return;
            } else if property.is_object {
                self.add_slots(schema, &path, is_required);
            } else {
                let mut words = keys(name);
                // Also the names that are stop words, such as `from` and `x`.
                words.push(name.to_lowercase().split('_').next().unwrap_or_default().to_owned());
                words.extend(self.preposition(name));
                let kind = self.kind(schema, &words, description, 0);
                self.slots.push(Slot { kind, path, words, is_required });
            }
        }
    }

    fn properties(&self, object: &'a Value, path: &str) -> Vec<Property<'a>> {
        let properties = object.get("properties").and_then(Value::as_object).into_iter().flatten();
        let required = object.get("required").and_then(Value::as_array);
        let read = |(name, property): (&'a String, &'a Value)| {
            let (schema, is_nullable) = self.resolve(property);
            let description = property.get("description").or(schema.get("description"));
            Property {
                name,
                path: if path.is_empty() { name.clone() } else { format!("{path}.{name}") },
                schema,
                description: description.and_then(Value::as_str).unwrap_or_default(),
                is_required: required.is_some_and(|required| required.iter().any(|one| one == name)),
                is_nullable,
                is_object: schema.get("properties").is_some() && path.matches('.').count() < MAX_OBJECTS,
            }
        };
        properties.take(MAX_SLOTS).map(read).collect()
    }

    /// Puts the values of the slots together. Optional objects that are not complete are omitted.
    pub(crate) fn assemble(&self, values: &[Option<Value>]) -> Value {
        self.assemble_object(self.root, "", values).unwrap_or_default().into()
    }

    fn assemble_object(
        &self,
        object: &'a Value,
        path: &str,
        values: &[Option<Value>],
    ) -> Option<Map<String, Value>> {
        // A recursive schema has more objects than slots.
        if !self.slots.iter().any(|slot| slot.path.starts_with(path)) {
            return Some(Map::new());
        }
        let mut members = Map::new();
        for Property { name, path, schema, is_required, is_nullable, is_object, .. } in
            self.properties(object, path)
        {
            let value = if is_object {
                let inner = self.assemble_object(schema, &path, values);
                inner.filter(|inner| is_required || !inner.is_empty()).map(Value::from)
            } else {
                self.slots.iter().position(|slot| slot.path == path).and_then(|slot| values[slot].clone())
            };
            match value {
                Some(value) => _ = members.insert(name.to_owned(), value),
                None if is_required && is_nullable => _ = members.insert(name.to_owned(), Value::Null),
                None if is_required => return None,
                None => {}
            }
        }
        Some(members)
    }

    /// Follows references, and takes the first alternative that is not null. Returns whether null is one of them.
    fn resolve(&self, mut schema: &'a Value) -> (&'a Value, bool) {
        let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
        let mut is_nullable = false;
        for _ in 0..MAX_OBJECTS {
            let alternatives =
                ["anyOf", "oneOf", "allOf"].iter().find_map(|word| schema.get(word)?.as_array());
            is_nullable |= alternatives.is_some_and(|all| all.iter().any(is_null));
            let next = match schema.get("$ref").and_then(Value::as_str) {
                Some(reference) => reference.strip_prefix('#').and_then(|path| self.root.pointer(path)),
                None if constants(schema).is_some() => None,
                None => alternatives.and_then(|all| all.iter().find(|one| !is_null(one))),
            };
            let Some(next) = next else { break };
            schema = next;
        }
        let kinds = schema.get("type").and_then(Value::as_array);
        (schema, is_nullable || kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "null")))
    }

    fn kind(&self, schema: &'a Value, words: &[String], description: &str, depth: usize) -> SlotKind {
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
            Some("array") if depth < MAX_OBJECTS => {
                let items = schema.get("items").map(|items| self.resolve(items).0);
                SlotKind::List(Box::new(
                    items.map_or(SlotKind::Other, |one| self.kind(one, words, description, depth + 1)),
                ))
            }
            Some("string") => SlotKind::Text(looks(schema, words, description)),
            _ => SlotKind::Other,
        }
    }

    fn preposition(&self, name: &str) -> Option<String> {
        let tokens = tokenize(self.description);
        let at = tokens.iter().position(|token| token.text == name)?.checked_sub(1)?;
        Some(tokens.get(at)?.text.to_lowercase()).filter(|word| PREPOSITIONS.contains(&&**word))
    }
}

/// Returns the only values that a schema allows, if they are texts.
fn constants(schema: &Value) -> Option<Vec<String>> {
    let several = ["oneOf", "anyOf"].iter().find_map(|word| schema.get(word)?.as_array());
    let values: Option<Vec<_>> = match (schema.get("enum").and_then(Value::as_array), several) {
        (Some(values), _) => Some(values.iter().collect()),
        (None, Some(several)) => several.iter().map(|one| one.get("const")).collect(),
        (None, None) => schema.get("const").map(|value| vec![value]),
    };
    let values = values?.into_iter().filter_map(Value::as_str).take(MAX_SLOTS).map(str::to_owned);
    Some(values.collect()).filter(|values: &Vec<_>| !values.is_empty())
}

/// Returns what a text looks like, by its format, its name, or an example in its description.
fn looks(schema: &Value, words: &[String], description: &str) -> TokenKind {
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    let is_one_of =
        |names: &[&str]| words.iter().map(|word| &**word).chain([format]).any(|it| names.contains(&it));
    let example = |kind: &TokenKind| matches!(kind, TokenKind::Email | TokenKind::Date | TokenKind::Link);
    match format {
        _ if is_one_of(&["email"]) => TokenKind::Email,
        _ if is_one_of(&["date", "date-time", "day"]) => TokenKind::Date,
        _ if is_one_of(&["uri", "url", "link"]) => TokenKind::Link,
        _ => {
            tokenize(description).into_iter().map(|token| token.kind).find(example).unwrap_or(TokenKind::Word)
        }
    }
}
