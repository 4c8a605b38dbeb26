//! Expectations about what a run has cost.

use std::ops::RangeBounds;

use tool_core::model::{Cost, Usage};

use crate::failure::CheckError;

/// Expectations about what a run has cost, with the agents that it asked. [`check`](Self::check) says whether they hold.
#[derive(Debug)]
#[must_use = "nothing is compared until `check` is called"]
pub struct CheckCost {
    usage: Usage,
    cost: Option<Cost>,
    turns: u32,
    failures: Vec<String>,
}

impl CheckCost {
    pub(crate) fn new(usage: Usage, cost: Option<Cost>, turns: u32) -> Self {
        Self { usage, cost, turns, failures: Vec::new() }
    }

    fn expect(mut self, what: &str, number: u64, is_within: bool, range: &str) -> Self {
        if !is_within {
            self.failures.push(format!("the run has {number} {what}, expected {range}"));
        }
        self
    }

    /// Expects a total number of tokens in this range, such as `..8_000`.
    pub fn tokens(self, range: impl RangeBounds<u64> + std::fmt::Debug) -> Self {
        let total = self.usage.total_tokens;
        self.expect("tokens", total, range.contains(&total), &format!("{range:?}"))
    }

    /// Expects a number of replies of the outermost model in this range.
    pub fn turns(self, range: impl RangeBounds<u32> + std::fmt::Debug) -> Self {
        let turns = self.turns;
        self.expect("turns", turns.into(), range.contains(&turns), &format!("{range:?}"))
    }

    /// Expects a cost of at most this amount. The agent needs [prices](tool_core::agent::AgentBuilder::prices).
    pub fn at_most(mut self, limit: Cost) -> Self {
        match self.cost {
            Some(cost) if cost.currency() != limit.currency() => {
                self.failures.push(format!("the run has cost {cost}, which cannot be compared with {limit}"));
            }
            Some(cost) if cost.micros() > limit.micros() => {
                self.failures.push(format!("the run has cost {cost}, expected at most {limit}"));
            }
            Some(_) => {}
            None => self
                .failures
                .push("what the run has cost is not known, because its agent has no prices".into()),
        }
        self
    }

    /// Compares the expectations with what the run has cost.
    ///
    /// # Errors
    ///
    /// Fails if one does not hold. The error has all that do not.
    pub fn check(self) -> Result<(), CheckError> {
        if self.failures.is_empty() { Ok(()) } else { Err(CheckError::new(self.failures.join("\n"))) }
    }
}
