//! What comes from a server beside answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    GetExtensions, GetMeta, JsonRpcMessage, ProgressNotificationParam, ProgressToken, ServerNotification,
};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use tokio::sync::{Notify, watch};
use tool_core::{Progress, ToolProgress};

use super::McpLog;

/// Takes what the server logs.
pub(super) type LogHook = Arc<dyn Fn(&McpLog) + Send + Sync>;

/// What came by one connection beside answers.
pub(super) struct Inbox {
    on_log: Option<LogHook>,
    calls: Mutex<HashMap<ProgressToken, CallProgress>>,
    changes: AtomicU64,
    strays: AtomicUsize,
    is_closed: watch::Sender<bool>,
}

/// Where the progress of a call goes. It travels with the request, so that no notification comes before it is known.
#[derive(Clone)]
pub(super) struct CallProgress {
    progress: Progress,
    heard: Arc<Notify>,
}

impl CallProgress {
    pub(super) fn to(progress: &Progress) -> Self {
        Self { progress: progress.clone(), heard: Arc::default() }
    }

    /// Waits until the server tells of progress.
    pub(super) async fn heard(&self) {
        self.heard.notified().await;
    }

    fn report(&self, params: &ProgressNotificationParam) {
        self.heard.notify_one();
        if !self.progress.is_heard() {
            return;
        }
        let mut progress = ToolProgress::from(params.message.clone().unwrap_or_default());
        progress.done = whole(params.progress);
        progress.total = params.total.and_then(whole);
        if let Some(total) = params.total.filter(|total| *total > 0.0)
            && (progress.done.is_none() || progress.total.is_none())
        {
            // Parts of one are told in hundredths.
            let done = (params.progress / total * 100.0).clamp(0.0, 100.0);
            progress = progress.of(done as u64, 100);
        }
        self.progress.report(progress);
    }
}

fn whole(number: f64) -> Option<u64> {
    (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
}

impl Inbox {
    pub(super) fn new(on_log: Option<LogHook>) -> Arc<Self> {
        Arc::new(Self {
            on_log,
            calls: Mutex::default(),
            changes: AtomicU64::new(0),
            strays: AtomicUsize::new(0),
            is_closed: watch::Sender::new(false),
        })
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<ProgressToken, CallProgress>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message is about to be sent.
    pub(super) fn sends(&self, message: &TxJsonRpcMessage<RoleClient>) {
        if let JsonRpcMessage::Request(request) = message
            && let Some(progress) = request.request.extensions().get::<CallProgress>()
            && let Some(token) = request.request.get_meta().get_progress_token()
        {
            self.calls().insert(token, progress.clone());
        }
    }

    /// The call is over, and so is its progress.
    pub(super) fn forget(&self, token: &ProgressToken) {
        self.calls().remove(token);
    }

    /// A message came. What it tells is dealt with here, in the order of messages, as the SDK hands each to a task of its own.
    pub(super) fn receives(&self, message: &RxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Notification(notification) = message else { return };
        match &notification.notification {
            ServerNotification::ProgressNotification(progress) => {
                let call = self.calls().get(&progress.params.progress_token).cloned();
                if let Some(call) = call {
                    call.report(&progress.params);
                }
            }
            ServerNotification::ToolListChangedNotification(_) => self.tools_changed(),
            ServerNotification::LoggingMessageNotification(log) => {
                if let Some(on_log) = &self.on_log {
                    on_log(&McpLog::of(&log.params));
                }
            }
            _ => {}
        }
    }

    /// The tools may be others than those that were listed.
    pub(super) fn tools_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// How often the tools may have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Something came that is no message.
    pub(super) fn strays(&self) {
        self.strays.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something came that is no message.
    pub(super) fn stray_count(&self) -> usize {
        self.strays.load(Ordering::Relaxed)
    }

    /// Nothing more will come.
    pub(super) fn close(&self) {
        self.is_closed.send_replace(true);
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// Waits until nothing more will come.
    pub(super) async fn closed(&self) {
        // The sender is here, so the receiver hears of it.
        let _ = self.is_closed.subscribe().wait_for(|is_closed| *is_closed).await;
    }
}
