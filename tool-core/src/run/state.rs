//! The state of a run, and the rules by which it moves.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ending::Ending;
use super::error::Kind;
use super::policy::{ErrorPolicy, OnError};
use super::turn::{Standing, Turn};
use super::{Answer, IdempotencyKey, RunError, RunId, RunLimits, Step, ToolExecution};
use crate::{
    AnswerFormat, ChatRequest, ChatResponse, ConversationId, FinishReason, Message, ModelOptions,
    RequestCache, ToolCall, ToolChoice, ToolDefinitions, ToolError, ToolErrorKind, Usage,
};

#[doc = include_str!("../../docs/run.md")]
#[derive(Clone, Debug)]
pub struct Run {
    pub(super) id: RunId,
    pub(super) messages: Vec<Message>,
    /// How many of the messages were there before the run added its own, the user's first.
    pub(super) given: usize,
    pub(super) settings: Settings,
    pub(super) conversation: Option<ConversationId>,
    /// What was said before was put in front: it is not looked for again.
    pub(super) remembers: bool,
    /// How many messages the conversation had then, which need not all be put in front.
    pub(super) conversation_had: Option<usize>,
    pub(super) turns: u32,
    pub(super) usage: Usage,
    pub(super) time: Duration,
    pub(super) tool_executions: Vec<ToolExecution>,
    pub(super) undone: Vec<ToolExecution>,
    pub(super) stage: Stage,
    /// What was sent is never changed, so a provider may keep what it made of it.
    pub(super) cache: RequestCache,
}

/// What a run was told to keep to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    pub(super) limits: RunLimits,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) tool_choice: ToolChoice,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "ErrorPolicy::is_empty")]
    pub(super) on_error: ErrorPolicy,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) options: ModelOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answer_format: Option<AnswerFormat>,
    /// How many answers were not of the form that was asked for.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) wrong_answers: u32,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Where a run stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// The model is to be asked.
    Asking,
    /// The calls of the last message are to be made.
    Calling(Turn),
    /// The last message is the answer.
    Answered(FinishReason),
    /// The messages at these positions are the answer: what the last calls gave back.
    Returned(Vec<usize>),
    /// The run ended, and what its calls did is undone one by one.
    Undoing { ending: Ending, standing: Box<Standing> },
    /// The run ended without an answer.
    Ended(Ending),
}

/// A run was handed something that it had not asked for; it stands as it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run did not ask for this: {0}")]
pub struct OutOfStep(pub(super) &'static str);

/// What a call is made under: [`Run::begin`] gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// Stays the same however often the call is made.
    pub key: IdempotencyKey,
    /// Which attempt it is, from 1.
    pub number: u32,
}

impl Run {
    /// A run over a conversation. Its last message is the user's; [`Answer::messages`] begin with that one.
    #[must_use]
    pub fn new(messages: impl Into<Vec<Message>>) -> Self {
        let messages = messages.into();
        Self {
            id: RunId::unique(),
            given: messages.len().saturating_sub(1),
            messages,
            settings: Settings::default(),
            conversation: None,
            remembers: false,
            conversation_had: None,
            turns: 0,
            usage: Usage::default(),
            time: Duration::ZERO,
            tool_executions: Vec::new(),
            undone: Vec::new(),
            stage: Stage::Asking,
            cache: RequestCache::default(),
        }
    }

