//! Calls that a person has to approve.

use super::state::Stage;
use super::turn::Leave;
use crate::content::Content;
use crate::model::{Message, ToolCall};
use crate::run::{Run, StepError};
use crate::tool::{ToolError, ToolExecution};

/// What a person says to a call that waits for it.
///
/// ```
/// use tool_core::Approval;
///
/// let approval = Approval::deny("not on a Sunday");
/// assert_eq!(approval, Approval::Deny(Some("not on a Sunday".into())));
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Approval {
    /// The call is made.
    Approve,
    /// The call is made with these arguments, a JSON object, in place of the model's.
    ApproveWith(String),
    /// The call is not made; the model reads why, if a reason is given.
    Deny(Option<String>),
    /// Nothing is decided yet: the call goes on waiting, and an [`Approver`](crate::Approver) that says so leaves it to who
    /// [keeps the run](crate::RunError::is_approval_needed).
    Defer,
}

impl Approval {
    /// The call is not made, and the model reads this reason.
    #[must_use]
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny(Some(reason.into()))
    }
}

/// Leaves arguments and reasons out.
impl std::fmt::Debug for Approval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Approve => "Approve",
            Self::ApproveWith(_) => "ApproveWith(…)",
            Self::Deny(_) => "Deny(…)",
            Self::Defer => "Defer",
        })
    }
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

impl Run {
    /// The calls that wait for a person, in their order.
    pub fn waiting(&self) -> impl Iterator<Item = &ToolCall> {
        let standings = match &self.stage {
            Stage::Calling(turn) => &*turn.calls,
            _ => &[],
        };
        self.calls().iter().zip(standings).filter(|(_, one)| one.is_waiting()).map(|(call, _)| call)
    }

    /// Nothing can be done before a person has decided.
    pub(crate) fn only_waits(&self) -> bool {
        let Stage::Calling(turn) = &self.stage else { return false };
        turn.calls.iter().all(|one| !one.is_ready()) && turn.calls.iter().any(|one| one.is_waiting())
    }

    /// The calls that have no outcome yet, in their order.
    pub(crate) fn open_calls(&self) -> Vec<ToolCall> {
        let Stage::Calling(turn) = &self.stage else { return Vec::new() };
        let open = self.calls().iter().zip(&turn.calls).filter(|(_, one)| one.is_open());
        open.map(|(call, _)| call.clone()).collect()
    }

    /// Lets an open call wait for a person, whatever its tool says. One that undoes another waits for nobody.
    ///
    /// # Errors
    ///
    /// There is no such open call, or it was begun.
    pub fn require_approval(&mut self, call_id: &str) -> Result<(), StepError> {
        if self.is_undoing() {
            return Err(StepError("to let a call wait that undoes another"));
        }
        let standing = self.standing_of(call_id)?;
        // A denial would say that it was not made.
        if standing.is_begun {
            return Err(StepError("to let a call wait that was begun"));
        }
        if standing.leave == Leave::NotNeeded {
            standing.leave = Leave::Waiting;
        }
        Ok(())
    }

    /// Records what a person says to a call that waits for it.
    ///
    /// ```
    /// use tool_core::{Approval, AssistantMessage, ChatResponse, Message, Run, Step, ToolCall};
    /// use tool_core::{ToolDefinition, ToolDefinitions, ToolPolicy};
    ///
    /// let mut policy = ToolPolicy::default();
    /// policy.needs_approval = true;
    /// let delete = ToolDefinition::new("delete").with_description("Deletes all").with_policy(policy);
    /// let tools = ToolDefinitions::from_iter([delete]);
    ///
    /// let mut run = Run::new([Message::user("Delete all")]);
    /// let call = ToolCall::new("call_1", "delete", "{}");
    /// run.record_response(ChatResponse::new(AssistantMessage::default().with_tool_calls([call])))?;
    /// assert!(matches!(run.next(&tools), Step::NeedsApproval(calls) if calls.len() == 1));
    ///
    /// // A week later, in another process:
    /// let mut run: Run = serde_json::from_str(&serde_json::to_string(&run)?)?;
    /// run.resolve_approval("call_1", Approval::deny("not on a Sunday"))?;
    /// assert_eq!(run.messages().last().unwrap().text(), "the call was denied: not on a Sunday");
    /// assert!(matches!(run.next(&tools), Step::CallModel(_)));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// There is no such call, it does not wait, or the changed arguments are no JSON object.
    pub fn resolve_approval(&mut self, call_id: &str, approval: Approval) -> Result<(), StepError> {
        let position = self.position_of(call_id);
        let standing = self.standing_of(call_id)?;
        if matches!(&approval, Approval::ApproveWith(arguments) if !is_object(arguments)) {
            return Err(StepError("changed arguments that are no JSON object"));
        }
        if !standing.is_waiting() {
            return Err(StepError("to decide on a call that does not wait for approval"));
        }
        if approval == Approval::Defer {
            return Ok(());
        }
        standing.leave = Leave::Given;
        let Some(Message::Assistant(message)) = self.messages.last_mut() else { return Ok(()) };
        let Some(call) = position.and_then(|position| message.tool_calls.get_mut(position)) else {
            return Ok(());
        };
        match approval {
            Approval::Approve | Approval::Defer => {}
            Approval::ApproveWith(arguments) => {
                // What the model reads later is what was done.
                let asked = std::mem::replace(&mut call.arguments, arguments);
                self.standing_of(call_id)?.asked = Some(asked);
            }
            Approval::Deny(reason) => {
                let denied = ToolExecution::new(call.clone(), Err(ToolError::denied(reason.as_deref())));
                let (denied, ending) = self.settings.on_error.judge(denied);
                self.standing_of(call_id)?.outcome = Some(denied);
                match ending {
                    Some(ending) => self.end(ending),
                    None => self.close_turn_if_over(),
                }
            }
        }
        Ok(())
    }

    /// Says the same to all calls that wait.
    pub fn resolve_all_approvals(&mut self, approval: &Approval) {
        let waiting: Vec<_> = self.waiting().map(|call| call.id.clone()).collect();
        for id in waiting {
            // They wait, as was just asked.
            let _ = self.resolve_approval(&id, approval.clone());
        }
    }

    /// Adds what the user says while the run is under way. Calls that wait for a person are thereby denied; those
    /// that are open otherwise are made, and the message comes behind their results.
    ///
    /// # Errors
    ///
    /// The run is over: what the user says now is another question.
    pub fn push_user_message(&mut self, message: impl Into<Content>) -> Result<(), StepError> {
        let message = message.into();
        match &mut self.stage {
            Stage::Asking => self.messages.push(Message::User(message)),
            Stage::Calling(turn) => {
                turn.said.push(message);
                self.resolve_all_approvals(&Approval::deny("the user said something else"));
            }
            _ => return Err(StepError("a message of the user, after its end")),
        }
        Ok(())
    }
}
