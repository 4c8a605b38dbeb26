//! Encodes the messages of a request.
//!
//! Thinking is bound to all that the model read before it: the provider, the model, the system prompt, the tools and the messages.
//! Each reply is stored with a digest of that. If the digest of what is sent now is another one, the thinking of that reply and of all
//! before it is left out. This one rule covers windows that slide, instructions and tools that change, edits, and other models.
//!
//! A summary of the provider has two digests: if what preceded the summarized messages is the same now, what follows is read as if these were
//! there, which is how the API checks the thinking behind it.
//!
//! The blocks of a reply are stored as they came, because signed thinking is rejected behind anything else than what the model had read.

use sha2::{Digest, Sha256};
use tool_core::Message;
use tool_core::model::ToolMessage;
use tool_http::client::json::string;
use tool_http::client::{AppendBuffer, Error};

use super::assistant::{self, ReplyBlocks, Summary, normalize_id};
use super::content::{self, ContentRules, text_block};

/// The encoded messages of the previous request, so that a turn encodes only new ones.
#[derive(Debug, Default)]
pub(super) struct MessageCache {
    /// The digest of what precedes the messages, and of all that they depend on.
    seed: Option<[u8; 32]>,
    /// The first message whose thinking the request contains.
    reasoning_start: usize,
    /// All messages as an array; the last message and the array are not closed yet.
    pub(super) json: AppendBuffer,
    pub(super) state: State,
}

/// What is known of the encoded messages.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    count: usize,
    /// The digest of what the model has read.
    digest: String,
    /// The role of the last message.
    role: Option<Role>,
    /// The last blocks of the last two user messages, the later one last.
    pub(super) points: Vec<Point>,
    blocks: usize,
    /// The calls of the last reply that have no result yet.
    pub(super) pending: Vec<String>,
    pub(super) has_reply: bool,
    /// The messages before this one are sent without thinking.
    thinking_start: usize,
    has_thinking: bool,
    /// The messages begin with a summary of the provider.
    pub(super) has_summary: bool,
    /// The last message is the results of a reply that is sent without thinking at its start.
    pub(super) lacks_thinking: bool,
    /// The container of the latest reply that used one.
    pub(super) container: Option<String>,
}

/// The end of a block that can be a cache point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// The position before the end of the block, in bytes.
    pub(super) position: usize,
    /// The number of blocks so far.
    pub(super) blocks: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    User,
    Assistant,
    /// A summary, which is a message of the assistant that is not combined with the next one.
    Summary,
}

impl MessageCache {
    /// Encodes the new messages, without the `leading` ones, which are a field of the request.
    pub(super) fn append_new(
        &mut self,
        messages: &[Message],
        (leading, reasoning_start): (usize, usize),
        seed: [u8; 32],
        provider: &str,
        rules: ContentRules,
    ) -> Result<(), Error> {
        let is_other = (self.seed, self.reasoning_start) != (Some(seed), reasoning_start);
        if is_other || messages.len() < self.state.count {
            self.reset(seed, reasoning_start);
            self.reasoning_start = reasoning_start;
        }
        let thinking_start = self.try_append(messages, leading, provider, rules)?;
        if thinking_start > self.state.thinking_start && self.state.has_thinking {
            // The digests do not depend on thinking, so there is nothing more to find.
            self.reset(seed, thinking_start);
            self.try_append(messages, leading, provider, rules)?;
        }
        Ok(())
    }

    fn reset(&mut self, seed: [u8; 32], thinking_start: usize) {
        let state = State { digest: short(&seed), thinking_start, ..State::default() };
        let reasoning_start = self.reasoning_start;
        *self = Self { seed: Some(seed), reasoning_start, json: AppendBuffer::default(), state };
    }

    /// Encodes the new messages, and returns the first message whose thinking can be sent.
    fn try_append(
        &mut self,
        messages: &[Message],
        leading: usize,
        provider: &str,
        rules: ContentRules,
    ) -> Result<usize, Error> {
        let mut state = self.state.clone();
        let mut thinking_start = state.thinking_start;
        let length = self.json.len();
        self.json.append(|json| {
            let start = length - json.len().min(length);
            let mut writer = Writer { json, start, state: &mut state };
            for (index, message) in messages.iter().enumerate().skip(writer.state.count.max(leading)) {
                let is_last = index + 1 == messages.len();
                let stale = writer.write((index, is_last), message, provider, rules)?;
                if stale {
                    thinking_start = index + 1;
                }
            }
            Ok::<_, Error>(())
        })?;
        state.count = messages.len();
        self.state = state;
        Ok(thinking_start)
    }

    /// Returns the digest of all that the model reads.
    pub(super) fn prefix(&self) -> String {
        self.state.digest.clone()
    }
}

/// Returns the short form of a digest, which is stored with replies.
pub(super) fn short(digest: &[u8]) -> String {
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

struct Writer<'a> {
    json: &'a mut Vec<u8>,
    /// The position of the start of `json` among all bytes.
    start: usize,
    state: &'a mut State,
}

