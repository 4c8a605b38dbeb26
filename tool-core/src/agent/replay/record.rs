//! What the record of a run says in place of the model, the tools and the persons.

use std::collections::BTreeMap;

use crate::model::{AssistantMessage, ChatResponse, FinishReason, Message, ToolDefinition, ToolKind, Usage};
use crate::run::{
    Decision, InnerRun, REJECTED, Run, SAID_INSTEAD, StopReason, UserMessage, Wait, WaitReason,
};
use crate::tool::{
    CallNotes, DecisionKind, DecisionRecord, Tool, ToolContext, ToolError, ToolErrorKind, ToolExecution,
    ToolFuture,
};

/// The record of one run.
#[derive(Clone, Copy)]
pub(in crate::agent) struct Record<'r>(pub(in crate::agent) &'r Run);

/// What the record has in place of a reply of the model.
pub(in crate::agent) enum RecordedReply {
    Response(Box<ChatResponse>),
    /// The run stopped before it had this reply.
    Stopped(StopReason),
    /// Nothing has happened there yet.
    Unknown,
}

/// What the record has in place of an execution.
pub(in crate::agent) enum RecordedOutcome {
    Finished(Box<ToolExecution>),
    /// The call waits for what is in its notes.
    Waits(Box<CallNotes>),
    Unknown,
}

impl<'r> Record<'r> {
    /// Returns the reply of this number, from 0.
    pub(in crate::agent) fn reply(self, number: u32) -> RecordedReply {
        let mut replies = self.replies().skip(number as usize);
        let Some(reply) = replies.next() else {
            return self.end().cloned().map_or(RecordedReply::Unknown, RecordedReply::Stopped);
        };
        let is_last = replies.next().is_none();
        // The layer that ended the run has seen another text, which is not kept.
        if let Some(reason @ StopReason::Blocked { .. }) = self.end().filter(|_| is_last)
            && reply.text == REJECTED
        {
            return RecordedReply::Stopped(reason.clone());
        }
        let mut message = reply.clone();
        for call in &mut message.tool_calls {
            if let Some(original) = self.0.original_arguments(&call.id) {
                original.clone_into(&mut call.arguments);
            }
        }
        let reason = match (self.end(), self.0.finish_reason()) {
            (Some(StopReason::Truncated(reason)), _) | (_, Some(reason)) if is_last => reason.clone(),
            _ if message.tool_calls.is_empty() => FinishReason::Stop,
            _ => FinishReason::ToolCalls,
        };
        // What each reply has used is not known, so the last one has used all.
        let usage = if is_last { self.0.used_by_replies() } else { Usage::default() };
        let response = ChatResponse::new(message).with_usage(usage).with_finish_reason(reason);
        RecordedReply::Response(Box::new(response))
    }

    /// Returns what is known of the tools that the model was offered or called, also in runs inside: whether calls were approved, or executed by
    /// the caller.
    pub(in crate::agent) fn tools(self) -> Vec<RecordedTool> {
        let mut tools: BTreeMap<String, Vec<DecisionKind>> = BTreeMap::new();
        self.add_tools(&mut tools);
        tools.into_iter().map(|(name, decisions)| RecordedTool::new(name, &decisions)).collect()
    }

    fn add_tools(self, tools: &mut BTreeMap<String, Vec<DecisionKind>>) {
        for name in self.0.offered().keys() {
            tools.entry(name.clone()).or_default();
        }
        for execution in self.0.tool_executions().iter().filter(|execution| execution.was_executed()) {
            let decisions = execution.decisions().iter().map(|decision| decision.kind);
            tools.entry(execution.call().name.clone()).or_default().extend(decisions);
        }
        self.0.inner_runs().for_each(|inner| Record(inner.run()).add_tools(tools));
    }

