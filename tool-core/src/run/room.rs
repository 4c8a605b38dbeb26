//! What may start now, beside the calls in flight.
//!
//! What is in flight is a mark of each call's record, and is not stored: what a restored run had in flight was interrupted.
//!
//! What may start beside exclusive calls is decided for the whole tree of runs, in this process and on Restate (`OpenRuns`), because
//! each run sees only its own calls. What waits occupies no room: neither a parked call nor an agent in whose run everything waits.

use std::collections::HashSet;

use super::effect::RunPath;
use super::state::{CallRecord, LayerSight, Mark, OpenStep, Run, Stage};
use crate::model::{ToolCall, ToolKind};
use crate::tool::{Attempt, ToolExecution};

/// The runs of a tree in which calls can start, and the calls that lead to each.
#[derive(Debug, Default)]
struct OpenRuns<'a>(Vec<PlacedRun<'a>>);

#[derive(Debug)]
struct PlacedRun<'a> {
    place: Vec<&'a str>,
    run: &'a Run,
}

impl<'a> OpenRuns<'a> {
    /// Adds a run after the runs around it.
    fn add(&mut self, place: Vec<&'a str>, run: &'a Run) {
        self.0.push(PlacedRun { place, run });
    }

    /// Adds a run, and those of the agents that its calls in flight ask.
    fn add_tree(&mut self, place: Vec<&'a str>, run: &'a Run) {
        self.add(place.clone(), run);
        for (id, inner) in run.asked_in_flight() {
            self.add_tree(place.iter().copied().chain([id]).collect(), inner);
        }
    }

    fn startable_in(&self, own: &PlacedRun<'_>) -> Vec<ToolCall> {
        let mut calls = own.run.can_start();
        if !calls.is_empty() {
            let agent = self.exclusive_agent();
            let is_awaited = self.awaits_exclusive(&own.place, &agent);
            calls.retain(|call| self.leaves_room(own, call, &agent, is_awaited));
        }
        calls.into_iter().cloned().collect()
    }

    /// Returns `true` if a call can start beside those of the whole tree; its run has checked its own. An exclusive call runs alone. A call
    /// that asks an agent is beside others, unless it is exclusive: then only calls of its agent run.
    fn leaves_room(&self, own: &PlacedRun<'_>, call: &ToolCall, agent: &[&str], is_awaited: bool) -> bool {
        let is_exclusive = own.run.is_exclusive(&call.id);
        if own.run.asks_agent(&call.id) && !is_exclusive {
            return true;
        }
        // Calls outside of an exclusive agent can have started while it waited.
        let mut excludes = self.0.iter().flat_map(|one| {
            let executed = one.run.working().filter(|(id, _)| !one.run.asks_agent(id));
            executed.map(|(_, record)| is_exclusive || record.is_exclusive() || !one.place.starts_with(agent))
        });
        own.place.starts_with(agent) && (is_exclusive || !is_awaited) && !excludes.any(|excludes| excludes)
    }

    /// Returns the place of the exclusive agent at work, empty without one.
    fn exclusive_agent(&self) -> Vec<&str> {
        let agents = self.0.iter().flat_map(|one| {
            let calls = one.run.working().filter(|(_, record)| record.is_exclusive());
            let agents = calls.filter(|(id, _)| one.run.asks_agent(id));
            agents.map(|(id, _)| one.place.iter().copied().chain([id]).collect::<Vec<_>>())
        });
        // One inside the other; of several, the first one of the reply.
        agents.fold(Vec::new(), |outer, inner| if inner.starts_with(&outer) { inner } else { outer })
    }

    /// Returns `true` if an exclusive call of another run can start once it has room. Otherwise it could wait for ever while others overlap.
    /// Those outside of an exclusive agent at work wait for its end.
    fn awaits_exclusive(&self, place: &[&str], agent: &[&str]) -> bool {
        let mut others = self.0.iter().filter(|one| one.place != place && one.place.starts_with(agent));
        others.any(|one| {
            let starts_alone = |call: &&ToolCall| one.run.is_exclusive(&call.id);
            one.run.may_start() && one.run.can_start().iter().any(starts_alone)
        })
    }
}

