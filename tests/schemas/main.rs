//! The schemas of Rust types, in general and in strict form: a table of types, what the model is told of each, whether
//! it can be said in strict mode, and values that must read the same either way.

mod rules;
mod types;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroI8, NonZeroU8, NonZeroU64};
use std::path::PathBuf;

use futures_util::FutureExt;
use serde_json::{Value, json};
use tool_core::{ToolCall, ToolContext, ToolSet, tool, tools};

use self::types::*;

/// What is expected of a type.
struct Expected {
    schema: Value,
    /// The place and the reason of the refusal, if it has no strict form.
    strict: Result<(), (&'static str, &'static str)>,
    /// Values as a model may write them that is not held to the schema.
    values: Vec<Value>,
}

const MAP: &str = "strict mode does not support maps with arbitrary keys; use a list of pairs";
const ANYTHING: &str = "strict mode does not support values of any type; specify a `type`";

fn of(schema: Value, values: impl IntoIterator<Item = Value>) -> Expected {
    Expected { schema, strict: Ok(()), values: values.into_iter().collect() }
}

fn refused(schema: Value, path: &'static str, why: &'static str) -> Expected {
    Expected { schema, strict: Err((path, why)), values: Vec::new() }
}

/// A tool per type, each of which gives back what it was given.
macro_rules! check {
    ($($type:ty => $expected:expr),* $(,)?) => {{
        let mut count = 0;
        $({
            #[tool]
            fn read(it: $type) -> $type {
                it
            }
            check(stringify!($type), &tools![read], $expected);
            count += 1;
        })*
        count
    }};
}

fn check(name: &str, set: &ToolSet, expected: Expected) {
    let parameters = set.get("read").unwrap().definition().parameters();
    assert_eq!(parameters["properties"]["it"], expected.schema, "{name}");
    assert_eq!(names(&parameters["properties"]["it"]), names(&expected.schema), "{name}");
    assert_references(parameters, parameters);
    let strict = match (set.clone().strict(), expected.strict) {
        (Ok(strict), Ok(())) => strict,
        (Err(error), Err((path, why))) => {
            assert_eq!(error.kind(), tool_core::ToolSetErrorKind::NoStrictForm);
            assert_eq!(
                error.to_string(),
                format!("the tool `read` has no strict form: `$.properties.it{path}`: {why}")
            );
            return;
        }
        (outcome, _) => panic!("{name}: {outcome:?}"),
    };
    let form = strict.get("read").unwrap().definition().parameters();
    assert_eq!(rules::check(form), Ok(()), "{name}: {form}");
    assert!(!expected.values.is_empty(), "{name} has a value");
    // What is written to the letter must do without mending.
    let strict = strict.clone().strict_arguments();
    for value in expected.values {
        let given = json!({ "it": value });
        let held = rules::as_held_to(form, form, &given);
        let held = held.unwrap_or_else(|| panic!("{name}: {value} cannot be written to {form}"));
        assert_eq!(call(&strict, &held), call(set, &given), "{name}: {value} as {held}");
        assert!(call(set, &given).is_ok(), "{name}: {:?}", call(set, &given));
    }
}

fn call(set: &ToolSet, arguments: &Value) -> Result<String, String> {
    let call = ToolCall::new("call_1", "read", arguments.to_string());
    let outcome = set.call(&call, &ToolContext::new()).now_or_never().expect("a tool that does not wait");
    outcome.map(|output| output.to_string()).map_err(|error| error.to_string())
}

/// The names of all properties in their order, which comparing objects does not tell.
fn names(schema: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        found.push(&**name);
        found.extend(names(property));
    }
    for word in ["items", "prefixItems", "anyOf"] {
        let Some(inner) = schema.get(word) else { continue };
        found.extend(
            inner.as_array().map_or(std::slice::from_ref(inner), Vec::as_slice).iter().flat_map(names),
        );
    }
    found
}

/// Every reference leads somewhere, from the root.
fn assert_references(root: &Value, schema: &Value) {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        assert!(root.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference} in {root}");
    }
    match schema {
        Value::Object(words) => words.values().for_each(|inner| assert_references(root, inner)),
        Value::Array(list) => list.iter().for_each(|inner| assert_references(root, inner)),
        _ => {}
    }
}

