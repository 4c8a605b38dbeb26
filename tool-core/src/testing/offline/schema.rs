//! Reads the JSON Schema of a tool's parameters into slots: the values that a call needs.

use serde_json::Value;

use super::facts::is_listed;
use super::thesaurus::{Term, parts, terms, terms_of};
use super::words::Text;
use crate::schema::Choices;

/// How deep references and nested objects are followed, and how many slots a tool can have: a schema may
/// refer to itself.
const DEEPEST: usize = 6;
const MOST: usize = 64;

/// One value of a call: a parameter, or a property of an object among them.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) path: Vec<String>,
    pub(super) kind: Shape,
    pub(super) is_required: bool,
    /// How many names of the path must be there for the value to be required by them.
    pub(super) required_in: Option<usize>,
    pub(super) description: String,
    /// The words of the last name on the path.
    pub(super) words: Vec<String>,
    pub(super) name: Vec<Term>,
    pub(super) about: Vec<Term>,
    /// The prepositions that the tool's description puts before the name: `b` and `a` of "subtracts b from a".
    pub(super) prepositions: Vec<String>,
}

/// What a value must be.
#[derive(Debug)]
pub(super) enum Shape {
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
pub(super) enum Flavour {
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

pub(super) fn slots(schema: &Value, description: &str) -> Vec<Slot> {
    let choices = Choices::new(schema);
    let mut reader = Reader { root: schema, choices, told: Text::new(description), slots: Vec::new() };
    reader.read(schema, &[], true, 0);
    reader.slots
}

/// Says `null` for what the schema asks for, lets be `null`, and nothing fills.
pub(super) fn fill_with_nulls(schema: &Value, arguments: &mut Value) {
    fill_object(&Choices::new(schema), schema, arguments, 0);
}

fn fill_object<'s>(choices: &Choices<'s>, schema: &'s Value, object: &mut Value, depth: usize) {
    let (Value::Object(object), true) = (object, depth <= DEEPEST) else { return };
    for words in choices.of([schema]).unwrap_or_default() {
        let properties = words.get("properties").and_then(Value::as_object);
        let required = words.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (name, property) in properties.into_iter().flatten().take(MOST) {
            match object.get_mut(name) {
                Some(inner) => fill_object(choices, property, inner, depth + 1),
                None if required.iter().any(|one| one == name) && choices.admit_null([property]) => {
                    object.insert(name.clone(), Value::Null);
                }
                None => {}
            }
        }
    }
}

struct Reader<'a> {
    root: &'a Value,
    choices: Choices<'a>,
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
            let in_object = required.iter().any(|one| one == name) && !self.choices.admit_null([written]);
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
