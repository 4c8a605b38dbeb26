//! How a run moves: what it asks for, and what it is told.

use super::ending::Ending;
use super::state::Stage;
use super::turn::{Standing, Turn};
use crate::model::{ChatRequest, ChatResponse, FinishReason, Message, ToolDefinitions};
use crate::run::{Run, Step, StepError};
use crate::tool::{Attempt, IdempotencyKey, ToolError, ToolExecution};

impl Run {
    /// What is to be done next. The calls are those that have no outcome yet, so it is asked again when those that
    /// it gave are over, or given up: a call that was [begun](Self::begin_call) and is still without an outcome has been
    /// interrupted.
    #[must_use]
    pub fn next<'a>(&'a mut self, tools: &ToolDefinitions) -> Step<'a> {
        self.settle(tools);
        match &self.stage {
            Stage::Asking => Step::CallModel(
                ChatRequest::borrowing(&self.messages)
                    .with_cache(&self.cache)
                    .with_tools(tools.clone())
                    .with_tool_choice(self.choice_of_this_turn().clone())
                    .with_parallel_tool_calls(self.settings.parallel_tool_calls)
                    .with_borrowed_options(&self.settings.options)
                    .with_response_format(self.settings.response_format.clone()),
            ),
            Stage::Calling(turn) => {
                let ready = self.calls().iter().zip(&turn.calls).filter(|(_, standing)| standing.is_ready());
                let is_exclusive =
                    |(_, standing): &(_, &Standing)| standing.policy.is_some_and(|policy| policy.exclusive);
                let (exclusive, together): (Vec<_>, Vec<_>) = ready.partition(is_exclusive);
                // Those that run alone come one by one, when all others are over.
                let calls =
                    if together.is_empty() { exclusive.into_iter().take(1).collect() } else { together };
                if calls.is_empty() {
                    Step::NeedsApproval(self.waiting().cloned().collect())
                } else {
                    Step::CallTools(calls.into_iter().map(|(call, _)| call.clone()).collect())
                }
            }
            Stage::Undoing { .. } => Step::CallTools(self.undo_call().into_iter().collect()),
            Stage::Answered(_) | Stage::Returned(_) | Stage::Ended(_) => Step::Done,
        }
    }

    /// Takes in what the tools say of the open calls, and settles what needs no tool.
    pub(crate) fn settle(&mut self, tools: &ToolDefinitions) {
        if let Stage::Calling(turn) = &mut self.stage {
            let calls = match self.messages.last() {
                Some(Message::Assistant(message)) => &*message.tool_calls,
                _ => &[],
            };
            let mut ending = None;
            for (call, standing) in calls.iter().zip(&mut turn.calls).filter(|(_, one)| one.is_open()) {
                standing.settle(call, tools, &self.tool_executions);
                if let Some(settled) = standing.outcome.take() {
                    let (settled, ends) = self.settings.on_error.judge(settled);
                    standing.outcome = Some(settled);
                    ending = ending.or(ends);
                }
            }
            let may_answer = turn.may_answer();
            match ending {
                Some(ending) => self.end(ending),
                None if self.is_last_turn() && !may_answer => self.end(self.out_of_turns()),
                None => self.close_turn_if_over(),
            }
        }
        self.settle_undoing(tools);
    }

    /// Records what the model replied.
    ///
    /// # Errors
    ///
    /// The run had not asked for the model.
    pub fn record_response(&mut self, response: ChatResponse) -> Result<(), StepError> {
        if !self.is_asking() {
            return Err(StepError("a reply of the model"));
        }
        let ChatResponse { mut message, finish_reason, usage, .. } = response;
        self.turns = self.turns.saturating_add(1);
        self.usage += usage.unwrap_or_default();
        message.tool_calls = super::calls::as_meant(std::mem::take(&mut message.tool_calls));
        let known = self.name_calls(&mut message);
        let calls = message.tool_calls.len();
        self.messages.push(Message::Assistant(message));
        if calls == 0 {
            self.stage = Stage::Answered(finish_reason);
            return Ok(());
        }
        let mut turn = Turn { calls: vec![Standing::default(); calls], said: Vec::new() };
        for (position, outcome) in known {
            turn.calls[position].outcome = Some(outcome);
        }
        self.stage = Stage::Calling(turn);
        match self.ending_of_this_turn(finish_reason) {
            Some(ending) => self.end(ending),
            None if self.is_last_turn() => {}
            None => self.tell_of_repeated_calls(),
        }
        self.close_turn_if_over();
        Ok(())
    }

    /// The model is not asked again. Its calls are made only if what they give back may be the answer.
    fn is_last_turn(&self) -> bool {
        self.turns >= self.settings.limits.turns.max(1)
    }

    fn out_of_turns(&self) -> Ending {
        Ending::Turns(self.settings.limits.turns.max(1))
    }

    /// Why the calls of the turn that began are not made, and the run ends.
    fn ending_of_this_turn(&self, finish_reason: FinishReason) -> Option<Ending> {
        let limits = &self.settings.limits;
        let calls = self.tool_executions.len() + self.calls().len();
        if finish_reason.is_truncated() {
            Some(Ending::CutShort(finish_reason))
        } else if let Some(limit) = limits.calls.filter(|limit| calls as u64 > u64::from(*limit)) {
            Some(Ending::Calls(limit))
        } else {
            let tokens = limits.tokens.filter(|limit| self.usage.total_tokens > *limit);
            tokens.map(Ending::Tokens)
        }
    }

    /// Records that a call is begun, before it is made: should the process end then, the restored run knows that the
    /// call may have had its effect. A run whose calls are not begun has all rules but this one.
    ///
    /// # Errors
    ///
    /// The run has not asked for such a call, or has its outcome already; or the call was begun before, and may be made
    /// once only.
    pub fn begin_call(&mut self, call_id: &str) -> Result<Attempt, StepError> {
        let key = IdempotencyKey::new(self.id.as_str(), call_id);
        let standing = self.standing_of(call_id)?;
        if standing.is_waiting() {
            return Err(StepError("to begin a call that waits for approval"));
        }
        if standing.is_lost() {
            return Err(StepError("to begin a call once more that may be made once only"));
        }
        standing.attempts = standing.attempts.saturating_add(1);
        standing.is_begun = true;
        Ok(Attempt { key, number: standing.attempts })
    }

    /// Records the outcome of a call, which is found by its id. If the call failed and its tool is tried again, the
    /// call stays open.
    ///
    /// # Errors
    ///
    /// The run has not asked for such a call, or has its outcome already.
    pub fn record_result(&mut self, execution: ToolExecution) -> Result<(), StepError> {
        let id = execution.call.id.clone();
        let is_tried_again = self.would_try_again(&execution);
        let standing = self.standing_of(&id)?;
        if standing.is_waiting() && !standing.is_begun {
            return Err(StepError("the outcome of a call that waits for approval"));
        }
        standing.attempts = standing.attempt();
        standing.is_begun = false;
        if is_tried_again {
            return Ok(());
        }
        if matches!(self.stage, Stage::Undoing { .. }) {
            self.record_undone(execution);
            return Ok(());
        }
        let (execution, ending) = self.settings.on_error.judge(execution);
        self.standing_of(&id)?.outcome = Some(execution);
        match ending {
            Some(ending) => self.end(ending),
            None => self.close_turn_if_over(),
        }
        Ok(())
    }

    /// The call failed, and is made again.
    pub(crate) fn would_try_again(&self, execution: &ToolExecution) -> bool {
        let Err(error) = &execution.outcome else { return false };
        let standing = match &self.stage {
            Stage::Undoing { standing, .. } => Some(&**standing),
            Stage::Calling(turn) => {
                self.position_of(&execution.call.id).and_then(|position| turn.calls.get(position))
            }
            _ => None,
        };
        standing.is_some_and(|standing| standing.is_open() && standing.is_worth_another_attempt(error))
    }

    pub(super) fn close_turn_if_over(&mut self) {
        if let Stage::Calling(turn) = &mut self.stage
            && turn.is_over()
        {
            let turn = std::mem::take(turn);
            let answering = turn.answering();
            let first = self.messages.len();
            self.close(turn, "the run had ended");
            if answering.is_empty() {
                let out_of_turns = self.is_last_turn().then(|| self.out_of_turns());
                if let Some(ending) = out_of_turns.or_else(|| self.has_read_too_much()) {
                    self.stage = self.undoing(ending);
                    return;
                }
            }
            self.stage = match &*answering {
                [] => Stage::Asking,
                positions => Stage::Returned(positions.iter().map(|position| first + position).collect()),
            };
        }
    }

    /// Puts the results of the turn into the conversation, in the order of the calls.
    pub(super) fn close(&mut self, turn: Turn, why_not_made: &str) {
        let asked = self.messages.len().saturating_sub(1);
        for (position, standing) in turn.calls.into_iter().enumerate() {
            let Some(Message::Assistant(message)) = self.messages.get(asked) else { return };
            let Some(call) = message.tool_calls.get(position) else { return };
            let execution = match standing.outcome {
                Some(execution) => Some(execution),
                None if standing.attempts > 0 => {
                    Some(ToolExecution::new(call.clone(), Err(ToolError::interrupted())))
                }
                None => None,
            };
            let Some(mut execution) = execution else {
                let result = Message::tool(call, &Err(ToolError::not_executed(why_not_made)));
                self.messages.push(result);
                continue;
            };
            execution.metadata.attempts = Some(standing.attempts).filter(|attempts| *attempts > 1);
            execution.metadata.original_arguments = standing.asked;
            execution.metadata.undo = standing.undo;
            let result = Message::tool(call, execution.result());
            self.messages.push(result);
            self.tool_executions.push(execution);
        }
        self.messages.extend(turn.said.into_iter().map(Message::User));
    }
}