impl Run {
    /// Lets only these calls start until the next step, so many at a time, with layers that see this of their outcomes. What an earlier step had in
    /// flight is forgotten.
    pub(crate) fn open_step(&mut self, max: usize, waiting: HashSet<String>, sees: LayerSight) {
        self.unmark(|id, mark| match mark {
            Mark::Begun { .. } | Mark::Polled { .. } => false,
            Mark::Executing => !waiting.contains(id),
            Mark::Suspended => true,
        });
        let has_exclusive = self.open_records().any(CallRecord::is_exclusive);
        let driving = self.driving.get_or_insert_default();
        driving.step = Some(OpenStep { max, waiting, sees, has_exclusive });
        self.clear_stall();
    }

    /// Lets what could not be done be done again.
    pub(crate) fn clear_stall(&mut self) {
        if let Some(driving) = &mut self.driving {
            (driving.is_stalled, driving.is_stalled_inside) = (false, false);
        }
    }

    /// Forgets what a driver had in flight: it counts as interrupted.
    pub(crate) fn forget_in_flight(&mut self) {
        self.unmark(|_, _| true);
        self.driving.iter_mut().for_each(|driving| driving.step = None);
        self.clear_stall();
    }

    /// Forgets what was in flight and has no outcome.
    pub(super) fn forget_unjudged(&mut self) {
        self.change_marks(|_, record| record.mark = record.mark.filter(|_| record.to_judge.is_some()));
    }

    /// Removes these marks.
    fn unmark(&mut self, is_removed: impl Fn(&str, Mark) -> bool) {
        self.change_marks(|call, record| {
            record.mark = record.mark.filter(|mark| !is_removed(&call.id, *mark));
        });
    }

    fn change_marks(&mut self, change: impl Fn(&ToolCall, &mut CallRecord)) {
        match &mut self.stage {
            Stage::Calling(turn) => {
                self.history
                    .last_calls()
                    .iter()
                    .zip(&mut turn.calls)
                    .for_each(|(call, one)| change(call, one));
            }
            Stage::Undoing(undoing) => change(&undoing.call, &mut undoing.record),
            _ => {}
        }
    }

    /// Returns the attempt of a call that was started and that nobody has executed.
    pub(crate) fn begun_attempt(&self, call_id: &str) -> Option<Attempt> {
        let record = self.record(call_id)?;
        let Some(Mark::Begun { is_continued }) = record.mark else { return None };
        let (key, number) = (self.key(call_id), record.running_attempt()?);
        Some(Attempt { key, number, is_continued, has_checked_arguments: record.rewriters.is_some() })
    }

    /// Notes that a call was started, and forgets those that are not in flight any more.
    pub(super) fn note_started(&mut self, call_id: &str) {
        let position = self.call_position(call_id);
        let records = self.stage.records();
        let started = &mut self.driving.get_or_insert_default().started;
        // Seldom enough for a reply with many calls.
        if started.len().is_power_of_two() {
            started.retain(|at| records.get(*at).is_some_and(|record| record.mark.is_some()));
        }
        started.extend(position);
    }

    /// Lets a call whose attempt has failed start again in this step.
    pub(super) fn readmit(&mut self, call_id: &str) {
        if let Some(step) = self.open_step_mut() {
            step.waiting.insert(call_id.to_owned());
        }
    }

    /// States that a call which was started is executed.
    pub(crate) fn set_executing(&mut self, call_id: &str) {
        if let Some(step) = self.open_step_mut() {
            step.waiting.remove(call_id);
        }
        if let Some(record) = self.record_mut(call_id).filter(|record| record.is_open()) {
            record.mark = Some(Mark::Executing);
        }
    }

    /// States that the engine returns a call which was started.
    pub(super) fn set_polled(&mut self, call_id: &str) {
        if let Some(record) = self.record_mut(call_id)
            && let Some(Mark::Begun { is_continued }) = record.mark
        {
            record.mark = Some(Mark::Polled { is_continued });
        }
    }