    /// How far the run may go.
    #[must_use]
    pub fn with_limits(mut self, limits: RunLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// How often the model is asked at most; 10 unless it is set, and at least 1.
    #[must_use]
    pub fn with_max_turns(mut self, turns: u32) -> Self {
        self.settings.limits.turns = turns;
        self
    }

    /// Whether the model may, must or must not call a tool. What it must, it must until it did: with tools
    /// called, the model is free again, so that the run can end.
    #[must_use]
    pub fn with_tool_choice(mut self, choice: ToolChoice) -> Self {
        self.settings.tool_choice = choice;
        self
    }

    /// Whether the model may call several tools in one turn; unset, the provider decides.
    #[must_use]
    pub fn with_parallel_tool_calls(mut self, may: impl Into<Option<bool>>) -> Self {
        self.settings.parallel_tool_calls = may.into();
        self
    }

    /// How the model is to answer.
    #[must_use]
    pub fn with_options(mut self, options: ModelOptions) -> Self {
        self.settings.options = options;
        self
    }

    /// What the model's answer must look like; only a model that
    /// [supports it](crate::ChatModel::supports_answer_format) is held to it.
    #[must_use]
    pub fn with_answer_format(mut self, format: impl Into<Option<AnswerFormat>>) -> Self {
        self.settings.answer_format = format.into();
        self
    }

    /// What is done about calls that fail in this way; unless it is set, the model is told.
    #[must_use]
    pub fn on_error(mut self, kind: ToolErrorKind, on_error: OnError) -> Self {
        self.settings.on_error.set(kind, on_error);
        self
    }

    /// Which conversation the run belongs to; [`Agent::resume`](crate::Agent::resume) hands it to the tools.
    #[must_use]
    pub fn with_conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.conversation = Some(id.into());
        self
    }

    pub(crate) fn with_error_policy(mut self, policy: ErrorPolicy) -> Self {
        self.settings.on_error = policy;
        self
    }

    /// Puts what was said before in front of what the run has, behind the instructions: as much as is sent of a
    /// conversation of so many messages.
    pub(crate) fn remember(&mut self, history: &[Message], of: usize) {
        let is_system = |message: &&Message| matches!(message, Message::System(_));
        let place = self.messages.iter().take_while(is_system).count().min(self.given);
        self.messages.splice(place..place, history.iter().cloned());
        self.cache = RequestCache::default();
        self.given += history.len();
        self.remembers = true;
        self.conversation_had = Some(of);
    }

    pub(crate) fn conversation_had(&self) -> Option<usize> {
        self.conversation_had
    }

    pub(crate) fn remembers(&self) -> bool {
        self.remembers
    }

