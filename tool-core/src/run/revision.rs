//! The format and the revisions of the stored state of a run.
//!
//! A stored run has a revision, and is replaced only by a copy that has it, because a run can be resumed twice at once. This alone makes
//! runs safe: the save before a call fails if another copy was stored meanwhile, and nothing is executed.

use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::impl_id;
use crate::tool::WaitId;

/// Identifies one stored state of a run. Each save gives the run a new revision, so a copy with another revision than the stored
/// one is outdated.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct RunRevision(Arc<str>);

impl_id!(RunRevision);

/// The relation of a run to its stored state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredState {
    /// The revision that was loaded, or that the store confirmed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) confirmed: Option<RunRevision>,
    /// The revision of a save without a known outcome: it is in progress, has failed, or its future was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_doubt: Option<RunRevision>,
    /// The revision of the save that has begun the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) begun: Option<RunRevision>,
    /// The last attempt to drive the run failed, and can be repeated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_failed: bool,
    /// Why, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    /// The waits that deciders were asked about and have left to people. A call that waits again has another id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) deferred: Vec<WaitId>,
    /// The run has ended, and nothing is left to do. It stays stored for its readers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_finished: bool,
}

/// The format of a stored state. A change that other versions cannot read raises it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format;

const FORMAT: u32 = 1;

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        FORMAT.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            FORMAT => Ok(Self),
            other => Err(D::Error::custom(format_args!(
                "unsupported run format {other}; this version reads format {FORMAT}"
            ))),
        }
    }
}
