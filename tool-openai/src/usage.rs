//! Token usage.

use serde::Deserialize;
use tool_core::model::Usage;

use crate::lenient;

/// The usage under the names of both APIs: `prompt_tokens` in Chat Completions, `input_tokens` in the Responses API. Some
/// gateways send both, those of the other API as zero.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireUsage {
    #[serde(deserialize_with = "lenient::unsigned")]
    prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::unsigned")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::unsigned")]
    completion_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::unsigned")]
    output_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::unsigned")]
    total_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::object")]
    prompt_tokens_details: Option<TokenDetails>,
    #[serde(deserialize_with = "lenient::object")]
    input_tokens_details: Option<TokenDetails>,
    #[serde(deserialize_with = "lenient::object")]
    completion_tokens_details: Option<TokenDetails>,
    #[serde(deserialize_with = "lenient::object")]
    output_tokens_details: Option<TokenDetails>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct TokenDetails {
    #[serde(deserialize_with = "lenient::unsigned")]
    cached_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::unsigned")]
    cache_write_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::unsigned")]
    reasoning_tokens: Option<u64>,
}

impl WireUsage {
    /// Returns the usage, unless there is none.
    pub(crate) fn to_usage(self) -> Option<Usage> {
        let input = self.prompt_tokens.max(self.input_tokens);
        let output = self.completion_tokens.max(self.output_tokens);
        input.or(output)?;
        let mut usage = Usage::new(input.unwrap_or(0), output.unwrap_or(0));
        usage.total_tokens = self.total_tokens.unwrap_or(usage.total_tokens);
        let input_details = self.prompt_tokens_details.or(self.input_tokens_details);
        usage.cached_tokens = input_details.and_then(|details| details.cached_tokens);
        usage.cache_write_tokens = input_details.and_then(|details| details.cache_write_tokens);
        let output_details = self.completion_tokens_details.or(self.output_tokens_details);
        usage.reasoning_tokens = output_details.and_then(|details| details.reasoning_tokens);
        Some(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_names_of_both_apis() {
        let expected = Usage::new(3, 4);
        for json in [
            r#"{"prompt_tokens":3,"completion_tokens":4}"#,
            r#"{"input_tokens":3,"output_tokens":4}"#,
            r#"{"prompt_tokens":3,"completion_tokens":4,"input_tokens":0,"output_tokens":0}"#,
            r#"{"prompt_tokens":0,"completion_tokens":0,"input_tokens":3,"output_tokens":4}"#,
        ] {
            let wire: WireUsage = serde_json::from_str(json).unwrap();
            assert_eq!(wire.to_usage(), Some(expected), "{json}");
        }
    }

    #[test]
    fn a_usage_without_counts_is_unknown() {
        for json in ["{}", r#"{"total_tokens":7}"#, r#"{"prompt_tokens":"?"}"#] {
            assert_eq!(serde_json::from_str::<WireUsage>(json).unwrap().to_usage(), None, "{json}");
        }
    }
}
