use serde_json::{Value, json};

use super::node::ANYTHING;
use serde_json::Map;

type Form = Map<String, Value>;
use super::*;

/// Returns the strict form of a parameter `it`, which is optional if the name ends in `?`.
fn form_of(name: &str, schema: Value) -> Result<Value, String> {
    let required: &[&str] = if name == "it" { &["it"] } else { &[] };
    let mut whole = json!({ "type": "object", "properties": { "it": schema }, "required": required });
    whole["$defs"] = json!({
        "Tree": { "type": "object", "properties": { "left": { "$ref": "#/$defs/Tree" } } },
        "Word": { "type": ["string", "null"] },
        "Not used": true,
    });
    match strict_form(&whole) {
        Ok(form) => Ok(form["properties"]["it"].clone()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn forms_of_plain_values() {
    let table = [
        (json!({ "type": "string" }), json!({ "type": "string" })),
        (
            json!({ "type": "string", "minLength": 1, "maxLength": 64, "description": "a name" }),
            json!({ "type": "string", "description": "a name. 1 to 64 characters." }),
        ),
        (
            json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
            json!({ "type": "string", "description": "Exactly 1 character." }),
        ),
        (
            json!({ "type": "string", "maxLength": 1 }),
            json!({ "type": "string", "description": "At most 1 character." }),
        ),
        (
            json!({ "type": "string", "minLength": 2 }),
            json!({ "type": "string", "description": "At least 2 characters." }),
        ),
        (json!({ "type": "string", "minLength": 0 }), json!({ "type": "string" })),
        (
            json!({ "type": "string", "pattern": "^[a-z]+$", "format": "uuid" }),
            json!({ "type": "string", "pattern": "^[a-z]+$", "format": "uuid" }),
        ),
        (
            json!({ "type": "string", "pattern": "^(?!a)", "format": "uri" }),
            json!({ "type": "string", "description": "Matches the regular expression `^(?!a)`. Format: uri." }),
        ),
        (
            json!({ "type": "string", "contentEncoding": "base64", "contentMediaType": "image/png" }),
            json!({ "type": "string", "description": "Encoded as base64. Media type: image/png." }),
        ),
        (json!({ "type": "string", "title": "Name" }), json!({ "type": "string", "description": "Name" })),
        (
            json!({ "type": "string", "title": "Name", "description": "whose?" }),
            json!({ "type": "string", "description": "whose?" }),
        ),
        (
            json!({ "type": "integer", "minimum": 0, "exclusiveMaximum": 9, "multipleOf": 3, "examples": [3, 6] }),
            json!({
                "type": "integer", "minimum": 0, "exclusiveMaximum": 9, "multipleOf": 3, "description": "Examples: 3, 6.",
            }),
        ),
        (
            json!({ "type": "number", "example": 0.5 }),
            json!({ "type": "number", "description": "Example: 0.5." }),
        ),
        (
            json!({ "type": "integer", "not": { "const": 0 }, "default": 5 }),
            json!({ "type": "integer", "description": "Not 0. The default is 5." }),
        ),
        (
            json!({ "type": "boolean", "deprecated": true }),
            json!({ "type": "boolean", "description": "Deprecated." }),
        ),
        (json!({ "type": "null" }), json!({ "type": "null" })),
        (json!({ "type": ["integer", "number"] }), json!({ "type": "number" })),
        (
            json!({ "type": ["string", "integer"], "minLength": 2, "minimum": 1 }),
            json!({
                "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 1 }],
                "description": "At least 2 characters.",
            }),
        ),
        (json!({ "type": "string", "x-own": true, "$comment": "none" }), json!({ "type": "string" })),
    ];
    for (schema, expected) in table {
        assert_eq!(form_of("it", schema.clone()), Ok(expected), "{schema}");
    }
}

#[test]
fn forms_of_listed_values() {
    let table = [
        (json!({ "enum": ["a", "b"] }), json!({ "type": "string", "enum": ["a", "b"] })),
        (json!({ "type": "string", "enum": ["a", 1] }), json!({ "type": "string", "enum": ["a"] })),
        (
            json!({ "enum": ["a", 1, null] }),
            json!({ "anyOf": [{ "type": "string", "enum": ["a"] }, { "type": "integer", "enum": [1] }, { "type": "null" }] }),
        ),
        (json!({ "const": "a" }), json!({ "type": "string", "const": "a" })),
        (json!({ "const": null }), json!({ "type": "null" })),
        (
            json!({ "type": ["string", "null"], "enum": ["a", null] }),
            json!({ "type": ["string", "null"], "enum": ["a", null] }),
        ),
        (json!({ "type": ["string", "null"], "const": "a" }), json!({ "type": "string", "const": "a" })),
        (
            json!({ "oneOf": [{ "const": "a", "description": "first" }, { "type": "string", "enum": ["b"] }] }),
            json!({ "anyOf": [
                { "type": "string", "const": "a", "description": "first" },
                { "type": "string", "enum": ["b"] },
            ] }),
        ),
    ];
    for (schema, expected) in table {
        assert_eq!(form_of("it", schema.clone()), Ok(expected), "{schema}");
    }
}

#[test]
fn optional_properties_are_nullable() {
    let table = [
        (json!({ "type": "string" }), json!({ "type": ["string", "null"] })),
        (json!({ "type": ["string", "null"] }), json!({ "type": ["string", "null"] })),
        (json!({ "type": "string", "nullable": true }), json!({ "type": ["string", "null"] })),
        (json!({ "enum": ["a"] }), json!({ "type": ["string", "null"], "enum": ["a", null] })),
        (json!({ "const": "a" }), json!({ "type": ["string", "null"], "enum": ["a", null] })),
        (
            json!({ "type": ["string", "integer"] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }, { "type": "null" }] }),
        ),
        (
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }, { "type": "null" }] }),
        ),
        (
            json!({ "anyOf": [{ "oneOf": [{ "type": "string" }, { "type": "integer" }] }, { "type": "null" }] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }, { "type": "null" }] }),
        ),
        (
            json!({ "$ref": "#/$defs/Tree", "description": "the root" }),
            json!({ "anyOf": [{ "$ref": "#/$defs/Tree" }, { "type": "null" }], "description": "the root" }),
        ),
        (
            json!({ "$ref": "#/$defs/Word" }),
            json!({ "anyOf": [{ "$ref": "#/$defs/Word" }, { "type": "null" }] }),
        ),
        (
            json!({ "type": "object", "properties": {} }),
            json!({ "type": ["object", "null"], "properties": {}, "required": [], "additionalProperties": false }),
        ),
        (
            json!({ "type": "integer", "default": 5, "description": "how many" }),
            json!({ "type": ["integer", "null"], "description": "how many. `null` means 5." }),
        ),
        (
            json!({ "type": ["integer", "null"], "default": 5 }),
            json!({ "type": ["integer", "null"], "description": "The default is 5." }),
        ),
        (json!({ "type": ["integer", "null"], "default": null }), json!({ "type": ["integer", "null"] })),
    ];
    for (schema, expected) in table {
        assert_eq!(form_of("it?", schema.clone()), Ok(expected), "{schema}");
    }
}

