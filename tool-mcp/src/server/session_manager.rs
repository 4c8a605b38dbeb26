//! A bounded number of HTTP sessions. Each belongs to one caller.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use futures_util::{Stream, StreamExt};
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use tokio::sync::{Mutex, RwLock};
use tool_http::server::Caller;

use super::config::HttpConfig;

tokio::task_local! {
    /// The caller of the request that the task handles.
    static CALLER: Caller;
}

/// Sets the caller while its request is handled, because the SDK does not pass requests to its session manager.
pub(super) fn with_caller<F: Future>(caller: Caller, handling: F) -> impl Future<Output = F::Output> {
    CALLER.scope(caller, handling)
}

fn current_caller() -> Caller {
    CALLER.try_with(|caller| *caller).unwrap_or(Caller::ANYONE)
}

/// Sessions in memory, limited in number. A session is found only by the caller that began it.
pub(super) struct BoundedSessionManager {
    local: LocalSessionManager,
    sessions: RwLock<HashMap<SessionId, Session>>,
    max_sessions: usize,
    /// Locked while a session is created, so that the limit holds.
    creation: Mutex<()>,
}

struct Session {
    owner: Caller,
    in_flight: Arc<InFlight>,
}

/// The requests of a session that have no response yet. Two with the same id are not accepted, because the SDK stores the
/// connection of a request under its id until it sends the response.
#[derive(Default)]
struct InFlight {
    /// The ids, each with the number of its request: an id can be used again once it has a response.
    ids: std::sync::Mutex<HashMap<RequestId, u64>>,
    last_number: AtomicU64,
    /// Locked while a message is passed on, so that no cancellation overtakes its request.
    order: Mutex<()>,
}

impl InFlight {
    fn with_ids<T>(&self, f: impl FnOnce(&mut HashMap<RequestId, u64>) -> T) -> T {
        f(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of a new request, or `None` if another one with the id is in flight.
    fn begin(&self, id: &RequestId) -> Option<u64> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed);
        self.with_ids(|ids| match ids.entry(id.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(entry) => Some(*entry.insert(number)),
        })
    }

    fn end(&self, id: &RequestId, number: u64) {
        self.with_ids(|ids| ids.get(id) == Some(&number) && ids.remove(id).is_some());
    }
}

fn answered_id(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        ServerJsonRpcMessage::Response(response) => Some(&response.id),
        ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
        ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
    }
}

/// Ends a request that the SDK did not get, to which there is no response.
struct EndOnDrop<'a> {
    in_flight: &'a InFlight,
    request: Option<(RequestId, u64)>,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        if let Some((id, number)) = &self.request {
            self.in_flight.end(id, *number);
        }
    }
}

/// A transport that removes the id of a request once its response is sent.
pub(super) struct SessionTransport<T> {
    inner: T,
    in_flight: Arc<InFlight>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for SessionTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let in_flight = Arc::clone(&self.in_flight);
        let answered = answered_id(&message)
            .and_then(|id| Some((id.clone(), in_flight.with_ids(|ids| ids.get(id).copied())?)));
        let sending = self.inner.send(message);
        async move {
            let sent = sending.await;
            if let Some((id, number)) = answered {
                in_flight.end(&id, number);
            }
            sent
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<ClientJsonRpcMessage>> + Send {
        self.inner.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), T::Error>> + Send {
        self.inner.close()
    }
}

impl BoundedSessionManager {
    pub(super) fn new(config: &HttpConfig) -> Arc<Self> {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(config.session_idle_timeout);
        let (sessions, creation) = (RwLock::default(), Mutex::default());
        Arc::new(Self { local, sessions, max_sessions: config.max_sessions, creation })
    }

    /// Returns `true` if no more sessions can be created.
    pub(super) async fn is_full(&self) -> bool {
        self.local.sessions.read().await.len() >= self.max_sessions
    }

    /// Returns `true` if this is a session of the caller.
    pub(super) async fn belongs_to(&self, id: &SessionId, caller: Caller) -> bool {
        let is_owner = self.sessions.read().await.get(id).is_some_and(|session| session.owner == caller);
        is_owner && self.local.sessions.read().await.contains_key(id)
    }

    /// Returns `true` if a request of the session with this id is in flight.
    pub(super) async fn is_in_flight(&self, id: &SessionId, request: &RequestId) -> bool {
        let in_flight = self.in_flight(id).await;
        in_flight.is_some_and(|in_flight| in_flight.with_ids(|ids| ids.contains_key(request)))
    }

    async fn in_flight(&self, id: &SessionId) -> Option<Arc<InFlight>> {
        self.sessions.read().await.get(id).map(|session| Arc::clone(&session.in_flight))
    }
}

impl SessionManager for BoundedSessionManager {
    type Error = io::Error;
    type Transport = SessionTransport<<LocalSessionManager as SessionManager>::Transport>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), io::Error> {
        let _guard = self.creation.lock().await;
        if self.is_full().await {
            return Err(io::Error::other("too many sessions"));
        }
        let (id, inner) = self.local.create_session().await.map_err(io::Error::other)?;
        let in_flight = Arc::<InFlight>::default();
        let session = Session { owner: current_caller(), in_flight: Arc::clone(&in_flight) };
        let mut sessions = self.sessions.write().await;
        let open = self.local.sessions.read().await;
        sessions.retain(|id, _| open.contains_key(id));
        sessions.insert(SessionId::clone(&id), session);
        Ok((id, SessionTransport { inner, in_flight }))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, io::Error> {
        self.local.initialize_session(id, message).await.map_err(io::Error::other)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, io::Error> {
        Ok(self.belongs_to(id, current_caller()).await)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), io::Error> {
        self.local.close_session(id).await.map_err(io::Error::other)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, io::Error> {
        let in_flight = self.in_flight(id).await.ok_or_else(|| io::Error::other("unknown session"))?;
        let order = in_flight.order.lock().await;
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => match in_flight.begin(&request.id) {
                Some(number) => Some((request.id.clone(), number)),
                None => return Err(io::Error::other("the id belongs to a request in flight")),
            },
            _ => None,
        };
        let mut guard = EndOnDrop { in_flight: &in_flight, request };
        let stream = self.local.create_stream(id, message).await.map_err(io::Error::other)?;
        let request = guard.request.take();
        drop(guard);
        drop(order);
        // A client can use the id again as soon as it has the response.
        Ok(stream.inspect(move |event| {
            if let (Some((id, number)), Some(message)) = (&request, &event.message)
                && answered_id(message).is_some()
            {
                in_flight.end(id, *number);
            }
        }))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), io::Error> {
        let cancelled = match &message {
            ClientJsonRpcMessage::Notification(notification) => match &notification.notification {
                ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.clone(),
                _ => None,
            },
            _ => None,
        };
        let in_flight = self.in_flight(id).await;
        let order = match &in_flight {
            Some(in_flight) => Some(in_flight.order.lock().await),
            None => None,
        };
        self.local.accept_message(id, message).await.map_err(io::Error::other)?;
        // The SDK sends no response to it, unless the id is used again, which `order` still prevents.
        if let (Some(request), Some(in_flight)) = (cancelled, &in_flight) {
            in_flight.with_ids(|ids| ids.remove(&request));
        }
        drop(order);
        Ok(())
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, io::Error> {
        self.local.create_standalone_stream(id).await.map_err(io::Error::other)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, io::Error> {
        self.local.resume(id, last_event_id).await.map_err(io::Error::other)
    }
}
