//! The state of a run, and the rules by which it moves.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::Kind;
use super::{Answer, RunError, Step, ToolExecution};
use crate::{
    AssistantMessage, ChatRequest, ChatResponse, ConversationId, FinishReason, Message, ToolCall, ToolChoice,
    ToolDefinitions, ToolError, Usage,
};

/// The version of the serialised form. A change of the form that old states do not fit raises it, and
/// reading then takes both.
const FORMAT: u32 = 1;

/// How often a run asks the model unless it is told otherwise.
const DEFAULT_MAX_TURNS: u32 = 10;

/// The loop between a model and its tools, as a state machine: it says what is to be done next, is told
/// what came of it, and holds everything that is needed to go on.
///
/// It does no I/O and knows neither model nor tools, so it can be serialised between any two steps, kept,
/// and driven on elsewhere. What was recorded is never asked for again.
///
/// [`Agent::ask`](crate::Agent::ask) drives a run by itself. By hand it goes like this:
///
/// ```
/// use tool_core::{AssistantMessage, ChatResponse, Message, Run, Step, ToolCall, ToolDefinitions};
/// use tool_core::{ToolExecution, ToolOutput};
///
/// # fn ask_a_model() -> ChatResponse { ChatResponse::new(AssistantMessage::text("Good morning!")) }
/// # fn make(call: &ToolCall) -> ToolOutput { ToolOutput::text("…") }
/// let tools = ToolDefinitions::default();
/// let mut run = Run::new([Message::user("Hello")]);
/// let answer = loop {
///     match run.next(&tools) {
///         Step::CallModel(_request) => run.replied(ask_a_model())?,
///         Step::CallTools(calls) => {
///             for call in calls {
///                 let output = make(&call);
///                 run.called(ToolExecution::new(call, Ok(output)))?;
///             }
///         }
///         Step::Done => break run.finish()?,
///         other => return Err(format!("this loop knows no such step: {other:?}").into()),
///     }
/// };
/// assert_eq!(answer.text(), "Good morning!");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Run {
    #[serde(deserialize_with = "known_format")]
    format: u32,
    messages: Vec<Message>,
    /// How many of the messages were there before the run added its own, the user's first.
    given: usize,
    max_turns: u32,
    tool_choice: ToolChoice,
    parallel_tool_calls: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conversation: Option<ConversationId>,
    turns: u32,
    usage: Usage,
    tool_executions: Vec<ToolExecution>,
    standing: Standing,
}

/// Where a run stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Standing {
    /// The model is to be asked.
    Asking,
    /// The calls of the last message are to be made; the outcomes that are there, by their position.
    Calling(Vec<Option<ToolExecution>>),
    /// The last message is the answer.
    Answered(FinishReason),
    /// What the last calls gave back is the answer.
    Returned,
    /// The run took all its turns.
    OutOfTurns,
    /// The last reply was cut short in the middle of its calls.
    CutShort(FinishReason),
}

