//! What happened to a call, for layers that write it down.

use crate::tool::{CallDecision, ToolExecution};

/// What happened to a call of a run. [`Layer::record`](super::Layer::record) receives it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RecordedCall<'a> {
    /// Something was decided about a call that waited.
    Decided(&'a CallDecision),
    /// Somebody wanted to decide who [may not](crate::agent::RunSetup::may_decide). The call goes on waiting.
    Refused(&'a CallDecision),
    /// The call has its outcome, as the model reads it.
    Finished(&'a ToolExecution),
}
