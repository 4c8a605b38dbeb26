//! The attempt that a call is executed under: its key, its number, and the call that it undoes.

use std::fmt;
use std::sync::Arc;

use crate::model::{ToolCall, unique_id};
use crate::tool::ToolOutput;

/// What a call is made under: [`Run::begin_call`] gives it. A tool has the key injected, as `#[inject] key: &IdempotencyKey`, and
/// the number from its context, by [`ToolContext::attempt`](crate::ToolContext::attempt).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// Stays the same however often the call is made.
    pub key: IdempotencyKey,
    /// Which attempt it is, from 1.
    pub number: u32,
}

impl Attempt {
    /// The first attempt of a call that is of no run: no other call has its key.
    #[must_use]
    pub fn alone(call_id: &str) -> Self {
        Self { key: IdempotencyKey::unique(call_id), number: 1 }
    }
}

/// What tells one call from every other, however often it is made: over further attempts, and when the run was kept
/// and restored. A tool that hands it to the service behind it has its effect once.
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
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    pub(crate) fn new(run: &str, call_id: &str) -> Self {
        Self(format!("{run}/{call_id}").into())
    }

    /// The key of a call that is of no run.
    pub(crate) fn unique(call_id: &str) -> Self {
        Self::new(&unique_id("run"), call_id)
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

/// The call that a tool is asked to undo. A tool that undoes another takes it with `#[inject] undone: &Undone`; its own
/// arguments are those of that call, of which it may take some or none: what it requires must be among them. What that call gave
/// back, such as the number of a booking, is in the [`output`](Self::output) and in no argument.
///
/// ```
/// use tool_core::tool::Undone;
/// use tool_core::tool;
///
/// /// Books a room, and gives the number of the booking.
/// #[tool(undo = "cancel_room")]
/// async fn book_room(city: String, nights: u32) -> String {
///     format!("{city}-{nights}")
/// }
///
/// #[tool]
/// async fn cancel_room(#[inject] undone: &Undone) -> Result<String, String> {
///     let booking = undone.output.as_ref().ok_or("whether there is a booking is not known")?;
///     Ok(format!("DELETE /bookings/{booking}"))
/// }
/// # let _ = (book_room, cancel_room);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Undone {
    /// The call.
    pub call: ToolCall,
    /// What it gave back; nothing if the call was interrupted, took too long or panicked, so that nobody knows whether it had
    /// its effect.
    pub output: Option<ToolOutput>,
}
