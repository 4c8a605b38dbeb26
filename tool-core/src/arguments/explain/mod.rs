//! Explanations of invalid values: all mistakes, each with its path, what is expected there, and what was found.

mod choices;
mod limits;
mod refusals;
mod validators;
mod walk;
mod wording;

use std::ops::Range;

use self::refusals::{Refusal, Refusals};
#[cfg(feature = "dynamic")]
pub(crate) use self::validators::IsValid;
pub(crate) use self::validators::SchemaValidator;
use self::walk::Walk;
pub(crate) use self::wording::{
    duplicate_member, missing_value, not_an_object, unknown_member, unknown_name,
};
use super::budget::MAX_DEPTH;
use crate::arguments::{Members, Target, duplicate_members, tokens};
use crate::schema::{NodeId, Shape};

/// A mistake in a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mistake {
    pub(crate) path: String,
    pub(crate) text: String,
    /// The position of the value in the text of the argument.
    span: Range<usize>,
    /// The value is missing, and the position that of the object.
    is_missing: bool,
    /// Something is missing in an object that has members which the schema does not list, but the type has: it can be one of them.
    is_uncertain: bool,
    /// The type accepts the value, but it exceeds a limit of the schema.
    is_limit: bool,
    /// The type ignores the value.
    pub(crate) is_unknown: bool,
    /// The position where the type has read the value: behind it, behind the struct that has flattened it, or behind the tag of its
    /// enum.
    read_until: usize,
}

impl Mistake {
    fn new(path: String, text: String, span: Range<usize>) -> Self {
        Self { path, text, read_until: span.end, span, ..Self::default() }
    }

    /// A mistake that only a type knows, in the value with this path and text.
    fn of_type(path: &str, text: &str, refusal: Refusal) -> Self {
        let Refusal { place, reason } = refusal;
        let path = join(path, &tokens::value_at(text, place.end).0);
        let mistake = if path.is_empty() { reason } else { format!("`{path}`: {reason}") };
        Self::new(path, mistake, place)
    }

    /// Returns `true` if the mistake is in this part of the text.
    pub(crate) fn is_within(&self, part: &Range<usize>) -> bool {
        part.start <= self.span.start && self.span.end <= part.end
    }
}

/// Returns `true` if a value that its type accepts is within the limits of its schema.
pub(crate) fn is_within_limits(shape: &Shape, node: NodeId, text: &str) -> bool {
    explain_limits(shape, node, "", text).is_empty()
}

/// Explains which limits of its schema a value exceeds that its type accepts.
pub(crate) fn explain_limits(shape: &Shape, node: NodeId, path: &str, text: &str) -> Vec<Mistake> {
    let mut walk = Walk::new(shape, None, path, text);
    walk.limits(node, text.trim_ascii());
    if walk.mistakes.is_empty() && walk.is_incomplete {
        walk.report_undecided(text);
    }
    walk.mistakes
}

/// Explains why a target refused a value. Paths begin with the given one. `error` is that of its type.
pub(crate) fn explain(
    shape: &Shape,
    node: NodeId,
    path: &str,
    text: &str,
    target: &dyn Target,
    error: Option<&serde_json::Error>,
) -> Vec<Mistake> {
    let mut walk = Walk::new(shape, Some(target), path, text);
    walk.value(node, text.trim_ascii(), 0);
    if walk.mistakes.is_empty() && error.is_none() {
        walk.whole_arguments(node, text);
    }
    let Walk { mut mistakes, lists, .. } = walk;
    let is_by_type = target.validator().is_none();
    let refusals = match error {
        Some(error) if is_by_type => Refusals::find(text, target, error, &lists),
        // A validator accepted the value, and the type that is made from it did not.
        Some(error) if mistakes.is_empty() => Refusals::first(text, target, error),
        _ => Refusals::default(),
    };
    if is_by_type && error.is_some() {
        refusals.retain_refused(&mut mistakes);
    }
    let unexplained: Vec<_> = refusals.into_unexplained(&mistakes).collect();
    if (mistakes.is_empty() || !unexplained.is_empty()) && tokens::is_deeper_than(MAX_DEPTH - 1, text) {
        mistakes.extend(too_deep(path, text));
    } else if duplicate_members(text).is_empty() {
        mistakes.extend(unexplained.into_iter().map(|refusal| Mistake::of_type(path, text, refusal)));
    }
    // In the order of the text. A missing member counts as standing where its object begins.
    mistakes.sort_by_key(|mistake| mistake.span.start);
    mistakes
}