    fn replies(self) -> impl Iterator<Item = &'r AssistantMessage> {
        self.0.new_messages().iter().filter_map(Message::as_assistant)
    }

    /// Returns why the run stopped.
    pub(in crate::agent) fn end(self) -> Option<&'r StopReason> {
        self.0.why_it_stops()
    }

    /// Returns what has become of a call, before layers replaced it.
    pub(in crate::agent) fn outcome(self, call_id: &str) -> RecordedOutcome {
        let undo = self.0.undo_executions().iter().find(|undo| undo.call().id == call_id);
        match undo.or_else(|| self.0.finished_call(call_id)) {
            Some(execution) => RecordedOutcome::Finished(Box::new(execution.clone())),
            None => match self.0.notes_of_waiting(call_id) {
                Some(notes) => RecordedOutcome::Waits(Box::new(notes.clone())),
                None => RecordedOutcome::Unknown,
            },
        }
    }

    /// Returns the run of an agent that a call asked, of this number among those of the call.
    pub(in crate::agent) fn inside(self, call_id: &str, number: usize) -> Option<&'r Run> {
        self.0.inner_runs().filter(|inner| inner.call_id() == call_id).nth(number).map(InnerRun::run)
    }

    /// Returns the runs to one of which the call with this path can belong, and the id of the call.
    fn runs_of(self, path: &str) -> (Vec<&'r Run>, &str) {
        let (agents, call_id) = path.rsplit_once('/').unwrap_or(("", path));
        let mut runs = vec![self.0];
        for outer in agents.split('/').filter(|id| !id.is_empty()) {
            let inside = runs.iter().flat_map(|run| run.inner_runs());
            runs = inside.filter(|inner| inner.call_id() == outer).map(InnerRun::run).collect();
        }
        (runs, call_id)
    }

    /// Returns `true` if the call with this path was executed.
    pub(in crate::agent) fn has_executed(self, path: &str) -> bool {
        let (runs, call_id) = self.runs_of(path);
        runs.into_iter().filter_map(|run| run.finished_call(call_id)).any(ToolExecution::was_executed)
    }

    /// Returns the decision of this number about what a call waits for.
    pub(in crate::agent) fn decision(self, wait: &Wait, number: usize) -> Option<Decision> {
        let (runs, call_id) = self.runs_of(&wait.path);
        let run = runs.into_iter().find(|run| run.decisions_about(call_id).next().is_some())?;
        let fits = |record: &&DecisionRecord| match wait.reason {
            WaitReason::Approval(_) => matches!(
                record.kind,
                DecisionKind::Approved | DecisionKind::ApprovedWithChanges | DecisionKind::Denied
            ),
            WaitReason::CallerResult(_) => record.kind == DecisionKind::Supplied,
            _ => false,
        };
        let record = run.decisions_about(call_id).filter(fits).nth(number)?;
        // The message of the user follows, and denies it.
        if is_said_instead(record) {
            return None;
        }
        let decision = match record.kind {
            DecisionKind::Approved => Decision::approve(),
            DecisionKind::ApprovedWithChanges => Decision::approve_with(run.current_arguments(call_id)?),
            DecisionKind::Denied => record.why.as_ref().map_or_else(Decision::decline, Decision::deny),
            _ => {
                let outcome = run.finished_call(call_id)?.original_outcome();
                Decision::result(outcome.cloned().map_err(Clone::clone))
            }
        };
        Some(record.by.iter().fold(decision, |decision, by| decision.by(by)))
    }

    /// Returns what a user has said to the run at this position of the messages that the run added.
    pub(in crate::agent) fn said_at(self, position: usize) -> Option<UserMessage> {
        match self.0.new_messages().get(position)? {
            Message::User(content) if !self.0.is_rejection(position) => {
                let message = UserMessage::new(content.clone());
                Some(self.0.sender_of(position).into_iter().fold(message, UserMessage::by))
            }
            _ => None,
        }
    }

    /// Returns why an answer was rejected by the message at this position of those that the run added.
    pub(in crate::agent) fn rejection_at(self, position: usize) -> Option<String> {
        let message = self.0.new_messages().get(position)?;
        self.0.is_rejection(position).then(|| message.text().into_owned())
    }
}

/// A tool of which only the record of a run is known.
pub(in crate::agent) struct RecordedTool(ToolDefinition);

impl RecordedTool {
    fn new(name: String, decisions: &[DecisionKind]) -> Self {
        let was = |kinds: &[DecisionKind]| decisions.iter().any(|kind| kinds.contains(kind));
        let approvals = [DecisionKind::Approved, DecisionKind::ApprovedWithChanges, DecisionKind::Denied];
        let definition = ToolDefinition::new(name);
        let mut policy = definition.policy().clone();
        policy.needs_approval = was(&approvals);
        let kind = if was(&[DecisionKind::Supplied]) { ToolKind::Caller } else { definition.kind() };
        Self(definition.with_policy(policy).with_kind(kind))
    }
}

impl Tool for RecordedTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Err(not_recorded()))
    }
}

/// The end of the text of the error of a call that is executed by the present program, and was not in its record.
const NOT_RECORDED: &str = "the record has no execution of it";

/// Returns `true` if a user did not decide, but sent a message.
#[must_use]
pub fn is_said_instead(decision: &DecisionRecord) -> bool {
    decision.why.as_deref() == Some(SAID_INSTEAD)
}

/// Returns `true` if the record does not have the outcome of a call that would be executed now.
#[must_use]
pub fn is_unrecorded(execution: &ToolExecution) -> bool {
    let error = execution.error().filter(|error| error.kind() == ToolErrorKind::NotExecuted);
    error.is_some_and(|error| error.to_string().ends_with(NOT_RECORDED))
}

/// Returns the error of a call that the record does not have as executed.
pub(in crate::agent) fn not_recorded() -> ToolError {
    ToolError::not_executed(NOT_RECORDED)
}
