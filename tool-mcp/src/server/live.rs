//! Tools that are replaced while they are served.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tool_core::{ToolContext, ToolSet};

use super::ServerError;
use super::settings::Settings;

/// The tools of a [`Server`](super::Server), which can be replaced while they are served. Cloning shares it.
#[derive(Clone)]
pub struct LiveTools(Arc<Inner>);

struct Inner {
    current: watch::Sender<Generation>,
    /// What the tools are called with, once they are served.
    context: OnceLock<ToolContext>,
}

/// A set, and how many there were before it.
#[derive(Clone)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) set: ToolSet,
}

impl LiveTools {
    pub(super) fn new(set: ToolSet) -> Self {
        let current = watch::Sender::new(Generation { number: 0, set });
        Self(Arc::new(Inner { current, context: OnceLock::new() }))
    }

    /// Serves these tools from now on, and tells every client that listens. Calls under way come to their end.
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
    /// let tools = server.live_tools();
    /// // Later, while it is served:
    /// tools.replace(tools![open])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A tool takes a value from its context that the server does not have: the tools stay what they were.
    pub fn replace(&self, tools: impl Into<ToolSet>) -> Result<(), ServerError> {
        let set = tools.into();
        if let Some(context) = self.0.context.get() {
            refuse_missing(&set, context)?;
        }
        self.0.current.send_modify(|current| {
            *current = Generation { number: current.number + 1, set };
        });
        Ok(())
    }

    /// Looks whether the tools can be served, now and whenever they are replaced.
    pub(super) fn start(&self, settings: &Settings) -> Result<(), ServerError> {
        let set = self.current().set;
        refuse_missing(&set, &settings.context)?;
        if let Some(name) = settings.output_schemas.keys().find(|name| set.get(name).is_none()) {
            return Err(ServerError::schema_of_no_tool(name));
        }
        // A server is served once, so there is none yet.
        let _ = self.0.context.set(settings.context.clone());
        Ok(())
    }

    pub(super) fn current(&self) -> Generation {
        self.0.current.borrow().clone()
    }

    /// Tells of every change from now on.
    pub(super) fn changes(&self) -> watch::Receiver<Generation> {
        self.0.current.subscribe()
    }
}

fn refuse_missing(set: &ToolSet, context: &ToolContext) -> Result<(), ServerError> {
    set.missing_from(context).map_or(Ok(()), |missing| Err(ServerError::missing_context(missing)))
}

/// Names the tools.
impl fmt::Debug for LiveTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveTools").field(self.0.current.borrow().set.definitions()).finish()
    }
}
