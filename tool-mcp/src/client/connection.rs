//! One connection to a server, from the handshake to its end, and the proof that it can be used.
//!
//! With a pinned fingerprint, calls need a `VerifiedConnection`, which exists only after the connection's own listing was compared, because
//! reconnections and sessions would otherwise be ways around the comparison.
//!
//! A server of an unknown revision gets `server/discover` first, because one that speaks both eras could else only ask on an open connection.
//! The author sets it (`older_revision`) for one whose tools ask in no other way.
//!
//! Only servers of the newest revision learn that a user can be asked, because older ones would wait on an open connection, unless the author
//! sets how long (`question_timeout`).

#![expect(deprecated, reason = "requests that the newest protocol removed are rejected all the same")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientRequest, ElicitationCapability, ErrorData,
    FormElicitationCapability, Implementation, ListToolsRequest, PaginatedRequestParams, ProtocolVersion,
    ServerPeerInfo, ServerResult, UrlElicitationCapability,
};
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCreateRequestMethod,
    ListRootsRequestMethod, ListRootsResult, ServerNotification, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, PeerRequestOptions, RequestContext, RoleClient,
    RunningService, ServiceError, serve_client_with_lifecycle,
};
use rmcp::transport::Transport;
use rmcp::{ClientCacheConfig, ClientHandler};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tool_http::Backoff;

use super::config::{Endpoint, ServerConfig};
use super::error::{may_be_older, requires_newer_protocol};
use super::line_transport::LineTransport;
use super::listing::Listing;
use super::monitor::{Monitor, MonitoredTransport};
use super::{Difference, Fingerprint, McpError, McpErrorKind};
use crate::quiet::SdkRuntime;

/// The delays before attempts to reconnect, or to subscribe again.
pub(super) const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// The time that a connection or a subscription has to last before its loss resets the delay.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(30);

/// The largest number of responses that are stored because the server allows it.
const MAX_CACHED: usize = 16;

/// An initialized connection, which ends when it is dropped. Only a [`VerifiedConnection`] can be used for more than a listing.
pub(super) struct Connection {
    /// Identifies this connection among all of the process.
    pub(super) number: u64,
    pub(super) monitor: Arc<Monitor>,
    service: RunningService<RoleClient, Client>,
    /// The number of listings that were requested.
    listings: AtomicU64,
    /// The last listing of this connection that was verified.
    verified: Mutex<Option<VerifiedListing>>,
}

/// A listing that equals the pinned fingerprint, if there is one.
pub(super) struct VerifiedListing {
    listing: Arc<Listing>,
    /// The number of tool changes before the listing was requested. It is out of date after another one.
    tool_changes: u64,
    /// The number of the listing among those of its connection, from 1.
    number: u64,
    /// The end of the time for which the server allows to use the listing.
    expires: Option<Instant>,
}

impl VerifiedListing {
    /// # Errors
    ///
    /// Returns the difference if the listing differs from the pinned fingerprint.
    pub(super) fn new(
        listing: Arc<Listing>,
        tool_changes: u64,
        number: u64,
        expires: Option<Instant>,
        pinned: Option<&Fingerprint>,
    ) -> Result<Self, Difference> {
        match pinned.and_then(|pinned| pinned.difference(&Fingerprint::from_listing(&listing))) {
            Some(difference) => Err(difference),
            None => Ok(Self { listing, tool_changes, number, expires }),
        }
    }
}

/// A connection that can be used: its own listing is up to date and equals the pinned fingerprint, if there is one.
#[derive(Clone)]
pub(super) struct VerifiedConnection(Arc<Connection>);

impl VerifiedConnection {
    /// Returns `None` if there is a pinned fingerprint and the tools must be listed and compared first.
    pub(super) fn new(connection: Arc<Connection>, pinned: Option<&Fingerprint>) -> Option<Self> {
        (pinned.is_none() || connection.has_verified_listing()).then_some(Self(connection))
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.0.service.peer()
    }

    pub(super) fn info(&self) -> Option<Arc<ServerPeerInfo>> {
        self.0.info()
    }

    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    pub(super) fn monitor(&self) -> &Monitor {
        &self.0.monitor
    }

    pub(super) fn is_legacy(&self) -> bool {
        self.0.is_legacy()
    }
}

impl Connection {
    /// Connects and initializes within the configured time. `is_legacy` states that the server was one of an older revision before.
    pub(super) async fn open(config: &ServerConfig, is_legacy: bool) -> Result<Self, McpError> {
        let limit = config.connect_timeout;
        match tokio::time::timeout(limit, Self::initialize(config, is_legacy || config.is_older)).await {
            Ok(opened) => opened,
            Err(_) => Err(McpError::timeout(&config.name, "the handshake", limit)),
        }
    }

