//! Reads the JSON Schema of a tool's parameters into slots: the values that a call needs.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::facts::is_listed;
use super::thesaurus::{Term, parts, terms, terms_of};
use super::words::Text;

/// How deep references and nested objects are followed, and how many slots a tool can have: a schema may
/// refer to itself.
const DEEPEST: usize = 6;
const MOST: usize = 64;

/// The most subschemas that are visited to resolve one schema.
const MAX_SUBSCHEMAS: usize = 10_000;

/// One value of a call: a parameter, or a property of an object among them.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) path: Vec<String>,
    pub(crate) kind: Shape,
    pub(crate) is_required: bool,
    /// How many names of the path must be there for the value to be required by them.
    pub(crate) required_in: Option<usize>,
    pub(crate) description: String,
    /// The words of the last name on the path.
    pub(crate) words: Vec<String>,
    pub(crate) name: Vec<Term>,
    pub(crate) about: Vec<Term>,
    /// The prepositions that the tool's description puts before the name: `b` and `a` of "subtracts b from a".
    pub(crate) prepositions: Vec<String>,
}

/// What a value must be.
#[derive(Debug)]
pub(crate) enum Shape {
    Number {
        is_integer: bool,
    },
    Boolean,
    OneOf(Vec<Value>),
    List(Box<Shape>),
    Text(Flavour),
    /// Something that words cannot fill.
    Other,
}

/// What kind of text is meant, by the name and the format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Flavour {
    Plain,
    /// Words of the user's own, such as a message.
    Long,
    /// An e-mail address; strictly, if the format says so.
    Mail {
        is_strict: bool,
    },
    Link,
    Date {
        is_strict: bool,
    },
    Time,
    Formula,
    /// What may well be a number, such as an id.
    Code,
}

pub(crate) fn slots(schema: &Value, description: &str) -> Vec<Slot> {
    let mut reader = Reader { root: schema, told: Text::new(description), slots: Vec::new() };
    reader.read(schema, &[], true, 0);
    reader.slots
}

/// Says `null` for what the schema asks for, lets be `null`, and nothing fills.
pub(crate) fn fill_with_nulls(schema: &Value, arguments: &mut Value) {
    fill_object(schema, schema, arguments, 0);
}

fn fill_object(root: &Value, schema: &Value, object: &mut Value, depth: usize) {
    let (Value::Object(object), true) = (object, depth <= DEEPEST) else { return };
    for words in alternatives(root, schema) {
        let properties = words.get("properties").and_then(Value::as_object);
        let required = words.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (name, property) in properties.into_iter().flatten().take(MOST) {
            match object.get_mut(name) {
                Some(inner) => fill_object(root, property, inner, depth + 1),
                None if required.iter().any(|one| one == name) && admits_null(root, property) => {
                    object.insert(name.clone(), Value::Null);
                }
                None => {}
            }
        }
    }
}

/// Returns the schemas that constrain a value: this one, its alternatives and what they refer to.
fn alternatives<'s>(root: &'s Value, schema: &'s Value) -> Vec<&'s Map<String, Value>> {
    let (mut pending, mut found, mut followed) = (vec![schema], Vec::new(), HashSet::new());
    while let Some(schema) = pending.pop() {
        let Some(keywords) = schema.as_object() else { continue };
        if found.len() + followed.len() >= MAX_SUBSCHEMAS {
            break;
        }
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            // A reference is followed once, so cycles end.
            if followed.insert(reference) {
                pending.extend(reference.strip_prefix('#').and_then(|path| root.pointer(path)));
            }
            continue;
        }
        let lists =
            ["allOf", "oneOf", "anyOf"].iter().filter_map(|keyword| keywords.get(*keyword)?.as_array());
        pending.extend(lists.flat_map(|list| list.iter().rev()));
        found.push(keywords);
    }
    found
}

/// Returns `true` if one of the alternatives of a schema allows `null` explicitly.
fn admits_null(root: &Value, schema: &Value) -> bool {
    alternatives(root, schema).into_iter().any(|keywords| {
        let is_listed =
            keywords.get("enum").and_then(Value::as_array).map(|list| list.contains(&Value::Null));
        let has_null_type = match keywords.get("type") {
            Some(Value::String(name)) => name == "null",
            Some(Value::Array(names)) => names.iter().any(|name| name == "null") && is_listed != Some(false),
            _ => is_listed == Some(true),
        };
        has_null_type
            || keywords.get("nullable") == Some(&Value::Bool(true))
            || keywords.get("const") == Some(&Value::Null)
    })
}

