//! What layers decide about a run: its question, its calls, and its answer. A run that is driven without an agent has no layers.
//!
//! An approval is revoked if a layer rewrites the call afterwards, because a layer can be added while a run waits. The record of a call
//! names the layers that were asked to rewrite it, because each rewrites it once.
//!
//! A run knows what its layers have judged (`CallRecord::judged_after`, `Stage::Returned`), because a recorded step elsewhere begins with a
//! new driver. A driver in this process forgets both when it begins: its layers can be others.

use std::collections::HashSet;

use super::amendment::Amendment;
use super::call_state::CallState;
use super::state::{CallRecord, Fact, Run, Stage};
use super::step_error::StepError;
use super::stop_reason::StopReason;
use crate::content::Content;
use crate::layer::Ruling;
use crate::model::{AssistantMessage, FinishReason, Message, ReturnDirect, ToolCall};
use crate::tool::{
    Judgement, OutcomeOrigin, ToolError, ToolExecution, ToolOutput, VerdictKind, VerdictRecord,
};

/// The text that takes the place of one that layers rejected.
pub(crate) const REJECTED: &str = "(this answer was rejected)";

impl CallRecord {
    /// Returns `true` if the call has to be judged before it is executed, also if that is to continue it, and was not since the last
    /// decision about it.
    pub(super) fn awaits_layers(&self) -> bool {
        (self.awaits_approval() || self.is_ready() && self.forbidden_retry().is_none())
            && self.judged_after != Some(self.history.decisions.len())
    }

    /// Makes a call that was approved await approval again, because a layer has written other arguments.
    fn revoke_approval(&mut self) {
        if let CallState::Ready { attempts: 0, approved: Some(scope) } = &mut self.state {
            self.state = CallState::AwaitingApproval(std::mem::take(scope));
        }
    }

    /// Makes the call await approval at a level. An approval that was given further inside does not count.
    fn demand_approval(&mut self, level: usize) -> Result<(), ToolError> {
        let is_higher = level > self.approval_level;
        match &mut self.state {
            CallState::Ready { attempts: 0, approved: Some(scope) } if is_higher => {
                self.state = CallState::AwaitingApproval(std::mem::take(scope));
            }
            CallState::Ready { attempts: 0, .. } => self.require_approval(),
            CallState::Ready { approved, .. }
            | CallState::Running { approved, .. }
            | CallState::Waiting { approved, .. }
                if approved.is_none() || is_higher =>
            {
                return Err(ToolError::denied(Some("it needs approval and was started without")));
            }
            _ => {}
        }
        self.approval_level = self.approval_level.max(level);
        Ok(())
    }
}

impl Run {
    /// Returns what [layers](crate::layer::Layer) decided about the question and the answer. The
    /// [executions](ToolExecution::verdicts) have what they decided about calls.
    #[must_use]
    pub fn verdicts(&self) -> &[VerdictRecord] {
        self.history.verdicts()
    }

    /// Returns what layers have decided about an open call so far.
    pub(crate) fn verdicts_on(&self, call_id: &str) -> &[VerdictRecord] {
        self.record(call_id).map_or(&[], |record| &record.history.verdicts)
    }

    /// Returns the question of the run and further messages of the user, each with its position among the messages that the run added.
    pub(crate) fn questions(&self) -> impl Iterator<Item = (usize, &Content)> {
        let rejections = &self.head.settings.rejections;
        let new = self.new_messages().iter().enumerate().filter(|(at, _)| !rejections.contains(at));
        new.filter_map(|(at, message)| match message {
            Message::User(question) => Some((at, question)),
            _ => None,
        })
    }

    /// Replaces a question, given its position among the [`questions`](Self::questions).
    pub(crate) fn rewrite_question(&mut self, number: usize, question: Content, verdict: VerdictRecord) {
        let position = self.questions().nth(number).map(|(at, _)| self.history.given() + at);
        if let Some(message) = position {
            self.amend(Amendment::Question { message, question, number: Some(number) });
        }
        self.append(Fact::Judged(verdict));
    }

