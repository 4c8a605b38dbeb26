//! A worker: a process that executes runs and calls for the engine.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use restate_sdk::hyper::HyperEndpoint;
use restate_sdk::prelude::*;
use serde::de::DeserializeOwned;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, ToSocketAddrs};
use tool_core::memory::Window;
use tool_core::provider::ToolKind;
use tool_core::{Agent, ToolContext, ToolSet};

use crate::calls::{Calls, CallsService as _, Owner};
use crate::checks::{WorkerError, check, check_routes, services, tree_of};
use crate::client::Client;
use crate::conversations::{self, Conversations, ConversationsService as _};
use crate::drive::Setup;
use crate::events::{self, Events, EventsService as _, Publisher};
use crate::names::{conversations_service, events_service, is_service_name};
use crate::options::{JOURNAL_RETENTION, RETENTION, named, service_options};
use crate::runs::{Runs, RunsService as _};
use crate::serving;
use crate::settings::Settings;
use crate::step::Steps;
use crate::tools::{ChangedTools, hashes};

/// The time that calls in flight have to finish once a worker stops.
const STOP_TIME: Duration = Duration::from_secs(10);

/// A worker, which executes runs of agents and their calls for a Restate server.
///
/// ```no_run
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
/// use tool_restate::Worker;
///
/// #[tool("Finds an order")]
/// fn find_order(id: u32) -> String {
///     format!("order {id}: 2 books")
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let clerk = Agent::builder(ScriptedModel::new()).name("clerk").tools(tools![find_order]).build()?;
/// let until = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
/// Worker::new().agent(clerk).serve("0.0.0.0:9080", until).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[must_use = "a worker does nothing until it serves"]
pub struct Worker {
    agents: Vec<Agent>,
    tools: Vec<(String, ToolSet, ToolContext)>,
    identity_keys: Vec<String>,
    settings: Settings,
}

impl Worker {
    /// Creates a worker without agents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a worker that only executes calls, of tools that other workers [route](Self::tools_at) to this name.
    ///
    /// The tools take their context from [`tools_context`](Self::tools_context). Settings of the agents, such as their timeout of
    /// calls, do not apply to them.
    pub fn tools_only(name: impl Into<String>, tools: impl Into<ToolSet>) -> Self {
        let mut worker = Self::new();
        worker.tools.push((name.into(), tools.into(), ToolContext::new()));
        worker
    }

    /// Sets the values that the tools of [`tools_only`](Self::tools_only) inject.
    pub fn tools_context(mut self, context: ToolContext) -> Self {
        self.tools.iter_mut().for_each(|(_, _, values)| *values = context.clone());
        self
    }

    /// Adds an agent. Clients ask it by its [name](tool_core::agent::AgentBuilder::name).
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Executes the calls of these tools on the workers of [`tools_only`](Self::tools_only) with this name. The agents have the same
    /// tools, because their definitions are offered to the model.
    pub fn tools_at<N: Into<String>>(
        mut self,
        name: impl Into<String>,
        tools: impl IntoIterator<Item = N>,
    ) -> Self {
        let name = name.into();
        self.settings.routes.extend(tools.into_iter().map(|tool| (tool.into(), name.clone())));
        self
    }

    /// Executes the calls of the agents in the process of their run, all that are ready in one recorded step, except for calls of
    /// [routed](Self::tools_at) tools. A turn takes less than
    /// half of the time, but a call is not visible by itself, a cancelled run waits for it, and if the process dies, all calls of
    /// the step are executed again under their keys, except calls of `at_most_once` tools.
    pub fn local_calls(mut self) -> Self {
        self.settings.has_local_calls = true;
        self
    }

