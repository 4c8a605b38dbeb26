//! A bounded number of HTTP sessions, each of which belongs to one caller.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, PoisonError};

use futures_util::Stream;
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
    in_flight: RequestIds,
}

/// The ids of the requests that have no response yet. Two with the same id are not accepted, because the SDK stores the connection
/// of a request under its id until it sends the response.
#[derive(Clone, Default)]
struct RequestIds(Arc<std::sync::Mutex<HashSet<RequestId>>>);

impl RequestIds {
    fn with<T>(&self, f: impl FnOnce(&mut HashSet<RequestId>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The messages of a session, of which responses end requests.
pub(super) struct SessionTransport<T> {
    inner: T,
    in_flight: RequestIds,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for SessionTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let answered = match &message {
            ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ServerJsonRpcMessage::Error(error) => error.id.clone(),
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
        };
        let (sending, in_flight) = (self.inner.send(message), self.in_flight.clone());
        async move {
            let sent = sending.await;
            answered.map(|id| in_flight.with(|ids| ids.remove(&id)));
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
        let sessions = self.sessions.read().await;
        sessions.get(id).is_some_and(|session| session.in_flight.with(|ids| ids.contains(request)))
    }

    async fn begin_request(&self, id: &SessionId, request: &RequestId) -> Result<(), io::Error> {
        let sessions = self.sessions.read().await;
        let session = sessions.get(id).ok_or_else(|| io::Error::other("unknown session"))?;
        let is_new = session.in_flight.with(|ids| ids.insert(request.clone()));
        if is_new { Ok(()) } else { Err(io::Error::other("the id is that of a request in flight")) }
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
        let in_flight = RequestIds::default();
        let session = Session { owner: current_caller(), in_flight: in_flight.clone() };
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
        if let ClientJsonRpcMessage::Request(request) = &message {
            self.begin_request(id, &request.id).await?;
        }
        self.local.create_stream(id, message).await.map_err(io::Error::other)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), io::Error> {
        let cancelled = match &message {
            ClientJsonRpcMessage::Notification(notification) => match &notification.notification {
                ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.clone(),
                _ => None,
            },
            _ => None,
        };
        self.local.accept_message(id, message).await.map_err(io::Error::other)?;
        // The SDK sends no response to it.
        if let (Some(request), Some(session)) = (cancelled, self.sessions.read().await.get(id)) {
            session.in_flight.with(|ids| ids.remove(&request));
        }
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
