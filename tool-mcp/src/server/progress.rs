//! What a tool tells of its progress, on its way to the client that asked for it.

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;
use tool_core::{Progress, ToolProgress};

/// How much may be on its way: a tool does not wait for the client, so what finds no room is lost.
const ROOM: usize = 64;

/// Runs a call, and tells of its progress while it lasts: all of it before the call is over, as what comes behind a
/// result is of no call.
pub(super) async fn told<T>(
    peer: &Peer<RoleServer>,
    token: Option<ProgressToken>,
    call: impl AsyncFnOnce(Progress) -> T,
) -> T {
    let Some(token) = token else { return call(Progress::default()).await };
    let (sender, mut receiver) = mpsc::channel(ROOM);
    let reports = sender.clone();
    let progress = Progress::new(move |report| drop(reports.try_send(Some(report))));
    let over = async {
        let outcome = call(progress).await;
        // The tool may have left its end of the channel to something that goes on.
        let _ = sender.send(None).await;
        outcome
    };
    let telling = async {
        let mut count = Count::default();
        while let Some(Some(report)) = receiver.recv().await {
            let _ = peer.notify_progress(count.notification(token.clone(), report)).await;
        }
    };
    futures_util::future::join(over, telling).await.0
}

/// The protocol asks for a number that grows with every notification; a tool may tell none, or the same again.
#[derive(Default)]
struct Count {
    last: Option<f64>,
    is_given: bool,
}

impl Count {
    fn notification(&mut self, token: ProgressToken, report: ToolProgress) -> ProgressNotificationParam {
        let progress = self.next(report.done);
        let mut told = ProgressNotificationParam::new(token, progress);
        told.total = report.total.map(|total| total as f64);
        told.message = Some(report.text).filter(|text| !text.is_empty());
        told
    }

    fn next(&mut self, done: Option<u64>) -> f64 {
        self.is_given |= done.is_some();
        let next = match (done.map(|done| done as f64), self.last) {
            (Some(done), last) if last.is_none_or(|last| done > last) => done,
            (None, None) => 0.0,
            // Steps of their own, as long as there are no others.
            (_, Some(last)) if !self.is_given => last + 1.0,
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
    fn the_number_grows() {
        let table: [(&[Option<u64>], &[f64]); 5] = [
            (&[Some(1), Some(2), Some(5)], &[1.0, 2.0, 5.0]),
            (&[None, None, None], &[0.0, 1.0, 2.0]),
            (&[None, Some(1), Some(2)], &[0.0, 1.0, 2.0]),
            (&[Some(3), Some(3), None, Some(4)], &[3.0, 3.001, 3.002, 4.0]),
            (&[Some(3), Some(1)], &[3.0, 3.001]),
        ];
        for (done, expected) in table {
            let mut count = Count::default();
            let told: Vec<_> = done.iter().map(|done| count.next(*done)).collect();
            assert_eq!(told.len(), expected.len());
            assert!(
                told.iter().zip(expected).all(|(told, expected)| (told - expected).abs() < 1e-9),
                "{told:?}"
            );
        }
    }
}