#[test]
fn forms_of_objects_and_lists() {
    let closed = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let text = json!({ "type": "string" });
    let table = [
        (
            json!({ "type": "object", "properties": { "b": text, "a": text }, "required": ["a"] }),
            closed(json!({ "b": { "type": ["string", "null"] }, "a": text }), json!(["b", "a"])),
        ),
        (
            json!({ "properties": { "a": text }, "required": ["a"], "additionalProperties": false, "minProperties": 1 }),
            {
                let mut closed = closed(json!({ "a": text }), json!(["a"]));
                closed["description"] = json!("At least 1 field.");
                closed
            },
        ),
        (
            json!({ "type": "array", "items": text, "minItems": 1, "maxItems": 3, "uniqueItems": true }),
            json!({ "type": "array", "items": text, "minItems": 1, "maxItems": 3, "description": "No item twice." }),
        ),
        (
            json!({ "type": "array", "prefixItems": [text, text], "minItems": 2 }),
            json!({ "type": "array", "items": text, "minItems": 2, "maxItems": 2 }),
        ),
        (
            json!({
                "type": "array", "prefixItems": [{ "type": "integer", "description": "the year." }, text],
                "items": { "anyOf": [text] }, "minItems": 2, "maxItems": 2, "description": "when",
            }),
            json!({
                "type": "array", "items": { "anyOf": [{ "type": "integer", "description": "the year." }, text] },
                "minItems": 2, "maxItems": 2, "description": "when. In this order: the year, string.",
            }),
        ),
        (
            json!({ "type": "array", "prefixItems": [text], "items": { "type": "integer" } }),
            json!({
                "type": "array", "items": { "anyOf": [text, { "type": "integer" }] },
                "description": "In this order: string.",
            }),
        ),
        (
            json!({ "type": "array", "items": [text, text] }),
            json!({ "type": "array", "items": text, "maxItems": 2 }),
        ),
        // Merged schemas.
        (json!({ "allOf": [text], "description": "one" }), json!({ "type": "string", "description": "one" })),
        (
            json!({ "allOf": [{ "$ref": "#/$defs/Tree" }], "description": "one" }),
            json!({ "anyOf": [{ "$ref": "#/$defs/Tree" }], "description": "one" }),
        ),
        (json!({ "allOf": [{ "$ref": "#/$defs/Tree" }] }), json!({ "$ref": "#/$defs/Tree" })),
        (
            json!({ "type": "object", "properties": { "a": text }, "allOf": [
                { "properties": { "b": text, "a": text }, "required": ["b"] },
                { "type": "object", "required": ["a"] },
            ] }),
            closed(json!({ "a": text, "b": text }), json!(["a", "b"])),
        ),
        (
            json!({ "type": "object", "properties": { "a": text }, "required": ["a"], "description": "one", "oneOf": [
                { "properties": { "b": text }, "required": ["b"], "description": "with b" },
                { "properties": { "c": text }, "required": ["c"] },
            ] }),
            {
                let mut with_b = closed(json!({ "a": text, "b": text }), json!(["a", "b"]));
                with_b["description"] = json!("with b");
                let with_c = closed(json!({ "a": text, "c": text }), json!(["a", "c"]));
                json!({ "anyOf": [with_b, with_c], "description": "one" })
            },
        ),
        (
            json!({ "properties": { "a": text }, "anyOf": [{ "required": ["a"] }, {}] }),
            json!({ "anyOf": [
                closed(json!({ "a": text }), json!(["a"])),
                closed(json!({ "a": { "type": ["string", "null"] } }), json!(["a"])),
            ] }),
        ),
    ];
    for (schema, expected) in table {
        assert_eq!(form_of("it", schema.clone()), Ok(expected), "{schema}");
    }
}

