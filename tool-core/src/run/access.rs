//! Creating a run and reading its state.

use std::time::Duration;

use super::error_policy::ErrorPolicy;
use super::history::History;
use super::id::RunId;
use super::limits::RunLimits;
use super::revision::Format;
use super::shared_cache::SharedCache;
use super::shared_vec::SharedVec;
use super::state::{CallRecord, Fact, Head, Run, Stage};
use super::step_error::StepError;
use super::stop_reason::StopReason;
use crate::model::{
    ConversationId, Message, ModelOptions, ResponseFormat, RunUser, ToolCall, ToolChoice, Usage,
};
use crate::tool::{Timestamp, ToolErrorKind, ToolExecution};

impl Run {
    /// Creates a run over a conversation whose last message is the user's. The
    /// [`new_messages`](Self::new_messages) start with that one.
    pub fn new(messages: impl Into<Vec<Message>>) -> Self {
        Self {
            format: Format,
            id: RunId::unique(),
            head: Head::default(),
            history: History::new(messages.into()),
            elapsed: Duration::ZERO,
            now: Timestamp::default(),
            inner_runs: SharedVec::default(),
            stage: Stage::Asking,
            recording: None,
            cache: SharedCache::default(),
            call_index: None,
            given_up: Vec::new(),
            driving: None,
        }
    }

    /// Sets the limits of the run.
    pub fn with_limits(mut self, limits: RunLimits) -> Self {
        self.head.settings.limits = limits;
        self
    }

    /// Sets whether the model may, must or must not call tools. A required call is required only until the run has
    /// executed one, so that the run can end.
    pub fn with_tool_choice(mut self, choice: ToolChoice) -> Self {
        self.head.settings.tool_choice = choice;
        self
    }

    /// Sets whether the model may call several tools in one turn; by default the provider decides.
    pub fn with_parallel_tool_calls(mut self, parallel: impl Into<Option<bool>>) -> Self {
        self.head.settings.parallel_tool_calls = parallel.into();
        self
    }

    /// Sets the options of the model, such as its temperature.
    pub fn with_options(mut self, options: ModelOptions) -> Self {
        self.head.settings.options = options;
        self
    }

    /// Sets the form of the answer. Only a model that [supports it](crate::ChatModel::supports_response_format) is
    /// constrained to it.
    pub fn with_response_format(mut self, format: impl Into<Option<ResponseFormat>>) -> Self {
        self.head.settings.response_format = format.into();
        self
    }

    /// Sets the policy for failed calls of one kind. Overrides the [default](Self::default_error_policy).
    pub fn error_policy(mut self, kind: ToolErrorKind, policy: ErrorPolicy) -> Self {
        self.head.settings.error_policies.set(kind, policy);
        self
    }

    /// Sets the policy for failed calls of every kind without a policy of its own; [`ErrorPolicy::Report`] by default.
    pub fn default_error_policy(mut self, policy: ErrorPolicy) -> Self {
        self.head.settings.error_policies.set_default(policy);
        self
    }

