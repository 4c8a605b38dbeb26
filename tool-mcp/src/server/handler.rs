//! The handler of a client's messages, and the state that all clients share.

// The newest protocol removes logging, but most clients speak an older one.
#![expect(deprecated)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::http::request::Parts;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CustomRequest, CustomResult,
    ErrorCode, ErrorData, GetTaskParams, GetTaskResult, InitializeRequestParams, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscriptionFilter,
    SubscriptionsListenRequestParams, Tool, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tool_core::engine::CallRequest;
use tool_core::model::{RunUser, ToolDefinition};
use tool_core::tool::Progress;
use tool_core::{ToolCall, ToolError};
use tool_http::server::{Caller, SenderPermits, Shutdown};

use super::authorize::Principal;
use super::call::{Executed, abandon};
use super::catalog::ToolCatalog;
use super::config::Config;
use super::exclusivity::Exclusivity;
use super::found_task::FoundTask;
use super::log::SessionLogLevel;
use super::progress::with_progress;
use super::protected_resource::Protection;
use super::questions::{HostCall, is_newest, permits_to_ask, why_unable_to_ask};
use super::sealed_state::StateSealer;
use super::task_id::TaskId;
use super::tasks::Tasks;
use super::tools_handle::{Generation, ToolsHandle};
use super::{call, output};
use crate::quiet::{SdkRuntime, run_on};

/// The state that all clients of a server share.
pub(super) struct ServerState {
    tools: ToolsHandle,
    config: Config,
    shutdown: Shutdown,
    catalog: Mutex<Arc<ToolCatalog>>,
    exclusivity: Exclusivity,
    tasks: Option<Arc<Tasks>>,
    next_call: AtomicU64,
    sealer: StateSealer,
    asking: SenderPermits,
    runtime: SdkRuntime,
    /// The runtime that serves the tools and executes them.
    host: Mutex<Option<Handle>>,
}

impl ServerState {
    pub(super) fn new(
        tools: ToolsHandle,
        config: Config,
        exclusivity: Exclusivity,
        tasks: Option<Arc<Tasks>>,
        shutdown: Shutdown,
        runtime: SdkRuntime,
        sealer: StateSealer,
    ) -> Self {
        let catalog = Mutex::new(Arc::new(ToolCatalog::new(tools.current(), &config)));
        let (next_call, host, asking) = (AtomicU64::new(1), Mutex::default(), permits_to_ask());
        Self {
            tools,
            config,
            shutdown,
            catalog,
            exclusivity,
            tasks,
            next_call,
            sealer,
            asking,
            runtime,
            host,
        }
    }

    /// Returns the runtime of the SDK's tasks.
    pub(super) fn runtime(&self) -> &SdkRuntime {
        &self.runtime
    }

    pub(super) fn set_host(&self, host: Handle) {
        if let Some(tasks) = &self.tasks {
            tasks.recover_on(&host);
        }
        *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(host);
    }

    fn host(&self) -> Handle {
        let host = self.host.lock().unwrap_or_else(PoisonError::into_inner).clone();
        host.unwrap_or_else(Handle::current)
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns what authorizes requests over HTTP.
    pub(super) fn protection(&self) -> Option<&Protection> {
        self.config.http.protection.as_ref()
    }

    pub(super) fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Returns the catalog of the current tools.
    fn catalog(&self) -> Arc<ToolCatalog> {
        let mut catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.tools.current();
        if catalog.generation != current.number {
            *catalog = Arc::new(ToolCatalog::new(current, &self.config));
        }
        Arc::clone(&catalog)
    }
}

/// The handler of one session; over HTTP with the newest protocol, which has no sessions, of one request.
pub(super) struct Handler {
    state: Arc<ServerState>,
    log_level: SessionLogLevel,
    /// The replacements of tools since the session began, or since the client last read the list.
    changes: Mutex<watch::Receiver<Generation>>,
    /// The task that notifies the client of replaced tools.
    change_notifier: Mutex<Option<AbortHandle>>,
}

impl Handler {
    pub(super) fn new(state: Arc<ServerState>) -> Self {
        let changes = Mutex::new(state.tools.subscribe());
        Self { state, log_level: SessionLogLevel::default(), changes, change_notifier: Mutex::default() }
    }

    /// Does something with a task of the caller, in the runtime of the program, because it has the store.
    async fn with_task<T, F>(
        &self,
        id: String,
        context: &RequestContext<RoleServer>,
        act: impl FnOnce(Arc<Tasks>, FoundTask) -> F + Send + 'static,
    ) -> Result<T, ErrorData>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ErrorData>> + Send,
    {
        let no_tasks = || ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "the server has no tasks", None);
        let tasks = self.state.tasks.clone().ok_or_else(no_tasks)?;
        let (state, caller) = (Arc::clone(&self.state), caller(context));
        let principal = extension::<Principal>(context).cloned();
        let acting = async move {
            let may_use = |tool: &str| state.config.missing_scopes(tool, principal.as_ref()).is_none();
            let task = tasks.find(caller, &id, may_use).await?;
            act(tasks, task).await
        };
        let acted = run_on(&self.state.host(), acting).await;
        acted.unwrap_or_else(|| Err(ErrorData::internal_error("the request was interrupted", None)))
    }

