//! Tools from a JSON Schema at run time: accepted schemas, accepted arguments, and messages about wrong ones.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tests::support::sampling::size;
use tool_core::model::ToolDefinition;
use tool_core::signatures::DynamicToolErrorKind;
use tool_core::tool::{DynamicTool, ToolErrorKind, ToolExecution};
use tool_core::{Tool, ToolCall, ToolContext, ToolSet};

/// Returns a tool that returns its arguments.
fn echo(schema: Value) -> DynamicTool {
    DynamicTool::new("echo", schema, |arguments: Value| arguments).unwrap()
}

fn set_of(tool: DynamicTool) -> ToolSet {
    ToolSet::new([Arc::new(tool) as Arc<dyn Tool>]).unwrap()
}

async fn execute(set: &ToolSet, arguments: &str) -> ToolExecution {
    let name = set.definitions()[0].name();
    set.execute(ToolCall::new("call_1", name, arguments), &ToolContext::new()).await
}

/// Returns the arguments that reach the executor, or the error that is reported to the model.
async fn outcome(set: &ToolSet, arguments: &str) -> Result<Value, String> {
    match execute(set, arguments).await.outcome() {
        Ok(output) => Ok(serde_json::from_str(&output.to_string()).unwrap()),
        Err(error) => {
            assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{error}");
            Err(error.to_string().strip_prefix("invalid arguments: ").unwrap().to_owned())
        }
    }
}

fn refusal(schema: Value) -> String {
    let error = DynamicTool::new("echo", schema, |_: Value| ()).unwrap_err();
    error.to_string().strip_prefix("the schema of the tool `echo` cannot be used: ").unwrap().to_owned()
}

#[derive(Deserialize)]
struct Case {
    id: String,
    tools: Vec<Function>,
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    description: String,
    parameters: Value,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Map<String, Value>,
}

/// Returns a value that no repair makes valid.
fn wrong_value(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") => json!("no object"),
        Some("array") if schema["items"].get("type").is_none() => Value::Null,
        _ => json!({ "zz": [1] }),
    }
}

#[tokio::test]
async fn accepts_the_reference_calls_of_a_benchmark() {
    let (mut calls, mut mutations) = (0, 0);
    for line in include_str!("../functions/cases.jsonl").lines() {
        let Case { id, tools, calls: references } = serde_json::from_str(line).unwrap();
        for Call { name, arguments } in references {
            let function = tools.iter().find(|function| function.name == name).unwrap();
            let schema = function.parameters.clone();
            let seen = Arc::new(Mutex::new(Vec::new()));
            let executor = {
                let seen = Arc::clone(&seen);
                move |arguments: Map<String, Value>| seen.lock().unwrap().push(arguments)
            };
            let tool = DynamicTool::new(&*name, schema.clone(), executor)
                .unwrap()
                .description(&*function.description);
            assert_eq!(*tool.definition().parameters(), schema, "{id}");
            let set = set_of(tool);
            let try_call = async |arguments: &Map<String, Value>| {
                let text = Value::Object(arguments.clone()).to_string();
                let execution = execute(&set, &text).await;
                assert!(execution.repairs().is_empty(), "{id}: {text}");
                execution.outcome().map(drop).map_err(ToString::to_string)
            };

            assert_eq!(try_call(&arguments).await, Ok(()), "{id}");
            assert_eq!(*seen.lock().unwrap(), std::slice::from_ref(&arguments), "{id}");
            calls += 1;

            let mut wrong = Vec::new();
            for (name, property) in schema["properties"].as_object().unwrap() {
                if arguments.contains_key(name) {
                    let mut mutated = arguments.clone();
                    mutated[name] = wrong_value(property);
                    wrong.push((format!("invalid arguments: `{name}`: expected "), mutated));
                }
            }
            for name in schema["required"].as_array().unwrap().iter().filter_map(Value::as_str) {
                let mut mutated = arguments.clone();
                mutated.shift_remove(name).unwrap();
                wrong.push((format!("invalid arguments: `{name}` is missing, expected "), mutated));
            }
            let mut mutated = arguments.clone();
            mutated.insert("zz_extra".into(), 1.into());
            let expected = "invalid arguments: there is no argument `zz_extra`, the arguments are `";
            wrong.push((expected.to_owned(), mutated));
            for (expected, mutated) in wrong {
                let error = try_call(&mutated).await.unwrap_err();
                assert!(error.starts_with(&expected) && !error.contains("; "), "{id}: {error}\n{expected}");
                mutations += 1;
            }
            assert_eq!(seen.lock().unwrap().len(), 1, "{id}: a refused call was executed");
        }
    }
    assert_eq!((calls, mutations), (103, 573));
}

