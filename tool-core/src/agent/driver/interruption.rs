//! Interrupts work of a run at its time limit and on cancellation.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::RunDriver;
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::run::Run;

impl RunDriver {
    pub(super) fn time_left(&self) -> Option<Duration> {
        self.time_left_of(&self.run)
    }

    /// Returns the time that is left of the run, which the driver need not have.
    pub(super) fn time_left_of(&self, run: &Run) -> Option<Duration> {
        let left = run.time_left()?;
        let since = self.clock.map_or(Duration::ZERO, |clock| clock.elapsed());
        Some(left.saturating_sub(since))
    }

    /// Returns the time that is left to judge an answer or an outcome, which the end of the run does not extend.
    pub(super) fn time_left_to_judge(&self) -> Option<Duration> {
        if self.run.is_cancelled() {
            return Some(Duration::ZERO);
        }
        let since = self.clock.map_or(Duration::ZERO, |clock| clock.elapsed());
        let limit = self.run.limits().max_time?;
        Some(limit.saturating_sub(self.run.elapsed()).saturating_sub(since))
    }

    /// Reports the time since the last update to the run.
    pub(super) fn update_elapsed(&mut self) {
        let now = Instant::now();
        if let Some(clock) = self.clock.replace(now) {
            self.run.add_elapsed(now - clock);
        }
    }

    /// Leaves out the time since the last update to the run.
    pub(super) fn restart_clock(&mut self) {
        self.clock = self.clock.map(|_| Instant::now());
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
        run_until_interrupted(future, cancellation, self.time_left())
    }

    pub(super) fn interrupt(&mut self, interruption: &Interruption) {
        self.has_unsaved_changes = true;
        self.trace.interrupt();
        match interruption {
            Interruption::TimeLimit => {
                self.update_elapsed();
                // The timer and the clock can differ slightly.
                self.run.add_elapsed(self.run.time_left().unwrap_or_default());
            }
            Interruption::Cancelled => self.run.cancel(),
        }
    }
}
