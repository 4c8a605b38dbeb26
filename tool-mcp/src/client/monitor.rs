//! Observes the messages of one connection: progress, logs, changes of the tools, and the end of the connection.
//!
//! It strips `initialize` of what is for the newest revision, because the SDK has one set of capabilities for both handshakes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientRequest, GetExtensions, GetMeta, JsonRpcMessage, ProgressToken, RequestId, ServerNotification,
};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tool_core::CancellationToken;
use tracing::dispatcher::{self, Dispatch};

use super::McpLog;
use super::progress::CallProgress;
use crate::quiet::SdkRuntime;

/// The longest wait for the stream on which a server asks.
const MAX_STREAM_WAIT: Duration = Duration::from_secs(5);

/// The number of requests of the server that may wait for their response, or until the server reads it.
const MAX_UNANSWERED_REQUESTS: usize = 64;

/// Receives the log messages of a server.
pub(super) type LogHook = Arc<dyn Fn(&McpLog) + Send + Sync>;

/// The observed state of one connection.
pub(super) struct Monitor {
    on_log: Option<LogHook>,
    /// The longest time for an answer to a server of an older revision; `None` if such servers may not ask.
    question_timeout: Option<Duration>,
    calls: Mutex<HashMap<ProgressToken, CallProgress>>,
    /// The number of requests in flight for resources.
    readings: AtomicUsize,
    /// The calls that ended before their responses, and when: the server can still ask for them.
    abandoned: Mutex<HashMap<RequestId, Instant>>,
    tool_changes: AtomicU64,
    invalid_messages: AtomicUsize,
    closed: CancellationToken,
    /// Also cancelled when the server ends the session: pending calls may finish, and further ones need another connection.
    retired: CancellationToken,
    /// The server has answered the request for the stream of what belongs to no request.
    has_stream: watch::Sender<bool>,
    /// Runs the SDK's tasks of this connection; all of them hold the monitor.
    runtime: SdkRuntime,
    /// The subscriber of the hooks, which are called on the threads of the SDK.
    subscriber: Dispatch,
}

/// A request for resources that is in flight.
pub(super) struct Reading<'m>(&'m Monitor);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.readings.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Monitor {
    pub(super) fn new(
        on_log: Option<LogHook>,
        question_timeout: Option<Duration>,
        runtime: SdkRuntime,
    ) -> Arc<Self> {
        let closed = CancellationToken::new();
        Arc::new(Self {
            on_log,
            question_timeout,
            calls: Mutex::default(),
            readings: AtomicUsize::new(0),
            abandoned: Mutex::default(),
            tool_changes: AtomicU64::new(0),
            invalid_messages: AtomicUsize::new(0),
            retired: closed.child_token(),
            closed,
            has_stream: watch::Sender::new(false),
            runtime,
            subscriber: dispatcher::get_default(Dispatch::clone),
        })
    }

    pub(super) fn note_stream(&self) {
        self.has_stream.send_replace(true);
    }

    /// Waits until what an older server asks in a session during a call can arrive, for a short time.
    pub(super) async fn can_be_asked(&self) {
        if self.question_timeout.is_some() {
            let answered = self.has_stream.subscribe();
            let _ =
                tokio::time::timeout(MAX_STREAM_WAIT, { answered }.wait_for(|has_stream| *has_stream)).await;
        }
    }

    pub(super) fn question_timeout(&self) -> Option<Duration> {
        self.question_timeout
    }

    pub(super) fn runtime(&self) -> &SdkRuntime {
        &self.runtime
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<ProgressToken, CallProgress>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the progress of a call that is about to be sent.
    fn before_send(&self, message: &TxJsonRpcMessage<RoleClient>) {
        if let JsonRpcMessage::Request(request) = message
            && let Some(progress) = request.request.extensions().get::<CallProgress>()
            && let Some(token) = request.request.get_meta().get_progress_token()
        {
            let mut calls = self.calls();
            // A call can end before it is sent.
            calls.retain(|_, call| !call.has_ended());
            calls.insert(token, progress.clone());
        }
    }

    /// Registers a request for resources, until the guard is dropped.
    pub(super) fn begin_reading(&self) -> Reading<'_> {
        self.readings.fetch_add(1, Ordering::AcqRel);
        Reading(self)
    }

