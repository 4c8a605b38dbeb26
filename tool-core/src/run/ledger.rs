//! What the model requests of a run, and of the agents that it asks, may cost and have cost.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::{Cost, Currency, Usage};
use crate::run::{Run, StopReason};

/// What a run and the runs inside of it have spent. What is reserved counts as spent until it is settled.
#[derive(Debug)]
pub(crate) struct Ledger {
    limit: Option<Cost>,
    spent: Mutex<Option<Cost>>,
}

/// Why nothing was reserved.
#[derive(Debug)]
pub(crate) enum LedgerError {
    TooLittleLeft,
    OtherCurrency(Cost),
}

impl Ledger {
    pub(crate) fn new(limit: Option<Cost>, spent: Option<Cost>) -> Self {
        Self { limit, spent: Mutex::new(spent) }
    }

    pub(crate) fn limit(&self) -> Option<Cost> {
        self.limit
    }

    /// Returns what was spent, in this currency.
    pub(crate) fn total(&self, currency: Currency) -> Cost {
        self.spent().unwrap_or(Cost::new(0, currency))
    }

    /// Returns what is left, in millionths.
    pub(crate) fn left(&self) -> u64 {
        let spent = *self.spent();
        self.limit.map_or(u64::MAX, |limit| self.left_after(spent.unwrap_or(Cost::new(0, limit.currency()))))
    }

    fn left_after(&self, spent: Cost) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.micros().saturating_sub(spent.micros()))
    }

    /// Reserves as much as possible of an amount, but at least another one of the same currency. Returns what was reserved.
    pub(crate) fn reserve(&self, at_least: Cost, at_most: Cost) -> Result<Cost, LedgerError> {
        let mut spent = self.spent();
        let so_far = spent.unwrap_or(Cost::new(0, at_most.currency()));
        let other =
            [self.limit, *spent].into_iter().flatten().find(|other| other.currency() != at_most.currency());
        if let Some(other) = other {
            return Err(LedgerError::OtherCurrency(other));
        }
        let left = self.left_after(so_far);
        if left < at_least.micros() {
            return Err(LedgerError::TooLittleLeft);
        }
        let granted = Cost::new(at_most.micros().min(left), at_most.currency());
        *spent = Cost::sum(Some(so_far), Some(granted));
        Ok(granted)
    }

    /// Replaces a reserved amount by what was spent of it.
    pub(crate) fn settle(&self, reserved: Cost, actual: Cost) {
        let mut spent = self.spent();
        let so_far = spent.unwrap_or(Cost::new(0, actual.currency()));
        let without = so_far.micros().saturating_sub(reserved.micros());
        *spent = Some(Cost::new(without.saturating_add(actual.micros()), so_far.currency()));
    }

    /// Adds what was spent without a reservation.
    pub(crate) fn charge(&self, cost: Option<Cost>) {
        let mut spent = self.spent();
        *spent = Cost::sum(*spent, cost);
    }

    fn spent(&self) -> MutexGuard<'_, Option<Cost>> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds parts to those of the same names.
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

    /// Adds what a request without a response has cost, or may have.
    pub(crate) fn add_cost(&mut self, cost: Option<Cost>) {
        self.add_usage(Usage { cost, ..Usage::default() });
    }

    /// Adds the usage of a response that is not recorded.
    pub(crate) fn add_usage(&mut self, usage: Usage) {
        self.cost_in_flight = None;
        self.usage += usage;
        if let Some(handoff) = self.handoffs.last_mut() {
            handoff.usage += usage;
        }
    }

    /// Sets what the next request can cost, which counts as spent until its response is recorded.
    pub(crate) fn begin_request(&mut self, cost: Option<Cost>) {
        // Nobody knows what came of an earlier request.
        self.add_cost(self.cost_in_flight);
        self.cost_in_flight = cost;
    }

    /// Stops the run before a request for which too little is left.
    pub(crate) fn stop_at_limit(&mut self, reason: StopReason) {
        self.stop(reason);
    }

    /// Returns what the own requests of [layers](crate::layer::Layer) used, by the names of the layers, with those in the runs of the
    /// [agents](Self::inner_runs) that its calls asked. Layers [report](crate::layer::Account) it.
    #[must_use]
    pub fn usage_by_layer(&self) -> Vec<(String, Usage)> {
        let mut parts = self.layer_usage.clone();
        self.inner_runs().for_each(|inner| add_parts(&mut parts, inner.run().usage_by_layer()));
        parts
    }

    /// Adds what the own requests of layers used.
    pub(crate) fn add_layer_usage(&mut self, charges: Vec<(String, Usage)>) {
        add_parts(&mut self.layer_usage, charges);
    }

    /// Returns the tokens of this run and of layers around it, with what the request in flight can cost.
    pub(super) fn usage_without_inner_runs(&self) -> Usage {
        let mut usage = self.usage;
        self.layer_usage.iter().for_each(|(_, used)| usage += *used);
        usage.cost = Cost::sum(usage.cost, self.cost_in_flight);
        usage
    }
}
