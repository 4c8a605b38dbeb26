//! Checks of a JSON text against single keywords of a schema.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::arguments::{explain, repair};

/// Returns the Rust type of a number format such as `int32` or `uint8`.
pub(super) fn integer_type(format: &str) -> Option<&'static str> {
    Some(match format {
        "int8" => "i8",
        "int16" => "i16",
        "int32" => "i32",
        "int64" | "int" => "i64",
        "uint8" => "u8",
        "uint16" => "u16",
        "uint32" => "u32",
        "uint64" | "uint" => "u64",
        _ => return None,
    })
}

/// Returns `true` if the value has the `type`, if there is one.
pub(super) fn has_type(schema: &Map<String, Value>, text: &str) -> bool {
    let matches = |name: &Value| match (name.as_str(), text.as_bytes().first()) {
        (Some("string"), Some(b'"'))
        | (Some("object"), Some(b'{'))
        | (Some("array"), Some(b'['))
        | (Some("boolean"), Some(b't' | b'f'))
        | (Some("null"), Some(b'n'))
        | (Some("number"), Some(b'-' | b'0'..=b'9')) => true,
        (Some("integer"), Some(b'-' | b'0'..=b'9')) => repair::integer(text).is_some(),
        _ => false,
    };
    match schema.get("type") {
        Some(Value::Array(names)) => names.iter().any(matches),
        Some(name) => matches(name),
        None => true,
    }
}

/// Returns `false` if the schema requires an integer, and the value is one that neither an `i64` nor a `u64` can hold.
pub(super) fn is_64_bit(schema: &Map<String, Value>, text: &str) -> bool {
    let is_number = matches!(text.as_bytes().first(), Some(b'-' | b'0'..=b'9'));
    // Without a type, or as a `number`, it can be any number.
    if !is_number || has_type(schema, "0.5") {
        return true;
    }
    repair::integer(text)
        .is_none_or(|integer| integer.parse::<i64>().is_ok() || integer.parse::<u64>().is_ok())
}

/// Returns `true` if `enum` and `const` allow the value, if they are present.
pub(super) fn is_one_of(schema: &Map<String, Value>, text: &str) -> bool {
    let allowed = ["enum", "const"].map(|keyword| schema.get(keyword));
    if allowed == [None, None] {
        return true;
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else { return true };
    let is_equal = |other: &Value| *other == value || (other.is_number() && other.as_f64() == value.as_f64());
    match allowed {
        [Some(Value::Array(values)), _] => values.iter().any(is_equal),
        [_, Some(constant)] => is_equal(constant),
        _ => true,
    }
}

/// Returns `true` if an integer is in the range of its format and between `minimum` and `maximum`, if they are present.
pub(super) fn is_in_range(schema: &Map<String, Value>, text: &str) -> bool {
    if !matches!(text.as_bytes().first(), Some(b'-' | b'0'..=b'9')) {
        return true;
    }
    let integer = repair::integer(text).unwrap_or(Cow::Borrowed(text));
    let Ok(integer) = integer.parse::<i128>() else { return true };
    let bound = |keyword: &str| {
        let bound = schema.get(keyword)?;
        bound.as_i64().map(i128::from).or_else(|| bound.as_u64().map(i128::from))
    };
    let format = schema.get("format").and_then(Value::as_str).and_then(integer_type);
    let (lowest, highest) = format.and_then(explain::integer_bounds).unwrap_or((i128::MIN, i128::MAX));
    (lowest..=highest).contains(&integer)
        && bound("minimum").is_none_or(|lowest| lowest <= integer)
        && bound("maximum").is_none_or(|highest| integer <= highest)
}