    /// Returns the results of the last turn that layers have to see: the caller's, and results whose judgement is pending.
    pub(crate) fn unjudged_results(&self) -> impl Iterator<Item = &ToolExecution> {
        let is_unjudged = |execution: &&ToolExecution| match execution.history.judgement {
            Some(judgement) => judgement == Judgement::Pending,
            None => execution.origin() == OutcomeOrigin::External,
        };
        let open = self.stage.records().iter().filter_map(CallRecord::outcome);
        let is_user = |message: &&Message| matches!(message, Message::User(_));
        let last = self.messages().iter().rev().skip_while(is_user).map_while(|message| match message {
            Message::Tool(result) => Some(&*result.call_id),
            _ => None,
        });
        let last: HashSet<_> = last.collect();
        let has_last = !last.is_empty();
        let of_last = self.tool_executions().iter().filter(move |one| last.contains(&*one.call.id));
        let closed = has_last.then_some(of_last).into_iter().flatten();
        open.chain(closed).filter(is_unjudged)
    }

    /// Replaces a result that layers have seen, before the model reads it.
    pub(crate) fn replace_result(&mut self, execution: ToolExecution) {
        let mut executions = self.history.executions().iter().rev();
        if let Some(known) = executions.find(|known| known.call.id == execution.call.id) {
            match &mut self.stage {
                Stage::Ended(reason) => reason.replace_error(known, &execution),
                Stage::Undoing(undoing) => undoing.reason.replace_error(known, &execution),
                _ => {}
            }
        }
        self.amend(Amendment::Result(execution.into()));
    }

    pub(crate) fn record_verdict(&mut self, verdict: VerdictRecord) {
        self.append(Fact::Judged(verdict));
    }

    /// Ends the run because a layer decided so.
    pub(crate) fn stop_by_layer(&mut self, verdict: VerdictRecord) {
        let (layer, reason) = (verdict.layer.clone(), verdict.why.clone().unwrap_or_default());
        self.append(Fact::Judged(verdict));
        match self.stage {
            // It has stopped before: each of its calls is undone once.
            Stage::Undoing(_) | Stage::Ended(_) => return,
            Stage::Answered(_) | Stage::Returned { .. } => self.revoke_answer(),
            Stage::Asking | Stage::Calling(_) => {}
        }
        self.stop(StopReason::Blocked { layer, reason });
    }

    /// Returns the end of this run by a layer further out, if the agent that an open call asked has met one.
    pub(crate) fn end_from_inside(&self, call_id: &str) -> Option<VerdictRecord> {
        let is_of_outer = |one: &&VerdictRecord| one.kind == VerdictKind::Ended && one.level > 0;
        let end = self.open_inner_run(call_id)?.verdicts().iter().find(is_of_outer)?;
        Some(VerdictRecord { level: end.level - 1, ..end.clone() })
    }

    /// Answers in place of the model.
    pub(crate) fn answer_by_layer(&mut self, verdict: VerdictRecord, text: String) {
        self.append(Fact::Judged(verdict));
        self.append(Fact::Replied(AssistantMessage::text(text)));
        self.stage = Stage::Answered(FinishReason::Stop);
    }

    /// Returns `true` if a layer answered in place of the model.
    pub(super) fn has_blocked_question(&self) -> bool {
        self.verdicts().iter().any(|verdict| verdict.kind == VerdictKind::Answered)
    }

    /// Returns the calls that layers have to see before they are executed, each with `true` if its arguments are final.
    pub(crate) fn calls_to_judge(&self) -> Vec<(ToolCall, bool)> {
        let calls = self.calls_with_records();
        let calls = calls.filter(|(_, record)| record.awaits_layers());
        calls.map(|(call, record)| (call.clone(), has_final_arguments(record))).collect()
    }