    /// Ends a call without an outcome. It occupies no room, and is not started again in this step.
    pub(crate) fn suspend_call(&mut self, call_id: &str) {
        if let Some(record) = self.record_mut(call_id).filter(|record| record.is_open()) {
            record.mark = Some(Mark::Suspended);
        }
        if let Some(step) = self.open_step_mut() {
            step.waiting.remove(call_id);
        }
    }

    /// Takes back the start of a call that the engine has returned and nobody has executed: it can start again.
    pub(super) fn take_back_call(&mut self, call_id: &str) {
        if self.record(call_id).is_some_and(|record| matches!(record.mark, Some(Mark::Polled { .. }))) {
            self.open_record(call_id).into_iter().for_each(CallRecord::take_back);
        }
    }

    /// Leaves a call whose step has not executed it: it can start again, as another attempt.
    pub(super) fn leave_call(&mut self, call_id: &str) {
        if let Some(record) = self.record_mut(call_id).filter(|record| record.is_open()) {
            record.mark = None;
        }
    }

    /// Returns `true` if the world has begun to execute a call.
    pub(super) fn is_executing_call(&self, call_id: &str) -> bool {
        self.record(call_id).is_some_and(|record| record.mark == Some(Mark::Executing))
    }

    /// Returns `true` if this driver executes a call.
    pub(crate) fn is_in_flight(&self, call_id: &str) -> bool {
        let call = self.requested_call(call_id).zip(self.record(call_id));
        call.is_some_and(|(call, record)| self.is_marked(call, record))
    }

    /// Returns the calls that were started, among which are those in flight, in the order of the reply.
    fn marked_calls(&self) -> impl Iterator<Item = (&ToolCall, &CallRecord)> {
        let undoing = match &self.stage {
            Stage::Undoing(undoing) => Some((&undoing.call, &undoing.record)),
            _ => None,
        };
        let started = self.driving.iter().flat_map(|driving| &driving.started);
        let at = |position: &usize| self.calls().get(*position).zip(self.stage.records().get(*position));
        started.filter_map(at).chain(undoing)
    }

    /// Returns `true` if this driver executes the call. One that its caller has started and not executed is not in flight in a step of others.
    fn is_marked(&self, call: &ToolCall, record: &CallRecord) -> bool {
        match record.mark {
            Some(Mark::Polled { .. } | Mark::Executing) => true,
            Some(Mark::Begun { .. }) => self.is_of_step(call),
            Some(Mark::Suspended) | None => false,
        }
    }

    /// Returns the calls that can start, of a world that prepares them in its steps.
    fn step(&self) -> Option<&OpenStep> {
        self.driving.as_ref()?.step.as_ref()
    }

    fn open_step_mut(&mut self) -> Option<&mut OpenStep> {
        self.driving.as_mut()?.step.as_mut()
    }

    fn is_of_step(&self, call: &ToolCall) -> bool {
        self.step().is_none_or(|step| step.waiting.contains(&call.id))
    }

    /// Returns what layers see of the outcomes of the last turn.
    pub(crate) fn sees(&self) -> LayerSight {
        let of_step = || self.step().map(|step| step.sees);
        self.profile().map(|profile| profile.sees).or_else(of_step).unwrap_or_default()
    }

    /// Returns `true` if the world has to take a step before something else is done: layers have something to judge, or no call of the step is left
    /// that is in flight or can start.
    pub(super) fn awaits_step(&self) -> bool {
        match self.profile() {
            Some(_) => self.awaits_layers(),
            None => {
                let is_at_work = self.is_asking() || self.is_done() || self.is_blocked();
                let is_at_work = is_at_work || self.calls_at_work().next().is_some();
                !is_at_work && (self.step().is_none() || self.can_start().is_empty())
            }
        }
    }

