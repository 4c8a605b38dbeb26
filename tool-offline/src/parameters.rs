//! Reads the parameters of a tool from their JSON Schema, and writes the arguments of a call.

use serde_json::{Map, Number, Value};

use crate::question::Source;
use crate::text::{TokenKind, tokenize};
use crate::words::{PREPOSITIONS, is_in, keywords};

/// Limits of what is read of a schema, which can be recursive: the depth of objects, the parameters, and the schemas per parameter.
const MAX_OBJECTS: usize = 6;
const MAX_PARAMETERS: usize = 64;
const MAX_ALTERNATIVES: usize = 64;

/// The parameters of a tool, or the members of a requested answer, without those that are objects.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) list: Vec<Parameter>,
}

/// The arguments of a call, as far as they can be filled in.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    /// The sources of the parameters.
    pub(crate) sources: Vec<Option<Source>>,
    /// The paths of the required parameters without a value.
    pub(crate) missing: Vec<String>,
}

/// A parameter, or a property of a nested object.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) kind: ParameterKind,
    /// The names from the outermost object.
    pub(crate) path: Vec<String>,
    /// The words of the name and the choices, and the preposition before the name in the description of the tool: `from` for `a` in
    /// "subtracts b from a".
    pub(crate) words: Vec<String>,
    pub(crate) is_required: bool,
    /// It is null without a value.
    is_null: bool,
}

#[derive(Debug)]
pub(crate) enum ParameterKind {
    Number,
    Integer,
    Boolean,
    OneOf(Vec<String>),
    /// A text, and the form that it should have.
    Text(TokenKind),
    /// A kind that words cannot fill.
    Other,
}

impl Parameters {
    /// Reads the schema of parameters, and the description of their tool.
    pub(crate) fn new(root: &Value, description: &str) -> Self {
        let mut parameters = Self::default();
        parameters.add_object(root, root, &[], true);
        for parameter in &mut parameters.list {
            let name = parameter.path.last().map_or("", String::as_str);
            parameter.words.extend(preposition_before(name, description));
        }
        parameters
    }

    fn add_object(&mut self, root: &Value, object: &Value, outer: &[String], is_needed: bool) {
        let required = object["required"].as_array();
        for (name, property) in object["properties"].as_object().into_iter().flatten() {
            if self.list.len() >= MAX_PARAMETERS {
                return;
            }
            let (schemas, is_nullable) = alternatives(root, property);
            let schema = schemas.first().copied().unwrap_or(&Value::Null);
            let is_listed =
                is_needed && required.is_some_and(|required| required.iter().any(|one| one == name));
            // A value that may be null can be left out.
            let is_required = is_listed && !is_nullable;
            let path = [outer, std::slice::from_ref(name)].concat();
            if schema.get("properties").is_some() && outer.len() < MAX_OBJECTS {
                self.add_object(root, schema, &path, is_required);
                continue;
            }
            let mut words = keywords(name);
            // Also the names that are stop words, such as `from` and `x`.
            words.push(name.to_lowercase().split('_').next().unwrap_or_default().to_owned());
            let description = [property, schema].iter().find_map(|schema| schema["description"].as_str());
            let kind = ParameterKind::new(&schemas, &words, description.unwrap_or_default());
            words.extend(kind.choices().iter().flat_map(|choice| keywords(choice)));
            self.list.push(Parameter { kind, path, words, is_required, is_null: is_listed && is_nullable });
        }
    }

    /// Returns `true` if a word names a parameter or a choice, and is no value.
    pub(crate) fn explains(&self, keyword: &str) -> bool {
        self.list.iter().flat_map(|parameter| &parameter.words).any(|word| word == keyword)
    }

    /// Returns the arguments as JSON, unless the result of a step is missing or does not fit.
    pub(crate) fn to_json<'r>(
        &self,
        arguments: &Arguments,
        result: impl Fn(usize) -> Option<&'r str>,
    ) -> Option<Value> {
        let mut object = Value::Object(Map::new());
        for (parameter, source) in self.list.iter().zip(&arguments.sources) {
            let value = match source {
                Some(Source::Text(text)) => parameter.kind.value(text)?,
                Some(Source::Step(step)) => parameter.kind.value(result(*step)?)?,
                None if parameter.is_null => Value::Null,
                None => continue,
            };
            *parameter.path.iter().fold(&mut object, |place, name| &mut place[&**name]) = value;
        }
        Some(object)
    }
}

