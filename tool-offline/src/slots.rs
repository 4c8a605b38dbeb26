//! Reads the JSON Schema of a tool's parameters into slots, the values that a call needs.

use serde_json::Value;

use crate::facts::is_listed;
use crate::nulls::admits_null;
use crate::thesaurus::{Term, split_identifier, terms, terms_in};
use crate::tokens::Text;

/// The depth to which references and nested objects are followed, and the number of slots of a tool. Schemas can be
/// recursive.
const MAX_DEPTH: usize = 6;
const MAX_SLOTS: usize = 64;

/// One value of a call: a parameter or a property of a nested object.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) path: Vec<String>,
    pub(crate) kind: SlotKind,
    pub(crate) is_required: bool,
    /// The length of the path prefix within which the value is required.
    pub(crate) required_in: Option<usize>,
    pub(crate) description: String,
    /// The words of the last name in the path.
    pub(crate) name_words: Vec<String>,
    pub(crate) name_terms: Vec<Term>,
    pub(crate) description_terms: Vec<Term>,
    /// The prepositions before the name in the tool's description, such as "from" before `a` in "subtracts b from a".
    pub(crate) prepositions: Vec<String>,
}

/// The kind of value that a slot accepts.
#[derive(Debug)]
pub(crate) enum SlotKind {
    Number {
        is_integer: bool,
    },
    Boolean,
    OneOf(Vec<Value>),
    List(Box<SlotKind>),
    Text(TextKind),
    /// A kind that words cannot fill.
    Other,
}

/// The kind of text that a slot expects, judged by its name and format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TextKind {
    Plain,
    /// Free text, such as a message.
    Long,
    /// An e-mail address; nothing else if the format says so.
    Mail {
        is_strict: bool,
    },
    Link,
    Date {
        is_strict: bool,
    },
    Time,
    Formula,
    /// Text that may be a number, such as an id.
    Code,
}

pub(crate) fn read_slots(schema: &Value, description: &str) -> Vec<Slot> {
    let mut reader = Reader { root: schema, description: Text::new(description), slots: Vec::new() };
    reader.read(schema, &[], true, 0);
    reader.slots
}

