//! A bounded number of sessions over HTTP.

use std::fmt;
use std::sync::Arc;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use tokio::sync::Mutex;

use super::config::HttpConfig;

/// Sessions in memory, limited in number.
pub(super) struct BoundedSessionManager {
    local: LocalSessionManager,
    max_sessions: usize,
    /// Locked while a session is created, so that the limit holds.
    creation: Mutex<()>,
}

/// An error of the session manager.
#[derive(Debug)]
pub(super) enum SessionError {
    Full,
    Local(LocalSessionManagerError),
}

impl BoundedSessionManager {
    pub(super) fn new(config: &HttpConfig) -> Arc<Self> {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(config.session_idle_timeout);
        Arc::new(Self { local, max_sessions: config.max_sessions, creation: Mutex::default() })
    }

    /// Returns `true` if no more sessions can be created.
    pub(super) async fn is_full(&self) -> bool {
        self.local.sessions.read().await.len() >= self.max_sessions
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("too many sessions"),
            Self::Local(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SessionError {}

impl SessionManager for BoundedSessionManager {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        let _guard = self.creation.lock().await;
        if self.is_full().await {
            return Err(SessionError::Full);
        }
        self.local.create_session().await.map_err(SessionError::Local)
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        self.local.initialize_session(id, message).await.map_err(SessionError::Local)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        self.local.has_session(id).await.map_err(SessionError::Local)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.local.close_session(id).await.map_err(SessionError::Local)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        self.local.create_stream(id, message).await.map_err(SessionError::Local)
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionError> {
        self.local.accept_message(id, message).await.map_err(SessionError::Local)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        self.local.create_standalone_stream(id).await.map_err(SessionError::Local)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        self.local.resume(id, last_event_id).await.map_err(SessionError::Local)
    }
}