    /// Returns `true` if nothing further is done in the run now: it is stalled, or runs inside are and nothing else is in flight or can start.
    pub(crate) fn is_at_rest(&self) -> bool {
        let Some(driving) = &self.driving else { return false };
        let is_inside = || self.calls_at_work().next().is_some() && self.can_start().is_empty();
        (driving.is_stalled || driving.is_stalled_inside && is_inside()) && self.working().next().is_none()
    }

    /// Returns `true` if calls of the run can start as soon as there is room.
    fn may_start(&self) -> bool {
        match self.profile() {
            Some(_) => !self.awaits_layers(),
            None => self.step().is_some() && !self.is_stalled(),
        }
    }

    /// Returns `true` if something of the run could not be done, so that nothing further is done for it.
    pub(crate) fn is_stalled(&self) -> bool {
        self.driving.as_ref().is_some_and(|driving| driving.is_stalled)
    }

    /// Returns the runs of the agents that calls in flight ask, with the ids of the calls.
    fn asked_in_flight(&self) -> impl Iterator<Item = (&str, &Self)> {
        // Most calls ask none.
        let may_ask = |record: &CallRecord| record.inner().is_some() || self.is_undoing();
        let calls = self.marked_calls().filter(move |(_, record)| may_ask(record));
        let calls = calls.filter(|(call, record)| self.is_asking_agent(call, record));
        calls.filter_map(|(call, _)| Some((&*call.id, self.open_inner_run(&call.id)?)))
    }

    /// Returns the run of the agent that a call in flight asks.
    pub(super) fn asked_by_call_in_flight(&self, call_id: &str) -> Option<&Self> {
        let (call, record) = self.requested_call(call_id).zip(self.record(call_id))?;
        self.is_asking_agent(call, record).then(|| self.open_inner_run(call_id)).flatten()
    }

    /// Returns `true` if the run of the agent that a call asks can go on. That of one that has an outcome, or was not begun in this process, cannot.
    fn is_asking_agent(&self, call: &ToolCall, record: &CallRecord) -> bool {
        let is_marked = self.is_marked(call, record) && !matches!(record.mark, Some(Mark::Polled { .. }));
        is_marked && record.to_judge.is_none()
    }

    /// Returns the runs of the agents that calls in flight ask.
    pub(super) fn working_inner_runs(&self) -> impl Iterator<Item = &Self> {
        self.asked_in_flight().map(|(_, inner)| inner)
    }

    /// Returns `true` if a call is in flight that asks no agent, or has not asked it yet.
    pub(super) fn is_executing(&self) -> bool {
        let mut calls = self.marked_calls().filter(|(call, record)| self.is_marked(call, record));
        calls.any(|(call, _)| self.open_inner_run(&call.id).is_none())
    }

    /// Returns the runs of the tree that work, the outermost first.
    pub(crate) fn open_places(&self) -> Vec<RunPath> {
        let mut tree = OpenRuns::default();
        tree.add_tree(Vec::new(), self);
        tree.0.iter().map(|one| one.place.iter().map(|id| (*id).to_owned()).collect()).collect()
    }

    /// Returns the outcome of a call that layers have to judge before it is recorded.
    pub(super) fn outcome_to_judge(&self) -> Option<&ToolExecution> {
        self.marked_calls().find_map(|(_, record)| record.to_judge.as_deref())
    }

    /// Sets an outcome that layers have to judge. The run of the agent that the call has asked goes on no more.
    pub(super) fn set_outcome_to_judge(&mut self, execution: ToolExecution) {
        if let Some(record) = self.record_mut(&execution.call().id) {
            record.to_judge = Some(Box::new(execution));
        }
    }

    pub(crate) fn take_outcome_to_judge(&mut self, call_id: &str) -> Option<ToolExecution> {
        self.record_mut(call_id)?.to_judge.take().map(|execution| *execution)
    }

