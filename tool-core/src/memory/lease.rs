//! Leases of stored runs: which driver works on a run.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{impl_id, unique_id};

/// The unique id of a driver that can hold the [lease](crate::store::RunStore::lease) of a run. Each
/// [`RunDriver`](crate::agent::RunDriver) has its own, also within one process.
///
/// ```
/// use tool_core::store::DriverId;
///
/// assert_ne!(DriverId::unique(), DriverId::unique());
/// assert_eq!(DriverId::from("worker-1".to_owned()).as_str(), "worker-1");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct DriverId(Arc<str>);

impl DriverId {
    /// Creates a new id.
    #[must_use]
    pub fn unique() -> Self {
        Self(unique_id("driver").into())
    }
}

impl_id!(DriverId);

/// A request of a driver about the lease of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseRequest {
    /// Takes the lease for this time unless another driver holds it.
    Take(Duration),
    /// Extends the lease to this time from now, if the driver has taken it and no other driver has taken it since. It does not
    /// take a lease that was released.
    Renew(Duration),
    /// Gives the lease back, if the driver has it.
    Release,
    /// Changes nothing.
    Check,
}

/// The state of the lease of a run after a [`LeaseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the driver may not have the lease"]
pub enum LeaseState {
    /// The driver holds the lease.
    Held,
    /// Another driver holds the lease.
    HeldElsewhere,
    /// No driver holds the lease.
    Free,
    /// The store has no leases.
    Unsupported,
}
