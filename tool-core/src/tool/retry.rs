//! The rule of retries: whether a call that failed is executed again, and after which delay.

use std::time::Duration;

use crate::model::ToolPolicy;
use crate::tool::{Attempt, ToolError, ToolErrorKind};

/// The delay before the second attempt; it doubles with each further attempt.
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// The longest delay before an attempt.
const MAX_DELAY: Duration = Duration::from_secs(5);

impl ToolPolicy {
    /// Returns the attempt that follows a failed one, or `None` if the call is not executed again.
    ///
    /// A call is retried if it failed or timed out, unless its error is [fatal](ToolError::fatal) or it has used all its
    /// [`attempts`](Self::attempts). The effect of a call that timed out is unknown, so such a call of an
    /// [`at_most_once`](Self::at_most_once) tool is not retried.
    ///
    /// ```
    /// use tool_core::ToolError;
    /// use tool_core::model::ToolPolicy;
    /// use tool_core::tool::Attempt;
    ///
    /// let mut policy = ToolPolicy::default();
    /// policy.attempts = 2;
    /// let first = Attempt::standalone("call_1");
    /// let second = policy.next_attempt(&first, &ToolError::failed("busy")).ok_or("no attempt is left")?;
    /// assert_eq!((&second.key, second.number), (&first.key, 2));
    /// assert_eq!(policy.next_attempt(&second, &ToolError::failed("busy")), None);
    /// assert_eq!(policy.next_attempt(&first, &ToolError::invalid_arguments("`n` is odd")), None);
    /// # Ok::<_, &str>(())
    /// ```
    #[must_use]
    pub fn next_attempt(&self, failed: &Attempt, error: &ToolError) -> Option<Attempt> {
        let is_repeatable = match error.kind() {
            ToolErrorKind::Failed => true,
            ToolErrorKind::TimedOut => !self.at_most_once,
            _ => false,
        };
        let is_allowed =
            is_repeatable && !error.is_fatal() && !error.is_last() && failed.number < self.attempts;
        is_allowed.then(|| Attempt { number: failed.number + 1, is_continued: false, ..failed.clone() })
    }
}

impl Attempt {
    /// Returns the delay before this attempt: none before the first and before one that continues, then 100 milliseconds, which double up
    /// to 5 seconds.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let doublings = self.number.checked_sub(2).filter(|_| !self.is_continued);
        let Some(doublings) = doublings else { return Duration::ZERO };
        FIRST_DELAY.saturating_mul(2_u32.saturating_pow(doublings)).min(MAX_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::unique_id;

    fn attempt(number: u32) -> Attempt {
        Attempt { number, ..Attempt::standalone(&unique_id("call")) }
    }

    #[test]
    fn a_call_is_retried_if_its_error_and_its_policy_allow_it() {
        let failed = || ToolError::failed("busy");
        let timed_out = || ToolError::timed_out(Duration::ZERO);
        // Attempts, `at_most_once`, the number of the failed attempt, its error, and the number of the next one.
        let table = [
            (2, false, 1, failed(), Some(2)),
            (2, false, 2, failed(), None),
            (1, false, 1, failed(), None),
            (0, false, 1, failed(), None),
            (2, false, 3, failed(), None),
            (u32::MAX, false, u32::MAX, failed(), None),
            (u32::MAX, false, u32::MAX - 1, failed(), Some(u32::MAX)),
            (2, true, 1, failed(), Some(2)),
            (2, false, 1, timed_out(), Some(2)),
            (2, true, 1, timed_out(), None),
            (2, false, 1, ToolError::fatal("busy"), None),
            (2, false, 1, ToolError::invalid_arguments("`n` is odd"), None),
            (2, false, 1, ToolError::panicked("call_1", "overflow"), None),
            (2, false, 1, ToolError::denied(None), None),
            (2, false, 1, ToolError::interrupted(), None),
            (2, false, 1, ToolError::not_executed("the run had ended"), None),
        ];
        for (attempts, at_most_once, number, error, expected) in table {
            let policy = ToolPolicy { attempts, at_most_once, ..ToolPolicy::DEFAULT };
            let failed = attempt(number);
            let next = policy.next_attempt(&failed, &error);
            assert_eq!(next.as_ref().map(|next| next.number), expected, "{policy:?} {number} {error:?}");
            assert!(next.is_none_or(|next| next.key == failed.key));
        }
    }

    #[test]
    fn the_delay_doubles_up_to_its_maximum() {
        let table = [(0, 0), (1, 0), (2, 100), (3, 200), (4, 400), (7, 3200), (8, 5000), (u32::MAX, 5000)];
        for (number, expected) in table {
            assert_eq!(attempt(number).delay(), Duration::from_millis(expected), "{number}");
        }
    }
}