struct Reader<'a> {
    root: &'a Value,
    told: Text,
    slots: Vec<Slot>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, object: &'a Value, path: &[String], is_required: bool, depth: usize) {
        let Some(properties) = object.get("properties").and_then(Value::as_object) else {
            return;
        };
        let required = object.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (name, written) in properties {
            let schema = self.plain(written, depth);
            // What may be null may be left out, by saying so.
            let in_object = required.iter().any(|one| one == name) && !admits_null(self.root, written);
            let path: Vec<_> = path.iter().chain([name]).cloned().collect();
            let inner = schema.get("properties").and_then(Value::as_object);
            let is_object = inner.is_some_and(|properties| !properties.is_empty());
            if self.slots.len() >= MOST {
                return;
            } else if is_object && depth < DEEPEST {
                self.read(schema, &path, is_required && in_object, depth + 1);
            } else {
                let told =
                    |schema: &Value| schema.get("description").and_then(Value::as_str).map(ToOwned::to_owned);
                let description = told(written).or_else(|| told(schema)).unwrap_or_default();
                let words = parts(name);
                self.slots.push(Slot {
                    kind: if is_object {
                        Shape::Other
                    } else {
                        self.shape(schema, &words, &description, depth)
                    },
                    is_required: is_required && in_object,
                    required_in: in_object.then(|| path.len() - 1),
                    prepositions: self.prepositions(&words),
                    name: terms([(0, &**name)]),
                    about: terms_of(&description),
                    description,
                    words,
                    path,
                });
            }
        }
    }

    /// The schema behind references, and the first that is not null among several.
    fn plain(&self, schema: &'a Value, depth: usize) -> &'a Value {
        let mut schema = schema;
        for _ in depth..=DEEPEST {
            let is_null = |schema: &&Value| schema.get("type").is_some_and(|kind| kind == "null");
            let several = ["anyOf", "oneOf", "allOf"].iter().find_map(|word| schema.get(word)?.as_array());
            let next = match schema.get("$ref").and_then(Value::as_str) {
                Some(reference) => reference.strip_prefix('#').and_then(|path| self.root.pointer(path)),
                None if consts(schema).is_some() => None,
                None => several.and_then(|several| several.iter().find(|one| !is_null(one))),
            };
            match next {
                Some(next) => schema = next,
                None => break,
            }
        }
        schema
    }

    fn shape(&self, schema: &'a Value, words: &[String], description: &str, depth: usize) -> Shape {
        let listed = schema.get("enum").and_then(Value::as_array).cloned();
        let fixed = schema.get("const").map(|value| vec![value.clone()]);
        if let Some(values) = listed.or(fixed).or_else(|| consts(schema)) {
            return Shape::OneOf(values.into_iter().filter(|value| !value.is_null()).take(MOST).collect());
        }
        let kind = schema.get("type").map(|kind| match kind {
            Value::Array(kinds) => {
                kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("")
            }
            kind => kind.as_str().unwrap_or(""),
        });
        match kind {
            Some("number") => Shape::Number { is_integer: false },
            Some("integer") => Shape::Number { is_integer: true },
            Some("boolean") => Shape::Boolean,
            Some("array") if depth < DEEPEST => {
                let items = schema.get("items").map(|items| self.plain(items, depth + 1));
                let item = |items| self.shape(items, words, description, depth + 1);
                Shape::List(Box::new(items.map_or(Shape::Text(Flavour::Plain), item)))
            }
            Some("string") => Shape::Text(flavour(schema, words, description)),
            // Without a type, any value will do.
            None if schema.get("$ref").or_else(|| schema.get("properties")).is_none() => {
                Shape::Text(Flavour::Plain)
            }
            _ => Shape::Other,
        }
    }

    fn prepositions(&self, name: &[String]) -> Vec<String> {
        let [name] = name else {
            return Vec::new();
        };
        let places = self.told.all().filter(|at| *at > 0 && self.told.word(*at) == name);
        places.map(|at| self.told.word(at - 1).to_owned()).collect()
    }
}

fn consts(schema: &Value) -> Option<Vec<Value>> {
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

fn flavour(schema: &Value, words: &[String], description: &str) -> Flavour {
    let last = words.last().map_or("", |word| &**word);
    let has = |list: &str| words.iter().any(|word| is_listed(list, word));
    let told = description.to_lowercase();
    match schema.get("format").and_then(Value::as_str) {
        Some("email" | "idn-email") => Flavour::Mail { is_strict: true },
        Some("date" | "date-time") => Flavour::Date { is_strict: true },
        Some("time") => Flavour::Time,
        Some("uri" | "url" | "iri") => Flavour::Link,
        _ if has("email mail recipient cc bcc") || last == "to" => Flavour::Mail { is_strict: false },
        _ if told.contains("e-mail") || told.contains("email") => Flavour::Mail { is_strict: false },
        _ if is_listed("url uri link website href", last) => Flavour::Link,
        _ if is_listed("date day deadline due when", last) => Flavour::Date { is_strict: false },
        _ if is_listed("time hour", last) => Flavour::Time,
        _ if has("expression formula equation function calculation") => Flavour::Formula,
        _ if has(
            "text message body content query sentence string phrase prompt note comment question input",
        ) =>
        {
            Flavour::Long
        }
        _ if has("id number code phone zip isbn order") => Flavour::Code,
        _ => Flavour::Plain,
    }
}
