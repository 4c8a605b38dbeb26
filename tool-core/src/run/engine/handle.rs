//! What follows from the result of an effect.

use super::view::{Engine, EngineView};
use crate::model::{ToolCall, ToolDefinition};
use crate::run::changes::RunChanges;
use crate::run::effect::{Awaited, EffectId, RunPath};
use crate::run::state::{AgentProfile, LayerSight, Run};
use crate::run::step_error::StepError;
use crate::tool::{ToolError, ToolExecution};

/// The result of an effect.
#[derive(Debug)]
pub enum EffectResult {
    /// A call has an outcome, or waits.
    Finished(Box<ToolExecution>),
    /// The run of an agent begins.
    Began {
        /// The run.
        run: Box<Run>,
        /// The execution of the call that waits for it, with what the next one needs.
        waiting: Option<Box<ToolExecution>>,
        /// What its rules need of the agent.
        profile: AgentProfile,
        /// The run does not count for the limits of the one around it.
        has_own_limits: bool,
    },
    /// The agent that a call asks has answered, or cannot go on: the call of the run at this depth has an outcome.
    Ended(usize, Box<ToolExecution>),
    /// A recorded step has changed the run.
    Changed(Box<RunChanges>),
    /// A recorded step has asked the model, with these tools.
    Asked(Box<RunChanges>, TurnTools),
    /// The agent has panicked, with this text: its run stops and undoes its calls, and the call that asks it fails. If it panics again, the run
    /// around it stops as well.
    Panicked(String),
    /// There was nothing to do: tools know which calls are given up, or the run of the agent exists. Or the step has failed and would fail again: what
    /// layers record counts as known to them, and what was undone counts as failed.
    Nothing,
    /// It cannot be done now. Nothing further is done for the run, but outcomes of its calls are judged and recorded.
    Stalled,
    /// It was not done: the world stopped before, or in the middle of a recorded step, or nobody could pay for it. It is polled again, unless the
    /// run has stopped. A call that is [executed](Engine::set_executing_at) is still awaited.
    Cancelled,
}

/// What a turn has of the agent, as the rules of the run need it.
#[derive(Debug)]
pub struct TurnTools {
    /// What layers see of its calls.
    pub sees: LayerSight,
    /// The tools that it calls.
    pub called: Vec<ToolDefinition>,
    /// The tools that undo these.
    pub undoing: Vec<ToolDefinition>,
    /// The number of calls that are executed at once.
    pub max_concurrent_calls: usize,
}

