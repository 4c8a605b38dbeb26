//! Unique ids of runs and keys of calls.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ConversationId;

/// The unique id of a run, which the run retains when it is stored and restored.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct RunId(Arc<str>);

impl RunId {
    pub(crate) fn unique() -> Self {
        let bits = ConversationId::unique();
        let bits = bits.as_str().trim_start_matches(|c| c != '_');
        Self(format!("run{bits}").into())
    }

    /// Returns the id as a string slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for RunId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0.as_ref().into()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunId").field(&self.0).finish()
    }
}

/// What tells one call from every other, however often it is made: over further attempts, and when the run was kept
/// and restored. A tool that hands it to the service behind it has its effect once.
///
/// ```
/// use tool_core::{IdempotencyKey, tool};
///
/// #[tool("Charges the customer's card")]
/// fn charge(cents: u32, #[inject] key: &IdempotencyKey) -> String {
///     format!("POST /charges, Idempotency-Key: {key}, {cents} cents")
/// }
/// # let _ = charge;
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    pub(crate) fn new(run: &RunId, call_id: &str) -> Self {
        Self(format!("{run}/{call_id}").into())
    }

    /// The key of a call that is of no run.
    pub(crate) fn unique(call_id: &str) -> Self {
        Self::new(&RunId::unique(), call_id)
    }

    /// The key as a text: letters, digits, `_`, `/`, and what the provider's ids of calls are made of.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdempotencyKey").field(&self.0).finish()
    }
}
