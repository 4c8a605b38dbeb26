//! Points in time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A point in time, in whole milliseconds since the Unix epoch.
///
/// ```
/// use std::time::Duration;
/// use tool_core::signatures::Timestamp;
///
/// let noon = Timestamp::from_millis(1_700_000_000_000);
/// assert_eq!(noon.after(Duration::from_secs(2)).as_millis(), 1_700_000_002_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Returns the time of the system's clock.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Creates a point in time from the milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the point in time that is later by this duration.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(whole_millis(duration)))
    }

    /// Returns the duration since an earlier point in time, or zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A time before the Unix epoch becomes the epoch.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(whole_millis(time.duration_since(UNIX_EPOCH).unwrap_or_default()))
    }
}
