//! What is done next, in which order.
//!
//! Outcomes are judged before anything follows from them, then the policies of the tools apply, and tools learn which calls are given up.
//! Calls start first, because a world can be unable to start them later. Then layers judge what precedes a step, results are reported to them,
//! runs of agents end, and models are asked.
//!
//! Effects are returned in groups that do not depend on each other's results. One thing is judged at a time, because layers can change what
//! follows.

use std::collections::BTreeSet;

use super::view::{Engine, EngineView};
use crate::model::ToolCall;
use crate::run::effect::{Awaited, Effect, EffectId, LayerSubject, RunPath};
use crate::run::state::{Polled, Run};
use crate::tool::Attempt;

impl Engine<'_> {
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
        let polled = &self.driving.as_ref()?.polled;
        let is_abandoned = |id: &&EffectId| !self.engine_view().is_awaited(id);
        let abandoned = match &polled.changed {
            None => polled.awaited.keys().find(is_abandoned),
            Some(changed) => {
                // Whose calls are open goes on.
                let has_stopped = |path: &&RunPath| {
                    let run = self.inner_run_at(path.calls());
                    !run.is_some_and(Run::is_calling)
                };
                changed.iter().filter(has_stopped).find_map(|path| {
                    self.engine_view()
                        .awaited_from(path)
                        .take_while(|id| id.path.is_below(path))
                        .find(is_abandoned)
                })
            }
        };
        let abandoned = abandoned?.clone();
        self.driving.as_mut()?.polled.awaited.remove(&abandoned);
        Some(abandoned)
    }

    /// States that a call which was polled is executed from now on: it may have its effect.
    pub fn set_executing_at(&mut self, id: &EffectId) {
        let awaited = self.driving.as_ref().and_then(|driving| driving.polled.awaited.get(id));
        if let Some(Awaited::Call(call) | Awaited::Begin(call)) = awaited.cloned() {
            self.mark_at(&id.path, |run| run.set_executing(&call));
        }
    }

    /// States that the world does this in a step which changes the run itself before it ends, and whether it only waits for persons now.
    pub(crate) fn set_step(&mut self, id: &EffectId, asks_persons: bool) {
        let awaited = self.driving.as_mut().and_then(|driving| driving.polled.awaited.get_mut(id));
        awaited.into_iter().for_each(|awaited| *awaited = Awaited::Step { asks_persons });
    }

    /// Forgets what was in flight, because nothing is done for it any more.
    pub(crate) fn forget_awaited(&mut self) {
        self.driving.iter_mut().for_each(|driving| driving.polled.awaited.clear());
    }

    /// Begins a step of a run that needs none by itself, because persons are asked.
    pub(crate) fn begin_step_at(&mut self, path: &RunPath) -> EffectId {
        let (id, _) = self.note_in_flight(path.clone(), Effect::Judge(LayerSubject::Next));
        self.set_step(&id, false);
        id
    }

    /// States that the world executes a call that was started before.
    pub(crate) fn begin_started_call(&mut self, call: ToolCall, attempt: Attempt) -> EffectId {
        // A run that exists goes on once its agent is there.
        match self.open_inner_run(&call.id) {
            Some(_) => self.set_polled(&call.id),
            None => self.set_executing(&call.id),
        }
        let request = self.request_of(call, attempt);
        self.note_in_flight(RunPath::default(), Effect::Call(Box::new(request))).0
    }

    /// Forgets what an earlier loop of a world had in flight, and what the rules of that needed. From now on, the world states in which runs it
    /// changes something, and its steps prepare calls. Those of the outermost run can be the caller's.
    pub(crate) fn track_changes(&mut self, hands_out_steps: bool) {
        let driving = self.driving.get_or_insert_default();
        driving.profile = None;
        driving.polled = Polled { tracks_changes: true, hands_out_steps, ..Polled::default() };
    }

    /// States that something may have changed in these runs.
    pub(crate) fn note_changed<'p>(&mut self, paths: impl IntoIterator<Item = &'p RunPath>) {
        if let Some(changed) = self.driving.as_mut().and_then(|driving| driving.polled.changed.as_mut()) {
            changed.extend(paths.into_iter().cloned());
        }
    }

    fn next_group(&mut self) -> Vec<(EffectId, Effect)> {
        let places = self.places_to_poll();
        let group = self.group_of(places);
        if group.is_empty() {
            let polled = &mut self.driving.get_or_insert_default().polled;
            polled.changed = polled.tracks_changes.then(BTreeSet::new);
        }
        group
    }

    /// Returns the open runs that may have changed, the outermost first.
    fn places_to_poll(&mut self) -> Vec<RunPath> {
        let changed = self.driving.as_ref().and_then(|driving| driving.polled.changed.as_ref());
        let Some(changed) = changed else { return self.open_places() };
        let run_at = |path: &RunPath| {
            path.ids().iter().try_fold(&**self, |run, call| run.asked_by_call_in_flight(call))
        };
        let mut has_exclusive = self.driving.as_ref().is_some_and(|driving| driving.polled.has_exclusive);
        let mut open = Vec::new();
        for (path, run) in changed.iter().filter_map(|path| Some((path, run_at(path)?))) {
            has_exclusive = has_exclusive || run.has_exclusive_call();
            open.push(path.clone());
        }
        if !has_exclusive {
            return open;
        }
        self.driving.get_or_insert_default().polled.has_exclusive = true;
        self.open_places()
    }

    fn group_of(&mut self, places: Vec<RunPath>) -> Vec<(EffectId, Effect)> {
        let outcome_at = |path: &RunPath| {
            let outcome = self.inner_run_at(path.calls())?.outcome_to_judge()?;
            self.engine_view().may_take_step(path).then(|| outcome.clone())
        };
        let unjudged = places.iter().find_map(|path| Some((path, outcome_at(path)?)));
        if let Some((path, outcome)) = unjudged {
            let subject = LayerSubject::Execution(Box::new(outcome));
            return vec![self.note_in_flight(path.clone(), Effect::Judge(subject))];
        }
        let takes_steps = self.profile().is_none();
        // Steps apply the policies of the tools themselves.
        if !takes_steps {
            for path in &places {
                self.change_inner_run_at(&path.calls(), Run::apply_profile);
            }
        }
        if self.has_given_up_calls() && self.engine_view().may_take_step(&RunPath::default()) {
            return vec![self.note_in_flight(RunPath::default(), Effect::GiveUp)];
        }
        let started = self.start(&places);
        match takes_steps {
            _ if !started.is_empty() => started,
            true => self.steps(&places),
            false => self.recorded_steps(),
        }
    }

    /// Returns the steps of runs inside, which change the runs themselves, beside each other. Those of the outermost run are taken outside of this
    /// loop.
    fn steps(&mut self, places: &[RunPath]) -> Vec<(EffectId, Effect)> {
        let is_busy = |path: &RunPath| {
            self.engine_view().awaited_from(path).next().is_some_and(|id| id.path.is_below(path))
        };
        let inside = places.iter().filter(|path| path.depth() > 0);
        let needed = inside.filter_map(|path| {
            let run = self.inner_run_at(path.calls()).filter(|run| !run.is_stalled())?;
            let effect = match run {
                run if run.is_done() => Effect::End,
                run if run.is_asking() => Effect::CallModel,
                run if run.awaits_step() && !is_busy(path) => Effect::Judge(LayerSubject::Next),
                _ => return None,
            };
            self.engine_view().may_take_step(path).then(|| (path.clone(), effect))
        });
        let needed: Vec<_> = needed.collect();
        needed.into_iter().map(|(path, effect)| self.note_in_flight(path, effect)).collect()
    }

    /// Returns the next step that the world records.
    fn recorded_steps(&mut self) -> Vec<(EffectId, Effect)> {
        let places = self.open_places();
        let all = |is: &dyn Fn(&Run) -> bool| -> Vec<RunPath> {
            let free = places.iter().filter(|path| self.engine_view().may_take_step(path));
            let is = |run: &Run| !run.is_stalled() && is(run);
            free.filter(|path| self.inner_run_at(path.calls()).is_some_and(is)).cloned().collect()
        };
        let step = if let Some(path) = all(&Run::awaits_step).into_iter().next() {
            Some((path, Effect::Judge(LayerSubject::Next)))
        // Not in the step that asks a model, which reports it again each time that the model fails.
        } else if let Some(path) = all(&Run::has_unrecorded).into_iter().next() {
            Some((path, Effect::Judge(LayerSubject::Results)))
        } else {
            let done = all(&Run::is_done).into_iter().find(|path| path.depth() > 0);
            done.map(|path| (path, Effect::End))
        };
        if let Some((path, effect)) = step {
            return vec![self.note_in_flight(path, effect)];
        }
        let mut asking = all(&Run::is_asking);
        // What one request costs is known before the next one, because requests of one step do not know of each other.
        if !all(&|run| run.limits().max_cost.is_some()).is_empty() {
            asking.truncate(1);
        }
        asking.into_iter().map(|path| self.note_in_flight(path, Effect::CallModel)).collect()
    }

    /// Starts all calls that can start beside each other.
    fn start(&mut self, places: &[RunPath]) -> Vec<(EffectId, Effect)> {
        let mut effects = Vec::new();
        loop {
            let before = effects.len();
            for (path, calls) in self.startable_runs(places) {
                let started: Vec<_> = calls.iter().filter_map(|call| self.start_call(&path, call)).collect();
                effects.extend(started.into_iter().map(|effect| self.note_in_flight(path.clone(), effect)));
            }
            if effects.len() == before {
                return effects;
            }
        }
    }

    fn start_call(&mut self, path: &RunPath, call: &ToolCall) -> Option<Effect> {
        self.mark_at(path, |run| {
            let request = Box::new(run.begin_remote_call(&call.id).ok()?);
            run.set_polled(&call.id);
            Some(if run.asks_agent(&call.id) { Effect::Begin(request) } else { Effect::Call(request) })
        })?
    }

    /// States that an effect is in flight.
    fn note_in_flight(&mut self, path: RunPath, effect: Effect) -> (EffectId, Effect) {
        let given_up = self.given_up.len();
        let polled = &mut self.driving.get_or_insert_default().polled;
        let number = polled.numbers.entry(path.clone()).or_default();
        *number = number.wrapping_add(1);
        let id = EffectId { path, number: *number };
        polled.awaited.insert(id.clone(), Awaited::result_of(&effect, given_up));
        (id, effect)
    }
}