    /// Returns runs of the tree that have calls which can start now, with these: all such runs, or one alone if calls of the tree exclude others.
    /// What layers have to judge first does not start, and nothing does without a [profile](Self::set_profile) or an open step.
    ///
    /// Looks only at the runs at these places, unless calls exclude others.
    pub(super) fn startable_runs(&self, places: &[RunPath]) -> Vec<(RunPath, Vec<ToolCall>)> {
        let mut tree = OpenRuns::default();
        for path in places {
            if let Some(run) = self.inner_run_at(path.calls()) {
                tree.add(path.calls(), run);
            }
        }
        let has_exclusive = tree.0.iter().any(|one| one.run.has_exclusive_call());
        let judged = tree.0.iter().filter(|one| one.run.may_start());
        let startable = judged.map(|one| {
            let calls = match has_exclusive {
                true => tree.startable_in(one),
                false => one.run.startable(),
            };
            (one.place.iter().map(|id| (*id).to_owned()).collect(), calls)
        });
        let startable = startable.filter(|(_, calls): &(_, Vec<ToolCall>)| !calls.is_empty());
        startable.take(if has_exclusive { 1 } else { usize::MAX }).collect()
    }

    /// Returns `true` if an open call of the run excludes others.
    pub(super) fn has_exclusive_call(&self) -> bool {
        // The policies of its calls stay as they are.
        match self.step() {
            Some(step) => step.has_exclusive,
            None => self.open_records().any(CallRecord::is_exclusive),
        }
    }

    fn open_records(&self) -> impl Iterator<Item = &CallRecord> {
        let undoing = self.undoing().map(|undoing| &undoing.record);
        let calls = self.unfinished_calls().map(|(_, record)| record).filter(|record| record.is_open());
        undoing.into_iter().chain(calls)
    }

    /// Returns the calls that can be started now, beside those in flight: as many as there is room for, and an exclusive one alone.
    pub(super) fn startable(&self) -> Vec<ToolCall> {
        self.can_start().into_iter().cloned().collect()
    }

    /// Returns the calls that can be started now.
    pub(crate) fn can_start(&self) -> Vec<&ToolCall> {
        match &self.stage {
            // The tools of the calls are not known yet.
            Stage::Calling(_) if self.awaits_tools() => Vec::new(),
            Stage::Calling(_) if self.step().is_some_and(|step| step.waiting.is_empty()) => Vec::new(),
            Stage::Calling(_) => self.ready_calls().unwrap_or_default(),
            Stage::Undoing(undoing) if undoing.record.mark.is_none() && self.is_of_step(&undoing.call) => {
                vec![&undoing.call]
            }
            _ => Vec::new(),
        }
    }

    /// Returns `true` if the run takes an outcome of this call: it is a call of the current turn, or the next one that undoes another,
    /// and has none yet. The calls in flight of a run that has stopped are to be cancelled.
    pub(crate) fn has_open_call(&self, call_id: &str) -> bool {
        self.record(call_id).is_some_and(CallRecord::is_open)
    }

    /// Returns `true` if a call excludes others.
    pub(crate) fn is_exclusive(&self, call_id: &str) -> bool {
        self.record(call_id).is_some_and(CallRecord::is_exclusive)
    }

    /// Returns `true` if a call asks an agent, or undoes the calls of one.
    pub(crate) fn asks_agent(&self, call_id: &str) -> bool {
        self.engine_view().kind_of(call_id) == Some(ToolKind::Agent) || self.open_inner_run(call_id).is_some()
    }

    /// Returns the calls in flight that occupy room, in the order of the reply. That of an agent whose run waits, or is at rest, does not.
    fn working(&self) -> impl Iterator<Item = (&str, &CallRecord)> {
        let is_at_rest = |record: &CallRecord| {
            record.mark == Some(Mark::Executing)
                && record.to_judge.is_none()
                && record.inner().is_some_and(|inner| inner.run().is_at_rest())
        };
        let working = self.calls_at_work().filter(move |(_, record)| !is_at_rest(record));
        working.map(|(call, record)| (&*call.id, record))
    }

    /// Returns the calls in flight, without calls of agents whose runs wait.
    fn calls_at_work(&self) -> impl Iterator<Item = (&ToolCall, &CallRecord)> {
        let marked = self.marked_calls().filter(|(call, record)| self.is_marked(call, record));
        marked.filter(|(_, record)| record.is_ready())
    }

