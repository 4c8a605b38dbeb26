//! The connection between a call that asks an agent and the driver of the run that the call belongs to.
//!
//! The call drives the inner run, and the outer driver owns the state of which it is a part. Before each step with effects, the
//! inner driver sends its state, and continues once the outer state is stored.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_util::SinkExt;

use super::emitter::EventEmitter;
use crate::model::ToolCall;
use crate::run::{InnerRun, Run, RunErrorKind};

/// The connection of one call to the driver of its run.
pub(super) struct Delegation {
    pub(super) call: ToolCall,
    /// The call undoes those of the run that it asked.
    pub(super) is_undo: bool,
    /// The number of levels of agents that are allowed, with that of this call.
    pub(super) levels: u32,
    /// The time limit of the call, which is one of the inner run.
    pub(super) timeout: Option<Duration>,
    pub(super) emitter: EventEmitter,
    states: mpsc::Sender<InnerState>,
    /// The run that the call continues.
    continued: Mutex<Option<Run>>,
    suspended: Mutex<Option<RunErrorKind>>,
}

/// The state of an inner run, to be stored as a part of the outer one.
pub(super) struct InnerState {
    pub(super) call_id: String,
    pub(super) run: Box<InnerRun>,
    pub(super) stored: oneshot::Sender<()>,
}

/// The states of the inner runs of a turn.
pub(super) type InnerStates = mpsc::Receiver<InnerState>;

impl Delegation {
    pub(super) fn channel() -> (mpsc::Sender<InnerState>, InnerStates) {
        mpsc::channel(0)
    }

    pub(super) fn new(
        call: ToolCall,
        states: mpsc::Sender<InnerState>,
        emitter: EventEmitter,
        continued: Option<Run>,
    ) -> Self {
        Self {
            call,
            is_undo: false,
            levels: 0,
            timeout: None,
            emitter,
            states,
            continued: Mutex::new(continued),
            suspended: Mutex::new(None),
        }
    }

    /// Takes the run that the call continues; `None` if it starts a new one.
    pub(super) fn take_continued(&self) -> Option<Run> {
        lock(&self.continued).take()
    }

    pub(super) fn continues(&self) -> bool {
        lock(&self.continued).is_some()
    }

    /// Makes the state of the inner run part of the outer one, and waits until that is stored.
    pub(super) async fn store(&self, run: &Run, has_own_limits: bool) -> Result<(), RunErrorKind> {
        let ToolCall { id, name, .. } = &self.call;
        let run = InnerRun::new(id.clone(), name.clone(), has_own_limits, run.clone());
        let (stored, is_stored) = oneshot::channel();
        let state = InnerState { call_id: id.clone(), run: Box::new(run), stored };
        // Fails only for a call that outlives its driver, which another process may have replaced.
        self.states.clone().send(state).await.map_err(|_| RunErrorKind::Conflict)?;
        is_stored.await.map_err(|_| RunErrorKind::Conflict)
    }

    /// Suspends the call: the inner run cannot continue now.
    pub(super) fn suspend(&self, why: RunErrorKind) {
        *lock(&self.suspended) = Some(why);
    }

    /// Returns the reason why the call has no outcome, if it is suspended.
    pub(super) fn take_suspended(&self) -> Option<RunErrorKind> {
        lock(&self.suspended).take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock only means that a thread panicked; the values are intact.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