#[test]
fn forms_of_whole_schemas() {
    let none = json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
    assert_eq!(strict_form(&json!({ "type": "object" })), Ok(none.clone()));
    assert_eq!(strict_form(&none), Ok(none));

    // References remain, definitions are written once, also under the name of earlier drafts, and unused ones are removed.
    let node = json!({ "properties": { "next": { "$ref": "#/definitions/a~1b" }, "top": { "$ref": "#" } } });
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/Arguments",
        "definitions": { "a/b": node, "other": true, "Arguments": {
            "type": "object", "description": "all", "properties": { "it": { "$ref": "#/definitions/a~1b" } },
        } },
    });
    let or_null = |reference: &str| json!({ "anyOf": [{ "$ref": reference }, { "type": "null" }] });
    let expected = json!({
        "type": "object",
        "properties": { "it": or_null("#/$defs/a~1b") },
        "required": ["it"],
        "additionalProperties": false,
        "description": "all",
        "$defs": { "a/b": {
            "type": "object",
            "properties": { "next": or_null("#/$defs/a~1b"), "top": or_null("#") },
            "required": ["next", "top"],
            "additionalProperties": false,
        } },
    });
    assert_eq!(strict_form(&schema), Ok(expected));

    // The strict form of a strict form is unchanged.
    let strict = strict_form(&schema).unwrap();
    assert_eq!(strict_form(&strict), Ok(strict));
}

