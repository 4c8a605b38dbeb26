//! Questions of tools as forms of the protocol: a flat object of texts, numbers, booleans and choices.

use std::borrow::Cow;

use rmcp::model::{ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest};
use serde_json::{Map, Value, json};
use tool_core::run::Decision;
use tool_core::tool::Question;

/// The name of the property of an answer that is no object.
const ANSWER: &str = "answer";

/// The keywords of JSON Schema that the protocol allows in forms. What others demand is checked once the answer is there.
const KEYWORDS: [&str; 13] = [
    "type",
    "title",
    "description",
    "minLength",
    "maxLength",
    "format",
    "minimum",
    "maximum",
    "enum",
    "oneOf",
    "items",
    "minItems",
    "maxItems",
];

const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

/// Returns the form that asks a question, or `None` if no form can express the answer.
pub(super) fn form_of(question: &Question) -> Option<InputRequest> {
    let schema = match properties_of(question) {
        Some(properties) => whole(properties, question)?,
        None => {
            let (property, is_optional) = answer_property(question)?;
            let required: &[&str] = if is_optional { &[] } else { &[ANSWER] };
            json!({ "type": "object", "properties": { ANSWER: property }, "required": required })
        }
    };
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
    let message = match question.problem() {
        Some(problem) => format!("{}\n({problem})", question.text()),
        None => question.text().to_owned(),
    };
    let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
    Some(InputRequest::Elicitation(ElicitRequest::new(params)))
}

/// Returns the answer in the content of a form.
pub(super) fn read_answer(question: &Question, content: Value) -> Decision {
    if let Some(properties) = properties_of(question) {
        // The form forbids no others.
        let content: Map<_, _> = match content {
            Value::Object(content) => {
                content.into_iter().filter(|(name, _)| properties.contains_key(name)).collect()
            }
            other => return Decision::answer(other),
        };
        return Decision::answer(content);
    }
    let answer = content.get(ANSWER).cloned().unwrap_or_default();
    let chosen = question.choices().iter().find(|choice| answer == *choice_key(choice));
    Decision::answer(chosen.unwrap_or(&answer))
}

/// Returns the properties of an answer that is an object and is asked for as a whole.
fn properties_of(question: &Question) -> Option<&Map<String, Value>> {
    let properties = resolve(question.schema(), question)?.get("properties")?.as_object()?;
    (question.choices().is_empty() && !properties.is_empty()).then_some(properties)
}

fn whole(properties: &Map<String, Value>, question: &Question) -> Option<Value> {
    let mut required: Vec<Value> =
        resolve(question.schema(), question)?["required"].as_array().cloned().unwrap_or_default();
    let mut form = Map::new();
    for (name, schema) in properties {
        let (mut property, is_optional) = property(schema, question)?;
        set_default(&mut property, question.default().and_then(|default| default.get(name)));
        required.retain(|one| !is_optional || one != name);
        form.insert(name.clone(), property);
    }
    Some(json!({ "type": "object", "properties": form, "required": required }))
}

fn answer_property(question: &Question) -> Option<(Value, bool)> {
    if question.choices().is_empty() {
        let (mut property, is_optional) = property(question.schema(), question)?;
        set_default(&mut property, question.default());
        return Some((property, is_optional));
    }
    let choices = question.labeled_choices();
    let choices: Vec<_> =
        choices.map(|(label, choice)| json!({ "const": choice_key(choice), "title": label })).collect();
    let mut property = json!({ "type": "string", "oneOf": choices });
    set_default(&mut property, question.default().map(|choice| json!(choice_key(choice))).as_ref());
    Some((property, false))
}

/// Returns the text by which a form names a choice.
fn choice_key(choice: &Value) -> Cow<'_, str> {
    choice.as_str().map_or_else(|| choice.to_string().into(), Cow::Borrowed)
}

fn set_default(property: &mut Value, default: Option<&Value>) {
    if let Some(default) = default.filter(|default| !default.is_null()) {
        property["default"] = default.clone();
    }
}

/// Returns the definition that a reference names, or the schema itself.
fn resolve<'a>(schema: &'a Value, question: &'a Question) -> Option<&'a Value> {
    match schema.get("$ref").and_then(Value::as_str) {
        Some(reference) => question.schema().pointer(reference.strip_prefix('#')?),
        None => Some(schema),
    }
}

/// Returns the property of a form with this schema, and `true` if it can be missing, or `None` if no form can express it.
fn property(schema: &Value, question: &Question) -> Option<(Value, bool)> {
    let schema = resolve(schema, question)?;
    let is_null = |schema: &&Value| schema["type"] == "null";
    if let Some(variants) = schema["anyOf"].as_array() {
        let others: Vec<_> = variants.iter().filter(|variant| !is_null(variant)).collect();
        // A type can contain itself.
        return match others[..] {
            [one] if others.len() < variants.len() && resolve(one, question)?.get("anyOf").is_none() => {
                Some((property(one, question)?.0, true))
            }
            _ => None,
        };
    }
    let mut kinds: Vec<_> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    let is_optional = kinds.contains(&"null");
    kinds.retain(|kind| *kind != "null");
    let mut property: Map<String, Value> =
        KEYWORDS.iter().filter_map(|name| Some(((*name).into(), schema.get(*name)?.clone()))).collect();
    match (&kinds[..], schema.get("oneOf").and_then(Value::as_array)) {
        // An enum whose variants have descriptions.
        ([] | ["string"], Some(variants)) => {
            property.insert("oneOf".into(), titled(variants)?);
            property.insert("type".into(), "string".into());
        }
        ([kind @ ("string" | "integer" | "number" | "boolean")], None) => {
            property.insert("type".into(), (*kind).into());
            property.retain(|name, value| match &**name {
                "format" => FORMATS.iter().any(|format| value == format),
                "minimum" | "maximum" => *kind == "number" || value.is_i64(),
                _ => true,
            });
        }
        (["array"], None) => {
            let items = resolve(schema.get("items")?, question)?;
            let items = match items.get("oneOf").and_then(Value::as_array) {
                Some(variants) => json!({ "anyOf": titled(variants)? }),
                None => {
                    let values = items["enum"].as_array()?;
                    json!({ "type": "string", "enum": values.iter().all(Value::is_string).then_some(values)? })
                }
            };
            property.insert("type".into(), "array".into());
            property.insert("items".into(), items);
        }
        _ => return None,
    }
    Some((property.into(), is_optional))
}

