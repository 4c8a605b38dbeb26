//! The parts of a request that the provider can store, and the points behind them.
//!
//! Cache points are written between the bytes of cached messages and are not part of them, because they move with each turn.

use sha2::{Digest, Sha256};
use tool_core::Message;
use tool_http::client::{BodyWriter, Error};

use super::content;
use super::messages::{MessageCache, Point};
use super::tools::{EncodedTools, push_element};
use crate::options::MessagesOptions;

/// The shortest start of a request that any model's cache stores, in bytes. The smallest minimum is 512 tokens.
const MIN_CACHED_BYTES: usize = 2048;

/// The number of blocks before a cache point among which the provider looks for an earlier one.
const LOOKBACK_BLOCKS: usize = 20;

/// What precedes the messages.
pub(super) struct Prefix {
    pub(super) point: Option<&'static str>,
    pub(super) bytes: usize,
    pub(super) digest: Sha256,
}

impl Prefix {
    /// Returns the array of tools, whose last one that is not deferred is a cache point.
    pub(super) fn tools(
        &mut self,
        options: &MessagesOptions,
        tools: &EncodedTools,
    ) -> Result<Option<String>, Error> {
        let violation = options.hosted_tools.iter().find_map(|tool| tool.find_violation());
        if let Some(violation) = violation {
            return Err(Error::request(violation));
        }
        let mut list = String::with_capacity(tools.offered.len() + tools.deferred.len() + 256);
        for tool in &options.hosted_tools {
            push_element(&mut list, &tool.to_json());
        }
        push_element(&mut list, &tools.offered);
        // Deferred tools are not part of what the model reads.
        self.digest.update(&list);
        self.mark(&mut list);
        push_element(&mut list, &tools.deferred);
        Ok((!list.is_empty()).then(|| format!("[{list}]")))
    }

    /// Returns the system prompt, whose last block is a cache point.
    pub(super) fn system(&mut self, messages: &[Message]) -> Result<Option<String>, Error> {
        let mut list = String::new();
        for message in messages {
            let Message::System(content) = message else { continue };
            push_element(&mut list, &content::system_block(content)?.unwrap_or_default());
        }
        self.digest.update([0]);
        self.digest.update(&list);
        self.mark(&mut list);
        Ok((!list.is_empty()).then(|| format!("[{list}]")))
    }

    /// Makes the last element of a list a cache point if enough precedes it.
    fn mark(&mut self, list: &mut String) {
        self.bytes += list.len();
        if let Some(member) = self.point.filter(|_| self.bytes >= MIN_CACHED_BYTES && !list.is_empty()) {
            list.insert_str(list.len() - 1, member);
        }
    }
}

/// Appends the messages. Cache points are behind the last message, and behind the previous request's last one if there are too many blocks
/// in between for the provider to find it.
pub(super) fn with_messages(
    mut body: BodyWriter,
    messages: &MessageCache,
    point: Option<&str>,
    prefix_bytes: usize,
) -> BodyWriter {
    let mut written = 0;
    let is_long = |point: &&Point| prefix_bytes + point.position >= MIN_CACHED_BYTES;
    let last = messages.state.points.last().filter(is_long);
    let previous = messages.state.points.iter().rev().nth(1).filter(is_long);
    let is_far = |previous: &&Point| last.is_some_and(|last| last.blocks - previous.blocks > LOOKBACK_BLOCKS);
    for at in [previous.filter(is_far), last].into_iter().flatten() {
        let Some(member) = point else { continue };
        body.append_range(&messages.json, written..at.position);
        body.json().extend_from_slice(member.as_bytes());
        written = at.position;
    }
    body.append_range(&messages.json, written..usize::MAX);
    body
}
