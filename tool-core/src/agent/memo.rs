//! What a call in flight sends to the driver of its run, to be stored as part of the run.

use futures_channel::{mpsc, oneshot};
use futures_util::SinkExt;

use crate::run::{InnerRun, RunChanges, RunErrorKind};
use crate::tool::CallNotes;

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
