//! The client of the official SDK over every kind of connection.

#![expect(deprecated, reason = "most clients still use logging")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::Value;
use tool_mcp::server::{RunningServer, Server};

/// The transport of a client and the version of its protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Connection {
    Streams,
    StreamsNewest,
    Http,
    HttpNewest,
}

impl Connection {
    pub(crate) const ALL: [Self; 4] = [Self::Streams, Self::StreamsNewest, Self::Http, Self::HttpNewest];

    pub(crate) fn is_newest(self) -> bool {
        matches!(self, Self::StreamsNewest | Self::HttpNewest)
    }

    pub(crate) fn lifecycle(self) -> ClientLifecycleMode {
        if self.is_newest() {
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
        } else {
            ClientLifecycleMode::Initialize
        }
    }
}

/// The notifications that a client has received.
#[derive(Clone, Default)]
pub(crate) struct Notifications {
    pub(crate) progress: Arc<Mutex<Vec<ProgressNotificationParam>>>,
    pub(crate) logs: Arc<Mutex<Vec<LoggingMessageNotificationParam>>>,
    pub(crate) changes: Arc<Mutex<usize>>,
}

impl ClientHandler for Notifications {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("tests", "1"))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap().push(params);
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.logs.lock().unwrap().push(params);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        *self.changes.lock().unwrap() += 1;
    }
}

pub(crate) struct Client {
    pub(crate) service: RunningService<RoleClient, Notifications>,
    pub(crate) notifications: Notifications,
    // Runs as long as the client exists.
    pub(crate) server: Option<RunningServer>,
}

impl Client {
    pub(crate) async fn connect(connection: Connection, server: Server) -> Self {
        let notifications = Notifications::default();
        let (service, server) = match connection {
            Connection::Streams | Connection::StreamsNewest => {
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                let (input, output) = tokio::io::split(theirs);
                tokio::spawn(async move { server.serve_streams(input, output).await.unwrap() });
                (
                    notifications.clone().serve_with_lifecycle(ours, connection.lifecycle()).await.unwrap(),
                    None,
                )
            }
            Connection::Http | Connection::HttpNewest => {
                let server = server.spawn("127.0.0.1:0").await.unwrap();
                (
                    connect_http(&server.url(), None, connection, notifications.clone()).await.unwrap(),
                    Some(server),
                )
            }
        };
        Self { service, notifications, server }
    }

    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Result<CallToolResult, ServiceError> {
        tokio::time::timeout(Duration::from_secs(120), self.service.call_tool(params(name, arguments)))
            .await
            .unwrap()
    }

    /// Returns the text of a call's result, and `true` if it is an error.
    pub(crate) async fn text(&self, name: &str, arguments: Value) -> (String, bool) {
        text(&self.call(name, arguments).await.unwrap())
    }
}

pub(crate) fn params(name: &str, arguments: Value) -> CallToolRequestParams {
    let params = CallToolRequestParams::new(name.to_owned());
    match arguments {
        Value::Object(arguments) => params.with_arguments(arguments),
        _ => params,
    }
}

pub(crate) fn text(result: &CallToolResult) -> (String, bool) {
    let texts: Vec<_> =
        result.content.iter().filter_map(|block| Some(block.as_text()?.text.clone())).collect();
    (texts.join("|"), result.is_error == Some(true))
}

/// Connects to a server over HTTP.
pub(crate) async fn connect_http<H: ClientHandler>(
    url: &str,
    token: Option<&str>,
    connection: Connection,
    handler: H,
) -> Result<RunningService<RoleClient, H>, rmcp::service::ClientInitializeError> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    if let Some(token) = token {
        config = config.auth_header(token);
    }
    let transport = StreamableHttpClientTransport::with_client(http(), config);
    handler.serve_with_lifecycle(transport, connection.lifecycle()).await
}

pub(crate) fn http() -> reqwest::Client {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).build().unwrap()
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..24_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the condition does not hold after two minutes");
}
