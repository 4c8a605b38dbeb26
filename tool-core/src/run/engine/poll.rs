//! What is done next, in which order.
//!
//! Outcomes are judged before anything follows from them, then the policies of the tools apply, and tools learn which calls are given up.
//! Calls start first, because a world can be unable to start them later. Then layers judge what precedes a step, results are reported to them,
//! runs of agents end, and models are asked.
//!
//! Effects are returned in groups that do not depend on each other's results. One thing is judged at a time, because layers can change what
//! follows.

use std::collections::BTreeSet;

use crate::model::ToolCall;
use crate::run::effect::{Awaited, Effect, EffectId, RunPath, Subject};
use crate::run::state::Run;

#[doc(hidden)] // For the crates of this project.
impl Run {
    /// Returns something to do for a run of the tree, which is in flight from now on. The run is to be saved before it is done. Returns `None` after
    /// each group of effects: a world that then polls again gets the next group, and nothing if all depends on what is in flight, on
    /// persons or on time.
    pub fn poll(&mut self) -> Option<(EffectId, Effect)> {
        let polled = &mut self.driving.get_or_insert_default().polled;
        if polled.group.is_empty() && !std::mem::take(&mut polled.was_returned) {
            let group = self.next_group();
            let polled = &mut self.driving.get_or_insert_default().polled;
            polled.was_returned = !group.is_empty();
            polled.group = group.into();
        }
        self.driving.get_or_insert_default().polled.group.pop_front()
    }

    /// Returns an effect in flight that is no longer awaited, because its run has stopped. What comes of it is ignored.
    pub fn poll_abandoned(&mut self) -> Option<EffectId> {
        let awaited = &self.driving.as_ref()?.polled.awaited;
        let abandoned = awaited.keys().find(|id| !self.is_awaited(id))?.clone();
        self.driving.as_mut()?.polled.awaited.remove(&abandoned);
        Some(abandoned)
    }

    /// Returns `true` if an effect is in flight and its run goes on.
    #[must_use]
    pub fn is_awaited(&self, id: &EffectId) -> bool {
        let awaited = self.driving.as_ref().and_then(|driving| driving.polled.awaited.get(id));
        let Some((awaited, run)) = awaited.zip(self.inner_run_at(id.path.calls())) else { return false };
        match awaited {
            Awaited::Call(call) | Awaited::Begin(call) | Awaited::Outcome(call) => run.has_open_call(call),
            Awaited::End => run.is_done(),
            Awaited::Ask => run.is_asking(),
            Awaited::Next | Awaited::Results | Awaited::GiveUp => true,
        }
    }

    /// States that a call which was polled is executed from now on: it may have its effect.
    pub fn set_executing_at(&mut self, id: &EffectId) {
        let awaited = self.driving.as_ref().and_then(|driving| driving.polled.awaited.get(id));
        if let Some(Awaited::Call(call) | Awaited::Begin(call)) = awaited.cloned() {
            self.change_inner_run_at(&id.path.calls(), |run| run.set_executing(&call));
        }
    }

    fn next_group(&mut self) -> Vec<(EffectId, Effect)> {
        let taking_steps = self.paths_with_steps();
        let places = self.open_places();
        let free = || places.iter().filter(|path| !taking_steps.contains(path));
        let unjudged =
            free().find_map(|path| Some((path, self.inner_run_at(path.calls())?.outcome_to_judge()?)));
        if let Some((path, outcome)) = unjudged {
            let subject = Subject::Outcome(Box::new(outcome.clone()));
            return vec![self.note_in_flight(path.clone(), Effect::Judge(subject))];
        }
        for path in &places {
            self.change_inner_run_at(&path.calls(), Self::apply_profile);
        }
        if self.has_given_up_calls() && !taking_steps.contains(&RunPath::default()) {
            return vec![self.note_in_flight(RunPath::default(), Effect::GiveUp)];
        }
        let started = self.start();
        if !started.is_empty() {
            return started;
        }
        let places = self.open_places();
        let all = |is: &dyn Fn(&Self) -> bool| -> Vec<RunPath> {
            let free = places.iter().filter(|path| !taking_steps.contains(path));
            free.filter(|path| self.inner_run_at(path.calls()).is_some_and(is)).cloned().collect()
        };
        let step = if let Some(path) = all(&Self::awaits_layers).into_iter().next() {
            Some((path, Effect::Judge(Subject::Next)))
        // Not in the step that asks a model, which reports it again each time that the model fails.
        } else if let Some(path) = all(&Self::has_unrecorded).into_iter().next() {
            Some((path, Effect::Judge(Subject::Results)))
        } else {
            let done = all(&Self::is_done).into_iter().find(|path| path.depth() > 0);
            done.map(|path| (path, Effect::End))
        };
        if let Some((path, effect)) = step {
            return vec![self.note_in_flight(path, effect)];
        }
        let mut asking = all(&Self::is_asking);
        // What one request costs is known before the next one, because requests of one step do not know of each other.
        if !all(&|run| run.limits().max_cost.is_some()).is_empty() {
            asking.truncate(1);
        }
        asking.into_iter().map(|path| self.note_in_flight(path, Effect::Ask)).collect()
    }

    /// Starts all calls that can start beside each other.
    fn start(&mut self) -> Vec<(EffectId, Effect)> {
        let mut effects = Vec::new();
        loop {
            let before = effects.len();
            for (path, calls) in self.startable_runs() {
                let started: Vec<_> = calls.iter().filter_map(|call| self.start_call(&path, call)).collect();
                effects.extend(started.into_iter().map(|effect| self.note_in_flight(path.clone(), effect)));
            }
            if effects.len() == before {
                return effects;
            }
        }
    }

    fn start_call(&mut self, path: &RunPath, call: &ToolCall) -> Option<Effect> {
        self.change_inner_run_at(&path.calls(), |run| {
            let request = Box::new(run.begin_remote_call(&call.id).ok()?);
            run.set_polled(&call.id);
            Some(if run.asks_agent(&call.id) { Effect::Begin(request) } else { Effect::Call(request) })
        })?
    }

    /// States that an effect is in flight.
    fn note_in_flight(&mut self, path: RunPath, effect: Effect) -> (EffectId, Effect) {
        let polled = &mut self.driving.get_or_insert_default().polled;
        let number = polled.numbers.entry(path.clone()).or_default();
        *number = number.wrapping_add(1);
        let id = EffectId { path, number: *number };
        polled.awaited.insert(id.clone(), Awaited::result_of(&effect));
        (id, effect)
    }

    /// Returns the runs for which something else than a call is in flight.
    fn paths_with_steps(&self) -> BTreeSet<RunPath> {
        let awaited = self.driving.iter().flat_map(|driving| &driving.polled.awaited);
        let steps = awaited.filter(|(_, awaited)| !matches!(awaited, Awaited::Call(_) | Awaited::Begin(_)));
        steps.map(|(id, _)| id.path.clone()).collect()
    }
}
