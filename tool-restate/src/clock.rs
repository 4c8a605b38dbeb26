//! Times that are recorded in the journal.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tool_core::signatures::Timestamp;
use tool_core::tool::ToolExecution;

/// Returns the present time in microseconds since 1970. Only steps that are recorded may call it.
pub(crate) fn now() -> u64 {
    micros(SystemTime::now())
}

pub(crate) fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros().try_into().unwrap_or(u64::MAX)
}

/// Returns the time at which a call has finished.
pub(crate) fn finished_at(execution: &ToolExecution) -> Option<u64> {
    execution.started_at().map(|started| micros(started + execution.duration()))
}

/// Measures the time that a run takes by the times in the journal, so that a replay measures the same.
pub(crate) struct Clock {
    last: u64,
}

impl Clock {
    pub(crate) fn starting_at(last: u64) -> Self {
        Self { last }
    }

    /// Returns the time at which this much will have passed since the last recorded time.
    pub(crate) fn after(&self, time: Duration) -> u64 {
        self.last.saturating_add(time.as_micros().try_into().unwrap_or(u64::MAX))
    }

    /// Returns the last recorded time in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        self.last
    }

    /// Returns the last recorded time.
    pub(crate) fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.last / 1000)
    }

    /// Advances to this time and returns the time that has passed. Clocks of machines differ, so a time can be before the last.
    pub(crate) fn advance(&mut self, at: u64) -> Duration {
        let passed = Duration::from_micros(at.saturating_sub(self.last));
        self.last = self.last.max(at);
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_runs_backwards() {
        let mut clock = Clock::starting_at(10);
        assert_eq!(clock.advance(15), Duration::from_micros(5));
        assert_eq!(clock.advance(12), Duration::ZERO);
        assert_eq!(clock.advance(16), Duration::from_micros(1));
    }
}