impl Writer<'_> {
    /// Writes a message. Returns `true` if its thinking is of another prefix.
    fn write(
        &mut self,
        (index, is_last): (usize, bool),
        message: &Message,
        provider: &str,
        rules: ContentRules,
    ) -> Result<bool, Error> {
        if !matches!(message, Message::Tool(_)) {
            reject_pending(&self.state.pending)?;
        }
        if matches!(message, Message::System(_) | Message::User(_)) {
            self.state.lacks_thinking = false;
        }
        match message {
            // Only newer models accept system messages among the others.
            Message::System(content) => {
                content::system_block(content)?.iter().for_each(|block| self.push(Role::User, block));
            }
            Message::User(content) => {
                for block in content::blocks(content, rules)? {
                    self.push(Role::User, &block);
                }
            }
            Message::Tool(result) => self.write_result(result, rules)?,
            Message::Assistant(message) => {
                let reply = assistant::blocks(message, provider, is_last);
                let is_sent = !reply.blocks.is_empty();
                let is_stale = self.write_reply(index, reply, rules);
                self.state.has_reply = true;
                if is_sent {
                    self.state.pending = message.tool_calls.iter().map(|call| call.id.clone()).collect();
                }
                return Ok(is_stale);
            }
            other => {
                return Err(Error::request(format!(
                    "the Messages API does not support this message: {other:?}"
                )));
            }
        }
        Ok(false)
    }

    fn write_reply(&mut self, index: usize, reply: ReplyBlocks, rules: ContentRules) -> bool {
        if let Some(summary) = reply.summary {
            self.write_summary(summary, rules.reads_summaries);
            return false;
        }
        let is_stale = reply.prefix.is_some_and(|stored| stored != self.state.digest);
        if reply.container.is_some() {
            self.state.container = reply.container;
        }
        for block in &reply.blocks {
            let is_first = self.state.role != Some(Role::Assistant);
            if !block.is_thinking {
                self.push(Role::Assistant, &block.json);
            } else if !is_stale && index >= self.state.thinking_start {
                self.state.has_thinking = true;
                self.push_unhashed(Role::Assistant, &block.json);
            } else {
                continue;
            }
            if is_first {
                self.state.lacks_thinking = !block.is_thinking;
            }
        }
        is_stale
    }

    /// Writes a summary of the provider. What follows is read as if it followed the messages that are summarized.
    fn write_summary(&mut self, summary: Summary, is_read: bool) {
        let is_first = self.state.role.is_none();
        if !is_first || !is_read {
            // The API accepts it only as the first message.
            let role = if is_first { Role::User } else { Role::Assistant };
            return self.push(role, &text_block(&summary.text));
        }
        self.state.has_summary = true;
        let is_unchanged = summary.seed == self.state.digest;
        self.push(Role::Summary, &summary.json);
        if is_unchanged {
            self.state.digest = summary.prefix;
        }
    }

    fn write_result(&mut self, result: &ToolMessage, rules: ContentRules) -> Result<(), Error> {
        let Some(at) = self.state.pending.iter().position(|id| *id == result.call_id) else {
            return Err(Error::request(format!(
                "the result of `{}` does not follow its call `{}`; repair the conversation, or leave out the result",
                result.name, result.call_id
            )));
        };
        self.state.pending.remove(at);
        let mut blocks = content::blocks(&result.content, rules)?;
        // The API rejects an error without content.
        if blocks.is_empty() && result.is_error {
            blocks.push(content::text_block("the tool failed"));
        }
        let id = string(&normalize_id(&result.call_id));
        let content =
            if blocks.is_empty() { String::new() } else { format!(r#","content":[{}]"#, blocks.join(",")) };
        let is_error = if result.is_error { r#","is_error":true"# } else { "" };
        self.push(Role::User, &format!(r#"{{"type":"tool_result","tool_use_id":{id}{content}{is_error}}}"#));
        Ok(())
    }

    /// Writes a block, which is part of what later thinking is bound to. Consecutive blocks of one role form one message.
    fn push(&mut self, role: Role, json: &str) {
        // Chained, so that it goes on from the digest that is stored with a summary.
        let digest = Sha256::new().chain_update(&self.state.digest).chain_update([role as u8]);
        self.state.digest = short(&digest.chain_update(json).finalize());
        self.push_unhashed(role, json);
    }

    fn push_unhashed(&mut self, role: Role, json: &str) {
        let is_same = self.state.role == Some(role);
        if is_same {
            self.json.push(b',');
        } else {
            let start: &[u8] = if self.state.role.is_some() { b"]}," } else { b"[" };
            self.json.extend_from_slice(start);
            let name = if role == Role::User { "user" } else { "assistant" };
            self.json.extend_from_slice(format!(r#"{{"role":"{name}","content":["#).as_bytes());
        }
        self.json.extend_from_slice(json.as_bytes());
        self.state.blocks += 1;
        self.state.role = Some(role);
        if role == Role::User {
            let point = Point { position: self.start + self.json.len() - 1, blocks: self.state.blocks };
            if is_same {
                self.state.points.pop();
            } else if self.state.points.len() == 2 {
                self.state.points.remove(0);
            }
            self.state.points.push(point);
        }
    }
}

/// Rejects calls without a result, which must follow them directly.
pub(super) fn reject_pending(pending: &[String]) -> Result<(), Error> {
    match pending.first() {
        Some(id) => Err(Error::request(format!(
            "the call `{id}` has no result directly after it; repair the conversation, or leave out the call"
        ))),
        None => Ok(()),
    }
}