impl ParameterKind {
    fn new(schemas: &[&Value], words: &[String], description: &str) -> Self {
        let constants = schemas.iter().flat_map(|schema| match &schema["enum"] {
            Value::Array(values) => values.iter().collect(),
            _ => vec![&schema["const"]],
        });
        let choices: Vec<_> = constants.filter_map(Value::as_str).map(str::to_owned).collect();
        let Some(schema) = schemas.first().filter(|_| choices.is_empty()) else {
            return Self::OneOf(choices);
        };
        let mut kinds = types(schema).filter(|kind| *kind != "null");
        match kinds.next() {
            Some("number") => Self::Number,
            Some("integer") => Self::Integer,
            Some("boolean") => Self::Boolean,
            Some("string") => Self::Text(match schema["format"].as_str() {
                Some("email") => TokenKind::Email,
                Some("date" | "date-time") => TokenKind::Date,
                _ if words.iter().any(|word| word == "email") => TokenKind::Email,
                _ => example(description).unwrap_or(TokenKind::Word),
            }),
            _ => Self::Other,
        }
    }

    pub(crate) fn choices(&self) -> &[String] {
        if let Self::OneOf(choices) = self { choices } else { &[] }
    }

    /// Returns the value that a text is, or for a number contains.
    pub(crate) fn value(&self, text: &str) -> Option<Value> {
        match self {
            Self::Number => number(text).map(Value::Number),
            Self::Integer => {
                let number = number(text)?;
                let whole = number.as_f64().filter(|number| number.fract() == 0.0)?;
                number.as_i64().or_else(|| format!("{whole:.0}").parse().ok()).map(Value::from)
            }
            Self::Boolean => text.parse::<bool>().ok().map(Value::from),
            Self::OneOf(_) | Self::Text(_) => Some(text.into()),
            Self::Other => None,
        }
    }
}

/// Returns the form of the example in a description: "the first night, as 2026-12-31".
fn example(description: &str) -> Option<TokenKind> {
    let mut kinds = tokenize(description).into_iter().map(|token| token.kind);
    kinds.find(|kind| matches!(kind, TokenKind::Email | TokenKind::Date))
}

fn number(text: &str) -> Option<Number> {
    let token = tokenize(text).into_iter().find(|token| token.kind == TokenKind::Number)?;
    let digits = token.text.replace(',', "");
    digits.parse::<i64>().map(Number::from).ok().or_else(|| Number::from_f64(digits.parse().ok()?))
}

/// Follows references, and returns the alternatives that are not null, and whether null is one of them.
fn alternatives<'a>(root: &'a Value, schema: &'a Value) -> (Vec<&'a Value>, bool) {
    let (mut open, mut found, mut is_nullable) = (vec![schema], Vec::new(), false);
    for _ in 0..MAX_ALTERNATIVES {
        let Some(schema) = open.pop() else { break };
        let parts = ["anyOf", "oneOf", "allOf"].iter().find_map(|word| schema[word].as_array());
        let target = schema["$ref"].as_str().and_then(|reference| root.pointer(reference.strip_prefix('#')?));
        is_nullable |= types(schema).any(|kind| kind == "null");
        match (target, parts) {
            (Some(target), _) => open.push(target),
            (None, Some(parts)) => open.extend(parts.iter().rev()),
            (None, None) if schema["type"] != "null" => found.push(schema),
            (None, None) => {}
        }
    }
    (found, is_nullable)
}

/// Returns the types that a schema names.
fn types(schema: &Value) -> impl Iterator<Item = &str> {
    let kinds = schema["type"].as_array().map_or(std::slice::from_ref(&schema["type"]), Vec::as_slice);
    kinds.iter().filter_map(Value::as_str)
}

fn preposition_before(name: &str, description: &str) -> Option<String> {
    let words: Vec<_> = description.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let pair = words.windows(2).find(|pair| pair[1] == name)?;
    Some(pair[0].to_lowercase()).filter(|word| is_in(PREPOSITIONS, word))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn reads_numbers_exactly() {
        for (text, expected) in [
            ("475695037565", "475695037565"),
            ("007", "7"),
            (".5", "0.5"),
            ("1e5", "100000.0"),
            ("-2.50", "-2.5"),
            ("1,000", "1000"),
            ("0", "0"),
        ] {
            assert_eq!(number(text).unwrap().to_string(), expected);
        }
    }
}
