//! The published rules of strict schemas, as a provider checks them, and the output of a model constrained to one.

use serde_json::{Map, Value};

const WORDS: [&str; 19] = [
    "type",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "enum",
    "const",
    "anyOf",
    "$ref",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

const FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

#[derive(Default)]
struct Counts {
    properties: usize,
    enum_values: usize,
    characters: usize,
}

/// Checks a strict schema, and returns the first violation.
pub(crate) fn check(schema: &Value) -> Result<(), String> {
    if schema["type"] != "object" || schema.get("anyOf").is_some() {
        return Err("the root must be an object".into());
    }
    let mut counts = Counts::default();
    let mut root = schema.as_object().unwrap().clone();
    let definitions = root.remove("$defs").unwrap_or_default();
    check_schema(schema, &Value::from(root), 0, &mut counts)?;
    for (name, definition) in definitions.as_object().into_iter().flatten() {
        counts.characters += name.len();
        check_schema(schema, definition, 0, &mut counts)?;
    }
    let is_small = counts.properties <= 5_000 && counts.enum_values <= 1_000 && counts.characters <= 120_000;
    if is_small { Ok(()) } else { Err("too large".into()) }
}

fn check_schema(root: &Value, schema: &Value, level: usize, counts: &mut Counts) -> Result<(), String> {
    let words = schema.as_object().ok_or("a schema must be an object")?;
    if let Some(word) = words.keys().find(|word| !WORDS.contains(&&***word)) {
        return Err(format!("`{word}` is not permitted"));
    }
    let kinds = ["type", "anyOf", "$ref"].iter().filter(|word| words.contains_key(**word)).count();
    if kinds != 1 {
        return Err(format!("{schema} must have just one of `type`, `anyOf`, `$ref`"));
    }
    if let Some(reference) = words.get("$ref").and_then(Value::as_str) {
        if words.len() > 1 {
            return Err("`$ref` cannot have other words beside it".into());
        }
        return match root.pointer(reference.strip_prefix('#').ok_or("only local references")?) {
            Some(_) => Ok(()),
            None => Err(format!("{reference} leads nowhere")),
        };
    }
    if let Some(choices) = words.get("anyOf") {
        return choices
            .as_array()
            .ok_or("`anyOf` must be a list")?
            .iter()
            .try_for_each(|choice| check_schema(root, choice, level, counts));
    }
    if words.get("format").is_some_and(|format| !FORMATS.iter().any(|known| format == known)) {
        return Err("the format is not permitted".into());
    }
    let values = words.get("enum").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    counts.enum_values += values.len();
    let texts = values.iter().chain(words.get("const")).filter_map(Value::as_str);
    counts.characters += texts.map(str::len).sum::<usize>();

    let level = level + usize::from(has_type(words, "object") || has_type(words, "array"));
    if level > 10 {
        return Err("too deep".into());
    }
    if has_type(words, "array") {
        check_schema(root, words.get("items").ok_or("array schema missing items")?, level, counts)?;
    }
    if has_type(words, "object") {
        let properties = words.get("properties").and_then(Value::as_object).ok_or("no `properties`")?;
        let required = words.get("required").and_then(Value::as_array).ok_or("no `required`")?;
        if words.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Err("`additionalProperties` must be false".into());
        }
        if !properties.keys().eq(required.iter().filter_map(Value::as_str)) {
            return Err(format!("not all of {properties:?} are required"));
        }
        counts.properties += properties.len();
        for (name, property) in properties {
            counts.characters += name.len();
            check_schema(root, property, level, counts)?;
        }
    }
    Ok(())
}

fn has_type(words: &Map<String, Value>, kind: &str) -> bool {
    match words.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        Some(one) => one == kind,
        None => false,
    }
}

/// Returns a value as a constrained model would write it, with `null` for everything that is absent. Returns `None` if
/// the schema does not permit the value.
pub(crate) fn as_constrained_by(root: &Value, schema: &Value, value: &Value) -> Option<Value> {
    let words = schema.as_object()?;
    if let Some(reference) = words.get("$ref").and_then(Value::as_str) {
        return as_constrained_by(root, root.pointer(reference.strip_prefix('#')?)?, value);
    }
    if let Some(choices) = words.get("anyOf") {
        return choices.as_array()?.iter().find_map(|choice| as_constrained_by(root, choice, value));
    }
    let is_listed = words.get("enum").is_none_or(|values| values.as_array().unwrap().contains(value));
    let is_right = is_listed && words.get("const").is_none_or(|constant| constant == value);
    let (least, most) = (words.get("minimum"), words.get("maximum"));
    match value {
        _ if !is_right => None,
        Value::Null => has_type(words, "null").then(|| value.clone()),
        Value::Bool(_) => has_type(words, "boolean").then(|| value.clone()),
        Value::String(_) => has_type(words, "string").then(|| value.clone()),
        Value::Number(number) => {
            let is_number = has_type(words, "number") || has_type(words, "integer") && !number.is_f64();
            let is_within = least.is_none_or(|least| number.as_f64() >= least.as_f64())
                && most.is_none_or(|most| number.as_f64() <= most.as_f64());
            (is_number && is_within).then(|| value.clone())
        }
        Value::Array(values) => {
            let length = values.len() as u64;
            let is_within = words.get("minItems").is_none_or(|least| least.as_u64().unwrap() <= length)
                && words.get("maxItems").is_none_or(|most| most.as_u64().unwrap() >= length);
            if !has_type(words, "array") || !is_within {
                return None;
            }
            values.iter().map(|value| as_constrained_by(root, &words["items"], value)).collect()
        }
        Value::Object(fields) => {
            let properties = words.get("properties").filter(|_| has_type(words, "object"))?.as_object()?;
            if !fields.keys().all(|name| properties.contains_key(name)) {
                return None;
            }
            let written = properties.iter().map(|(name, property)| {
                let value = fields.get(name).unwrap_or(&Value::Null);
                Some((name.clone(), as_constrained_by(root, property, value)?))
            });
            written.collect::<Option<Map<_, _>>>().map(Value::Object)
        }
    }
}
