//! Token usage.

use serde::Deserialize;
use tool_core::model::Usage;

use crate::lenient::{Count, Object};

/// The usage under the names of both APIs: `prompt_tokens` in Chat Completions, `input_tokens` in the Responses API. Some
/// gateways send both, the other API's as zero.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireUsage {
    prompt_tokens: Count,
    input_tokens: Count,
    completion_tokens: Count,
    output_tokens: Count,
    total_tokens: Count,
    prompt_tokens_details: Object<TokenDetails>,
    input_tokens_details: Object<TokenDetails>,
    completion_tokens_details: Object<TokenDetails>,
    output_tokens_details: Object<TokenDetails>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct TokenDetails {
    cached_tokens: Count,
    cache_write_tokens: Count,
    reasoning_tokens: Count,
}

impl WireUsage {
    /// Returns the usage, unless one of its counts is missing.
    pub(crate) fn to_usage(self) -> Option<Usage> {
        let input = self.prompt_tokens.0.max(self.input_tokens.0);
        let output = self.completion_tokens.0.max(self.output_tokens.0);
        let mut usage = Usage::new(input?, output?);
        usage.total_tokens = self.total_tokens.0.unwrap_or(usage.total_tokens);
        let details = self.prompt_tokens_details.0.or(self.input_tokens_details.0).unwrap_or_default();
        usage.cached_tokens = details.cached_tokens.0;
        usage.cache_write_tokens = details.cache_write_tokens.0;
        let details = self.completion_tokens_details.0.or(self.output_tokens_details.0).unwrap_or_default();
        usage.reasoning_tokens = details.reasoning_tokens.0;
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
    fn a_usage_without_a_count_is_unknown() {
        for json in [
            "{}",
            r#"{"total_tokens":7}"#,
            r#"{"prompt_tokens":"?"}"#,
            r#"{"prompt_tokens":3}"#,
            r#"{"prompt_tokens":3,"completion_tokens":null}"#,
            r#"{"output_tokens":3}"#,
        ] {
            assert_eq!(serde_json::from_str::<WireUsage>(json).unwrap().to_usage(), None, "{json}");
        }
    }
}