/// Returns the variants of an enum whose variants have descriptions.
fn titled(variants: &[Value]) -> Option<Value> {
    let titled = variants.iter().map(|variant| {
        let value = variant["const"].as_str()?;
        let title = variant["description"].as_str().unwrap_or(value);
        Some(json!({ "const": value, "title": title }))
    });
    titled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(question: Value) -> Question {
        serde_json::from_value(question).unwrap()
    }

    /// Returns the properties of the form of a question, and which are required.
    fn form(asked: Value) -> Value {
        let Some(InputRequest::Elicitation(request)) = form_of(&question(asked)) else { return Value::Null };
        let ElicitRequestParams::FormElicitationParams { requested_schema, .. } = request.params else {
            unreachable!()
        };
        let schema = serde_json::to_value(requested_schema).unwrap();
        json!([schema["properties"], schema["required"]])
    }

    #[test]
    fn questions_become_forms() {
        let table = [
            (json!({ "type": "boolean" }), json!({ "type": "boolean" })),
            (
                json!({ "type": "string", "minLength": 2, "pattern": "a", "format": "phone" }),
                json!({ "type": "string", "minLength": 2 }),
            ),
            (json!({ "type": "string", "format": "email" }), json!({ "type": "string", "format": "email" })),
            (
                json!({ "type": "integer", "format": "uint64", "minimum": 0, "maximum": 18_446_744_073_709_551_615_u64 }),
                json!({ "type": "integer", "minimum": 0 }),
            ),
            (
                json!({ "type": "string", "enum": ["a", "b"] }),
                json!({ "type": "string", "enum": ["a", "b"] }),
            ),
            (
                json!({ "oneOf": [{ "type": "string", "const": "a", "description": "Left" }] }),
                json!({ "type": "string", "oneOf": [{ "const": "a", "title": "Left" }] }),
            ),
            (
                json!({ "type": "array", "items": { "$ref": "#/$defs/Side" }, "$defs": { "Side": { "type": "string", "enum": ["a"] } } }),
                json!({ "type": "array", "items": { "type": "string", "enum": ["a"] } }),
            ),
            (
                json!({ "type": "array", "items": { "oneOf": [{ "type": "string", "const": "a", "description": "Left" }] } }),
                json!({ "type": "array", "items": { "anyOf": [{ "const": "a", "title": "Left" }] } }),
            ),
        ];
        for (schema, expected) in table {
            let actual = form(json!({ "text": "?", "schema": schema }));
            assert_eq!(actual, json!([{ "answer": expected }, ["answer"]]));
        }
        let optional = json!({ "text": "?", "schema": { "type": ["string", "null"] } });
        assert_eq!(form(optional), json!([{ "answer": { "type": "string" } }, []]));
        let object = json!({ "type": "object", "required": ["name", "age"], "properties": {
            "name": { "type": "string" }, "age": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
        } });
        let default = json!({ "name": "Ada" });
        assert_eq!(
            form(json!({ "text": "?", "schema": object, "default": default })),
            json!([{ "name": { "type": "string", "default": "Ada" }, "age": { "type": "integer" } }, ["name"]])
        );
    }

    #[test]
    fn answers_that_no_form_can_express_are_not_asked_for() {
        for schema in [
            json!({ "type": "array", "items": { "type": "string" } }),
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            json!({ "type": "object", "properties": { "a": { "type": "object", "properties": {} } } }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "$ref": "#/$defs/missing" }),
            json!({ "$ref": "#/$defs/A", "$defs": { "A": { "anyOf": [{ "$ref": "#/$defs/A" }, { "type": "null" }] } } }),
            json!({}),
        ] {
            assert_eq!(form(json!({ "text": "?", "schema": schema })), Value::Null, "{schema}");
        }
    }

    #[test]
    fn what_no_property_of_a_form_asks_for_is_ignored() {
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let asked = question(json!({ "text": "?", "schema": schema }));
        let read = read_answer(&asked, json!({ "name": "Ada", "confirm": true }));
        assert!(read == Decision::answer(json!({ "name": "Ada" })));
        assert!(read_answer(&asked, json!("Ada")) == Decision::answer("Ada"));
    }

    #[test]
    fn choices_are_named_by_texts_and_read_back_as_values() {
        let asked = json!({
            "text": "Which seat?", "schema": { "type": "object" }, "choices": [{ "row": 3 }, "any"],
            "labels": ["by the window", "any seat"], "default": "any",
        });
        let expected = json!([{ "answer": { "type": "string", "default": "any", "oneOf": [
            { "const": r#"{"row":3}"#, "title": "by the window" }, { "const": "any", "title": "any seat" },
        ] } }, ["answer"]]);
        assert_eq!(form(asked.clone()), expected);
        let asked = question(asked);
        let read = |answer: &str| read_answer(&asked, json!({ "answer": answer }));
        assert!(read(r#"{"row":3}"#) == Decision::answer(json!({ "row": 3 })));
        assert!(read("any") == Decision::answer("any"));
        assert!(read("none") == Decision::answer("none"));
    }
}
