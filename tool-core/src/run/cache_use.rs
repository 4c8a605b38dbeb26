//! What requests have read from the provider's prompt cache.
//!
//! A request is compared with the one before only where messages were just added, because a compaction loses the cache on purpose. Whether the
//! cache is cold depends on times in the run's state, because a replay must decide the same.

use serde::{Deserialize, Serialize};

/// What one request of a run has read from the provider's prompt cache, and what it could have read.
///
/// It is recorded for agents that [`track_cache`](crate::agent::AgentBuilder::track_cache), and for responses whose provider reports
/// [cached tokens](crate::model::Usage::cached_tokens).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CacheUse {
    /// The number of the turn, from 1 on.
    pub turn: u32,
    /// The tokens that were read from the cache, as the provider reported them.
    pub cached_tokens: u64,
    /// The tokens of the request before, as the provider reported them, if this request begins with its messages. It is 0 for the first
    /// request of a run, after a [compaction](crate::agent::Compaction) and a [handoff](crate::agent::AgentBuilder::handoff_to), and if
    /// [earlier turns](crate::agent::AgentBuilder::send_earlier_turns) are not sent.
    pub expected_tokens: u64,
}

impl CacheUse {
    /// Returns the expected tokens that were not read from the cache. A provider that caches in blocks leaves out up to one of them, and
    /// most providers cache nothing of short requests.
    #[must_use]
    pub fn lost_tokens(&self) -> u64 {
        self.expected_tokens.saturating_sub(self.cached_tokens)
    }
}
