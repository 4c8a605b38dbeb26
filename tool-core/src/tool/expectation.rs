//! Words about a wrong argument: where it is wrong, what was expected, what came.

use serde_json::Value;

use super::error::{LONGEST_NAME, list, nearest};
use super::parameter::Parameter;

/// How much of a wrong value is repeated to the model that wrote it, in characters.
const LONGEST_QUOTE: usize = 60;

/// How deep a wrong value is looked for: serde_json reads no deeper.
pub(super) const DEEPEST: usize = 128;

pub(super) fn missing(parameter: &Parameter, schema: &Value) -> String {
    absent(parameter.name, &of_schema(schema), parameter.description)
}

pub(super) fn absent(path: &str, expected: &str, description: Option<&str>) -> String {
    let mut mistake = format!("`{path}` is missing, expected {expected}");
    if let Some(description) = description {
        mistake.extend([" (", description, ")"]);
    }
    mistake
}

/// An argument that the tool does not have.
pub(super) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
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

/// The text is not a JSON object.
pub(crate) fn unreadable(text: &str, error: &serde_json::Error) -> String {
    if error.is_data() {
        format!("expected a JSON object, got {}", quote(text))
    } else {
        format!("not valid JSON: {error}")
    }
}

/// A number that an `f32` cannot hold.
pub(super) fn too_large(name: &str, text: &str) -> String {
    format!("`{name}`: expected a number from -3.4028235e38 to 3.4028235e38, got {}", quote(text))
}

/// A value that its type takes, and a limit of the parameter does not.
pub(super) fn beyond(parameter: &Parameter, schema: &Value, text: &str) -> String {
    format!("`{}`: expected {}, got {}", parameter.name, of_schema(schema), quote(text))
}

pub(super) fn too_deep(name: &str) -> String {
    format!("`{name}` is nested too deeply, {DEEPEST} levels are read at most")
}

/// What serde found wrong in the text of one argument.
pub(crate) fn wrong(parameter: &Parameter, schema: &Value, text: &str, error: &serde_json::Error) -> String {
    wrong_at(parameter.name, text, offset(text, error), error, &|| schema.clone())
}

