//! What a run waits for, and the decisions that end the waits.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::call::{ApprovalScope, CallRecord, CallState};
use super::state::{Stage, last_calls};
use crate::model::ToolCall;
use crate::run::{Approval, Run, RunId, StepError};
use crate::tool::{
    CallNotes, DecisionKind, DecisionRecord, MAX_TEXT, Question, Reply, Timestamp, ToolError, ToolExecution,
    ToolOutput, WaitId, write_outcome,
};

/// Something that a call of a run waits for. [`Run::waits`] returns all of them, and [`Run::resolve`] ends one.
///
/// ```
/// use tool_core::run::WaitReason;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
///
/// #[tool("Deletes the account", needs_approval)]
/// fn delete() {}
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new().calls("delete", "{}")).tools(tools![delete]).build()?;
/// let error = agent.ask("Delete it").await.unwrap_err();
/// let wait = &error.run().waits()[0];
/// assert!(matches!(&wait.reason, WaitReason::Approval(call) if call.name == "delete"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait {
    /// The id, by which the wait is resolved.
    pub id: WaitId,
    /// The [path](crate::run::CallPath) of the call as one text: its id, after those of the calls that ask its agent.
    pub path: String,
    /// The name of the call's tool.
    pub tool: String,
    /// What the call waits for.
    pub reason: WaitReason,
    /// The time since when it waits, as far as the run [knows the time](Run::tick).
    pub since: Timestamp,
    /// The time at which it ends without a decision.
    pub deadline: Option<Timestamp>,
}

/// What a call waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitReason {
    /// A person has to approve this call.
    Approval(ToolCall),
    /// A person has to answer this question.
    Answer(Question),
    /// The caller has to execute this call and to supply its result.
    // A variant named `Result` would make rustc write `std::result::Result` in each message about a `Result`.
    #[serde(rename = "result")]
    CallerResult(ToolCall),
    /// The call continues at this time.
    Until(Timestamp),
}

impl WaitReason {
    /// Describes what calls with this reason wait for.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Approval(_) => "calls await approval",
            Self::Answer(_) => "calls ask the user",
            Self::CallerResult(_) => "calls await results of the caller",
            Self::Until(_) => "calls are parked",
        }
    }
}

impl Wait {
    /// Returns the question, if the call waits for an answer.
    #[must_use]
    pub fn question(&self) -> Option<&Question> {
        match &self.reason {
            WaitReason::Answer(question) => Some(question),
            _ => None,
        }
    }

    /// Returns `true` if the call waits for a point in time, and nobody has to decide.
    #[must_use]
    pub fn is_until(&self) -> bool {
        matches!(self.reason, WaitReason::Until(_))
    }
}

/// A decision that ends a [`Wait`], with who decided, when and why, as far as that is known.
///
/// ```
/// use tool_core::run::Decision;
/// use tool_core::tool::Timestamp;
///
/// let decision = Decision::deny("not on a Sunday").by("ada").at(Timestamp::now());
/// assert_eq!(format!("{decision:?}"), "Decision(Denied)");
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[must_use]
pub struct Decision {
    verdict: Verdict,
    #[serde(flatten)]
    pub(super) author: Author,
}

/// Who decided, when and why.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Author {
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Approval(Approval),
    /// A JSON text.
    Answer(String),
    Declined,
    Unavailable,
    Result {
        #[serde(serialize_with = "write_outcome")]
        outcome: Result<ToolOutput, ToolError>,
    },
}

impl Decision {
    fn new(verdict: Verdict) -> Self {
        Self { verdict, author: Author::default() }
    }

    /// Approves a call.
    pub fn approve() -> Self {
        Approval::Approve.into()
    }

    /// Approves a call with these arguments, a JSON object.
    pub fn approve_with(arguments: impl Into<String>) -> Self {
        Approval::ApproveWith(arguments.into()).into()
    }

    /// Denies a call, or declines to answer a question, with a reason that the model reads.
    pub fn deny(reason: impl Into<String>) -> Self {
        Approval::deny(reason).into()
    }

    /// Answers a question.
    pub fn answer(answer: impl Into<serde_json::Value>) -> Self {
        Self::new(Verdict::Answer(answer.into().to_string()))
    }

    /// Answers a question with a JSON text, which keeps every digit.
    pub fn answer_json(answer: impl Into<String>) -> Self {
        Self::new(Verdict::Answer(answer.into()))
    }

