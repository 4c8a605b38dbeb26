//! Interrupts work of a run at its time limit and on cancellation.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::RunDriver;
use crate::agent::interruption::{Interruption, run_until_interrupted};

impl RunDriver {
    /// Returns the time that is left to judge an answer or an outcome, which the end of the run does not extend.
    pub(super) fn time_left_to_judge(&self) -> Option<Duration> {
        if self.run.is_cancelled() {
            return Some(Duration::ZERO);
        }
        let limit = self.run.limits().max_time?;
        Some(limit.saturating_sub(self.run.elapsed()))
    }

    /// Counts the time that has passed, for the runs of the tree in which something was done.
    pub(super) fn count_time(&mut self) {
        if let Some(passed) = self.read_clock() {
            self.run.engine().advance(passed);
        }
    }

    /// Returns the time that has passed since the last time, if it counts.
    pub(super) fn read_clock(&mut self) -> Option<Duration> {
        let since = self.clock.as_mut()?;
        let passed = since.elapsed();
        *since += passed;
        Some(passed)
    }

    /// Counts the time from now on, if it does not count already.
    pub(super) fn start_clock(&mut self) {
        self.count_time();
        self.clock.get_or_insert_with(Instant::now);
    }

    /// Polls the future until it completes or the run is interrupted. Undoing calls is not interrupted.
    pub(super) fn run_until_interrupted<'a, F>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Interruption>> + Send + use<'a, F>
    where
        F: Future<Output: Send> + Send + 'a,
    {
        let cancellation = self.question.cancellation.as_ref().filter(|_| !self.run.is_undoing());
        run_until_interrupted(future, cancellation, self.run.time_left())
    }

    pub(super) fn interrupt(&mut self, interruption: &Interruption) {
        self.storage.has_unsaved_changes = true;
        self.trace.interrupt();
        match interruption {
            // The timer and the clock can differ slightly.
            Interruption::TimeLimit => self.run.add_elapsed(self.run.time_left().unwrap_or_default()),
            Interruption::Cancelled => self.run.cancel(),
        }
    }
}