impl<'r> EngineView<'r> {
    /// Returns `true` if an effect is in flight and its run goes on.
    #[must_use]
    pub fn is_awaited(self, id: &EffectId) -> bool {
        let awaited = self.driving.as_ref().and_then(|driving| driving.polled.awaited.get(id));
        let Some((awaited, run)) = awaited.zip(self.inner_run_at(id.path.calls())) else { return false };
        match awaited {
            Awaited::Call(call) | Awaited::Begin(call) | Awaited::Outcome(call) => run.has_open_call(call),
            Awaited::End => run.is_done(),
            Awaited::Ask => run.is_asking(),
            Awaited::Next | Awaited::Results | Awaited::GiveUp(_) | Awaited::Step { .. } => true,
        }
    }

    /// Returns `true` if something is in flight for the run at this place.
    pub(crate) fn awaits_at(self, path: &RunPath) -> bool {
        self.awaited_from(path).next().is_some_and(|id| id.path == *path)
    }

    /// Returns the effects in flight in the order of their runs: first the effects of this run, then the effects of the runs inside.
    pub(super) fn in_flight_from(
        self,
        path: &RunPath,
    ) -> impl Iterator<Item = (&'r EffectId, &'r Awaited)> + use<'r> {
        let first = EffectId { path: path.clone(), number: 0 };
        self.0.driving.iter().flat_map(move |driving| driving.polled.awaited.range(first.clone()..))
    }

    fn awaited_from(self, path: &RunPath) -> impl Iterator<Item = &'r EffectId> + use<'r> {
        self.in_flight_from(path).map(|(id, _)| id)
    }

    /// Returns `true` if the world may do something else than a call for a run: nothing of the kind is in flight, and the caller does not do it.
    fn may_take_step(self, path: &RunPath) -> bool {
        let is_handed_out = self.driving.as_ref().is_some_and(|driving| driving.polled.hands_out_steps);
        !(self.is_taking_step(path) || is_handed_out && path.depth() == 0)
    }

    /// Returns `true` if something else than a call is in flight for a run.
    pub(super) fn is_taking_step(self, path: &RunPath) -> bool {
        let Some(driving) = &self.driving else { return false };
        let mut at = self.awaited_from(path).take_while(|id| id.path == *path);
        at.any(|id| !matches!(driving.polled.awaited.get(id), Some(Awaited::Call(_) | Awaited::Begin(_))))
    }
}
