//! A run in the list.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tool_core::model::{RunUser, Usage};
use tool_core::signatures::Timestamp;

use crate::log::RunLog;

/// The longest text in the list, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// The status of a run in the list, in the order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Waiting,
    #[default]
    Running,
    Failed,
    Unreadable,
    /// Its driver has left it without an end.
    Interrupted,
    Expired,
    Cancelled,
    Done,
}

/// A run in the list.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) agent: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<RunUser>,
    pub(crate) status: Status,
    pub(crate) question: String,
    pub(crate) turns: u32,
    pub(crate) usage: Usage,
    /// The number of calls that failed, which the model may have dealt with.
    pub(crate) failed_calls: usize,
    /// What it waits for, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) summary: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The last change, if its time is known.
    pub(crate) updated_at: Option<Timestamp>,
}

impl Row {
    /// Creates the row of a run that is not stored yet.
    pub(crate) fn of_log(log: &RunLog) -> Self {
        Self { id: log.id.clone(), agent: Arc::clone(&log.source.name), ..Self::default() }
    }
}

/// Returns the beginning of a text.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}
