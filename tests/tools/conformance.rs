//! Tables of inputs and results: the arguments' text, and an argument of each type.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tool_core::schemars::JsonSchema;
use tool_core::signatures::Repair;
use tool_core::tool::{DynamicTool, ToolExecution};
use tool_core::{FunctionTool, ToolCall, ToolContext, ToolSet, tool, tools};

async fn execute(set: &ToolSet, name: &str, arguments: &str) -> ToolExecution {
    set.execute(ToolCall::new("call_1", name, arguments), &ToolContext::new()).await
}

fn outcome(execution: &ToolExecution) -> Result<String, String> {
    execution.outcome().map(ToString::to_string).map_err(ToString::to_string)
}

#[tool]
#[expect(clippy::disallowed_names, reason = "as the table has them")]
fn echo(foo: Option<String>, qux: Option<i32>, deep: Option<Value>) -> Value {
    json!([foo, qux, deep])
}

#[tokio::test]
async fn reads_the_argument_text() {
    let nothing = "[null,null,null]";
    let table: &[(&str, Result<&str, &str>)] = &[
        ("", Ok(nothing)),
        (" \n", Ok(nothing)),
        ("null", Ok(nothing)),
        ("{}", Ok(nothing)),
        ("{,}", Ok(nothing)),
        (r#"{"foo":"bar","qux":12,}"#, Ok(r#"["bar",12,null]"#)),
        (r#"{"foo":"a,}b", "deep":{"x":[1,2,],"y":",]",},}"#, Ok(r#"["a,}b",null,{"x":[1,2],"y":",]"}]"#)),
        (r#""{\"foo\":\"bar\"}""#, Ok(r#"["bar",null,null]"#)),
        ("{\"foo\": \"line 1\nline\t2\u{1}\"}", Ok(r#"["line 1\nline\t2\u0001",null,null]"#)),
        ("```json\n{\"foo\": \"bar\"}\n```", Ok(r#"["bar",null,null]"#)),
        ("``` {\"qux\": 7}```", Ok("[null,7,null]")),
        (
            "{'foo': 'say \"hi\"', 'deep': [True, False, None]}",
            Ok(r#"["say \"hi\"",null,[true,false,null]]"#),
        ),
        ("{'foo': \"it's\", 'qux': 12345}", Ok(r#"["it's",12345,null]"#)),
        (r#"{"foo": "True", "deep": "None"}"#, Ok(r#"["True",null,"None"]"#)),
        (
            "Sure: {\"foo\": \"bar\"}",
            Err("invalid arguments: not valid JSON: expected value at line 1 column 1"),
        ),
        (
            "{'foo': 'it's'}",
            Err("invalid arguments: not valid JSON: key must be a string at line 1 column 2"),
        ),
        (
            r#"{"foo": "a"} {"foo": "b"}"#,
            Err("invalid arguments: not valid JSON: trailing characters at line 1 column 14"),
        ),
        (
            r#"{"foo": "C:\dir"}"#,
            Err("invalid arguments: not valid JSON: invalid escape at line 1 column 13"),
        ),
        (
            "{ invalid JSON }",
            Err("invalid arguments: not valid JSON: key must be a string at line 1 column 3"),
        ),
        ("[]", Err("invalid arguments: expected a JSON object, got a list")),
        ("[,]", Err("invalid arguments: expected a JSON object, got a list")),
        (r#""value""#, Err(r#"invalid arguments: expected a JSON object, got "value""#)),
        ("123", Err("invalid arguments: expected a JSON object, got 123")),
        ("true", Err("invalid arguments: expected a JSON object, got true")),
        (
            r#"{"fo":1}"#,
            Err(
                "invalid arguments: there is no argument `fo`, the arguments are `foo`, `qux`, `deep`, did you mean `foo`?",
            ),
        ),
    ];
    for (text, expected) in table {
        let actual = outcome(&execute(&tools![echo], "echo", text).await);
        assert_eq!(actual.as_deref().map_err(|error| &**error), *expected, "{text}");
    }
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
enum Letter {
    A,
    B,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
enum Twin {
    On,
    #[serde(rename = "ON")]
    Loud,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Point {
    x: i32,
    #[serde(default, skip_serializing_if = "is_zero")]
    y: i32,
    by: Option<Letter>,
}

fn is_zero(y: &i32) -> bool {
    *y == 0
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
enum Shape {
    Circle { radius: u32 },
    Square(u32),
    Dot,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Tree {
    size: u32,
    children: Vec<Tree>,
}

/// Checks the rows of each type with a tool that returns its argument.
macro_rules! rows {
    ($($type:ty { $($given:expr => $expected:expr),* $(,)? })*) => {{
        let mut failures = Vec::new();
        $({
            #[tool]
            fn read(it: $type) -> $type {
                it
            }
            for (given, expected) in [$(row($given, $expected)),*] {
                failures.extend(check(&tools![read], stringify!($type), given, expected).await);
            }
        })*
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }};
}

/// The result for an argument: the value as read strictly, the repaired value, or an error.
#[derive(Clone, Copy)]
enum Reading {
    AsItIs(&'static str),
    Repaired(&'static str),
    Wrong(&'static str),
}

use Reading::{AsItIs, Repaired, Wrong};

fn row(given: &'static str, expected: Reading) -> (&'static str, Reading) {
    (given, expected)
}

async fn check(set: &ToolSet, kind: &str, given: &str, expected: Reading) -> Option<String> {
    let arguments = format!("{{\"it\": {given}}}");
    let execution = execute(set, "read", &arguments).await;
    let strictly = execute(&set.clone().no_repair(), "read", &arguments).await;
    let (actual, repairs) = (outcome(&execution), execution.repairs());
    let is_right = match expected {
        AsItIs(value) => actual.as_deref() == Ok(value) && repairs.is_empty() && strictly.outcome().is_ok(),
        Repaired(value) => {
            let is_reported =
                matches!(repairs, [one] if one.argument() == Some("it") && one.original() == given);
            actual.as_deref() == Ok(value) && is_reported && strictly.outcome().is_err()
        }
        Wrong(words) => {
            let expected = format!("invalid arguments: {words}");
            actual == Err(expected) && repairs.is_empty() && strictly.outcome().is_err()
        }
    };
    (!is_right).then(|| {
        format!(
            "{kind} from {given}: {actual:?}, repaired: {:?}",
            repairs.iter().map(Repair::repaired).collect::<Vec<_>>()
        )
    })
}

#[tokio::test]
async fn reads_values_of_each_type() {
    rows! {
        i32 {
            "1" => AsItIs("1"),
            "1.0" => Repaired("1"),
            "\"2.0\"" => Repaired("2"),
            "\"1.5E7\"" => Repaired("15000000"),
            "\" 7 \"" => Repaired("7"),
            "1.5" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got 1.5"),
            "\"1.5\"" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got \"1.5\""),
            "2147483648" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got 2147483648"),
            "2147483648.0" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got 2147483648"),
            "\"abc\"" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got \"abc\""),
            "\"50%\"" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got \"50%\""),
            "\"1/5\"" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got \"1/5\""),
            "\"about 7\"" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got \"about 7\""),
            "null" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got null"),
            "true" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got true"),
            "[1]" => Wrong("`it`: expected an integer from -2147483648 to 2147483647, got a list"),
        }
        u8 {
            "255" => AsItIs("255"),
            "\"255\"" => Repaired("255"),
            "300" => Wrong("`it`: expected an integer from 0 to 255, got 300"),
            "-1" => Wrong("`it`: expected an integer from 0 to 255, got -1"),
        }
        i64 {
            "9007199254740993" => AsItIs("9007199254740993"),
            "9223372036854775807" => AsItIs("9223372036854775807"),
            "\"9007199254740993\"" => Repaired("9007199254740993"),
            "9007199254740993.0" => Repaired("9007199254740993"),
        }
        u64 {
            "18446744073709551615" => AsItIs("18446744073709551615"),
            "\"18446744073709551615\"" => Repaired("18446744073709551615"),
        }
        i128 {
            "\"170141183460469231731687303715884105727\"" => Repaired("170141183460469231731687303715884105727"),
        }
        f64 {
            "1" => AsItIs("1.0"),
            "\"1.1\"" => Repaired("1.1"),
            "\"1.1 EUR\"" => Wrong("`it`: expected a number, got \"1.1 EUR\""),
        }
        f32 {
            "1.5" => AsItIs("1.5"),
            "\"1.5\"" => Repaired("1.5"),
            "\"1e39\"" => Wrong("`it`: expected a number from -3.4028235e38 to 3.4028235e38, got 1e39"),
            "1e39" => Wrong("`it`: expected a number from -3.4028235e38 to 3.4028235e38, got 1e39"),
        }
        Option<f32> {
            "-1e39" => Wrong("`it`: expected a number from -3.4028235e38 to 3.4028235e38 or null, got -1e39"),
        }
        bool {
            "true" => AsItIs("true"),
            "\"true\"" => Repaired("true"),
            "\"False\"" => Repaired("false"),
            "\"yes\"" => Wrong("`it`: expected true or false, got \"yes\""),
            "1" => Wrong("`it`: expected true or false, got 1"),
        }
        String {
            "\"12\"" => AsItIs("12"),
            "12" => Repaired("12"),
            "1.50" => Repaired("1.50"),
            "{\"a\":1}" => Wrong("`it`: expected a string, got an object"),
            "[\"a\"]" => Wrong("`it`: expected a string, got a list"),
        }
        Letter {
            "\"A\"" => AsItIs("\"A\""),
            "\"a\"" => Repaired("\"A\""),
            "\"D\"" => Wrong("`it`: expected one of \"A\", \"B\", got \"D\""),
        }
        Twin {
            "\"On\"" => AsItIs("\"On\""),
            "\"on\"" => Wrong("`it`: expected one of \"On\", \"ON\", got \"on\""),
        }
        Vec<i32> {
            "[1, 2]" => AsItIs("[1,2]"),
            "[1.0,2.0]" => Repaired("[1,2]"),
            "\"[1,2]\"" => Repaired("[1,2]"),
            "\"[1.0, \\\"2\\\"]\"" => Repaired("[1,2]"),
            "3" => Repaired("[3]"),
            "\"3\"" => Repaired("[3]"),
            "[1, 2.5]" => Wrong("`it[1]`: expected an integer from -2147483648 to 2147483647, got 2.5"),
        }
        Vec<String> {
            "\"a\"" => Repaired("[\"a\"]"),
            "\"[\\\"a\\\"]\"" => Repaired("[\"a\"]"),
            "[1, \"b\"]" => Repaired("[\"1\",\"b\"]"),
        }
        BTreeSet<u8> {
            "[1, 1, \"2\"]" => Repaired("[1,2]"),
        }
        BTreeMap<String, i32> {
            "{\"A\":1.0}" => Repaired("{\"A\":1}"),
            "\"{\\\"A\\\":1}\"" => Repaired("{\"A\":1}"),
        }
        (u8, String) {
            "[\"1\", 2]" => Repaired("[1,\"2\"]"),
        }
        Point {
            "{\"x\":1}" => AsItIs("{\"x\":1,\"by\":null}"),
            "\"{\\\"x\\\":1}\"" => Repaired("{\"x\":1,\"by\":null}"),
            "{\"x\":\"1\",\"y\":null,\"by\":\"b\"}" => Repaired("{\"x\":1,\"by\":\"B\"}"),
            "{\"x\":\"one\"}" => Wrong("`it.x`: expected an integer from -2147483648 to 2147483647, got \"one\""),
            "{}" => Wrong("`it.x` is missing, expected an integer from -2147483648 to 2147483647"),
        }
        Shape {
            "\"Dot\"" => AsItIs("\"Dot\""),
            "\"dot\"" => Repaired("\"Dot\""),
            "{\"Circle\":{\"radius\":\"3\"}}" => Repaired("{\"Circle\":{\"radius\":3}}"),
            "{\"Square\":\"3\"}" => Repaired("{\"Square\":3}"),
        }
        Tree {
            "{\"size\":\"1\",\"children\":[{\"size\":2.0,\"children\":[]}]}"
                => Repaired("{\"size\":1,\"children\":[{\"size\":2,\"children\":[]}]}"),
        }
        Option<String> {
            "null" => AsItIs("null"),
            "\"Null\"" => AsItIs("\"Null\""),
            "\"None\"" => AsItIs("\"None\""),
            "5" => Repaired("\"5\""),
        }
        Option<i32> {
            "null" => AsItIs("null"),
            "\"5\"" => Repaired("5"),
            "\"null\"" => Wrong("`it`: expected an integer from -2147483648 to 2147483647 or null, got \"null\""),
        }
    }
}

static DEFAULTS: AtomicUsize = AtomicUsize::new(0);

#[tool]
fn in_order(
    a: u8,
    #[param(default = { DEFAULTS.fetch_add(1, Ordering::Relaxed); 7 })] b: u8,
    c: Option<String>,
    #[param(range = 0..=9)] d: f32,
    #[param(default = 8)] e: u8,
) -> String {
    format!("{a} {b} {c:?} {d} {e}")
}

/// Returns all permutations of the members.
fn orders(members: &[&'static str]) -> Vec<Vec<&'static str>> {
    if members.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in members.iter().enumerate() {
        let rest: Vec<_> = members.iter().enumerate().filter(|(other, _)| *other != index).collect();
        let rest: Vec<_> = rest.into_iter().map(|(_, member)| *member).collect();
        all.extend(orders(&rest).into_iter().map(|rest| [&[*first], &*rest].concat()));
    }
    all
}

#[tokio::test]
async fn accepts_arguments_in_any_order() {
    let expected = "expected a number from 0 to 9";
    let table: &[(&[&str], Result<&str, &str>)] = &[
        (&["'a':1", "'b':2", "'c':'x'", "'d':4", "'e':5"], Ok("1 2 Some(\"x\") 4 5")),
        (&["'a':1", "'d':4"], Ok("1 7 None 4 8")),
        (&["'a':1", "'b':2", "'d':4"], Ok("1 2 None 4 8")),
        (&["'a':1", "'b':null", "'c':null", "'d':4", "'e':null"], Ok("1 7 None 4 8")),
        (&["'\\u0061':1", "'c':'x'", "'d':4"], Ok("1 7 Some(\"x\") 4 8")),
        (&["'a':'1'", "'c':2", "'d':4", "'e':5"], Ok("1 7 Some(\"2\") 4 5")),
        (&["'a':1", "'c':'x'"], Err("`d` is missing, EXPECTED")),
        (&["'a':1", "'d':10"], Err("`d`: EXPECTED, got 10")),
        (&["'a':1", "'d':1e39"], Err("`d`: expected a number from 0 to 9, got 1e39")),
        (&["'a':true", "'d':4"], Err("`a`: expected an integer from 0 to 255, got true")),
        (&["'a':1", "'a':1", "'d':4"], Err("`a` is given twice")),
        (
            &["'a':1", "'d':4", "'f':0"],
            Err("there is no argument `f`, the arguments are `a`, `b`, `c`, `d`, `e`"),
        ),
    ];
    let set = tools![in_order];
    let _ = set.definitions();
    for (members, wanted) in table {
        let wanted = wanted
            .map(str::to_owned)
            .map_err(|words| format!("invalid arguments: {}", words.replace("EXPECTED", expected)));
        for order in orders(members) {
            let text = format!("{{{}}}", order.join(", ")).replace('\'', "\"");
            let before = DEFAULTS.load(Ordering::Relaxed);
            let actual = outcome(&execute(&set, "in_order", &text).await);
            assert_eq!(actual, wanted, "{text}");
            let evaluated = DEFAULTS.load(Ordering::Relaxed) - before;
            assert!(evaluated <= 1, "{text}: {evaluated} defaults");
        }
    }
}

#[tokio::test]
async fn reports_repairs_but_omits_them_from_debug() {
    let execution = execute(&tools![echo], "echo", r#"{"foo": 12, "qux": "7",}"#).await;
    let repairs: Vec<_> =
        execution.repairs().iter().map(|one| (one.argument(), one.original(), one.repaired())).collect();
    let text = (None, r#"{"foo": 12, "qux": "7",}"#, r#"{"foo": 12, "qux": "7"}"#);
    assert_eq!(repairs, [text, (Some("foo"), "12", "\"12\""), (Some("qux"), "\"7\"", "7")]);
    assert_eq!(format!("{:?}", execution.repairs()[1]), r#"Repair { argument: Some("foo"), .. }"#);
    let restored: ToolExecution = serde_json::from_str(&serde_json::to_string(&execution).unwrap()).unwrap();
    assert_eq!(restored.repairs(), execution.repairs());
}

#[derive(Deserialize, JsonSchema)]
struct EchoArguments {
    foo: Option<String>,
    qux: Option<i32>,
}

struct Shelf;

#[tool_core::toolbox]
#[expect(clippy::disallowed_names, reason = "as the table has them")]
impl Shelf {
    #[tool(name = "method")]
    fn method(&self, foo: Option<String>, qux: Option<i32>) -> Value {
        json!([foo, qux, null])
    }
}

/// An unknown argument is refused, or ignored and reported, for every kind of tool.
#[tokio::test]
async fn arguments_that_a_tool_does_not_have() {
    let closure = FunctionTool::new("closure", |it: EchoArguments| json!([it.foo, it.qux, null]));
    let schema = json!({
        "type": "object",
        "properties": { "foo": { "type": "string" }, "qux": { "type": "integer" } },
    });
    let dynamic =
        DynamicTool::new("dynamic", schema, |it: Value| json!([it["foo"], it["qux"], null])).unwrap();
    let set = tools![echo].union(ToolSet::from(Shelf)).unwrap().with(closure).unwrap().with(dynamic).unwrap();
    let text = r#"{"foo": "a", "dry_run": [true], "qux": "2"}"#;
    for name in ["echo", "method", "closure", "dynamic"] {
        for text in ["{'foo': 'a', 'qux': 2}", "```\n{\"foo\": \"a\", \"qux\": 2,}\n```"] {
            assert_eq!(outcome(&execute(&set, name, text).await).as_deref(), Ok(r#"["a",2,null]"#), "{name}");
        }
        let refused = outcome(&execute(&set, name, text).await).unwrap_err();
        assert!(
            refused.contains("there is no argument `dry_run`, the arguments are `foo`, `qux`"),
            "{name}: {refused}"
        );

        let ignoring = set.clone().ignore_unknown_arguments();
        let execution = execute(&ignoring, name, text).await;
        assert_eq!(outcome(&execution).as_deref(), Ok(r#"["a",2,null]"#), "{name}");
        let ignored = execution.repairs().iter().find(|repair| repair.is_ignored()).unwrap();
        assert_eq!((ignored.argument(), ignored.original()), (Some("dry_run"), "[true]"), "{name}");
        assert_eq!(execution.repairs().len(), 2, "{name}");

        let both = ignoring.no_repair();
        let refused = outcome(&execute(&both, name, text).await).unwrap_err();
        assert!(
            refused.contains("`qux`: expected an integer") && !refused.contains("dry_run"),
            "{name}: {refused}"
        );
    }
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Stay {
    #[schemars(range(min = 1, max = 30))]
    nights: u16,
    #[schemars(length(min = 1, max = 5))]
    name: String,
    #[schemars(length(min = 1, max = 2))]
    #[serde(default = "nobody")]
    guests: Vec<Guest>,
    factor: Option<f32>,
    room: Option<Room>,
    next: Option<Rc>,
}

/// Boxed, as the type is recursive.
type Rc = std::boxed::Box<Stay>;

fn nobody() -> Vec<Guest> {
    vec![Guest { age: 1.0 }]
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Guest {
    #[schemars(range(min = 0.5, max = 150.0))]
    age: f64,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind")]
enum Room {
    Single {
        #[schemars(range(max = 9))]
        floor: u8,
    },
    Suite {
        #[schemars(range(min = 10))]
        floor: u8,
    },
}

#[derive(Deserialize, JsonSchema)]
struct StayArguments {
    it: Stay,
}

#[tool]
fn stay(it: Stay) -> u16 {
    it.nights
}

#[tool]
fn factors(it: Vec<f32>, pair: Option<(u8, f32)>) -> usize {
    it.len() + usize::from(pair.is_some())
}

/// The constraints of a type's own schema are enforced at every level of the argument.
#[tokio::test]
async fn limits_of_types_are_enforced_at_every_level() {
    let closure = FunctionTool::new("closure", |arguments: StayArguments| arguments.it.nights);
    let set = tools![stay, factors].with(closure).unwrap();
    let table: &[(&str, Result<&str, &str>)] = &[
        (r#"{"nights": 30, "name": "ééééé"}"#, Ok("30")),
        (r#"{"nights": 31, "name": "a"}"#, Err("`it.nights`: expected an integer from 1 to 30, got 31")),
        (r#"{"nights": "31", "name": "a"}"#, Err("`it.nights`: expected an integer from 1 to 30, got 31")),
        (
            r#"{"nights": 1, "name": "éééééé"}"#,
            Err("`it.name`: expected a string of 1 to 5 characters, got \"éééééé\""),
        ),
        (
            r#"{"nights": 1, "name": "a", "guests": []}"#,
            Err("`it.guests`: expected a list of 1 to 2 items, got a list of 0"),
        ),
        (
            r#"{"nights": 1, "name": "a", "guests": [{"age": 2}, {"age": 0.4}]}"#,
            Err("`it.guests[1].age`: expected a number from 0.5 to 150.0, got 0.4"),
        ),
        (
            r#"{"nights": 1, "name": "a", "factor": 1e39}"#,
            Err("`it.factor`: expected a number from -3.4028235e38 to 3.4028235e38 or null, got 1e39"),
        ),
        (r#"{"nights": 1, "name": "a", "factor": null, "room": null, "next": null}"#, Ok("1")),
        (r#"{"nights": 1, "name": "a", "room": {"kind": "Suite", "floor": 12}}"#, Ok("1")),
        (r#"{"nights": 1, "name": "a", "room": {"kind": "Single", "floor": 9}}"#, Ok("1")),
        (
            r#"{"nights": 1, "name": "a", "room": {"kind": "Single", "floor": 10}}"#,
            Err("`it.room.floor`: expected an integer from 0 to 9, got 10"),
        ),
        (
            r#"{"nights": 1, "name": "a", "next": {"nights": 2, "name": "b", "next": {"nights": 0, "name": "c"}}}"#,
            Err("`it.next.next.nights`: expected an integer from 1 to 30, got 0"),
        ),
    ];
    for (text, expected) in table {
        for name in ["stay", "closure"] {
            let actual = outcome(&execute(&set, name, &format!("{{\"it\": {text}}}")).await);
            let actual = actual.as_deref().map_err(|error| error.trim_start_matches("invalid arguments: "));
            assert_eq!(actual, *expected, "{name} {text}");
        }
    }
    let table = [
        (r#"{"it": [1, 2.5e38], "pair": [1, 2]}"#, Ok("3")),
        (
            r#"{"it": [1, 1e39]}"#,
            Err("`it[1]`: expected a number from -3.4028235e38 to 3.4028235e38, got 1e39"),
        ),
        (
            r#"{"it": [], "pair": [1, -1e39]}"#,
            Err("`pair[1]`: expected a number from -3.4028235e38 to 3.4028235e38, got -1e39"),
        ),
    ];
    for (text, expected) in table {
        let actual = outcome(&execute(&set, "factors", text).await);
        let actual = actual.as_deref().map_err(|error| error.trim_start_matches("invalid arguments: "));
        assert_eq!(actual, expected, "{text}");
    }
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Closed {
    a: Option<i32>,
    b: i32,
}

#[tool]
fn map(it: BTreeMap<String, i32>) -> usize {
    it.len()
}

#[tool]
fn numbers(it: Vec<i32>) -> usize {
    it.len()
}

#[tool]
fn closed(it: Closed) -> i32 {
    it.b
}

/// Only optional members may be `null`; nothing else is dropped, and values that could be repaired are not reported.
#[tokio::test]
async fn drops_only_optional_values() {
    let set = tools![map, closed, numbers];
    let table = [
        ("map", r#"{"A": 1, "B": "2"}"#, Ok("2")),
        (
            "map",
            r#"{"A": null, "B": 1}"#,
            Err("`it.A`: expected an integer from -2147483648 to 2147483647, got null"),
        ),
        ("closed", r#"{"a": null, "b": "1"}"#, Ok("1")),
        (
            "numbers",
            "[1.0, 2.5]",
            Err("`it[1]`: expected an integer from -2147483648 to 2147483647, got 2.5"),
        ),
        (
            "numbers",
            r#"["1", "q", 3]"#,
            Err("`it[1]`: expected an integer from -2147483648 to 2147483647, got \"q\""),
        ),
        (
            "closed",
            r#"{"b": "1", "a": 2.5}"#,
            Err("`it.a`: expected an integer from -2147483648 to 2147483647 or null, got 2.5"),
        ),
        ("closed", r#"{"b": "1", "c": null}"#, Err("`it` has no member `c`, its members are `a`, `b`")),
    ];
    for (name, text, expected) in table {
        let actual = outcome(&execute(&set, name, &format!("{{\"it\": {text}}}")).await);
        let actual = actual.as_deref().map_err(|error| error.trim_start_matches("invalid arguments: "));
        assert_eq!(actual, expected, "{name} {text}");
    }
}

/// A type of the user with the name of a standard one.
mod shadowing {
    use super::*;

    #[derive(Deserialize, JsonSchema)]
    pub(super) struct Value {
        #[schemars(range(min = 1, max = 5))]
        n: u32,
    }

    #[tool]
    pub(super) fn turn(it: Value) -> u32 {
        it.n
    }
}

#[tokio::test]
async fn limits_do_not_depend_on_the_name_of_a_type() {
    let set = tools![shadowing::turn];
    let execution = execute(&set, "turn", r#"{"it": {"n": 5}}"#).await;
    assert_eq!(outcome(&execution), Ok("5".into()));
    let execution = execute(&set, "turn", r#"{"it": {"n": 9}}"#).await;
    let expected = "invalid arguments: `it.n`: expected an integer from 1 to 5, got 9";
    assert_eq!(outcome(&execution), Err(expected.into()));
}
