//! The rules of a question, which hold for the whole run.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::recovery_place::RecoveryPlace;
use crate::agent::{Decider, OnDrop};
use crate::memory::KeyedBudget;

/// The rules of a question, which hold for all agents that the run is handed off to.
#[derive(Default)]
pub(super) struct QuestionRules {
    /// Cancels the run.
    pub(super) cancellation: Option<CancellationToken>,
    /// Decide before the current agent's.
    pub(super) deciders: Vec<Arc<dyn Decider>>,
    /// Decides about what they defer.
    pub(super) last_decider: Option<Arc<dyn Decider>>,
    /// A run that has expired goes on.
    pub(super) ignores_expiry: bool,
    /// What the run has used before and its limits do not count.
    pub(super) uncounted: Uncounted,
    /// What the run is charged to.
    pub(super) budgets: Vec<KeyedBudget>,
    /// Takes precedence over that of the agent that was asked.
    pub(super) on_drop: Option<OnDrop>,
    /// Others record each step of the run, set its time, ask for decisions, and apply the policies of tools: a call keeps the tool that was
    /// offered when it was recorded. What layers have judged in an earlier step stays judged.
    pub(super) is_remote: bool,
    /// A run whose calls are all parked waits, instead of being held until they are due.
    pub(super) returns_when_parked: bool,
    /// The place of a run that a recovery continues.
    pub(super) recovery_place: Option<RecoveryPlace>,
    /// The answer is read as a value of a type.
    pub(super) has_typed_answer: bool,
    /// The question cannot be asked, so the run ends at its first step.
    pub(super) error: Option<QuestionError>,
}

/// What a run has used that its limits do not count.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Uncounted {
    #[default]
    Nothing,
    /// The time of attempts that failed.
    Time,
    /// What another question has used.
    All,
}

/// The reason why a question cannot be asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct QuestionError(pub(super) String);
