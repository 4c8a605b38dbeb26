//! The decisions that were recorded here, by which a repeated request is recognized.

use std::sync::Mutex;

use sha2::{Digest, Sha256};
use tool_core::run::Decision;
use tool_core::signatures::DecisionRecord;
use tool_core::tool::WaitId;

use crate::bounded::{Bounded, lock};

#[derive(Default)]
pub(crate) struct Decisions(Mutex<Bounded<WaitId, Recorded, 10_000>>);

/// A decision that was recorded here.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub(crate) record: DecisionRecord,
    digest: DecisionDigest,
    /// The position of the last entry of the run before.
    pub(crate) position: Option<u64>,
}

/// Equal decisions are recognized by a digest, because an answer can be secret and is not stored.
pub(crate) type DecisionDigest = [u8; 32];

pub(crate) fn digest(decision: &Decision) -> DecisionDigest {
    // These can always be serialized.
    Sha256::digest(serde_json::to_vec(decision).unwrap_or_default()).into()
}

impl Recorded {
    pub(crate) fn is(&self, decision: &Decision) -> bool {
        self.digest == digest(decision)
    }
}

impl Decisions {
    pub(crate) fn get(&self, wait: &WaitId) -> Option<Recorded> {
        lock(&self.0).get(wait).cloned()
    }

    pub(crate) fn insert(
        &self,
        record: DecisionRecord,
        digest: DecisionDigest,
        position: Option<u64>,
    ) -> Recorded {
        let recorded = Recorded { record, digest, position };
        lock(&self.0).insert(recorded.record.wait.clone(), recorded.clone());
        recorded
    }
}
