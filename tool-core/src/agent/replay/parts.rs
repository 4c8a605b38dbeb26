//! What replaces parts of an agent whose runs are repeated.

use std::fmt;
use std::sync::Arc;

use crate::agent::RunSetup;
use crate::agent::run_setup::OpenRun;
use crate::layer::Layer;
use crate::tool::{Injectable, ToolContext};
use crate::toolset::ToolSet;

/// What replaces parts of an agent whose runs are [repeated](crate::engine::replay()): the application's own code, which is not asked.
#[derive(Clone, Default)]
#[must_use]
pub struct ReplayParts {
    pub(in crate::agent) context: ToolContext,
    pub(in crate::agent) layers: Vec<Arc<dyn Layer>>,
    pub(in crate::agent) run_setup: Option<Arc<dyn OpenRun>>,
    pub(in crate::agent) provided: ToolSet,
    pub(in crate::agent) tools: ToolSet,
}

impl ReplayParts {
    /// Creates no parts: all is the agent's.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a value that questions have given, for layers and rules of approval that read it. Tools are not executed.
    pub fn context<T: Injectable>(mut self, value: T) -> Self {
        self.context = self.context.with(value);
        self
    }

    /// Replaces the layer with this name, in each agent that has one.
    pub fn layer(mut self, layer: impl Layer + 'static) -> Self {
        self.layers.push(Arc::new(layer));
        self
    }

    /// Replaces the [`run_setup`](crate::agent::AgentBuilder::run_setup) of each agent that has one.
    pub fn run_setup(mut self, run_setup: impl RunSetup + 'static) -> Self {
        self.run_setup = Some(Arc::new(run_setup));
        self
    }

    /// Sets the tools that providers supply, such as servers of MCP, which are not asked.
    pub fn provided(mut self, tools: ToolSet) -> Self {
        self.provided = tools;
        self
    }

    /// Sets the tools that [questions](crate::agent::Ask::tools) offer.
    pub fn tools(mut self, tools: ToolSet) -> Self {
        self.tools = tools;
        self
    }

    pub(in crate::agent) fn in_place_of(&self, layer: &Arc<dyn Layer>) -> Arc<dyn Layer> {
        let other = self.layers.iter().find(|other| other.name() == layer.name());
        Arc::clone(other.unwrap_or(layer))
    }
}

impl fmt::Debug for ReplayParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayParts").finish_non_exhaustive()
    }
}
