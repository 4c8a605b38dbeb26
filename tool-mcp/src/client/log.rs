//! What a server logs.

#![expect(deprecated, reason = "servers of today log so")]

use std::fmt;

use rmcp::model::LoggingMessageNotificationParam;
use serde_json::Value;

/// A message that a server logs by the protocol, beside its answers.
#[derive(Clone)]
#[non_exhaustive]
pub struct McpLog {
    /// How grave it is: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
    pub level: String,
    /// The part of the server that logs, if it says so.
    pub logger: Option<String>,
    /// What it logs: mostly a text.
    pub data: Value,
}

impl McpLog {
    pub(super) fn of(params: &LoggingMessageNotificationParam) -> Self {
        let level = serde_json::to_value(params.level).ok();
        let level = level.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { level, logger: params.logger.clone(), data: params.data.clone() }
    }
}

/// Leaves out what is logged: it may tell of arguments.
impl fmt::Debug for McpLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpLog")
            .field("level", &self.level)
            .field("logger", &self.logger)
            .finish_non_exhaustive()
    }
}
