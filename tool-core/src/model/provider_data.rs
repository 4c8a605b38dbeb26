//! Opaque data of a provider.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

use crate::content::JsonText;

/// Opaque data that a provider expects back with a message or a call, such as encrypted reasoning or a signature. It is
/// stored with the conversation.
///
/// # Contract
///
/// A provider stores the data under its own name and sends back only the data [stored under that
/// name](Self::for_provider), because a conversation can continue with another provider.
///
/// ```
/// use tool_core::provider::{JsonText, ProviderData};
/// use tool_core::model::AssistantMessage;
///
/// let mut message = AssistantMessage::text("It is noon.");
/// message.provider_data = Some(ProviderData::new("acme", JsonText::serialize(&["c2lnbmF0dXJl"])?));
/// let data = message.provider_data.unwrap();
/// assert_eq!(data.for_provider("acme").map(JsonText::as_str), Some(r#"["c2lnbmF0dXJl"]"#));
/// assert!(data.for_provider("other").is_none());
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderData(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    provider: String,
    json: JsonText,
}

impl ProviderData {
    /// Creates data of the named provider.
    #[must_use]
    pub fn new(provider: impl Into<String>, json: JsonText) -> Self {
        Self(Box::new(Inner { provider: provider.into(), json }))
    }

    /// Returns the name of the provider.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.0.provider
    }

    /// Returns the data if it belongs to this provider.
    #[must_use]
    pub fn for_provider(&self, provider: &str) -> Option<&JsonText> {
        (self.0.provider == provider).then_some(&self.0.json)
    }
}

/// Shows only the provider and the size.
impl fmt::Debug for ProviderData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProviderData({}, {:?})", self.0.provider, self.0.json)
    }
}

/// The serialized form, with the JSON as a string to preserve every digit of its numbers.
#[derive(Serialize, Deserialize)]
struct State<'a> {
    provider: Cow<'a, str>,
    json: Cow<'a, str>,
}

impl Serialize for ProviderData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        State { provider: (&*self.0.provider).into(), json: self.0.json.as_str().into() }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ProviderData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let State { provider, json } = State::deserialize(deserializer)?;
        let json = JsonText::from_json(&json).map_err(D::Error::custom)?;
        Ok(Self::new(provider, json))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn serialization_preserves_every_digit() {
        let data =
            ProviderData::new("acme", JsonText::from_json(r#"{"a":1.000000000000000000001}"#).unwrap());
        let state = serde_json::to_value(&data).unwrap();
        assert_eq!(state, json!({ "provider": "acme", "json": r#"{"a":1.000000000000000000001}"# }));
        assert_eq!(serde_json::from_value::<ProviderData>(state).unwrap(), data);
        let broken = json!({ "provider": "acme", "json": "{" });
        assert!(serde_json::from_value::<ProviderData>(broken).is_err());
    }

    #[test]
    fn debug_shows_only_sizes() {
        let data = ProviderData::new("acme", JsonText::serialize("secret").unwrap());
        assert_eq!(format!("{data:?}"), "ProviderData(acme, Json(8 bytes))");
    }
}
