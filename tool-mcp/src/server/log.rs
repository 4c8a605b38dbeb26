//! Log messages about calls for clients that request them: the tool, the outcome and the duration, never arguments, outputs
//! or texts.

// The newest protocol removes logging, but most clients speak an older one.
#![expect(deprecated)]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tool_core::tool::ToolErrorKind;

/// The log level of a session. Nothing is logged before it is set.
#[derive(Debug, Default)]
pub(super) struct SessionLogLevel(Mutex<Option<LoggingLevel>>);

impl SessionLogLevel {
    pub(super) fn set(&self, level: LoggingLevel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// Returns the log of one call. Requests of the newest protocol carry their own level.
    pub(super) fn call_log<'a>(
        &self,
        context: &'a RequestContext<RoleServer>,
        tool: &'a str,
        call: &'a str,
    ) -> CallLog<'a> {
        let level = context.meta.log_level();
        let level = level.or_else(|| *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        CallLog { peer: &context.peer, level, tool, call }
    }
}

/// The log of one call.
pub(super) struct CallLog<'a> {
    peer: &'a Peer<RoleServer>,
    level: Option<LoggingLevel>,
    tool: &'a str,
    call: &'a str,
}

impl CallLog<'_> {
    pub(super) async fn started(&self) {
        self.send(LoggingLevel::Debug, "call started", json!({})).await;
    }

    /// Reports that the call has not failed, and what it has led to.
    pub(super) async fn ended(&self, event: &str, elapsed: Duration) {
        let details = json!({ "milliseconds": as_millis(elapsed) });
        self.send(LoggingLevel::Info, event, details).await;
    }

    pub(super) async fn failed(&self, kind: ToolErrorKind, elapsed: Duration) {
        let details = json!({ "kind": kind, "milliseconds": as_millis(elapsed) });
        self.send(LoggingLevel::Warning, "call failed", details).await;
    }

    async fn send(&self, level: LoggingLevel, event: &str, details: Value) {
        if self.level.is_some_and(|minimum| level as u8 >= minimum as u8) {
            let mut data = json!({ "event": event, "tool": self.tool, "call": self.call });
            details.as_object().into_iter().flatten().for_each(|(name, value)| data[name] = value.clone());
            let message = LoggingMessageNotificationParam::new(level, data).with_logger("tools");
            // If the client is gone, the call is cancelled anyway.
            let _ = self.peer.notify_logging_message(message).await;
        }
    }
}

fn as_millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}
