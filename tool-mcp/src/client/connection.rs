//! One connection to a server, from the handshake to its end.

#![expect(deprecated, reason = "what the newest protocol has no more is refused all the same")]

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
use super::error::wants_newer_protocol;
use super::inbox::Inbox;
use super::lines::Lines;
use super::observed::Observed;
use super::settings::{Place, Settings};

/// A connection that was initialized. It ends when it is dropped.
pub(super) struct Connection {
    /// Tells this connection from all others.
    pub(super) number: u64,
    pub(super) inbox: Arc<Inbox>,
    service: RunningService<RoleClient, Client>,
}

impl Connection {
    /// Connects and shakes hands, within the time that the settings give.
    pub(super) async fn open(settings: &Settings) -> Result<Self, McpError> {
        let limit = settings.connect_timeout;
        match tokio::time::timeout(limit, Self::shake_hands(settings)).await {
            Ok(opened) => opened,
            Err(_) => Err(McpError::timed_out(&settings.name, "the `initialize` request", limit)),
        }
    }

    async fn shake_hands(settings: &Settings) -> Result<Self, McpError> {
        let inbox = Inbox::new(settings.on_log.clone());
        let served = match serve(settings, &inbox, ClientLifecycleMode::Initialize).await? {
            // A server of the newest protocol alone has no such handshake.
            Err(error) if wants_newer_protocol(&error) => {
                let preferred_versions = vec![ProtocolVersion::LATEST];
                let inbox = Inbox::new(settings.on_log.clone());
                match serve(settings, &inbox, ClientLifecycleMode::Discover { preferred_versions }).await? {
                    Ok(service) => Ok((service, inbox)),
                    Err(_) => Err(error),
                }
            }
            Err(error) => Err(error),
            Ok(service) => Ok((service, inbox.clone())),
        };
        let (service, inbox) = served.map_err(|error| {
            let aside = match inbox.stray_count() {
                0 => String::new(),
                strays => format!("; {strays} lines of its output were no messages of the protocol"),
            };
            McpError::of_start(&settings.name, &error, &aside, &settings.secrets)
        })?;
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let connection = Self { number: NUMBERS.fetch_add(1, Ordering::Relaxed), inbox, service };
        connection.listen();
        Ok(connection)
    }

    /// The newest protocol tells of changes only who asks for them.
    fn listen(&self) {
        let peer = self.peer().clone();
        let is_new = peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize());
        if !is_new {
            return;
        }
        let inbox = Arc::clone(&self.inbox);
        tokio::spawn(async move {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            let Ok(mut changes) = peer.listen(filter).await else { return };
            while let Ok(Some(change)) = changes.next().await {
                if matches!(change, ServerNotification::ToolListChangedNotification(_)) {
                    inbox.tools_changed();
                }
            }
        });
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }
}

type Served = Result<RunningService<RoleClient, Client>, ClientInitializeError>;

async fn serve(
    settings: &Settings,
    inbox: &Arc<Inbox>,
    lifecycle: ClientLifecycleMode,
) -> Result<Served, McpError> {
    let lines = |pipes: super::child::Pipes| {
        Lines::new(pipes.reader, pipes.writer, settings.max_message, Arc::clone(inbox))
    };
    match &settings.place {
        Place::Process(process) => {
            let program = process.program.to_string_lossy();
            let pipes =
                process.start().map_err(|error| McpError::not_started(&settings.name, &program, &error))?;
            Ok(handshake(lines(pipes), inbox, lifecycle).await)
        }
        Place::Connector(connect) => {
            let pipes = connect().await.map_err(|error| {
                McpError::unreachable(&settings.name, format_args!("cannot be reached: {error}"))
            })?;
            Ok(handshake(lines(pipes), inbox, lifecycle).await)
        }
        Place::Http(http) => {
            let transport = http
                .transport(settings.max_message, inbox)
                .map_err(|what| McpError::config(&settings.name, what))?;
            Ok(handshake(transport, inbox, lifecycle).await)
        }
    }
}

async fn handshake<T>(transport: T, inbox: &Arc<Inbox>, lifecycle: ClientLifecycleMode) -> Served
where
    T: Transport<RoleClient> + 'static,
{
    let transport = Observed::new(transport, Arc::clone(inbox));
    serve_client_with_lifecycle(Client, transport, lifecycle).await
}

/// What this side says of itself, and how it refuses what it never said that it can do.
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
