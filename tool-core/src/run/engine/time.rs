//! The time of a tree of runs: whose time counts, and whose is up first.
//!
//! A run has no clock, so its world reports how much time has passed. It counts for each run in which something is done, or inside of which,
//! except as agents have limits of their own. What undoes a call is not interrupted: the time is up once it has ended.

use std::time::Duration;

use crate::run::effect::RunPath;
use crate::run::state::Run;
use crate::run::wait::Wait;
use crate::tool::Timestamp;

/// When time changes a tree of runs, if nothing else does before.
#[doc(hidden)] // For the crates of this project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The run whose time is up first, and the time that it has left.
    pub limit: Option<(RunPath, Duration)>,
    /// The first point in time that the tree waits for.
    pub deadline: Option<Timestamp>,
}

#[doc(hidden)] // For the crates of this project.
impl Run {
    /// Counts the time that has passed, for the runs of the tree with calls in flight and for those around them. `busy` leads to a run in which
    /// something else was done. Runs stop whose time is up.
    pub fn advance(&mut self, passed: Duration, busy: Option<&RunPath>) {
        let places = self.open_places();
        // A run around can stop by the time of those inside.
        for place in places.iter().rev() {
            if self.counts_time_at(place, busy) {
                self.change_inner_run_at(&place.calls(), |run| run.add_elapsed(passed));
            }
        }
    }

    /// Ends a run of the tree, because its time is up.
    pub fn use_up_time_at(&mut self, path: &RunPath) {
        self.change_inner_run_at(&path.calls(), |run| run.add_elapsed(run.time_left().unwrap_or_default()));
    }

    /// Returns when time changes the tree after this time.
    #[must_use]
    pub fn poll_timeout(&self, now: Timestamp) -> Timeouts {
        let limits = self.open_places().into_iter().filter_map(|path| {
            let run = self.inner_run_at(path.calls())?;
            let left = run.time_left()?;
            (self.counts_time_at(&path, None) && !run.undoes_inside()).then_some((path, left))
        });
        let limit = limits.min_by_key(|(_, left)| *left);
        let deadline = self.waits().iter().filter_map(|wait| wait.deadline).filter(|at| *at > now).min();
        Timeouts { limit, deadline }
    }

    /// Returns the run whose time is up first, of this one and those around it, with the time that is left.
    #[must_use]
    pub fn limit_at(&self, path: &RunPath) -> Option<(RunPath, Duration)> {
        let (depth, left) = self.least_time_left(&path.calls())?;
        Some((path.at_depth(depth), left))
    }

    /// Returns `true` if time counts for a run: something is done in it or in a run inside, or all open calls are parked. That of
    /// agents with limits of their own does not count.
    fn counts_time_at(&self, path: &RunPath, busy: Option<&RunPath>) -> bool {
        let Some(run) = self.inner_run_at(path.calls()) else { return false };
        run.counts_time(
            busy.is_some_and(|busy| busy.calls().starts_with(&path.calls())) || run.executes_inside(),
        )
    }

    /// Returns `true` if calls of the run, or of runs inside, undo others now.
    pub(crate) fn undoes_inside(&self) -> bool {
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
