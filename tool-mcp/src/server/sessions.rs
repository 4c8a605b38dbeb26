//! The sessions of clients over HTTP, as many as there may be.

use std::fmt;
use std::sync::Arc;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use tokio::sync::Mutex;

use super::settings::HttpSettings;

/// Sessions in memory.
pub(super) struct Sessions {
    local: LocalSessionManager,
    most: usize,
    /// Held while one is made, so that their number is no more than it may be.
    making: Mutex<()>,
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum SessionError {
    Full,
    Local(LocalSessionManagerError),
}

impl Sessions {
    pub(super) fn new(settings: &HttpSettings) -> Arc<Self> {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(settings.longest_idle);
        Arc::new(Self { local, most: settings.most_sessions, making: Mutex::default() })
    }

    /// There is no room for one more.
    pub(super) async fn are_full(&self) -> bool {
        self.local.sessions.read().await.len() >= self.most
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("there are too many sessions"),
            Self::Local(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SessionError {}

impl SessionManager for Sessions {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        let _alone = self.making.lock().await;
        if self.are_full().await {
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
