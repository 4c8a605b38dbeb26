//! A bounded number of HTTP sessions, each of which belongs to one caller.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
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
    owners: RwLock<HashMap<SessionId, Caller>>,
    max_sessions: usize,
    /// Locked while a session is created, so that the limit holds.
    creation: Mutex<()>,
}

impl BoundedSessionManager {
    pub(super) fn new(config: &HttpConfig) -> Arc<Self> {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(config.session_idle_timeout);
        let (owners, creation) = (RwLock::default(), Mutex::default());
        Arc::new(Self { local, owners, max_sessions: config.max_sessions, creation })
    }

    /// Returns `true` if no more sessions can be created.
    pub(super) async fn is_full(&self) -> bool {
        self.local.sessions.read().await.len() >= self.max_sessions
    }

    /// Returns `true` if this is a session of the caller.
    pub(super) async fn belongs_to(&self, id: &SessionId, caller: Caller) -> bool {
        let is_owner = self.owners.read().await.get(id) == Some(&caller);
        is_owner && self.local.sessions.read().await.contains_key(id)
    }
}

impl SessionManager for BoundedSessionManager {
    type Error = io::Error;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), io::Error> {
        let _guard = self.creation.lock().await;
        if self.is_full().await {
            return Err(io::Error::other("too many sessions"));
        }
        let (id, transport) = self.local.create_session().await.map_err(io::Error::other)?;
        let mut owners = self.owners.write().await;
        let sessions = self.local.sessions.read().await;
        owners.retain(|id, _| sessions.contains_key(id));
        owners.insert(SessionId::clone(&id), current_caller());
        Ok((id, transport))
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
        self.local.create_stream(id, message).await.map_err(io::Error::other)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), io::Error> {
        self.local.accept_message(id, message).await.map_err(io::Error::other)
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