    /// Reads values of this type that [travel with a question](crate::RemoteAsk::context_json), for the tools to inject.
    ///
    /// They are found by the name of the type without its path.
    pub fn context_json<T: DeserializeOwned + Send + Sync + 'static>(mut self) -> Self {
        self.settings.types.add::<T>();
        self
    }

    /// Limits the part of a conversation that is sent to the model.
    pub fn window(mut self, window: Window) -> Self {
        self.settings.window = Some(window);
        self
    }

    /// Sets what happens to runs that started with other tools; [`ChangedTools::Fail`] by default.
    pub fn changed_tools(mut self, changed_tools: ChangedTools) -> Self {
        self.settings.changed_tools = changed_tools;
        self
    }

    /// Sets the time for which a request to the model that fails is repeated, with growing delays of a minute at most; six hours by
    /// default. Afterwards the run [waits for an operator](crate::RemoteOutcome::Paused). If less time is left of `max_time`, the run ends
    /// when that is used up. An error that is
    /// [permanent](tool_core::model::ModelError::is_permanent) ends the run at once, and so does a panic of the agent's code.
    pub fn model_patience(mut self, time: Duration) -> Self {
        self.settings.model_patience = time;
        self
    }

    /// Limits the number of times that a request to the model is sent. Afterwards the run fails, and its effects are undone. Unlimited by
    /// default. Providers repeat failed requests themselves, and the numbers multiply.
    pub fn model_attempts(mut self, attempts: u32) -> Self {
        self.settings.model_attempts = Some(attempts.max(1));
        self
    }

    /// Sets the longest time that a call can take, after which the engine takes its worker for dead and executes it again; a day
    /// by default. It must be longer than the timeouts of the tools.
    pub fn longest_call(mut self, time: Duration) -> Self {
        self.settings.longest_call = time;
        self
    }

    /// Sets the time for which the engine stores a run after its end, with its answer and its [key](crate::RemoteAsk::key); thirty days by
    /// default. Its steps are stored for a day at most.
    pub fn retention(mut self, time: Duration) -> Self {
        self.settings.retention = time;
        self
    }

    /// Publishes deltas and progress while a step runs, for questions that [ask for events](crate::RemoteAsk::events). They are sent
    /// by this client. Without it, readers get only the events of finished steps. Deltas are lost if the server cannot be reached or does not
    /// keep up; the event at the end of the turn has the whole text.
    pub fn publish_events(mut self, client: &Client) -> Self {
        self.settings.publisher = Some(Publisher(client.ingress.clone()));
        self
    }

    /// Refuses requests that the server with this key has not signed, such as `publickeyv1_…`, as the server's log or its cloud shows it. By
    /// default, anybody who reaches the worker's port can execute its tools, so it must be private. Several keys can be added.
    pub fn identity_key(mut self, key: impl Into<String>) -> Self {
        self.identity_keys.push(key.into());
        self
    }

    /// Sets the version that distinguishes the program from another one with the same tools: [`register`](crate::register) refuses a second
    /// URI of one program. Empty by default.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.settings.version = version.into();
        self
    }

    /// Limits what one step stores, in bytes of JSON: a reply, an output, a history. A larger one ends its run. The answer
    /// of a run, and the records of one that failed, can be larger: they are stored in parts of this size. 15 MiB by default; the
    /// server's `message-size-limit` and `per-invocation-memory-limit`, of 32 MiB, must be more than twice as large: an invocation that has
    /// larger values can stop for ever. A call that is larger together with its context is not executed. A call whose output does not fit
    /// beside it is undone without the output, so [`CallToUndo::output`](tool_core::tool::CallToUndo::output) is `None`.
    pub fn max_value_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_bytes = bytes;
        self
    }

    /// Serves the engine at this address until the future completes. Calls in flight then have ten seconds to finish; the engine
    /// executes them elsewhere otherwise. Meanwhile, `/health` answers with 404, from which a balancer learns that the worker takes no new calls
    /// but finishes those that it has; before, it answers with 200, or with 401 if there is an [identity key](Self::identity_key).
    ///
    /// The engine finds the worker once its URI is registered, by [`register`](crate::register) or with the tools of the engine.
    ///
    /// # Errors
    ///
    /// Fails if an agent cannot run durably, or if the address cannot be listened on.
    pub async fn serve(
        self,
        address: impl ToSocketAddrs,
        until: impl Future<Output = ()>,
    ) -> Result<(), WorkerError> {
        let endpoint = self.endpoint()?;
        let listener = listen(address).await.map_err(WorkerError::Listen)?;
        serving::serve(listener, HyperEndpoint::new(endpoint), until, STOP_TIME).await;
        Ok(())
    }

    /// Returns the services of this worker, for another server or for more services beside them.
    ///
    /// # Errors
    ///
    /// Fails if an agent cannot run durably.
    pub fn endpoint(self) -> Result<Endpoint, WorkerError> {
        if self.agents.is_empty() && self.tools.is_empty() {
            return Err(WorkerError::Empty);
        }
        let settings = Arc::new(self.settings);
        let mut builder = Endpoint::builder();
        let journal_retention = settings.retention.min(JOURNAL_RETENTION);
        let service_options = || service_options(&settings.version);
        let calls = |owner: Owner, service: &str| -> Result<ServiceDefinition, WorkerError> {
            // A run that undoes its calls finds their outcomes for this time, also if no worker lives meanwhile.
            let options = service_options()
                .ingress_private(true)
                .idempotency_retention(RETENTION)
                .journal_retention(journal_retention)
                .inactivity_timeout(settings.longest_call)
                .abort_timeout(Duration::from_secs(60));
            let calls = Calls { owner, settings: Arc::clone(&settings) };
            Ok(named(calls.serve(), service)?.options(options))
        };
        let mut names: Vec<String> = Vec::new();
        let mut add_name = |name: &str| -> Result<(), WorkerError> {
            if !is_service_name(name) {
                let message = format!(
                    "the engine does not accept the name `{name}`: it must begin with a letter and consist of letters, digits, `.`, `_` and `-`"
                );
                return Err(WorkerError::Name(message));
            }
            if names.iter().any(|other| other == name) {
                return Err(WorkerError::Name(format!("two parts of the worker have the name `{name}`")));
            }
            names.push(name.to_owned());
            Ok(())
        };
        for key in &self.identity_keys {
            let invalid =
                |error| WorkerError::IdentityKey(format!("invalid key of a server, `{key}`: {error}"));
            builder = builder.identity_key(key).map_err(invalid)?;
        }
        for (name, tools, context) in &self.tools {
            add_name(name)?;
            if let Some(tool) = tools.iter().find(|tool| tool.definition().kind() == ToolKind::Agent) {
                let tool = tool.definition().name();
                return Err(WorkerError::Unsupported(format!(
                    "the tools `{name}` cannot be executed: the tool `{tool}` is an agent, whose run is driven by the worker that \
                     asks it: leave it out, and do not name it in `tools_at`"
                )));
            }
            for service in services(name, [tools]) {
                builder = builder.bind(calls(Owner::Tools(tools.clone(), context.clone()), &service)?);
            }
        }
        for agent in &self.agents {
            let name = check(agent)?;
            check_routes(&settings.routes, agent, &name)?;
            add_name(&name)?;
            for service in services(&name, tree_of(agent).flat_map(|one| [one.tools(), one.undo_tools()])) {
                builder = builder.bind(calls(Owner::Agent(agent.clone()), &service)?);
            }
            let conversations = Conversations { agent: name.clone(), settings: Arc::clone(&settings) };
            let private = || HandlerOptions::new().ingress_private(true);
            let options = service_options().enable_lazy_state(true);
            let options =
                conversations::PRIVATE.iter().fold(options, |all, name| all.handler(*name, private()));
            builder =
                builder.bind(named(conversations.serve(), &conversations_service(&name))?.options(options));
            let options = service_options().enable_lazy_state(true);
            let options = events::PRIVATE.iter().fold(options, |all, name| all.handler(*name, private()));
            builder = builder.bind(named(Events.serve(), &events_service(&name))?.options(options));
            let runs = Runs(Setup {
                name: name.clone(),
                steps: Steps {
                    agent: agent.clone(),
                    hashes: hashes(agent).into(),
                    settings: Arc::clone(&settings),
                },
                calls: Calls { owner: Owner::Agent(agent.clone()), settings: Arc::clone(&settings) },
                settings: Arc::clone(&settings),
            });
            // A request to the model is silent for long; a run that only waits is suspended nevertheless, as it can be.
            let mut options =
                service_options().abort_timeout(Duration::from_secs(60 * 60)).enable_lazy_state(true);
            // They only wait, for which they need no worker.
            let waits = |options: HandlerOptions| options.inactivity_timeout(Duration::from_millis(100));
            options = options.handler("first_stop", waits(private()));
            options = options.handler("wait", waits(HandlerOptions::new()));
            if settings.has_local_calls {
                options = options.abort_timeout(settings.longest_call);
            }
            let run = HandlerOptions::new().workflow_retention(settings.retention);
            options = options.handler("run", run.journal_retention(journal_retention));
            builder = builder.bind(named(runs.serve(), &name)?.options(options));
        }
        Ok(builder.build())
    }
}

/// Listens at the first address that is free. Connections inherit the options of the
/// socket: small messages are sent at once, which the SDK does not set:
/// every step would wait for an acknowledgement otherwise.
async fn listen(address: impl ToSocketAddrs) -> std::io::Result<TcpListener> {
    let mut error = std::io::Error::new(std::io::ErrorKind::InvalidInput, "the address is empty");
    // Closes the connections of an engine or a balancer that has vanished.
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
    for address in tokio::net::lookup_host(address).await? {
        let listen = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.set_nodelay(true)?;
            SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
            socket.bind(address)?;
            socket.listen(1024)
        };
        match listen() {
            Ok(listener) => return Ok(listener),
            Err(failed) => error = failed,
        }
    }
    Err(error)
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("agents", &self.agents).finish_non_exhaustive()
    }
}
