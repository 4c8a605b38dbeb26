//! Progress notifications for clients that request them.

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;
use tool_core::signatures::ToolProgress;
use tool_core::tool::Progress;

/// The number of buffered reports. Tools do not wait for the client: reports beyond this are dropped.
const BUFFERED_REPORTS: usize = 64;

/// Runs a call and forwards its progress to the client. Returns after all reports are sent, because reports after the result
/// of a call are invalid.
pub(super) async fn with_progress<T>(
    peer: &Peer<RoleServer>,
    token: Option<ProgressToken>,
    call: impl AsyncFnOnce(Progress) -> T,
) -> T {
    let Some(token) = token else { return call(Progress::default()).await };
    let (sender, mut receiver) = mpsc::channel(BUFFERED_REPORTS);
    let reports = sender.clone();
    let progress = Progress::new(move |report| drop(reports.try_send(Some(report))));
    let call = async {
        let outcome = call(progress).await;
        // A task that the tool spawned may keep the channel open.
        let _ = sender.send(None).await;
        outcome
    };
    let forward = async {
        let mut counter = ProgressCounter::default();
        while let Some(Some(report)) = receiver.recv().await {
            let _ = peer.notify_progress(counter.notification(token.clone(), report)).await;
        }
    };
    futures_util::future::join(call, forward).await.0
}

/// Computes the number of each notification, which must increase. A tool may report none, or the same one again.
#[derive(Default)]
struct ProgressCounter {
    last: Option<f64>,
    /// The tool has reported a number.
    has_numbers: bool,
}

impl ProgressCounter {
    fn notification(&mut self, token: ProgressToken, report: ToolProgress) -> ProgressNotificationParam {
        let progress = self.next(report.done);
        let mut notification = ProgressNotificationParam::new(token, progress);
        notification.total = report.total.map(|total| total as f64);
        notification.message = Some(report.text).filter(|text| !text.is_empty());
        notification
    }

    fn next(&mut self, done: Option<u64>) -> f64 {
        self.has_numbers |= done.is_some();
        let next = match (done.map(|done| done as f64), self.last) {
            (Some(done), last) if last.is_none_or(|last| done > last) => done,
            (None, None) => 0.0,
            // Counts the reports as long as the tool reports no numbers.
            (_, Some(last)) if !self.has_numbers => last + 1.0,
            (_, last) => last.unwrap_or_default() + 0.001,
        };
        self.last = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_increase() {
        let table: [(&[Option<u64>], &[f64]); 5] = [
            (&[Some(1), Some(2), Some(5)], &[1.0, 2.0, 5.0]),
            (&[None, None, None], &[0.0, 1.0, 2.0]),
            (&[None, Some(1), Some(2)], &[0.0, 1.0, 2.0]),
            (&[Some(3), Some(3), None, Some(4)], &[3.0, 3.001, 3.002, 4.0]),
            (&[Some(3), Some(1)], &[3.0, 3.001]),
        ];
        for (done, expected) in table {
            let mut counter = ProgressCounter::default();
            let numbers: Vec<_> = done.iter().map(|done| counter.next(*done)).collect();
            assert_eq!(numbers.len(), expected.len());
            assert!(
                numbers.iter().zip(expected).all(|(number, expected)| (number - expected).abs() < 1e-9),
                "{numbers:?}"
            );
        }
    }
}