#[test]
fn refuses_unsupported_schemas() {
    let map = "strict mode does not support maps with arbitrary keys; use a list of pairs";
    let list = "strict mode does not support lists of anything; specify `items`";
    let table = [
        (json!({}), "$.properties.it", ANYTHING),
        (json!(true), "$.properties.it", ANYTHING),
        (json!(false), "$.properties.it", "no value is valid here; remove the schema"),
        (json!(5), "$.properties.it", "a schema must be an object"),
        (json!({ "description": "any" }), "$.properties.it", ANYTHING),
        (json!({ "minimum": 1 }), "$.properties.it", ANYTHING),
        (json!({ "type": "object", "additionalProperties": true }), "$.properties.it", map),
        (json!({ "type": "object", "additionalProperties": { "type": "string" } }), "$.properties.it", map),
        (
            json!({ "type": "object", "properties": {}, "patternProperties": { "a": {} } }),
            "$.properties.it",
            map,
        ),
        (
            json!({ "type": "object" }),
            "$.properties.it",
            "strict mode does not support objects of any shape; specify `properties`",
        ),
        (
            json!({ "type": "object", "properties": {}, "required": ["a"] }),
            "$.properties.it",
            "`a` is required but not in `properties`; add it there",
        ),
        (json!({ "type": "array" }), "$.properties.it", list),
        (json!({ "type": "array", "items": {} }), "$.properties.it.items", ANYTHING),
        (json!({ "type": "array", "prefixItems": [] }), "$.properties.it", list),
        (
            json!({ "type": "object", "properties": { "a": { "anyOf": [{ "type": "string" }, {}] } } }),
            "$.properties.it.properties.a.anyOf[1]",
            ANYTHING,
        ),
        (json!({ "anyOf": [] }), "$.properties.it", "`anyOf` must be a list of schemas"),
        (json!({ "type": "date" }), "$.properties.it", "`type` must contain JSON types"),
        (json!({ "type": "integer", "minimum": true }), "$.properties.it", "`minimum` must be a number"),
        (
            json!({ "type": "string", "maxLength": -1 }),
            "$.properties.it",
            "`maxLength` must be a non-negative integer",
        ),
        (
            json!({ "type": "string", "enum": [1] }),
            "$.properties.it",
            "no value of `enum` has the required type",
        ),
        (
            json!({ "enum": [[1]] }),
            "$.properties.it",
            "strict mode does not support lists and objects in `enum` or `const`",
        ),
        (
            json!({ "type": "string", "not": { "type": "null" } }),
            "$.properties.it",
            "strict mode does not support this `not`; specify the valid values instead",
        ),
        (
            json!({ "type": "string", "if": {}, "then": {} }),
            "$.properties.it",
            "strict mode does not support `if`; describe it in the description",
        ),
        (
            json!({ "type": "string", "allOf": [{ "type": "integer" }] }),
            "$.properties.it",
            "`type` has different values that cannot be merged for strict mode; combine the schemas into one",
        ),
        (
            json!({ "allOf": [{ "$ref": "#/$defs/Tree" }, { "properties": { "a": {} } }] }),
            "$.properties.it",
            "strict mode does not support `properties` beside `$ref`; inline the definition",
        ),
        (
            json!({ "$ref": "#/$defs/Tree", "minProperties": 1 }),
            "$.properties.it",
            "strict mode does not support `minProperties` beside `$ref`; inline the definition",
        ),
        (json!({ "$ref": "#/$defs/None" }), "$.properties.it", "there is no `None` in `$defs`"),
        (
            json!({ "$ref": "#/properties/it" }),
            "$.properties.it",
            "strict mode does not support the reference `#/properties/it`; refer to `#` or to a schema in `#/$defs`",
        ),
        (
            json!({ "$ref": "other.json#/$defs/Tree" }),
            "$.properties.it",
            "strict mode does not support the reference `other.json#/$defs/Tree`; refer to `#` or to a schema in `#/$defs`",
        ),
    ];
    for (schema, path, reason) in table {
        assert_eq!(form_of("it", schema.clone()), Err(format!("`{path}`: {reason}")), "{schema}");
    }
}

