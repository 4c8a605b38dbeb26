//! The place of a run inside another.

use std::sync::Arc;

use crate::agent::delegation::Delegation;
use crate::agent::layers::Layers;

/// The place of a run that belongs to a call of another run, whose state contains it; or to a call that belongs to none.
pub(in crate::agent) struct Inside {
    pub(in crate::agent) delegation: Option<Arc<Delegation>>,
    /// The layers around the outer run, and the name of the call.
    pub(in crate::agent) layers: Option<(Arc<Layers>, String)>,
    pub(in crate::agent) has_own_limits: bool,
    /// The run reads and continues a conversation in the agent's memory.
    pub(in crate::agent) has_conversation: bool,
}