fn trip() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "description": "where to", "minLength": 1, "maxLength": 10 },
            "nights": { "type": "integer", "minimum": 1, "maximum": 30 },
            "price": { "type": "number", "exclusiveMinimum": 0, "default": 100 },
            "class": { "enum": ["first", "second", 3] },
            "code": { "type": "string", "pattern": "^[A-Z]{3}$" },
            "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 3, "uniqueItems": true },
            "note": { "type": ["string", "null"] },
            "stops": { "type": "array", "items": { "$ref": "#/$defs/stop" } },
            "by": {
                "anyOf": [
                    { "type": "object", "properties": { "kind": { "const": "train" }, "seat": { "type": "integer" } },
                      "required": ["kind", "seat"], "additionalProperties": false },
                    { "type": "object", "properties": { "kind": { "const": "car" }, "plate": { "type": "string" } },
                      "required": ["kind", "plate"] },
                    { "type": "string" },
                ],
            },
            "even": { "type": "integer", "multipleOf": 2, "not": { "const": 4 } },
        },
        "required": ["city", "nights"],
        "$defs": {
            "stop": {
                "type": "object",
                "properties": {
                    "name": { "type": "string" },
                    "hours": { "type": "integer" },
                    "next": { "$ref": "#/$defs/stop" },
                },
                "required": ["name"],
            },
        },
    })
}