    /// What is to be done next. The calls are those that have no outcome yet, so it is asked again when those that
    /// it gave are over, or given up: a call that was [begun](Self::begin) and is still without an outcome has been
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
                    .with_options(self.settings.options.clone())
                    .with_answer_format(self.settings.answer_format.clone()),
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
            for (call, standing) in calls.iter().zip(&mut turn.calls) {
                standing.settle(call, tools, &self.tool_executions);
            }
            self.close_turn_if_over();
        }
        self.settle_undoing(tools);
    }

    /// The model is to be asked next.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking)
    }

    /// There is nothing left to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Answered(_) | Stage::Returned(_) | Stage::Ended(_))
    }

    /// The call was open when the run ended without an answer: it has a result that says so, and takes no other.
    pub(crate) fn has_given_up(&self, call_id: &str) -> bool {
        let has_ended = matches!(self.stage, Stage::Undoing { .. } | Stage::Ended(_));
        if !has_ended || self.undo_call().is_some_and(|undo| undo.id == call_id) {
            return false;
        }
        let last = self.messages.iter().rev().find_map(Message::as_assistant);
        last.is_some_and(|message| message.tool_calls.iter().any(|call| call.id == call_id))
    }

    pub(crate) fn choice_of_this_turn(&self) -> &ToolChoice {
        match &self.settings.tool_choice {
            ToolChoice::Required | ToolChoice::Tool(_) if !self.tool_executions.is_empty() => {
                &ToolChoice::Auto
            }
            choice => choice,
        }
    }

    /// Records what the model replied.
    ///
    /// # Errors
    ///
    /// The run had not asked for the model.
    pub fn replied(&mut self, response: ChatResponse) -> Result<(), OutOfStep> {
        if !self.is_asking() {
            return Err(OutOfStep("a reply of the model"));
        }
        let ChatResponse { mut message, finish_reason, usage, .. } = response;
        self.turns += 1;
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
            None => self.tell_of_repeated_calls(),
        }
        self.close_turn_if_over();
        Ok(())
    }

    /// Why the calls of the turn that began are not made, and the run ends.
    fn ending_of_this_turn(&self, finish_reason: FinishReason) -> Option<Ending> {
        let limits = &self.settings.limits;
        let calls = self.tool_executions.len() + self.calls().len();
        if finish_reason.is_cut_short() {
            Some(Ending::CutShort(finish_reason))
        } else if self.turns >= limits.turns.max(1) {
            Some(Ending::Turns(limits.turns.max(1)))
        } else if let Some(limit) = limits.calls.filter(|limit| calls as u64 > u64::from(*limit)) {
            Some(Ending::Calls(limit))
        } else {
            let tokens = limits.tokens.filter(|limit| self.usage.total_tokens > *limit);
            tokens.map(Ending::Tokens)
        }
    }

    /// Says that the answer will not do: the model reads why and answers again, or the run ends if it was told so
    /// [often enough](crate::RunLimits::wrong_answers), or has taken all its turns. A refusal ends it at once.
    ///
    /// # Errors
    ///
    /// The run has no answer.
    pub fn reject_answer(&mut self, why: &str) -> Result<(), OutOfStep> {
        if !matches!(self.stage, Stage::Answered(_) | Stage::Returned(_)) {
            return Err(OutOfStep("to reject an answer that it does not have"));
        }
        let limits = &self.settings.limits;
        let refusal =
            self.messages.last().and_then(Message::as_assistant).and_then(|last| last.refusal.clone());
        if let Some(refusal) = refusal {
            self.end(Ending::Refused(refusal));
        } else if self.settings.wrong_answers >= limits.wrong_answers || self.turns >= limits.turns.max(1) {
            self.end(Ending::WrongAnswer(why.to_owned()));
        } else {
            self.settings.wrong_answers += 1;
            self.messages.push(Message::user(why));
            self.stage = Stage::Asking;
        }
        Ok(())
    }

    /// The text of the answer, if there is one.
    pub(crate) fn answer_text(&self) -> Option<String> {
        match &self.stage {
            Stage::Answered(_) => self.messages.last().map(|message| message.text().into_owned()),
            Stage::Returned(positions) => {
                let outputs = positions.iter().filter_map(|position| self.messages.get(*position));
                let outputs: Vec<_> = outputs.map(Message::text).collect();
                Some(outputs.join("\n"))
            }
            _ => None,
        }
    }

    /// Records that a call is begun, before it is made: should the process end then, the restored run knows that the
    /// call may have had its effect. A run whose calls are not begun has all rules but this one.
    ///
    /// # Errors
    ///
    /// The run has not asked for such a call, or has its outcome already.
    pub fn begin(&mut self, call_id: &str) -> Result<Attempt, OutOfStep> {
        let key = IdempotencyKey::new(&self.id, call_id);
        let standing = self.standing_of(call_id)?;
        if standing.is_waiting() {
            return Err(OutOfStep("to begin a call that waits for approval"));
        }
        standing.attempts += 1;
        standing.is_begun = true;
        Ok(Attempt { key, number: standing.attempts })
    }

    /// Records the outcome of a call, which is found by its id. If the call failed and its tool is tried again, the
    /// call stays open.
    ///
    /// # Errors
    ///
    /// The run has not asked for such a call, or has its outcome already.
    pub fn called(&mut self, execution: ToolExecution) -> Result<(), OutOfStep> {
        let id = execution.call.id.clone();
        let is_tried_again = self.would_try_again(&execution);
        let standing = self.standing_of(&id)?;
        standing.attempts = standing.attempt();
        standing.is_begun = false;
        if is_tried_again {
            return Ok(());
        }
        if matches!(self.stage, Stage::Undoing { .. }) {
            self.record_undone(execution);
            return Ok(());
        }
        let (execution, ending) = self.judge(execution);
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

    /// The record with what the model reads of the outcome, and whether the run ends with it.
    fn judge(&self, execution: ToolExecution) -> (ToolExecution, Option<Ending>) {
        let Err(error) = &execution.outcome else { return (execution, None) };
        match self.settings.on_error.of(error) {
            OnError::Tell => (execution, None),
            OnError::Hide => {
                let hidden = error.clone().hidden(&execution.call.id);
                (execution.with_outcome(Err(hidden)), None)
            }
            OnError::EndRun => {
                let ending = Ending::Tool { tool: execution.call.name.clone(), error: error.clone() };
                (execution, Some(ending))
            }
        }
    }

    fn has_read_too_much(&self) -> Option<Ending> {
        let limit = self.settings.limits.output?;
        let length = |one: &ToolExecution| one.output().map_or(0, |output| output.content().len());
        let read: usize = self.tool_executions.iter().map(length).sum();
        (read > limit).then_some(Ending::Output(limit))
    }

    /// Adds to the time that the run was under way; a run without a clock is told by its driver.
    pub fn spend(&mut self, time: Duration) {
        self.time = self.time.saturating_add(time);
        if let Some(limit) = self.settings.limits.time.filter(|limit| self.time >= *limit)
            && matches!(self.stage, Stage::Asking | Stage::Calling(_))
        {
            self.end(Ending::Time(limit));
        }
    }

    /// How long the run may still be under way, if that is limited.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        // What is undone is undone, however long it takes.
        let is_limited = matches!(self.stage, Stage::Asking | Stage::Calling(_));
        let limit = self.settings.limits.time.filter(|_| is_limited)?;
        Some(limit.saturating_sub(self.time))
    }

    /// Ends the run: what is open is not made any more, and what was done is undone by the tools that can.
    pub fn cancel(&mut self) {
        if matches!(self.stage, Stage::Asking | Stage::Calling(_)) {
            self.end(Ending::Cancelled);
        }
    }

    /// Ends the run without an answer. Every call gets a result, so that the conversation stays one that a model
    /// accepts.
    pub(super) fn end(&mut self, ending: Ending) {
        if let Stage::Calling(turn) = &mut self.stage {
            let turn = std::mem::take(turn);
            self.close(turn, ending.why_not_made());
        }
        self.stage = self.undoing(ending);
    }

    pub(super) fn close_turn_if_over(&mut self) {
        if let Stage::Calling(turn) = &mut self.stage
            && turn.is_over()
        {
            let turn = std::mem::take(turn);
            let answering = turn.answering();
            let first = self.messages.len();
            self.close(turn, "the run had ended");
            if answering.is_empty()
                && let Some(ending) = self.has_read_too_much()
            {
                self.stage = self.undoing(ending);
                return;
            }
            self.stage = match &*answering {
                [] => Stage::Asking,
                positions => Stage::Returned(positions.iter().map(|position| first + position).collect()),
            };
        }
    }

    /// Puts the results of the turn into the conversation, in the order of the calls.
    fn close(&mut self, turn: Turn, why_not_made: &str) {
        let asked = self.messages.len().saturating_sub(1);
        for (position, standing) in turn.calls.into_iter().enumerate() {
            let Some(Message::Assistant(message)) = self.messages.get(asked) else { return };
            let Some(call) = message.tool_calls.get(position) else { return };
            let execution = match standing.outcome {
                Some(execution) => Some(execution),
                None if standing.is_begun => {
                    Some(ToolExecution::new(call.clone(), Err(ToolError::interrupted())))
                }
                None => None,
            };
            let Some(mut execution) = execution else {
                let result = Message::tool(call, &Err(ToolError::not_made(why_not_made)));
                self.messages.push(result);
                continue;
            };
            execution.notes.attempts = Some(standing.attempts).filter(|attempts| *attempts > 1);
            execution.notes.asked = standing.asked;
            execution.notes.undo = standing.undo;
            let result = Message::tool(call, execution.result());
            self.messages.push(result);
            self.tool_executions.push(execution);
        }
        self.messages.extend(turn.said.into_iter().map(Message::User));
    }

    /// The answer of a run that is [`Done`](Step::Done).
    ///
    /// # Errors
    ///
    /// The run ended without an answer, or is not done yet.
    pub fn finish(mut self) -> Result<Answer, RunError> {
        let (finish_reason, text, refusal) = match &self.stage {
            Stage::Answered(finish_reason) => match self.messages.last() {
                Some(Message::Assistant(last)) => {
                    (finish_reason.clone(), last.text.clone(), last.refusal.clone())
                }
                _ => (finish_reason.clone(), String::new(), None),
            },
            Stage::Returned(_) => (FinishReason::ToolCalls, self.answer_text().unwrap_or_default(), None),
            Stage::Ended(ending) => return Err(RunError::new(Kind::Ended(ending.clone()), self)),
            Stage::Asking | Stage::Calling(_) | Stage::Undoing { .. } => {
                return Err(RunError::new(Kind::OutOfStep(OutOfStep("to finish before it is done")), self));
            }
        };
        let messages = self.messages.split_off(self.given);
        Ok(Answer {
            text,
            refusal,
            finish_reason,
            tool_executions: self.tool_executions,
            usage: self.usage,
            turns: self.turns,
            messages,
        })
    }

    /// What tells this run from every other.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// The conversation so far.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The messages that the run added to the conversation, the user's first.
    #[must_use]
    pub fn added(&self) -> &[Message] {
        &self.messages[self.given..]
    }

    /// Which conversation the run belongs to, if it was told.
    #[must_use]
    pub fn conversation(&self) -> Option<&ConversationId> {
        self.conversation.as_ref()
    }

    /// How often the model has replied.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// The tokens of all turns so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// How long the run was under way, as far as its driver [told](Self::spend).
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }

    /// How the model is to answer.
    #[must_use]
    pub fn options(&self) -> &ModelOptions {
        &self.settings.options
    }

    /// How far the run may go.
    #[must_use]
    pub fn limits(&self) -> &RunLimits {
        &self.settings.limits
    }

    /// The calls of all turns that are over, in the order in which the model asked for them.
    #[must_use]
    pub fn tool_executions(&self) -> &[ToolExecution] {
        &self.tool_executions
    }

    /// The calls of the turn that is under way, in the order in which the model asked for them, with what came of those that
    /// are over; nothing between two turns.
    pub fn open_turn(&self) -> impl Iterator<Item = (&ToolCall, Option<&ToolExecution>)> {
        let standings = match &self.stage {
            Stage::Calling(turn) => &*turn.calls,
            _ => &[],
        };
        self.calls().iter().zip(standings).map(|(call, standing)| (call, standing.outcome.as_ref()))
    }

    /// What was called to undo the calls of a run that failed, in the order in which it was called.
    #[must_use]
    pub fn undone(&self) -> &[ToolExecution] {
        &self.undone
    }

    /// The calls of the last message.
    pub(super) fn calls(&self) -> &[ToolCall] {
        match self.messages.last() {
            Some(Message::Assistant(message)) => &message.tool_calls,
            _ => &[],
        }
    }

    pub(super) fn position_of(&self, call_id: &str) -> Option<usize> {
        self.calls().iter().position(|call| call.id == call_id)
    }

    /// Where an open call stands.
    pub(super) fn standing_of(&mut self, call_id: &str) -> Result<&mut Standing, OutOfStep> {
        let undo_id = self.undo_call().map(|call| call.id);
        let position = self.position_of(call_id);
        let standing = match &mut self.stage {
            Stage::Undoing { standing, .. } if undo_id.as_deref() == Some(call_id) => standing,
            Stage::Calling(turn) => {
                let found = position.and_then(|position| turn.calls.get_mut(position));
                found.ok_or(OutOfStep("a call that is not of this turn"))?
            }
            _ => return Err(OutOfStep("a call, while no such call is open")),
        };
        if standing.is_open() { Ok(standing) } else { Err(OutOfStep("a second outcome of one call")) }
    }
}
