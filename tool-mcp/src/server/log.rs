//! What a client that asks for it is told of the calls: which tools, how they ended, how long it took. Never arguments,
//! outputs or texts.

// The newest protocol drops logging; most clients speak an older one.
#![expect(deprecated)]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tool_core::ToolErrorKind;

/// The level that a session was set to. Nothing is told before it is.
#[derive(Debug, Default)]
pub(super) struct Level(Mutex<Option<LoggingLevel>>);

impl Level {
    pub(super) fn set(&self, level: LoggingLevel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// The log of one call. A request of the newest protocol names its level itself.
    pub(super) fn log<'a>(
        &self,
        context: &'a RequestContext<RoleServer>,
        tool: &'a str,
        call: &'a str,
    ) -> Log<'a> {
        let level = context.meta.log_level();
        let level = level.or_else(|| *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Log { peer: &context.peer, level, tool, call }
    }
}

/// The log of one call.
pub(super) struct Log<'a> {
    peer: &'a Peer<RoleServer>,
    level: Option<LoggingLevel>,
    tool: &'a str,
    call: &'a str,
}

impl Log<'_> {
    pub(super) async fn started(&self) {
        self.tell(
            LoggingLevel::Debug,
            |log| json!({ "event": "call started", "tool": log.tool, "call": log.call }),
        )
        .await;
    }

    pub(super) async fn finished(&self, took: Duration) {
        self.tell(LoggingLevel::Info, |log| {
            let milliseconds = millis(took);
            json!({ "event": "call finished", "tool": log.tool, "call": log.call, "milliseconds": milliseconds })
        })
        .await;
    }

    pub(super) async fn failed(&self, kind: ToolErrorKind, took: Duration) {
        self.tell(LoggingLevel::Warning, |log| {
            let milliseconds = millis(took);
            json!({ "event": "call failed", "tool": log.tool, "call": log.call, "kind": kind, "milliseconds": milliseconds })
        })
        .await;
    }

    async fn tell(&self, level: LoggingLevel, data: impl FnOnce(&Self) -> Value) {
        if self.level.is_some_and(|least| level as u8 >= least as u8) {
            let message = LoggingMessageNotificationParam::new(level, data(self)).with_logger("tools");
            // Who went away is told by the call itself.
            let _ = self.peer.notify_logging_message(message).await;
        }
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}
