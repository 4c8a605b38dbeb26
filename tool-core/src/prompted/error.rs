//! The error of a model with prompted tools.

use std::error::Error;
use std::fmt;

/// The error of a model with [prompted tools](crate::PromptedTools) whose replies remained unusable after all
/// corrections. It is wrapped in a [`ModelError`](crate::model::ModelError).
///
/// ```
/// use tool_core::model::ModelError;
/// use tool_core::signatures::PromptedToolsError;
///
/// /// Returns the reply that could not be used.
/// fn reply(error: &ModelError) -> Option<&str> {
///     error.downcast_ref::<PromptedToolsError>().map(PromptedToolsError::reply)
/// }
/// ```
pub struct PromptedToolsError {
    kind: PromptedToolsErrorKind,
    problem: String,
    reply: String,
    requests: u32,
}

/// The kind of a [`PromptedToolsError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PromptedToolsErrorKind {
    /// The model wrote a call that cannot be parsed.
    MalformedCall,
    /// The model wrote no call, although the [`ToolChoice`](crate::model::ToolChoice) requires one.
    MissingCall,
}

impl PromptedToolsError {
    #[cold]
    pub(super) fn new(kind: PromptedToolsErrorKind, problem: String, reply: String, requests: u32) -> Self {
        Self { kind, problem, reply, requests }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> PromptedToolsErrorKind {
        self.kind
    }

    /// Returns the model's last reply, unchanged.
    #[must_use]
    pub fn reply(&self) -> &str {
        &self.reply
    }
}

impl fmt::Display for PromptedToolsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.problem)?;
        match self.requests {
            0 | 1 => f.write_str("; allow corrections with `max_corrections`"),
            sent => {
                write!(f, " (gave up after {sent} requests); raise `max_corrections` or use another model")
            }
        }
    }
}

/// Omits the reply, as conversations are private.
impl fmt::Debug for PromptedToolsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptedToolsError")
            .field("reason", &format_args!("{self}"))
            .field("reply", &format_args!("{} bytes", self.reply.len()))
            .finish()
    }
}

impl Error for PromptedToolsError {}
