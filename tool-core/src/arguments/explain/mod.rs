//! Explanations of invalid arguments: where the mistake is, what was expected, and what the model wrote.

mod schema;

use serde_json::{Map, Value};

pub(crate) use self::schema::describe_schema;
use crate::arguments::{MAX_NAME_CHARS, Parameter, list, nearest, tokens};

/// The maximum number of characters of an invalid value in a message.
const MAX_QUOTE_CHARS: usize = 60;

/// The maximum number of known names in a message about an unknown one.
const MAX_NAMES: usize = 100;

/// The maximum depth of a value, which is the recursion limit of serde_json.
pub(crate) const MAX_DEPTH: usize = 128;

/// Explains that a required parameter is missing.
pub(crate) fn missing_parameter(parameter: &Parameter, schema: &Value) -> String {
    missing_value(parameter.name, &describe_schema(schema), parameter.description)
}

/// Explains that a required value is missing.
pub(crate) fn missing_value(path: &str, expected: &str, description: Option<&str>) -> String {
    let mut mistake = format!("`{path}` is missing, expected {expected}");
    if let Some(description) = description {
        mistake.extend([" (", description, ")"]);
    }
    mistake
}

/// Explains that an object contains a member twice. The path is that of [`duplicate_members`](tokens::duplicate_members).
pub(crate) fn duplicate_member(path: &str) -> String {
    let path = path.strip_prefix('.').unwrap_or(path);
    let end = path.char_indices().nth(MAX_NAME_CHARS).map_or(path.len(), |(end, _)| end);
    format!("`{}` is given twice", &path[..end])
}

/// Returns `true` if the error of serde is about a member that the text contains twice. The type also refuses a field that is
/// given by its name and by an alias.
pub(crate) fn is_duplicate_member(error: &serde_json::Error, text: &str) -> bool {
    let reason = error.to_string();
    let is_possible = ["duplicate field", "data did not match any variant"];
    is_possible.iter().any(|start| reason.starts_with(start)) && !tokens::duplicate_members(text).is_empty()
}

/// Explains that the tool does not have an argument.
pub(crate) fn unknown_argument<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let end = name.char_indices().nth(MAX_NAME_CHARS).map_or(name.len(), |(end, _)| end);
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

/// Explains that an object does not have a property. Of very many properties, some are listed, among them the most similar.
pub(crate) fn unknown_property(name: &str, properties: Option<&Map<String, Value>>) -> String {
    let names = || properties.into_iter().flat_map(|properties| properties.keys()).map(String::as_str);
    if names().nth(MAX_NAMES).is_none() {
        return unknown_argument(name, names());
    }
    let nearest = nearest(name, names());
    let others = names().filter(|other| Some(*other) != nearest);
    let listed: Vec<_> = nearest.into_iter().chain(others).take(MAX_NAMES).collect();
    unknown_argument(name, listed.into_iter())
}

/// Explains that the text is not a JSON object.
pub(crate) fn not_an_object(text: &str, error: &serde_json::Error) -> String {
    if error.is_data() {
        format!("expected a JSON object, got {}", quote(text))
    } else {
        format!("not valid JSON: {error}")
    }
}

/// Explains that a number is out of the range of an `f32`.
pub(crate) fn f32_overflow(name: &str, text: &str) -> String {
    limit_violation(name, "", F32_RANGE, text)
}

/// Explains that a value violates a limit in the schema of its type.
pub(crate) fn limit_violation(name: &str, path: &str, expected: &str, value: &str) -> String {
    format!("`{name}{path}`: expected {expected}, got {}", quote(value))
}

/// The range of an `f32`.
pub(crate) const F32_RANGE: &str = "a number from -3.4028235e38 to 3.4028235e38";

/// Explains that a value violates a limit of its parameter.
pub(crate) fn parameter_limit_violation(parameter: &Parameter, schema: &Value, text: &str) -> String {
    format!("`{}`: expected {}, got {}", parameter.name, describe_schema(schema), quote(text))
}

/// Explains that an argument is nested too deeply.
pub(crate) fn too_deep(name: &str) -> String {
    format!("`{name}` is nested too deeply, {MAX_DEPTH} levels are read at most")
}

/// Explains the error of serde for the text of one argument.
pub(crate) fn wrong_value(
    parameter: &Parameter,
    schema: &Value,
    text: &str,
    error: &serde_json::Error,
) -> String {
    wrong_value_at(parameter.name, text, error_offset(text, error), error, &|| schema.clone())
}