struct Reader<'a> {
    root: &'a Value,
    description: Text,
    slots: Vec<Slot>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, object: &'a Value, path: &[String], is_required: bool, depth: usize) {
        let Some(properties) = object.get("properties").and_then(Value::as_object) else {
            return;
        };
        let required = object.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (name, property) in properties {
            let schema = self.resolve(property, depth);
            // A value that may be null is optional.
            let is_required_here =
                required.iter().any(|one| one == name) && !admits_null(self.root, property);
            let path: Vec<_> = path.iter().chain([name]).cloned().collect();
            let inner = schema.get("properties").and_then(Value::as_object);
            let is_object = inner.is_some_and(|properties| !properties.is_empty());
            if self.slots.len() >= MAX_SLOTS {
                return;
            } else if is_object && depth < MAX_DEPTH {
                self.read(schema, &path, is_required && is_required_here, depth + 1);
            } else {
                let text =
                    |schema: &Value| schema.get("description").and_then(Value::as_str).map(ToOwned::to_owned);
                let description = text(property).or_else(|| text(schema)).unwrap_or_default();
                let words = split_identifier(name);
                self.slots.push(Slot {
                    kind: if is_object {
                        SlotKind::Other
                    } else {
                        self.kind(schema, &words, &description, depth)
                    },
                    is_required: is_required && is_required_here,
                    required_in: is_required_here.then(|| path.len() - 1),
                    prepositions: self.prepositions(&words),
                    name_terms: terms([(0, &**name)]),
                    description_terms: terms_in(&description),
                    description,
                    name_words: words,
                    path,
                });
            }
        }
    }

    /// Follows references, and takes the first alternative that is not null.
    fn resolve(&self, schema: &'a Value, depth: usize) -> &'a Value {
        let mut schema = schema;
        for _ in depth..=MAX_DEPTH {
            let is_null = |schema: &&Value| schema.get("type").is_some_and(|kind| kind == "null");
            let several = ["anyOf", "oneOf", "allOf"].iter().find_map(|word| schema.get(word)?.as_array());
            let next = match schema.get("$ref").and_then(Value::as_str) {
                Some(reference) => reference.strip_prefix('#').and_then(|path| self.root.pointer(path)),
                None if constants(schema).is_some() => None,
                None => several.and_then(|several| several.iter().find(|one| !is_null(one))),
            };
            match next {
                Some(next) => schema = next,
                None => break,
            }
        }
        schema
    }

    fn kind(&self, schema: &'a Value, words: &[String], description: &str, depth: usize) -> SlotKind {
        let listed = schema.get("enum").and_then(Value::as_array).cloned();
        let fixed = schema.get("const").map(|value| vec![value.clone()]);
        if let Some(values) = listed.or(fixed).or_else(|| constants(schema)) {
            return SlotKind::OneOf(
                values.into_iter().filter(|value| !value.is_null()).take(MAX_SLOTS).collect(),
            );
        }
        let kind = schema.get("type").map(|kind| match kind {
            Value::Array(kinds) => {
                kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("")
            }
            kind => kind.as_str().unwrap_or(""),
        });
        match kind {
            Some("number") => SlotKind::Number { is_integer: false },
            Some("integer") => SlotKind::Number { is_integer: true },
            Some("boolean") => SlotKind::Boolean,
            Some("array") if depth < MAX_DEPTH => {
                let items = schema.get("items").map(|items| self.resolve(items, depth + 1));
                let item = |items| self.kind(items, words, description, depth + 1);
                SlotKind::List(Box::new(items.map_or(SlotKind::Text(TextKind::Plain), item)))
            }
            Some("string") => SlotKind::Text(text_kind(schema, words, description)),
            // Without a type, any value is allowed.
            None if schema.get("$ref").or_else(|| schema.get("properties")).is_none() => {
                SlotKind::Text(TextKind::Plain)
            }
            _ => SlotKind::Other,
        }
    }

    fn prepositions(&self, name: &[String]) -> Vec<String> {
        let [name] = name else {
            return Vec::new();
        };
        let places = self.description.all().filter(|at| *at > 0 && self.description.word(*at) == name);
        places.map(|at| self.description.word(at - 1).to_owned()).collect()
    }
}

fn constants(schema: &Value) -> Option<Vec<Value>> {
    let several = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    let is_null = |one: &&Value| one.get("type").is_some_and(|kind| kind == "null");
    let mut values = Vec::new();
    for one in several.iter().filter(|one| !is_null(one)) {
        match (one.get("const"), one.get("enum").and_then(Value::as_array)) {
            (Some(value), _) => values.push(value.clone()),
            (None, Some(several)) => values.extend(several.iter().cloned()),
            (None, None) => return None,
        }
    }
    (!values.is_empty()).then_some(values)
}

fn text_kind(schema: &Value, words: &[String], description: &str) -> TextKind {
    let last = words.last().map_or("", |word| &**word);
    let has = |list: &str| words.iter().any(|word| is_listed(list, word));
    let description = description.to_lowercase();
    match schema.get("format").and_then(Value::as_str) {
        Some("email" | "idn-email") => TextKind::Mail { is_strict: true },
        Some("date" | "date-time") => TextKind::Date { is_strict: true },
        Some("time") => TextKind::Time,
        Some("uri" | "url" | "iri") => TextKind::Link,
        _ if has("email mail recipient cc bcc") || last == "to" => TextKind::Mail { is_strict: false },
        _ if description.contains("e-mail") || description.contains("email") => {
            TextKind::Mail { is_strict: false }
        }
        _ if is_listed("url uri link website href", last) => TextKind::Link,
        _ if is_listed("date day deadline due when", last) => TextKind::Date { is_strict: false },
        _ if is_listed("time hour", last) => TextKind::Time,
        _ if has("expression formula equation function calculation") => TextKind::Formula,
        _ if has(
            "text message body content query sentence string phrase prompt note comment question input",
        ) =>
        {
            TextKind::Long
        }
        _ if has("id number code phone zip isbn order") => TextKind::Code,
        _ => TextKind::Plain,
    }
}
