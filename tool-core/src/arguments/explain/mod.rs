//! Words about a wrong argument: where it is wrong, what was expected, what came.

mod locator;
mod words;

use serde_json::{Map, Value};

use self::locator::Locator;
pub(crate) use self::words::of_schema;

use crate::arguments::{LONGEST_NAME, Parameter, list, nearest};

/// How much of a wrong value is repeated to the model that wrote it, in characters.
const LONGEST_QUOTE: usize = 60;

/// How many names are told where an unknown one came.
const MOST_NAMES: usize = 100;

/// How deep a wrong value is looked for: serde_json reads no deeper.
pub(crate) const DEEPEST: usize = 128;

pub(crate) fn missing(parameter: &Parameter, schema: &Value) -> String {
    absent(parameter.name, &of_schema(schema), parameter.description)
}

pub(crate) fn absent(path: &str, expected: &str, description: Option<&str>) -> String {
    let mut mistake = format!("`{path}` is missing, expected {expected}");
    if let Some(description) = description {
        mistake.extend([" (", description, ")"]);
    }
    mistake
}

/// An argument that the tool does not have.
pub(crate) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let end = name.char_indices().nth(LONGEST_NAME).map_or(name.len(), |(end, _)| end);
    let name = &name[..end];
    let mut mistake = format!("there is no argument `{name}`");
    match list(known.clone()) {
        Some(known) => mistake.extend([", the arguments are ", &known]),
        None => mistake.push_str(", the tool takes no arguments"),
    }
    if let Some(nearest) = nearest(name, known) {
        mistake.extend([", did you mean `", nearest, "`?"]);
    }
    mistake
}

/// A name that is not among those of the properties. Of very many not all are told, but the nearest one is.
pub(crate) fn unknown_property(name: &str, properties: Option<&Map<String, Value>>) -> String {
    let names = || properties.into_iter().flat_map(|properties| properties.keys()).map(String::as_str);
    if names().nth(MOST_NAMES).is_none() {
        return unknown(name, names());
    }
    let nearest = nearest(name, names());
    let others = names().filter(|other| Some(*other) != nearest);
    let told: Vec<_> = nearest.into_iter().chain(others).take(MOST_NAMES).collect();
    unknown(name, told.into_iter())
}

/// The text is not a JSON object.
pub(crate) fn unreadable(text: &str, error: &serde_json::Error) -> String {
    if error.is_data() {
        format!("expected a JSON object, got {}", quote(text))
    } else {
        format!("not valid JSON: {error}")
    }
}

/// A number that an `f32` cannot hold.
pub(crate) fn too_large(name: &str, text: &str) -> String {
    broken(name, "", RANGE_OF_F32, text)
}

/// A value that its type takes, and a promise of the type's schema does not.
pub(crate) fn broken(name: &str, path: &str, expected: &str, value: &str) -> String {
    format!("`{name}{path}`: expected {expected}, got {}", quote(value))
}

/// The numbers that an `f32` can hold.
pub(crate) const RANGE_OF_F32: &str = "a number from -3.4028235e38 to 3.4028235e38";

/// A value that its type takes, and a limit of the parameter does not.
pub(crate) fn beyond(parameter: &Parameter, schema: &Value, text: &str) -> String {
    format!("`{}`: expected {}, got {}", parameter.name, of_schema(schema), quote(text))
}

pub(crate) fn too_deep(name: &str) -> String {
    format!("`{name}` is nested too deeply, {DEEPEST} levels are read at most")
}

/// What serde found wrong in the text of one argument.
pub(crate) fn wrong(parameter: &Parameter, schema: &Value, text: &str, error: &serde_json::Error) -> String {
    wrong_at(parameter.name, text, offset(text, error), error, &|| schema.clone())
}

/// The same of an error that was met at an offset in the argument's text.
pub(crate) fn wrong_at(
    name: &str,
    text: &str,
    offset: usize,
    error: &serde_json::Error,
    schema: &dyn Fn() -> Value,
) -> String {
    let reason = error.to_string();
    let reason = without_place(&reason);
    if error.is_syntax() && reason.starts_with("recursion limit") {
        return too_deep(name);
    }
    // With its feature `float_roundtrip`, which any crate of a program can switch on, serde_json sees that itself.
    if error.is_syntax() && reason == "number out of range" && schema()["format"] == "float" {
        return too_large(name, text);
    }
    let (path, value) = Locator::locate(text, offset);
    if let Some(field) = reason.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return format!("`{name}{path}.{field}` is missing");
    }
    let expected = match Reason::of(reason, error) {
        // An enum with a tag is read whole before its fields are, so what is wrong is one of them, and serde does not say which.
        Reason::Type(_) | Reason::Words(_) if is_within(value, reason) => {
            return format!("`{name}{path}`: in it, {reason}");
        }
        Reason::Type(expected) => match range_of(expected) {
            Some(range) => range,
            // The top of an argument is best described by its schema, what lies below by serde's own words.
            None if path.is_empty() && expected != "a character" => of_schema(&schema()),
            None => of_type(expected).to_owned(),
        },
        Reason::Words(expected) => expected.to_owned(),
        Reason::Unknown if path.is_empty() => of_schema(&schema()),
        Reason::Unknown => "another value".into(),
        Reason::Own(reason) => return format!("`{name}{path}`: {reason}"),
    };
    format!("`{name}{path}`: expected {expected}, got {}", quote(value))
}

