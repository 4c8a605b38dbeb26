//! JSON texts that are changed member by member, so that all else keeps its bytes.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The largest number of members that are read. Small ones take a multiple of their text in memory.
const MAX_MEMBERS: usize = 1000;

/// Parses an array of at most `max` elements.
///
/// # Errors
///
/// Fails if the text is no array, or a longer one.
pub fn elements(json: &str, max: usize) -> serde_json::Result<Vec<&RawValue>> {
    // The parser's error quotes a value of another type, which may be a model's reply.
    if !json.trim_ascii_start().starts_with('[') {
        return Err(Error::custom("expected an array"));
    }
    // They take no memory to count.
    if serde_json::from_str::<Vec<IgnoredAny>>(json)?.len() > max {
        return Err(Error::custom(format_args!("more than {max} elements")));
    }
    serde_json::from_str(json)
}

/// Returns a JSON string.
#[must_use]
pub fn string(text: &str) -> String {
    // A string can always be written.
    serde_json::to_string(text).unwrap_or_default()
}

/// The members of a JSON object, in order, each value as its text.
#[derive(Clone, Debug, Default)]
pub struct Members<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Members<'a> {
    /// Parses an object. Returns `None` if the text is none.
    #[must_use]
    pub fn parse(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Returns the value of a member.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Returns the value of a member that is of this type.
    #[must_use]
    pub fn parsed<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// Returns the value of a member that is a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        self.parsed(name)
    }

    /// Removes a member. Returns `false` if there is none.
    pub fn remove(&mut self, name: &str) -> bool {
        let count = self.0.len();
        self.0.retain(|(known, _)| known != name);
        self.0.len() < count
    }

    /// Replaces the value of a member, or adds it.
    pub fn set(&mut self, name: &'a str, value: impl Into<Cow<'a, str>>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value.into(),
            None => self.0.push((name.into(), value.into())),
        }
    }

    /// Returns the members.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the object.
    #[must_use]
    pub fn to_json(&self) -> String {
        let members = self.iter().map(|(name, value)| format!("{}:{value}", string(name)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((name, value)) = object.next_entry::<String, &RawValue>()? {
            if members.len() == MAX_MEMBERS {
                return Err(Error::custom(format_args!("more than {MAX_MEMBERS} members")));
            }
            members.push((name.into(), value.get().into()));
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_changed_members_keep_their_bytes() {
        let json = r#"{"b":1.10,"a":{"x": [12345678901234567890123]},"é":"\u00e9"}"#;
        let mut members = Members::parse(json).unwrap();
        assert_eq!(members.to_json(), json);
        assert_eq!((members.get("b"), members.text("é").as_deref()), (Some("1.10"), Some("é")));
        members.set("b", "2");
        members.set("c", "null");
        assert_eq!(
            members.to_json(),
            r#"{"b":2,"a":{"x": [12345678901234567890123]},"é":"\u00e9","c":null}"#
        );
        assert!(Members::parse("[1]").is_none());
    }
}
