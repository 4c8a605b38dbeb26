//! Delays between attempts, and the longest timeout.
//!
//! Crates such as `backon` drive the operation itself. The users of this module decide about each attempt themselves, based on
//! the server's response, a budget, or the state of a connection, and share only the computation of the delay.

use std::time::Duration;

/// The longest timeout that is respected. The time of the clock and a longer one, such as [`Duration::MAX`], could have no sum.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The random part of a delay, so that requests that failed together are not repeated together.
const JITTER: f64 = 0.25;

/// Delays that double up to a maximum, each shortened by a random part of at most a quarter.
///
/// ```
/// use std::time::Duration;
/// use tool_http::Backoff;
///
/// let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// assert!(backoff.delay(3) <= Duration::from_millis(800));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// Creates delays that start with `first`.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max }
    }

    /// Returns the delay that follows `earlier` other delays.
    #[must_use]
    pub fn delay(&self, earlier: u32) -> Duration {
        self.delay_with(earlier, fastrand::f64())
    }

    /// Returns the delay for a random number from 0 to 1.
    fn delay_with(&self, earlier: u32, random: f64) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(earlier.min(31)));
        doubled.min(self.max).mul_f64(1.0 - JITTER * random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_maximum() {
        let backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));
        let table =
            [(0, 0.0, 0.5), (1, 0.0, 1.0), (2, 1.0, 1.5), (4, 0.0, 8.0), (5, 1.0, 6.0), (u32::MAX, 0.0, 8.0)];
        for (earlier, random, expected) in table {
            let delay = backoff.delay_with(earlier, random);
            assert_eq!(delay, Duration::from_secs_f64(expected), "{earlier} {random}");
        }
    }

    #[test]
    fn the_random_part_is_at_most_a_quarter() {
        let backoff = Backoff::new(Duration::from_secs(4), Duration::from_secs(4));
        for earlier in 0..1000 {
            let delay = backoff.delay(earlier);
            assert!((Duration::from_secs(3)..=Duration::from_secs(4)).contains(&delay), "{delay:?}");
        }
    }
}
