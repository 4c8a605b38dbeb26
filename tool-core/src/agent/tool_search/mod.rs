//! Search for tools: the model is offered a few tools and finds the others.

mod options;
mod call_through;
mod search_tools;
mod divided;

pub(super) use self::call_through::{SentMessages, unwrap_call, wrap_calls};
pub(super) use self::divided::Divided;
pub use self::options::{IntoToolNames, ToolSearch};
pub(super) use self::options::{Mode, RESERVED_NAMES};