/// The result for an argument.
enum Reading {
    AsItIs,
    Without,
    Repaired(Value),
    Wrong(&'static str),
}

use Reading::{AsItIs, Repaired, Without, Wrong};

#[tokio::test]
async fn reads_one_argument_of_each_kind() {
    let table = [
        ("price", "9007199254740993", AsItIs),
        ("price", "18446744073709551615", AsItIs),
        ("price", "\"1.5\"", Repaired(json!(1.5))),
        ("price", "0", Wrong("`price`: expected a number above 0, got 0")),
        ("price", "1e400", Wrong("`price`: expected a number above 0, got 1e400")),
        ("class", "\"first\"", AsItIs),
        ("class", "3", AsItIs),
        ("class", "\"FIRST\"", Repaired(json!("first"))),
        ("class", "\"third\"", Wrong("`class`: expected one of \"first\", \"second\", 3, got \"third\"")),
        ("code", "\"FCO\"", AsItIs),
        ("code", "\"fco\"", Wrong("`code`: expected a string that matches `^[A-Z]{3}$`, got \"fco\"")),
        ("tags", "[\"a\", \"b\"]", AsItIs),
        ("tags", "\"a\"", Repaired(json!(["a"]))),
        (
            "tags",
            r#"["a", "a"]"#,
            Wrong("`tags`: expected a list of at most 3 items without repetitions, got a list of 2"),
        ),
        (
            "tags",
            r#"["a", {}, []]"#,
            Wrong("`tags[1]`: expected a string, got an object; `tags[2]`: expected a string, got a list"),
        ),
        ("note", "null", AsItIs),
        ("note", "{}", Wrong("`note`: expected a string or null, got an object")),
        ("price", "null", Without),
        ("stops", "null", Without),
        (
            "stops",
            r#"[{"name": "a", "hours": null, "next": {"name": "b"}}]"#,
            Repaired(json!([{ "name": "a", "next": { "name": "b" } }])),
        ),
        ("stops", r#"[{"name": "a", "hours": "2.0"}]"#, Repaired(json!([{ "name": "a", "hours": 2 }]))),
        (
            "stops",
            r#"[{"name": "a"}, {"next": {"name": "b", "hours": 2.5}}]"#,
            Wrong(
                "`stops[1].name` is missing, expected a string; `stops[1].next.hours`: expected an integer, got 2.5",
            ),
        ),
        ("by", "\"foot\"", AsItIs),
        ("by", r#"{"kind": "car", "plate": "R1"}"#, AsItIs),
        ("by", r#"{"kind": "train"}"#, Wrong("`by.seat` is missing, expected an integer")),
        (
            "by",
            r#"{"kind": "train", "seat": 1, "sea": 2}"#,
            Wrong("`by` has no member `sea`, its members are `kind`, `seat`, did you mean `seat`?"),
        ),
        ("by", "[1]", Wrong("`by`: expected an object or a string, got a list")),
        ("by", r#"{"kind": "boat"}"#, Wrong("`by.kind`: expected one of \"train\", \"car\", got \"boat\"")),
        ("even", "2", AsItIs),
        ("even", "2.0", Repaired(json!(2))),
        (
            "even",
            "3",
            Wrong(
                "`even`: expected an integer that is a multiple of 2 that satisfies `not` of its schema, got 3",
            ),
        ),
        (
            "even",
            "4",
            Wrong(
                "`even`: expected an integer that is a multiple of 2 that satisfies `not` of its schema, got 4",
            ),
        ),
        (
            "nigths",
            "3",
            Wrong(
                "there is no argument `nigths`, the arguments are `city`, `nights`, `price`, `class`, `code`, `tags`, `note`, `stops`, `by`, `even`, did you mean `nights`?",
            ),
        ),
    ];
    let set = set_of(echo(trip()));
    for (name, value, expected) in table {
        let text = format!(r#"{{"city": "Rome", "nights": 2, "{name}": {value}}}"#);
        let mut given = json!({ "city": "Rome", "nights": 2 });
        let execution = execute(&set, &text).await;
        let strictly = execute(&set.clone().no_repair(), &text).await;
        let actual = outcome(&set, &text).await;
        let repaired: Vec<_> = execution.repairs().iter().filter_map(|repair| repair.argument()).collect();
        match expected {
            AsItIs => {
                given[name] = serde_json::from_str(value).unwrap();
                assert_eq!(actual, Ok(given), "{text}");
                assert!(repaired.is_empty() && strictly.outcome().is_ok(), "{text}");
            }
            Without => {
                assert_eq!(actual, Ok(given), "{text}");
                assert!(repaired.is_empty() && strictly.outcome().is_ok(), "{text}");
            }
            Repaired(after) => {
                given[name] = after;
                assert_eq!(actual, Ok(given), "{text}");
                // A nested `null` counts as absent, too, and `2.0` is an integer in JSON Schema.
                let is_repair = !value.contains("null");
                assert_eq!(repaired, if is_repair { vec![name] } else { vec![] }, "{text}");
                assert_eq!(strictly.outcome().is_ok(), !is_repair || value == "2.0", "{text}");
            }
            Wrong(words) => {
                assert_eq!(actual, Err(words.to_owned()), "{text}");
                assert!(repaired.is_empty() && strictly.outcome().is_err(), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn reads_choices_of_types_in_any_spelling() {
    let choices = || json!([{ "type": "integer" }, { "type": "string" }]);
    let table = [
        ("null", json!({})),
        ("1.0", json!({ "it": 1 })),
        ("1.5", json!({ "it": "1.5" })),
        ("\"1\"", json!({ "it": "1" })),
    ];
    for it in [
        json!({ "type": ["integer", "string"] }),
        json!({ "anyOf": choices() }),
        json!({ "oneOf": choices(), "default": 0 }),
        json!({ "allOf": [{ "$ref": "#/$defs/it" }] }),
    ] {
        let defs = json!({ "it": { "anyOf": choices() } });
        let set = set_of(echo(json!({ "type": "object", "properties": { "it": it }, "$defs": defs })));
        for (value, expected) in &table {
            let actual = outcome(&set, &format!("{{\"it\": {value}}}")).await;
            assert_eq!(actual.as_ref(), Ok(expected), "{it}: {value}");
        }
    }
}

#[tokio::test]
async fn reads_the_text_of_all_arguments() {
    let set = set_of(echo(trip()));
    let missing = "`city` is missing, expected a string of 1 to 10 characters (where to); \
         `nights` is missing, expected an integer from 1 to 30";
    let table = [
        ("", missing),
        ("null", missing),
        ("{}", missing),
        ("[]", "expected a JSON object, got a list"),
        ("{ invalid JSON }", "not valid JSON: key must be a string at line 1 column 3"),
        (r#"{"city": "Rome", "city": "Pisa", "nights": 1}"#, "`city` is given twice"),
        (
            r#"{"city": "", "nights": 31, "price": -1, "tags": [1, []], "x": 1}"#,
            "there is no argument `x`, the arguments are `city`, `nights`, `price`, `class`, `code`, `tags`, `note`, \
             `stops`, `by`, `even`; `city`: expected a string of 1 to 10 characters, got \"\"; \
             `nights`: expected an integer from 1 to 30, got 31; `price`: expected a number above 0, got -1; \
             `tags[1]`: expected a string, got a list",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(outcome(&set, text).await, Err(expected.to_owned()), "{text}");
    }
    let optional = set_of(echo(json!({ "type": "object", "properties": { "a": { "type": "integer" } } })));
    for text in ["", " null\n", "{}", "{,}", r#"{"a": null}"#, r#"{"a": null,}"#] {
        assert_eq!(outcome(&optional, text).await, Ok(json!({})), "{text}");
    }
    let twice = r#""{\"a\": 1}""#;
    assert_eq!(outcome(&optional, twice).await, Ok(json!({ "a": 1 })));
    assert!(outcome(&optional.no_repair(), twice).await.is_err());
}

#[tokio::test]
async fn enforces_rules_for_unlisted_names() {
    let with = |more: Value| {
        let mut schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        set_of(echo(schema))
    };
    let is_taken = async |more: Value| outcome(&with(more), r#"{"x_b": 1}"#).await.is_ok();
    assert!(!is_taken(json!({})).await);
    assert!(!is_taken(json!({ "additionalProperties": false })).await);
    assert!(is_taken(json!({ "additionalProperties": true })).await);
    assert!(is_taken(json!({ "additionalProperties": { "type": "integer" } })).await);
    assert!(!is_taken(json!({ "additionalProperties": { "type": "array", "minItems": 2 } })).await);
    assert!(is_taken(json!({ "required": ["x_b"] })).await);
    assert!(!is_taken(json!({ "required": ["x_b"], "additionalProperties": false })).await);
    assert!(is_taken(json!({ "patternProperties": { "^x_": { "type": "integer" } } })).await);
    assert!(is_taken(json!({ "allOf": [{ "properties": { "x_b": { "type": "integer" } } }] })).await);
    assert!(is_taken(json!({ "$ref": "#/$defs/more", "$defs": { "more": { "required": ["x_b"] } } })).await);
    let patterns = json!({ "patternProperties": { "^y_": true }, "additionalProperties": false });
    let error = outcome(&with(patterns), r#"{"x_b": 1}"#).await.unwrap_err();
    assert_eq!(error, "`x_b`: expected what `patternProperties` of the schema allows, got 1");
}

#[tokio::test]
async fn suggests_the_nearest_of_many_names() {
    let properties: Map<_, _> = (0..500).map(|number| (format!("argument{number}"), json!(true))).collect();
    let set = set_of(echo(json!({ "type": "object", "properties": properties })));
    let actual = outcome(&set, r#"{"Argument499": 1}"#).await.unwrap_err();
    assert!(
        actual.contains("the arguments are `argument499`, `argument0`, ") && !actual.contains("`argument99`")
    );
    assert!(actual.ends_with("did you mean `argument499`?"), "{actual}");
}

#[tokio::test]
async fn enforces_constraints_across_arguments() {
    let table = [
        (
            json!({ "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] }),
            "{}",
            "expected an object that satisfies `anyOf` of its schema",
        ),
        (
            json!({ "dependentRequired": { "a": ["b"] } }),
            r#"{"a": 1}"#,
            "expected an object that satisfies `dependentRequired` of its schema",
        ),
        (
            json!({ "if": { "required": ["a"] }, "then": { "required": ["b"] } }),
            r#"{"a": 1}"#,
            "expected an object that satisfies `if` of its schema",
        ),
        (json!({ "minProperties": 1 }), "{}", "expected an object of at least 1 entries"),
        (json!({ "allOf": [{ "required": ["b"] }] }), r#"{"a": 1}"#, "`b` is missing, expected a value"),
    ];
    for (more, text, expected) in table {
        let mut schema = json!({ "type": "object", "properties": { "a": {}, "b": {} } });
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let actual = outcome(&set_of(echo(schema)), text).await;
        assert_eq!(actual, Err(expected.to_owned()), "{more}");
    }
}

#[tokio::test]
async fn accepts_executors_of_all_forms() {
    #[derive(Deserialize)]
    struct Place {
        city: String,
    }
    let schema =
        json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    let make = |schema: &Value| {
        let schema = || schema.clone();
        [
            DynamicTool::new("it", schema(), |place: Place| place.city),
            DynamicTool::new("it", schema(), |map: Map<String, Value>| {
                map["city"].as_str().unwrap().to_owned()
            }),
            DynamicTool::new("it", schema(), |value: Value, context: ToolContext| async move {
                tokio::task::yield_now().await;
                assert!(context.get::<u8>().is_none());
                value["city"].as_str().map(str::to_owned).ok_or("no city")
            }),
            DynamicTool::new("it", schema(), || "Rome"),
        ]
    };
    for (form, tool) in make(&schema).into_iter().enumerate() {
        let execution = execute(&set_of(tool.unwrap()), r#"{"city": "Rome"}"#).await;
        assert_eq!(execution.outcome().unwrap().to_string(), "Rome", "form {form}");
    }
    let tool = DynamicTool::new("it", json!({ "type": "object" }), |place: Place| place.city).unwrap();
    assert_eq!(
        execute(&set_of(tool), "{}").await.outcome().unwrap_err().to_string(),
        "invalid arguments: missing field `city`"
    );
}

#[tokio::test]
async fn applies_the_draft_that_the_schema_names() {
    let schema = |draft: &str| {
        json!({
            "$schema": draft,
            "type": "object",
            "properties": { "pair": { "$ref": "#/definitions/pair", "minItems": 5 }, "mail": { "format": "email" } },
            "definitions": { "pair": { "items": [{ "type": "string" }, { "type": "integer" }] } },
        })
    };
    let set = set_of(echo(schema("http://json-schema.org/draft-07/schema#")));
    // Up to draft-07, siblings of `$ref` are ignored, and a list under `items` describes each item.
    assert!(outcome(&set, r#"{"pair": ["a", 1], "mail": "none"}"#).await.is_ok());
    let actual = outcome(&set, r#"{"pair": ["a", "b"]}"#).await;
    assert_eq!(actual, Err("`pair[1]`: expected an integer, got \"b\"".into()));
    assert!(
        refusal(schema("https://json-schema.org/draft/2020-12/schema"))
            .starts_with("it is not a valid JSON Schema at `")
    );
    let actual = refusal(schema("http://json-schema.org/draft-04/schema#"));
    assert!(actual.starts_with("its `$schema` is \"http://json-schema.org/draft-04/schema#\"; "), "{actual}");
    assert!(refusal(json!({ "$schema": 7, "type": "object" })).starts_with("its `$schema` is 7; "));
}

#[test]
fn refuses_unusable_schemas() {
    let with = |property: Value| json!({ "type": "object", "properties": { "x": property } });
    let table = [
        (json!({ "type": "string" }), "its `type` is \"string\", but must be `\"object\"`"),
        (json!({ "type": ["object", "null"] }), "its `type` is [\"object\",\"null\"], but"),
        (json!({ "properties": {} }), "it has no `type`; add `\"type\": \"object\"` at the root"),
        (json!(true), "it has no `type`"),
        (json!("object"), "it has no `type`"),
        (with(json!({ "type": "float" })), "it is not a valid JSON Schema at `properties.x.type`: "),
        (
            with(json!({ "type": "string", "minLength": -1 })),
            "it is not a valid JSON Schema at `properties.x.minLength`: ",
        ),
        (with(json!({ "required": "a" })), "it is not a valid JSON Schema at `properties.x.required`: "),
        (with(json!(3)), "it is not a valid JSON Schema at `properties.x`: "),
        (
            with(json!({ "pattern": "[" })),
            "the regular expression \"[\" at `properties.x.pattern` is invalid",
        ),
        (with(json!({ "pattern": "(?=a)b" })), "the regular expression \"(?=a)b\" at `properties.x.pattern`"),
        (
            with(json!({ "patternProperties": { "[": true } })),
            "the regular expression \"[\" at `properties.x.patternProperties",
        ),
        (
            with(json!({ "$ref": "https://example.com/a.json" })),
            "`$ref` at `properties.x` refers to `https://example.com/a.json`, but",
        ),
        (
            with(json!({ "$ref": "file:///etc/passwd" })),
            "`$ref` at `properties.x` refers to `file:///etc/passwd`, but",
        ),
        (with(json!({ "$ref": "other.json#/a" })), "`$ref` at `properties.x` refers to `other.json#/a`, but"),
        (
            with(json!({ "$ref": "#/$defs/none" })),
            "`$ref` at `properties.x` refers to `#/$defs/none`, which does not exist",
        ),
        (with(json!({ "$dynamicRef": "#a" })), "`$dynamicRef` at `properties.x` is not supported"),
        (with(json!({ "$id": "https://example.com/b" })), "`$id` at `properties.x` is not supported"),
        (with(json!({ "$ref": "#/properties/x" })), "more than 12 schemas refer to one another"),
        (
            json!({ "type": "object", "allOf": [{ "$ref": "#" }] }),
            "more than 12 schemas refer to one another",
        ),
    ];
    for (schema, expected) in table {
        let actual = refusal(schema.clone());
        assert!(actual.starts_with(expected), "{schema}: {actual}");
    }
    let error = DynamicTool::new("echo", json!({}), |_: Value| ()).unwrap_err();
    assert_eq!(error.kind(), DynamicToolErrorKind::NotAnObject);
}

/// The limit of a schema, in bytes.
const LARGEST_SCHEMA: usize = 1 << 20;

/// Work is counted in allocated bytes, which does not depend on the machine.
fn assert_bounded(name: &str, length: usize, bytes: u64) {
    let limit = 500 * length as u64 + 10_000_000;
    assert!(bytes < limit, "{name}: {bytes} bytes are allocated for {length}");
}

/// The work is bounded and the stack does not overflow: a test has only 2 MiB of it.
#[test]
fn handles_hostile_schemas_in_bounded_time() {
    // `json!` recurses into its arguments.
    let around = |keyword: &str, inner: Value| Value::Object(Map::from_iter([(keyword.to_owned(), inner)]));
    let with = |property: Value| {
        let mut schema = json!({ "type": "object" });
        schema["properties"] = around("x", property);
        schema
    };
    let deep = |levels: usize, keyword: &str| (0..levels).fold(json!({}), |inner, _| around(keyword, inner));
    let chain = |length: usize, link: fn(String) -> Value| {
        let next = |index: usize| link(format!("#/$defs/a{}", index + 1));
        let mut definitions: Map<_, _> =
            (0..length).map(|index| (format!("a{index}"), next(index))).collect();
        definitions.insert(format!("a{length}"), json!({ "type": "integer" }));
        json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/a0" } }, "$defs": definitions })
    };
    let properties = |count: usize| -> Map<String, Value> {
        (0..count).map(|number| (format!("name{number}"), json!({ "type": "integer" }))).collect()
    };
    let table: Vec<(&str, Value, Option<&str>)> = vec![
        ("1,000 levels", with(deep(1000, "items")), Some("it is nested deeper than 100 levels")),
        (
            "many levels",
            with(deep(size(10_000, 100_000), "items")),
            Some("it is nested deeper than 100 levels"),
        ),
        ("90 levels", with(deep(90, "items")), None),
        ("60 times not", with(deep(60, "not")), Some("more than 12 schemas refer")),
        (
            "a bomb of references",
            chain(30, |next| json!({ "allOf": [{ "$ref": next }, { "$ref": next }] })),
            Some("more than 12 schemas refer"),
        ),
        (
            "a small bomb",
            chain(5, |next| json!({ "allOf": vec![json!({ "$ref": next }); 10] })),
            Some("more than 1000 schemas apply to one value"),
        ),
        ("a long chain", chain(10_000, |next| json!({ "$ref": next })), Some("more than 12 schemas")),
        ("a long list", chain(1000, |next| json!({ "properties": { "next": { "$ref": next } } })), None),
        ("many properties", json!({ "type": "object", "properties": properties(size(2_000, 20_000)) }), None),
        (
            "too many properties",
            json!({ "type": "object", "properties": properties(40_000) }),
            Some("it is larger than 1024 KiB"),
        ),
        (
            "megabytes",
            with(json!({ "description": "x".repeat(5_000_000) })),
            Some("it is larger than 1024 KiB"),
        ),
        ("a large enum", with(json!({ "enum": (0..size(10_000, 100_000)).collect::<Vec<_>>() })), None),
        (
            "2,000 choices",
            with(json!({ "anyOf": vec![json!({ "type": "integer" }); 2000] })),
            Some("more than 1000 schemas"),
        ),
        (
            "a large regular expression",
            with(json!({ "pattern": "((a{100}){100}){100}" })),
            Some("the regular expression"),
        ),
        ("a slow regular expression", with(json!({ "pattern": "^(a+)+$" })), None),
        (
            "many regular expressions",
            with(json!({ "patternProperties": properties(300) })),
            Some("it has more than 256 regular"),
        ),
    ];
    for (name, schema, expected) in table {
        let mut actual = None;
        let work = allocation_counter::measure(|| {
            actual = DynamicTool::new("echo", schema, |_: Value| ()).err().map(|error| error.to_string());
        });
        let actual = actual
            .as_deref()
            .and_then(|actual| actual.strip_prefix("the schema of the tool `echo` cannot be used: "));
        assert_eq!(actual.is_some(), expected.is_some(), "{name}: {actual:?}");
        assert!(actual.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{name}: {actual:?}");
        assert!(actual.is_none_or(|actual| actual.len() < 700), "{name}");
        assert_bounded(name, LARGEST_SCHEMA, work.bytes_total);
    }
}

#[test]
fn refuses_hostile_arguments_with_bounded_work() {
    let choice =
        json!({ "type": "object", "properties": { "it": { "$ref": "#/$defs/it" } }, "required": ["it"] });
    let count = size(2_000, 20_000);
    let many: Map<_, _> =
        (0..count).map(|number| (format!("name{number}"), json!({ "type": "integer" }))).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "text": { "type": "string", "pattern": "^(a+)+$" },
            "numbers": { "type": "array", "items": { "type": "integer", "multipleOf": 3 }, "uniqueItems": true },
            "it": { "$ref": "#/$defs/it" },
            "words": { "type": "array", "items": { "enum": many.keys().collect::<Vec<_>>() } },
            "many": { "type": "object", "properties": many, "required": many.keys().collect::<Vec<_>>() },
            "open": { "type": "object", "additionalProperties": { "items": { "$ref": "#/$defs/at_most_5" } } },
        },
        "$defs": {
            "at_most_5": { "type": "object", "properties": { "n": { "type": "integer", "maximum": 5 } } },
             "it": { "anyOf": [choice, choice, choice, { "type": "integer" }] } },
    });
    let numbers = |text: &str| format!(r#"{{"numbers": [{}]}}"#, vec![text; size(3_000, 300_000)].join(","));
    let table = [
        (
            "a long text",
            format!(r#"{{"text": "{}!"}}"#, "a".repeat(size(200_000, 10_000_000))),
            "`text`: expected a string that matches",
        ),
        ("a wrong list", numbers("\"no\""), "`numbers[0]`: expected an integer, got \"no\"; "),
        (
            "a list to repair",
            numbers("\"3\""),
            "`numbers`: expected a list without repetitions, got a list of 3000",
        ),
        (
            "deep choices",
            format!(r#"{{"it": {}"x"{}}}"#, "{\"it\":".repeat(120), "}".repeat(120)),
            "`it`: expected an object",
        ),
        (
            "deep lists",
            format!(
                r#"{{"it": {}1{}}}"#,
                "[".repeat(size(50_000, 5_000_000)),
                "]".repeat(size(50_000, 5_000_000))
            ),
            "`it`: expected an object or an integer, got a list",
        ),
        (
            "many words",
            format!(
                r#"{{"words": [{}]}}"#,
                vec![format!("\"NAME{}\"", count - 1); size(1_000, 30_000)].join(",")
            ),
            "`words[",
        ),
        ("many missing", r#"{"many": {}}"#.to_owned(), "`many.name0` is missing, expected an integer; "),
        (
            "many unknown",
            format!(
                "{{{}}}",
                (0..size(10_000, 500_000))
                    .map(|number| format!("\"x{number}\":0"))
                    .collect::<Vec<_>>()
                    .join(",")
            ),
            "there is no argument `x0`",
        ),
        (
            "many objects in a member with a long name",
            format!(
                r#"{{"open": {{"{}": [{}{{"n":9}}]}}}}"#,
                "a".repeat(size(100_000, 1_000_000)),
                r#"{"n":1},"#.repeat(size(10_000, 100_000))
            ),
            "`open.",
        ),
    ];
    let schema_length = schema.to_string().len();
    let set = set_of(echo(schema));
    for (name, text, expected) in table {
        let mut actual = Ok(Value::Null);
        let work = allocation_counter::measure(|| actual = outcome(&set, &text).now_or_never().unwrap());
        let actual = actual.unwrap_err();
        assert!(
            actual.starts_with(expected) && actual.len() < 6000,
            "{name}, {} bytes: {actual:.500}",
            actual.len()
        );
        // The validator is asked about a wrong argument as a whole, for which its schema is compiled.
        assert_bounded(name, schema_length + text.len(), work.bytes_total);
    }
}

/// Deep arguments, validated through as many schemas per level as possible. A test has only 2 MiB of stack.
#[test]
fn validates_deep_arguments_through_long_chains() {
    type Around = fn(Value) -> Value;
    let kinds: [(&str, Around); 7] = [
        ("allOf", |inner| json!({ "allOf": [inner] })),
        ("anyOf", |inner| json!({ "anyOf": [inner, { "type": "integer" }] })),
        ("oneOf", |inner| json!({ "oneOf": [{ "type": "integer" }, inner] })),
        ("not", |inner| json!({ "not": { "not": inner } })),
        ("then", |inner| json!({ "if": true, "then": inner })),
        ("else", |inner| json!({ "if": false, "else": inner })),
        ("dependentSchemas", |inner| json!({ "dependentSchemas": { "end": inner } })),
    ];
    for (name, around) in kinds {
        let rounds = if name == "not" { 5 } else { 11 };
        let inner = json!({
            "type": "object",
            "properties": { "it": { "$ref": "#/$defs/it" }, "end": { "type": "string", "pattern": "^a$" } },
        });
        let it = (0..rounds).fold(inner, |inner, _| around(inner));
        let schema = json!({ "type": "object", "properties": { "it": { "$ref": "#/$defs/it" } }, "$defs": { "it": it } });
        let set = set_of(echo(schema));
        let levels = r#"{"end":"a","it":"#.repeat(124);
        let deep = |end: &str| format!(r#"{{"it":{levels}{{"end":{end}}}{}"#, "}".repeat(125));
        let work = allocation_counter::measure(|| {
            let outcome = |end: &str| outcome(&set, &deep(end)).now_or_never().unwrap();
            assert!(outcome("\"a\"").is_ok(), "{name}");
            let actual = outcome("\"b\"").unwrap_err();
            assert!(actual.starts_with("`it") && actual.len() < 6000, "{name}: {actual}");
            assert!(outcome("{}").is_err(), "{name}");
        });
        assert_bounded(name, 3 * deep("{}").len(), work.bytes_total);
    }
}

#[test]
fn debug_names_the_tool_only() {
    let tool =
        DynamicTool::new("sum", json!({ "type": "object" }), |_: Value| ()).unwrap().description("Secret");
    assert_eq!(format!("{tool:?}"), "DynamicTool(\"sum\")");
}

#[expect(dead_code, reason = "the auto traits are what is asserted")]
fn assert_auto_traits(tool: DynamicTool, error: tool_core::signatures::DynamicToolError) {
    fn is_shared(_: impl Send + Sync + 'static) {}
    is_shared(tool);
    is_shared(error);
}

#[tokio::test]
async fn a_tool_from_a_definition_has_its_policy_and_takes_options() {
    let definition: ToolDefinition = serde_json::from_value(json!({
        "name": "stay",
        "description": "Books a hotel",
        "parameters": {
            "type": "object",
            "properties": { "city": { "type": "string" }, "nights": { "type": "integer", "maximum": 9 } },
            "required": ["city"],
        },
        "policy": { "needs_approval": true },
        "undo": "cancel",
    }))
    .unwrap();
    let plain = DynamicTool::from_definition(definition.clone(), |arguments: Value| arguments).unwrap();
    assert_eq!(*plain.definition(), definition);
    let tool = plain.exclusive().strict().blocking().convert(|output| output.to_string());
    let policy = tool.definition().policy();
    assert!(policy.needs_approval && policy.exclusive && tool.definition().is_strict());
    let set = set_of(tool);
    assert_eq!(outcome(&set, r#"{"city": "Rome", "nights": null}"#).await, Ok(json!({ "city": "Rome" })));
    assert_eq!(
        outcome(&set, r#"{"city": "Rome", "nights": "3"}"#).await,
        Ok(json!({ "city": "Rome", "nights": 3 }))
    );
    let refused = outcome(&set, r#"{"city": "Rome", "nights": 12}"#).await.unwrap_err();
    assert_eq!(refused, "`nights`: expected an integer up to 9, got 12");

    let wrong = definition.with_parameters(json!({ "type": "array" }));
    let error = DynamicTool::from_definition(wrong, |_: Value| ()).unwrap_err();
    assert_eq!(error.kind(), DynamicToolErrorKind::NotAnObject);
}

/// The work of repairing one argument does not count for the others.
#[tokio::test]
async fn many_arguments_of_long_enums_are_repaired() {
    let names: Vec<_> = (0..1000).map(|number| format!("name{number}")).collect();
    let properties = (0..40).map(|index| (format!("p{index}"), json!({ "enum": names })));
    let schema = json!({ "type": "object", "properties": properties.collect::<Value>() });
    let with = |name: &str| (0..40).map(|index| (format!("p{index}"), json!(name))).collect::<Value>();
    let read = outcome(&set_of(echo(schema)), &with("NAME999").to_string()).await;
    assert_eq!(read, Ok(with("name999")));
}
