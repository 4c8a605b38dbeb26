//! The place of a run inside another.

use std::sync::Arc;

use crate::agent::gate::Gate;
use crate::agent::layers::Layers;
use crate::agent::memo::{CallMemo, MemoSender};
use crate::model::ToolCall;
use crate::run::{InnerRun, Run, RunErrorKind};

/// The place of a run that belongs to a call: of another run, whose state contains it, or of none.
pub(in crate::agent) struct Inside {
    pub(in crate::agent) outer: Option<OuterRun>,
    /// The layers around the outer run, and the name of the call.
    pub(in crate::agent) layers: Option<(Arc<Layers>, String)>,
    pub(in crate::agent) has_own_limits: bool,
    /// The run reads and continues a conversation in the agent's memory.
    pub(in crate::agent) has_conversation: bool,
}

/// The run around a run.
pub(in crate::agent) struct OuterRun {
    /// The call that asks the agent.
    pub(super) call: ToolCall,
    /// The number of levels of agents that are allowed inside.
    pub(super) levels: u32,
    /// Lets exclusive calls of the inner run run alone.
    pub(super) gate: Gate,
    /// Nothing, if the driver of the outer run takes the state itself.
    pub(super) memos: Option<MemoSender>,
}

impl OuterRun {
    /// Makes the state of the inner run part of the outer one, and waits until that is stored.
    pub(super) async fn store(&self, run: &mut Run, has_own_limits: bool) -> Result<(), RunErrorKind> {
        let Some(memos) = self.memos.clone() else { return Ok(()) };
        let memo = if run.is_recording() {
            CallMemo::Changes(self.call.id.clone(), Box::new(run.take_changes()))
        } else {
            let inner = InnerRun::new(&self.call, has_own_limits, run.clone());
            run.record_changes(0);
            CallMemo::Inner(Box::new(inner))
        };
        memos.store(memo).await
    }
}