    /// Returns a receiver of the replacements that the client does not know.
    fn unknown_changes(&self) -> watch::Receiver<Generation> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        if let Some(notifier) = self.change_notifier.get_mut().unwrap_or_else(PoisonError::into_inner) {
            notifier.abort();
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let Config { implementation, instructions, .. } = &self.state.config;
        let capabilities =
            ServerCapabilities::builder().enable_logging().enable_tools().enable_tool_list_changed();
        let capabilities = match self.state.tasks {
            Some(_) => capabilities.enable_tasks().build(),
            None => capabilities.build(),
        };
        let mut info = ServerConfig::new(capabilities).with_server_info(implementation.clone());
        info.instructions.clone_from(instructions);
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let principal = extension::<Principal>(&context);
        let cursor = request.and_then(|request| request.cursor);
        // Before the list is made: a replacement from now on is reported.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).mark_unchanged();
        let config = &self.state.config;
        let is_visible = |tool: &str| config.is_visible(tool, principal);
        let page = self.state.catalog().page(cursor.as_deref(), config.page_size, is_visible)?;
        Ok(match principal {
            // What the scopes of one user show is not for others.
            Some(_) => page.with_ttl_ms(0).with_cache_scope(CacheScope::Private),
            None => page,
        })
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.state.catalog().get(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let state = &*self.state;
        let catalog = state.catalog();
        let id = format!("call_{}", state.next_call.fetch_add(1, Ordering::Relaxed));
        let arguments = Value::Object(request.arguments.unwrap_or_default()).to_string();
        let principal = extension::<Principal>(&context);
        // The guard refuses such a call before, unless it reads the name of the tool in another way.
        if state.config.missing_scopes(&request.name, principal).is_some() {
            return Err(ErrorData::invalid_request("the call needs further scopes", None));
        }
        let user = extension::<RunUser>(&context).cloned();
        let call_context = state.config.context_of(user.clone(), principal.cloned());
        let caller = caller(&context);
        let mut called = CallRequest::standalone(ToolCall::new(id.clone(), &*request.name, arguments));
        called.definition = catalog.set.get(&request.name).and_then(|tool| state.config.approved(tool));
        let task = state.tasks.as_ref().and_then(|_| TaskId::new());
        if let Some(task) = &task {
            task.bind(&mut called, caller, user);
        }
        let call = HostCall::new(called, task, caller, state.config.task_agent_name());
        let mut call = call.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        if let Some(request_state) = &request.request_state {
            let responses = request.input_responses.unwrap_or_default();
            call.resume(request_state, &responses, &state.sealer, &catalog.set)?;
        }
        if catalog.set.get(&request.name).is_none() {
            let names = catalog.set.definitions().iter().map(ToolDefinition::name);
            let visible = names.filter(|tool| state.config.is_visible(tool, principal));
            let error = ToolError::unknown_tool(&request.name, visible);
            return Err(ErrorData::invalid_params(error.to_string(), None));
        }
        if follows_tasks(&context) {
            call.allow_task();
        }
        if let Some(why) = why_unable_to_ask(&context) {
            call.set_unable(why);
        }
        let log = self.log_level.call_log(&context, &request.name, &id);
        let token = context.meta.get_progress_token();
        let execution = async {
            log.started().await;
            let started_at = Instant::now();
            let execute = async |progress: Progress| {
                let mut call = call;
                loop {
                    let (shared, tools) = (Arc::clone(&self.state), catalog.set.clone());
                    let (context_of_call, progress) = (call_context.clone(), progress.clone());
                    let execution = async move {
                        let ServerState { config, exclusivity, .. } = &*shared;
                        call::execute(&tools, config, exclusivity, call, &context_of_call, progress).await
                    };
                    let executed = run_on(&state.host(), execution).await;
                    match executed.unwrap_or_else(|| Err(ToolError::failed("the tool was interrupted"))) {
                        Ok(Executed::Asks(mut asked)) if !is_newest(&context) => {
                            log.ended("call asked the user", started_at.elapsed()).await;
                            let answered = asked.ask_now(&context.peer, &state.shutdown, &state.asking).await;
                            if let Err(why) = answered {
                                let (host, tools) = (state.host(), &catalog.set);
                                return Err(abandon(&host, tools, *asked, &call_context, why).await);
                            }
                            call = *asked;
                        }
                        executed => return executed,
                    }
                }
            };
            let response = match with_progress(&context.peer, token, execute).await {
                Ok(Executed::Asks(call)) => {
                    log.ended("call asked the user", started_at.elapsed()).await;
                    match call.ask(&state.sealer, &catalog.set) {
                        Ok(required) => Ok(CallToolResponse::from(required)),
                        Err((call, why)) => {
                            Err(abandon(&state.host(), &catalog.set, *call, &call_context, why).await)
                        }
                    }
                }
                Ok(Executed::Waits(call)) => {
                    log.ended("call became a task", started_at.elapsed()).await;
                    let Some(tasks) = &state.tasks else {
                        return Err(ErrorData::internal_error("the call cannot wait", None));
                    };
                    let (tools, permits) = (catalog.set.clone(), extension(&context).cloned());
                    let begun = tasks.begin(state.host(), caller, *call, tools, call_context, permits);
                    begun.await.map(CallToolResponse::Task)
                }
                Ok(Executed::Output(output)) => {
                    log.ended("call finished", started_at.elapsed()).await;
                    let schema = state.config.output_schemas.get(&*request.name);
                    Ok(output::success(&output, schema).into())
                }
                Err(error) => {
                    log.failed(error.kind(), started_at.elapsed()).await;
                    Err(error)
                }
            };
            Ok(response.unwrap_or_else(|error| output::failure(&error.to_string()).into()))
        };
        tokio::select! {
            result = execution => result,
            // No one reads this answer.
            () = context.ct.cancelled() => Err(ErrorData::internal_error("the call was cancelled", None)),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let (state, unable) = (Arc::clone(&self.state), why_unable_to_ask(&context));
        let describe = move |tasks: Arc<Tasks>, task| async move {
            Ok(GetTaskResult::new(tasks.describe(task, &state.config.output_schemas, unable).await))
        };
        self.with_task(request.task_id, &context, describe).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let responses = request.input_responses;
        let answer = |tasks: Arc<Tasks>, task| async move { tasks.answer(&task, &responses).await };
        self.with_task(request.task_id, &context, answer).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let cancel = |tasks: Arc<Tasks>, task| async move { tasks.cancel(task).await };
        self.with_task(request.task_id, &context, cancel).await
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.log_level.set(request.level);
        Ok(())
    }

    /// Also receives requests of known methods whose parameters are invalid. For `tools/list`, the SDK ignores these.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        let problem = match &*method {
            "initialize" | "logging/setLevel" if is_newest(&context) => {
                return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None));
            }
            "initialize" => describe_problem::<InitializeRequestParams>(params),
            "tools/call" => describe_problem::<CallToolRequestParams>(params),
            "logging/setLevel" => describe_problem::<SetLevelRequestParams>(params),
            "tasks/get" if self.state.tasks.is_some() => describe_problem::<GetTaskParams>(params),
            "tasks/update" if self.state.tasks.is_some() => describe_problem::<UpdateTaskParams>(params),
            "tasks/cancel" if self.state.tasks.is_some() => describe_problem::<CancelTaskParams>(params),
            "subscriptions/listen" => describe_problem::<SubscriptionsListenRequestParams>(params),
            _ => return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)),
        };
        Err(ErrorData::invalid_params(format!("invalid parameters of `{method}`{problem}"), None))
    }

    /// Notifies the client whenever the tools are replaced, for the rest of the session.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut changes = self.unknown_changes();
        let notifier = tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                if context.peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
        let mut current = self.change_notifier.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(previous) = current.replace(notifier.abort_handle()) {
            previous.abort();
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::default();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    /// Notifies a client of the newest protocol whenever the tools are replaced.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.unknown_changes();
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    let is_subscribed = context.accepted().tools_list_changed == Some(true);
                    if changed.is_err() || is_subscribed && context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
                () = context.cancelled() => return Ok(()),
                () = self.state.shutdown.requested() => return Ok(()),
            }
        }
    }
}

/// Returns what the guard has added to the request, which only requests over HTTP have.
fn extension<T: Clone + Send + Sync + 'static>(context: &RequestContext<RoleServer>) -> Option<&T> {
    context.extensions.get::<Parts>()?.extensions.get::<T>()
}

fn caller(context: &RequestContext<RoleServer>) -> Caller {
    extension::<Caller>(context).copied().unwrap_or(Caller::ANYONE)
}

fn follows_tasks(context: &RequestContext<RoleServer>) -> bool {
    // Earlier revisions have tasks of another kind.
    is_newest(context)
        && context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
}

/// The maximum number of characters of a mistake in parameters, which may quote the client.
const MAX_PROBLEM_CHARS: usize = 1000;

/// Returns `: ` and the mistake in the parameters, or nothing if it is unknown.
fn describe_problem<P: DeserializeOwned>(params: Option<Value>) -> String {
    let params = params.unwrap_or_else(|| json!({}));
    let problem = serde_json::from_value::<P>(params).err();
    problem.map(|problem| format!(": {:.MAX_PROBLEM_CHARS$}", problem.to_string())).unwrap_or_default()
}
