//! The place of a run inside another.

use std::sync::Arc;

use crate::agent::call_rules::CallRules;
use crate::agent::delegation::Delegation;

/// The place of a run that belongs to a call of another run, whose state contains it; or to a call that belongs to none.
pub(in crate::agent) struct Inside {
    pub(in crate::agent) delegation: Option<Arc<Delegation>>,
    /// The rules of the outer run, and the name of the call.
    pub(in crate::agent) rules: Option<(Arc<CallRules>, String)>,
    pub(in crate::agent) has_own_limits: bool,
    /// The run reads and continues a conversation in the agent's memory.
    pub(in crate::agent) has_conversation: bool,
}
