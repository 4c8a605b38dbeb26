//! One call of a run: the states that it can have, and the transitions between them.
//!
//! ```text
//!              ┌────────────── an attempt failed and is retried ─────────────┐
//!              ▼                                                             │
//!   ┌────►  Ready  ──────────────────────── begin ───────────────────►  Running  ◄── all are resolved ──┐
//!   │          │                                                             │                          │
//!   │          │                                                             ├─ it asks or parks ─►  Waiting
//! approved     ├─ its policy or a predicate requires it ─► AwaitingApproval  │
//!   │          │                                           │      │          │
//!   └──────────┼───────────────────────────────────────────┘    denied       │
//!              │                                                  │          │
//!              ├─ the caller executes it ─► AwaitingResult       │          │
//!              │                                │                 │          │
//!              └────────────────────────────────┴─────────────────┴──────────┴─►  Finished
//! ```
//!
//! A step that finds a call `Running` counts its attempt as interrupted: the process ended, or its driver dropped it.
//! The rule of retries itself is [`ToolPolicy::next_attempt`].
//!
//! A call whose process dies: its start was saved before it was executed, by the driver of an agent with a run store or by a caller that
//! drives the run by itself. On resume, the call is executed again under the same idempotency key and with the next attempt number. A call
//! of an `at_most_once` tool is not: the model reads that its outcome is unknown (`apply_policy`). Calls with a stored result are never
//! repeated.

use std::fmt;

use super::call_state::{ApprovalScope, CallState};
use super::state::{CallRecord, InnerRun, Mark};
use super::step_error::StepError;
use crate::model::{ReturnDirect, ToolCall, ToolDefinition, ToolDefinitions, ToolKind, ToolPolicy};
use crate::tool::{CallNotes, DecisionKind, OutcomeOrigin, ToolError, ToolExecution};