impl Engine<'_> {
    /// Takes the result of an effect. Ignores it if the effect is not awaited.
    ///
    /// # Errors
    ///
    /// Fails if a recorded step is of another state of the run.
    pub fn handle(&mut self, id: &EffectId, result: EffectResult) -> Result<(), StepError> {
        let awaited = self.driving.as_mut().and_then(|driving| driving.polled.awaited.remove(id));
        let Some(awaited) = awaited else { return Ok(()) };
        let path = &id.path;
        let around: Vec<_> = (0..=path.depth()).map(|depth| path.at_depth(depth)).collect();
        self.note_changed(&around);
        let handled = self.handle_awaited(id, awaited, result);
        self.stop_in_time(&around);
        handled
    }

    fn handle_awaited(
        &mut self,
        id: &EffectId,
        awaited: Awaited,
        result: EffectResult,
    ) -> Result<(), StepError> {
        let path = &id.path;
        if let EffectResult::Panicked(text) = result {
            return self.take_panic(id, awaited, text);
        }
        if let Awaited::Call(call) | Awaited::Begin(call) = &awaited {
            return self.handle_call(id, call, &awaited, result);
        }
        let is_cancelled = matches!(result, EffectResult::Cancelled | EffectResult::Stalled);
        let is_recorded = match &awaited {
            Awaited::Next | Awaited::Results | Awaited::Outcome(_) => !is_cancelled,
            Awaited::Ask => matches!(result, EffectResult::Asked(..)),
            _ => false,
        };
        let handled = match result {
            EffectResult::Ended(depth, execution) => {
                self.take_outcome(&path.at_depth(depth), *execution);
                Ok(())
            }
            EffectResult::Changed(changes) => {
                let taken = self.take_changes_at(path, &changes);
                self.record_unjudged(path, &awaited);
                taken
            }
            EffectResult::Asked(changes, tools) => {
                let taken = self.take_changes_at(path, &changes);
                self.mark_at(path, |run| run.set_turn(tools));
                taken
            }
            EffectResult::Nothing => {
                self.record_failed_undo(path, &awaited);
                Ok(())
            }
            EffectResult::Stalled => {
                self.stall(path, &awaited);
                Ok(())
            }
            EffectResult::Finished(_)
            | EffectResult::Began { .. }
            | EffectResult::Panicked(_)
            | EffectResult::Cancelled => Ok(()),
        };
        if let Awaited::GiveUp(count) = awaited
            && !is_cancelled
        {
            self.forget_given_up_calls(count);
        }
        if is_recorded {
            let has_judged = matches!(awaited, Awaited::Results);
            self.mark_at(path, |run| run.set_recorded(has_judged));
        }
        handled
    }

    /// Stops the run of an agent that has panicked, or ends the call whose agent panics at its beginning or end.
    fn take_panic(&mut self, id: &EffectId, awaited: Awaited, text: String) -> Result<(), StepError> {
        let path = &id.path;
        let asked = match &awaited {
            Awaited::Call(call) | Awaited::Begin(call) => Some(path.inside(call)),
            Awaited::End => Some(path.clone()),
            _ => None,
        };
        let ended = asked.and_then(|asked| Some((asked.depth() - 1, self.panicked_call(&asked, &text)?)));
        let result = ended.map_or(EffectResult::Nothing, |(depth, execution)| {
            EffectResult::Ended(depth, Box::new(execution))
        });
        let is_of_step = matches!(result, EffectResult::Nothing);
        self.driving.get_or_insert_default().polled.awaited.insert(id.clone(), awaited);
        let handled = self.handle(id, result);
        if is_of_step {
            self.stop_panicked(path, text);
        }
        handled
    }

    /// Stops a run whose agent has panicked. If it panics again, the run around it stops, or goes on without what it could not undo inside. Returns
    /// `true` if the outermost run is one of these.
    pub(crate) fn stop_panicked(&mut self, path: &RunPath, text: String) -> bool {
        let has_panicked = self.change_inner_run_at(&path.calls(), |run| {
            let panic = &mut run.driving.get_or_insert_default().panic;
            let has_panicked = panic.replace(text.clone()).is_some();
            if !has_panicked && !run.is_done() {
                run.cancel_unjudged();
            }
            has_panicked
        });
        if path.depth() == 0 || has_panicked != Some(true) {
            return path.depth() == 0;
        }
        let outer = path.at_depth(path.depth() - 1);
        match self.inner_run_at(outer.calls()).is_some_and(Run::is_undoing) {
            true => {
                let ended = self.panicked_call(path, &text);
                ended.into_iter().for_each(|execution| self.take_outcome(&outer, execution));
                false
            }
            false => self.stop_panicked(&outer, text),
        }
    }

    /// Does nothing further for a run. An outcome that could not be judged is left out, and its call counts as interrupted.
    fn stall(&mut self, path: &RunPath, awaited: &Awaited) {
        if let Awaited::Outcome(call) = awaited {
            self.mark_at(path, |run| {
                run.take_outcome_to_judge(call);
                run.suspend_call(call);
            });
        }
        self.stall_at(path);
    }

    /// Does nothing further for a run.
    pub(crate) fn stall_at(&mut self, path: &RunPath) {
        self.mark_at(path, |run| run.driving.get_or_insert_default().is_stalled = true);
        for depth in 0..path.depth() {
            let around = path.at_depth(depth);
            self.mark_at(&around, |run| run.driving.get_or_insert_default().is_stalled_inside = true);
        }
    }

    fn handle_call(
        &mut self,
        id: &EffectId,
        call: &str,
        awaited: &Awaited,
        result: EffectResult,
    ) -> Result<(), StepError> {
        let path = &id.path;
        match (result, awaited) {
            (EffectResult::Finished(execution), _) => self.take_outcome(path, *execution),
            (EffectResult::Ended(depth, execution), _) => {
                self.mark_at(path, |run| {
                    run.take_back_call(call);
                    run.leave_call(call);
                });
                self.take_outcome(&path.at_depth(depth), *execution);
            }
            (EffectResult::Began { run, waiting, profile, has_own_limits }, Awaited::Begin(_)) => {
                return self.begin_agent(path, call, *run, waiting, profile, has_own_limits);
            }
            (EffectResult::Changed(changes), _) => {
                let taken = self.take_changes_at(path, &changes);
                // A step that executes a call leaves it open while a provider of the tools asks.
                self.mark_at(path, |run| run.leave_call(call));
                return taken;
            }
            (EffectResult::Cancelled, _) => {
                let is_executing =
                    self.inner_run_at(path.calls()).is_some_and(|run| run.is_executing_call(call));
                if is_executing {
                    let polled = &mut self.driving.get_or_insert_default().polled;
                    polled.awaited.insert(id.clone(), awaited.clone());
                }
                self.mark_at(path, |run| run.take_back_call(call));
            }
            // One that asks an agent whose run exists goes on.
            _ => {
                self.mark_at(path, |run| match run.open_inner_run(call).is_some() {
                    true => run.set_executing(call),
                    false => run.leave_call(call),
                });
            }
        }
        Ok(())
    }

    /// Takes the outcome of a call. If layers have to see it, it is recorded once they have. Ignores outcomes of calls that are no longer open.
    fn take_outcome(&mut self, path: &RunPath, execution: ToolExecution) {
        self.change_inner_run_at(&path.calls(), |run| {
            let is_open = run.has_open_call(&execution.call().id);
            match is_open && run.must_be_judged(&execution, run.sees()) {
                true => run.set_outcome_to_judge(execution),
                false => drop(run.record_result(execution)),
            }
        });
    }

    /// Records an outcome that layers have judged, unless it was recorded with the verdict.
    fn record_unjudged(&mut self, path: &RunPath, awaited: &Awaited) {
        let Awaited::Outcome(call) = awaited else { return };
        self.change_inner_run_at(&path.calls(), |run| {
            if let Some(execution) = run.take_outcome_to_judge(call) {
                // Fails if the run has stopped.
                let _ = run.record_result(execution);
            }
        });
    }

    /// Records the outcome of a call that has undone another and that layers cannot judge, so that the next one is undone. A run that has not
    /// stopped is stopped by its world, which records the outcome.
    fn record_failed_undo(&mut self, path: &RunPath, awaited: &Awaited) {
        let Awaited::Outcome(call) = awaited else { return };
        self.change_inner_run_at(&path.calls(), |run| {
            if run.is_undoing()
                && let Some(execution) = run.take_outcome_to_judge(call)
            {
                let _ = run.record_result(execution.unjudged());
            }
        });
    }

    /// Makes the run of an agent part of the run whose call asks it.
    fn begin_agent(
        &mut self,
        path: &RunPath,
        call_id: &str,
        mut inner: Run,
        waiting: Option<Box<ToolExecution>>,
        profile: AgentProfile,
        has_own_limits: bool,
    ) -> Result<(), StepError> {
        inner.set_profile(profile);
        let added = self.change_inner_run_at(&path.calls(), |outer| {
            let call = outer.requested_call(call_id).cloned();
            let call: ToolCall = call.ok_or(StepError("the call that asks the agent is not open"))?;
            if let Some(notes) = waiting.and_then(|waiting| waiting.notes) {
                outer.record_notes(call_id, *notes)?;
            }
            outer.add_inner_run(&call, has_own_limits, inner)?;
            outer.check_limits_inside();
            outer.set_executing(call_id);
            Ok(())
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
}

impl<'r> EngineView<'r> {
    /// Returns the outcome of the call whose agent's run has stopped because it panicked.
    #[must_use]
    pub fn outcome_of_panic(self, path: &RunPath) -> Option<ToolExecution> {
        let panic = self.inner_run_at(path.calls())?.engine_view().panic()?;
        self.panicked_call(path, panic)
    }

    /// Returns the text with which the agent has panicked.
    #[must_use]
    pub fn panic(self) -> Option<&'r str> {
        self.0.driving.as_ref()?.panic.as_deref()
    }
}

impl Run {
    /// Returns the failure of the call that leads to this run, if there is one.
    pub(crate) fn panicked_call(&self, path: &RunPath, panic: &str) -> Option<ToolExecution> {
        let outer = self.inner_run_at(path.at_depth(path.depth().checked_sub(1)?).calls())?;
        let call = outer.requested_call(path.calls().last()?)?.clone();
        let error = ToolError::panicked(&call.id, &format!("panicked: {panic}"));
        Some(ToolExecution::new(call, Err(error)))
    }

    /// Returns `true` if layers, which see this, have to see an outcome before it is recorded.
    pub(crate) fn must_be_judged(&self, execution: &ToolExecution, sees: LayerSight) -> bool {
        let id = &*execution.call().id;
        let is_last = || (sees.outputs || sees.records) && !self.will_retry(execution);
        !execution.is_waiting() && (self.end_from_inside(id).is_some() || is_last())
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
        self.set_profile(AgentProfile { sees, called, undoing: all, max_concurrent_calls });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AssistantMessage, ChatResponse, Message, ToolKind, ToolPolicy};
    use crate::run::{Effect, LayerSubject, StopReason};
    use crate::tool::{ToolErrorKind, ToolOutput};

    /// A run that has requested these calls, whose layers judge outcomes and record.
    fn run_with_calls(calls: &[(&str, &str)]) -> Run {
        let mut run = Run::new([Message::user("Go")]);
        let calls = calls.iter().map(|(id, name)| ToolCall::new(*id, *name, "{}"));
        let message = AssistantMessage::default().with_tool_calls(calls);
        run.record_response(ChatResponse::new(message)).unwrap();
        let clerk = ToolDefinition::new("clerk").with_kind(ToolKind::Agent);
        let once = ToolPolicy { at_most_once: true, ..ToolPolicy::default() };
        let mut profile = AgentProfile::new(8);
        profile.sees = LayerSight { outputs: true, records: true, ..LayerSight::default() };
        profile.called = [clerk, ToolDefinition::new("once").with_policy(once)].into_iter().collect();
        run.set_profile(profile);
        for (call, _) in run.calls_to_judge() {
            run.set_call_judged(&call.id);
        }
        run
    }

    fn poll(run: &mut Run) -> Vec<(EffectId, Effect)> {
        std::iter::from_fn(|| run.engine().poll()).collect()
    }

    fn done(id: &str) -> EffectResult {
        let output = Ok(ToolOutput::text("done"));
        EffectResult::Finished(Box::new(ToolExecution::new(ToolCall::new(id, "once", "{}"), output)))
    }

    /// A call that was polled and not executed has no effect, also if its tool is `at_most_once`.
    #[test]
    fn calls_that_were_not_executed_can_start_again() {
        let mut run = run_with_calls(&[("a", "once"), ("b", "once")]);
        let group = poll(&mut run);
        assert!(
            matches!(&*group, [(_, Effect::Call(a)), (_, Effect::Call(b))] if a.call.id == "a" && b.call.id == "b")
        );
        run.engine().set_executing_at(&group[0].0);
        for (id, _) in &group {
            run.engine().handle(id, EffectResult::Cancelled).unwrap();
        }
        // The first is executed, and awaited.
        assert!(run.engine_view().is_awaited(&group[0].0) && !run.engine_view().is_awaited(&group[1].0));
        let again = poll(&mut run);
        assert!(matches!(&*again, [(_, Effect::Call(b))] if b.call.id == "b" && b.attempt.number == 1));
        run.cancel();
        let outcomes: Vec<_> =
            run.tool_executions().iter().map(|one| (&*one.call().id, one.error().unwrap().kind())).collect();
        assert_eq!(outcomes, [("a", ToolErrorKind::OutcomeUnknown)]);
        assert_eq!(run.engine().poll_abandoned(), Some(group[0].0.clone()));
        assert_eq!(run.engine().poll_abandoned(), Some(again[0].0.clone()));
        run.engine().handle(&again[0].0, done("b")).unwrap();
        assert_eq!(run.tool_executions().len(), 1);
    }

    /// An outcome that layers have not judged when the run stops is known to what undoes the call alone.
    #[test]
    fn an_outcome_is_not_shown_if_the_run_stops_before_layers_have_judged_it() {
        let mut run = run_with_calls(&[("a", "once")]);
        let group = poll(&mut run);
        run.engine().set_executing_at(&group[0].0);
        run.engine().handle(&group[0].0, done("a")).unwrap();
        let judged = poll(&mut run);
        assert!(
            matches!(&*judged, [(_, Effect::Judge(LayerSubject::Execution(one)))] if one.call().id == "a")
        );
        // Judged again: the step has not ended.
        run.engine().handle(&judged[0].0, EffectResult::Cancelled).unwrap();
        assert!(matches!(&*poll(&mut run), [(_, Effect::Judge(LayerSubject::Execution(_)))]));
        run.cancel();
        let [execution] = run.tool_executions() else { panic!("the call has an outcome") };
        assert_eq!(execution.error().unwrap().kind(), ToolErrorKind::OutcomeUnknown);
        assert_eq!(execution.original_outcome().unwrap().to_string(), "done");
    }

    /// The request of a run that stops meanwhile is not awaited, and what layers record is reported to them.
    #[test]
    fn what_a_stop_ends_is_reported_also_if_a_step_was_cancelled() {
        let mut run = run_with_calls(&[("a", "once")]);
        let group = poll(&mut run);
        run.engine().set_executing_at(&group[0].0);
        run.cancel();
        let records = poll(&mut run);
        assert!(matches!(&*records, [(_, Effect::Judge(LayerSubject::Results))]));
        run.engine().handle(&records[0].0, EffectResult::Cancelled).unwrap();
        let records = poll(&mut run);
        assert!(matches!(&*records, [(_, Effect::Judge(LayerSubject::Results))]));
        run.engine().handle(&records[0].0, EffectResult::Nothing).unwrap();
        assert!(poll(&mut run).is_empty());
        assert!(matches!(run.stop_reason(), Some(StopReason::Cancelled)));

        let mut asking = Run::new([Message::user("Go")]);
        asking.set_profile(AgentProfile::new(8));
        let asked = poll(&mut asking);
        assert!(matches!(&*asked, [(_, Effect::CallModel)]));
        asking.cancel();
        assert_eq!(asking.engine().poll_abandoned(), Some(asked[0].0.clone()));
    }

    /// A run that undoes its only call.
    fn undoing_run() -> Run {
        let mut run = run_with_calls(&[("book", "book")]);
        let mut profile = run.profile().unwrap().clone();
        profile.called = [ToolDefinition::new("book").with_undo("cancel")].into_iter().collect();
        profile.undoing = [((0, "cancel".to_owned()), ToolDefinition::new("cancel"))].into_iter().collect();
        run.set_profile(profile);
        let group = poll(&mut run);
        run.engine().set_executing_at(&group[0].0);
        run.engine().handle(&group[0].0, done("book")).unwrap();
        let judged = poll(&mut run);
        let copy = run.recording_copy();
        let mut judged_copy = copy.clone();
        let outcome = judged_copy.take_outcome_to_judge("book").unwrap();
        judged_copy.record_result(outcome).unwrap();
        run.engine().handle(&judged[0].0, EffectResult::Changed(Box::new(judged_copy.changes()))).unwrap();
        run.cancel();
        run
    }

    /// Polls until a call is to be executed. Layers have nothing to say.
    fn poll_call(run: &mut Run) -> Option<EffectId> {
        loop {
            let (id, effect) = run.engine().poll().or_else(|| run.engine().poll())?;
            match effect {
                Effect::Call(_) => return Some(id),
                _ => run.engine().handle(&id, EffectResult::Nothing).unwrap(),
            }
        }
    }

    /// The undo call of an agent is abandoned with a run around it that stops, and started again.
    #[test]
    fn what_an_agent_undoes_is_undone_also_if_the_run_around_it_stops_meanwhile() {
        for is_executing in [false, true] {
            let mut run = run_with_calls(&[("a", "clerk")]);
            let group = poll(&mut run);
            let profile = undoing_run().profile().unwrap().clone();
            let inner = Box::new(undoing_run());
            run.engine()
                .handle(
                    &group[0].0,
                    EffectResult::Began { run: inner, waiting: None, profile, has_own_limits: false },
                )
                .unwrap();
            let undo = poll_call(&mut run).expect("the agent undoes its call");
            assert_eq!(undo.path().calls(), ["a"]);
            if is_executing {
                run.engine().set_executing_at(&undo);
            }
            run.cancel_unjudged();
            assert!(!run.engine_view().is_awaited(&undo));
            while run.engine().poll_abandoned().is_some() {}
            let again = poll_call(&mut run).expect("it is undone");
            assert_eq!(again.path().calls().len(), 1);
            assert_ne!(again, undo);
        }
    }

    /// A step on a copy that executes one call changes nothing about those that the world has in flight.
    #[test]
    fn the_loop_of_a_step_on_a_copy_leaves_other_calls_alone() {
        let mut run = run_with_calls(&[("a", "once"), ("b", "search")]);
        let group = poll(&mut run);
        group.iter().for_each(|(id, _)| run.engine().set_executing_at(id));
        let mut copy = run.recording_copy();
        copy.forget_in_flight();
        copy.engine().track_changes(true);
        copy.open_step(1, Default::default(), LayerSight::default());
        assert!(poll(&mut copy).is_empty());
        assert!(copy.tool_executions().is_empty());
    }

    /// A panic at the beginning of an agent's run fails its call; one of a run that undoes its calls stops the run around it the second time.
    #[test]
    fn panics_end_what_they_are_of() {
        let mut run = run_with_calls(&[("a", "clerk"), ("b", "clerk")]);
        let group = poll(&mut run);
        run.engine().handle(&group[0].0, EffectResult::Panicked("broken".into())).unwrap();
        let judged = poll(&mut run);
        assert!(
            matches!(&*judged, [(_, Effect::Judge(LayerSubject::Execution(one)))] if one.error().unwrap().kind() == ToolErrorKind::Panicked)
        );
        let profile = undoing_run().profile().unwrap().clone();
        let (inner, path) = (Box::new(undoing_run()), RunPath::default().inside("b"));
        let began = EffectResult::Began { run: inner, waiting: None, profile, has_own_limits: false };
        run.engine().handle(&group[1].0, began).unwrap();
        assert!(!run.engine().stop_panicked(&path, "broken".into()));
        assert!(run.engine_view().outcome_of_panic(&path).is_some() && !run.is_done());
        assert!(run.engine().stop_panicked(&path, "broken again".into()));
        assert!(run.is_done() || run.is_undoing());
    }

    /// If layers cannot judge the outcome of an undo call, the next one is undone.
    #[test]
    fn an_undo_that_layers_cannot_judge_counts_as_failed() {
        let mut run = undoing_run();
        let undo = poll_call(&mut run).unwrap();
        run.engine().set_executing_at(&undo);
        let output = Ok(ToolOutput::text("cancelled"));
        let undone = ToolExecution::new(ToolCall::new("undo_book", "cancel", "{}"), output);
        run.engine().handle(&undo, EffectResult::Finished(Box::new(undone))).unwrap();
        assert_eq!(poll_call(&mut run), None);
        let [undone] = run.undo_executions() else { panic!("{:?}", run.undo_executions()) };
        assert_eq!(undone.error().unwrap().to_string(), "a layer did not judge the outcome");
    }

    /// The end of an agent's run is polled again if its step was cancelled.
    #[test]
    fn the_end_of_an_agent_is_polled_until_it_has_ended() {
        let mut run = run_with_calls(&[("a", "clerk")]);
        let group = poll(&mut run);
        let [(begin, Effect::Begin(request))] = &*group else { panic!("{group:?}") };
        assert_eq!(request.call.id, "a");
        let mut inner = Run::new([Message::user("Go")]);
        inner.record_response(ChatResponse::new(AssistantMessage::text("Done."))).unwrap();
        let (inner, profile) = (Box::new(inner), AgentProfile::new(8));
        run.engine()
            .handle(begin, EffectResult::Began { run: inner, waiting: None, profile, has_own_limits: false })
            .unwrap();
        for _ in 0..2 {
            let ending = poll(&mut run);
            let [(end, Effect::End)] = &*ending else { panic!("{ending:?}") };
            assert_eq!(end.path().calls(), ["a"]);
            run.engine().handle(end, EffectResult::Cancelled).unwrap();
        }
        let ending = poll(&mut run);
        let output = ToolExecution::new(ToolCall::new("a", "clerk", ""), Ok(ToolOutput::text("Done.")));
        run.engine().handle(&ending[0].0, EffectResult::Ended(0, output.into())).unwrap();
        assert!(
            matches!(&*poll(&mut run), [(_, Effect::Judge(LayerSubject::Execution(one)))] if one.call().id == "a")
        );
    }
}
