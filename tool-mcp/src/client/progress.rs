//! Forwards what a server reports and asks during a call to the call.

use std::sync::Arc;

use rmcp::model::{ElicitRequestParams, ElicitResult, ProgressNotificationParam};
use tokio::sync::{Notify, mpsc, oneshot};
use tool_core::signatures::ToolProgress;
use tool_core::tool::Progress;

/// The number of questions of one call that wait for each other.
const MAX_QUESTIONS: usize = 16;

/// The answer to a question, in the form of the protocol. `None` cancels it.
pub(super) type Answer = Option<ElicitResult>;

/// A question that a server of an older revision asks during a call.
pub(super) struct Question {
    pub(super) asked: ElicitRequestParams,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// Receives the progress and the questions of one call. It is an extension of the request, so that it is registered before the first
/// notification can arrive.
#[derive(Clone)]
pub(super) struct CallProgress {
    progress: Progress,
    reported: Arc<Notify>,
    questions: mpsc::Sender<Question>,
}

impl CallProgress {
    pub(super) fn new(progress: &Progress) -> (Self, mpsc::Receiver<Question>) {
        let (questions, asked) = mpsc::channel(MAX_QUESTIONS);
        (Self { progress: progress.clone(), reported: Arc::default(), questions }, asked)
    }

    /// Asks the user of the call. Returns `None` if the call has ended or too many questions wait.
    pub(super) fn ask(&self, asked: ElicitRequestParams) -> Option<oneshot::Receiver<Answer>> {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send(Question { asked, answer }).ok()?;
        Some(answered)
    }

    /// Returns `true` if nobody waits for the response any more.
    pub(super) fn has_ended(&self) -> bool {
        self.questions.is_closed()
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
