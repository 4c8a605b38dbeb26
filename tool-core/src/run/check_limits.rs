//! Whether a run exceeds its limits. Calls that are repeated are counted in `request_counts`.

use std::time::Duration;

use super::limits::RunLimits;
use super::state::Run;
use super::stop_reason::StopReason;
use crate::model::Cost;
use crate::tool::ToolExecution;

impl Run {
    /// Returns limits with which the run can use as much from now on as these permit.
    pub(crate) fn limits_from_now(&self, limits: &RunLimits) -> RunLimits {
        let calls = u32::try_from(self.counted_calls()).unwrap_or(u32::MAX);
        let wrong_answers = u32::try_from(self.head.settings.rejections.len()).unwrap_or(u32::MAX);
        RunLimits {
            max_turns: limits.max_turns.saturating_add(self.head.turns),
            max_calls: limits.max_calls.map(|max| max.saturating_add(calls)),
            max_total_tokens: limits.max_total_tokens.map(|max| max.saturating_add(self.counted_tokens())),
            max_cost: limits.max_cost.map(|max| Cost::sum(Some(max), self.cost()).unwrap_or(max)),
            max_total_output_chars: limits
                .max_total_output_chars
                .map(|max| max.saturating_add(self.output_chars())),
            max_wrong_answers: limits.max_wrong_answers.saturating_add(wrong_answers),
            ..self.time_limit_from_now(limits)
        }
    }

    /// Returns limits with which the run can take as much time from now on as these permit.
    pub(crate) fn time_limit_from_now(&self, limits: &RunLimits) -> RunLimits {
        let max_time = limits.max_time.map(|max| max.saturating_add(self.elapsed));
        RunLimits { max_time, ..limits.clone() }
    }

    /// Returns `true` if no further request to the model is allowed. The calls of the last turn are executed only if
    /// their output can be the answer.
    pub(super) fn is_last_turn(&self) -> bool {
        self.head.turns >= self.head.settings.limits.max_turns.max(1)
    }

    pub(super) fn max_turns_reached(&self) -> StopReason {
        StopReason::MaxTurns(self.head.settings.limits.max_turns.max(1))
    }

    /// Returns the reason to stop if the model of the run, or a model of the agents that it asked, exceeded its limits.
    pub(super) fn exceeded_limit(&self) -> Option<StopReason> {
        let limits = &self.head.settings.limits;
        if let Some(limit) = limits.max_calls.filter(|limit| self.counted_calls() > u64::from(*limit)) {
            return Some(StopReason::MaxCalls(limit));
        }
        let limit = limits.max_total_tokens.filter(|limit| self.counted_tokens() > *limit);
        limit.map(StopReason::MaxTotalTokens)
    }

    fn counted_calls(&self) -> u64 {
        let own = (self.tool_executions().len() + self.calls().len()) as u64;
        self.counted_inner_runs().map(Run::counted_calls).fold(own, u64::saturating_add)
    }

    fn counted_tokens(&self) -> u64 {
        let own = self.head.usage.total_tokens.saturating_add(self.head.unknown_tokens);
        self.counted_inner_runs().map(Run::counted_tokens).fold(own, u64::saturating_add)
    }

    /// Returns the reason to stop if the calls returned more text than allowed.
    pub(super) fn check_output_limit(&self) -> Option<StopReason> {
        let limit = self.head.settings.limits.max_total_output_chars?;
        (self.output_chars() > limit).then_some(StopReason::MaxTotalOutputChars(limit))
    }

    fn output_chars(&self) -> usize {
        let length = |one: &ToolExecution| match one.outcome() {
            Ok(output) => output.content().text().chars().count(),
            Err(error) => error.text().chars().count(),
        };
        self.tool_executions().iter().map(length).sum()
    }

    /// Adds to the time that the run has taken. A run has no clock, so its driver reports the time.
    pub fn add_elapsed(&mut self, time: Duration) {
        self.count_time(time);
        self.stop_if_time_is_up();
    }

    /// Adds to the time that the run has taken.
    pub(super) fn count_time(&mut self, time: Duration) {
        self.elapsed = self.elapsed.saturating_add(time);
    }

    /// Sets the time that the run has taken, to leave out what was not done.
    pub(crate) fn set_elapsed(&mut self, elapsed: Duration) {
        self.elapsed = elapsed;
    }

    /// Stops the run if it has no time left.
    pub(crate) fn stop_if_time_is_up(&mut self) {
        if let Some(limit) = self.head.settings.limits.max_time.filter(|limit| self.elapsed >= *limit)
            && self.is_in_turn()
        {
            self.stop(StopReason::MaxTime(limit));
        }
    }

    /// Returns `true` if the run has no time left, and a step of it must not be recorded.
    pub(crate) fn is_time_up(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }

    /// Returns the time that the run has left, if it is limited. Undoing calls is not limited.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let limit = self.head.settings.limits.max_time.filter(|_| self.is_in_turn())?;
        Some(limit.saturating_sub(self.elapsed))
    }
}
