//! What can go wrong where calls are texts.

use std::error::Error;
use std::fmt;

/// Why a model that is [prompted with tools](crate::PromptedTools) gave no reply that can be used, though it was asked
/// again. It is inside of a [`ModelError`](crate::ModelError).
///
/// ```
/// use tool_core::{ModelError, PromptedToolsError};
///
/// /// What a model wrote in the place of a call that can be read.
/// fn reply(error: &ModelError) -> Option<&str> {
///     error.downcast_ref::<PromptedToolsError>().map(PromptedToolsError::reply)
/// }
/// ```
pub struct PromptedToolsError {
    kind: Kind,
    reply: String,
    times: u32,
}

pub(super) enum Kind {
    /// A call cannot be read: why.
    Unreadable(String),
    /// There is no call where one is required: of which tool.
    Missing(Option<String>),
}

impl PromptedToolsError {
    #[cold]
    pub(super) fn new(kind: Kind, reply: String, times: u32) -> Self {
        Self { kind, reply, times }
    }

    /// The model wrote something that was meant as a call, and that cannot be read.
    #[must_use]
    pub fn is_unreadable_call(&self) -> bool {
        matches!(self.kind, Kind::Unreadable(_))
    }

    /// The model wrote no call, though the [`ToolChoice`](crate::ToolChoice) asks for one.
    #[must_use]
    pub fn is_missing_call(&self) -> bool {
        matches!(self.kind, Kind::Missing(_))
    }

    /// The model's last reply, as it wrote it.
    #[must_use]
    pub fn reply(&self) -> &str {
        &self.reply
    }
}

impl fmt::Display for PromptedToolsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Unreadable(why) => write!(f, "the call that the model wrote cannot be read: {why}")?,
            Kind::Missing(None) => f.write_str("the model wrote no call, though one is required")?,
            Kind::Missing(Some(name)) => {
                write!(f, "the model wrote no call of `{name}`, though one is required")?;
            }
        }
        match self.times {
            0 | 1 => f.write_str("; `max_corrections` lets it be asked again"),
            times => write!(
                f,
                "; it was asked {times} times, `max_corrections` lets it be asked more often, and another model may do better"
            ),
        }
    }
}

/// Leaves out what the model wrote: conversations are private.
impl fmt::Debug for PromptedToolsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptedToolsError")
            .field("reason", &format_args!("{self}"))
            .field("reply", &format_args!("{} bytes", self.reply.len()))
            .finish()
    }
}

impl Error for PromptedToolsError {}
