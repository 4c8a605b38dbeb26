//! The questions to the deciders of a run that waits.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::agent::decider::Deciders;
use crate::run::{Decision, Wait};
use crate::tool::WaitId;

/// One round of questions to the deciders, about everything that a run waits for.
#[derive(Default)]
pub(super) struct Round {
    pub(super) asked: Vec<WaitId>,
    /// What was left to people.
    pub(super) deferred: Vec<WaitId>,
    pub(super) has_decided: bool,
    /// Deciders that have not answered until then are asked another time.
    pub(super) until: Option<Instant>,
}

/// What a run waits for, and who is asked about it.
pub(super) struct Questions {
    pub(super) waits: std::vec::IntoIter<(Wait, usize)>,
    pub(super) deciders: Arc<Deciders>,
    pub(super) round: Round,
}

/// A decider that is asked.
pub(super) struct PendingDecision {
    pub(super) wait: Wait,
    pub(super) decision: BoxFuture<'static, Decision>,
    pub(super) others: Questions,
}
