//! Values as JSON text.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

/// A value as compact JSON text: the model reads the text, and the application parses the value from it.
///
/// The value is stored as text to preserve every digit of its numbers.
///
/// ```
/// use tool_core::provider::JsonText;
///
/// let json = JsonText::serialize(&[1, 2])?;
/// assert_eq!(json.as_str(), "[1,2]");
/// assert_eq!(json.parse::<Vec<u8>>()?, [1, 2]);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(Box<str>);

impl JsonText {
    /// Serializes a value as JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the value has no JSON form, such as a map whose keys are not strings.
    pub fn serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|json| Self(json.into()))
    }

    /// Wraps a JSON text without changing it.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not valid JSON.
    pub fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<IgnoredAny>(json)?;
        Ok(Self(json.into()))
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the text as a value of type `T`, such as [`Value`].
    ///
    /// # Errors
    ///
    /// Returns an error if the text does not match the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

/// Writes the JSON text.
impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Shows only the size.
impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

/// Removes the whitespace between the tokens of a JSON text and leaves all else as it is, such as the digits of numbers.
///
/// The text must be valid JSON; what is returned for any other text is unspecified.
///
/// ```
/// use tool_core::provider::compact_json;
///
/// assert_eq!(compact_json("{ \"a b\": [1, 2.50] }"), "{\"a b\":[1,2.50]}");
/// ```
#[must_use]
pub fn compact_json(json: &str) -> Cow<'_, str> {
    if !json.bytes().any(|byte| byte.is_ascii_whitespace()) {
        return Cow::Borrowed(json);
    }
    let (mut is_in_string, mut is_escaped) = (false, false);
    let is_significant = |character: &char| {
        let is_significant = is_in_string || !character.is_ascii_whitespace();
        if *character == '"' && !is_escaped {
            is_in_string = !is_in_string;
        }
        is_escaped = is_in_string && *character == '\\' && !is_escaped;
        is_significant
    };
    Cow::Owned(json.chars().filter(is_significant).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacts_no_strings_and_no_digits() {
        let json = "{ \"a\\\" b\" : [ 1, 12345678901234567890123 ],\n \"c\": \" \\\\\" }";
        assert_eq!(compact_json(json), "{\"a\\\" b\":[1,12345678901234567890123],\"c\":\" \\\\\"}");
    }
}
