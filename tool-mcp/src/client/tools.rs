//! The tools of a connected server.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest, ToolSetError};
use tool_core::{Tool, ToolSet};

use super::connection_manager::ConnectionManager;
use super::listing::Listing;
use super::server_tool::ServerTool;
use super::{Fingerprint, McpError, McpErrorKind, McpProblem, McpTool};

/// The tools of an MCP server.
///
/// As a [`tool_provider`](tool_core::agent::AgentBuilder::tool_provider) of an agent, they follow all changes at the server;
/// [`tools`](Self::tools) returns the current set.
///
/// Clones share one connection. It is closed when the last clone and the last set of its tools are dropped. A child process
/// then [ends](super::McpServer::stdio) with all that it started.
///
/// # Behavior
///
/// - The tools are requested once, and again after the server reports a change, was reconnected, or no longer allows to use its list (`ttlMs`).
/// - Tools that no model could call are skipped; [`problems`](Self::problems) explains why. Names that providers do not
///   accept are replaced in a stable way: `fs.read` always becomes `fs_read_4074bc02`.
/// - Arguments are checked with the server's schema and repaired, as for any tool.
/// - The model receives texts, images, text resources and, if there is no text, the structured content. Everything else is in
///   the [data](tool_core::ToolOutput::data) of the output under the names of the protocol: `structuredContent`, `_meta`, and
///   in `content` audio, resources and links, which are described to the model in words.
/// - The progress of a call is reported as progress of the run. A call that is dropped is cancelled at the server.
/// - While the server is unavailable, calls fail immediately. A call that was in flight when the connection was lost fails; it
///   is repeated only if the tool is read-only or idempotent and the server's
///   [annotations are trusted](super::McpServer::trust_annotations). A call that the server refused because the session had
///   expired is sent again in a new session.
/// - Errors contain no secret that was sent to the server: no token, header, value of a variable or part of its URL, as long
///   as it has at least 6 bytes.
#[derive(Clone)]
pub struct McpTools {
    manager: Arc<ConnectionManager>,
    mappings: Vec<Mapping>,
    cache: Arc<Mutex<Option<CachedSet>>>,
}

/// One step from the server's tools to the set for the agent.
type Mapping = Arc<dyn Fn(ToolSet) -> Result<ToolSet, ToolSetError> + Send + Sync>;

/// The set that was built from a listing.
struct CachedSet {
    listing: Arc<Listing>,
    tools: Vec<Arc<ServerTool>>,
    set: ToolSet,
}

impl McpTools {
    pub(super) fn new(manager: Arc<ConnectionManager>) -> Self {
        Self { manager, mappings: Vec::new(), cache: Arc::default() }
    }

    pub(super) fn manager(&self) -> &Arc<ConnectionManager> {
        &self.manager
    }

    /// Returns the current tools as a set that does not change.
    ///
    /// An [optional](super::McpServer::optional) server that was never available has no tools.
    ///
    /// # Errors
    ///
    /// Returns an error if the server is unavailable and never listed its tools, if it differs from the
    /// [pinned](super::McpServer::pinned) fingerprint, or if [`only`](Self::only) or a similar method cannot be applied.
    pub async fn tools(&self) -> Result<ToolSet, McpError> {
        let config = self.manager.config();
        match self.manager.listing().await {
            Ok(listing) => self.build_set(listing),
            Err(error) if config.is_optional && error.kind() != McpErrorKind::FingerprintMismatch => {
                Ok(ToolSet::default())
            }
            Err(error) => Err(error),
        }
    }

