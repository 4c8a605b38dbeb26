//! The place of a run inside another.

use std::sync::Arc;

use crate::agent::layers::Layers;
use crate::model::ToolCall;

/// The place of a run that belongs to a call: of another run, whose state contains it, or of none.
pub(in crate::agent) struct Inside {
    pub(super) outer: Option<OuterRun>,
    /// The layers around the outer run, and the name of the call.
    pub(super) layers: Option<(Arc<Layers>, String)>,
    pub(super) has_own_limits: bool,
    /// The run reads and continues a conversation in the agent's memory.
    pub(super) has_conversation: bool,
}

/// The run around a run.
pub(super) struct OuterRun {
    /// The call that asks the agent.
    pub(super) call: ToolCall,
    /// The number of levels of agents that are allowed inside.
    pub(super) levels: u32,
}
