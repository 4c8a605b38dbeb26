//! Waits of a run, and the decisions that end them.
//!
//! A decision about a call that waited stays in the head of the run until a driver has reported it (`Event::CallDecided`), because it can
//! be made where nobody drives the run, and an audit must not miss it. A driver that dies before the next save reports it again.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::approval::Approval;
use super::approve::is_object;
use super::call_state::{ApprovalScope, CallState};
use super::resolve_error::{ResolveError, ResolveErrorKind};
use super::state::{CallRecord, Fact, Run, Stage};
use super::step_error::StepError;
use super::wait::{Author, Decision, Verdict, Wait, WaitReason};
use crate::model::ToolCall;
use crate::tool::{
    CallDecision, CallNotes, DecisionKind, DecisionRecord, MAX_TEXT, QuestionReply, Timestamp, ToolExecution,
    WaitId,
};

/// Returns the digest of what a wait of a call shows. The owner is the run, with the provider that asks if one does.
pub(super) fn wait_id(owner: &impl Serialize, call_id: &str, shown: &impl Serialize) -> WaitId {
    // These can always be serialized.
    let shown = serde_json::to_string(&(owner, call_id, shown)).unwrap_or_default();
    let digest = Sha256::digest(shown);
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

fn wait(
    call: &ToolCall,
    id: WaitId,
    reason: WaitReason,
    since: Timestamp,
    deadline: Option<Timestamp>,
) -> Wait {
    Wait { id, path: call.id.clone(), tool: call.name.clone(), reason, since, deadline }
}

/// Returns what the notes of a call wait for.
pub(super) fn waits_of_notes(
    owner: &impl Serialize,
    call: &ToolCall,
    notes: &CallNotes,
    now: Timestamp,
) -> Vec<Wait> {
    let open = notes.open().map(|(question, since)| {
        let deadline = since.and_then(|since| question.deadline(since));
        let id = wait_id(owner, &call.id, question);
        wait(call, id, WaitReason::Answer(question.clone()), since.unwrap_or(now), deadline)
    });
    let parked = notes.parked().into_iter().map(|(until, since)| {
        let id = wait_id(owner, &call.id, &("until", until));
        wait(call, id, WaitReason::Until(until), since.unwrap_or(now), Some(until))
    });
    open.chain(parked).collect()
}

/// Returns the reply that a decision gives to a question, if it fits one.
pub(super) fn reply_to_question(verdict: Verdict, author: &mut Author) -> Option<QuestionReply> {
    Some(match verdict {
        Verdict::Answer(answer) => QuestionReply::Answer(answer),
        Verdict::Declined => QuestionReply::Declined(author.why.clone()),
        Verdict::Approval(Approval::Deny(reason)) => {
            author.why = author.why.take().or_else(|| reason.clone());
            QuestionReply::Declined(reason)
        }
        Verdict::Unavailable => author.why.clone().map_or(QuestionReply::Unavailable, QuestionReply::Refused),
        Verdict::Approval(_) | Verdict::Result { .. } => return None,
    })
}

pub(super) fn wrong_decision(reason: &WaitReason) -> ResolveError {
    let detail = Some(reason.expected_decision().to_owned());
    ResolveError { detail, ..ResolveError::new(ResolveErrorKind::WrongDecision) }
}

impl Wait {
    /// Checks that a decision fits, as [`Run::resolve`] does. Only a driver with the tools knows whether new arguments match them, and
    /// only the tool whether an answer has its type.
    ///
    /// # Errors
    ///
    /// Fails if the decision is of another kind, if an answer is not among the choices, or if new arguments are not a JSON object.
    pub fn check(&self, decision: &Decision) -> Result<(), ResolveError> {
        match (&self.reason, &decision.verdict) {
            (WaitReason::Approval(_), Verdict::Approval(Approval::ApproveWith(arguments)))
                if !is_object(arguments) =>
            {
                Err(ResolveError::invalid_arguments("the new arguments are not a JSON object"))
            }
            (WaitReason::Answer(_), Verdict::Answer(answer)) if answer.len() > MAX_TEXT => {
                Err(ResolveError::invalid("it is too long"))
            }
            (WaitReason::Answer(question), Verdict::Answer(answer)) => {
                question.check(answer).map_err(ResolveError::invalid)
            }
            (WaitReason::Approval(_), Verdict::Approval(_) | Verdict::Declined)
            | (WaitReason::CallerResult(_), Verdict::Result { .. })
            | (
                WaitReason::Answer(_),
                Verdict::Declined | Verdict::Unavailable | Verdict::Approval(Approval::Deny(_)),
            ) => Ok(()),
            (reason, _) => Err(wrong_decision(reason)),
        }
    }
}

impl Wait {
    /// Returns the record of its end, if its deadline has come.
    #[must_use]
    pub fn expired(&self, now: Timestamp) -> Option<DecisionRecord> {
        let is_over = self.question().is_some() && self.deadline.is_some_and(|deadline| deadline <= now);
        is_over.then(|| DecisionRecord::expired(self.id.clone(), now))
    }
}

impl Run {
    /// Returns what the run waits for, in the order of its calls, with what the agents that they asked wait for. Other calls may
    /// still be executed meanwhile.
    #[must_use]
    pub fn waits(&self) -> Vec<Wait> {
        self.waits_at_levels().map(|(wait, _)| wait).collect()
    }

    /// Returns the waits, each with the number of levels further out at which approval is demanded: a decider of this run decides
    /// only about waits of level 0.
    pub(crate) fn waits_at_levels(&self) -> impl Iterator<Item = (Wait, usize)> {
        let of_tools = self.waits_for_tools().into_iter().map(|wait| (wait, 0));
        let of_calls = self.calls_with_records().flat_map(|(call, record)| {
            let own = self.waits_of(call, record).into_iter().map(|wait| (wait, record.approval_level));
            let inner = record.open_inner().map(|inner| inner.run().waits_at_levels().collect::<Vec<_>>());
            let inner = inner.into_iter().flatten();
            let inner = inner.map(|(wait, level)| (wait.inside(&call.id), level.saturating_sub(1)));
            own.chain(inner)
        });
        of_tools.chain(of_calls)
    }

    fn waits_of(&self, call: &ToolCall, record: &CallRecord) -> Vec<Wait> {
        let wait = |id, reason| wait(call, id, reason, record.since.unwrap_or(self.now), None);
        match &record.state {
            CallState::AwaitingApproval(scope) => {
                let id = self.approval_id(call, record, scope);
                vec![wait(id, WaitReason::Approval(call.clone()))]
            }
            CallState::AwaitingResult => {
                let id = wait_id(&self.id, &call.id, &("result", call));
                vec![wait(id, WaitReason::CallerResult(call.clone()))]
            }
            CallState::Waiting { .. } => {
                let notes = record.notes();
                notes.map(|notes| waits_of_notes(&self.id, call, notes, self.now)).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the id of what a call of this run waits for.
    pub(super) fn wait_of(&self, call_id: &str) -> Option<WaitId> {
        let (call, record) = self.requested_call(call_id).zip(self.record(call_id))?;
        self.waits_of(call, record).into_iter().next().map(|wait| wait.id)
    }

    /// The id covers the definition, and the decisions before, so that it changes when approval is asked for again.
    fn approval_id(&self, call: &ToolCall, record: &CallRecord, scope: &ApprovalScope) -> WaitId {
        wait_id(&self.id, &call.id, &("approval", call, scope, record.history.decisions.len()))
    }

    /// Records a decision about something that the run [waits](Self::waits) for. The first decision is final.
    ///
    /// ```
    /// use tool_core::signatures::ResolveErrorKind;
    /// use tool_core::run::Decision;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Deletes the account", needs_approval)]
    /// fn delete() {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("delete", "{}").says("It stays.");
    /// let agent = Agent::builder(model).tools(tools![delete]).build()?;
    /// let mut run = agent.ask("Delete it").await.unwrap_err().into_run();
    /// let wait = run.waits().remove(0).id;
    /// run.resolve(&wait, Decision::deny("never").by("ada"))?;
    /// let error = run.resolve(&wait, Decision::approve().by("bob")).unwrap_err();
    /// assert_eq!(error.kind(), ResolveErrorKind::AlreadyDecided);
    /// assert_eq!(error.decided().unwrap().by.as_deref(), Some("ada"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the run does not wait for this, if it was decided before, or if the decision does not fit.
    pub fn resolve(&mut self, wait: impl Into<WaitId>, decision: Decision) -> Result<(), ResolveError> {
        self.resolve_by_id(&wait.into(), decision)
    }

    fn resolve_by_id(&mut self, wait: &WaitId, decision: Decision) -> Result<(), ResolveError> {
        let mut own = self.calls_with_records().flat_map(|(call, record)| self.waits_of(call, record));
        let found = own.find(|own| own.id == *wait);
        drop(own);
        if let Some(found) = found {
            return self.resolve_own(found, decision);
        }
        if let Some(resolved) = self.resolve_for_tools(wait, &decision) {
            return resolved;
        }
        if let Stage::Calling(turn) = &mut self.stage {
            for inner in
                turn.calls.iter_mut().filter(|record| record.is_open()).filter_map(CallRecord::inner_mut)
            {
                let resolved = inner.run.resolve(wait, decision.clone());
                if !matches!(&resolved, Err(error) if error.kind == ResolveErrorKind::UnknownWait) {
                    return resolved;
                }
            }
        }
        Err(self.not_waiting(wait))
    }

    /// Decides about everything that the run waits for, in the order of [`waits`](Self::waits). What is [deferred](Decision::defer) stays open,
    /// and so does what waits for a point in time, about which nobody is asked.
    ///
    /// ```
    /// use tool_core::run::{Decision, WaitReason};
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Deletes a file", needs_approval)]
    /// fn delete(path: String) {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("delete", r#"{"path": "/"}"#).says("It stays.");
    /// let agent = Agent::builder(model).tools(tools![delete]).build()?;
    /// let mut run = agent.ask("Delete all").await.unwrap_err().into_run();
    /// run.resolve_all(|wait| match &wait.reason {
    ///     WaitReason::Approval(call) if call.name != "delete" => Decision::approve(),
    ///     _ => Decision::deny("nothing is deleted today"),
    /// })?;
    /// assert_eq!(agent.resume(run).await?.new_messages()[2].text(), "the call was denied: nothing is deleted today");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails at the first decision that does not fit. Those before it are recorded.
    pub fn resolve_all(&mut self, mut decide: impl FnMut(&Wait) -> Decision) -> Result<(), ResolveError> {
        for wait in self.waits().iter().filter(|wait| !wait.is_until()) {
            match self.resolve(&wait.id, decide(wait)) {
                // An earlier decision has ended the run.
                Err(error) if error.kind() == ResolveErrorKind::UnknownWait => return Ok(()),
                resolved => resolved?,
            }
        }
        Ok(())
    }

    /// Returns the error of a decision about something that the run does not wait for.
    pub(crate) fn not_waiting(&self, wait: &WaitId) -> ResolveError {
        let decided = self.decision_about(wait).cloned().map(Box::new);
        let kind =
            decided.as_ref().map_or(ResolveErrorKind::UnknownWait, |_| ResolveErrorKind::AlreadyDecided);
        ResolveError { decided, ..ResolveError::new(kind) }
    }

    fn resolve_own(&mut self, wait: Wait, decision: Decision) -> Result<(), ResolveError> {
        if decision.is_deferred() {
            return Ok(());
        }
        wait.check(&decision)?;
        let kind = decision.kind();
        let Decision { verdict, mut author, has_checked_arguments } = decision;
        let reply = match (wait.reason, verdict) {
            (WaitReason::Approval(_), Verdict::Approval(approval)) => {
                let decided = self.decide_approval(&wait.path, approval, author);
                decided.map_err(|StepError(detail)| ResolveError::invalid_arguments(detail))?;
                if let Ok(record) = self.open_record(&wait.path) {
                    record.has_checked_arguments = has_checked_arguments;
                }
                return Ok(());
            }
            (WaitReason::Approval(_), Verdict::Declined) => {
                let denied = Approval::Deny(author.why.clone());
                return Ok(self.decide_approval(&wait.path, denied, author)?);
            }
            (WaitReason::CallerResult(call), Verdict::Result { outcome }) => {
                self.record_decision(&wait.path, wait.id, kind, author);
                return Ok(self.record_result(ToolExecution::new(call, outcome))?);
            }
            (reason, verdict) => match (reason, reply_to_question(verdict, &mut author)) {
                (WaitReason::Answer(question), Some(reply)) => (question, reply),
                // Checked before.
                (reason, _) => return Err(wrong_decision(&reason)),
            },
        };
        self.record_decision(&wait.path, wait.id, kind, author);
        let (question, reply) = reply;
        if let Some(notes) = self.open_record(&wait.path)?.waiting_notes() {
            notes.reply(&question, reply);
        }
        Ok(())
    }

    /// Returns the time, if the run knows it.
    pub(super) fn known_time(&self) -> Option<Timestamp> {
        Some(self.now).filter(|now| *now != Timestamp::default())
    }

    pub(super) fn record_decision(
        &mut self,
        call_id: &str,
        wait: WaitId,
        kind: Option<DecisionKind>,
        author: Author,
    ) {
        let Author { by, at, why } = author;
        let at = at.or_else(|| self.known_time());
        if let (Some(kind), Ok(record)) = (kind, self.open_record(call_id)) {
            let decision = DecisionRecord { wait, kind, by, at, why };
            record.history.decisions.push(decision.clone());
            let tool = self.requested_call(call_id).map(|call| call.name.clone()).unwrap_or_default();
            self.note_decision(CallDecision { call_id: call_id.to_owned(), tool, record: decision });
        }
    }

    /// Records a decision that no driver has reported.
    pub(super) fn note_decision(&mut self, decision: CallDecision) {
        self.head.unreported.push(decision.clone());
        self.append(Fact::Decided(decision));
    }

    /// Returns these decisions, which are reported now.
    pub(crate) fn take_decisions(&mut self) -> Vec<CallDecision> {
        if !self.head.unreported.is_empty() {
            self.touch();
        }
        std::mem::take(&mut self.head.unreported)
    }

    /// Returns the decision that ended a wait of this run, or of the run of an agent that it asked.
    pub(crate) fn decision_about(&self, wait: &WaitId) -> Option<&DecisionRecord> {
        self.decisions().find(|decision| decision.wait == *wait)
    }

    /// Returns the decisions about the calls of this run, and of the runs of agents that it asked.
    pub fn decisions(&self) -> Box<dyn Iterator<Item = &DecisionRecord> + '_> {
        let open = self.stage.records().iter().flat_map(|record| {
            let finished = record.outcome().into_iter().flat_map(ToolExecution::decisions);
            record.history.decisions.iter().chain(finished)
        });
        let own = self.tool_executions().iter().flat_map(ToolExecution::decisions).chain(open);
        let own = own.chain(self.decisions_for_tools());
        Box::new(own.chain(self.inner_runs().flat_map(|inner| inner.run().decisions())))
    }

    /// Sets the time of the run: questions expire, and calls that are parked until then continue. Time never goes backwards, and a
    /// question that has expired takes no answer. The driver of a run does this before each step.
    ///
    /// Returns `true` if that changed what the run waits for.
    pub fn tick(&mut self, now: Timestamp) -> bool {
        self.now = self.now.max(now);
        let (now, run_id) = (self.now, self.id.clone());
        let mut has_changed = self.tick_providers(now);
        let Stage::Calling(turn) = &mut self.stage else { return has_changed };
        let mut decisions = Vec::new();
        for (call, record) in self.history.last_calls().iter().zip(&mut turn.calls) {
            if record.awaits_approval() || record.awaits_result() {
                record.is_touched |= record.since.is_none();
                record.since.get_or_insert(now);
            }
            if let Some(inner) = record.inner_mut() {
                has_changed |= inner.run.tick(now);
            }
            let Some(notes) = record.waiting_notes() else { continue };
            let before = notes.clone();
            let expired = notes.tick(now);
            expired.iter().for_each(|question| notes.reply(question, QuestionReply::Expired));
            has_changed |= !expired.is_empty() || notes.is_waiting() != before.is_waiting();
            record.is_touched |= record.notes() != Some(&before);
            for question in expired {
                let decision = DecisionRecord::expired(wait_id(&run_id, &call.id, &question), now);
                record.history.decisions.push(decision.clone());
                let (call_id, tool) = (call.id.clone(), call.name.clone());
                decisions.push(CallDecision { call_id, tool, record: decision });
            }
        }
        decisions.into_iter().for_each(|decision| self.note_decision(decision));
        if has_changed {
            self.touch();
        }
        has_changed
    }
}
