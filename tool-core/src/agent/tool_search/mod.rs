//! Search for tools: the model is offered a few tools and finds the others.
//!
//! A turn with tool search looks up calls in all tools, because every rule must hold for all; only the request has fewer or marks some. A
//! call through `call_tool` is replaced before the run sees it, because a conversation can go on without search.

mod options;
mod call_through;
mod search_tools;
mod divided;

pub(super) use self::call_through::{SentMessages, unwrap_call, wrap_calls};
pub(super) use self::divided::Divided;
pub use self::options::{IntoToolNames, ToolSearch};
pub(super) use self::options::{Mode, RESERVED_NAMES};
