//! The builder of the page and the streams, and the server.

use std::sync::Arc;
use std::{fmt, io};

use axum::Router;
use secrecy::{ExposeSecret, SecretString};
use tokio::net::ToSocketAddrs;
use tool_core::Agent;
use tool_core::engine::nearest_name;
use tool_core::provider::printable;
use tool_core::store::RunStore;
use tool_http::server::{Caller, HttpService, RunningServer, Shutdown, bind};

use crate::auth::{Authenticate, Principal, Right};
use crate::frontend::{Frontend, ProtocolName};
use crate::guard::{Admission, Guard, limits};
use crate::hub::Hub;
use crate::page;
use crate::source::Source;

/// Agents and stores whose runs are watched: a [page](Self::service) for operators, and [streams](Self::ui_stream) for frontends.
///
/// Without [keys](Self::key) or an [authentication](Self::authentication), every program of this machine has all rights, and only
/// loopback addresses are bound.
///
/// ```
/// use tool_core::Agent;
/// use tool_core::testing::ScriptedModel;
/// use tool_web::{Right, Web};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new()).name("desk").build()?;
/// let web = Web::new().agent(agent).key("anna", "sk-secret", [Right::Read, Right::Decide]);
/// let app = axum::Router::new().nest_service("/runs", web.service());
/// # let _: axum::Router = app;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "nothing is watched until a service is created or it is spawned"]
pub struct Web {
    sources: Vec<Arc<Source>>,
    admission: Admission,
    allows_remote: bool,
    records_requests: bool,
    hub: std::sync::OnceLock<Arc<Hub>>,
}