#[test]
fn refuses_unsupported_top_levels() {
    let object = "the arguments of a tool must be an object; specify `\"type\": \"object\"`";
    let choice =
        "strict mode does not support alternatives at the top level; use several tools or a single parameter";
    let table = [
        (json!({ "type": "string" }), "$", object),
        (json!({ "type": ["object", "null"] }), "$", object),
        (json!({ "$ref": "#" }), "$", object),
        (json!({ "anyOf": [{ "type": "object" }] }), "$", choice),
        (json!({ "$ref": "#/$defs/A", "$defs": { "A": { "oneOf": [] } } }), "$", choice),
        (json!({}), "$", ANYTHING),
        (json!([]), "$", "a schema must be an object"),
        (
            json!({ "properties": { "a": { "$ref": "#/$defs/A" } }, "$defs": { "A": { "properties": { "b": {} } } } }),
            "$.$defs.A.properties.b",
            ANYTHING,
        ),
        (
            json!({ "properties": { "a": { "$ref": "#/$defs/A" } }, "$defs": { "A": true }, "definitions": { "A": {} } }),
            "$.properties.a",
            "`A` is in `$defs` and in `definitions`; rename one of them",
        ),
        (
            json!({
                "properties": { "a": { "$ref": "#/$defs/A" } },
                "$defs": { "A": { "$ref": "#/$defs/B" }, "B": { "$ref": "#/$defs/A" } },
            }),
            "$.properties.a",
            "the reference leads only to other references; refer to a schema",
        ),
    ];
    for (schema, path, reason) in table {
        let error = Unsupported { path: path.into(), reason: reason.into() };
        assert_eq!(strict_form(&schema), Err(error), "{schema}");
    }
}

fn nested(levels: usize) -> Value {
    (1..levels).fold(json!({ "properties": {} }), |inner, _| {
        let properties = Form::from_iter([("it".to_owned(), inner)]);
        Form::from_iter([("properties".to_owned(), properties.into())]).into()
    })
}

fn texts(count: usize, length: usize) -> Value {
    (0..count).map(|number| Value::from(format!("{number:0length$}"))).collect()
}

#[test]
fn enforces_limits() {
    let properties = |count: usize| {
        let properties: Form =
            (0..count).map(|number| (format!("p{number}"), json!({ "type": "null" }))).collect();
        json!({ "properties": properties })
    };
    let listing = |values: Value| json!({ "properties": { "it": { "enum": values } }, "required": ["it"] });
    assert!(strict_form(&nested(10)).is_ok());
    assert!(strict_form(&properties(5_000)).is_ok());
    assert!(strict_form(&listing(texts(1_000, 15))).is_ok());
    assert!(strict_form(&listing(texts(250, 400))).is_ok());
    let table = [
        (nested(11), "strict mode allows at most 10 levels of nested objects and lists; flatten the schema"),
        (properties(5_001), "strict mode allows at most 5000 properties; split the tool into several"),
        (
            listing(texts(1_001, 1)),
            "strict mode allows at most 1000 `enum` values; split the tool into several",
        ),
        (
            listing(texts(250, 480)),
            "strict mode allows at most 120000 characters in names and `enum` values; split the tool into several",
        ),
        (
            listing(texts(251, 60)),
            "an `enum` of more than 250 values may have at most 15000 characters in strict mode",
        ),
        (
            json!({ "type": "object", "description": "x".repeat(1_000_001) }),
            "strict mode allows at most 1000000 bytes in descriptions; split the tool into several",
        ),
    ];
    for (schema, reason) in table {
        assert_eq!(strict_form(&schema).unwrap_err().reason, reason);
    }
}

