//! How far a step of a run is, and what it needs before it goes on.
//!
//! A step is divided into phases, between which the run is saved, because only the outermost driver has a store, and into jobs, which are
//! awaited without the run: nothing of a run inside holds it while it waits.

use std::sync::Arc;

use super::hold::Hold;
use super::job::Job;
use super::round::{PendingDecision, Round};
use crate::agent::spending::RequestMeter;
use crate::model::{ChatResponse, ToolCall};

/// How far a step is. Between two phases, the run is saved.
pub(super) enum StepPhase {
    /// Nothing of it has happened.
    Beginning,
    /// Layers and deciders are asked, once what is queued is emitted.
    Preparing(Round),
    /// A decider is asked.
    Deciding(Box<PendingDecision>),
    /// It is known what to do.
    Prepared,
    /// The model request can be sent, once what is queued is emitted; `meter` counts its tokens.
    Priced { meter: Option<Arc<RequestMeter>>, is_compacted: bool },
    /// The answer of a run inside is saved.
    Answered,
}

/// What a driver has done, or needs before it goes on.
pub(super) enum Work {
    /// The run has to be saved if it has changed, before the step continues with this phase.
    Save(StepPhase),
    /// Something is to be awaited.
    Job(Job<Work>),
    /// Persons are to be awaited, whose time does not count.
    Persons(Job<Work>),
    /// The commands in the inbox are to be taken, before the step continues with this phase.
    Posted(StepPhase),
    /// It is known what to do. The run has to be saved first, unless calls are to be executed, whose start is saved.
    Prepared,
    /// The model has replied, which is to be recorded.
    Replied(Box<(ChatResponse, Hold)>),
    /// The reply is recorded, or there is none.
    Asked,
    /// These calls are to be executed.
    Calls(Vec<ToolCall>),
    /// Nothing can be done before somebody decides, or time passes.
    Waiting,
    /// Nothing is left to do.
    Done,
}
