//! Replacing tools while they are served.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tool_core::{ToolContext, ToolSet};

use super::config::Config;
use super::error::{ServerError, ServerErrorKind};
use super::task_model::check_undo;

/// A handle to the tools of a [`Server`](super::Server) that replaces them while they are served. Clones share the tools.
#[derive(Clone)]
pub struct ToolsHandle(Arc<Inner>);

struct Inner {
    current: watch::Sender<Generation>,
    /// What the tools need, set when serving starts.
    requirements: OnceLock<Requirements>,
}

struct Requirements {
    context: ToolContext,
    /// Calls can become runs.
    has_tasks: bool,
}

impl Requirements {
    fn check(&self, set: &ToolSet) -> Result<(), ServerError> {
        if let Some(missing) = set.missing_from(&self.context) {
            return Err(ServerError::missing_context(missing));
        }
        match self.has_tasks {
            true => check_undo(set).map_err(ServerError::task_agent),
            false => Ok(()),
        }
    }
}

/// A tool set, and the number of sets before it.
#[derive(Clone)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) set: ToolSet,
}

impl ToolsHandle {
    pub(super) fn new(set: ToolSet) -> Self {
        let current = watch::Sender::new(Generation { number: 0, set });
        Self(Arc::new(Inner { current, requirements: OnceLock::new() }))
    }

    /// Replaces the served tools and notifies every client that listens. Calls in flight still finish.
    ///
    /// ```
    /// use tool_core::{tool, tools};
    /// use tool_mcp::server::Server;
    ///
    /// #[tool("Opens the door")]
    /// fn open() {}
    ///
    /// # fn main() -> Result<(), tool_mcp::server::ServerError> {
    /// let server = Server::new(tools![]);
    /// let tools = server.tools_handle();
    /// // Later, while the server runs:
    /// tools.replace(tools![open])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if a tool needs a value that the server's context lacks, or, with [tasks](super::Server::tasks), the tool that undoes
    /// its calls is missing. The tools are not replaced then.
    pub fn replace(&self, tools: impl Into<ToolSet>) -> Result<(), ServerError> {
        let set = tools.into();
        self.0.requirements.get().map_or(Ok(()), |requirements| requirements.check(&set))?;
        self.0.current.send_modify(|current| {
            *current = Generation { number: current.number + 1, set };
        });
        Ok(())
    }

    /// Checks the tools against the configuration, and their replacements from now on.
    pub(super) fn activate(&self, config: &Config) -> Result<(), ServerError> {
        let set = self.current().set;
        let (context, has_tasks) = (config.checked_context(), config.task_store.is_some());
        let requirements = Requirements { context, has_tasks };
        requirements.check(&set)?;
        let schemas = config
            .output_schemas
            .keys()
            .map(|name| (ServerErrorKind::OutputSchema, "the output schema", name));
        let scopes = config.scopes.keys().map(|name| {
            (ServerErrorKind::Authorization, "requests cannot be authorized: the scope of", name)
        });
        let long_calls = config.long_calls.iter().map(|name| (ServerErrorKind::Tasks, "the long call", name));
        let mut settings = schemas.chain(scopes).chain(long_calls);
        if let Some((kind, setting, name)) = settings.find(|(_, _, name)| set.get(name).is_none()) {
            return Err(ServerError::unknown_tool(kind, setting, name));
        }
        if config.task_store.is_none() && !config.long_calls.is_empty() {
            return Err(ServerError::no_tasks());
        }
        // Not set before, because a server is served once.
        let _ = self.0.requirements.set(requirements);
        Ok(())
    }

    pub(super) fn current(&self) -> Generation {
        self.0.current.borrow().clone()
    }

    /// Returns a receiver of all replacements from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<Generation> {
        self.0.current.subscribe()
    }
}

/// Shows the names of the tools.
impl fmt::Debug for ToolsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolsHandle").field(self.0.current.borrow().set.definitions()).finish()
    }
}