impl Web {
    /// Creates a page without runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the runs of an agent: the ones that its clones in this process drive, and the ones in its
    /// [run store](tool_core::agent::AgentBuilder::run_store). Decisions continue them here. It is shown by its
    /// [name](tool_core::agent::AgentBuilder::name), which tells several agents apart; one without a name is `agent`.
    ///
    /// An agent without a run store gets one in memory, for the latest 1,000 runs that wait.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.sources.push(Source::agent(agent).into());
        self.hub = std::sync::OnceLock::new();
        self
    }

    /// Adds the runs of a store whose agent is in another program. Decisions are posted to the store, and that program continues
    /// the runs.
    pub fn store(mut self, name: impl AsRef<str>, store: impl RunStore + 'static) -> Self {
        self.sources.push(Source::store(name.as_ref(), Arc::new(store)).into());
        self.hub = std::sync::OnceLock::new();
        self
    }

    /// Records the latest requests to the models of the agents, up to 4 MiB per run. Who [administers](Right::Administer) can read them
    /// with their responses, as they are before the agent's layers and the provider, so without keys. Without this, and for stored
    /// runs, only the messages are shown that the stored state contains.
    pub fn record_requests(mut self) -> Self {
        self.records_requests = true;
        self.hub = std::sync::OnceLock::new();
        self
    }

    /// Requires a key as a bearer token, and gives it a name and rights. Can be called repeatedly. Keys are never shown.
    pub fn key(
        mut self,
        name: impl Into<Arc<str>>,
        key: impl Into<SecretString>,
        rights: impl IntoIterator<Item = Right>,
    ) -> Self {
        let key = key.into();
        let caller = Caller::with_key(key.expose_secret().as_bytes());
        self.admission.principals.push((caller, Principal::new(name, rights)));
        self.admission.access.add_key(key);
        self
    }

    /// Identifies senders in place of [keys](Self::key).
    pub fn authentication(mut self, authentication: impl Authenticate + 'static) -> Self {
        self.admission.authentication = Some(Arc::new(authentication));
        self
    }

    /// Accepts requests for this host, such as `desk.example.org`, in addition to `localhost` and loopback addresses. Others are
    /// refused, also with a key, because a web page could reach the server under its own host name.
    pub fn allow_host(mut self, host: impl AsRef<str>) -> Self {
        self.admission.access.allow_host(host.as_ref());
        self
    }

    /// Accepts requests of web pages of this origin, such as `https://app.example.org`, in addition to the loopback origins. Only the
    /// [streams](Self::ui_stream) take requests of other origins; decisions on the page come from the page itself.
    pub fn allow_origin(mut self, origin: impl AsRef<str>) -> Self {
        self.admission.access.allow_origin(origin.as_ref());
        self
    }

    /// Allows [`spawn`](Self::spawn) to bind to an address that other machines can reach although nobody has to log in.
    pub fn allow_remote(mut self) -> Self {
        self.allows_remote = true;
        self
    }

    /// Returns the page as a service, to serve it as part of another application. Its links are relative: with `nest_service` of an
    /// `axum::Router`, it is served at `/runs` as well as below `/runs/`, and other routers must add the last slash.
    ///
    /// The logs of all runs that are read take about 64 MiB of memory, and each log takes at most 8 MiB. Readers of a longer run that come
    /// later get its end.
    pub fn service(&self) -> HttpService {
        HttpService::new(self.routes())
    }

    /// Returns the page as an [`axum::Router`].
    #[cfg(feature = "unstable-axum")]
    pub fn router(&self) -> Router {
        self.routes()
    }

    fn routes(&self) -> Router {
        page::router(self.hub(), self.guard(true))
    }

    /// Returns a chat with an agent of this page, in the Vercel AI SDK's UI message stream. The page shows its runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the page has no agent of this name.
    pub fn ui_stream(&self, agent: &str) -> Result<Frontend, UnknownAgentError> {
        self.frontend(ProtocolName::UiStream, agent)
    }

    /// Returns a chat with an agent of this page, in AG-UI. The page shows its runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the page has no agent of this name.
    pub fn ag_ui(&self, agent: &str) -> Result<Frontend, UnknownAgentError> {
        self.frontend(ProtocolName::AgUi, agent)
    }

    fn frontend(&self, protocol: ProtocolName, name: &str) -> Result<Frontend, UnknownAgentError> {
        let agents = || self.sources.iter().filter(|source| source.agent.is_some());
        let source = agents().find(|source| &*source.name == name).ok_or_else(|| {
            let nearest = nearest_name(name, agents().map(|source| &*source.name));
            UnknownAgentError { name: name.to_owned(), nearest: nearest.map(str::to_owned) }
        })?;
        Ok(Frontend::new(protocol, self.hub(), Arc::clone(source), self.guard(false)))
    }

    fn hub(&self) -> Arc<Hub> {
        Arc::clone(self.hub.get_or_init(|| Hub::new(self.sources.clone(), self.records_requests)))
    }

    fn guard(&self, is_same_origin: bool) -> Arc<Guard> {
        Guard::new(self.admission.clone(), is_same_origin)
    }

    /// Serves the page in a background task of the Tokio runtime until the returned [`RunningServer`] is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound, or is not a loopback address although nobody has to log in and
    /// [`allow_remote`](Self::allow_remote) was not called.
    pub async fn spawn(self, address: impl ToSocketAddrs) -> io::Result<RunningServer> {
        let has_login = self.admission.access.has_keys() || self.admission.authentication.is_some();
        let listener = bind(address, self.allows_remote || has_login).await;
        let listener = listener.map_err(|error| error.into_io("require a key with `key`"))?;
        RunningServer::start(listener, self.routes(), "/", &limits(), Shutdown::new())
    }
}

/// Serves an agent to frontends of the Vercel AI SDK, versions 6 and 7, on loopback without login. For anything else, use
/// [`Web::ui_stream`].
pub fn ui_stream(agent: Agent) -> Frontend {
    chat(ProtocolName::UiStream, agent)
}

/// Serves an agent to frontends of AG-UI, on loopback without login. For anything else, use [`Web::ag_ui`].
pub fn ag_ui(agent: Agent) -> Frontend {
    chat(ProtocolName::AgUi, agent)
}

fn chat(protocol: ProtocolName, agent: Agent) -> Frontend {
    let source = Arc::new(Source::agent(agent));
    let hub = Hub::new(vec![Arc::clone(&source)], false);
    Frontend::new(protocol, hub, source, Guard::new(Admission::default(), false))
}

/// The error of a chat with an agent that is not one of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAgentError {
    name: String,
    nearest: Option<String>,
}

impl fmt::Display for UnknownAgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown agent `{}`; ", printable(&self.name))?;
        match &self.nearest {
            Some(nearest) => write!(f, "did you mean `{}`?", printable(nearest)),
            None => f.write_str("add it with `Web::agent`"),
        }
    }
}

impl std::error::Error for UnknownAgentError {}

/// Shows the names of the agents and stores, never a key.
impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.iter().map(|source| &source.name)).finish()
    }
}