/// An object or list came, but it is something else that serde did not expect.
fn is_within(value: &str, reason: &str) -> bool {
    let came = reason.strip_prefix("invalid type: ").unwrap_or(reason);
    value.starts_with(['{', '[']) && !came.starts_with("map,") && !came.starts_with("sequence,")
}

/// What serde_json says of an error, without the line and the column.
pub(crate) fn without_place(reason: &str) -> &str {
    reason.rsplit_once(" at line ").map_or(reason, |(reason, _)| reason)
}

/// What serde says of a value that it could not read.
enum Reason<'a> {
    /// Another type was expected.
    Type(&'a str),
    /// What was expected, in words for a reader.
    Words(&'a str),
    /// Nothing that helps.
    Unknown,
    /// What the type itself has to say, such as `must not be negative`.
    Own(&'a str),
}

impl<'a> Reason<'a> {
    fn of(reason: &'a str, error: &serde_json::Error) -> Self {
        let expected = || reason.rsplit_once(", expected ").map(|(_, expected)| expected);
        // A number that is too long, or has a fraction where none can be, is no number to the reader of integers.
        if error.is_syntax() || reason.starts_with("data did not match any variant") {
            return Self::Unknown;
        }
        if reason.starts_with("unknown variant ") {
            return expected()
                .map_or(Self::Unknown, |words| Self::Words(words.trim_start_matches("one of ")));
        }
        if reason.starts_with("invalid type: ") || reason.starts_with("invalid value: ") {
            return expected().map_or(Self::Own(reason), Self::Type);
        }
        Self::Own(reason)
    }
}

/// `an integer from 0 to 255` for `u8`.
pub(crate) fn range_of(type_name: &str) -> Option<String> {
    let (lowest, highest) = bounds_of(type_name)?;
    Some(format!("an integer from {lowest} to {highest}"))
}

pub(crate) fn bounds_of(type_name: &str) -> Option<(i128, i128)> {
    Some(match type_name {
        "u8" => (0, i128::from(u8::MAX)),
        "u16" => (0, i128::from(u16::MAX)),
        "u32" => (0, i128::from(u32::MAX)),
        "u64" | "usize" => (0, i128::from(u64::MAX)),
        "i8" => (i128::from(i8::MIN), i128::from(i8::MAX)),
        "i16" => (i128::from(i16::MIN), i128::from(i16::MAX)),
        "i32" => (i128::from(i32::MIN), i128::from(i32::MAX)),
        "i64" | "isize" => (i128::from(i64::MIN), i128::from(i64::MAX)),
        _ => return None,
    })
}

/// A type in serde's words, in words for a model.
fn of_type(expected: &str) -> &str {
    match expected {
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

/// What came, as the model wrote it if that is short.
pub(crate) fn quote(value: &str) -> String {
    let value = value.trim_ascii();
    match value.as_bytes().first() {
        Some(b'{') => "an object".into(),
        Some(b'[') => "a list".into(),
        _ if value.chars().count() <= LONGEST_QUOTE => value.into(),
        _ => value.chars().take(LONGEST_QUOTE).chain(['…']).collect(),
    }
}

/// Where in the text the error was met: behind the value that is wrong, or on the first byte of it.
pub(crate) fn offset(text: &str, error: &serde_json::Error) -> usize {
    let reason = error.to_string();
    let lines_before: usize =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let offset = lines_before + error.column();
    // A list or an object where something else is expected is told of from in front of it.
    let is_in_front = matches!(text.as_bytes().get(offset), Some(b'{' | b'['))
        && (reason.starts_with("invalid type: map") || reason.starts_with("invalid type: sequence"));
    (offset + usize::from(is_in_front)).clamp(1, text.len().max(1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::arguments::ToolParameter;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never read rightly here")]
    struct Trip {
        name: String,
        stops: Vec<Stop>,
        prices: Option<BTreeMap<String, f64>>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never read rightly here")]
    struct Stop {
        nights: u8,
        by: Option<By>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    enum By {
        Train,
        Boat,
    }

    fn mistake<T: ToolParameter + std::fmt::Debug>(text: &str) -> String {
        let parameter = Parameter::new::<T>("it", None, true);
        let schema = crate::arguments::schemas::of_parameter(&parameter);
        wrong(&parameter, &schema, text, &serde_json::from_str::<T>(text).unwrap_err())
    }

    #[test]
    fn at_the_top() {
        assert_eq!(
            mistake::<i32>("\"abc\""),
            "`it`: expected an integer from -2147483648 to 2147483647, got \"abc\""
        );
        assert_eq!(mistake::<u8>("300"), "`it`: expected an integer from 0 to 255, got 300");
        assert_eq!(mistake::<f64>("[1]"), "`it`: expected a number, got a list");
        assert_eq!(mistake::<String>("{\"a\": 1}"), "`it`: expected a string, got an object");
        assert_eq!(mistake::<By>("\"Plane\""), "`it`: expected `Train` or `Boat`, got \"Plane\"");
        assert_eq!(mistake::<Vec<u8>>("3"), "`it`: expected a list, got 3");
        assert_eq!(mistake::<Trip>("3"), "`it`: expected an object, got 3");
    }

    #[test]
    fn a_list_or_an_object_where_something_else_is_expected() {
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
    fn what_is_wrong_within_an_enum_with_a_tag_is_not_told_of_the_whole() {
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(tag = "is")]
        #[expect(dead_code, reason = "never read rightly here")]
        enum Leg {
            Ride { by: By },
            Stay { nights: u8 },
        }
        let table = [
            (
                r#"{"is": "Ride", "by": "Plane"}"#,
                "`it`: in it, unknown variant `Plane`, expected `Train` or `Boat`",
            ),
            (r#"{"is": "Stay", "nights": "x"}"#, "`it`: in it, invalid type: string \"x\", expected u8"),
            (r#"{"is": "Stay"}"#, "`it.nights` is missing"),
        ];
        for (text, expected) in table {
            assert_eq!(mistake::<Leg>(text), expected, "{text}");
        }
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "never read rightly here")]
    enum Shape {
        Circle { radius: u8 },
        Square(u8),
        Dot,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "never read rightly here")]
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

    #[test]
    fn of_unusual_types() {
        assert_eq!(mistake::<(u8, String)>("[1]"), "`it`: invalid length 1, expected a tuple of size 2");
        assert_eq!(mistake::<Shape>("\"Circl\""), "`it`: expected `Circle`, `Square`, `Dot`, got \"Circl\"");
        assert_eq!(mistake::<Shape>("{\"Circle\":{}}"), "`it.Circle.radius` is missing");
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
    fn below_the_top() {
        let cases = [
            (r#"{"name": 5, "stops": []}"#, "`it.name`: expected a string, got 5"),
            (
                r#"{"name": "x", "stops": [{"nights": 1}, {"nights": -1}]}"#,
                "`it.stops[1].nights`: expected an integer from 0 to 255, got -1",
            ),
            (r#"{"name": "x", "stops": [{"nights": 1}, {}]}"#, "`it.stops[1].nights` is missing"),
            (r#"{"name": "x"}"#, "`it.stops` is missing"),
            (
                "{\n  \"name\": \"a } , ]\\\"\",\n  \"stops\": [],\n  \"prices\": {\"wine\": \"dear\"}\n}",
                "`it.prices.wine`: expected a number, got \"dear\"",
            ),
            (
                r#"{"name": "x", "stops": [{"nights": 1, "by": "Plane"}]}"#,
                "`it.stops[0].by`: expected `Train` or `Boat`, got \"Plane\"",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(mistake::<Trip>(text), expected, "{text}");
        }
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let mistake = mistake::<u8>(&format!("{:?}", "é".repeat(1000)));
        assert!(mistake.ends_with("é…") && mistake.chars().count() < 120, "{mistake}");
    }

    #[test]
    fn depth_is_no_danger() {
        let text = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        assert!(mistake::<serde_json::Value>(&text).starts_with("`it` is nested too deeply"));
    }

    #[test]
    fn any_offset_of_any_text_is_located() {
        let text = r#" {"a": [1, {"b\"": "c"}, []], "d": {}, "e": null} "#;
        for offset in 0..=text.len() + 2 {
            let _ = Locator::locate(text, offset);
        }
    }
}
