//! The agent that drives tasks: its tools are those of the server, and its model has nothing to say.

use std::future::ready;
use std::sync::Arc;

use tokio::sync::RwLock;
use tool_core::agent::{Decider, DeciderFuture, PerRun, RunInfo, RunParts, on_approval};
use tool_core::layer::LayerError;
use tool_core::memory::RunStore;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ModelFuture, ToolDefinition};
use tool_core::run::{Decision, Wait, WaitReason};
use tool_core::tool::ToolFuture;
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{Agent, BuildError, ChatModel, Message, Tool, ToolCall, ToolContext, ToolSet};

use super::authorize::Principal;
use super::config::Config;
use super::tools_handle::ToolsHandle;

/// The most characters of the output of a task, which is stored until the task expires.
const MAX_OUTPUT_CHARS: usize = 256 << 10;

/// Locked exclusively by calls of exclusive tools, and shared by all others.
pub(super) type Exclusivity = Arc<RwLock<()>>;

/// Returns the agent whose runs are the tasks of a server.
pub(super) fn task_agent(
    tools: ToolsHandle,
    config: &Config,
    store: Arc<dyn RunStore>,
    exclusivity: Exclusivity,
) -> Result<Agent, BuildError> {
    let serves_all = config.serves_tools_with_approval();
    let builder = Agent::builder(NothingToSay)
        .name(format!("tasks of {}", config.implementation.name))
        .tool_provider(ServedTools { tools, serves_all, exclusivity })
        .values_of(&config.context)
        .per_run(Users { are_principals: config.http.protection.is_some() })
        .run_store(store)
        .keep_finished(config.task_lifetime)
        .max_run_age(config.task_lifetime);
    match &config.decider {
        Some(decider) => builder.decider(ServerDecider(Arc::clone(decider))).build(),
        // Without a decider, such a tool is served only if the host is trusted to ask.
        None => builder.decider(on_approval(|_| Decision::approve())).build(),
    }
}

/// Gives a run its user where nobody is there who sent the request. The scopes of that request are not stored: without it, there are none.
struct Users {
    are_principals: bool,
}

impl PerRun for Users {
    async fn open(&self, run: &RunInfo) -> Result<RunParts, LayerError> {
        let user = run.user().filter(|_| self.are_principals);
        let principal = user.map(|user| Principal::new(user.clone(), [""; 0]));
        Ok(principal.into_iter().fold(RunParts::new(), RunParts::context))
    }
}

/// Ends a run whose call has a result, which is all that the host reads.
struct NothingToSay;

impl ChatModel for NothingToSay {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async { Ok(ChatResponse::new(AssistantMessage::text("The call has ended."))) })
    }
}

/// Asks the decider of the server, which decides about approvals alone.
struct ServerDecider(Arc<dyn Decider>);

impl Decider for ServerDecider {
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
        match &wait.reason {
            WaitReason::Approval(_) => self.0.decide(wait),
            _ => Box::pin(ready(Decision::defer())),
        }
    }
}

/// Provides the served tools, as they are when a run starts or goes on.
struct ServedTools {
    tools: ToolsHandle,
    serves_all: bool,
    exclusivity: Exclusivity,
}

impl ToolProvider for ServedTools {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async {
            let calls =
                request.messages().iter().filter_map(Message::as_assistant).flat_map(|one| &one.tool_calls);
            let called: Vec<_> = calls.map(|call| &*call.name).collect();
            let set = self.tools.current().set.max_output_chars(MAX_OUTPUT_CHARS);
            // What another tool needs must not fail the run.
            let set = set.filter(|tool| {
                let is_needed = called.is_empty() || called.contains(&tool.name());
                is_needed && (self.serves_all || !tool.policy().needs_approval)
            });
            if !set.definitions().iter().any(|tool| tool.policy().exclusive) {
                return Ok(set);
            }
            let mut locking = ToolSet::default();
            for definition in set.definitions().iter() {
                let (set, exclusivity) = (set.clone(), Arc::clone(&self.exclusivity));
                locking = locking.with(LockingTool { definition: definition.clone(), set, exclusivity })?;
            }
            Ok(locking)
        })
    }

    fn name(&self) -> &str {
        "the MCP server"
    }
}

/// A tool of a set with exclusive tools, which runs alongside no other call of the server if it is exclusive itself.
struct LockingTool {
    definition: ToolDefinition,
    set: ToolSet,
    exclusivity: Exclusivity,
}

impl Tool for LockingTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::boxed(async move {
            let (_exclusive, _shared) = match self.definition.policy().exclusive {
                true => (Some(self.exclusivity.write().await), None),
                false => (None, Some(self.exclusivity.read().await)),
            };
            let id = context.call().map_or("call", |call| &*call.id);
            self.set.call(&ToolCall::new(id, self.definition.name(), arguments), context).await
        })
    }

    fn wrapped(&self) -> Option<&dyn Tool> {
        self.set.get(self.definition.name())
    }
}