    /// Declines to answer a question.
    pub fn decline() -> Self {
        Self::new(Verdict::Declined)
    }

    /// States that there is nobody to answer a question. Its default is the answer, if it has one.
    pub fn unavailable() -> Self {
        Self::new(Verdict::Unavailable)
    }

    /// Supplies the result of a call that the caller executes.
    pub fn result(outcome: Result<ToolOutput, ToolError>) -> Self {
        Self::new(Verdict::Result { outcome })
    }

    /// Postpones the decision: the call continues to wait.
    pub fn defer() -> Self {
        Approval::Defer.into()
    }

    /// Returns this decision with the person or the system that decided.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.author.by = Some(who.into());
        self
    }

    /// Returns this decision with its time.
    pub fn at(mut self, time: Timestamp) -> Self {
        self.author.at = Some(time);
        self
    }

    /// Returns this decision with a reason for the record.
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.author.why = Some(why.into());
        self
    }

    /// Returns `true` if the decision is postponed.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        matches!(self.verdict, Verdict::Approval(Approval::Defer))
    }

    fn kind(&self) -> Option<DecisionKind> {
        Some(match &self.verdict {
            Verdict::Approval(Approval::Approve) => DecisionKind::Approved,
            Verdict::Approval(Approval::ApproveWith(_)) => DecisionKind::ApprovedWithChanges,
            Verdict::Approval(Approval::Deny(_)) => DecisionKind::Denied,
            Verdict::Approval(Approval::Defer) => return None,
            Verdict::Answer(_) => DecisionKind::Answered,
            Verdict::Declined => DecisionKind::Declined,
            Verdict::Unavailable => DecisionKind::Unavailable,
            Verdict::Result { .. } => DecisionKind::Supplied,
        })
    }
}

impl From<Approval> for Decision {
    fn from(approval: Approval) -> Self {
        Self::new(Verdict::Approval(approval))
    }
}

/// Omits answers, arguments and reasons.
impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Some(kind) => f.debug_tuple("Decision").field(&kind).finish(),
            None => f.write_str("Decision(Deferred)"),
        }
    }
}

/// Compares the serialized forms.
impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        serde_json::to_string(self).ok() == serde_json::to_string(other).ok()
    }
}

impl Eq for Decision {}

/// The error of [resolving](Run::resolve) a wait. The run is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveError {
    kind: ResolveErrorKind,
    detail: Option<String>,
    decided: Option<Box<DecisionRecord>>,
}

/// The kind of a [`ResolveError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResolveErrorKind {
    /// The run has no such wait: it is of another run, or what was shown has changed since.
    UnknownWait,
    /// The wait was decided before. [`ResolveError::decided`] says how and by whom.
    AlreadyDecided,
    /// The decision is of another kind than the wait, such as an answer to a call that awaits approval.
    WrongDecision,
    /// The answer or the arguments are not valid.
    InvalidAnswer,
}

impl ResolveError {
    fn new(kind: ResolveErrorKind) -> Self {
        Self { kind, detail: None, decided: None }
    }

    fn invalid(detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::new(ResolveErrorKind::InvalidAnswer) }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ResolveErrorKind {
        self.kind
    }

    /// Returns the decision that was made before.
    #[must_use]
    pub fn decided(&self) -> Option<&DecisionRecord> {
        self.decided.as_deref()
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ResolveErrorKind::UnknownWait => {
                "the run does not wait for this any more; decide about one of `waits()`"
            }
            ResolveErrorKind::AlreadyDecided => "this was decided before",
            ResolveErrorKind::WrongDecision => {
                "the call waits for a decision of another kind; see its `reason`"
            }
            ResolveErrorKind::InvalidAnswer => "the answer is not valid",
        })?;
        if let Some(by) = self.decided.as_ref().and_then(|decided| decided.by.as_ref()) {
            write!(f, " by {by}")?;
        }
        self.detail.iter().try_for_each(|detail| write!(f, ": {detail}"))
    }
}

impl Error for ResolveError {}

impl From<StepError> for ResolveError {
    fn from(StepError(detail): StepError) -> Self {
        Self::invalid(detail)
    }
}