    /// Finds out which revision the server speaks: the SDK requests `server/discover` and, if the server does not know that, `initialize` on
    /// the same connection. A server that fails otherwise gets the other request on a new connection.
    async fn initialize(config: &ServerConfig, is_legacy: bool) -> Result<Self, McpError> {
        let runtime = SdkRuntime::new(config.records_messages).map_err(|error| {
            let problem = format!("cannot be used: its threads cannot be started: {error}");
            McpError::unreachable(&config.name, problem)
        })?;
        let attempt = async |lifecycle| attempt(config, &runtime, lifecycle).await;
        let is_refused = |error: &McpError| {
            use McpErrorKind::{LoginRefused, LoginRequired, Unauthorized};
            matches!(error.kind(), LoginRequired | LoginRefused | Unauthorized)
        };
        let preferred_versions = vec![ProtocolVersion::LATEST];
        let legacy_version = Some(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let first = match is_legacy {
            true => ClientLifecycleMode::Initialize,
            false => {
                ClientLifecycleMode::Auto { preferred_versions: preferred_versions.clone(), legacy_version }
            }
        };
        let initialized = match attempt(first).await? {
            Err((_, reason)) if is_refused(&reason) => Err(reason),
            Err((error, reason)) if requires_newer_protocol(&error) => {
                match attempt(ClientLifecycleMode::Discover { preferred_versions }).await? {
                    Err((_, newer)) if is_refused(&newer) => Err(newer),
                    second => second.map_err(|_| reason),
                }
            }
            Err((error, _)) if !is_legacy && may_be_older(&error) => {
                attempt(ClientLifecycleMode::Initialize).await?.map_err(|(_, reason)| reason)
            }
            first => first.map_err(|(_, reason)| reason),
        };
        let (service, monitor) = initialized?;
        // An outdated resource could be one that the user may no longer read.
        let cache =
            ClientCacheConfig::default().with_serve_stale_on_error(false).with_max_entries(MAX_CACHED);
        service.peer().set_response_cache_config(cache).await;
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let listings = AtomicU64::new(0);
        let connection = Self { number, monitor, service, listings, verified: Mutex::default() };
        connection.subscribe_to_tool_changes();
        Ok(connection)
    }

    /// Subscribes to changes of the tools if the protocol is the newest, which sends them only to subscribers.
    fn subscribe_to_tool_changes(&self) {
        if self.is_legacy() {
            return;
        }
        let (peer, monitor) = (self.service.peer().clone(), Arc::clone(&self.monitor));
        tokio::spawn(async move {
            tokio::select! {
                () = monitor.retired() => {}
                () = follow_tool_changes(&peer, &monitor) => {}
            }
        });
    }

    /// Returns the server's description of itself, which is not verified.
    pub(super) fn info(&self) -> Option<Arc<ServerPeerInfo>> {
        self.service.peer().peer_info()
    }

    /// Returns `true` if the server speaks a revision before 2026-07-28.
    pub(super) fn is_legacy(&self) -> bool {
        self.info().is_none_or(|info| info.protocol_version.has_initialize())
    }

    /// Requests a page of the tools.
    pub(super) async fn request_tools(
        &self,
        params: PaginatedRequestParams,
        timeout: Duration,
    ) -> Result<ServerResult, ServiceError> {
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let options = PeerRequestOptions::with_timeout(timeout);
        self.service.peer().send_cancellable_request(request, options).await?.await_response().await
    }

    /// Returns how many listings were requested.
    pub(super) fn listings(&self) -> u64 {
        self.listings.load(Ordering::SeqCst)
    }

    /// Returns the number of a listing that is about to be requested.
    pub(super) fn begin_listing(&self) -> u64 {
        self.listings.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns the verified listing unless the server reported a change since it was requested, or its time is over. One that was requested
    /// after this number of others is current in any case, because it was requested after it was needed.
    pub(super) fn current_listing(&self, needed_after: u64) -> Option<Arc<Listing>> {
        let verified = self.verified();
        let verified = verified.as_ref()?;
        let is_usable = || verified.expires.is_none_or(|end| Instant::now() < end);
        (verified.number > needed_after || self.is_unchanged(verified) && is_usable())
            .then(|| Arc::clone(&verified.listing))
    }

    /// Returns `true` unless the server reported a change since the verified listing was requested. The time of a listing does not matter,
    /// because that of a new one can be over when it arrives.
    fn has_verified_listing(&self) -> bool {
        self.verified().as_ref().is_some_and(|verified| self.is_unchanged(verified))
    }

    fn is_unchanged(&self, verified: &VerifiedListing) -> bool {
        verified.tool_changes == self.monitor.tool_changes()
    }

    fn verified(&self) -> MutexGuard<'_, Option<VerifiedListing>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_listing(&self, listing: Option<VerifiedListing>) {
        *self.verified() = listing;
    }
}

/// Records changes of the tools, and subscribes again when the subscription ends. Meanwhile, the tools can change without notice.
async fn follow_tool_changes(peer: &Peer<RoleClient>, monitor: &Monitor) {
    let (mut attempts, mut is_first) = (0, true);
    loop {
        let started = Instant::now();
        match peer.listen(SubscriptionFilter::builder().tools_list_changed().build()).await {
            Ok(mut changes) => {
                if !is_first {
                    monitor.note_tool_change();
                }
                while let Ok(Some(change)) = changes.next().await {
                    if matches!(change, ServerNotification::ToolListChangedNotification(_)) {
                        monitor.note_tool_change();
                    }
                }
                monitor.note_tool_change();
            }
            // The server has no subscriptions.
            Err(ServiceError::McpError(_)) => return,
            Err(_) => {}
        }
        if started.elapsed() >= STABLE_AFTER {
            attempts = 0;
        }
        tokio::time::sleep(BACKOFF.delay(attempts)).await;
        (attempts, is_first) = (attempts.saturating_add(1), false);
    }
}

/// A connection, or the reason why there is none, as the SDK and as callers see it.
type Attempt = Result<(RunningService<RoleClient, Client>, Arc<Monitor>), (ClientInitializeError, McpError)>;

async fn attempt(
    config: &ServerConfig,
    runtime: &SdkRuntime,
    lifecycle: ClientLifecycleMode,
) -> Result<Attempt, McpError> {
    let monitor = Monitor::new(config.on_log.clone(), config.question_timeout, runtime.clone());
    let error = match connect(config, &monitor, lifecycle).await? {
        Ok(service) => return Ok(Ok((service, monitor))),
        Err(error) => error,
    };
    let note = match monitor.invalid_messages() {
        0 => String::new(),
        1 => "; 1 line of its output is not a valid protocol message".into(),
        count => format!("; {count} lines of its output are not valid protocol messages"),
    };
    let reason = McpError::from_initialize_error(&config.name, &error, &note, &config.redactor);
    Ok(Err((error, reason)))
}

type HandshakeResult = Result<RunningService<RoleClient, Client>, ClientInitializeError>;

async fn connect(
    config: &ServerConfig,
    monitor: &Arc<Monitor>,
    lifecycle: ClientLifecycleMode,
) -> Result<HandshakeResult, McpError> {
    let pipes = match &config.endpoint {
        Endpoint::Process(process) => process.start().map_err(|error| {
            McpError::not_started(&config.name, &process.program.to_string_lossy(), &error)
        })?,
        Endpoint::Connector(connector) => connector()
            .await
            .map_err(|error| McpError::not_connected(&config.name, &error, &config.redactor))?,
        Endpoint::Http(http) => {
            let program = Handle::current();
            let transport = monitor
                .runtime()
                .enter(|| http.transport(program, config.max_message_bytes, &config.redactor, monitor))
                .map_err(|reason| McpError::invalid_config(&config.name, reason))?;
            return Ok(handshake(transport, monitor, lifecycle).await);
        }
    };
    let transport = LineTransport::new(pipes, config.max_message_bytes, Arc::clone(monitor));
    Ok(handshake(transport, monitor, lifecycle).await)
}

async fn handshake<T>(transport: T, monitor: &Arc<Monitor>, lifecycle: ClientLifecycleMode) -> HandshakeResult
where
    T: Transport<RoleClient> + 'static,
{
    let transport = MonitoredTransport::new(transport, Arc::clone(monitor));
    let client = Client(Arc::clone(monitor));
    monitor.runtime().run(serve_client_with_lifecycle(client, transport, lifecycle)).await
}

/// The name of the extension by which a client states that it fetches the results of tasks.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Describes this client to the server and rejects requests for capabilities that it does not declare, as the SDK does with sampling.
/// The monitor removes from the handshake of older revisions what is only for the newest one.
struct Client(Arc<Monitor>);

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(
            ElicitationCapability::new()
                .with_form(FormElicitationCapability::default())
                .with_url(UrlElicitationCapability::default()),
        );
        capabilities.extensions.get_or_insert_default().insert(TASKS.to_owned(), serde_json::Map::new());
        ClientConfig::new(capabilities, name).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let Some(limit) = self.0.question_timeout() else {
            return Err(ErrorData::method_not_found::<ElicitationCreateRequestMethod>());
        };
        let answer = match self.0.only_call().and_then(|call| call.ask(asked)) {
            Some(answered) => tokio::select! {
                answer = answered => answer.ok().flatten(),
                () = tokio::time::sleep(limit) => None,
                () = context.ct.cancelled() => None,
            },
            None => None,
        };
        Ok(answer.unwrap_or_else(|| ElicitResult::new(ElicitationAction::Cancel)))
    }
}
