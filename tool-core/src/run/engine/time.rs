//! The time of a tree of runs: whose time counts, and whose is up first.
//!
//! A run has no clock, so its world reports how much time has passed. It counts for each run in which something is done, or inside of which,
//! except as agents have limits of their own; the time of persons does not. What has happened is recorded before a run stops whose time is up, and
//! what undoes a call is not interrupted.

use std::time::Duration;

use super::view::{Engine, EngineView};
use crate::run::effect::{Awaited, RunPath};
use crate::run::state::Run;
use crate::run::wait::Wait;
use crate::tool::Timestamp;

/// When time changes a tree of runs, if nothing else does before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The run whose time is up first, and the time that it has left.
    pub limit: Option<(RunPath, Duration)>,
    /// The first point in time that the tree waits for.
    pub deadline: Option<Timestamp>,
}

impl Engine<'_> {
    /// Counts the time that has passed since the last time, before what has ended meanwhile is [handled](Self::handle): that is recorded before a
    /// run stops whose time is up.
    pub fn advance(&mut self, passed: Duration) {
        // Most runs have none inside.
        let places = match self.working_inner_runs().next() {
            Some(_) => self.open_places(),
            None => vec![RunPath::default()],
        };
        self.advance_at(passed, &places);
    }

    /// Counts the time that has passed, of a tree whose open runs are at these places.
    pub(crate) fn advance_at<'p>(&mut self, passed: Duration, places: impl IntoIterator<Item = &'p RunPath>) {
        // To count for one changes nothing about the others.
        for place in places {
            if self.engine_view().counts_time_at(place) {
                self.mark_at(place, |run| run.count_time(passed));
            }
        }
    }

    /// Ends a run of the tree, because its time is up.
    pub fn use_up_time_at(&mut self, path: &RunPath) {
        self.change_inner_run_at(&path.calls(), |run| run.add_elapsed(run.time_left().unwrap_or_default()));
    }

    /// Stops the runs at these places whose time is up. Layers judge before that what has happened, and a step of a run ends.
    pub(super) fn stop_in_time(&mut self, places: &[RunPath]) {
        for place in places {
            let is_up = |run: &Run| run.is_time_up() && run.outcome_to_judge().is_none();
            if self.engine_view().step_in_flight(place).is_none()
                && self.inner_run_at(place.calls()).is_some_and(is_up)
            {
                self.use_up_time_at(place);
            }
        }
    }
}

impl<'r> EngineView<'r> {
    /// Returns when time changes the tree after this time. A step of a run limits its time itself.
    #[must_use]
    pub fn poll_timeout(self, now: Timestamp) -> Timeouts {
        let places = self.open_places();
        let limit = self.limit_of(&places).map(|(path, left)| (path.clone(), left));
        let deadline = self.waits().iter().filter_map(|wait| wait.deadline).filter(|at| *at > now).min();
        Timeouts { limit, deadline }
    }

    /// Returns the run whose time is up first, of these, with the time that is left, if nothing else happens before.
    pub(crate) fn limit_of<'p>(
        self,
        places: impl IntoIterator<Item = &'p RunPath>,
    ) -> Option<(&'p RunPath, Duration)> {
        let limits = places.into_iter().filter_map(|path| {
            let run = self.inner_run_at(path.calls())?;
            let left = run.time_left().filter(|_| self.step_in_flight(path).is_none())?;
            let is_counted = left.is_zero() || self.counts_time_at(path);
            (is_counted && !run.undoes_inside()).then_some((path, left))
        });
        limits.min_by_key(|(_, left)| *left)
    }

    /// Returns the run whose time is up first, of this one and those around it, with the time that is left.
    #[must_use]
    pub fn limit_at(self, path: &RunPath) -> Option<(RunPath, Duration)> {
        let (depth, left) = self.least_time_left(&path.calls())?;
        Some((path.at_depth(depth), left))
    }

    /// Returns `true` if time counts for a run: something is done or can be done in it or in a run inside, or all open calls are parked. That of
    /// agents with limits of their own does not count.
    fn counts_time_at(self, path: &RunPath) -> bool {
        let Some(run) = self.inner_run_at(path.calls()) else { return false };
        let goes_on = || !run.is_blocked() && self.step_in_flight(path) != Some(true);
        let is_busy = || goes_on() || run.is_executing() || self.is_busy_at(path);
        !run.is_at_rest()
            && !run.waits_only_for_own_limits()
            && (is_busy() || run.waits().iter().all(Wait::is_until))
    }

    /// Returns `true` if something of a run or of one inside is in flight, other than that persons are asked.
    fn is_busy_at(self, path: &RunPath) -> bool {
        let mut below = self.in_flight_from(path).take_while(|(id, _)| id.path.is_below(path));
        below.any(|(_, awaited)| !matches!(awaited, Awaited::Step { asks_persons: true }))
    }

    /// Returns whether the step of a run that is in flight only waits for persons.
    fn step_in_flight(self, path: &RunPath) -> Option<bool> {
        let mut at = self.in_flight_from(path).take_while(|(id, _)| id.path == *path);
        at.find_map(|(_, awaited)| match awaited {
            Awaited::Step { asks_persons } => Some(*asks_persons),
            _ => None,
        })
    }

    /// Returns `true` if the work for the run may be interrupted: it goes on by itself, and nothing inside undoes calls.
    pub(crate) fn is_interruptible(self) -> bool {
        self.is_in_turn() && !self.undoes_inside()
    }
}

impl Run {
    /// Returns `true` if calls of the run, or of runs inside, undo others now.
    fn undoes_inside(&self) -> bool {
        self.is_undoing() && self.is_executing() || self.working_inner_runs().any(Self::undoes_inside)
    }
}