    /// Builds the set of a listing, once.
    fn build_set(&self, listing: Arc<Listing>) -> Result<ToolSet, McpError> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cache.as_ref().filter(|cached| Arc::ptr_eq(&cached.listing, &listing)) {
            return Ok(cached.set.clone());
        }
        let origin: Arc<str> = format!("the MCP server `{}`", self.server_name()).into();
        let tool = |listed| Arc::new(ServerTool::new(&self.manager, &origin, listed));
        let tools: Vec<_> = listing.tools.iter().map(tool).collect();
        let set = ToolSet::new(tools.iter().map(|tool| Arc::clone(tool) as Arc<dyn Tool>))
            .and_then(|set| self.mappings.iter().try_fold(set, |set, mapping| mapping(set)))
            .map_err(|error| McpError::invalid_tool_set(self.server_name(), &error))?;
        *cache = Some(CachedSet { listing, tools, set: set.clone() });
        Ok(set)
    }

    /// Returns the problems of individual tools: those that are skipped, those that are offered under another name, and
    /// those that are offered but cannot be called, because their schema is invalid.
    ///
    /// This compiles all schemas, which otherwise happens when a tool is first called.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`tools`](Self::tools).
    pub async fn problems(&self) -> Result<Vec<McpProblem>, McpError> {
        self.tools().await?;
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(CachedSet { listing, tools, .. }) = &*cache else { return Ok(Vec::new()) };
        let invalid = tools.iter().filter_map(|tool| {
            Some(McpProblem::offered(
                tool.listed().original_name(),
                format!("is offered, but {}", tool.problem()?),
            ))
        });
        Ok(listing.problems.iter().cloned().chain(invalid).collect())
    }

    /// Returns the tools as the server describes them, for display to a person.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`tools`](Self::tools), also for an optional server.
    pub async fn listed_tools(&self) -> Result<Vec<McpTool>, McpError> {
        Ok(self.manager.listing().await?.tools.clone())
    }

    /// Returns the fingerprint of the server's current tools, to be stored and [pinned](super::McpServer::pinned). It is
    /// independent of [`only`](Self::only), [`map_tools`](Self::map_tools) and similar methods.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`tools`](Self::tools), also for an optional server.
    pub async fn fingerprint(&self) -> Result<Fingerprint, McpError> {
        Ok(Fingerprint::from_listing(&*self.manager.listing().await?))
    }

    /// Adds a prefix to the names of all tools, as [`ToolSet::prefix`] does.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        self.map_tools(move |set| set.prefix(&prefix))
    }

    /// Selects the named tools, as [`ToolSet::only`] does. The server must have all of them.
    #[must_use]
    pub fn only<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        self.map_tools(move |set| set.only(names.iter().map(String::as_str)))
    }

    /// Applies a function to the set of tools each time that the server's tools change. It gives access to all methods of
    /// [`ToolSet`].
    ///
    /// ```no_run
    /// # async fn f(tools: tool_mcp::McpTools) {
    /// let tools = tools.map_tools(|set| set.rename("search", "find")?.strict());
    /// # }
    /// ```
    #[must_use]
    pub fn map_tools(
        mut self,
        map: impl Fn(ToolSet) -> Result<ToolSet, ToolSetError> + Send + Sync + 'static,
    ) -> Self {
        self.mappings.push(Arc::new(map));
        self.cache = Arc::default();
        self
    }

    /// Returns the name of the server in this program.
    #[must_use]
    pub fn server_name(&self) -> &str {
        &self.manager.config().name
    }

    /// Returns the server's description of itself: its name and version, the protocol version, and its capabilities. It is
    /// `None` while the server is unavailable, and while it is not compared with a [pinned](super::McpServer::pinned)
    /// fingerprint.
    #[cfg(feature = "unstable-rmcp")]
    #[must_use]
    pub fn info(&self) -> Option<Arc<rmcp::model::ServerPeerInfo>> {
        self.manager.verified_now()?.info()
    }

    /// Returns the server's instructions for its use, which can be included in the system prompt. They are untrusted unless
    /// they are [pinned](super::McpServer::pinned). They are `None` while the server is unavailable, and while it is not compared
    /// with a pinned fingerprint.
    #[must_use]
    pub fn instructions(&self) -> Option<String> {
        self.manager.verified_now()?.info()?.instructions.clone()
    }

    /// Returns the error that makes the server unavailable, or `None` while it is connected.
    #[must_use]
    pub fn last_error(&self) -> Option<McpError> {
        self.manager.last_error()
    }

    /// Returns the SDK's handle of the connection, for prompts, resources and the rest of the protocol. It is `None` while
    /// the server is unavailable, and while it is not compared with a [pinned](super::McpServer::pinned) fingerprint. Later uses
    /// of the handle are not checked.
    #[cfg(feature = "unstable-rmcp")]
    #[must_use]
    pub fn peer(&self) -> Option<rmcp::Peer<rmcp::RoleClient>> {
        Some(self.manager.verified_now()?.peer().clone())
    }
}

impl ToolProvider for McpTools {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async {
            self.manager.config().check_user(request.context())?;
            Ok(McpTools::tools(self).await?)
        })
    }

    /// Returns `true`: a server may change its tools at any time.
    fn is_dynamic(&self) -> bool {
        true
    }

    /// Returns `true`: a server must not end a run with the name of a tool. Give each server a [`prefix`](Self::prefix).
    fn has_untrusted_names(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        self.server_name()
    }
}

/// Shows only the name of the server.
impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools").field("server", &self.server_name()).finish_non_exhaustive()
    }
}
