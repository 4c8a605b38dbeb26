//! The schemas of Rust types, general and strict: a table of types with their schemas, whether each has a strict form,
//! and values that read the same with either schema.

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

/// The expectations for a type.
struct Expected {
    schema: Value,
    /// The path and the reason of the refusal, if the type has no strict form.
    strict: Result<(), (&'static str, &'static str)>,
    /// Values that an unconstrained model may write.
    values: Vec<Value>,
}

const MAP: &str = "strict mode does not support maps with arbitrary keys; use a list of pairs";
const ANYTHING: &str = "strict mode does not support values of any type; specify a `type`";

fn accepted(schema: Value, values: impl IntoIterator<Item = Value>) -> Expected {
    Expected { schema, strict: Ok(()), values: values.into_iter().collect() }
}

fn refused(schema: Value, path: &'static str, why: &'static str) -> Expected {
    Expected { schema, strict: Err((path, why)), values: Vec::new() }
}

/// Checks each type with a tool that returns its argument.
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
            assert_eq!(error.kind(), tool_core::toolset::ToolSetErrorKind::NoStrictForm);
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
    // Strictly valid values must need no repair.
    let strict = strict.clone().no_repair();
    for value in expected.values {
        let given = json!({ "it": value });
        let constrained = rules::as_constrained_by(form, form, &given);
        let constrained =
            constrained.unwrap_or_else(|| panic!("{name}: {value} cannot be written to {form}"));
        assert_eq!(call(&strict, &constrained), call(set, &given), "{name}: {value} as {constrained}");
        assert!(call(set, &given).is_ok(), "{name}: {:?}", call(set, &given));
    }
}

fn call(set: &ToolSet, arguments: &Value) -> Result<String, String> {
    let call = ToolCall::new("call_1", "read", arguments.to_string());
    let outcome = set.call(&call, &ToolContext::new()).now_or_never().expect("the tool does not suspend");
    outcome.map(|output| output.to_string()).map_err(|error| error.to_string())
}

/// Returns the names of all properties in order, which comparing objects ignores.
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

/// Checks that every reference resolves from the root.
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
        bool => accepted(json!({ "type": "boolean" }), [json!(true)]),
        u8 => accepted(byte(), [json!(0), json!(255)]),
        i8 => accepted(json!({ "type": "integer", "minimum": -128, "maximum": 127 }), [json!(-128)]),
        u16 => accepted(json!({ "type": "integer", "minimum": 0, "maximum": 65535 }), [json!(65535)]),
        i32 => accepted(integer(), [json!(-1)]),
        u32 => accepted(natural(), [json!(7)]),
        i64 => accepted(integer(), [json!(i64::MIN), json!(9_007_199_254_740_993_i64)]),
        u64 => accepted(natural(), [json!(u64::MAX)]),
        i128 => accepted(integer(), [json!(-5)]),
        u128 => accepted(natural(), [json!(5)]),
        usize => accepted(natural(), [json!(5)]),
        NonZeroU8 => accepted(json!({ "type": "integer", "minimum": 1, "maximum": 255 }), [json!(1)]),
        NonZeroU64 => accepted(json!({ "type": "integer", "minimum": 1 }), [json!(1)]),
        NonZeroI8 => accepted(
            json!({ "type": "integer", "minimum": -128, "maximum": 127, "not": { "const": 0 } }),
            [json!(-1)],
        ),
        f32 => accepted(json!({ "type": "number" }), [json!(0.5), json!(1)]),
        f64 => accepted(json!({ "type": "number" }), [json!(-0.1)]),
        char => accepted(json!({ "type": "string", "minLength": 1, "maxLength": 1 }), [json!("é")]),
        String => accepted(text(), [json!(""), json!("null")]),
        PathBuf => accepted(text(), [json!("/")]),
        Ipv4Addr => accepted(json!({ "type": "string", "format": "ipv4" }), [json!("127.0.0.1")]),
        IpAddr => accepted(json!({ "type": "string", "format": "ip" }), [json!("::1")]),
        () => accepted(json!({ "type": "null" }), [json!(null)]),
        Nothing => accepted(json!({ "type": "null" }), [json!(null)]),
        Wrapped => accepted(byte(), [json!(7)]),
        Box<u8> => accepted(byte(), [json!(7)]),
        Option<u8> => accepted(or_null(byte()), [json!(7), json!(null)]),
        Option<Option<u8>> => accepted(or_null(byte()), [json!(7), json!(null)]),
        Option<String> => accepted(or_null(text()), [json!("null"), json!(null)]),
    };
    assert_eq!(count, 28);
}

