//! Explanations of arguments that are refused, without repair.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tool_core::{FunctionTool, Tool, ToolSet};

use super::engine::call;

#[derive(Deserialize, JsonSchema)]
struct Arguments<T> {
    it: T,
}

fn mistakes<T: for<'de> Deserialize<'de> + JsonSchema + 'static>(it: &str) -> Vec<String> {
    let closure = FunctionTool::new("closure", |Arguments { it }: Arguments<T>| drop(it));
    let set = ToolSet::new([Arc::new(closure) as Arc<dyn Tool>]).unwrap().no_repair();
    let error = call(&set, &format!(r#"{{"it":{it}}}"#)).expect_err("it is wrong");
    error.split("; ").map(str::to_owned).collect()
}

fn mistake<T: for<'de> Deserialize<'de> + JsonSchema + 'static>(it: &str) -> String {
    mistakes::<T>(it).join("; ")
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "never parsed successfully")]
struct Trip {
    name: String,
    stops: Vec<Stop>,
    prices: Option<BTreeMap<String, f64>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "never parsed successfully")]
struct Stop {
    nights: u8,
    by: Option<By>,
}

#[derive(Debug, Deserialize, JsonSchema)]
enum By {
    Train,
    Boat,
}

#[test]
fn all_mistakes_are_explained() {
    let cases: [(&str, &[&str]); 4] = [
        (
            r#"{"name": 5, "stops": [{"nights": 300}, {"by": "Plane"}, 7], "prices": {"wine": "dear"}}"#,
            &[
                "`it.name`: expected a string, got 5",
                "`it.stops[0].nights`: expected an integer from 0 to 255, got 300",
                "`it.stops[1].nights` is missing, expected an integer from 0 to 255",
                "`it.stops[1].by`: expected one of \"Train\", \"Boat\", null, got \"Plane\"",
                "`it.stops[2]`: expected an object, got 7",
                "`it.prices.wine`: expected a number, got \"dear\"",
            ],
        ),
        (
            r#"{"nme": "Rome", "stops": 3}"#,
            &[
                "`it.name` is missing, expected a string",
                "`it` has no member `nme`, its members are `name`, `stops`, `prices`, did you mean `name`?",
                "`it.stops`: expected a list, got 3",
            ],
        ),
        ("3", &["`it`: expected an object, got 3"]),
        (
            r#"{"name": "x", "stops": [{"nights": 1}, {"nights": 2}], "prices": [1]}"#,
            &["`it.prices`: expected an object or null, got a list"],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(mistakes::<Trip>(text), expected, "{text}");
    }
}

#[test]
fn schemas_explain_what_types_refuse() {
    /// The schema knows neither the other name nor the numbers that are read as texts.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never parsed successfully")]
    struct User {
        #[serde(alias = "nick")]
        name: String,
        #[serde(deserialize_with = "text_of_anything")]
        id: String,
        age: u8,
        #[serde(default)]
        friends: Vec<User>,
    }

    fn text_of_anything<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        Value::deserialize(deserializer).map(|value| value.to_string())
    }

    let cases: [(&str, &[&str]); 4] = [
        (
            r#"{"nick": "Ada", "id": 7, "age": -1}"#,
            &["`it.id`: expected a string, got 7", "`it.age`: expected an integer from 0 to 255, got -1"],
        ),
        (r#"{"nick": "Ada", "id": "7"}"#, &["`it`: missing field `age`"]),
        (
            r#"{"nik": "Ada", "id": "7"}"#,
            &[
                "`it.name` is missing, expected a string",
                "`it.age` is missing, expected an integer from 0 to 255",
                "`it` has no member `nik`, its members are `name`, `nick`, `id`, `age`, `friends`, did you mean `nick`?",
            ],
        ),
        (
            r#"{"name": "Ada", "id": "7", "age": "x", "friends": [{"nick": "Bea", "id": "1", "age": 300}]}"#,
            &[
                "`it.age`: expected an integer from 0 to 255, got \"x\"",
                "`it.friends[0].age`: expected an integer from 0 to 255, got 300",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(mistakes::<User>(text), expected, "{text}");
    }
}

#[test]
fn mistakes_at_the_top_level() {
    assert_eq!(
        mistake::<i32>("\"abc\""),
        "`it`: expected an integer from -2147483648 to 2147483647, got \"abc\""
    );
    assert_eq!(mistake::<u8>("300"), "`it`: expected an integer from 0 to 255, got 300");
    assert_eq!(mistake::<f64>("[1]"), "`it`: expected a number, got a list");
    assert_eq!(mistake::<String>("{\"a\": 1}"), "`it`: expected a string, got an object");
    assert_eq!(mistake::<By>("\"Plane\""), "`it`: expected one of \"Train\", \"Boat\", got \"Plane\"");
    assert_eq!(mistake::<Vec<u8>>("3"), "`it`: expected a list, got 3");
    assert_eq!(mistake::<Trip>("3"), "`it`: expected an object, got 3");
}

#[test]
fn unexpected_lists_and_objects() {
    let table = [
        (r#"{"name": {"x": 1}, "stops": []}"#, "`it.name`: expected a string, got an object"),
        (r#"{"name":["x"],"stops":[]}"#, "`it.name`: expected a string, got a list"),
        (r#"{"name": "x", "stops": {"a": 1}}"#, "`it.stops`: expected a list, got an object"),
        (
            r#"{"name": "x", "stops": [{"nights": [1]}]}"#,
            "`it.stops[0].nights`: expected an integer from 0 to 255, got a list",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(mistake::<Trip>(text), expected, "{text}");
    }
}

#[test]
fn mistakes_inside_tagged_enums() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(tag = "is")]
    #[expect(dead_code, reason = "never parsed successfully")]
    enum Leg {
        Ride { by: By },
        Stay { nights: u8 },
    }
    let table = [
        (r#"{"is": "Ride", "by": "Plane"}"#, "`it.by`: expected one of \"Train\", \"Boat\", got \"Plane\""),
        (r#"{"is": "Stay", "nights": "x"}"#, "`it.nights`: expected an integer from 0 to 255, got \"x\""),
        (r#"{"is": "Stay"}"#, "`it.nights` is missing, expected an integer from 0 to 255"),
    ];
    for (text, expected) in table {
        assert_eq!(mistake::<Leg>(text), expected, "{text}");
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "never parsed successfully")]
enum Figure {
    Circle { radius: u8 },
    Square(u8),
    Dot,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "never parsed successfully")]
enum Either {
    Number(u8),
    Text(String),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "i32")]
struct Positive;

impl TryFrom<i32> for Positive {
    type Error = String;

    fn try_from(_: i32) -> Result<Self, String> {
        Err("must not be negative".into())
    }
}

/// A type reads what it has flattened last. The schema explains all of it, also what it does not know that the type accepts.
#[test]
fn mistakes_in_flattened_structs_are_explained_in_any_order() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never parsed successfully")]
    struct Outer {
        #[serde(flatten)]
        inner: Inner,
        n: u8,
        #[serde(deserialize_with = "anything")]
        free: String,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never parsed successfully")]
    struct Inner {
        a: u8,
        stop: Option<Stop>,
    }

    fn anything<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        Value::deserialize(deserializer).map(|value| value.to_string())
    }

    let expected = [
        "`it[0].a`: expected an integer from 0 to 255, got \"x\"",
        "`it[0].free`: expected a string, got 5",
        "`it[0].n`: expected an integer from 0 to 255, got \"y\"",
        "`it[0].stop.nights`: expected an integer from 0 to 255, got 300",
    ];
    let members = [r#""a":"x""#, r#""stop":{"nights":300}"#, r#""n":"y""#, r#""free":5"#];
    for order in [[3, 0, 1, 2], [0, 3, 2, 1], [3, 2, 1, 0], [1, 3, 2, 0]] {
        let text = format!("[{{{}}}]", order.map(|position| members[position]).join(","));
        let mut found = mistakes::<Vec<Outer>>(&text);
        found.sort();
        assert_eq!(found, expected, "{text}");
    }
    let text = r#"[{"free":"3","a":1,"n":2},{"a":"x","n":2,"free":"3"}]"#;
    assert_eq!(mistakes::<Vec<Outer>>(text), ["`it[1].a`: expected an integer from 0 to 255, got \"x\""]);
}

#[test]
fn mistakes_in_tagged_enums_are_explained_in_any_order() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(tag = "is", content = "with")]
    #[expect(dead_code, reason = "never parsed successfully")]
    enum Adjacent {
        Ride { by: By, nights: u8 },
        Walk(Positive),
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(tag = "is")]
    #[expect(dead_code, reason = "never parsed successfully")]
    enum Internal {
        Ride { by: By, nights: u8 },
    }

    let by = "expected one of \"Train\", \"Boat\", got \"Plane\"";
    let nights = "expected an integer from 0 to 255, got 300";
    let expected = [format!("`it[0].with.by`: {by}"), format!("`it[0].with.nights`: {nights}")];
    for text in [
        r#"[{"is":"Ride","with":{"by":"Plane","nights":300}}]"#,
        r#"[{"with":{"by":"Plane","nights":300},"is":"Ride"}]"#,
        r#"[{"with": {"by":"Plane","nights":300} , "is": "Ride" } ]"#,
    ] {
        assert_eq!(mistakes::<Vec<Adjacent>>(text), expected, "{text}");
    }
    let expected = [format!("`it[0].by`: {by}"), format!("`it[0].nights`: {nights}")];
    for text in [
        r#"[{"is":"Ride","by":"Plane","nights":300}]"#,
        r#"[{"by":"Plane","is":"Ride","nights":300}]"#,
        r#"[{"by":"Plane","nights":300,"is":"Ride"}]"#,
    ] {
        assert_eq!(mistakes::<Vec<Internal>>(text), expected, "{text}");
    }
    for text in [r#"{"is":"Walk","with":-1}"#, r#"{"with":-1,"is":"Walk"}"#] {
        assert!(mistake::<Adjacent>(text).ends_with("must not be negative"), "{text}");
    }
}

#[test]
fn alternatives_that_possibly_fit_are_not_mistakes() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(tag = "is")]
    #[expect(dead_code, reason = "never parsed successfully")]
    enum Way {
        Ride {
            #[serde(alias = "vehicle")]
            by: String,
            to: Option<Stop>,
        },
        Walk,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "never parsed successfully")]
    enum Stops {
        Some(Vec<Night>),
        One(Night),
        Named { town: String },
        None(bool),
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never parsed successfully")]
    struct Night {
        #[serde(alias = "count")]
        nights: u8,
    }

    type Journey = (Option<Way>, Vec<Stops>, u8);

    // Both other values are right, which only their types know.
    let text = r#"[{"is":"Ride","vehicle":"bus"},[[{"count":1}],{"count":2}],300]"#;
    assert_eq!(mistake::<Journey>(text), "`it[2]`: expected an integer from 0 to 255, got 300");
    // The type refuses the value, and what it may lack is the only explanation.
    let nights = "is missing, expected an integer from 0 to 255";
    let table = [
        (r#"[{"is":"Ride","vehicel":"bus"},[],1]"#, "`it[0].by` is missing, expected a string".to_owned()),
        (r#"[{"is":"Ride","by":"bus","to":{"night":1}},[],1]"#, format!("`it[0].to.nights` {nights}")),
        (r#"[null,[[{"night":1}]],1]"#, format!("`it[1][0][0].nights` {nights}")),
        (
            r#"[null,[{"night":1}],1]"#,
            "`it[1][0]`: expected a list or an object with \"nights\" or an object with \"town\" or true or false, got an object".into(),
        ),
    ];
    for (text, expected) in table {
        assert_eq!(mistake::<Journey>(text), expected, "{text}");
    }
}

#[test]
fn names_in_maps_are_explained() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never parsed successfully")]
    struct Prices {
        by_year: BTreeMap<u16, f64>,
        by_floor: BTreeMap<i8, f64>,
    }
    let cases: [(&str, &[&str]); 3] = [
        (
            r#"{"by_year": {"x": 1, "2024": "dear", "y": 2}, "by_floor": {"-1": 2, "-": 3}}"#,
            &[
                r"`it.by_year` has no member `x`, the names of its members match `^\d+$`",
                "`it.by_year.2024`: expected a number, got \"dear\"",
                r"`it.by_year` has no member `y`, the names of its members match `^\d+$`",
                r"`it.by_floor` has no member `-`, the names of its members match `^-?\d+$`",
            ],
        ),
        (
            r#"{"by_floor": [], "by_year": {"x": 1}}"#,
            &[
                "`it.by_floor`: expected an object, got a list",
                r"`it.by_year` has no member `x`, the names of its members match `^\d+$`",
            ],
        ),
        (
            r#"{"by_year": {"2024": 1}, "by_floor": {"300": 2}}"#,
            &["`it.by_floor`: invalid value: integer `300`, expected i8"],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(mistakes::<Prices>(text), expected, "{text}");
    }

    // The pattern says nothing about the other members.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never parsed successfully")]
    struct Header {
        name: String,
        #[serde(flatten)]
        extensions: BTreeMap<Extension, u8>,
    }

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
    struct Extension(#[schemars(regex(pattern = "^x-"))] String);

    let expected = ["`it.name` is missing, expected a string"];
    assert_eq!(mistakes::<Header>(r#"{"nmae": 1, "x-a": 2}"#), expected);
}

#[test]
fn mistakes_in_unusual_types() {
    assert_eq!(mistake::<(u8, String)>("[1]"), "`it`: expected a list of 2 items, got a list of 1");
    assert_eq!(
        mistake::<Figure>("\"Circl\""),
        "`it`: expected \"Dot\" or an object with \"Circle\" or an object with \"Square\", got \"Circl\""
    );
    assert_eq!(
        mistake::<Figure>("{\"Circle\":{}}"),
        "`it.Circle.radius` is missing, expected an integer from 0 to 255"
    );
    assert_eq!(mistake::<char>("\"éé\""), "`it`: expected a character, got \"éé\"");
    assert_eq!(mistake::<i128>("1e3"), "`it`: expected an integer, got 1e3");
    assert_eq!(mistake::<u128>("-1"), "`it`: expected an integer from 0, got -1");
    assert_eq!(mistake::<Either>("[]"), "`it`: expected an integer from 0 to 255 or a string, got a list");
    assert_eq!(mistake::<Positive>("-1"), "`it`: must not be negative");
}

#[test]
fn nested_mistakes() {
    let cases = [
        (r#"{"name": 5, "stops": []}"#, "`it.name`: expected a string, got 5"),
        (
            r#"{"name": "x", "stops": [{"nights": 1}, {"nights": -1}]}"#,
            "`it.stops[1].nights`: expected an integer from 0 to 255, got -1",
        ),
        (
            r#"{"name": "x", "stops": [{"nights": 1}, {}]}"#,
            "`it.stops[1].nights` is missing, expected an integer from 0 to 255",
        ),
        (r#"{"name": "x"}"#, "`it.stops` is missing, expected a list"),
        (
            "{\n  \"name\": \"a } , ]\\\"\",\n  \"stops\": [],\n  \"prices\": {\"wine\": \"dear\"}\n}",
            "`it.prices.wine`: expected a number, got \"dear\"",
        ),
        (
            r#"{"name": "x", "stops": [{"nights": 1, "by": "Plane"}]}"#,
            "`it.stops[0].by`: expected one of \"Train\", \"Boat\", null, got \"Plane\"",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(mistake::<Trip>(text), expected, "{text}");
    }
}

#[test]
fn long_values_are_truncated_between_characters() {
    let mistake = mistake::<u8>(&format!("{:?}", "é".repeat(1000)));
    assert!(mistake.ends_with("é…") && mistake.chars().count() < 120, "{mistake}");
}

#[test]
fn deep_values_are_reported() {
    let text = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    assert!(mistake::<serde_json::Value>(&text).starts_with("`it` is nested too deeply"));
}