/// The same of an error that was met at an offset in the argument's text.
pub(super) fn wrong_at(
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

/// What serde_json says of an error, without the line and the column.
pub(super) fn without_place(reason: &str) -> &str {
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
pub(super) fn range_of(type_name: &str) -> Option<String> {
    let (lowest, highest) = bounds_of(type_name)?;
    Some(format!("an integer from {lowest} to {highest}"))
}

pub(super) fn bounds_of(type_name: &str) -> Option<(i128, i128)> {
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

/// A schema in words: `an integer from 0 to 255`, `one of "a", "b"`, `a list`.
pub(crate) fn of_schema(schema: &Value) -> String {
    if let Some(variants) = schema["enum"].as_array() {
        let variants: Vec<_> = variants.iter().map(Value::to_string).collect();
        return format!("one of {}", variants.join(", "));
    }
    if let Some(variant) = schema.get("const") {
        return variant.to_string();
    }
    // A variant that holds data.
    if let (Some([name]), Some(_)) = (
        schema["required"].as_array().map(Vec::as_slice),
        schema["additionalProperties"].as_bool().filter(|may| !may),
    ) {
        return format!("an object with {name}");
    }
    if let Some(choices) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
        return choices.iter().map(of_schema).collect::<Vec<_>>().join(" or ");
    }
    match &schema["type"] {
        Value::Array(types) => {
            let mut single = schema.clone();
            let words = types.iter().map(|one| {
                single["type"] = one.clone();
                of_schema(&single)
            });
            words.collect::<Vec<_>>().join(" or ")
        }
        Value::String(name) => match &**name {
            "integer" => format!("an integer{}", range_in(schema)),
            "number" => format!("a number{}", range_in(schema)),
            "string" => format!("a string{}", text_in(schema)),
            "boolean" => "true or false".into(),
            "array" => format!("a list{}", lengths(&schema["minItems"], &schema["maxItems"], "items")),
            "object" => {
                format!("an object{}", lengths(&schema["minProperties"], &schema["maxProperties"], "entries"))
            }
            "null" => "null".into(),
            name => format!("a {name}"),
        },
        _ => "a value".into(),
    }
}

/// ` from 1 to 100`, as far as the schema has bounds.
fn range_in(schema: &Value) -> String {
    let mut range = match (&schema["minimum"], &schema["maximum"]) {
        (Value::Null, Value::Null) => String::new(),
        (lowest, Value::Null) => format!(" from {lowest}"),
        (Value::Null, highest) => format!(" up to {highest}"),
        (lowest, highest) => format!(" from {lowest} to {highest}"),
    };
    if let Some(bound) = schema.get("exclusiveMaximum") {
        range = format!("{range} below {bound}");
    }
    range
}

/// ` of 1 to 64 characters that matches …`, as far as the schema says it.
fn text_in(schema: &Value) -> String {
    let mut words = lengths(&schema["minLength"], &schema["maxLength"], "characters");
    if let Some(pattern) = schema["pattern"].as_str() {
        words = format!("{words} that matches `{pattern}`");
    }
    words
}

/// ` of 1 to 64 characters`
fn lengths(shortest: &Value, longest: &Value, units: &str) -> String {
    match (shortest, longest) {
        (Value::Null, Value::Null) => String::new(),
        (shortest, Value::Null) => format!(" of at least {shortest} {units}"),
        (Value::Null, longest) => format!(" of at most {longest} {units}"),
        (shortest, longest) if shortest == longest => format!(" of {shortest} {units}"),
        (shortest, longest) => format!(" of {shortest} to {longest} {units}"),
    }
}

/// What came, as the model wrote it if that is short.
pub(super) fn quote(value: &str) -> String {
    let value = value.trim_ascii();
    match value.as_bytes().first() {
        Some(b'{') => "an object".into(),
        Some(b'[') => "a list".into(),
        _ if value.chars().count() <= LONGEST_QUOTE => value.into(),
        _ => value.chars().take(LONGEST_QUOTE).chain(['…']).collect(),
    }
}

/// Where in the text the error was met: behind the value that is wrong, or on the first byte of it.
pub(super) fn offset(text: &str, error: &serde_json::Error) -> usize {
    let reason = error.to_string();
    let lines_before: usize =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let offset = lines_before + error.column();
    // A list or an object where something else is expected is told of from in front of it.
    let is_in_front = matches!(text.as_bytes().get(offset), Some(b'{' | b'['))
        && (reason.starts_with("invalid type: map") || reason.starts_with("invalid type: sequence"));
    (offset + usize::from(is_in_front)).clamp(1, text.len().max(1))
}

/// Finds the innermost value around an offset of a valid JSON text, and the path to it.
struct Locator<'a> {
    text: &'a str,
    position: usize,
    offset: usize,
}

impl<'a> Locator<'a> {
    /// The path (`.stops[2].name`, empty at the top) and the text of the value.
    fn locate(text: &'a str, offset: usize) -> (String, &'a str) {
        let mut locator = Self { text, position: 0, offset };
        locator.value(0).unwrap_or_else(|| (String::new(), text))
    }

    /// Passes over one value; gives what it found if the offset is in it.
    fn value(&mut self, depth: usize) -> Option<(String, &'a str)> {
        if depth > DEEPEST {
            self.position = self.text.len();
            return None;
        }
        self.blanks();
        let start = self.position;
        let mut inner = None;
        match self.peek() {
            Some(open @ (b'{' | b'[')) => {
                self.position += 1;
                for index in 0.. {
                    self.blanks();
                    if matches!(self.peek(), None | Some(b'}' | b']')) {
                        break;
                    }
                    let name = (open == b'{').then(|| self.name());
                    let found = self.value(depth + 1).map(|(path, value)| match name {
                        Some(name) => (format!(".{name}{path}"), value),
                        None => (format!("[{index}]{path}"), value),
                    });
                    inner = inner.or(found);
                    self.blanks();
                    if self.peek() == Some(b',') {
                        self.position += 1;
                    }
                }
                self.position += 1;
            }
            Some(b'"') => {
                self.string();
            }
            _ => {
                let rest = &self.text[self.position.min(self.text.len())..];
                self.position += rest.find([',', '}', ']', ' ', '\n', '\r', '\t']).unwrap_or(rest.len());
            }
        }
        let end = self.position.min(self.text.len());
        let is_around = start < self.offset && self.offset <= end;
        inner.or_else(|| is_around.then(|| (String::new(), &self.text[start.min(end)..end])))
    }

    /// Passes over a name and the colon behind it.
    fn name(&mut self) -> &'a str {
        let name = self.string();
        self.blanks();
        self.position += 1;
        name.trim_matches('"')
    }

    fn string(&mut self) -> &'a str {
        let start = self.position;
        self.position += 1;
        while let Some(byte) = self.peek() {
            self.position += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        self.text.get(start..self.position).unwrap_or_default()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.position += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::tool::parameter::ToolParameter;

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
        let schema = crate::schema::of_parameter(&parameter);
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
