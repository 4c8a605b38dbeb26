//! What only one provider understands.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

use crate::content::JsonText;

/// What a provider wants to have back with a message or a call, such as encrypted reasoning or a signature: it is kept with
/// the conversation, and means something to that provider alone.
///
/// # Contract
///
/// A provider writes it under a name of its own, and sends back only what [stands under that name](Self::of): a
/// conversation may go on with another one.
///
/// ```
/// use tool_core::{AssistantMessage, JsonText, ProviderData};
///
/// let mut message = AssistantMessage::text("It is noon.");
/// message.provider_data = Some(ProviderData::new("acme", JsonText::of(&["c2lnbmF0dXJl"])?));
/// let kept = message.provider_data.unwrap();
/// assert_eq!(kept.of("acme").map(JsonText::as_str), Some(r#"["c2lnbmF0dXJl"]"#));
/// assert!(kept.of("other").is_none());
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
    /// What this provider wants to have back.
    #[must_use]
    pub fn new(provider: impl Into<String>, json: JsonText) -> Self {
        Self(Box::new(Inner { provider: provider.into(), json }))
    }

    /// The provider's name for itself.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.0.provider
    }

    /// The value, if it is this provider's.
    #[must_use]
    pub fn of(&self, provider: &str) -> Option<&JsonText> {
        (self.0.provider == provider).then_some(&self.0.json)
    }
}

/// Tells whose it is, not what.
impl fmt::Debug for ProviderData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProviderData({}, {:?})", self.0.provider, self.0.json)
    }
}

/// The JSON as a text, so that no digit of it changes.
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
        let json = JsonText::checked(&json).map_err(D::Error::custom)?;
        Ok(Self::new(provider, json))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_keep_every_digit() {
        let data = ProviderData::new("acme", JsonText::checked(r#"{"a":1.000000000000000000001}"#).unwrap());
        let state = serde_json::to_value(&data).unwrap();
        assert_eq!(state, json!({ "provider": "acme", "json": r#"{"a":1.000000000000000000001}"# }));
        assert_eq!(serde_json::from_value::<ProviderData>(state).unwrap(), data);
        let broken = json!({ "provider": "acme", "json": "{" });
        assert!(serde_json::from_value::<ProviderData>(broken).is_err());
    }

    #[test]
    fn debug_tells_sizes() {
        let data = ProviderData::new("acme", JsonText::of("secret").unwrap());
        assert_eq!(format!("{data:?}"), "ProviderData(acme, Json(8 bytes))");
    }
}
