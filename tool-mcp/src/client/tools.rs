//! The tools of a server that is connected to.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::ServerPeerInfo;
use rmcp::service::{Peer, RoleClient};
use tool_core::{
    Tool, ToolDefinition, ToolProvider, ToolProviderFuture, ToolProviderRequest, ToolSet, ToolSetError,
};

use super::listing::Listing;
use super::live::Live;
use super::server_tool::ServerTool;
use super::{Fingerprint, McpError, McpProblem, McpTool};

/// The tools of an MCP server. An agent takes them as a
/// [`tool_provider`](tool_core::AgentBuilder::tool_provider), and is told of every change in them;
/// [`tools`](Self::tools) gives them as they are now.
///
/// Cloning shares the connection, which ends when the last clone, and the last set of its tools, is dropped: a process that was
/// started for it has its input closed, and is killed if it stays.
///
/// # What it does with a server's tools
///
/// - The server is asked for its tools once, and again when it says that they changed or was connected to again.
/// - A tool that no model could call is left out, and [`problems`](Self::problems) tells why. A name that providers do not
///   take, such as `fs.read`, becomes one that they do: `fs_read_4074bc02`, always the same.
/// - The arguments of a call are checked by the server's schema, and mended as those of any tool.
/// - The model reads texts, pictures, resources that are text and, if there is no text, the structured content. The rest is in
///   the [data](tool_core::ToolOutput::data) of the output, by the names of the protocol: `structuredContent`, `_meta`, and in
///   `content` sounds, resources and links; of these the model is told in words.
/// - The progress of a call is told as the run's. A call that is given up is cancelled at the server.
/// - If the server goes away, its calls fail at once until it is there again; one that was under way fails, and is made again
///   only if the tool says that it is idempotent or changes nothing.
#[derive(Clone)]
pub struct McpTools {
    live: Arc<Live>,
    view: Vec<Change>,
    made: Arc<Mutex<Option<Made>>>,
}

/// What makes the set of an agent out of that of the server.
type Change = Arc<dyn Fn(ToolSet) -> Result<ToolSet, ToolSetError> + Send + Sync>;

/// The set that was made of a listing.
struct Made {
    of: Arc<Listing>,
    tools: Vec<Arc<ServerTool>>,
    set: ToolSet,
}

impl McpTools {
    pub(super) fn new(live: Live) -> Self {
        Self { live: Arc::new(live), view: Vec::new(), made: Arc::default() }
    }

    /// The tools as they are now, for who wants a set that stays.
    ///
    /// # Errors
    ///
    /// The server is down and has never told its tools, its tools are not the [pinned](super::McpServer::pinned) ones,
    /// or there is no such set as [`only`](Self::only) and the others ask for. A server that is
    /// [optional](super::McpServer::optional) has no tools while it was never there.
    pub async fn tools(&self) -> Result<ToolSet, McpError> {
        let settings = self.live.settings();
        match self.live.listing().await {
            Ok(listing) => self.set_of(listing),
            Err(error) if settings.is_optional && !error.is_changed() => Ok(ToolSet::default()),
            Err(error) => Err(error),
        }
    }