/// A run was handed something that it had not asked for; it stands as it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run did not ask for this: {0}")]
pub struct OutOfStep(&'static str);

impl Run {
    /// A run over a conversation. Its last message is the user's; [`Answer::messages`] begin with that one.
    #[must_use]
    pub fn new(messages: impl Into<Vec<Message>>) -> Self {
        let messages = messages.into();
        Self {
            format: FORMAT,
            given: messages.len().saturating_sub(1),
            messages,
            max_turns: DEFAULT_MAX_TURNS,
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: None,
            conversation: None,
            turns: 0,
            usage: Usage::default(),
            tool_executions: Vec::new(),
            standing: Standing::Asking,
        }
    }

    /// How often the model is asked at most; 10 unless it is set, and at least 1.
    #[must_use]
    pub fn with_max_turns(mut self, turns: u32) -> Self {
        self.max_turns = turns.max(1);
        self
    }

    /// Whether the model may, must or must not call a tool. What it must, it must until it did: with tools
    /// called, the model is free again, so that the run can end.
    #[must_use]
    pub fn with_tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = choice;
        self
    }

    /// Whether the model may call several tools in one turn; unset, the provider decides.
    #[must_use]
    pub fn with_parallel_tool_calls(mut self, may: impl Into<Option<bool>>) -> Self {
        self.parallel_tool_calls = may.into();
        self
    }

    /// Which conversation the run belongs to; [`Agent::resume`](crate::Agent::resume) hands it to the tools.
    #[must_use]
    pub fn with_conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.conversation = Some(id.into());
        self
    }

    /// What is to be done next. Asking changes nothing.
    #[must_use]
    pub fn next<'a>(&'a self, tools: &ToolDefinitions) -> Step<'a> {
        match &self.standing {
            Standing::Asking => Step::CallModel(
                ChatRequest::borrowing(&self.messages)
                    .with_tools(tools.clone())
                    .with_tool_choice(self.choice_of_this_turn().clone())
                    .with_parallel_tool_calls(self.parallel_tool_calls),
            ),
            Standing::Calling(outcomes) => {
                let open = self.calls().iter().zip(outcomes).filter(|(_, outcome)| outcome.is_none());
                let is_exclusive =
                    |call: &&ToolCall| tools.policy_of(&call.name).is_some_and(|policy| policy.exclusive);
                let (exclusive, together): (Vec<_>, Vec<_>) =
                    open.map(|(call, _)| call).partition(is_exclusive);
                // Those that run alone come one by one, when all others are over.
                let calls =
                    if together.is_empty() { exclusive.into_iter().take(1).collect() } else { together };
                Step::CallTools(calls.into_iter().cloned().collect())
            }
            Standing::Answered(_) | Standing::Returned | Standing::OutOfTurns | Standing::CutShort(_) => {
                Step::Done
            }
        }
    }

    /// The model is to be asked next.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.standing, Standing::Asking)
    }

    /// There is nothing left to do.
    pub(crate) fn is_done(&self) -> bool {
        !matches!(self.standing, Standing::Asking | Standing::Calling(_))
    }

    pub(crate) fn choice_of_this_turn(&self) -> &ToolChoice {
        match &self.tool_choice {
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
        if !matches!(self.standing, Standing::Asking) {
            return Err(OutOfStep("a reply of the model"));
        }
        let ChatResponse { mut message, finish_reason, usage, .. } = response;
        self.turns += 1;
        self.usage += usage.unwrap_or_default();
        message.tool_calls = super::calls::as_meant(std::mem::take(&mut message.tool_calls));
        self.name_calls(&mut message);
        let calls = message.tool_calls.len();
        self.messages.push(Message::Assistant(message));
        if calls == 0 {
            self.standing = Standing::Answered(finish_reason);
        } else if finish_reason.is_cut_short() {
            self.make_no_call("the reply was cut short");
            self.standing = Standing::CutShort(finish_reason);
        } else if self.turns >= self.max_turns {
            self.make_no_call("the run had taken all its turns");
            self.standing = Standing::OutOfTurns;
        } else {
            self.standing = Standing::Calling(vec![None; calls]);
        }
        Ok(())
    }

    /// Records the outcome of a call, which is found by its id.
    ///
    /// # Errors
    ///
    /// The run has not asked for such a call, or has its outcome already.
    pub fn called(&mut self, execution: ToolExecution) -> Result<(), OutOfStep> {
        let position = self.calls().iter().position(|call| call.id == execution.call().id);
        let Standing::Calling(outcomes) = &mut self.standing else {
            return Err(OutOfStep("the outcome of a call, while no call is open"));
        };
        let Some(outcome) = position.and_then(|position| outcomes.get_mut(position)) else {
            return Err(OutOfStep("the outcome of a call that is not of this turn"));
        };
        if outcome.is_some() {
            return Err(OutOfStep("a second outcome of one call"));
        }
        *outcome = Some(execution);
        if outcomes.iter().all(Option::is_some) {
            let is_answer = outcomes.iter().flatten().all(ToolExecution::is_answer);
            for execution in std::mem::take(outcomes).into_iter().flatten() {
                self.messages.push(Message::tool(execution.call(), execution.result()));
                self.tool_executions.push(execution);
            }
            self.standing = if is_answer { Standing::Returned } else { Standing::Asking };
        }
        Ok(())
    }

    /// The answer of a run that is [`Done`](Step::Done).
    ///
    /// # Errors
    ///
    /// The run ended without an answer, or is not done yet.
    pub fn finish(mut self) -> Result<Answer, RunError> {
        let kind = match self.standing {
            Standing::Answered(finish_reason) => {
                let messages = self.messages.split_off(self.given);
                let (text, refusal) = match messages.last() {
                    Some(Message::Assistant(last)) => (last.text.clone(), last.refusal.clone()),
                    _ => Default::default(),
                };
                return Ok(Answer {
                    text,
                    refusal,
                    finish_reason,
                    tool_executions: self.tool_executions,
                    usage: self.usage,
                    turns: self.turns,
                    messages,
                });
            }
            Standing::Returned => {
                let messages = self.messages.split_off(self.given);
                let outputs = messages.iter().rev().map_while(|message| match message {
                    Message::Tool(result) => Some(result.content.text()),
                    _ => None,
                });
                let mut outputs: Vec<_> = outputs.collect();
                outputs.reverse();
                return Ok(Answer {
                    text: outputs.join("\n"),
                    refusal: None,
                    finish_reason: FinishReason::ToolCalls,
                    tool_executions: self.tool_executions,
                    usage: self.usage,
                    turns: self.turns,
                    messages,
                });
            }
            Standing::OutOfTurns => Kind::TurnLimit(self.max_turns),
            Standing::CutShort(ref reason) => Kind::CutShort(reason.clone()),
            Standing::Asking | Standing::Calling(_) => {
                Kind::OutOfStep(OutOfStep("to finish before it is done"))
            }
        };
        Err(RunError::new(kind, self))
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

    /// The calls of all turns that are over, in the order in which the model asked for them.
    #[must_use]
    pub fn tool_executions(&self) -> &[ToolExecution] {
        &self.tool_executions
    }

    /// The calls of the last message.
    fn calls(&self) -> &[ToolCall] {
        match self.messages.last() {
            Some(Message::Assistant(message)) => &message.tool_calls,
            _ => &[],
        }
    }

    /// Gives a name of its own to every call whose id is blank or was there before: an id ties a result
    /// to its call, and some servers count their ids from zero in every reply.
    fn name_calls(&self, message: &mut AssistantMessage) {
        for position in 0..message.tool_calls.len() {
            let (earlier, rest) = message.tool_calls.split_at_mut(position);
            let is_taken = |id: &str| {
                self.has_call(id) || earlier.iter().any(|call| call.id == id) || id.trim().is_empty()
            };
            let call = &mut rest[0];
            if is_taken(&call.id) {
                let mut id = format!("call_{}_{position}", self.turns);
                while is_taken(&id) {
                    id.push('_');
                }
                call.id = id;
            }
        }
    }

    /// What the rules take for granted, which a state that was read need not keep.
    fn is_consistent(&self) -> bool {
        let calls = self.calls();
        let stands = match &self.standing {
            Standing::Calling(outcomes) => {
                let is_of = |(call, outcome): (&ToolCall, &Option<ToolExecution>)| {
                    outcome.as_ref().is_none_or(|execution| execution.call().id == call.id)
                };
                outcomes.len() == calls.len()
                    && outcomes.iter().any(Option::is_none)
                    && calls.iter().zip(outcomes).all(is_of)
            }
            Standing::Asking => calls.is_empty(),
            Standing::Answered(_) => matches!(self.messages.last(), Some(Message::Assistant(_))),
            Standing::Returned => matches!(self.messages.last(), Some(Message::Tool(_))),
            Standing::OutOfTurns | Standing::CutShort(_) => true,
        };
        stands && self.given <= self.messages.len()
    }

    fn has_call(&self, id: &str) -> bool {
        self.messages.iter().any(|message| match message {
            Message::Assistant(message) => message.tool_calls.iter().any(|call| call.id == id),
            _ => false,
        })
    }

    /// Answers the open calls, so that the conversation stays one that a model accepts.
    fn make_no_call(&mut self, why: &str) {
        let results: Vec<_> =
            self.calls().iter().map(|call| Message::tool(call, &Err(ToolError::not_made(why)))).collect();
        self.messages.extend(results);
    }
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The one that `remote = "Self"` derives.
        Self::serialize(self, serializer)
    }
}

/// What is read is checked, as it may be anything.
impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let run = Self::deserialize(deserializer)?;
        if run.is_consistent() {
            Ok(run)
        } else {
            Err(D::Error::custom("the state of the run contradicts itself"))
        }
    }
}

fn known_format<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        FORMAT => Ok(FORMAT),
        other => Err(D::Error::custom(format_args!(
            "a run of format {other} cannot be read here; this version reads format {FORMAT}"
        ))),
    }
}
