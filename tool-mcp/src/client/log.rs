//! Log messages of a server.

#![expect(deprecated, reason = "servers of today log this way")]

use std::fmt;

use rmcp::model::LoggingMessageNotificationParam;
use serde_json::Value;

/// A log message that a server sends as a notification of the protocol.
#[derive(Clone)]
#[non_exhaustive]
pub struct McpLog {
    /// The severity: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
    pub level: String,
    /// The part of the server that logs, if the server names it.
    pub logger: Option<String>,
    /// The logged value, usually a string.
    pub data: Value,
}

impl McpLog {
    pub(super) fn from_params(params: &LoggingMessageNotificationParam) -> Self {
        let level = serde_json::to_value(params.level).ok();
        let level = level.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { level, logger: params.logger.clone(), data: params.data.clone() }
    }
}

/// Omits the logged value, which may repeat arguments.
impl fmt::Debug for McpLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpLog")
            .field("level", &self.level)
            .field("logger", &self.logger)
            .finish_non_exhaustive()
    }
}
