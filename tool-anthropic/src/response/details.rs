//! What is stored with a reply, for the API and for the application.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tool_core::model::AssistantMessage;
use tool_core::provider::{JsonText, ProviderData};

/// The last part of the name under which the data is stored.
const API: &str = "/messages";

/// What a reply contains besides its text, its reasoning and its calls. It is stored with the message, as its
/// [`ProviderData`], and therefore part of stored conversations and runs.
///
/// ```
/// use tool_anthropic::ReplyDetails;
/// use tool_core::model::AssistantMessage;
///
/// fn searches(reply: &AssistantMessage) -> u64 {
///     let details = ReplyDetails::from_message(reply).unwrap_or_default();
///     details.hosted_tool_uses.get("web_search_requests").copied().unwrap_or(0)
/// }
/// # assert_eq!(searches(&AssistantMessage::text("Hello")), 0);
/// ```
#[derive(Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplyDetails {
    /// A digest of all that the model read before it wrote the reply.
    #[serde(default)]
    pub(crate) prefix: String,
    /// The blocks of the content as the API returned them, each as JSON: among others thinking, calls of hosted tools and
    /// their results.
    #[serde(rename = "content", default)]
    pub blocks: Vec<Box<RawValue>>,
    /// Of a summary of the conversation, a digest of what preceded the messages that it summarizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summarized_after: Option<String>,
    /// How often hosted tools were used, by the API's name of the count, such as `web_search_requests`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosted_tool_uses: BTreeMap<String, u64>,
    /// The input tokens that were written to the cache for an hour. They are part of
    /// [`Usage::cache_write_tokens`](tool_core::model::Usage::cache_write_tokens) and cost more than the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_cache_write_tokens: Option<u64>,
    /// The container in which hosted tools executed code. The next request continues it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// Omits the texts.
impl fmt::Debug for ReplyDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyDetails")
            .field("blocks", &self.blocks.len())
            .field("hosted_tool_uses", &self.hosted_tool_uses)
            .field("long_cache_write_tokens", &self.long_cache_write_tokens)
            .finish_non_exhaustive()
    }
}

impl ReplyDetails {
    /// Returns the details of a reply of this crate's models, and `None` for any other message.
    #[must_use]
    pub fn from_message(message: &AssistantMessage) -> Option<Self> {
        let data = message.provider_data.as_ref().filter(|data| data.provider().ends_with(API))?;
        data.for_provider(data.provider())?.parse().ok()
    }

    /// Returns the details of a reply of the provider with this name.
    pub(crate) fn for_provider(message: &AssistantMessage, provider: &str) -> Option<Self> {
        message.provider_data.as_ref()?.for_provider(&format!("{provider}{API}"))?.parse().ok()
    }

    /// Returns the details as the provider's data.
    pub(crate) fn to_provider_data(&self, provider: &str) -> Option<ProviderData> {
        Some(ProviderData::new(format!("{provider}{API}"), JsonText::serialize(self).ok()?))
    }
}
