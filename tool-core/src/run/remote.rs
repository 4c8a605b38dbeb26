//! What drivers need that execute calls in other processes.

use super::call_state::{ApprovalScope, CallState};
use super::id::RunId;
use super::state::CallRecord;
use crate::content::Content;
use crate::model::{AssistantMessage, ChatResponse, ConversationId, Message, ToolCall};
use crate::run::{Run, StepError};
use crate::tool::{Attempt, CallRequest};

impl Run {
    /// Records the start of a call, like [`begin_call`](Self::begin_call), and returns all that another process needs to execute
    /// it, for example with [`AgentExt::execute_request`](crate::engine::AgentExt::execute_request).
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`begin_call`](Self::begin_call).
    pub fn request_call(&mut self, call_id: &str) -> Result<CallRequest, StepError> {
        let request = self.begin_remote_call(call_id)?;
        self.set_executing(call_id);
        Ok(request)
    }

    /// Records the start of a call that is executed later.
    pub(super) fn begin_remote_call(&mut self, call_id: &str) -> Result<CallRequest, StepError> {
        let attempt = self.begin_call(call_id)?;
        let call = self.requested_call(call_id).cloned();
        let call = call.ok_or(StepError("the current turn has no call with this id"))?;
        let undone = self.next_undone();
        Ok(CallRequest { undone, ..self.request_of(call, attempt) })
    }

    /// Returns all that another process needs to know of an open call and this attempt of it.
    pub(super) fn request_of(&self, call: ToolCall, attempt: Attempt) -> CallRequest {
        let record = self.record(&call.id);
        CallRequest {
            attempt,
            undone: None,
            user: self.head.user.clone(),
            conversation: self.head.conversation.as_ref().map(ConversationId::outermost),
            definition: record.and_then(CallRecord::approved_definition).map(str::to_owned),
            notes: record.and_then(CallRecord::notes).cloned().map(Box::new),
            providers: self.provider_notes().cloned().collect(),
            nobody_to_ask: None,
            call,
        }
    }
}

impl CallRequest {
    /// Creates the run, of an agent with this name, that goes on with the call, which belonged to no run so far, such as one received over another
    /// protocol. Its id is that in the key of the call, which stays the same, as does what the call has recorded and waits for. A call with a
    /// [definition](CallRequest::definition) is approved for it.
    ///
    /// ```
    /// use tool_core::engine::CallRequest;
    /// use tool_core::ToolCall;
    /// use tool_core::run::Run;
    ///
    /// let request = CallRequest::standalone(ToolCall::new("call_1", "work", "{}"));
    /// let key = request.attempt.key.clone();
    /// let mut run = request.into_run(Some("clerk"), "Go on")?;
    /// assert_eq!(run.begin_call("call_1")?.key, key);
    /// # Ok::<_, tool_core::signatures::StepError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the key of the call has no id of a run.
    pub fn into_run(self, agent: Option<&str>, question: impl Into<Content>) -> Result<Run, StepError> {
        let Self { call, attempt, user, notes, definition, .. } = self;
        let (run, id) = (attempt.key.as_str().split_once('/'), call.id.clone());
        let (run_id, _) = run.ok_or(StepError("the key of the call has no id of a run"))?;
        let mut run = Run::new([Message::User(question.into())]).with_id(RunId::from(run_id.to_owned()));
        run.set_agent_name(agent);
        run.head.user = user;
        run.record_response(ChatResponse::new(AssistantMessage::default().with_tool_calls([call])))?;
        let record = run.open_record(&id)?;
        let approved = definition.map(ApprovalScope::Definition);
        record.state = match attempt.is_continued {
            true => CallState::Waiting { attempt: attempt.number, approved },
            false => CallState::Ready { attempts: 0, approved },
        };
        record.notes = notes;
        Ok(run)
    }

    /// Returns the call of a run that [`into_run`](Self::into_run) has created, to create the run again later, or `None` if the call has
    /// an outcome. Decisions about the call are not part of it.
    ///
    /// ```
    /// use tool_core::engine::CallRequest;
    /// use tool_core::ToolCall;
    /// use tool_core::run::Run;
    ///
    /// let request = CallRequest::standalone(ToolCall::new("call_1", "work", "{}"));
    /// let run = request.into_run(None, "Go on")?;
    /// let request = CallRequest::of_run(&run).ok_or("it has ended")?;
    /// assert_eq!(request.into_run(None, "Go on")?.id(), run.id());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn of_run(run: &Run) -> Option<Self> {
        let (call, record) = run.calls_with_records().next().filter(|(_, record)| record.is_open())?;
        let mut attempt = Attempt::new(run.key(&call.id), record.running_attempt().unwrap_or(1));
        attempt.is_continued = record.has_waited();
        Some(run.request_of(call.clone(), attempt))
    }
}
