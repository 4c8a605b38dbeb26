//! The places of the runs that a recovery continues: few are driven at once, and many can wait for deciders, which can ask people.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of runs whose deciders are asked at once. Each takes its memory and a lease.
const MAX_ASKING: usize = 1_000;

/// The places of one process. Clones share them.
#[derive(Clone)]
pub(super) struct RecoveryPlaces {
    driving: Arc<Semaphore>,
    asking: Arc<Semaphore>,
}

/// The place of one run. It is free when this is dropped.
pub(super) struct RecoveryPlace {
    places: RecoveryPlaces,
    held: Option<OwnedSemaphorePermit>,
    is_asking: bool,
    /// Deciders that have not answered after this time are asked another time.
    pub(super) max_asking: Option<Duration>,
}

impl RecoveryPlaces {
    pub(super) fn new(max_driven: usize) -> Self {
        let places = |number| Arc::new(Semaphore::new(number));
        Self { driving: places(max_driven.min(Semaphore::MAX_PERMITS)), asking: places(MAX_ASKING) }
    }

    /// Waits for a place in which a run can be driven.
    pub(super) async fn take(&self, max_asking: Option<Duration>) -> RecoveryPlace {
        let held = Arc::clone(&self.driving).acquire_owned().await.ok();
        RecoveryPlace { places: self.clone(), held, is_asking: false, max_asking }
    }
}

impl RecoveryPlace {
    /// Gives the place to another run while deciders are asked. Returns `false` if too many runs wait for theirs.
    pub(super) fn begin_asking(&mut self) -> bool {
        if !self.is_asking {
            let Ok(place) = Arc::clone(&self.places.asking).try_acquire_owned() else { return false };
            (self.held, self.is_asking) = (Some(place), true);
        }
        true
    }

    /// Waits for a place in which the run can be driven on.
    pub(super) async fn end_asking(&mut self) {
        if self.is_asking {
            let place = Arc::clone(&self.places.driving).acquire_owned().await.ok();
            (self.held, self.is_asking) = (place, false);
        }
    }
}
