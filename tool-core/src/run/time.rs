//! The time of a tree of runs: whose time counts, and whose is up first.
//!
//! A run has no clock, so its world reports how much time has passed. It counts for each run in which something is done, or inside of which,
//! except as agents have limits of their own. What undoes a call is not interrupted: the time is up once it has ended.

use std::time::Duration;

use super::state::Run;
use super::wait::Wait;
use crate::tool::Timestamp;

/// When time changes a tree of runs, if nothing else does before.
#[doc(hidden)] // For the crates of this project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The calls that lead to the run whose time is up first, and the time that it has left.
    pub limit: Option<(Vec<String>, Duration)>,
    /// The first point in time that the tree waits for.
    pub deadline: Option<Timestamp>,
}

#[doc(hidden)] // For the crates of this project.
impl Run {
    /// Counts the time that has passed, for the runs of the tree with calls in flight and for those around them. `busy` leads to a run in which
    /// something else was done. Runs stop whose time is up.
    pub fn advance(&mut self, passed: Duration, busy: Option<&[&str]>) {
        let places = self.open_places();
        // A run around can stop by the time of those inside.
        for place in places.iter().rev() {
            let place: Vec<_> = place.iter().map(String::as_str).collect();
            if self.counts_time_at(&place, busy) {
                self.change_inner_run_at(&place, |run| run.add_elapsed(passed));
            }
        }
    }

    /// Ends the run to which these calls lead, because its time is up.
    pub fn use_up_time_at(&mut self, place: &[&str]) {
        self.change_inner_run_at(place, |run| run.add_elapsed(run.time_left().unwrap_or_default()));
    }

    /// Returns when time changes the tree.
    #[must_use]
    pub fn poll_timeout(&self) -> Timeouts {
        let limits = self.open_places().into_iter().filter_map(|place| {
            let ids: Vec<_> = place.iter().map(String::as_str).collect();
            let left = self.inner_run_at(ids.iter().copied())?.time_left()?;
            (self.counts_time_at(&ids, None) && !self.undoes_at(&ids)).then_some((place, left))
        });
        let limit = limits.min_by_key(|(_, left)| *left);
        let deadline = self.waits().iter().filter_map(|wait| wait.deadline).filter(|at| *at > self.now).min();
        Timeouts { limit, deadline }
    }

    /// Returns the calls that lead to the run whose time is up first if only the one at this place works: to it, or to one around. Also returns
    /// the time that is left.
    #[must_use]
    pub fn limit_at(&self, place: &[&str]) -> Option<(Vec<String>, Duration)> {
        let (depth, left) = self.least_time_left(place)?;
        Some((place[..depth].iter().map(|id| (*id).to_owned()).collect(), left))
    }

    /// Returns `true` if time counts for the run at this place: something is done in it or in a run inside, or all open calls are parked. That of
    /// agents with limits of their own does not count.
    fn counts_time_at(&self, place: &[&str], busy: Option<&[&str]>) -> bool {
        let Some(run) = self.inner_run_at(place.iter().copied()) else { return false };
        run.counts_time(busy.is_some_and(|busy| busy.starts_with(place)) || run.executes_inside())
    }

    /// Returns `true` if calls of the run at this place, or of runs inside, undo others now.
    fn undoes_at(&self, place: &[&str]) -> bool {
        self.inner_run_at(place.iter().copied()).is_some_and(Self::undoes_inside)
    }

    fn undoes_inside(&self) -> bool {
        self.is_undoing() && self.is_executing() || self.working_inner_runs().any(Self::undoes_inside)
    }

    /// Returns `true` if a call is in flight in the run or in one inside.
    fn executes_inside(&self) -> bool {
        self.is_executing() || self.working_inner_runs().any(Self::executes_inside)
    }

    /// Returns `true` if time counts for the run: it is busy, or all open calls are parked. That of agents with limits of their own does not
    /// count.
    pub(crate) fn counts_time(&self, is_busy: bool) -> bool {
        (is_busy || self.waits().iter().all(Wait::is_until)) && !self.waits_only_for_own_limits()
    }
}