/// Returns the digest of what a wait shows.
fn wait_id(run: &RunId, call_id: &str, shown: &impl Serialize) -> WaitId {
    // These can always be serialized.
    let shown = serde_json::to_string(&(run, call_id, shown)).unwrap_or_default();
    let digest = Sha256::digest(shown);
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

impl Run {
    /// Returns what the run waits for, in the order of its calls, with what the agents that they asked wait for. Other calls may
    /// still be executed meanwhile.
    #[must_use]
    pub fn waits(&self) -> Vec<Wait> {
        let mut waits = Vec::new();
        for (call, record) in self.calls_with_records() {
            waits.extend(self.waits_of(call, record));
            for mut wait in record.open_inner().into_iter().flat_map(|inner| inner.run().waits()) {
                wait.path.insert_str(0, &format!("{}/", call.id));
                waits.push(wait);
            }
        }
        waits
    }

    fn waits_of(&self, call: &ToolCall, record: &CallRecord) -> Vec<Wait> {
        let wait = |id, reason, since: Option<Timestamp>, deadline| Wait {
            id,
            path: call.id.clone(),
            tool: call.name.clone(),
            reason,
            since: since.unwrap_or(self.now),
            deadline,
        };
        match &record.state {
            CallState::AwaitingApproval(scope) => {
                let id = self.approval_id(call, record, scope);
                vec![wait(id, WaitReason::Approval(call.clone()), record.since, None)]
            }
            CallState::AwaitingResult => {
                let id = wait_id(&self.id, &call.id, &("result", call));
                vec![wait(id, WaitReason::CallerResult(call.clone()), record.since, None)]
            }
            CallState::Waiting { .. } => {
                let notes = record.notes().into_iter();
                let open = notes.clone().flat_map(CallNotes::open).map(|(question, since)| {
                    let deadline = since.and_then(|since| question.deadline(since));
                    let id = wait_id(&self.id, &call.id, question);
                    wait(id, WaitReason::Answer(question.clone()), since, deadline)
                });
                let parked = notes.filter_map(CallNotes::parked).map(|(until, since)| {
                    let id = wait_id(&self.id, &call.id, &("until", until));
                    wait(id, WaitReason::Until(until), since, Some(until))
                });
                open.chain(parked).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The id covers the definition, and the decisions before, so that it changes when approval is asked for again.
    fn approval_id(&self, call: &ToolCall, record: &CallRecord, scope: &ApprovalScope) -> WaitId {
        wait_id(&self.id, &call.id, &("approval", call, scope, record.decisions.len()))
    }

    /// Records a decision about something that the run [waits](Self::waits) for. The first decision is final.
    ///
    /// ```
    /// use tool_core::run::{Decision, ResolveErrorKind};
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
    pub fn resolve(&mut self, wait: &WaitId, decision: Decision) -> Result<(), ResolveError> {
        let mut own = self.calls_with_records().flat_map(|(call, record)| self.waits_of(call, record));
        let found = own.find(|own| own.id == *wait);
        drop(own);
        if let Some(found) = found {
            return self.resolve_own(found, decision);
        }
        if let Stage::Calling(turn) = &mut self.stage {
            for inner in
                turn.calls.iter_mut().filter(|record| record.is_open()).filter_map(CallRecord::inner_mut)
            {
                let resolved = inner.resolve(wait, decision.clone());
                if !matches!(&resolved, Err(error) if error.kind == ResolveErrorKind::UnknownWait) {
                    return resolved;
                }
            }
        }
        let decided = self.decision_about(wait).cloned().map(Box::new);
        let kind =
            decided.as_ref().map_or(ResolveErrorKind::UnknownWait, |_| ResolveErrorKind::AlreadyDecided);
        Err(ResolveError { decided, ..ResolveError::new(kind) })
    }

    fn resolve_own(&mut self, wait: Wait, decision: Decision) -> Result<(), ResolveError> {
        if decision.is_deferred() {
            return Ok(());
        }
        let kind = decision.kind();
        let Decision { verdict, mut author } = decision;
        let reply = match (wait.reason, verdict) {
            (WaitReason::Approval(_), Verdict::Approval(approval)) => {
                return Ok(self.decide_own_approval(&wait.path, approval, author)?);
            }
            (WaitReason::Approval(_), Verdict::Declined) => {
                let denied = Approval::Deny(author.why.clone());
                return Ok(self.decide_own_approval(&wait.path, denied, author)?);
            }
            (WaitReason::CallerResult(call), Verdict::Result { outcome }) => {
                self.record_decision(&wait.path, wait.id, kind, author);
                return Ok(self.record_result(ToolExecution::new(call, outcome))?);
            }
            (WaitReason::Answer(question), Verdict::Answer(answer)) => {
                if answer.len() > MAX_TEXT {
                    return Err(ResolveError::invalid("it is too long"));
                }
                question.check(&answer).map_err(ResolveError::invalid)?;
                (question, Reply::Answer(answer))
            }
            (WaitReason::Answer(question), Verdict::Declined) => {
                (question, Reply::Declined(author.why.clone()))
            }
            (WaitReason::Answer(question), Verdict::Approval(Approval::Deny(reason))) => {
                author.why = author.why.or_else(|| reason.clone());
                (question, Reply::Declined(reason))
            }
            (WaitReason::Answer(question), Verdict::Unavailable) => (question, Reply::Unavailable),
            _ => return Err(ResolveError::new(ResolveErrorKind::WrongDecision)),
        };
        self.record_decision(&wait.path, wait.id, kind, author);
        let (question, reply) = reply;
        if let Some(notes) = self.open_record(&wait.path)?.waiting_notes() {
            notes.reply(&question, reply);
        }
        Ok(())
    }

    /// Records a decision about a call that awaits approval, and who made it.
    pub(super) fn decide_own_approval(
        &mut self,
        call_id: &str,
        approval: Approval,
        mut author: Author,
    ) -> Result<(), StepError> {
        if let Approval::Deny(reason) = &approval {
            author.why = author.why.or_else(|| reason.clone());
        }
        let decision = Decision::from(approval.clone());
        let shown = self.requested_call(call_id).zip(self.record(call_id));
        let id = shown.and_then(|(call, record)| match &record.state {
            CallState::AwaitingApproval(scope) => Some(self.approval_id(call, record, scope)),
            _ => None,
        });
        let before = self.record(call_id).map_or(0, |record| record.decisions.len());
        if let Some(id) = id {
            self.record_decision(call_id, id, decision.kind(), author);
        }
        let resolved = self.resolve_own_approval(call_id, approval);
        if resolved.is_err()
            && let Ok(record) = self.open_record(call_id)
        {
            record.decisions.truncate(before);
        }
        resolved
    }

    fn record_decision(&mut self, call_id: &str, wait: WaitId, kind: Option<DecisionKind>, author: Author) {
        let Author { by, at, why } = author;
        let at = at.or_else(|| Some(self.now).filter(|now| *now != Timestamp::default()));
        if let (Some(kind), Ok(record)) = (kind, self.open_record(call_id)) {
            record.decisions.push(DecisionRecord { wait, kind, by, at, why });
        }
    }

    /// Returns the decision that ended a wait of this run, or of the run of an agent that it asked.
    fn decision_about(&self, wait: &WaitId) -> Option<&DecisionRecord> {
        let open = self.stage.records().iter().flat_map(|record| {
            let finished = record.outcome().into_iter().flat_map(ToolExecution::decisions);
            record.decisions.iter().chain(finished)
        });
        let own = self.tool_executions.iter().flat_map(ToolExecution::decisions).chain(open);
        own.into_iter()
            .find(|decision| decision.wait == *wait)
            .or_else(|| self.inner_runs().find_map(|inner| inner.run().decision_about(wait)))
    }

    /// Tells the run the time: questions expire, and calls that are parked until then continue. Time never goes backwards, and a
    /// question that has expired takes no answer. The driver of a run does this before each step.
    ///
    /// Returns `true` if that changed what the run waits for.
    pub fn tick(&mut self, now: Timestamp) -> bool {
        self.now = self.now.max(now);
        let (now, run_id) = (self.now, self.id.clone());
        let Stage::Calling(turn) = &mut self.stage else { return false };
        let mut has_changed = false;
        for (call, record) in last_calls(&self.messages).iter().zip(&mut turn.calls) {
            if record.awaits_approval() || record.awaits_result() {
                record.since.get_or_insert(now);
            }
            if let Some(inner) = record.inner_mut() {
                has_changed |= inner.tick(now);
            }
            let Some(notes) = record.waiting_notes() else { continue };
            let was_waiting = notes.is_waiting();
            let expired = notes.tick(now);
            expired.iter().for_each(|question| notes.reply(question, Reply::Expired));
            has_changed |= !expired.is_empty() || notes.is_waiting() != was_waiting;
            record.decisions.extend(expired.into_iter().map(|question| DecisionRecord {
                wait: wait_id(&run_id, &call.id, &question),
                kind: DecisionKind::Expired,
                by: None,
                at: Some(now),
                why: None,
            }));
        }
        has_changed
    }
}
