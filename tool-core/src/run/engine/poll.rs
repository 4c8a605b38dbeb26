//! What is done next, in which order.
//!
//! Outcomes are judged before anything follows from them, then the policies of the tools apply, then tools learn which calls are given up. Calls
//! start before layers judge what precedes a step, are told what has happened, and before runs end and models are asked, because a world
//! can be unable to start calls meanwhile.
//!
//! Effects are returned in groups of which no one changes another. One thing is judged at a time, because layers can change what follows.

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
            Awaited::End | Awaited::Next | Awaited::Results | Awaited::Ask | Awaited::GiveUp => true,
        }
    }

    fn next_group(&mut self) -> Vec<(EffectId, Effect)> {
        if let Some((path, outcome)) = self.first(|run| run.outcome_to_judge().cloned()) {
            return vec![self.begin(path, Effect::Judge(Subject::Outcome(outcome.into())))];
        }
        for path in self.open_places() {
            self.change_inner_run_at(&path.calls(), Self::apply_profile);
        }
        if self.has_given_up_calls() {
            return vec![self.begin(RunPath::default(), Effect::GiveUp)];
        }
        let started = self.start();
        if !started.is_empty() {
            return started;
        }
        let is_true = |is: fn(&Self) -> bool| move |run: &Self| is(run).then_some(());
        if let Some((path, ())) = self.first(is_true(Self::awaits_layers)) {
            return vec![self.begin(path, Effect::Judge(Subject::Next))];
        }
        // Not in the step that asks a model, which reports it again each time that the model fails.
        if let Some((path, ())) = self.first(is_true(Self::has_unrecorded)) {
            return vec![self.begin(path, Effect::Judge(Subject::Results))];
        }
        let done = self.paths_of(Self::is_done).into_iter().find(|path| path.depth() > 0);
        if let Some(path) = done {
            return vec![self.begin(path, Effect::End)];
        }
        let mut asking = self.paths_of(Self::is_asking);
        // What one request costs is known before the next one, because requests of one step do not know of each other.
        if !self.paths_of(|run| run.limits().max_cost.is_some()).is_empty() {
            asking.truncate(1);
        }
        asking.into_iter().map(|path| self.begin(path, Effect::Ask)).collect()
    }

    /// Starts all calls that can start beside each other.
    fn start(&mut self) -> Vec<(EffectId, Effect)> {
        let mut effects = Vec::new();
        while let Some((path, calls)) = self.next_startable() {
            let started: Vec<_> = calls.iter().filter_map(|call| self.start_call(&path, call)).collect();
            if started.is_empty() {
                break;
            }
            effects.extend(started.into_iter().map(|effect| self.begin(path.clone(), effect)));
        }
        effects
    }

    fn start_call(&mut self, path: &RunPath, call: &ToolCall) -> Option<Effect> {
        self.change_inner_run_at(&path.calls(), |run| {
            let request = Box::new(run.request_call(&call.id).ok()?);
            Some(if run.asks_agent(&call.id) { Effect::Begin(request) } else { Effect::Call(request) })
        })?
    }

    /// States that an effect is in flight.
    fn begin(&mut self, path: RunPath, effect: Effect) -> (EffectId, Effect) {
        let number = self.change_inner_run_at(&path.calls(), |run| {
            let polled = &mut run.driving.get_or_insert_default().polled;
            polled.number = polled.number.wrapping_add(1);
            polled.number
        });
        let id = EffectId { path, number: number.unwrap_or_default() };
        self.driving.get_or_insert_default().polled.awaited.insert(id.clone(), Awaited::of(&effect));
        (id, effect)
    }

    /// Returns the first run of the tree of which this returns something, unless a step of it is in flight.
    fn first<T>(&self, of: impl Fn(&Self) -> Option<T>) -> Option<(RunPath, T)> {
        let mut paths = self.open_places().into_iter().filter(|path| !self.takes_step(path));
        paths.find_map(|path| {
            let found = of(self.inner_run_at(path.calls())?)?;
            Some((path, found))
        })
    }

    fn paths_of(&self, is: impl Fn(&Self) -> bool) -> Vec<RunPath> {
        let is_it =
            |path: &RunPath| self.inner_run_at(path.calls()).is_some_and(&is) && !self.takes_step(path);
        self.open_places().into_iter().filter(is_it).collect()
    }

    /// Returns `true` if something else than a call is in flight for a run.
    fn takes_step(&self, path: &RunPath) -> bool {
        let awaited = self.driving.iter().flat_map(|driving| &driving.polled.awaited);
        let mut steps =
            awaited.filter(|(_, awaited)| !matches!(awaited, Awaited::Call(_) | Awaited::Begin(_)));
        steps.any(|(id, _)| id.path == *path)
    }
}