/// Explains that a value, or of all arguments some members, are nested too deeply.
fn too_deep(path: &str, text: &str) -> Vec<Mistake> {
    let mistake = |path: &str| {
        let mistake = format!("`{path}` is nested too deeply, {MAX_DEPTH} levels are read at most");
        Mistake::new(path.into(), mistake, 0..text.len())
    };
    match serde_json::from_str(text) {
        Ok(Members(members)) if path.is_empty() => {
            let deep = members.iter().filter(|(_, value)| tokens::is_deeper_than(MAX_DEPTH - 2, value.get()));
            deep.map(|(name, _)| mistake(name)).collect()
        }
        _ => vec![mistake(path)],
    }
}

/// Returns the offset of an error in the text: after the invalid value, or on its first byte.
pub(crate) fn error_offset(text: &str, error: &serde_json::Error) -> usize {
    let lines_before: usize =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let offset = lines_before + error.column();
    // The error for an unexpected list or object is in front of it.
    let is_before_value = matches!(text.as_bytes().get(offset), Some(b'{' | b'['));
    (offset + usize::from(is_before_value)).clamp(1, text.len().max(1))
}

/// Returns the offset of a part of a text.
pub(super) fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr().addr().saturating_sub(text.as_ptr().addr())
}

/// Appends the path of a part (`.stops[2]`) to that of its value.
pub(crate) fn join(path: &str, part: &str) -> String {
    match path {
        "" => part.strip_prefix('.').unwrap_or(part).into(),
        path => format!("{path}{part}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;
    use crate::arguments::{ToolParameter, Typed};
    use crate::schema::{SchemaOf, arguments_schema};

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

    fn mistakes<T: ToolParameter>(text: &str) -> Vec<String> {
        let shape = Shape::parse(&arguments_schema::<T>(), SchemaOf::Type);
        let error = serde_json::from_str::<T>(text).err().expect("the text is wrong");
        let found = explain(&shape, shape.root(), "it", text, &Typed::<T>(None), Some(&error));
        found.into_iter().map(|mistake| mistake.text).collect()
    }

    fn mistake<T: ToolParameter>(text: &str) -> String {
        mistakes::<T>(text).join("; ")
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
    fn types_decide_and_not_their_schemas() {
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
                &["`it.age`: expected an integer from 0 to 255, got -1"],
            ),
            (r#"{"nick": "Ada", "id": 7}"#, &["`it`: missing field `age`"]),
            (
                r#"{"nik": "Ada", "id": "7"}"#,
                &[
                    "`it.name` is missing, expected a string",
                    "`it.age` is missing, expected an integer from 0 to 255",
                    "`it` has no member `nik`, its members are `name`, `id`, `age`, `friends`",
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
            (
                r#"{"is": "Ride", "by": "Plane"}"#,
                "`it.by`: expected one of \"Train\", \"Boat\", got \"Plane\"",
            ),
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

    /// What a type has flattened is read last, so an error of another member says nothing about it.
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
        // The type has accepted the first item.
        let text = r#"[{"free":3,"a":1,"n":2},{"a":"x","n":2,"free":"3"}]"#;
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
        assert_eq!(
            mistake::<Either>("[]"),
            "`it`: expected an integer from 0 to 255 or a string, got a list"
        );
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
}