/// Omits arguments.
impl fmt::Debug for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRecord")
            .field("policy", &self.policy)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl CallRecord {
    pub(super) fn outcome(&self) -> Option<&ToolExecution> {
        match &self.state {
            CallState::Finished(execution) => Some(execution),
            _ => None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, CallState::Finished(_))
    }

    /// Returns `true` if the call can be executed now. A call of an agent is not ready while that agent's run waits.
    pub(super) fn is_ready(&self) -> bool {
        match self.state {
            CallState::Ready { .. } | CallState::Running { .. } => {
                !self.inner().is_some_and(|inner| inner.run().is_blocked())
            }
            CallState::Waiting { .. } => !self.notes().is_some_and(CallNotes::is_waiting),
            _ => false,
        }
    }

    /// Returns `true` if the call waits, and only for a point in time.
    pub(super) fn is_parked(&self) -> bool {
        match self.state {
            CallState::Waiting { .. } => {
                self.notes().is_some_and(|notes| notes.parked().is_some() && notes.open().next().is_none())
            }
            CallState::Running { .. } => self.inner().is_some_and(|inner| inner.run().is_parked()),
            _ => false,
        }
    }

    pub(super) fn inner(&self) -> Option<&InnerRun> {
        self.inner.as_deref()
    }

    pub(super) fn inner_mut(&mut self) -> Option<&mut InnerRun> {
        self.inner.as_deref_mut()
    }

    pub(super) fn notes(&self) -> Option<&CallNotes> {
        self.notes.as_deref()
    }

    /// Returns the notes of a call that waits for something in them.
    pub(super) fn waiting_notes(&mut self) -> Option<&mut CallNotes> {
        matches!(self.state, CallState::Waiting { .. }).then_some(self.notes.as_deref_mut())?
    }

    /// Returns `true` if the call waits, or its wait is over.
    pub(super) fn has_waited(&self) -> bool {
        matches!(self.state, CallState::Waiting { .. })
    }

    /// Returns the hash of the definition for which the call is approved.
    pub(super) fn approved_definition(&self) -> Option<&str> {
        match &self.state {
            CallState::Ready { approved: Some(ApprovalScope::Definition(hash)), .. }
            | CallState::Running { approved: Some(ApprovalScope::Definition(hash)), .. }
            | CallState::Waiting { approved: Some(ApprovalScope::Definition(hash)), .. } => Some(hash),
            _ => None,
        }
    }

    /// Returns the run of the agent that the call asked, if the call is open.
    pub(super) fn open_inner(&self) -> Option<&InnerRun> {
        self.inner().filter(|_| self.is_open())
    }

    pub(super) fn attempts(&self) -> u32 {
        match self.state {
            CallState::Ready { attempts, .. } => attempts,
            CallState::Running { attempt, .. } | CallState::Waiting { attempt, .. } => attempt,
            _ => 0,
        }
    }

    /// Returns `true` if the call is open and was started at least once, so that it may have had its effect.
    pub(super) fn has_begun(&self) -> bool {
        self.is_running() || self.attempts() > 0
    }

    /// Returns `true` if approval can still be required of the call.
    pub(super) fn can_require_approval(&self) -> bool {
        matches!(self.state, CallState::Ready { attempts: 0, approved: None })
    }

    pub(super) fn awaits_approval(&self) -> bool {
        matches!(self.state, CallState::AwaitingApproval(_))
    }

    pub(super) fn awaits_result(&self) -> bool {
        matches!(self.state, CallState::AwaitingResult)
    }

    /// Returns `true` if the present driver has started the call, and it has no outcome yet.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.mark, Some(Mark::Begun { .. } | Mark::Polled { .. } | Mark::Executing))
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, CallState::Running { .. })
    }

    /// Returns `true` if no attempt can have had its effect: the call waits, and has recorded nothing.
    pub(super) fn waits_without_effect(&self) -> bool {
        self.has_waited() && !self.notes().is_some_and(CallNotes::has_effects)
    }

    /// Makes the call await approval, unless it was started, was approved or awaits something already.
    pub(super) fn require_approval(&mut self) {
        if self.can_require_approval() {
            self.state = CallState::AwaitingApproval(ApprovalScope::default());
        }
    }

    /// Approves a call that awaits approval.
    pub(super) fn approve(&mut self) {
        if let CallState::AwaitingApproval(scope) = &mut self.state {
            self.state = CallState::Ready { attempts: 0, approved: Some(std::mem::take(scope)) };
            self.since = None;
        }
    }

    /// Returns `true` if the call was approved with other arguments than the model's, and was not started.
    pub(super) fn is_approved_with_changes(&self) -> bool {
        let last = self.history.decisions.last().map(|decision| decision.kind);
        last == Some(DecisionKind::ApprovedWithChanges)
            && matches!(self.state, CallState::Ready { attempts: 0, approved: Some(_) })
    }

    /// Makes a call that was approved with other arguments await approval again. Returns the arguments of the model.
    pub(super) fn refuse_approval(&mut self) -> Option<String> {
        if let CallState::Ready { approved: Some(scope), .. } = &mut self.state {
            self.state = CallState::AwaitingApproval(std::mem::take(scope));
        }
        self.history.original_arguments.take()
    }

    pub(super) fn return_direct(&self) -> ReturnDirect {
        self.policy.as_ref().map_or(ReturnDirect::Never, |policy| policy.return_direct)
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.exclusive)
    }

    pub(super) fn is_at_most_once(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.at_most_once)
    }

    /// Starts an attempt, or continues one that has waited.
    pub(super) fn begin(&mut self) -> Result<(), StepError> {
        let is_at_most_once = self.is_at_most_once();
        let (earlier, approved) = match &mut self.state {
            // The attempt continues: the run of the agent knows itself which of its calls were interrupted.
            CallState::Running { .. } if self.inner.is_some() => {
                self.mark = Some(Mark::Begun { is_continued: true });
                return Ok(());
            }
            CallState::Waiting { attempt, approved } => {
                if self.notes.as_ref().is_some_and(|notes| notes.is_waiting()) {
                    return Err(StepError("the call waits and cannot be continued"));
                }
                let (attempt, approved) = (*attempt, approved.take());
                self.state = CallState::Running { attempt, approved };
                self.mark = Some(Mark::Begun { is_continued: true });
                return Ok(());
            }
            CallState::Ready { attempts, approved } => (*attempts, approved.take()),
            CallState::Running { .. } if is_at_most_once => {
                return Err(StepError("the call was started before and its tool is `at_most_once`"));
            }
            CallState::Running { attempt, approved } => {
                // The interrupted attempt may have had its effect, whatever the outcome of this one.
                self.history.is_uncertain = true;
                (*attempt, approved.take())
            }
            CallState::AwaitingApproval(_) => {
                return Err(StepError("the call awaits approval and cannot be started"));
            }
            CallState::AwaitingResult => {
                return Err(StepError("the tool is external: the caller executes the call"));
            }
            CallState::Finished(_) => return Err(StepError("the call already has a result")),
        };
        let attempt = earlier.saturating_add(1);
        self.state = CallState::Running { attempt, approved };
        self.mark = Some(Mark::Begun { is_continued: false });
        Ok(())
    }

    /// Takes back the start of an attempt that the engine has returned and that the world has not executed.
    pub(super) fn take_back(&mut self) {
        let Some(Mark::Polled { is_continued }) = self.mark else { return };
        self.mark = None;
        if let CallState::Running { attempt, approved } = &mut self.state
            && self.inner.is_none()
        {
            let (attempt, approved) = (*attempt, approved.take());
            self.state = match is_continued {
                true => CallState::Waiting { attempt, approved },
                false => CallState::Ready { attempts: attempt.saturating_sub(1), approved },
            };
        }
    }

    /// Ends the running attempt because it waits. It continues once what is in these notes is resolved.
    pub(super) fn wait(&mut self, notes: CallNotes) -> Result<(), StepError> {
        let CallState::Running { attempt, approved } = &mut self.state else {
            return Err(StepError("the call is not running"));
        };
        self.state = CallState::Waiting { attempt: *attempt, approved: approved.take() };
        self.mark = None;
        self.notes = Some(Box::new(notes));
        // Layers see it again before it continues.
        self.judged_after = None;
        Ok(())
    }

    /// Returns the number of the running attempt, even if its start was not recorded; `None` if the run does not execute the
    /// call.
    pub(super) fn running_attempt(&self) -> Option<u32> {
        match self.state {
            CallState::Ready { attempts, .. } => Some(attempts.saturating_add(1)),
            CallState::Running { attempt, .. } | CallState::Waiting { attempt, .. } => Some(attempt),
            _ => None,
        }
    }

    /// Ends the running attempt: the call is ready again, until it is [finished](Self::finish). A result of the caller gets its origin.
    pub(super) fn end_attempt(&mut self, execution: &mut ToolExecution) -> Result<(), StepError> {
        match &mut self.state {
            CallState::AwaitingApproval(_) => {
                return Err(StepError("the call awaits approval and cannot have a result"));
            }
            CallState::AwaitingResult => execution.history.origin = OutcomeOrigin::External,
            CallState::Finished(_) => return Err(StepError("the call already has a result")),
            CallState::Ready { attempts, .. } => *attempts = attempts.saturating_add(1),
            CallState::Running { attempt, approved } | CallState::Waiting { attempt, approved } => {
                self.state = CallState::Ready { attempts: *attempt, approved: approved.take() };
            }
        }
        self.mark = None;
        Ok(())
    }

    /// Moves what the run knows about an open call into its execution.
    pub(super) fn complete(&mut self, mut execution: ToolExecution) -> ToolExecution {
        if let Some(policy) = &self.policy {
            self.history.is_pure = policy.pure || self.kind == Some(ToolKind::Handoff);
            self.history.is_at_most_once = policy.at_most_once;
        }
        execution.history = execution.history.preceded_by(std::mem::take(&mut self.history));
        execution.history.attempts = Some(self.attempts()).filter(|attempts| *attempts > 1);
        execution
    }

    /// Returns the record of a call that was started and has no outcome, if the turn ends now. An outcome that layers have not judged, if they
    /// judge outcomes, is known only to what undoes the call.
    pub(super) fn execution_if_stopped(
        &self,
        call: &ToolCall,
        why_not_executed: &str,
        are_judged: bool,
    ) -> Option<ToolExecution> {
        if let Some(unjudged) = &self.to_judge {
            let unjudged = (**unjudged).clone();
            return Some(match are_judged {
                true => unjudged.with_outcome(Err(ToolError::interrupted())),
                false => unjudged,
            });
        }
        let error = match self.has_begun() {
            false => return None,
            true if self.waits_without_effect() => ToolError::not_executed(why_not_executed),
            true => ToolError::interrupted(),
        };
        Some(ToolExecution::new(call.clone(), Err(error)))
    }

    /// Applies the policy of the tool as it is now, in addition to the policy under which the call was stored.
    pub(super) fn restrict(&mut self, policy: &ToolPolicy) {
        self.policy =
            Some(self.policy.as_ref().map_or_else(|| policy.clone(), |stored| stored.stricter(policy)));
    }

    /// Returns the error of a call that must not be executed again: it was interrupted and its tool is `at_most_once`, or it
    /// has no attempts left, because fewer are allowed than when it was stored.
    pub(super) fn forbidden_retry(&self) -> Option<ToolError> {
        let policy = self.policy.as_ref().unwrap_or(&ToolPolicy::DEFAULT);
        match self.state {
            CallState::Running { .. } if policy.at_most_once && self.inner().is_none() => {
                Some(ToolError::outcome_unknown())
            }
            CallState::Ready { attempts, .. } if attempts > 0 && attempts >= policy.attempts => {
                Some(ToolError::interrupted())
            }
            _ => None,
        }
    }

    /// Applies the policy of the tool to an open call. Returns the outcome if the call needs no execution.
    pub(super) fn apply_policy(
        &mut self,
        call: &ToolCall,
        tools: &ToolDefinitions,
        finished: &[ToolExecution],
    ) -> Option<ToolExecution> {
        let what_changes = |record: &Self| {
            let (scope, state) = (record.approval_scope().cloned(), std::mem::discriminant(&record.state));
            (record.policy.clone(), record.kind, record.history.undo.clone(), scope, state)
        };
        let before = what_changes(self);
        let outcome = self.apply_current_policy(call, tools, finished);
        self.is_touched |= what_changes(self) != before;
        outcome
    }

    fn approval_scope(&self) -> Option<&ApprovalScope> {
        match &self.state {
            CallState::AwaitingApproval(scope) => Some(scope),
            CallState::Ready { approved, .. }
            | CallState::Running { approved, .. }
            | CallState::Waiting { approved, .. } => approved.as_ref(),
            CallState::AwaitingResult | CallState::Finished(_) => None,
        }
    }

    fn apply_current_policy(
        &mut self,
        call: &ToolCall,
        tools: &ToolDefinitions,
        finished: &[ToolExecution],
    ) -> Option<ToolExecution> {
        let stored = self.policy.clone();
        let definition = tools.iter().find(|definition| definition.name() == call.name);
        if let Some(definition) = definition {
            if *self.kind.get_or_insert(definition.kind()) != definition.kind() {
                return Some(ToolExecution::new(call.clone(), Err(self.replaced_tool_error())));
            }
            self.restrict(definition.policy());
            let undo = definition.undo().map(str::to_owned);
            self.history.undo = undo.or(self.history.undo.take());
        }
        let policy = self.policy.as_ref().unwrap_or(&ToolPolicy::DEFAULT);
        let (is_pure, needs_approval) = (policy.pure, policy.needs_approval);
        let mut same = finished.iter().rev().filter(|one| one.was_executed_as(call));
        if let Some(output) = is_pure.then(|| same.find_map(ToolExecution::output)).flatten() {
            return Some(ToolExecution::new(call.clone(), Ok(output.clone())).into_reused());
        }
        if needs_approval {
            self.require_approval();
        }
        if let Some(error) =
            self.forbidden_retry().or_else(|| self.bind_approval(definition, stored.as_ref()))
        {
            return Some(ToolExecution::new(call.clone(), Err(error)));
        }
        let is_of_caller = self.kind == Some(ToolKind::Caller) || self.is_left_to_caller;
        if is_of_caller && self.is_ready() && !self.has_begun() {
            self.state = CallState::AwaitingResult;
        }
        None
    }

    /// Returns the error of a call whose name another kind of tool has now.
    fn replaced_tool_error(&self) -> ToolError {
        if self.has_begun() && !self.waits_without_effect() {
            return ToolError::interrupted();
        }
        ToolError::not_executed("another kind of tool has its name now")
    }

    /// Binds an approval to the current definition. If it was given for another one, the call awaits approval again; if it was
    /// started already, it counts as interrupted, and the error is returned.
    fn bind_approval(
        &mut self,
        definition: Option<&ToolDefinition>,
        stored: Option<&ToolPolicy>,
    ) -> Option<ToolError> {
        let has_begun = self.has_begun();
        let (approved, is_granted) = match &mut self.state {
            CallState::AwaitingApproval(scope) => (scope, false),
            CallState::Ready { approved: Some(approved), .. }
            | CallState::Running { approved: Some(approved), .. }
            | CallState::Waiting { approved: Some(approved), .. } => (approved, true),
            _ => return None,
        };
        let Some(definition) = definition else {
            // An approval that was asked for without a definition applies to none that appears later.
            if *approved == ApprovalScope::Unbound {
                *approved = ApprovalScope::NoTool;
            }
            return None;
        };
        let current = ApprovalScope::Definition(definition.hash());
        let applies = match &*approved {
            ApprovalScope::Unbound => stored.is_none_or(|stored| stored == definition.policy()),
            scope => *scope == current,
        };
        *approved = current;
        if applies || !is_granted {
            return None;
        }
        let approved = std::mem::take(approved);
        if has_begun {
            return Some(match self.waits_without_effect() {
                true => ToolError::not_executed("its tool has changed since the call began"),
                false => ToolError::interrupted(),
            });
        }
        self.state = CallState::AwaitingApproval(approved);
        None
    }
}
