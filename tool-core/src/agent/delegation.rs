//! The connection between a call in flight and the driver of the run that the call belongs to.
//!
//! A call that asks an agent drives the inner run, and the outer driver owns the state that contains it. Before each step with
//! effects, the inner driver sends what has changed, and continues once the outer state is stored. A call that records a value sends its notes in
//! the same way.

use std::sync::Mutex;
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_util::SinkExt;

use super::emitter::EventEmitter;
use super::gate::Gate;
use super::lock::lock;
use crate::model::{ConversationId, ToolCall};
use crate::run::{InnerRun, Run, RunChanges, RunErrorKind};
use crate::tool::{CallNotes, Connection};

/// The connection of one call to the driver of its run.
pub(super) struct Delegation {
    pub(super) call: ToolCall,
    /// The call undoes the calls of the run that it started.
    pub(super) is_undo: bool,
    /// The number of levels of agents that are allowed, including this call's.
    pub(super) levels: u32,
    /// The time limit of the call, which is one of the inner run.
    pub(super) timeout: Option<Duration>,
    /// Lets exclusive calls of the inner run run alone.
    pub(super) gate: Gate,
    pub(super) emitter: EventEmitter,
    /// The conversation of the outer run.
    pub(super) conversation: Option<ConversationId>,
    /// Nothing, if the driver of the outer run takes the state itself.
    pub(super) memos: Option<MemoSender>,
    /// The run that the call continues.
    pub(super) continued: Mutex<Option<Run>>,
    /// The reason why the call has no outcome, if it is suspended.
    pub(super) suspended: Mutex<Option<RunErrorKind>>,
}

/// What a call in flight needs when it is continued, to be stored as a part of the run.
pub(super) enum CallMemo {
    /// The run of an agent at its beginning, and what then changes in it.
    Inner(Box<InnerRun>),
    Changes(String, Box<RunChanges>),
    Notes(String, CallNotes),
}

/// A memo, and whom to notify once it is stored.
pub(super) type SentMemo = (CallMemo, oneshot::Sender<()>);

pub(super) type Memos = mpsc::Receiver<SentMemo>;

/// Sends memos to the driver of the run.
#[derive(Clone)]
pub(super) struct MemoSender(pub(super) mpsc::Sender<SentMemo>);

impl MemoSender {
    /// Makes the memo part of the run, and waits until that is stored.
    pub(super) async fn store(mut self, memo: CallMemo) -> Result<(), RunErrorKind> {
        let (stored, is_stored) = oneshot::channel();
        // Fails only for a call that outlives its driver, which another process may have replaced.
        self.0.send((memo, stored)).await.map_err(|_| RunErrorKind::Conflict)?;
        is_stored.await.map_err(|_| RunErrorKind::Conflict)
    }
}

impl Connection for Delegation {
    fn is_suspended(&self) -> bool {
        lock(&self.suspended).is_some()
    }
}

impl Delegation {
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