    /// Sets the conversation that the run belongs to. [`Agent::resume`](crate::Agent::resume) passes it to the tools.
    pub fn with_conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.head.conversation = Some(id.into());
        self
    }

    /// Sets the id of a run that was not stored yet, so that the application can find it by what it knows. It must be unique.
    pub(crate) fn with_id(mut self, id: RunId) -> Self {
        self.id = id;
        self
    }

    /// Sets whose run it is.
    pub fn with_user(mut self, user: impl Into<RunUser>) -> Self {
        self.head.user = Some(user.into());
        self
    }

    pub(crate) fn set_limits(&mut self, limits: RunLimits) {
        self.touch();
        self.head.settings.limits = limits;
    }

    /// Returns whose run it is, if [somebody has said so](crate::agent::Ask::user).
    #[must_use]
    pub fn user(&self) -> Option<&RunUser> {
        self.head.user.as_ref()
    }

    /// Takes over what another run demands of its answer.
    pub(crate) fn with_answer_form_of(mut self, other: &Self) -> Self {
        let (own, other) = (&mut self.head.settings, &other.head.settings);
        own.response_format.clone_from(&other.response_format);
        own.tool_choice.clone_from(&other.tool_choice);
        self
    }

    /// Inserts the history after the instructions and before the question. It is the part to be sent of a stored
    /// conversation of `stored_len` messages.
    pub(crate) fn insert_history(&mut self, history: &[Message], stored_len: usize) {
        self.append(Fact::Remembered(history.to_vec()));
        self.head.has_loaded_history = true;
        self.head.stored_conversation_len = Some(stored_len);
    }

    /// Returns `true` if the stored conversation was put before the question, and need not be loaded again.
    pub(crate) fn has_loaded_history(&self) -> bool {
        self.head.has_loaded_history
    }

    /// Returns the length of the stored conversation when it was put before the question.
    pub(crate) fn stored_conversation_len(&self) -> Option<usize> {
        self.head.stored_conversation_len
    }

    /// Adds tools that the model is offered from now on.
    pub(crate) fn add_found_tools<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        let mut new: Vec<String> = Vec::new();
        for name in names {
            if !self.found_tools().iter().chain(&new).any(|found| found == name) {
                new.push(name.to_owned());
            }
        }
        if !new.is_empty() {
            self.append(Fact::Found(new));
        }
    }

    /// Returns the tool that the model must call first, if it must call a particular one.
    pub(crate) fn required_tool(&self) -> Option<&str> {
        match &self.head.settings.tool_choice {
            ToolChoice::Tool(name) => Some(name),
            _ => None,
        }
    }

    /// Returns `true` if the next step is a request to the model.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking) && !self.awaits_tools()
    }

    /// Returns `true` if nothing is left to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Answered(_) | Stage::Returned { .. } | Stage::Ended(_))
    }

    /// Returns the reason why a run that is done has no answer.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&StopReason> {
        match &self.stage {
            Stage::Ended(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns `true` if the run waits for the model or for results of the model's calls.
    pub(crate) fn is_in_turn(&self) -> bool {
        matches!(self.stage, Stage::Asking | Stage::Calling(_))
    }

    /// Returns `true` if calls of the turn are open.
    pub(crate) fn is_calling(&self) -> bool {
        matches!(self.stage, Stage::Calling(_))
    }

    pub(crate) fn current_tool_choice(&self) -> &ToolChoice {
        match &self.head.settings.tool_choice {
            ToolChoice::Required | ToolChoice::Tool(_) if !self.tool_executions().is_empty() => {
                &ToolChoice::Auto
            }
            choice => choice,
        }
    }

    /// Returns the unique id of the run.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns the [name](crate::agent::AgentBuilder::name) of the agent that was asked, if it has one. Only an agent of this name
    /// resumes the run.
    #[must_use]
    pub fn agent_name(&self) -> Option<&str> {
        self.head.agent_name.as_deref()
    }

    /// Returns `true` if the run is charged to a budget of its [question](crate::agent::Ask::budget), which continuing it needs again.
    pub(crate) fn has_own_budget(&self) -> bool {
        self.head.has_own_budget
    }

    pub(crate) fn set_own_budget(&mut self) {
        self.head.has_own_budget = true;
    }

    /// Returns `true` if the limits of the run are those of its question, which its agent need not have.
    pub(crate) fn has_own_limits(&self) -> bool {
        self.head.has_own_limits
    }

    pub(crate) fn set_own_limits(&mut self) {
        self.head.has_own_limits = true;
    }

    /// Returns `true` if the run has the tools of its question in place of its agent's.
    pub(crate) fn has_only_own_tools(&self) -> bool {
        self.head.has_only_own_tools
    }

    pub(crate) fn set_only_own_tools(&mut self) {
        self.head.has_only_own_tools = true;
    }

    pub(crate) fn set_agent_name(&mut self, name: Option<&str>) {
        self.head.agent_name = name.map(str::to_owned);
    }

    /// Returns the conversation so far.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        self.history.messages()
    }

    /// Returns the messages that the run added to the conversation, starting with the user's.
    #[must_use]
    pub fn new_messages(&self) -> &[Message] {
        &self.messages()[self.history.given()..]
    }

    /// Returns the conversation that the run belongs to, if it is known.
    #[must_use]
    pub fn conversation(&self) -> Option<&ConversationId> {
        self.head.conversation.as_ref()
    }

    /// Returns the names of the tools that the model has found by [search](crate::agent::AgentBuilder::tool_search) or called
    /// unsearched, and is offered from then on, in that order. Those that its provider has found are not among them.
    #[must_use]
    pub fn found_tools(&self) -> &[String] {
        self.history.found_tools()
    }

    /// Returns the number of replies of the model.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.head.turns
    }

    /// Returns `true` if the model has not replied in the current turn.
    fn is_between_replies(&self) -> bool {
        matches!(self.stage, Stage::Asking)
    }

    /// Returns the number of the current turn, from 1.
    pub(crate) fn turn(&self) -> u32 {
        self.head.turns.saturating_add(u32::from(self.is_between_replies()))
    }

    /// Returns the messages that the model is sent in the current turn.
    pub(crate) fn sent_messages(&self) -> &[Message] {
        // In the middle of a turn, the last message is the reply.
        let replies = usize::from(!self.is_between_replies());
        &self.messages()[..self.messages().len().saturating_sub(replies)]
    }

    /// Returns the tokens of all turns so far, of the [agents](Self::inner_runs) that its calls asked, and of the requests of
    /// [layers](Self::usage_by_layer).
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut usage = self.usage_without_inner_runs();
        self.inner_runs().for_each(|inner| usage += inner.run().usage());
        usage
    }

    /// Returns the time that the run took so far, as [reported](Self::add_elapsed) by its driver.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the options of the model.
    pub fn options(&self) -> &ModelOptions {
        &self.head.settings.options
    }

    /// Returns the limits of the run.
    pub fn limits(&self) -> &RunLimits {
        &self.head.settings.limits
    }

    /// Returns the records of the calls of all finished turns, in the order in which the model requested them.
    #[must_use]
    pub fn tool_executions(&self) -> &[ToolExecution] {
        self.history.executions()
    }

    /// Returns the calls of the current turn, in the order in which the model requested them, each with its record if it has
    /// finished. Empty between two turns.
    pub fn current_calls(&self) -> impl Iterator<Item = (&ToolCall, Option<&ToolExecution>)> {
        self.calls_with_records().map(|(call, record)| (call, record.outcome()))
    }

    /// Returns the records of the calls that undid other calls after the run failed, in order of execution. If the `undo` tool of a call no
    /// longer exists, the call is not undone, and the record is a failure.
    #[must_use]
    pub fn undo_executions(&self) -> &[ToolExecution] {
        self.history.undo_executions()
    }

    /// Returns the record of a call of the current or the last turn, if it has finished.
    pub(crate) fn finished_call(&self, call_id: &str) -> Option<&ToolExecution> {
        let current = self.record(call_id).and_then(CallRecord::outcome);
        current.or_else(|| self.tool_executions().iter().rev().find(|one| one.call.id == call_id))
    }

    pub(super) fn calls(&self) -> &[ToolCall] {
        self.history.last_calls()
    }

    pub(super) fn calls_with_records(&self) -> impl Iterator<Item = (&ToolCall, &CallRecord)> {
        self.calls().iter().zip(self.stage.records())
    }

    /// Returns the calls of the current turn that can be open, with their records.
    pub(super) fn unfinished_calls(&self) -> impl Iterator<Item = (&ToolCall, &CallRecord)> {
        let finished = match &self.stage {
            Stage::Calling(turn) => turn.finished,
            _ => 0,
        };
        self.calls_with_records().skip(finished)
    }

    /// Returns the record of a call of the current turn, or of the next undo call.
    pub(super) fn record(&self, call_id: &str) -> Option<&CallRecord> {
        match &self.stage {
            Stage::Undoing(undoing) => Some(&undoing.record).filter(|_| undoing.call.id == call_id),
            stage => stage.records().get(self.call_position(call_id)?),
        }
    }

    pub(super) fn call_position(&self, call_id: &str) -> Option<usize> {
        let is_it = |call: &ToolCall| call.id == call_id;
        let calls = self.calls();
        // A few are compared faster than one is hashed.
        let index = self.call_index.as_ref().filter(|_| calls.len() > 8);
        let indexed = index.and_then(|index| index.position(call_id));
        let indexed = indexed.filter(|position| calls.get(*position).is_some_and(is_it));
        // A restored run has no index before its first change.
        indexed.or_else(|| calls.iter().position(is_it))
    }

    /// Returns the call of the current turn, or the next undo call, that has this id.
    pub(super) fn requested_call(&self, call_id: &str) -> Option<&ToolCall> {
        match self.next_undo_call() {
            Some(undo) => Some(undo).filter(|undo| undo.id == call_id),
            None => self.calls().get(self.call_position(call_id)?),
        }
    }

    /// Fails if no such call is open, or if the run has it under other arguments, because only those were approved.
    pub(crate) fn check_call(&mut self, call: &ToolCall) -> Result<(), StepError> {
        self.open_record(&call.id)?;
        match self.requested_call(&call.id) {
            Some(one) if (&one.name, &one.arguments) == (&call.name, &call.arguments) => Ok(()),
            _ => Err(StepError("the run has this call with another name or other arguments")),
        }
    }

    /// Returns the record of a call of the current turn, or of the next undo call, to set what is not stored.
    pub(super) fn record_mut(&mut self, call_id: &str) -> Option<&mut CallRecord> {
        let position = self.call_position(call_id);
        match &mut self.stage {
            Stage::Undoing(undoing) => Some(&mut undoing.record).filter(|_| undoing.call.id == call_id),
            Stage::Calling(turn) => turn.calls.get_mut(position?),
            _ => None,
        }
    }

    /// Returns the record of an open call, to be changed.
    pub(super) fn open_record(&mut self, call_id: &str) -> Result<&mut CallRecord, StepError> {
        self.touch();
        if self.call_index.is_none() {
            self.index_calls();
        }
        let position = self.call_position(call_id);
        let record = match &mut self.stage {
            Stage::Undoing(undoing) if undoing.call.id == call_id => &mut undoing.record,
            Stage::Calling(turn) => {
                let found = position.and_then(|position| turn.calls.get_mut(position));
                found.ok_or(StepError("the current turn has no call with this id"))?
            }
            _ => return Err(StepError("no call with this id is open")),
        };
        record.is_touched = true;
        if record.is_open() { Ok(record) } else { Err(StepError("the call already has a result")) }
    }
}
