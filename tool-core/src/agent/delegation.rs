//! The connection between a call that asks an agent and the driver of the run that the call belongs to.
//!
//! The call drives the inner run, and the outer driver owns the state of which it is a part. Before each step with effects, the
//! inner driver sends its state, and continues once the outer state is stored.

use std::sync::Mutex;
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_util::SinkExt;

use super::emitter::EventEmitter;
use super::executor::Gate;
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
    /// Lets exclusive calls of the inner run run alone.
    pub(super) gate: Gate,
    pub(super) emitter: EventEmitter,
    pub(super) states: mpsc::Sender<InnerState>,
    /// The run that the call continues.
    pub(super) continued: Mutex<Option<Run>>,
    /// The reason why the call has no outcome, if it is suspended.
    pub(super) suspended: Mutex<Option<RunErrorKind>>,
}

/// The state of an inner run, to be stored as a part of the outer one.
pub(super) struct InnerState {
    pub(super) run: Box<InnerRun>,
    pub(super) stored: oneshot::Sender<()>,
}

pub(super) type InnerStates = mpsc::Receiver<InnerState>;

impl Delegation {
    /// Makes the state of the inner run part of the outer one, and waits until that is stored.
    pub(super) async fn store(&self, run: &Run, has_own_limits: bool) -> Result<(), RunErrorKind> {
        let ToolCall { id, name, .. } = &self.call;
        let run = InnerRun::new(id.clone(), name.clone(), has_own_limits, run.clone());
        let (stored, is_stored) = oneshot::channel();
        let state = InnerState { run: Box::new(run), stored };
        // Fails only for a call that outlives its driver, which another process may have replaced.
        self.states.clone().send(state).await.map_err(|_| RunErrorKind::Conflict)?;
        is_stored.await.map_err(|_| RunErrorKind::Conflict)
    }
}