    /// Returns the calls of the turn that can be started now, which are none while others must finish first. Returns `None` if all
    /// open calls wait. Looks no further than there is room.
    pub(super) fn ready_calls(&self) -> Option<Vec<&ToolCall>> {
        let (mut running, mut is_alone) = (0, false);
        for (_, record) in self.working() {
            (running, is_alone) = (running + 1, is_alone || record.is_exclusive());
        }
        let startable = || {
            let ready =
                self.unfinished_calls().filter(|(_, record)| record.mark.is_none() && record.is_ready());
            ready.filter(|(call, _)| self.is_of_step(call))
        };
        // An exclusive call runs alone, once no other call is ready or in flight.
        let max =
            self.step().map(|step| step.max).or(self.profile().map(|profile| profile.max_concurrent_calls));
        let room = if is_alone { 0 } else { max.unwrap_or(usize::MAX).saturating_sub(running) };
        let mut calls: Vec<_> = startable().filter(|(_, one)| !one.is_exclusive()).take(room).collect();
        if running == 0 && calls.is_empty() {
            calls.extend(startable().take(room.min(1)));
        }
        (!calls.is_empty() || running > 0).then(|| calls.into_iter().map(|(call, _)| call).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AssistantMessage, ChatResponse, Message, ToolDefinition, ToolPolicy};
    use crate::run::state::AgentProfile;
    use crate::run::{Decision, Effect, EffectResult, StepError};
    use crate::tool::ToolOutput;

    /// A run that has requested these calls, whose world executes one call at a time.
    fn run_with_calls(calls: &[(&str, &str)]) -> Run {
        let mut run = Run::new([Message::user("Go")]);
        let calls = calls.iter().map(|(id, name)| ToolCall::new(*id, *name, "{}"));
        let message = AssistantMessage::default().with_tool_calls(calls);
        run.record_response(ChatResponse::new(message)).unwrap();
        let exclusive = ToolPolicy { exclusive: true, ..ToolPolicy::default() };
        let clerk = ToolDefinition::new("clerk").with_policy(exclusive).with_kind(ToolKind::Agent);
        let mut profile = AgentProfile::new(1);
        profile.called = [clerk, ToolDefinition::new("work")].into_iter().collect();
        run.set_profile(profile);
        judge(&mut run);
        run.apply_profile();
        run
    }

    /// Lets layers judge the calls of a run, which are none.
    fn judge(run: &mut Run) {
        for (call, _) in run.calls_to_judge() {
            run.set_call_judged(&call.id);
        }
    }

    fn startable(run: &Run) -> Vec<String> {
        let all = run.startable_runs(&run.open_places()).into_iter();
        let path = |place: &RunPath, call: ToolCall| place.inside(&call.id).calls().join("/");
        all.flat_map(|(place, calls)| calls.into_iter().map(|call| path(&place, call)).collect::<Vec<_>>())
            .collect()
    }

    /// Returns the calls that are polled next.
    fn polled(run: &mut Run) -> Vec<String> {
        loop {
            judge(run);
            let group: Vec<_> = std::iter::from_fn(|| run.engine().poll()).collect();
            let calls = group.iter().filter_map(|(_, effect)| match effect {
                Effect::Call(request) => Some(request.call.id.clone()),
                _ => None,
            });
            let calls: Vec<_> = calls.collect();
            if group.is_empty() || !calls.is_empty() {
                return calls;
            }
            group.iter().for_each(|(id, _)| run.engine().handle(id, EffectResult::Nothing).unwrap());
        }
    }

    fn finish(run: &mut Run, id: &str, tool: &str) -> Result<(), StepError> {
        let output = Ok(ToolOutput::text("done"));
        run.record_result(ToolExecution::new(ToolCall::new(id, tool, "{}"), output))
    }

    #[test]
    fn calls_in_flight_are_not_lost_and_not_returned_again() {
        let definition = |name: &str, change: fn(&mut ToolPolicy)| {
            let mut policy = ToolPolicy::default();
            change(&mut policy);
            ToolDefinition::new(name).with_policy(policy)
        };
        let mut run = run_with_calls(&[("a", "once"), ("b", "pay"), ("c", "alone")]);
        let mut profile = AgentProfile::new(8);
        profile.called = [
            definition("once", |policy| policy.at_most_once = true),
            definition("pay", |policy| policy.needs_approval = true),
            definition("alone", |policy| policy.exclusive = true),
        ]
        .into_iter()
        .collect();
        run.set_profile(profile);
        assert_eq!(polled(&mut run), ["a"]);
        // The exclusive call waits for the one in flight, and the run for both.
        assert_eq!(polled(&mut run), [""; 0]);
        run.resolve_all(|_| Decision::approve()).unwrap();
        assert_eq!(polled(&mut run), ["b"]);
        finish(&mut run, "a", "once").unwrap();
        finish(&mut run, "b", "pay").unwrap();
        assert_eq!(polled(&mut run), ["c"]);
        assert_eq!(polled(&mut run), [""; 0]);
    }

    #[test]
    fn calls_are_started_as_far_as_there_is_room() {
        let mut run = run_with_calls(&[("a", "work"), ("b", "work"), ("c", "work"), ("d", "work")]);
        let mut profile = run.profile().unwrap().clone();
        profile.max_concurrent_calls = 2;
        run.set_profile(profile);
        assert_eq!(polled(&mut run), ["a", "b"]);
        assert_eq!(polled(&mut run), [""; 0]);
        finish(&mut run, "a", "work").unwrap();
        assert_eq!(polled(&mut run), ["c"]);
        // A run that has stopped takes no outcome of what is in flight.
        run.cancel();
        for id in ["b", "c"] {
            let late = finish(&mut run, id, "work").unwrap_err();
            assert_eq!(late.to_string(), "the run does not expect this: no call with this id is open");
        }
        assert!(run.is_done());
    }

    #[test]
    fn a_restored_run_starts_nothing_before_its_driver_knows_the_agent() {
        let run = run_with_calls(&[("a", "work")]);
        assert_eq!(startable(&run), ["a"]);
        let mut restored: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        judge(&mut restored);
        assert_eq!(startable(&restored), [""; 0]);
        restored.set_profile(run.profile().unwrap().clone());
        assert_eq!(startable(&restored), ["a"]);
    }

    /// An agent in whose run everything waits holds no room and excludes nothing. Once it goes on, its calls do not overlap with those that
    /// have started meanwhile.
    #[test]
    fn waiting_agents_hold_no_room() {
        let mut outer = run_with_calls(&[("a", "clerk"), ("b", "clerk")]);
        let ask = |outer: &mut Run, id: &str| {
            outer.begin_call(id).unwrap();
            outer
                .add_inner_run(&ToolCall::new(id, "clerk", "{}"), false, run_with_calls(&[("work", "work")]))
                .unwrap();
        };
        let change = |outer: &mut Run, id: &str, change: &dyn Fn(&mut Run) -> Result<(), StepError>| {
            let changed = outer.change_inner_run_at(&[id], |inner| {
                change(inner)?;
                judge(inner);
                Ok(())
            });
            changed.unwrap().unwrap_or_else(|error: StepError| panic!("{error}"));
        };
        assert_eq!(startable(&outer), ["a"]);
        ask(&mut outer, "a");
        assert_eq!(startable(&outer), ["a/work"]);
        change(&mut outer, "a", &|inner| inner.require_approval("work"));
        assert_eq!(startable(&outer), ["b"]);
        ask(&mut outer, "b");
        change(&mut outer, "b", &|inner| inner.begin_call("work").map(drop));
        change(&mut outer, "a", &|inner| {
            inner.resolve_all(|_| Decision::approve()).unwrap();
            Ok(())
        });
        assert_eq!(startable(&outer), [""; 0]);
        change(&mut outer, "b", &|inner| {
            inner.leave_call("work");
            Ok(())
        });
        assert_eq!(startable(&outer), ["a/work"]);
    }
}
