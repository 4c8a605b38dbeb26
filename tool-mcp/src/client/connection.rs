//! One connection to a server, from the handshake to its end.

#![expect(deprecated, reason = "requests that the newest protocol removed are rejected all the same")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, ErrorData, Implementation, ProtocolVersion};
use rmcp::model::{
    CreateMessageRequestMethod, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationCreateRequestMethod, ListRootsRequestMethod, ListRootsResult,
    ServerNotification, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, RequestContext, RoleClient, RunningService,
    serve_client_with_lifecycle,
};
use rmcp::transport::Transport;

use super::McpError;
use super::config::{Endpoint, ServerConfig};
use super::error::requires_newer_protocol;
use super::line_transport::LineTransport;
use super::monitor::{Monitor, MonitoredTransport};
use super::process::Pipes;

/// An initialized connection, which ends when it is dropped.
pub(super) struct Connection {
    /// Identifies this connection among all of the process.
    pub(super) number: u64,
    pub(super) monitor: Arc<Monitor>,
    service: RunningService<RoleClient, Client>,
}

impl Connection {
    /// Connects and initializes within the configured time.
    pub(super) async fn open(config: &ServerConfig) -> Result<Self, McpError> {
        let limit = config.connect_timeout;
        match tokio::time::timeout(limit, Self::initialize(config)).await {
            Ok(opened) => opened,
            Err(_) => Err(McpError::timeout(&config.name, "the `initialize` request", limit)),
        }
    }

    async fn initialize(config: &ServerConfig) -> Result<Self, McpError> {
        let monitor = Monitor::new(config.on_log.clone());
        let initialized = match connect(config, &monitor, ClientLifecycleMode::Initialize).await? {
            // A server that supports only the newest protocol has no `initialize` request.
            Err(error) if requires_newer_protocol(&error) => {
                let preferred_versions = vec![ProtocolVersion::LATEST];
                let monitor = Monitor::new(config.on_log.clone());
                match connect(config, &monitor, ClientLifecycleMode::Discover { preferred_versions }).await? {
                    Ok(service) => Ok((service, monitor)),
                    Err(_) => Err(error),
                }
            }
            Err(error) => Err(error),
            Ok(service) => Ok((service, monitor.clone())),
        };
        let (service, monitor) = initialized.map_err(|error| {
            let note = match monitor.invalid_messages() {
                0 => String::new(),
                1 => "; 1 line of its output is not a valid protocol message".into(),
                count => format!("; {count} lines of its output are not valid protocol messages"),
            };
            McpError::from_initialize_error(&config.name, &error, &note, &config.redactor)
        })?;
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
        let connection = Self { number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed), monitor, service };
        connection.subscribe_to_tool_changes();
        Ok(connection)
    }

    /// Subscribes to changes of the tools if the protocol is the newest, which sends them only to subscribers.
    fn subscribe_to_tool_changes(&self) {
        let peer = self.peer().clone();
        let needs_subscription = peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize());
        if !needs_subscription {
            return;
        }
        let monitor = Arc::clone(&self.monitor);
        tokio::spawn(async move {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            let Ok(mut changes) = peer.listen(filter).await else { return };
            while let Ok(Some(change)) = changes.next().await {
                if matches!(change, ServerNotification::ToolListChangedNotification(_)) {
                    monitor.note_tool_change();
                }
            }
        });
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }
}

type HandshakeResult = Result<RunningService<RoleClient, Client>, ClientInitializeError>;

async fn connect(
    config: &ServerConfig,
    monitor: &Arc<Monitor>,
    lifecycle: ClientLifecycleMode,
) -> Result<HandshakeResult, McpError> {
    let over_lines = |pipes: Pipes| {
        LineTransport::new(pipes.reader, pipes.writer, config.max_message_bytes, Arc::clone(monitor))
    };
    match &config.endpoint {
        Endpoint::Process(process) => {
            let program = process.program.to_string_lossy();
            let pipes =
                process.start().map_err(|error| McpError::not_started(&config.name, &program, &error))?;
            Ok(handshake(over_lines(pipes), monitor, lifecycle).await)
        }
        Endpoint::Connector(connector) => {
            let pipes = connector().await.map_err(|error| {
                McpError::unreachable(&config.name, format_args!("cannot be reached: {error}"))
            })?;
            Ok(handshake(over_lines(pipes), monitor, lifecycle).await)
        }
        Endpoint::Http(http) => {
            let transport = http
                .transport(config.max_message_bytes, monitor)
                .map_err(|reason| McpError::invalid_config(&config.name, reason))?;
            Ok(handshake(transport, monitor, lifecycle).await)
        }
    }
}

async fn handshake<T>(transport: T, monitor: &Arc<Monitor>, lifecycle: ClientLifecycleMode) -> HandshakeResult
where
    T: Transport<RoleClient> + 'static,
{
    let transport = MonitoredTransport::new(transport, Arc::clone(monitor));
    serve_client_with_lifecycle(Client, transport, lifecycle).await
}

/// Describes this client to the server and rejects requests for capabilities that it does not declare.
struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Err(ErrorData::method_not_found::<CreateMessageRequestMethod>())
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(ErrorData::method_not_found::<ElicitationCreateRequestMethod>())
    }
}
