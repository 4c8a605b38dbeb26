//! What follows from an effect.

use crate::model::{ToolCall, ToolDefinition};
use crate::run::changes::RunChanges;
use crate::run::effect::{Awaited, EffectId, RunPath};
use crate::run::state::{Profile, Run, Sees};
use crate::run::step_error::StepError;
use crate::tool::ToolExecution;

/// What has come of an effect.
#[doc(hidden)] // For the crates of this project.
#[derive(Debug)]
pub enum EffectResult {
    /// A call has an outcome, or waits.
    Finished(Box<ToolExecution>),
    /// The run of an agent begins.
    Began {
        /// The run.
        run: Box<Run>,
        /// What its rules need of the agent.
        profile: Profile,
        /// The run does not count for the limits of the one around it.
        has_own_limits: bool,
    },
    /// The agent that a call asks has answered, or cannot go on: the call of the run at this depth has an outcome.
    Ended(usize, Box<ToolExecution>),
    /// A recorded step has changed the run.
    Changed(Box<RunChanges>),
    /// A recorded step has asked the model, with these tools.
    Asked(Box<RunChanges>, TurnTools),
    /// Nothing was done. An outcome that was to be judged is recorded as it is.
    Nothing,
}

/// What a turn has of the agent, as the rules of the run need it.
#[doc(hidden)] // For the crates of this project.
#[derive(Debug)]
pub struct TurnTools {
    /// What layers see of its calls.
    pub sees: Sees,
    /// The tools that it calls.
    pub called: Vec<ToolDefinition>,
    /// The tools that undo these.
    pub undoing: Vec<ToolDefinition>,
    /// The number of calls that are executed at once.
    pub max_concurrent_calls: usize,
}

#[doc(hidden)] // For the crates of this project.
impl Run {
    /// Takes what has come of an effect. That of an effect which is not awaited is ignored.
    ///
    /// # Errors
    ///
    /// Fails if a recorded step is of another state of the run.
    pub fn handle(&mut self, id: &EffectId, result: EffectResult) -> Result<(), StepError> {
        let awaited = self.driving.as_mut().and_then(|driving| driving.polled.awaited.remove(id));
        let Some(awaited) = awaited else { return Ok(()) };
        let handled = match result {
            EffectResult::Finished(execution) => self.take_outcome(&id.path, *execution),
            EffectResult::Began { run, profile, has_own_limits } => match &awaited {
                Awaited::Begin(call) => self.begin_agent(&id.path, call, *run, profile, has_own_limits),
                _ => Ok(()),
            },
            EffectResult::Ended(depth, execution) => {
                self.record_unjudged(&id.path, &awaited);
                self.take_outcome(&id.path.at_depth(depth), *execution)
            }
            EffectResult::Changed(changes) => self.take_changes_at(&id.path, &changes),
            EffectResult::Asked(changes, tools) => {
                let taken = self.take_changes_at(&id.path, &changes);
                self.change_inner_run_at(&id.path.calls(), |run| run.set_turn(tools));
                taken
            }
            EffectResult::Nothing => Ok(()),
        };
        self.record_unjudged(&id.path, &awaited);
        let has_judged = matches!(awaited, Awaited::Results);
        match &awaited {
            Awaited::GiveUp => self.forget_given_up_calls(),
            Awaited::Ask | Awaited::Next | Awaited::Results | Awaited::Outcome(_) => {
                // Also if the step has failed, because it would fail again.
                self.change_inner_run_at(&id.path.calls(), |run| run.set_recorded(has_judged));
            }
            // One that was not executed can start again, also if its step has left it open because a provider of the tools asks.
            Awaited::Call(call) | Awaited::Begin(call) => {
                self.change_inner_run_at(&id.path.calls(), |run| run.take_back_call(call));
            }
            Awaited::End => {}
        }
        handled
    }

    /// Takes the outcome of a call. If layers have to see it, it is recorded once they have. That of a call which is not open any more is ignored.
    fn take_outcome(&mut self, path: &RunPath, execution: ToolExecution) -> Result<(), StepError> {
        self.change_inner_run_at(&path.calls(), |run| match run.must_be_judged(&execution) {
            true => run.set_outcome_to_judge(execution),
            false => drop(run.record_result(execution)),
        });
        Ok(())
    }

    /// Returns `true` if layers have to see an outcome before it is recorded.
    fn must_be_judged(&self, execution: &ToolExecution) -> bool {
        let (id, sees) = (&*execution.call().id, self.sees());
        let is_last = || (sees.outputs || sees.records) && !self.will_retry(execution);
        !execution.is_waiting() && self.has_open_call(id) && (self.end_from_inside(id).is_some() || is_last())
    }

    /// Records an outcome as it is that layers were to judge, unless it was recorded with the verdict.
    fn record_unjudged(&mut self, path: &RunPath, awaited: &Awaited) {
        let Awaited::Outcome(call) = awaited else { return };
        self.change_inner_run_at(&path.calls(), |run| {
            if let Some(execution) = run.take_outcome_to_judge(call) {
                // Fails if the run has stopped.
                let _ = run.record_result(execution);
            }
        });
    }

    /// Makes the run of an agent part of the run whose call asks it.
    fn begin_agent(
        &mut self,
        path: &RunPath,
        call_id: &str,
        mut inner: Self,
        profile: Profile,
        has_own_limits: bool,
    ) -> Result<(), StepError> {
        inner.set_profile(profile);
        let added = self.change_inner_run_at(&path.calls(), |outer| {
            let call = outer.requested_call(call_id).cloned();
            let call: ToolCall = call.ok_or(StepError("the call that asks the agent is not open"))?;
            outer.add_inner_run(&call, has_own_limits, inner)
        });
        added.unwrap_or(Ok(()))
    }

    fn take_changes_at(&mut self, path: &RunPath, changes: &RunChanges) -> Result<(), StepError> {
        let changed = self.change_inner_run_at(&path.calls(), |run| {
            // The copies for steps need not read the whole history.
            run.apply_changes(changes).map(|()| run.index_calls())
        });
        changed.unwrap_or(Ok(()))
    }

    /// Takes over what a turn has of its agent. A tool that was not offered this time is none, also if an earlier turn called it.
    fn set_turn(&mut self, turn: TurnTools) {
        let TurnTools { sees, called, undoing, max_concurrent_calls } = turn;
        let is_called = |name: &str| self.current_calls().any(|(call, _)| call.name == name);
        let known = self.profile().into_iter().flat_map(|profile| profile.called.iter());
        let earlier = known.filter(|one| !is_called(one.name())).cloned();
        let called = earlier.chain(called).collect();
        let mut all = self.profile().map(|profile| profile.undoing.clone()).unwrap_or_default();
        all.extend(undoing.into_iter().map(|undo| ((self.handoffs().len(), undo.name().to_owned()), undo)));
        self.set_profile(Profile { sees, called, undoing: all, max_concurrent_calls });
    }
}
