//! The attempt that a call is executed as: its key, its number, and the call that it undoes.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::model::{ToolCall, impl_id, unique_id};
use crate::tool::{ToolOutput, write_output};

/// An attempt to execute a call. A run returns it when the call is started.
///
/// A tool can inject the key, as `#[inject] key: &IdempotencyKey`, and read the number with
/// [`ToolContext::attempt`](crate::ToolContext::attempt).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// The key, which is the same for all attempts of the call.
    pub key: IdempotencyKey,
    /// The number of the attempt, starting at 1.
    pub number: u32,
    /// The attempt continues after the call has waited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_continued: bool,
    /// The arguments of the call were checked for the layers of its run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_checked_arguments: bool,
}

impl Attempt {
    /// Creates the first attempt of a call that does not belong to a run. Its key is unique.
    #[must_use]
    pub fn standalone(call_id: &str) -> Self {
        Self::new(IdempotencyKey::new(&unique_id("run"), call_id), 1)
    }

    pub(crate) fn new(key: IdempotencyKey, number: u32) -> Self {
        Self { key, number, is_continued: false, has_checked_arguments: false }
    }
}

/// A key that identifies a call across all its attempts, and when a stored run is restored.
///
/// A tool that passes it on to the service that it calls takes effect only once. As text, it is the id of the run, a `/`, and the id of the
/// call or its digest: printable ASCII characters without spaces, so that it can be sent in a header.
///
/// ```
/// use tool_core::tool::IdempotencyKey;
/// use tool_core::tool;
///
/// #[tool("Charges the customer's card")]
/// fn charge(cents: u32, #[inject] key: &IdempotencyKey) -> String {
///     format!("POST /charges, Idempotency-Key: {key}, {cents} cents")
/// }
/// # let _ = charge;
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct IdempotencyKey(Arc<str>);

/// The length of the longest call id that is part of a key.
const MAX_ID: usize = 64;

impl IdempotencyKey {
    /// Creates the key of a call. A model can write any id, so one that is long or not printable is replaced by its digest. No id
    /// contains a `/`, so the digest is not the key of another call.
    pub(crate) fn new(run: &str, call_id: &str) -> Self {
        Self([run, "/", &bounded_id(call_id)].concat().into())
    }

    /// Returns the key of one of several effects of the call. Steps with different names have different keys.
    ///
    /// ```
    /// use tool_core::tool::Attempt;
    ///
    /// let key = Attempt::standalone("call_1").key;
    /// assert_eq!(key.step("reserve").as_str(), format!("{key}/step/reserve"));
    /// ```
    #[must_use]
    pub fn step(&self, name: &str) -> Self {
        // No id contains a `/`, so this is the key of no call.
        Self([&self.0, "/step/", &bounded_id(name)].concat().into())
    }
}

/// Returns an id that is short and printable, or its digest.
fn bounded_id(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_ID && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return id.into();
    }
    let digest: String = Sha256::digest(id).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256/{digest}").into()
}

impl_id!(IdempotencyKey);

/// The call that a tool is to undo. A tool that undoes another takes it with `#[inject] undone: &CallToUndo`.
///
/// The tool is called with the arguments of that call and can take any subset of them; all that it requires must be among
/// them. The result of that call, such as the number of a booking, is in the [`output`](Self::output).
///
/// ```
/// use tool_core::tool::CallToUndo;
/// use tool_core::tool;
///
/// /// Books a room and returns the number of the booking.
/// #[tool(undo = "cancel_room")]
/// async fn book_room(city: String, nights: u32) -> String {
///     format!("{city}-{nights}")
/// }
///
/// #[tool]
/// async fn cancel_room(#[inject] undone: &CallToUndo) -> Result<String, String> {
///     let booking = undone.output.as_ref().ok_or("it is unknown whether there is a booking")?;
///     Ok(format!("DELETE /bookings/{booking}"))
/// }
/// # let _ = (book_room, cancel_room);
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallToUndo {
    /// The call.
    pub call: ToolCall,
    /// The idempotency key under which the call was executed, for a service that finds what was done by it.
    pub key: IdempotencyKey,
    /// The output of the call before layers, or `None` if it was interrupted, timed out or panicked, so that it is unknown whether it
    /// took effect.
    #[serde(default, serialize_with = "write_output", skip_serializing_if = "Option::is_none")]
    pub output: Option<ToolOutput>,
}
