//! Parses calls from a reply while it is streamed: text is emitted at once, and what can become a call is held back until it is
//! complete.
//!
//! The parser consumes single characters, so the result does not depend on how a reply is split into chunks. Held text is
//! read again only once, when it is complete, so parsing takes linear time for any input.

mod nesting;
mod calls;
mod reply;

pub(super) use self::calls::ParsedCall;
pub(super) use self::reply::ReplyParser;

#[cfg(test)]
mod tests;
