//! Forwards the progress notifications of a call to the run.

use std::sync::Arc;

use rmcp::model::ProgressNotificationParam;
use tokio::sync::Notify;
use tool_core::tool::{Progress, ToolProgress};

/// Receives the progress of one call. It is an extension of the request, so that it is registered before the first
/// notification can arrive.
#[derive(Clone)]
pub(super) struct CallProgress {
    progress: Progress,
    reported: Arc<Notify>,
}

impl CallProgress {
    pub(super) fn new(progress: &Progress) -> Self {
        Self { progress: progress.clone(), reported: Arc::default() }
    }

    /// Waits until the server reports progress.
    pub(super) async fn reported(&self) {
        self.reported.notified().await;
    }

    pub(super) fn report(&self, params: &ProgressNotificationParam) {
        self.reported.notify_one();
        if !self.progress.has_listener() {
            return;
        }
        let mut progress = ToolProgress::from(params.message.clone().unwrap_or_default());
        progress.done = whole_number(params.progress);
        progress.total = params.total.and_then(whole_number);
        if let Some(total) = params.total.filter(|total| *total > 0.0)
            && (progress.done.is_none() || progress.total.is_none())
        {
            // Fractions are reported as a percentage.
            let percent = (params.progress / total * 100.0).clamp(0.0, 100.0);
            progress = progress.completed(percent as u64, 100);
        }
        self.progress.report(progress);
    }
}

fn whole_number(number: f64) -> Option<u64> {
    (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
}
