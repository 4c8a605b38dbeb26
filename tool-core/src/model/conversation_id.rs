//! The id of a conversation.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The id of a conversation. Tools can have it injected with `#[inject] id: &ConversationId`.
///
/// ```
/// use tool_core::model::ConversationId;
///
/// let id = ConversationId::new("user-7/support");
/// assert_eq!(id.as_str(), "user-7/support");
/// assert_eq!(ConversationId::from(7), ConversationId::new("7"));
/// assert_ne!(ConversationId::unique(), ConversationId::unique());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ConversationId(Arc<str>);

impl ConversationId {
    /// Creates a unique id of 128 random bits.
    #[must_use]
    pub fn unique() -> Self {
        Self::from(unique_id("conversation"))
    }

    /// Returns the id of the conversation that an agent has [of its own](crate::agent::AgentTool::own_conversation) when it is
    /// called by the tool of this name in this conversation.
    ///
    /// It begins with the control character U+001F, which begins no id of an application, so it is no other conversation's. An
    /// application whose users choose ids must refuse those that contain control characters.
    ///
    /// ```
    /// use tool_core::model::ConversationId;
    ///
    /// let id = ConversationId::new("alice");
    /// assert_eq!(id.of_agent("billing").as_str(), "\u{1f}billing/alice");
    /// assert_ne!(id.of_agent("billing"), ConversationId::new("alice/billing"));
    /// ```
    #[must_use]
    pub fn of_agent(&self, tool: &str) -> Self {
        // Names of tools contain no `/`, so the outer id begins after the first one.
        Self::from(format!("\u{1f}{tool}/{self}"))
    }

    /// Returns the id of the conversation in which the outermost agent was asked, which is this one unless it is [of an
    /// agent](Self::of_agent).
    pub(crate) fn outermost(&self) -> Self {
        let mut id = self.as_str();
        while let Some((_, outer)) = id.strip_prefix('\u{1f}').and_then(|of_agent| of_agent.split_once('/')) {
            id = outer;
        }
        Self::from(id)
    }
}

/// Returns an id of 128 random bits behind a prefix.
pub(crate) fn unique_id(prefix: &str) -> String {
    // Each `RandomState` has its own keys, and the first keys are random.
    let bits = || RandomState::new().hash_one(std::process::id());
    format!("{prefix}_{:016x}{:016x}", bits(), bits())
}

/// Implements the conversions of an id from and into a text, and its forms as one.
macro_rules! impl_id {
    ($id:ident) => {
        impl $id {
            /// Returns the id as a string slice.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $id {
            fn from(id: String) -> Self {
                Self(id.into())
            }
        }

        impl From<$id> for String {
            fn from(id: $id) -> Self {
                id.as_str().into()
            }
        }

        impl std::ops::Deref for $id {
            type Target = str;

            fn deref(&self) -> &str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $id {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::fmt::Debug for $id {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($id)).field(&self.as_str()).finish()
            }
        }
    };
}

pub(crate) use impl_id;

/// Implements the conversion of what applications have, texts and keys of a database, into an id.
macro_rules! impl_from_application {
    ($id:ident: $($number:ty)*) => {
        impl $id {
            /// Creates an id from the application's own identifier.
            #[must_use]
            pub fn new(id: impl Into<String>) -> Self {
                Self::from(id.into())
            }
        }

        impl From<&str> for $id {
            fn from(id: &str) -> Self {
                Self(id.into())
            }
        }

        impl From<&String> for $id {
            fn from(id: &String) -> Self {
                Self::from(id.as_str())
            }
        }

        impl From<&$id> for $id {
            fn from(id: &$id) -> Self {
                id.clone()
            }
        }

        $(impl From<$number> for $id {
            fn from(id: $number) -> Self {
                Self::from(id.to_string())
            }
        })*
    };
}

pub(crate) use impl_from_application;

impl_id!(ConversationId);
impl_from_application!(ConversationId: i32 i64 u32 u64);