/// Schemas that are deep, refer to themselves or would grow when expanded are refused or have a form of bounded size.
#[test]
fn hostile_schemas_take_bounded_time() {
    let many = if std::env::var_os("TESTS_EXHAUSTIVE").is_some() { 1_000_000 } else { 100_000 };
    // Built without `json!`, which would copy the content of each level on the stack.
    let wrap = |inner: Value, word: &str| Value::from(Form::from_iter([(word.into(), inner)]));
    let deep = |word: &str, is_list: bool| {
        (0..1_000).fold(json!({ "type": "string" }), |inner, _| {
            let mut outer = wrap(if is_list { Value::from(vec![inner]) } else { inner }, word);
            outer["type"] = "array".into();
            outer
        })
    };
    let only = |word: &str| (0..1_000).fold(json!({}), |inner, _| wrap(Value::from(vec![inner]), word));
    let parameter = |schema: Value| wrap(wrap(schema, "it"), "properties");
    let chain = |count: usize, link: &dyn Fn(usize) -> Value| -> Form {
        (0..count).map(|number| (format!("d{number}"), link(number))).collect()
    };
    let next = |number: usize| json!({ "$ref": format!("#/$defs/d{}", number + 1) });
    let last = |mut definitions: Form, count: usize| {
        definitions.insert(format!("d{count}"), json!({ "type": "string" }));
        json!({ "properties": { "it": { "$ref": "#/$defs/d0" } }, "$defs": definitions })
    };
    let base: Form = (0..400).map(|number| (format!("p{number}"), json!({ "type": "null" }))).collect();
    let branches: Vec<_> =
        (0..1_000).map(|number| json!({ "required": [format!("p{}", number % 400)] })).collect();
    let table = [
        (nested(1_000), false),
        (deep("items", false), false),
        (deep("prefixItems", true), false),
        (parameter(deep("anyOf", true)), false),
        (parameter(only("allOf")), false),
        (parameter(only("anyOf")), false),
        (parameter((0..1_000).fold(json!({}), |inner, _| wrap(inner, "not"))), false),
        // References that would grow exponentially are not expanded.
        (
            last(chain(40, &|number| json!({ "properties": { "a": next(number), "b": next(number) } })), 40),
            true,
        ),
        (last(chain(40, &|number| json!({ "anyOf": [next(number), next(number)] })), 40), true),
        (last(chain(40, &|number| json!({ "allOf": [next(number), next(number)] })), 40), true),
        (last(chain(many / 4, &next), many / 4), false),
        (
            json!({ "properties": { "it": { "$ref": "#/$defs/A" } }, "$defs": { "A": { "anyOf": [{ "$ref": "#/$defs/A" }] } } }),
            true,
        ),
        // The base would have to be written a thousand times.
        (json!({ "properties": { "it": { "properties": base, "anyOf": branches } } }), false),
        (json!({ "properties": { "it": { "anyOf": vec![json!({ "type": "string" }); many / 4] } } }), false),
        (json!({ "properties": { "it": { "type": vec!["string"; many] } } }), false),
        (json!({ "type": "object", "$defs": { "a": vec![json!({}); many] } }), true),
        (json!({ "type": "object", "required": vec!["a"; many] }), false),
        (json!({ "properties": { "é".repeat(many): {} } }), false),
    ];
    let clock = std::time::Instant::now();
    for (index, (schema, has_form)) in table.iter().enumerate() {
        let form = strict_form(schema);
        assert_eq!(form.is_ok(), *has_form, "{index}: {:?}", form.err());
        if let Err(error) = form {
            assert!(error.to_string().len() < 5_000, "{index}");
        }
    }
    // This takes milliseconds, but hours if anything were expanded.
    assert!(clock.elapsed().as_secs() < 60);
}
