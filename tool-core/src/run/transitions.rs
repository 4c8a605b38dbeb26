//! The transitions of a run: the next step, and the changes by each recorded event.

use super::handoff::executions_of_agent;
use super::state::{CallRecord, Fact, GivenUp, Stage};
use crate::model::{ChatResponse, ReturnDirect, ToolCall, ToolDefinitions, ToolPolicy, max_tokens};
use crate::run::{NormalizedResponse, Run, Step, StepError, StopReason};
use crate::tool::{Attempt, CallNotes, CallRequest, IdempotencyKey, ToolExecution};

impl Run {
    /// Returns the next step. Its calls are those without an outcome, so call this again only when the calls of the last
    /// step have finished or were abandoned: a call that was [started](Self::begin_call) and still has no outcome counts as
    /// interrupted.
    #[must_use]
    pub fn next<'a>(&'a mut self, tools: &ToolDefinitions) -> Step<'a> {
        self.forget_in_flight();
        let policy =
            |_, name: &str| tools.iter().find(|one| one.name() == name).map(|one| one.policy().clone());
        self.next_with_undo_tools(tools, policy)
    }

    /// Returns the next step. Calls that undo others have the policies that `undo_policy` returns for the number of handoffs before
    /// the undone call and the names of their tools.
    pub(crate) fn next_with_undo_tools<'a>(
        &'a mut self,
        tools: &ToolDefinitions,
        undo_policy: impl Fn(usize, &str) -> Option<ToolPolicy>,
    ) -> Step<'a> {
        self.apply_tool_policies(tools, undo_policy);
        match &self.stage {
            Stage::Asking | Stage::Calling(_) if self.awaits_tools() => Step::Waiting(self.waits()),
            Stage::Asking => Step::CallModel(self.request(tools)),
            Stage::Calling(_) => {
                if let Some(calls) = self.ready_calls() {
                    return Step::CallTools(calls.into_iter().cloned().collect());
                }
                Step::Waiting(self.waits())
            }
            Stage::Undoing(_) => Step::CallTools(self.startable()),
            Stage::Answered(_) | Stage::Returned { .. } | Stage::Ended(_) => Step::Done,
        }
    }

    /// Applies the policies of the tools to the open calls that are not in flight, and finishes those that need no execution.
    pub(crate) fn apply_tool_policies(
        &mut self,
        tools: &ToolDefinitions,
        undo_policy: impl Fn(usize, &str) -> Option<ToolPolicy>,
    ) {
        if self.awaits_tools() {
            // The tools of the calls are not known yet.
            return;
        }
        if let Stage::Calling(turn) = &mut self.stage {
            let of_agent = executions_of_agent(self.history.executions(), &self.head.handoffs);
            let calls = self.history.last_calls().iter().zip(&mut turn.calls).enumerate();
            let (mut stop_reason, mut finished) = (None, Vec::new());
            for (position, (call, record)) in
                calls.filter(|(_, (_, one))| one.is_open() && !one.is_in_flight())
            {
                if let Some(execution) = record.apply_policy(call, tools, of_agent) {
                    let (execution, reason) = self.head.settings.error_policies.apply(execution);
                    finished.push((position, execution));
                    stop_reason = stop_reason.or(reason);
                }
            }
            for (position, execution) in finished {
                // Of calls whose process has ended, among others.
                self.give_up(position, &execution.call);
                self.finish_record(position, execution);
            }
            let can_still_answer = matches!(&self.stage, Stage::Calling(turn) if turn.can_still_answer());
            match stop_reason {
                Some(reason) => self.stop(reason),
                None if self.is_last_turn() && !can_still_answer => self.stop(self.max_turns_reached()),
                None => self.close_turn_if_finished(),
            }
        }
        if self.undoing().is_none_or(|undoing| !undoing.record.is_in_flight()) {
            self.apply_undo_policy(undo_policy);
        }
    }

    /// Records the response of the model.
    ///
    /// # Errors
    ///
    /// Fails if the run did not ask for a model request.
    pub fn record_response(&mut self, response: ChatResponse) -> Result<(), StepError> {
        self.record_normalized(NormalizedResponse::new(response, |call| call))
    }

    /// Records the response of the model, whose calls have been normalized.
    pub(crate) fn record_normalized(&mut self, response: NormalizedResponse) -> Result<(), StepError> {
        if !self.is_asking() {
            return Err(StepError("no model response is expected in this state"));
        }
        if response.response.credible_usage().is_none() {
            let used = self.messages().iter().map(max_tokens);
            let used = used.chain([response.response.message.content_bytes() as u64]);
            self.head.unknown_tokens = used.fold(self.head.unknown_tokens, u64::saturating_add);
        }
        let ChatResponse { mut message, finish_reason, usage, .. } = response.response;
        self.head.turns = self.head.turns.saturating_add(1);
        self.head.cost_in_flight = None;
        let usage = usage.unwrap_or_default();
        self.head.usage += usage;
        if let Some(handoff) = self.head.handoffs.last_mut() {
            handoff.usage += usage;
        }
        let outcomes = self.assign_call_ids(&mut message);
        let calls = message.tool_calls.len();
        self.append(Fact::Replied(message));
        if calls == 0 {
            self.stage = Stage::Answered(finish_reason);
            return Ok(());
        }
        for (position, outcome) in outcomes {
            self.finish_record(position, outcome);
        }
        let reason = if finish_reason.is_truncated() {
            Some(StopReason::Truncated(finish_reason))
        } else {
            self.exceeded_limit()
        };
        match reason {
            Some(reason) => self.stop(reason),
            None => self.refuse_repeated_calls(),
        }
        self.close_turn_if_finished();
        Ok(())
    }

    /// Records the start of a call, before it is executed: if the process then ends, the restored run knows that the call
    /// may have had its effect. Without a recorded start, the restored run executes the call as if for the first time.
    ///
    /// # Errors
    ///
    /// Fails if the run did not ask for the call, if the call awaits approval or a result of the caller, if it has an outcome,
    /// or if it was started before and its tool is `at_most_once`.
    pub fn begin_call(&mut self, call_id: &str) -> Result<Attempt, StepError> {
        let record = self.open_record(call_id)?;
        record.begin()?;
        self.note_started(call_id);
        let attempt = self.begun_attempt(call_id).ok_or(StepError("the call was not started"))?;
        if !attempt.is_continued {
            let undo = self.next_undo_call().filter(|undo| undo.id == call_id).cloned();
            let undone_run =
                self.undone_inner_run(call_id).and_then(|position| self.inner_runs.get(position));
            let undone_run = undone_run.map(|inner| inner.run.id.clone());
            self.append(Fact::Started { id: call_id.to_owned(), undo, undone_run });
        }
        Ok(attempt)
    }

    pub(super) fn key(&self, call_id: &str) -> IdempotencyKey {
        IdempotencyKey::new(self.id.as_str(), call_id)
    }

    /// Records the outcome of a call, which is identified by its id. If the call failed and is to be retried, it stays
    /// open. An outcome that the caller supplies for a call of an [external](crate::provider::ToolKind::Caller) tool gets the
    /// origin [`External`](crate::tool::OutcomeOrigin::External). A call that is [waiting](ToolExecution::is_waiting) stays open.
    ///
    /// # Errors
    ///
    /// Fails if the run did not ask for the call, or if the call awaits approval or already has an outcome.
    pub fn record_result(&mut self, mut execution: ToolExecution) -> Result<(), StepError> {
        let notes = execution.notes.take();
        if execution.is_waiting() {
            return notes.map_or(Ok(()), |notes| self.record_waiting(&execution.call.id, *notes));
        }
        if !self.has_open_call(&execution.call.id) {
            let path = std::mem::take(&mut execution.call.id);
            let (run, id) = self.call_at(&path, CallRecord::awaits_result)?;
            execution.call.id = id.to_owned();
            if id != path {
                return run.record_result(execution);
            }
        }
        let id = execution.call.id.clone();
        let will_retry = self.will_retry(&execution);
        let record = self.open_record(&id)?;
        record.end_attempt(&mut execution)?;
        if will_retry {
            record.history.is_uncertain |= execution.leaves_effect_unknown();
            if let Some(notes) = notes {
                record.notes = Some(notes);
            }
            let is_inner_done = record.inner().is_some_and(|inner| inner.run.is_done());
            self.readmit(&id);
            let failed = Some(execution.of_failed_attempt(self.head.shown.sees.outputs).into());
            self.append(Fact::Retried { call: id, is_inner_done, failed });
            return Ok(());
        }
        if self.is_undoing() {
            self.finish_undo_call(execution);
            return Ok(());
        }
        if execution.history.original_arguments.is_some() {
            // The layers of a set wrote others.
            self.write_arguments(&execution.call)?;
        }
        self.finish_call(&id, execution)
    }

    /// Records that an attempt has ended because it waits for what is in its notes.
    fn record_waiting(&mut self, call_id: &str, mut notes: CallNotes) -> Result<(), StepError> {
        notes.tick(self.now);
        self.open_record(call_id)?.wait(notes)
    }

    /// Records the notes of an attempt in flight.
    pub(crate) fn record_notes(&mut self, call_id: &str, notes: CallNotes) -> Result<(), StepError> {
        self.open_record(call_id)?.notes = Some(Box::new(notes));
        Ok(())
    }

    /// Returns the notes of an open call.
    pub(crate) fn notes(&self, call_id: &str) -> Option<&CallNotes> {
        self.record(call_id)?.notes()
    }

    /// Applies the error policies to the outcome of an open call and records it.
    pub(super) fn finish_call(&mut self, call_id: &str, execution: ToolExecution) -> Result<(), StepError> {
        let (execution, stop_reason) = self.head.settings.error_policies.apply(execution);
        self.open_record(call_id)?;
        if let Some(position) = self.call_position(call_id) {
            self.finish_record(position, execution);
        }
        match stop_reason {
            Some(reason) => self.stop(reason),
            None => self.close_turn_if_finished(),
        }
        Ok(())
    }

    /// Returns `true` if the call failed and will be executed again. Asked before its outcome is [recorded](Self::record_result).
    pub(crate) fn will_retry(&self, execution: &ToolExecution) -> bool {
        let Err(error) = &execution.outcome else { return false };
        let id = &*execution.call.id;
        let next_attempt = |record: &CallRecord| {
            let failed = Attempt::new(self.key(id), record.running_attempt()?);
            record.policy.as_ref()?.next_attempt(&failed, error)
        };
        self.record(id).and_then(next_attempt).is_some()
    }

    pub(super) fn close_turn_if_finished(&mut self) {
        let Stage::Calling(turn) = &mut self.stage else { return };
        if !turn.is_finished() {
            return;
        }
        let answer = turn.answer_positions();
        let handoff = turn.handoff().and_then(|position| Some(self.calls().get(position)?.name.clone()));
        if let Some(agent) = &handoff {
            self.refuse_further_handoffs(agent);
        }
        let first = self.messages().len();
        self.close_turn("the run had ended");
        if !answer.is_empty() {
            let positions = answer.into_iter().map(|position| first + position).collect();
            self.stage = Stage::Returned { positions, is_judged: false };
            return;
        }
        let max_turns = self.is_last_turn().then(|| self.max_turns_reached());
        if let Some(reason) = max_turns.or_else(|| self.check_output_limit()) {
            self.stop(reason);
            return;
        }
        if let Some(agent) = handoff {
            self.record_handoff(agent);
        }
        self.stage = Stage::Asking;
    }

    /// Finishes an open call of the turn. The run of an agent that it asked ends, too.
    pub(super) fn finish_record(&mut self, position: usize, execution: ToolExecution) {
        let Stage::Calling(turn) = &mut self.stage else { return };
        let Some(record) = turn.calls.get_mut(position) else { return };
        let mut given_up = Vec::new();
        if let Some(inner) = record.inner_mut() {
            inner.run.cancel();
            given_up = inner.run.take_given_up();
        }
        let may_be_answer = record.return_direct() != ReturnDirect::Never;
        let execution = record.complete(execution);
        let name = execution.call().name.clone();
        if may_be_answer && self.head.shown.sees.answers {
            self.append(Fact::MayBeAnswer(execution.call().id.clone()));
        }
        self.append(Fact::Finished(execution.into()));
        self.given_up.extend(given_up.into_iter().map(|mut call| {
            call.asked_by.insert(0, name.clone());
            call
        }));
    }

    /// Returns the calls that will not be continued, once.
    pub(crate) fn take_given_up(&mut self) -> Vec<GivenUp> {
        let given_up = self.given_up_calls();
        self.given_up.clear();
        given_up
    }

    /// Returns the calls that will not be continued.
    pub(crate) fn given_up_calls(&self) -> Vec<GivenUp> {
        let mut given_up = self.given_up.clone();
        let handoffs = self.head.handoffs.iter().map(|handoff| handoff.agent.clone());
        let handoffs: Vec<_> = if given_up.is_empty() { Vec::new() } else { handoffs.collect() };
        given_up.iter_mut().for_each(|call| drop(call.asked_by.splice(..0, handoffs.iter().cloned())));
        given_up
    }

    /// Returns `true` if calls will not be continued and their tools do not know it.
    pub(crate) fn has_given_up_calls(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// Forgets the first of these calls, whose tools know it.
    pub(crate) fn forget_given_up_calls(&mut self, count: usize) {
        self.given_up.drain(..count.min(self.given_up.len()));
    }

    /// Ends the turn, if one is open: each call gets a result, and what the user has said meanwhile follows.
    pub(super) fn close_turn(&mut self, why_not_executed: &'static str) {
        let Stage::Calling(turn) = &mut self.stage else { return };
        let user_messages = std::mem::take(&mut turn.user_messages);
        turn.calls.iter_mut().for_each(CallRecord::take_back);
        let are_judged = self.sees().outputs;
        let Stage::Calling(turn) = &self.stage else { return };
        let calls = self.history.last_calls().iter().zip(&turn.calls).enumerate();
        let begun = calls.filter_map(|(position, (call, record))| {
            Some((position, record.execution_if_stopped(call, why_not_executed, are_judged)?))
        });
        for (position, execution) in begun.collect::<Vec<_>>() {
            // One in flight learns of its end by its token.
            if self.stage.records().get(position).is_some_and(CallRecord::has_waited) {
                self.give_up(position, &execution.call);
            }
            self.finish_record(position, execution);
        }
        self.append(Fact::Closed(why_not_executed.into()));
        user_messages.into_iter().for_each(|message| self.append(Fact::Said(message)));
    }

    /// Remembers a call that will not be continued, if it has recorded something.
    fn give_up(&mut self, position: usize, call: &ToolCall) {
        let Some(record) = self.stage.records().get(position) else { return };
        if !record.notes().is_some_and(CallNotes::has_effects) {
            return;
        }
        let mut attempt = Attempt::new(self.key(&call.id), record.attempts());
        attempt.is_continued = true;
        let request = CallRequest { definition: None, ..self.request_of(call.clone(), attempt) };
        self.given_up.push(GivenUp { asked_by: Vec::new(), request });
    }
}
