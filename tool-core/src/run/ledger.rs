//! What the model requests of a run, and of the agents that it asks, may cost and have cost.
//!
//! What is reserved counts as spent, and is only ever corrected downwards, here and in `memory/budget.rs`: then a request that is dropped,
//! cut off or interrupted by a crash needs no handling of its own. Only a request that reserves all that is left of a budget can cost more,
//! because an estimate has admitted it.
//!
//! Ledgers nest: each request's is inside its run's, and the run's inside the outer run's, because an amount must be in all of them or in
//! none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::{Cost, TokensPerText, Usage};
use crate::run::Run;

/// What requests have cost that are charged to a run, and so to those that it is inside of. What is reserved counts as spent until it is
/// settled.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    limit: Option<Cost>,
    spent: Mutex<Option<Cost>>,
    outer: Option<Arc<Self>>,
}

/// Why nothing was reserved.
#[derive(Debug)]
pub(crate) enum LedgerError {
    /// Too little is left in this ledger.
    TooLittleLeft(Arc<Ledger>),
    OtherCurrency(Cost),
}

impl Ledger {
    pub(crate) fn new(limit: Option<Cost>, spent: Option<Cost>) -> Self {
        Self { limit, spent: Mutex::new(spent), outer: None }
    }

    /// Returns a ledger whose entries are in the outer one, too.
    pub(crate) fn inside(&self, outer: &Arc<Self>) -> Self {
        Self { limit: self.limit, spent: Mutex::new(self.spent()), outer: Some(Arc::clone(outer)) }
    }

    /// Returns a ledger with the same entries and another limit.
    pub(crate) fn with_limit(&self, limit: Option<Cost>) -> Self {
        Self { limit, spent: Mutex::new(self.spent()), outer: self.outer.clone() }
    }

    pub(crate) fn limit(&self) -> Option<Cost> {
        self.limit
    }

    pub(crate) fn spent(&self) -> Option<Cost> {
        *self.lock()
    }

    pub(crate) fn is_outermost(&self) -> bool {
        self.outer.is_none()
    }

    /// Returns what all limits leave, in millionths; `None` without a limit.
    pub(crate) fn left(&self) -> Option<u64> {
        let outer = self.outer.as_ref().and_then(|outer| outer.left());
        self.left_after(self.spent()).into_iter().chain(outer).min()
    }

    fn left_after(&self, spent: Option<Cost>) -> Option<u64> {
        self.limit.map(|limit| limit.micros().saturating_sub(spent.map_or(0, Cost::micros)))
    }

    /// Reserves as much as possible of an amount, but at least another one of the same currency. Returns what was reserved, and the
    /// ledger that left less than all of it.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        at_least: Cost,
        at_most: Cost,
    ) -> Result<(Cost, Option<Arc<Self>>), LedgerError> {
        // It stays locked meanwhile, so that either all of them have the entry or none.
        let mut spent = self.lock();
        let mut known = self.limit.into_iter().chain(*spent);
        if let Some(other) = known.find(|known| known.currency() != at_most.currency()) {
            return Err(LedgerError::OtherCurrency(other));
        }
        let left = self.left_after(*spent).unwrap_or(u64::MAX);
        if left < at_least.micros() {
            return Err(LedgerError::TooLittleLeft(Arc::clone(self)));
        }
        let own = Cost::new(at_most.micros().min(left), at_most.currency());
        let (granted, limited_by) = match &self.outer {
            Some(outer) => outer.reserve(at_least, own)?,
            None => (own, None),
        };
        *spent = Cost::sum(*spent, Some(granted));
        Ok((granted, limited_by.or_else(|| (own != at_most).then(|| Arc::clone(self)))))
    }

    /// Replaces a reserved amount by what was spent of it.
    pub(crate) fn settle(&self, reserved: Option<Cost>, actual: Option<Cost>) {
        let mut spent = self.lock();
        let others = |spent: Cost| spent.micros().saturating_sub(reserved.map_or(0, Cost::micros));
        *spent = Cost::sum(spent.map(|spent| Cost::new(others(spent), spent.currency())), actual);
        self.outer.iter().for_each(|outer| outer.settle(reserved, actual));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Cost>> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds parts to the parts of the same names.
fn add_parts(sum: &mut Vec<(String, Usage)>, parts: Vec<(String, Usage)>) {
    for (name, used) in parts {
        match sum.iter_mut().find(|(other, _)| *other == name) {
            Some((_, usage)) => *usage += used,
            None => sum.push((name, used)),
        }
    }
}

impl Run {
    /// Returns what the run has cost so far, with the runs of the [agents](Self::inner_runs) that its calls asked; `None` if no
    /// request was sent, or without [prices](crate::agent::AgentBuilder::prices). Requests that failed, were dropped or reported no
    /// usage count as the worst case.
    #[must_use]
    pub fn cost(&self) -> Option<Cost> {
        self.usage().cost
    }

    /// Returns the most tokens that requests have used for a text, if they have shown it.
    pub(crate) fn tokens_per_text(&self) -> Option<TokensPerText> {
        self.head.tokens_per_text
    }

    pub(crate) fn set_tokens_per_text(&mut self, seen: Option<TokensPerText>) {
        self.touch();
        self.head.tokens_per_text = seen;
    }

    /// Adds what a request without a response has cost, or may have.
    pub(crate) fn add_cost(&mut self, cost: Option<Cost>) {
        self.add_usage(Usage { cost, ..Usage::default() });
    }

    /// Adds the usage of a response that is not recorded.
    pub(crate) fn add_usage(&mut self, usage: Usage) {
        self.touch();
        self.head.cost_in_flight = None;
        self.head.usage += usage;
        if let Some(handoff) = self.head.handoffs.last_mut() {
            handoff.usage += usage;
        }
    }

    /// Sets what the next request can cost, which counts as spent until its response is recorded.
    pub(crate) fn begin_request(&mut self, cost: Option<Cost>) {
        self.touch();
        // Nobody knows the outcome of an earlier request.
        self.add_cost(self.head.cost_in_flight);
        self.head.cost_in_flight = cost;
    }

    /// Returns what the own requests of [layers](crate::layer::Layer) used, by the names of the layers, with those in the runs of the
    /// [agents](Self::inner_runs) that its calls asked. Layers [report](crate::layer::LayerContext::usage_reporter) it.
    #[must_use]
    pub fn usage_by_layer(&self) -> Vec<(String, Usage)> {
        let mut parts = self.head.layer_usage.clone();
        self.inner_runs().for_each(|inner| add_parts(&mut parts, inner.run().usage_by_layer()));
        parts
    }

    /// Adds what the own requests of layers used.
    pub(crate) fn add_layer_usage(&mut self, charges: Vec<(String, Usage)>) {
        self.touch();
        add_parts(&mut self.head.layer_usage, charges);
    }

    /// Returns the tokens of this run and of layers around it, with what the request in flight can cost.
    pub(super) fn usage_without_inner_runs(&self) -> Usage {
        let mut usage = self.head.usage;
        self.head.layer_usage.iter().for_each(|(_, used)| usage += *used);
        usage.cost = Cost::sum(usage.cost, self.head.cost_in_flight);
        usage
    }
}
