//! What performs the effects of a run: its agent, with tools, layers and listeners, and what follows from the runs around it.
//!
//! There is one way to a run, which each world goes: the outermost, a run inside of it, and a handoff.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::emitter::EventEmitter;
use super::layers::Layers;
use super::run_setup::open_run;
use super::run_tools::RunTools;
use super::spending::Spending;
use crate::agent::{Agent, RunInfo, RunResources};
use crate::memory::RunStore;
use crate::model::ToolCall;
use crate::run::RunErrorKind;
use crate::toolset::ToolSet;

/// What performs the effects of one run.
pub(super) struct Performer {
    /// The agent that was asked, with the stores of the run.
    pub(super) origin: Agent,
    /// The agent that the run is of, maybe since a handoff, and its tools.
    pub(super) tools: RunTools,
    /// The tools of the agents before those that the run was handed off to.
    pub(super) earlier_tools: Vec<RunTools>,
    pub(super) layers: Arc<Layers>,
    pub(super) emitter: EventEmitter,
    /// How a call asked the agent. Without one, the agent's own stores contain the run.
    pub(super) asked: Option<AskedInside>,
}

/// How a call asked the agent of a run.
pub(super) struct AskedInside {
    /// The call, if it is one of a run, whose state contains this one.
    pub(super) call: Option<ToolCall>,
    /// The number of levels of agents that are allowed inside, if runs are around it.
    pub(super) levels: Option<u32>,
    pub(super) has_own_limits: bool,
    /// The run reads and continues a conversation in the agent's memory.
    pub(super) has_conversation: bool,
}

impl Performer {
    /// Returns what performs an outermost run of an agent.
    pub(super) fn outermost(tools: RunTools, emitter: EventEmitter, mut spending: Spending) -> Self {
        let agent = tools.agent.clone();
        spending.charge_to(&agent.0.budgets);
        let layers = Arc::new(Layers::new(agent.clone(), tools.context.clone(), spending));
        Self { origin: agent, tools, earlier_tools: Vec::new(), layers, emitter, asked: None }
    }

    /// Returns this one for a run of an agent that a call with this name asked, with the layers around the call.
    pub(super) fn asked(self, asked: AskedInside, layers: Option<&Layers>, called_as: &str) -> Self {
        let own = Arc::unwrap_or_clone(self.layers);
        let layers = Arc::new(match layers {
            Some(around) => own.inside(around, called_as),
            None => own,
        });
        Self { layers, asked: Some(asked), ..self }
    }

    /// Hands the run off to another agent, by the tool with this name.
    pub(super) fn hand_off(&mut self, name: &str, next: &Agent) {
        let tools = self.tools.handed_off_to(next);
        Arc::make_mut(&mut self.layers).hand_off(name, next);
        self.emitter.hooks.extend(next.0.hooks.iter().cloned());
        self.earlier_tools.push(std::mem::replace(&mut self.tools, tools));
    }

    /// Returns the store of the run, if it is the outermost and the agent has one.
    pub(super) fn store(&self) -> Option<&Arc<dyn RunStore>> {
        self.origin.0.run_store.get().filter(|_| self.asked.is_none())
    }

    /// Asks the application what the run has, if it says that.
    pub(super) fn open(
        &self,
        run: RunInfo,
    ) -> Option<BoxFuture<'static, Result<RunResources, RunErrorKind>>> {
        let run_setup = self.origin.0.run_setup.clone()?;
        Some(async move { open_run(&*run_setup, &run).await }.boxed())
    }

    /// Adds what the run has, with those of its tools that the run is given.
    pub(super) fn give(&mut self, parts: &RunResources, given: &ToolSet) {
        for tools in self.earlier_tools.iter_mut().chain([&mut self.tools]) {
            tools.add_context(&parts.context);
            tools.give(given.clone());
        }
        Arc::make_mut(&mut self.layers).open(&self.tools.context, parts);
    }
}
