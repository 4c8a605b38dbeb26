//! Copies of agents in which records stand in for what their runs would ask of others.

use std::sync::{Arc, Mutex, OnceLock, RwLock};

use super::compaction::LongOutputs;
use super::lock::lock;
use super::replay::{NoSetup, Provided, RecordedModel, StandIn, without_clock};
use super::run_setup::OpenRun;
use super::shared::Shared;
use crate::agent::{Agent, AgentTool};
use crate::memory::InMemoryStore;
use crate::toolset::{ToolProvider, ToolSet};

impl Agent {
    /// Returns this agent with what stands in for the other one's models and tools, if something does.
    pub(super) fn repeating_as(&self, other: &Self) -> Self {
        match &other.0.stand_in {
            Some(stand_in) => self.with_stand_in(stand_in),
            None => self.clone(),
        }
    }

    /// Returns a copy that asks nobody: it has no memory, stores, budgets, deciders and listeners.
    pub(super) fn with_stand_in(&self, stand_in: &Arc<StandIn>) -> Self {
        let agent = &*self.0;
        let parts = &stand_in.parts;
        let provides = |index: usize| -> Box<dyn ToolProvider> {
            let tools = match (index, parts.provided.is_empty()) {
                (0, true) => stand_in.assumed_tools(),
                (0, false) => parts.provided.clone(),
                _ => ToolSet::default(),
            };
            let provider = &agent.providers[index];
            let has_untrusted_names = provider.has_untrusted_names();
            Box::new(Provided { name: provider.name().to_owned(), tools, has_untrusted_names })
        };
        let run_setup = agent.run_setup.as_ref();
        let layers: Vec<_> = agent.layers.iter().map(|layer| parts.in_place_of(layer)).collect();
        lock(&stand_in.layers).extend(layers.iter().map(|layer| layer.name().to_owned()));
        Self(Arc::new(Shared {
            name: agent.name.clone(),
            model: Arc::new(RecordedModel { model: Arc::clone(&agent.model), reply: Mutex::default() }),
            instructions: agent.instructions.clone(),
            tools: agent.tools.clone(),
            providers: (0..agent.providers.len()).map(provides).collect(),
            context: agent.context.clone().with_defaults(&parts.context),
            tool_choice: agent.tool_choice.clone(),
            parallel_tool_calls: agent.parallel_tool_calls,
            limits: without_clock(agent.limits.clone()),
            error_policies: agent.error_policies.clone(),
            layers,
            deciders: Vec::new(),
            undo_tools: agent.undo_tools.clone(),
            handoffs: agent.handoffs.clone(),
            bound_undo_tools: agent.bound_undo_tools.clone(),
            tool_search: agent.tool_search.as_ref().map(|(search, _)| (search.clone(), Mutex::default())),
            hooks: Vec::new(),
            watchers: RwLock::default(),
            request_watchers: RwLock::default(),
            sends_earlier_turns: agent.sends_earlier_turns,
            compaction: agent.compaction.clone().map(|mut compaction| {
                compaction.model = None;
                compaction
            }),
            tracks_cache: false,
            outputs: agent
                .outputs
                .as_ref()
                .map(|outputs| LongOutputs { store: Arc::new(InMemoryStore::new()), limit: outputs.limit }),
            options: agent.options.clone(),
            memory: None,
            run_store: OnceLock::new(),
            stored_runs: Default::default(),
            call_timeout: None,
            max_concurrent_calls: agent.max_concurrent_calls,
            trace: Default::default(),
            prices: None,
            budgets: Vec::new(),
            run_setup: run_setup.map(|_| {
                parts.run_setup.clone().unwrap_or_else(|| {
                    Arc::new(NoSetup(Arc::clone(&stand_in.lacks_setup))) as Arc<dyn OpenRun>
                })
            }),
            has_warned: OnceLock::new(),
            model_infos: Default::default(),
            stand_in: Some(Arc::clone(stand_in)),
        }))
    }
}

impl AgentTool {
    /// Returns this tool with what stands in for the models and tools of the agent that calls it.
    pub(super) fn repeating_as(&self, caller: &Agent) -> Self {
        let agent = self.agent().repeating_as(caller);
        self.clone().with_agent(agent)
    }
}
