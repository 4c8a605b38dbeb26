//! The state of a run, and the rules by which it moves.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ending::Ending;
use super::turn::{Standing, Turn};
use crate::model::{
    ConversationId, FinishReason, Message, ModelOptions, RequestCache, ResponseFormat, ToolCall, ToolChoice,
    Usage,
};
use crate::run::{ErrorPolicies, ErrorPolicy, RunId, RunLimits};
use crate::tool::{ToolErrorKind, ToolExecution};

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
    #[serde(skip_serializing_if = "ErrorPolicies::is_empty")]
    pub(super) on_error: ErrorPolicies,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) options: ModelOptions,
    #[serde(rename = "answer_format", skip_serializing_if = "Option::is_none")]
    pub(super) response_format: Option<ResponseFormat>,
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
pub struct StepError(pub(super) &'static str);

impl Run {
    /// A run over a conversation. Its last message is the user's; [`Answer::messages`](crate::Answer::messages) begin with that one.
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
    pub fn max_turns(mut self, turns: u32) -> Self {
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
    /// [supports it](crate::ChatModel::supports_response_format) is held to it.
    #[must_use]
    pub fn with_response_format(mut self, format: impl Into<Option<ResponseFormat>>) -> Self {
        self.settings.response_format = format.into();
        self
    }

    /// What is done about calls that fail in this way; unless it is set, the model is told.
    #[must_use]
    pub fn on_error(mut self, kind: ToolErrorKind, on_error: ErrorPolicy) -> Self {
        self.settings.on_error.set(kind, on_error);
        self
    }

    /// Which conversation the run belongs to; [`Agent::resume`](crate::Agent::resume) hands it to the tools.
    #[must_use]
    pub fn with_conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.conversation = Some(id.into());
        self
    }

    pub(crate) fn with_error_policy(mut self, policy: ErrorPolicies) -> Self {
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

    /// The model is to be asked next.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking)
    }

    /// There is nothing left to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Answered(_) | Stage::Returned(_) | Stage::Ended(_))
    }

    /// The model is to be asked, or was and its calls are not over.
    pub(crate) fn is_in_turn(&self) -> bool {
        matches!(self.stage, Stage::Asking | Stage::Calling(_))
    }

    pub(crate) fn choice_of_this_turn(&self) -> &ToolChoice {
        match &self.settings.tool_choice {
            ToolChoice::Required | ToolChoice::Tool(_) if !self.tool_executions.is_empty() => {
                &ToolChoice::Auto
            }
            choice => choice,
        }
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

    /// How long the run was under way, as far as its driver [told](Self::add_elapsed).
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
    pub(super) fn standing_of(&mut self, call_id: &str) -> Result<&mut Standing, StepError> {
        let undo_id = self.undo_call().map(|call| call.id);
        let position = self.position_of(call_id);
        let standing = match &mut self.stage {
            Stage::Undoing { standing, .. } if undo_id.as_deref() == Some(call_id) => standing,
            Stage::Calling(turn) => {
                let found = position.and_then(|position| turn.calls.get_mut(position));
                found.ok_or(StepError("a call that is not of this turn"))?
            }
            _ => return Err(StepError("a call, while no such call is open")),
        };
        if standing.is_open() { Ok(standing) } else { Err(StepError("a second outcome of one call")) }
    }
}
