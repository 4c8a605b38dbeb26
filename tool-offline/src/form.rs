//! Reads the JSON Schema of a tool's parameters into slots, the values that a call needs.

use serde_json::{Map, Value};

use crate::text::{TokenKind, tokenize};
use crate::words::{PREPOSITIONS, keys};

/// The depth to which a schema is read, and the number of its slots. Schemas can be recursive.
const MAX_DEPTH: usize = 6;
const MAX_SLOTS: usize = 64;

/// The values that an object needs.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) slots: Vec<Slot>,
    root: Node,
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
    Number {
        is_integer: bool,
    },
    Boolean,
    OneOf(Vec<String>),
    List(Box<SlotKind>),
    /// A text, and what it looks like.
    Text(TokenKind),
    /// A kind that words cannot fill.
    Other,
}

#[derive(Debug)]
enum Node {
    Slot(usize),
    Object(Vec<Member>),
}

#[derive(Debug)]
struct Member {
    name: String,
    node: Node,
    is_required: bool,
    is_nullable: bool,
}

impl Slot {
    /// Returns `true` if a word names the slot or one of its choices, and is no value.
    pub(crate) fn explains(&self, key: &str) -> bool {
        let is_choice = |value: &String| keys(value).iter().any(|one| one == key);
        let has_choice = matches!(&self.kind, SlotKind::OneOf(values) if values.iter().any(is_choice));
        has_choice || self.words.iter().any(|word| word == key)
    }
}

impl Form {
    /// Returns `true` if a word names a slot or a choice, and is no value.
    pub(crate) fn explains(&self, key: &str) -> bool {
        self.slots.iter().any(|slot| slot.explains(key))
    }

    pub(crate) fn new(schema: &Value, description: &str) -> Self {
        let mut reader = Reader { root: schema, description, slots: Vec::new() };
        let root = Node::Object(reader.members(schema, "", true, 0));
        Self { slots: reader.slots, root }
    }

    /// Puts the values of the slots together. Optional objects that are not complete are omitted.
    pub(crate) fn assemble(&self, values: &[Option<Value>]) -> Value {
        self.root.assemble(values).unwrap_or_else(|| Map::new().into())
    }
}

impl Node {
    fn assemble(&self, values: &[Option<Value>]) -> Option<Value> {
        let members = match self {
            Self::Slot(slot) => return values.get(*slot)?.clone(),
            Self::Object(members) => members,
        };
        let mut object = Map::new();
        for member in members {
            match member.node.assemble(values) {
                Some(Value::Object(inner)) if inner.is_empty() && !member.is_required => {}
                Some(value) => drop(object.insert(member.name.clone(), value)),
                None if !member.is_required => {}
                None if member.is_nullable => drop(object.insert(member.name.clone(), Value::Null)),
                None => return None,
            }
        }
        Some(object.into())
    }
}

struct Reader<'a> {
    root: &'a Value,
    description: &'a str,
    slots: Vec<Slot>,
}

impl<'a> Reader<'a> {
    fn members(&mut self, object: &'a Value, path: &str, is_required: bool, depth: usize) -> Vec<Member> {
        let properties = object.get("properties").and_then(Value::as_object);
        let required = object.get("required").and_then(Value::as_array);
        let mut members = Vec::new();
        for (name, property) in properties.into_iter().flatten() {
            if self.slots.len() >= MAX_SLOTS {
                break;
            }
            let (schema, is_nullable) = self.resolve(property);
            let is_member_required = required.is_some_and(|required| required.iter().any(|one| one == name));
            // A value that may be null can be left out.
            let is_slot_required = is_required && is_member_required && !is_nullable;
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let node = if schema.get("properties").is_some() && depth < MAX_DEPTH {
                Node::Object(self.members(schema, &path, is_slot_required, depth + 1))
            } else {
                let text = |one: &Value| one.get("description").and_then(Value::as_str).map(str::to_owned);
                let description = text(property).or_else(|| text(schema)).unwrap_or_default();
                let mut words = keys(name);
                // Also the names that are stop words, such as `from` and `x`.
                words.push(name.to_lowercase().split('_').next().unwrap_or_default().to_owned());
                words.extend(self.preposition(name));
                let kind = self.kind(schema, &words, &description, depth);
                self.slots.push(Slot { kind, path, words, is_required: is_slot_required });
                Node::Slot(self.slots.len() - 1)
            };
            members.push(Member { name: name.clone(), node, is_required: is_member_required, is_nullable });
        }
        members
    }

    /// Follows references, and takes the first alternative that is not null. Returns whether null is one of them.
    fn resolve(&self, mut schema: &'a Value) -> (&'a Value, bool) {
        let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
        let mut is_nullable = false;
        for _ in 0..MAX_DEPTH {
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
            Some("number") => SlotKind::Number { is_integer: false },
            Some("integer") => SlotKind::Number { is_integer: true },
            Some("boolean") => SlotKind::Boolean,
            Some("array") if depth < MAX_DEPTH => {
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
    let is_named = |names: &[&str]| words.iter().any(|word| names.contains(&&**word));
    let example = || tokenize(description).into_iter().map(|token| token.kind);
    match schema.get("format").and_then(Value::as_str) {
        Some("email") => TokenKind::Email,
        Some("date" | "date-time") => TokenKind::Date,
        Some("uri" | "url") => TokenKind::Link,
        _ if is_named(&["email"]) => TokenKind::Email,
        _ if is_named(&["date", "day"]) => TokenKind::Date,
        _ if is_named(&["url", "uri", "link"]) => TokenKind::Link,
        _ => example()
            .find(|kind| matches!(kind, TokenKind::Email | TokenKind::Date | TokenKind::Link))
            .unwrap_or(TokenKind::Word),
    }
}