fn byte() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": 255 })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn inner() -> Value {
    json!({ "type": "object", "properties": { "a": byte() }, "required": ["a"] })
}

fn tuple(items: &[Value]) -> Value {
    let length = items.len();
    json!({
        "type": "array", "prefixItems": items, "items": { "anyOf": items }, "minItems": length, "maxItems": length,
    })
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

#[test]
fn plain_types() {
    let integer = || json!({ "type": "integer" });
    let natural = || json!({ "type": "integer", "minimum": 0 });
    let count = check! {
        bool => of(json!({ "type": "boolean" }), [json!(true)]),
        u8 => of(byte(), [json!(0), json!(255)]),
        i8 => of(json!({ "type": "integer", "minimum": -128, "maximum": 127 }), [json!(-128)]),
        u16 => of(json!({ "type": "integer", "minimum": 0, "maximum": 65535 }), [json!(65535)]),
        i32 => of(integer(), [json!(-1)]),
        u32 => of(natural(), [json!(7)]),
        i64 => of(integer(), [json!(i64::MIN), json!(9_007_199_254_740_993_i64)]),
        u64 => of(natural(), [json!(u64::MAX)]),
        i128 => of(integer(), [json!(-5)]),
        u128 => of(natural(), [json!(5)]),
        usize => of(natural(), [json!(5)]),
        NonZeroU8 => of(json!({ "type": "integer", "minimum": 1, "maximum": 255 }), [json!(1)]),
        NonZeroU64 => of(json!({ "type": "integer", "minimum": 1 }), [json!(1)]),
        NonZeroI8 => of(
            json!({ "type": "integer", "minimum": -128, "maximum": 127, "not": { "const": 0 } }),
            [json!(-1)],
        ),
        f32 => of(json!({ "type": "number" }), [json!(0.5), json!(1)]),
        f64 => of(json!({ "type": "number" }), [json!(-0.1)]),
        char => of(json!({ "type": "string", "minLength": 1, "maxLength": 1 }), [json!("é")]),
        String => of(text(), [json!(""), json!("null")]),
        PathBuf => of(text(), [json!("/")]),
        Ipv4Addr => of(json!({ "type": "string", "format": "ipv4" }), [json!("127.0.0.1")]),
        IpAddr => of(json!({ "type": "string", "format": "ip" }), [json!("::1")]),
        () => of(json!({ "type": "null" }), [json!(null)]),
        Nothing => of(json!({ "type": "null" }), [json!(null)]),
        Wrapped => of(byte(), [json!(7)]),
        Box<u8> => of(byte(), [json!(7)]),
        Option<u8> => of(or_null(byte()), [json!(7), json!(null)]),
        Option<Option<u8>> => of(or_null(byte()), [json!(7), json!(null)]),
        Option<String> => of(or_null(text()), [json!("null"), json!(null)]),
    };
    assert_eq!(count, 28);
}

#[test]
fn collections() {
    let map = |values: Value| json!({ "type": "object", "additionalProperties": values });
    let count = check! {
        Vec<u8> => of(json!({ "type": "array", "items": byte() }), [json!([]), json!([1, 1])]),
        Vec<Option<u8>> => of(json!({ "type": "array", "items": or_null(byte()) }), [json!([1, null])]),
        Vec<Vec<u8>> => of(
            json!({ "type": "array", "items": { "type": "array", "items": byte() } }),
            [json!([[1], []])],
        ),
        Vec<Inner> => of(json!({ "type": "array", "items": inner() }), [json!([{ "a": 1 }])]),
        [u8; 2] => of(json!({ "type": "array", "items": byte(), "minItems": 2, "maxItems": 2 }), [json!([1, 2])]),
        BTreeSet<String> => of(json!({ "type": "array", "items": text(), "uniqueItems": true }), [json!(["a"])]),
        HashSet<u8> => of(json!({ "type": "array", "items": byte(), "uniqueItems": true }), [json!([1])]),
        (u8,) => of(tuple(&[byte()]), [json!([1])]),
        (u8, u8) => of(tuple(&[byte(), byte()]), [json!([1, 2])]),
        (u8, String) => of(tuple(&[byte(), text()]), [json!([1, "a"])]),
        BTreeMap<String, bool> => refused(map(json!({ "type": "boolean" })), "", MAP),
        HashMap<String, Inner> => refused(map(inner()), "", MAP),
        BTreeMap<u8, bool> => refused(
            json!({
                "type": "object", "additionalProperties": false,
                "patternProperties": { "^\\d+$": { "type": "boolean" } },
            }),
            "",
            MAP,
        ),
        BTreeMap<Key, bool> => of(
            json!({
                "type": "object", "additionalProperties": false,
                "properties": { "High": { "type": "boolean" }, "Low": { "type": "boolean" } },
            }),
            [json!({}), json!({ "Low": true }), json!({ "High": false, "Low": true })],
        ),
        Value => refused(json!({}), "", ANYTHING),
        Vec<Value> => refused(json!({ "type": "array", "items": {} }), ".items", ANYTHING),
        serde_json::Map<String, Value> => refused(map(json!({})), "", MAP),
    };
    assert_eq!(count, 17);
}

fn shape() -> Value {
    let circle = json!({
        "type": "object",
        "properties": { "radius": { "type": "integer", "minimum": 0, "description": "in metres" }, "colour": or_null(text()) },
        "required": ["radius"],
    });
    let variant = |name: &str, schema: Value| json!({ "type": "object", "properties": { name: schema }, "required": [name], "additionalProperties": false });
    json!({ "anyOf": [
        { "type": "string", "enum": ["Dot"] },
        described(variant("Circle", circle), "A round one."),
        variant("Square", json!({ "type": "integer", "minimum": 0 })),
        variant("Pair", tuple(&[byte(), text()])),
    ] })
}

fn tagged() -> Value {
    let metro = json!({
        "kind": { "type": "string", "const": "metro" },
        "line": { "type": "integer" },
        "stops": { "type": "integer", "minimum": 0, "maximum": 255, "default": 0 },
    });
    let by_foot = json!({ "kind": { "type": "string", "const": "by_foot" }, "a": byte() });
    json!({ "anyOf": [
        { "type": "object", "properties": metro, "required": ["kind", "line"] },
        { "type": "object", "properties": by_foot, "required": ["kind", "a"] },
        { "type": "object", "properties": { "kind": { "type": "string", "const": "home" } }, "required": ["kind"] },
    ] })
}

#[test]
fn enums() {
    let unit = || {
        described(json!({ "type": "string", "enum": ["Celsius", "Fahrenheit"] }), "How warm it is measured.")
    };
    let sky = || {
        json!({ "anyOf": [
        { "type": "string", "const": "Clear", "description": "not a cloud" },
        { "type": "string", "const": "Covered", "description": "all grey" },
    ] })
    };
    let maybe = |schema: Value| json!({ "anyOf": [schema, { "type": "null" }] });
    let shapes = || {
        [
            json!("Dot"),
            json!({ "Circle": { "radius": 2 } }),
            json!({ "Circle": { "radius": 2, "colour": "red" } }),
            json!({ "Square": 2 }),
            json!({ "Pair": [2, "a"] }),
        ]
    };
    let count = check! {
        Unit => of(unit(), [json!("Celsius")]),
        Option<Unit> => of(
            described(
                json!({ "type": ["string", "null"], "enum": ["Celsius", "Fahrenheit", null] }),
                "How warm it is measured.",
            ),
            [json!("Celsius"), json!(null)],
        ),
        Vec<Unit> => of(json!({ "type": "array", "items": unit() }), [json!(["Celsius", "Fahrenheit"])]),
        Only => of(json!({ "type": "string", "enum": ["One"] }), [json!("One")]),
        Sky => of(sky(), [json!("Covered")]),
        Option<Sky> => of(maybe(sky()), [json!("Covered"), json!(null)]),
        Shape => of(shape(), shapes()),
        Option<Shape> => of(maybe(shape()), shapes().into_iter().chain([json!(null)])),
        Tagged => of(
            tagged(),
            [
                json!({ "kind": "metro", "line": 5 }),
                json!({ "kind": "metro", "line": 5, "stops": 2 }),
                json!({ "kind": "by_foot", "a": 5 }),
                json!({ "kind": "home" }),
            ],
        ),
        Vec<Tagged> => of(
            json!({ "type": "array", "items": tagged() }),
            [json!([{ "kind": "home" }, { "kind": "metro", "line": 5 }])],
        ),
        Adjacent => of(
            json!({ "anyOf": [
                {
                    "type": "object",
                    "properties": { "t": { "type": "string", "const": "Text" }, "c": text() },
                    "required": ["t", "c"],
                },
                {
                    "type": "object",
                    "properties": { "t": { "type": "string", "const": "Point" }, "c": {
                        "type": "object",
                        "properties": { "x": { "type": "integer" }, "y": { "type": ["integer", "null"] } },
                        "required": ["x"],
                    } },
                    "required": ["t", "c"],
                },
                { "type": "object", "properties": { "t": { "type": "string", "const": "Nothing" } }, "required": ["t"] },
            ] }),
            [json!({ "t": "Text", "c": "a" }), json!({ "t": "Point", "c": { "x": 1 } }), json!({ "t": "Nothing" })],
        ),
        Either => of(
            json!({ "anyOf": [
                byte(),
                text(),
                {
                    "type": "object",
                    "properties": { "number": byte(), "text": or_null(text()) },
                    "required": ["number"],
                },
            ] }),
            [json!(1), json!("a"), json!({ "number": 1 }), json!({ "number": 1, "text": "a" })],
        ),
        Result<u8, String> => of(
            json!({ "anyOf": [
                { "type": "object", "properties": { "Ok": byte() }, "required": ["Ok"] },
                { "type": "object", "properties": { "Err": text() }, "required": ["Err"] },
            ] }),
            [json!({ "Ok": 1 })],
        ),
    };
    assert_eq!(count, 13);
}

#[test]
fn structs() {
    let count = check! {
        Inner => of(inner(), [json!({ "a": 1 })]),
        Option<Inner> => of(or_null(inner()), [json!({ "a": 1 }), json!(null)]),
        Place => of(
            described(
                json!({
                    "type": "object",
                    "properties": {
                        "shortName": described(text(), "as people call it"),
                        "zip": or_null(text()),
                        "rating": { "type": "integer", "minimum": 0, "maximum": 255, "default": 0 },
                        "nights": { "type": "integer", "minimum": 0, "default": 5 },
                    },
                    "required": ["shortName"],
                }),
                "A place on Earth.",
            ),
            [json!({ "shortName": "Rome" }), json!({ "shortName": "Rome", "zip": "1", "rating": 3, "nights": 1 })],
        ),
        Closed => of(
            json!({ "type": "object", "properties": { "a": byte() }, "required": ["a"], "additionalProperties": false }),
            [json!({ "a": 1 })],
        ),
        Flat => of(
            json!({
                "type": "object",
                "properties": { "x": { "type": "integer" }, "a": byte(), "last": { "type": "boolean" } },
                "required": ["x", "a", "last"],
            }),
            [json!({ "x": 1, "a": 2, "last": true })],
        ),
        FlatChoice => of(
            {
                let mut both = tagged();
                both["type"] = json!("object");
                both["properties"] = json!({ "x": { "type": "integer" } });
                both["required"] = json!(["x"]);
                both
            },
            [
                json!({ "x": 1, "kind": "metro", "line": 5 }),
                json!({ "x": 1, "kind": "by_foot", "a": 5 }),
                json!({ "x": 1, "kind": "home" }),
            ],
        ),
        Uses => of(
            json!({
                "type": "object",
                "properties": {
                    "one": described(inner(), "the one's"),
                    "other": described(inner(), "the other's"),
                    "maybe": described(or_null(inner()), "the maybe's"),
                    "unit": {
                        "type": "string", "enum": ["Celsius", "Fahrenheit"], "description": "How warm it is measured.",
                    },
                    "other_unit": {
                        "type": ["string", "null"], "enum": ["Celsius", "Fahrenheit", null],
                        "description": "the other unit's",
                    },
                    "plain": or_null(byte()),
                },
                "required": ["one", "other", "unit"],
            }),
            [
                json!({ "one": { "a": 1 }, "other": { "a": 2 }, "unit": "Celsius" }),
                json!({ "one": { "a": 1 }, "other": { "a": 2 }, "maybe": { "a": 3 }, "unit": "Celsius", "plain": 4 }),
            ],
        ),
    };
    assert_eq!(count, 7);
}

fn tree(description: &str) -> Value {
    let or_null = json!([{ "$ref": "#/$defs/Tree" }, { "type": "null" }]);
    json!({
        "type": "object",
        "properties": {
            "size": byte(),
            "left": { "anyOf": or_null, "description": "the left one" },
            "more": { "type": "array", "items": { "$ref": "#/$defs/Tree" }, "description": "all others" },
        },
        "required": ["size", "more"],
        "description": description,
    })
}

fn term() -> Value {
    let minus = json!({
        "type": "object",
        "properties": { "of": { "$ref": "#/$defs/Term", "description": "what is taken away" } },
        "required": ["of"],
    });
    let variant = |name: &str, schema: Value| json!({ "type": "object", "properties": { name: schema }, "required": [name], "additionalProperties": false });
    json!({ "anyOf": [variant("Number", byte()), variant("Minus", minus)] })
}

#[test]
fn recursion() {
    let holder = |items: Value, name: &str| {
        json!({
            "type": "object",
            "properties": {
                "held": { "type": "array", "items": items },
                "next": { "anyOf": [{ "$ref": format!("#/$defs/{name}") }, { "type": "null" }] },
            },
            "required": ["held"],
        })
    };
    let forest = described(
        json!({
            "type": "object",
            "properties": { "branches": { "type": "array", "items": { "$ref": "#/$defs/Tree2" } } },
            "required": ["branches"],
        }),
        "A tree with another trunk.",
    );
    let small = || json!({ "size": 1, "more": [] });
    let count = check! {
        Tree => of(tree("A tree."), [small(), json!({ "size": 1, "left": small(), "more": [small(), small()] })]),
        Option<Tree> => of(or_null(tree("A tree.")), [json!(null), small()]),
        Vec<Tree> => of(json!({ "type": "array", "items": tree("A tree.") }), [json!([small()])]),
        Term => of(term(), [json!({ "Number": 1 }), json!({ "Minus": { "of": { "Minus": { "of": { "Number": 1 } } } } })]),
        // Two types of one name.
        (Tree, forest::Tree) => of(
            tuple(&[tree("A tree."), forest]),
            [json!([small(), { "branches": [{ "branches": [] }] }])],
        ),
        (Holder<u8>, Holder<String>) => of(
            tuple(&[holder(byte(), "Holder"), holder(text(), "Holder2")]),
            [json!([{ "held": [1], "next": { "held": [] } }, { "held": ["a"] }])],
        ),
    };
    assert_eq!(count, 6);
}

#[test]
fn definitions_are_those_of_recursive_types() {
    #[tool]
    fn plant(
        /// what to begin with
        first: Tree,
        then: Tree,
        place: Place,
        term: Term,
    ) -> usize {
        drop((first, then, place, term));
        0
    }
    let set = tools![plant];
    let parameters = set.get("plant").unwrap().definition().parameters();
    let described =
        ["first", "then", "place"].map(|name| parameters["properties"][name]["description"].clone());
    assert_eq!(described, ["what to begin with", "A tree.", "A place on Earth."]);
    assert_eq!(parameters["$defs"], json!({ "Tree": tree("A tree."), "Term": term() }));
    assert_eq!(parameters["required"], json!(["first", "then", "place", "term"]));

    let strict = set.strict().unwrap();
    let parameters = strict.get("plant").unwrap().definition().parameters();
    assert_eq!(rules::check(parameters), Ok(()));
    let described =
        ["first", "then", "place"].map(|name| parameters["properties"][name]["description"].clone());
    assert_eq!(described, ["what to begin with", "A tree.", "A place on Earth."]);
    let of = &parameters["$defs"]["Term"]["anyOf"][1]["properties"]["Minus"]["properties"]["of"];
    assert_eq!(*of, json!({ "anyOf": [{ "$ref": "#/$defs/Term" }], "description": "what is taken away" }));
}

#[test]
fn a_tool_without_parameters() {
    #[tool]
    fn now() -> u8 {
        12
    }
    let none = json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
    assert_eq!(*tools![now].get("now").unwrap().definition().parameters(), none);
    assert_eq!(*tools![now].strict().unwrap().get("now").unwrap().definition().parameters(), none);
}