    /// The set of a listing, made once.
    fn set_of(&self, listing: Arc<Listing>) -> Result<ToolSet, McpError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = made.as_ref().filter(|made| Arc::ptr_eq(&made.of, &listing)) {
            return Ok(made.set.clone());
        }
        let origin: Arc<str> = format!("the MCP server `{}`", self.server()).into();
        let tool = |listed| Arc::new(ServerTool::new(&self.live, &origin, listed));
        let tools: Vec<_> = listing.tools.iter().map(tool).collect();
        let set = ToolSet::new(tools.iter().map(|tool| Arc::clone(tool) as Arc<dyn Tool>))
            .and_then(|set| self.view.iter().try_fold(set, |set, change| change(set)))
            .map_err(|error| McpError::tools(self.server(), &error))?;
        *made = Some(Made { of: listing, tools, set: set.clone() });
        Ok(set)
    }

    /// What is the matter with single tools: those that are left out, those that have another name here, and those that are
    /// offered but cannot be called, as no arguments can be checked by their schemas. To find the latter, all schemas are
    /// compiled, which otherwise happens when a tool is first called.
    ///
    /// # Errors
    ///
    /// As [`tools`](Self::tools).
    pub async fn problems(&self) -> Result<Vec<McpProblem>, McpError> {
        self.tools().await?;
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Made { of, tools, .. }) = &*made else { return Ok(Vec::new()) };
        let unusable = tools.iter().filter_map(|tool| {
            Some(McpProblem::noted(
                tool.listed().name_at_server(),
                format!("is offered, but {}", tool.problem()?),
            ))
        });
        Ok(of.problems.iter().cloned().chain(unusable).collect())
    }

    /// The tools as the server describes them, to show them to a person.
    ///
    /// # Errors
    ///
    /// As [`tools`](Self::tools).
    pub async fn listed(&self) -> Result<Vec<McpTool>, McpError> {
        Ok(self.live.listing().await?.tools.clone())
    }

    /// What the tools of the server are now, to be kept and [pinned](super::McpServer::pinned). Names that were changed and tools
    /// that were left out by [`only`](Self::only) and the like make no difference.
    ///
    /// # Errors
    ///
    /// As [`tools`](Self::tools); a fingerprint of a server that was never there is one, too.
    pub async fn fingerprint(&self) -> Result<Fingerprint, McpError> {
        Ok(Fingerprint::of(&self.live.listing().await?.tools))
    }

    /// The same tools with names that begin with this: see [`ToolSet::prefix`].
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        self.changed(move |set| set.prefix(&prefix))
    }

    /// One of the tools by another name: see [`ToolSet::rename`].
    #[must_use]
    pub fn rename(self, from: impl Into<String>, to: impl Into<String>) -> Self {
        let (from, to) = (from.into(), to.into());
        self.changed(move |set| set.rename(&from, to.clone()))
    }

    /// The tools of these names. The server has to have all of them: see [`ToolSet::only`].
    #[must_use]
    pub fn only<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        self.changed(move |set| set.only(names.iter().map(String::as_str)))
    }

    /// All tools but those of these names. The server has to have all of them: see [`ToolSet::without`].
    #[must_use]
    pub fn without<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        self.changed(move |set| set.without(names.iter().map(String::as_str)))
    }

    /// The tools that the function says yes to: see [`ToolSet::filter`].
    #[must_use]
    pub fn filter(self, keep: impl Fn(&ToolDefinition) -> bool + Send + Sync + 'static) -> Self {
        self.changed(move |set| Ok(set.filter(&keep)))
    }

    /// What the function makes of the server's tools, each time that these change: whatever else can be done with a set.
    ///
    /// ```no_run
    /// # async fn f(tools: tool_mcp::McpTools) {
    /// let strict = tools.changed(|set| set.strict());
    /// # }
    /// ```
    #[must_use]
    pub fn changed(
        mut self,
        change: impl Fn(ToolSet) -> Result<ToolSet, ToolSetError> + Send + Sync + 'static,
    ) -> Self {
        self.view.push(Arc::new(change));
        self.made = Arc::default();
        self
    }

    /// The server's name in this program.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.live.settings().name
    }

    /// What the server said of itself: its name and version, the protocol, its capabilities; `None` while it is down.
    #[must_use]
    pub fn info(&self) -> Option<Arc<ServerPeerInfo>> {
        self.live.connection().ok()?.peer().peer_info()
    }

    /// What the server says of how to use it, which may be told to the model in the system prompt. It is a stranger's text.
    #[must_use]
    pub fn instructions(&self) -> Option<String> {
        self.info()?.instructions.clone()
    }

    /// Why the server is down; `None` while it is there.
    #[must_use]
    pub fn down(&self) -> Option<McpError> {
        self.live.connection().err()
    }

    /// The SDK's side of the connection, for prompts, resources and the rest of the protocol; `None` while it is down.
    #[must_use]
    pub fn peer(&self) -> Option<Peer<RoleClient>> {
        Some(self.live.connection().ok()?.peer().clone())
    }
}

impl ToolProvider for McpTools {
    fn tools<'a>(&'a self, _: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async { Ok(McpTools::tools(self).await?) })
    }

    /// A server may change its tools at any time.
    fn is_dynamic(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        self.server()
    }
}

/// Names the server.
impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools").field("server", &self.server()).finish_non_exhaustive()
    }
}