/// Explains the error of serde at an offset in the text of an argument.
pub(crate) fn wrong_value_at(
    name: &str,
    text: &str,
    offset: usize,
    error: &serde_json::Error,
    schema: &dyn Fn() -> Value,
) -> String {
    let reason = error.to_string();
    let reason = without_position(&reason);
    if error.is_syntax() && reason.starts_with("recursion limit") {
        return too_deep(name);
    }
    // serde_json reports this itself with its feature `float_roundtrip`, which any crate of a program can enable.
    if error.is_syntax() && reason == "number out of range" && schema()["format"] == "float" {
        return f32_overflow(name, text);
    }
    let (path, value) = tokens::value_at(text, offset);
    if let Some(field) = reason.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return format!("`{name}{path}.{field}` is missing");
    }
    let expected = match Reason::parse(reason, error) {
        // serde buffers a tagged enum before it reads the fields, so one of the fields is invalid, but serde does not report
        // which.
        Reason::Type(_) | Reason::Text(_) if is_inside(value, reason) => {
            return format!("`{name}{path}`: in it, {reason}");
        }
        Reason::Type(expected) => match describe_range(expected) {
            Some(range) => range,
            // At the top level of an argument its schema is the best description, below it the text of serde.
            None if path.is_empty() && expected != "a character" => describe_schema(&schema()),
            None => describe_type(expected).to_owned(),
        },
        Reason::Text(expected) => expected.to_owned(),
        Reason::Unknown if path.is_empty() => describe_schema(&schema()),
        Reason::Unknown => "another value".into(),
        Reason::Custom(reason) => return format!("`{name}{path}`: {reason}"),
    };
    format!("`{name}{path}`: expected {expected}, got {}", quote(value))
}

/// Returns `true` if the value is an object or list, but the error is about something inside of it.
fn is_inside(value: &str, reason: &str) -> bool {
    let found = reason.strip_prefix("invalid type: ").unwrap_or(reason);
    value.starts_with(['{', '[']) && !found.starts_with("map,") && !found.starts_with("sequence,")
}

/// Removes the line and column from the text of an error of serde_json.
pub(crate) fn without_position(reason: &str) -> &str {
    reason.rsplit_once(" at line ").map_or(reason, |(reason, _)| reason)
}

/// The reason for which serde rejected a value.
enum Reason<'a> {
    /// Another type was expected.
    Type(&'a str),
    /// Something else was expected, described in plain text.
    Text(&'a str),
    /// The reason is not helpful.
    Unknown,
    /// The message of the type itself, such as `must not be negative`.
    Custom(&'a str),
}

impl<'a> Reason<'a> {
    fn parse(reason: &'a str, error: &serde_json::Error) -> Self {
        let expected = || reason.rsplit_once(", expected ").map(|(_, expected)| expected);
        // The integer parser reports numbers that are too long or have a fraction as syntax errors.
        if error.is_syntax() || reason.starts_with("data did not match any variant") {
            return Self::Unknown;
        }
        if reason.starts_with("unknown variant ") {
            return expected().map_or(Self::Unknown, |names| Self::Text(names.trim_start_matches("one of ")));
        }
        if reason.starts_with("invalid type: ") || reason.starts_with("invalid value: ") {
            return expected().map_or(Self::Custom(reason), Self::Type);
        }
        Self::Custom(reason)
    }
}

/// Describes the range of an integer type, such as `an integer from 0 to 255` for `u8`.
pub(crate) fn describe_range(type_name: &str) -> Option<String> {
    let (lowest, highest) = integer_bounds(type_name)?;
    Some(format!("an integer from {lowest} to {highest}"))
}

/// Returns the minimum and maximum of an integer type.
pub(crate) fn integer_bounds(type_name: &str) -> Option<(i128, i128)> {
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

/// Translates serde's description of a type for the model.
fn describe_type(expected: &str) -> &str {
    match expected {
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

/// Quotes a value as the model wrote it, truncated; objects and lists are only named.
pub(crate) fn quote(value: &str) -> String {
    let value = value.trim_ascii();
    match value.as_bytes().first() {
        Some(b'{') => "an object".into(),
        Some(b'[') => "a list".into(),
        _ if value.chars().count() <= MAX_QUOTE_CHARS => value.into(),
        _ => value.chars().take(MAX_QUOTE_CHARS).chain(['…']).collect(),
    }
}

/// Returns the offset of an error in the text: after the invalid value, or on its first byte.
pub(crate) fn error_offset(text: &str, error: &serde_json::Error) -> usize {
    let reason = error.to_string();
    let lines_before: usize =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let offset = lines_before + error.column();
    // The error for an unexpected list or object is reported in front of it.
    let is_before_value = matches!(text.as_bytes().get(offset), Some(b'{' | b'['))
        && (reason.starts_with("invalid type: map") || reason.starts_with("invalid type: sequence"));
    (offset + usize::from(is_before_value)).clamp(1, text.len().max(1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::arguments::ToolParameter;

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

    fn mistake<T: ToolParameter + std::fmt::Debug>(text: &str) -> String {
        let parameter = Parameter::new::<T>("it", None, true);
        let schema = crate::arguments::schemas::parameter_schema(&parameter);
        wrong_value(&parameter, &schema, text, &serde_json::from_str::<T>(text).unwrap_err())
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
        assert_eq!(mistake::<By>("\"Plane\""), "`it`: expected `Train` or `Boat`, got \"Plane\"");
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
    #[expect(dead_code, reason = "never parsed successfully")]
    enum Shape {
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

    #[test]
    fn mistakes_in_unusual_types() {
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
    fn nested_mistakes() {
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
