//! What drivers need that execute calls in other processes.

use super::call_state::{ApprovalScope, CallState};
use super::id::RunId;
use super::state::CallRecord;
use crate::content::Content;
use crate::model::{AssistantMessage, ChatResponse, ConversationId, Message, ToolCall};
use crate::run::{Run, StepError};
use crate::tool::{Attempt, CallRequest};

#[doc(hidden)] // For the crates of this project.
impl Run {
    /// Records the start of a call, like [`begin_call`](Self::begin_call), and returns all that another process needs to execute
    /// it, for example with [`Agent::execute_request`](crate::Agent::execute_request).
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

    /// Creates the run, of an agent with this name, that goes on with a call which belonged to no run so far, such as one received over another
    /// protocol. Its id is that in the key of the call, which stays the same, as does what the call has recorded and waits for. A call with a
    /// [definition](CallRequest::definition) is approved for it.
    ///
    /// ```
    /// use tool_core::__internals::CallRequest;
    /// use tool_core::ToolCall;
    /// use tool_core::run::Run;
    ///
    /// let request = CallRequest::standalone(ToolCall::new("call_1", "work", "{}"));
    /// let key = request.attempt.key.clone();
    /// let mut run = Run::with_call(Some("clerk"), "Go on", request)?;
    /// assert_eq!(run.begin_call("call_1")?.key, key);
    /// # Ok::<_, tool_core::run::StepError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the key of the call has no id of a run.
    pub fn with_call(
        agent: Option<&str>,
        question: impl Into<Content>,
        request: CallRequest,
    ) -> Result<Self, StepError> {
        let CallRequest { call, attempt, user, notes, definition, .. } = request;
        let (run, id) = (attempt.key.as_str().split_once('/'), call.id.clone());
        let (run_id, _) = run.ok_or(StepError("the key of the call has no id of a run"))?;
        let mut run = Self::new([Message::User(question.into())]).with_id(RunId::from(run_id.to_owned()));
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

    /// Returns the call of a run that [`with_call`](Self::with_call) has created, to create the run again later, or `None` if the call has
    /// an outcome. Decisions about the call are not part of it.
    ///
    /// ```
    /// use tool_core::__internals::CallRequest;
    /// use tool_core::ToolCall;
    /// use tool_core::run::Run;
    ///
    /// let request = CallRequest::standalone(ToolCall::new("call_1", "work", "{}"));
    /// let run = Run::with_call(None, "Go on", request)?;
    /// let (id, request) = (run.id().clone(), run.into_call().ok_or("it has ended")?);
    /// assert_eq!(Run::with_call(None, "Go on", request)?.id(), &id);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_call(self) -> Option<CallRequest> {
        let (call, record) = self.calls_with_records().next().filter(|(_, record)| record.is_open())?;
        let mut attempt = Attempt::new(self.key(&call.id), record.running_attempt().unwrap_or(1));
        attempt.is_continued = record.has_waited();
        Some(self.request_of(call.clone(), attempt))
    }
}
