//! What the rules of a run need of its agent, beside the state of the run.
//!
//! A world that does not ask the agent between its steps, because a replay must take the same way, sets it after each step. It is not stored:
//! a restored run has none, and starts nothing until its driver knows the agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::{AgentProfile, EmittedCalls, LayerSight, Run};
use crate::model::ToolDefinitions;

impl AgentProfile {
    /// Creates the profile of a run that has called nothing.
    #[must_use]
    pub fn new(max_concurrent_calls: usize) -> Self {
        Self {
            sees: LayerSight::default(),
            called: ToolDefinitions::default(),
            undoing: BTreeMap::new(),
            max_concurrent_calls,
        }
    }
}

impl Run {
    /// Sets what the rules of the run need of its agent. Layers know all calls that have finished before the first time.
    pub(crate) fn set_profile(&mut self, profile: AgentProfile) {
        let recorded = match self.driving.as_mut().and_then(|driving| driving.recorded.take()) {
            Some(recorded) => recorded,
            None => EmittedCalls::all_of(self),
        };
        let driving = self.driving.get_or_insert_default();
        (driving.profile, driving.recorded) = (Some(Arc::new(profile)), Some(recorded));
    }

    /// Returns what the rules of the run need of its agent, if a driver has set it.
    pub(crate) fn profile(&self) -> Option<&AgentProfile> {
        self.driving.as_ref()?.profile.as_deref()
    }

    /// Applies the policies of the tools in the profile to the open calls that are not in flight, unless layers have to judge them first.
    pub(super) fn apply_profile(&mut self) {
        let profile = self.driving.as_ref().and_then(|driving| driving.profile.clone());
        let Some(profile) = profile.filter(|_| !self.awaits_layers()) else { return };
        self.apply_tool_policies(&profile.called, |handoffs, name| {
            Some(profile.undoing.get(&(handoffs, name.to_owned()))?.policy().clone())
        });
    }

    /// Returns the finished calls that layers which record know.
    pub(crate) fn recorded(&self) -> Option<&EmittedCalls> {
        self.driving.as_ref()?.recorded.as_ref()
    }

    /// Returns `true` if layers that record do not know of all that has happened in the run.
    pub(super) fn has_unrecorded(&self) -> bool {
        let sees = self.sees();
        // Those of a turn that is complete are judged in this step.
        let judges = sees.outputs && !self.is_done() && !self.is_undoing() && !self.is_asking();
        let recorded = self.recorded().filter(|_| sees.records);
        recorded.is_some_and(|recorded| !recorded.clone().take_shown(self, sees.answers, judges).is_empty())
    }

    /// States that layers which record know what has happened in the run, also results if layers were asked about them.
    pub(super) fn set_recorded(&mut self, has_judged: bool) {
        let sees = self.sees();
        let Some(mut recorded) = self.driving.as_mut().and_then(|driving| driving.recorded.take()) else {
            return;
        };
        recorded.take_shown(self, sees.answers, sees.outputs && !has_judged);
        self.driving.get_or_insert_default().recorded = Some(recorded);
    }
}