    /// Returns the calls that the server may not know to have ended.
    fn abandoned(&self) -> MutexGuard<'_, HashMap<RequestId, Instant>> {
        let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        // Without the limit, no call would be asked for any more after one that timed out.
        abandoned.retain(|_, since| since.elapsed() < self.question_timeout.unwrap_or_default());
        abandoned
    }

    /// Records that a call ended before its response.
    pub(super) fn abandon_call(&self, request: RequestId) {
        self.abandoned().insert(request, Instant::now());
    }

    /// Returns the call in flight that a request of the server belongs to. The server does not state it, so there must be only one,
    /// nothing else in flight, and none that the server may not know to have ended: otherwise the user of another call could be asked.
    pub(super) fn only_call(&self) -> Option<CallProgress> {
        // Locked before the others are checked: a call that ends meanwhile is abandoned first, and removed then.
        let calls = self.calls();
        if self.readings.load(Ordering::Acquire) > 0 || !self.abandoned().is_empty() {
            return None;
        }
        let mut all = calls.values();
        all.next().filter(|_| all.next().is_none()).cloned()
    }

    /// Removes the progress of a call that has finished.
    pub(super) fn remove_progress(&self, token: &ProgressToken) {
        self.calls().remove(token);
    }

    /// Handles a notification. This happens here, in the order of the messages, because the SDK handles each
    /// notification in a separate task.
    fn after_receive(&self, message: &RxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Notification(notification) = message else { return };
        dispatcher::with_default(&self.subscriber, || self.handle_notification(&notification.notification));
    }

    fn handle_notification(&self, notification: &ServerNotification) {
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                let call = self.calls().get(&progress.params.progress_token).cloned();
                if let Some(call) = call {
                    call.report(&progress.params);
                }
            }
            ServerNotification::ToolListChangedNotification(_) => self.note_tool_change(),
            ServerNotification::LoggingMessageNotification(log) => {
                if let Some(on_log) = &self.on_log {
                    on_log(&McpLog::from_params(&log.params));
                }
            }
            _ => {}
        }
    }

    /// Records that the tools may differ from those that were listed.
    pub(super) fn note_tool_change(&self) {
        self.tool_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how many times the tools may have changed.
    pub(super) fn tool_changes(&self) -> u64 {
        self.tool_changes.load(Ordering::Acquire)
    }

    /// Records that the server sent something that is not a message for this client.
    pub(super) fn note_invalid_message(&self) {
        self.invalid_messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn invalid_messages(&self) -> usize {
        self.invalid_messages.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.closed.cancel();
    }

    /// Records that the server ended the session.
    pub(super) fn retire(&self) {
        self.retired.cancel();
    }

    /// Returns `true` if further requests can be sent.
    pub(super) fn is_open(&self) -> bool {
        !self.retired.is_cancelled()
    }

    /// Waits until no further requests can be sent.
    pub(super) async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// Waits until the connection has ended.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

/// A transport whose messages pass through a [`Monitor`].
pub(super) struct MonitoredTransport<T> {
    transport: T,
    monitor: Arc<Monitor>,
    /// One permit for each request of the server that may be unanswered.
    permits: Arc<Semaphore>,
    unanswered: HashMap<RequestId, OwnedSemaphorePermit>,
    /// The request `server/discover`, and whether the SDK no longer waits for its response.
    probe: Option<(RequestId, bool)>,
}

impl<T> MonitoredTransport<T> {
    pub(super) fn new(transport: T, monitor: Arc<Monitor>) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_UNANSWERED_REQUESTS));
        Self { transport, monitor, permits, unanswered: HashMap::new(), probe: None }
    }
}

impl<T> MonitoredTransport<T> {
    /// Declares to servers of older revisions only what this client can do for them.
    fn adapt_handshake(&mut self, message: &mut TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(request) = message else { return };
        match &mut request.request {
            ClientRequest::DiscoverRequest(_) => self.probe = Some((request.id.clone(), false)),
            ClientRequest::InitializeRequest(initialize) => {
                self.probe.iter_mut().for_each(|(_, is_over)| *is_over = true);
                let declared = std::mem::take(&mut initialize.params.capabilities);
                if self.monitor.question_timeout.is_some() {
                    initialize.params.capabilities.elicitation = declared.elicitation;
                }
            }
            _ => {}
        }
    }