#[test]
fn collections() {
    let map = |values: Value| json!({ "type": "object", "additionalProperties": values });
    let count = check! {
        Vec<u8> => accepted(json!({ "type": "array", "items": byte() }), [json!([]), json!([1, 1])]),
        Vec<Option<u8>> => accepted(json!({ "type": "array", "items": or_null(byte()) }), [json!([1, null])]),
        Vec<Vec<u8>> => accepted(
            json!({ "type": "array", "items": { "type": "array", "items": byte() } }),
            [json!([[1], []])],
        ),
        Vec<Inner> => accepted(json!({ "type": "array", "items": inner() }), [json!([{ "a": 1 }])]),
        [u8; 2] => accepted(json!({ "type": "array", "items": byte(), "minItems": 2, "maxItems": 2 }), [json!([1, 2])]),
        BTreeSet<String> => accepted(json!({ "type": "array", "items": text(), "uniqueItems": true }), [json!(["a"])]),
        HashSet<u8> => accepted(json!({ "type": "array", "items": byte(), "uniqueItems": true }), [json!([1])]),
        (u8,) => accepted(tuple(&[byte()]), [json!([1])]),
        (u8, u8) => accepted(tuple(&[byte(), byte()]), [json!([1, 2])]),
        (u8, String) => accepted(tuple(&[byte(), text()]), [json!([1, "a"])]),
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
        BTreeMap<Key, bool> => accepted(
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
        Unit => accepted(unit(), [json!("Celsius")]),
        Option<Unit> => accepted(
            described(
                json!({ "type": ["string", "null"], "enum": ["Celsius", "Fahrenheit", null] }),
                "How warm it is measured.",
            ),
            [json!("Celsius"), json!(null)],
        ),
        Vec<Unit> => accepted(json!({ "type": "array", "items": unit() }), [json!(["Celsius", "Fahrenheit"])]),
        Only => accepted(json!({ "type": "string", "enum": ["One"] }), [json!("One")]),
        Sky => accepted(sky(), [json!("Covered")]),
        Option<Sky> => accepted(maybe(sky()), [json!("Covered"), json!(null)]),
        Shape => accepted(shape(), shapes()),
        Option<Shape> => accepted(maybe(shape()), shapes().into_iter().chain([json!(null)])),
        Tagged => accepted(
            tagged(),
            [
                json!({ "kind": "metro", "line": 5 }),
                json!({ "kind": "metro", "line": 5, "stops": 2 }),
                json!({ "kind": "by_foot", "a": 5 }),
                json!({ "kind": "home" }),
            ],
        ),
        Vec<Tagged> => accepted(
            json!({ "type": "array", "items": tagged() }),
            [json!([{ "kind": "home" }, { "kind": "metro", "line": 5 }])],
        ),
        Adjacent => accepted(
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
        Either => accepted(
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
        Result<u8, String> => accepted(
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
        Inner => accepted(inner(), [json!({ "a": 1 })]),
        Option<Inner> => accepted(or_null(inner()), [json!({ "a": 1 }), json!(null)]),
        Place => accepted(
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
        Closed => accepted(
            json!({ "type": "object", "properties": { "a": byte() }, "required": ["a"], "additionalProperties": false }),
            [json!({ "a": 1 })],
        ),
        Flat => accepted(
            json!({
                "type": "object",
                "properties": { "x": { "type": "integer" }, "a": byte(), "last": { "type": "boolean" } },
                "required": ["x", "a", "last"],
            }),
            [json!({ "x": 1, "a": 2, "last": true })],
        ),
        FlatChoice => accepted(
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
        Uses => accepted(
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
        Tree => accepted(tree("A tree."), [small(), json!({ "size": 1, "left": small(), "more": [small(), small()] })]),
        Option<Tree> => accepted(or_null(tree("A tree.")), [json!(null), small()]),
        Vec<Tree> => accepted(json!({ "type": "array", "items": tree("A tree.") }), [json!([small()])]),
        Term => accepted(term(), [json!({ "Number": 1 }), json!({ "Minus": { "of": { "Minus": { "of": { "Number": 1 } } } } })]),
        // Two types with the same name.
        (Tree, forest::Tree) => accepted(
            tuple(&[tree("A tree."), forest]),
            [json!([small(), { "branches": [{ "branches": [] }] }])],
        ),
        (Holder<u8>, Holder<String>) => accepted(
            tuple(&[holder(byte(), "Holder"), holder(text(), "Holder2")]),
            [json!([{ "held": [1], "next": { "held": [] } }, { "held": ["a"] }])],
        ),
    };
    assert_eq!(count, 6);
}

#[test]
fn only_recursive_types_have_definitions() {
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
