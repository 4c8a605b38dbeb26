//! One client, and what all clients of a server share.

// The newest protocol drops logging; most clients speak an older one.
#![expect(deprecated)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode, ErrorData,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use tokio::sync::RwLock;
use tokio::task::AbortHandle;
use tool_core::{ToolCall, ToolErrorKind};

use super::call::Caller;
use super::live::LiveTools;
use super::log::Level;
use super::offer::Offer;
use super::settings::Settings;
use super::stopping::Stopping;
use super::{output, progress};

/// What all clients of a server share.
pub(super) struct Shared {
    tools: LiveTools,
    settings: Settings,
    stopping: Stopping,
    offer: Mutex<Arc<Offer>>,
    side_by_side: RwLock<()>,
    calls: AtomicU64,
}

impl Shared {
    pub(super) fn new(tools: LiveTools, settings: Settings, stopping: Stopping) -> Self {
        let offer = Mutex::new(Arc::new(Offer::of(tools.current(), &settings)));
        Self { tools, settings, stopping, offer, side_by_side: RwLock::default(), calls: AtomicU64::new(1) }
    }

    pub(super) fn stopping(&self) -> &Stopping {
        &self.stopping
    }

    /// What is served now.
    fn offer(&self) -> Arc<Offer> {
        let mut offer = self.offer.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.tools.current();
        if offer.generation() != current.number {
            *offer = Arc::new(Offer::of(current, &self.settings));
        }
        Arc::clone(&offer)
    }
}

/// One client; over HTTP and the newest protocol, which has no sessions, one request.
pub(super) struct Session {
    shared: Arc<Shared>,
    level: Level,
    telling: Mutex<Option<AbortHandle>>,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, level: Level::default(), telling: Mutex::default() }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(telling) = self.telling.get_mut().unwrap_or_else(PoisonError::into_inner) {
            telling.abort();
        }
    }
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let Settings { about, instructions, .. } = &self.shared.settings;
        let capabilities =
            ServerCapabilities::builder().enable_logging().enable_tools().enable_tool_list_changed().build();
        let mut info = ServerConfig::new(capabilities).with_server_info(about.clone());
        info.instructions.clone_from(instructions);
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        self.shared.offer().page(cursor.as_deref(), self.shared.settings.page_size)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.offer().get(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let shared = &*self.shared;
        let offer = shared.offer();
        let id = format!("call_{}", shared.calls.fetch_add(1, Ordering::Relaxed));
        let arguments = serde_json::Value::Object(request.arguments.unwrap_or_default()).to_string();
        let call = ToolCall::new(id.clone(), &*request.name, arguments);
        let caller = Caller {
            tools: &offer.set,
            context: &shared.settings.context,
            approver: shared.settings.approver.as_ref(),
            side_by_side: &shared.side_by_side,
        };
        let log = self.level.log(&context, &request.name, &id);
        let token = context.meta.get_progress_token();
        let made = async {
            if offer.set.get(&call.name).is_some() {
                log.started().await;
            }
            let clock = Instant::now();
            let outcome =
                progress::told(&context.peer, token, async |progress| caller.make(call, progress).await)
                    .await;
            match outcome {
                Ok(output) => {
                    log.finished(clock.elapsed()).await;
                    let schema = shared.settings.output_schemas.get(&*request.name);
                    Ok(output::result(&output, schema).into())
                }
                Err(error) if error.kind() == ToolErrorKind::UnknownTool => {
                    Err(ErrorData::invalid_params(error.to_string(), None))
                }
                Err(error) => {
                    log.failed(error.kind(), clock.elapsed()).await;
                    Ok(output::failure(&error.to_string()).into())
                }
            }
        };
        tokio::select! {
            result = made => result,
            // Nobody reads the answer.
            () = context.ct.cancelled() => Err(ErrorData::internal_error("the call was cancelled", None)),
        }
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.level.set(request.level);
        Ok(())
    }

    /// A method that is known comes here, too, if what it takes cannot be read.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        Err(match &*method {
            "initialize" | "tools/list" | "tools/call" | "logging/setLevel" => {
                ErrorData::invalid_params(format!("the parameters are not those of `{method}`"), None)
            }
            _ => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None),
        })
    }

    /// Tells the client of every change of the tools, as long as the session lasts.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut changes = self.shared.tools.changes();
        let telling = tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                if context.peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
        let mut earlier = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = earlier.replace(telling.abort_handle()) {
            earlier.abort();
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::default();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    /// The same, for a client of the newest protocol.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shared.tools.changes();
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    let listens = context.accepted().tools_list_changed == Some(true);
                    if changed.is_err() || listens && context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
                () = context.cancelled() => return Ok(()),
                () = self.shared.stopping.begun() => return Ok(()),
            }
        }
    }
}