    /// Returns `true` for the response of a slow server to `server/discover`, which the SDK would take for that to `initialize`.
    fn is_late(&self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        matches!(&self.probe, Some((probe, true)) if answered_request(message) == Some(probe))
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for MonitoredTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.monitor.before_send(&message);
        self.adapt_handshake(&mut message);
        let permit = answered_request(&message).and_then(|id| self.unanswered.remove(id));
        let sending = self.transport.send(message);
        async move {
            let _permit = permit;
            sending.await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            // The SDK stores any number of requests and responses, so nothing is read while too many are unanswered.
            let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
            let message = self.transport.receive().await;
            match &message {
                Some(JsonRpcMessage::Request(request)) => match self.unanswered.entry(request.id.clone()) {
                    Entry::Vacant(entry) => drop(permit.map(|permit| entry.insert(permit))),
                    // The SDK would answer only one of the two.
                    Entry::Occupied(_) => {
                        self.monitor.note_invalid_message();
                        continue;
                    }
                },
                Some(message) if self.is_late(message) => continue,
                Some(message) => {
                    if let Some(id) = cancelled_request(message) {
                        self.unanswered.remove(id);
                    }
                    if let Some(id) = answered_request(message) {
                        self.monitor.abandoned().remove(id);
                    }
                    self.monitor.after_receive(message);
                }
                None => self.monitor.close(),
            }
            return message;
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.monitor.close();
        self.transport.close().await
    }
}

/// Returns the id of the request that a message is the response to.
fn answered_request<Request, Response, Notification>(
    message: &JsonRpcMessage<Request, Response, Notification>,
) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

/// Returns the id of the request that the server cancels with the message. The SDK does not answer it.
fn cancelled_request(message: &RxJsonRpcMessage<RoleClient>) -> Option<&RequestId> {
    let JsonRpcMessage::Notification(notification) = message else { return None };
    let ServerNotification::CancelledNotification(cancelled) = &notification.notification else {
        return None;
    };
    cancelled.params.request_id.as_ref()
}

/// Reports the end of the connection to all pending calls, however the connection ends.
impl<T> Drop for MonitoredTransport<T> {
    fn drop(&mut self) {
        self.monitor.close();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{pending, ready};

    use futures_util::FutureExt;
    use serde_json::{Value, json};

    use super::*;

    /// A server that sends these messages and reads none.
    struct NeverReads(std::vec::IntoIter<Value>);

    impl Transport<RoleClient> for NeverReads {
        type Error = Infallible;

        fn send(
            &mut self,
            _: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
            pending()
        }

        fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
            ready(self.0.next().map(|message| serde_json::from_value(message).unwrap()))
        }

        fn close(&mut self) -> impl Future<Output = Result<(), Infallible>> + Send {
            ready(Ok(()))
        }
    }

    /// Returns a connection to a server that has sent all messages.
    fn connection(messages: impl IntoIterator<Item = Value>) -> MonitoredTransport<NeverReads> {
        let messages = messages.into_iter().collect::<Vec<_>>().into_iter();
        MonitoredTransport::new(NeverReads(messages), Monitor::new(None, None, SdkRuntime::Program))
    }

    /// Returns the ids of the requests that are read now.
    fn read(connection: &mut MonitoredTransport<NeverReads>) -> Vec<i64> {
        let mut ids = Vec::new();
        while let Some(Some(message)) = connection.receive().now_or_never() {
            if let JsonRpcMessage::Request(request) = message {
                ids.push(request.id.to_string().parse().unwrap());
            }
        }
        ids
    }

    fn ping(id: i64) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })
    }

    #[test]
    fn reads_no_request_while_many_are_unanswered() {
        let mut connection = connection((0..200).map(ping));
        assert_eq!(read(&mut connection), (0..64).collect::<Vec<_>>());
        let response = json!({ "jsonrpc": "2.0", "id": 7, "result": {} });
        let unread = connection.send(serde_json::from_value(response).unwrap());
        assert!(read(&mut connection).is_empty());
        drop(unread);
        assert_eq!(read(&mut connection), [64]);
    }

    /// The SDK sends no response to them.
    #[test]
    fn cancelled_requests_need_no_response() {
        let params = json!({ "requestId": 7 });
        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        let mut connection = connection((0..63).map(ping).chain([cancelled]).chain((63..200).map(ping)));
        assert_eq!(read(&mut connection), (0..65).collect::<Vec<_>>());
    }

    #[test]
    fn ignores_a_request_with_the_id_of_an_unanswered_one() {
        let mut connection = connection([ping(1), ping(1), ping(2)]);
        assert_eq!(read(&mut connection), [1, 2]);
        assert_eq!(connection.monitor.invalid_messages(), 1);
    }
}