    /// Returns the first of these calls from a position in the turn on, with its position.
    pub(crate) fn next_to_judge(&self, from: usize) -> Option<(usize, ToolCall, bool)> {
        let mut calls = self.calls_with_records().enumerate().skip(from);
        let (position, (call, record)) = calls.find(|(_, (_, record))| record.awaits_layers())?;
        Some((position, call.clone(), has_final_arguments(record)))
    }

    /// Returns the ids of the finished calls of the last turn whose outputs layers have not judged as the answer, or that can become one.
    pub(super) fn unjudged_answers(&self) -> Vec<String> {
        match &self.stage {
            Stage::Calling(_) => {
                let finished = self.calls_with_records().filter(|(_, record)| record.outcome().is_some());
                let may_be_answer =
                    finished.filter(|(_, record)| record.return_direct() != ReturnDirect::Never);
                may_be_answer.map(|(call, _)| call.id.clone()).collect()
            }
            Stage::Returned { positions, is_judged: false } => {
                let results = positions.iter().filter_map(|position| match self.messages().get(*position) {
                    Some(Message::Tool(result)) => Some(result.call_id.clone()),
                    _ => None,
                });
                results.collect()
            }
            _ => Vec::new(),
        }
    }

    /// Records that layers have judged a call, unless it has an outcome.
    pub(crate) fn set_call_judged(&mut self, call_id: &str) {
        if let Ok(record) = self.open_record(call_id) {
            record.judged_after = Some(record.history.decisions.len());
        }
    }

    /// Records that layers have judged the answer that tools returned.
    pub(crate) fn set_answer_judged(&mut self) {
        if let Stage::Returned { is_judged, .. } = &mut self.stage {
            *is_judged = true;
            self.touch();
        }
    }

    /// Forgets what layers have judged, because others can drive the run now.
    pub(crate) fn forget_judgements(&mut self) {
        match &mut self.stage {
            Stage::Calling(turn) => turn.calls.iter_mut().for_each(|record| record.judged_after = None),
            Stage::Returned { is_judged, .. } => *is_judged = false,
            _ => {}
        }
    }

    /// Returns `true` if layers have something to judge before the next step: an answer that is an output, or calls.
    pub(crate) fn awaits_layers(&self) -> bool {
        self.has_unjudged_answer() || self.engine_view().unjudged_calls().next().is_some()
    }

    /// Returns `true` if tools returned the answer and layers have not judged it.
    pub(crate) fn has_unjudged_answer(&self) -> bool {
        matches!(self.stage, Stage::Returned { is_judged: false, .. })
    }

    /// Returns `true` if the output of the open call may be the answer.
    pub(crate) fn may_be_answer(&self, call_id: &str) -> bool {
        self.record(call_id).is_some_and(|record| record.return_direct() != ReturnDirect::Never)
    }

    /// Returns `true` if the layer with this level and name can still rewrite a call: the call has not begun, and the layer was not asked.
    pub(crate) fn can_be_rewritten(&self, call_id: &str, level: usize, layer: &str) -> bool {
        self.record(call_id).filter(|record| !record.has_begun()).is_some_and(|record| {
            let mut asked = record.rewriters.iter().flatten();
            !asked.any(|(at, name)| (*at, &**name) == (level, layer))
        })
    }

    /// Sets the final arguments of a call, for which these layers were asked.
    pub(crate) fn rewrite_call(
        &mut self,
        rewritten: &ToolCall,
        asked: Vec<(usize, String)>,
        verdicts: Vec<VerdictRecord>,
    ) -> Result<(), StepError> {
        let record = self.open_record(&rewritten.id)?;
        record.rewriters.get_or_insert_default().extend(asked);
        if verdicts.is_empty() {
            return Ok(());
        }
        record.history.verdicts.extend(verdicts);
        record.revoke_approval();
        self.write_arguments(rewritten)
    }

