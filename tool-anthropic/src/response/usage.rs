//! Token usage.

use std::collections::BTreeMap;

use serde_json::Value;
use tool_core::model::Usage;

/// The longest usage that is read. Small counts take a multiple of their text in memory.
const MAX_BYTES: usize = 64 << 10;

/// The number of counts after which no more are read.
const MAX_COUNTS: usize = 100;

/// The usage as the API reports it. An event of a stream replaces the counts that it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct WireUsage(BTreeMap<String, Value>);

impl WireUsage {
    /// Replaces the counts that `json` has.
    pub(crate) fn update(&mut self, json: &str) {
        if json.len() > MAX_BYTES || self.0.len() > MAX_COUNTS {
            return;
        }
        let counts: BTreeMap<String, Value> = serde_json::from_str(json).unwrap_or_default();
        self.0.extend(counts.into_iter().filter(|(_, count)| !count.is_null()));
    }

    /// Removes the count of output tokens, which is preliminary until a message has ended.
    pub(crate) fn forget_output(&mut self) {
        self.0.remove("output_tokens");
    }

    /// Returns the usage, unless one of its counts is missing. The three kinds of input tokens are disjoint, and compactions are not part of the
    /// other counts.
    pub(crate) fn to_usage(&self) -> Option<Usage> {
        let count = |name: &str| self.0.get(name)?.as_u64();
        count("input_tokens").and(count("output_tokens"))?;
        let iterations = self.0.get("iterations").and_then(Value::as_array).into_iter().flatten();
        let compactions = iterations.filter(|iteration| iteration["type"] == "compaction");
        let of_compactions =
            |name: &'static str| compactions.clone().filter_map(move |one| one[name].as_u64());
        let (read, written) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
        let sum = |counts: &[Option<u64>], name| {
            counts.iter().flatten().copied().chain(of_compactions(name)).fold(0, u64::saturating_add)
        };
        let of_cache = |count: Option<u64>, name| {
            let of_compactions = of_compactions(name).reduce(u64::saturating_add);
            count.into_iter().chain(of_compactions).reduce(u64::saturating_add)
        };
        let (read, written) =
            (of_cache(read, "cache_read_input_tokens"), of_cache(written, "cache_creation_input_tokens"));
        let input = sum(&[count("input_tokens"), read, written], "input_tokens");
        let mut usage = Usage::new(input, sum(&[count("output_tokens")], "output_tokens"));
        usage.cached_tokens = read;
        usage.cache_write_tokens = written;
        usage.long_cache_write_tokens = self.long_cache_writes();
        usage.web_searches = self.hosted_tool_uses().get("web_search_requests").copied();
        let details = self.0.get("output_tokens_details");
        usage.reasoning_tokens = details.and_then(|details| details["thinking_tokens"].as_u64());
        Some(usage)
    }

    /// Returns the tokens that were written to the cache for an hour.
    pub(crate) fn long_cache_writes(&self) -> Option<u64> {
        self.0.get("cache_creation")?["ephemeral_1h_input_tokens"].as_u64()
    }

    /// Returns how often hosted tools were used, by the name of the count, such as `web_search_requests`.
    pub(crate) fn hosted_tool_uses(&self) -> BTreeMap<String, u64> {
        let uses = self.0.get("server_tool_use").and_then(Value::as_object);
        let uses = uses.into_iter().flatten();
        uses.filter_map(|(name, count)| Some((name.clone(), count.as_u64().filter(|count| *count > 0)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_counts_replace_earlier_ones() {
        let mut usage = WireUsage::default();
        assert_eq!(usage.to_usage(), None);
        usage.update(r#"{"service_tier":"standard","input_tokens":"?"}"#);
        assert_eq!(usage.to_usage(), None);
        usage.update(r#"{"input_tokens":25,"cache_read_input_tokens":5,"output_tokens":1}"#);
        usage.update(r#"{"output_tokens":40,"cache_read_input_tokens":null,"server_tool_use":{"web_search_requests":2,"web_fetch_requests":0}}"#);
        let found = usage.to_usage().unwrap();
        assert_eq!((found.input_tokens, found.output_tokens, found.total_tokens), (30, 40, 70));
        assert_eq!((found.cached_tokens, found.cache_write_tokens), (Some(5), None));
        assert_eq!(usage.hosted_tool_uses(), BTreeMap::from([("web_search_requests".into(), 2)]));
    }

    #[test]
    fn compactions_are_added() {
        let mut usage = WireUsage::default();
        usage.update(
            r#"{"input_tokens":1,"output_tokens":2,"iterations":[{"type":"compaction","input_tokens":10,"output_tokens":20},{"type":"message","input_tokens":1,"output_tokens":2}]}"#,
        );
        assert_eq!(usage.to_usage(), Some(Usage::new(11, 22)));
    }
}