    /// Replaces the arguments of an open call. The record stores the original ones.
    pub(super) fn write_arguments(&mut self, rewritten: &ToolCall) -> Result<(), StepError> {
        let position = self.call_position(&rewritten.id);
        if let Some((position, call)) = position.and_then(|at| Some((at, self.calls().get(at)?))) {
            // The model later reads the arguments that were executed.
            let (original, arguments) = (call.arguments.clone(), rewritten.arguments.clone());
            self.amend(Amendment::Arguments { call: position, arguments, is_rewritten: true });
            self.open_record(&rewritten.id)?.history.original_arguments.get_or_insert(original);
        }
        Ok(())
    }

    /// Records what layers decided about a call.
    pub(crate) fn rule_on_call(
        &mut self,
        call: &ToolCall,
        verdicts: Vec<VerdictRecord>,
        ruling: Ruling,
    ) -> Result<(), StepError> {
        let record = self.open_record(&call.id)?;
        let known = record.history.verdicts.len();
        let is_new = |one: &VerdictRecord| !record.history.verdicts[..known].contains(one);
        let new: Vec<_> = verdicts.into_iter().filter(is_new).collect();
        record.history.verdicts.extend(new);
        let execution = match ruling {
            Ruling::Pass { approval, is_left_to_caller } => {
                record.is_left_to_caller |= is_left_to_caller;
                match approval.map_or(Ok(()), |level| record.demand_approval(level)) {
                    Ok(()) => return Ok(()),
                    Err(error) => ToolExecution::new(call.clone(), Err(error)),
                }
            }
            Ruling::Refuse(error) => ToolExecution::new(call.clone(), Err(error)),
            Ruling::Give(execution) => *execution,
            Ruling::End(verdict) => {
                self.stop_by_layer(verdict);
                return Ok(());
            }
        };
        record.history.is_uncertain |= record.has_begun() && !record.waits_without_effect();
        self.finish_call(&call.id, execution.without_execution())
    }

    /// Removes the answer. The run is asking again.
    pub(crate) fn revoke_answer(&mut self) {
        self.write_answer(REJECTED);
        self.stage = Stage::Asking;
    }

    /// Writes a text in place of the answer, which is stored nowhere.
    pub(crate) fn write_answer(&mut self, text: &str) {
        match &self.stage {
            Stage::Answered(_) => self.amend(Amendment::Text(text.to_owned())),
            Stage::Returned { positions, is_judged } => {
                let (positions, is_judged) = (positions.clone(), *is_judged);
                for (index, position) in positions.iter().enumerate() {
                    let text = if index == 0 { text } else { REJECTED };
                    let Some(Message::Tool(result)) = self.messages().get(*position) else { continue };
                    let mut executions = self.tool_executions().iter().rev();
                    if let Some(known) = executions.find(|known| known.call.id == result.call_id) {
                        let outcome = known.outcome.as_ref().map_or_else(
                            |error| Err(error.with_text(text.to_owned())),
                            |_| Ok(ToolOutput::text(text)),
                        );
                        self.amend(Amendment::Result(known.clone().with_outcome(outcome).into()));
                    }
                }
                self.stage = Stage::Returned { positions: vec![positions[0]], is_judged };
            }
            _ => {}
        }
    }

    /// Sends the answer back to the model, which reads the message in place of the answer.
    pub(crate) fn retry_answer(&mut self, message: &str) -> Result<(), StepError> {
        self.write_answer(REJECTED);
        self.reject_answer(message)
    }
}

impl AssistantMessage {
    /// Replaces the text, and removes all that can repeat it.
    pub(crate) fn replace_text(&mut self, text: &str) {
        let tool_calls = std::mem::take(&mut self.tool_calls);
        *self = Self { text: text.to_owned(), tool_calls, ..Self::default() };
    }
}

/// A call that asked a person continues with the arguments that it began with.
fn has_final_arguments(record: &CallRecord) -> bool {
    record.rewriters.is_some() || record.has_begun()
}
