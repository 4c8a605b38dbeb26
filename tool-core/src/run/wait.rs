//! What a run waits for, and the decisions that end the waits.
//!
//! There is one notion of waiting: for approvals, answers to questions of tools, results of external tools and of calls that a layer leaves
//! to the caller, points in time, and all of these inside agents.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::approval::Approval;
use crate::model::ToolCall;
use crate::tool::{
    DecisionKind, DecisionRecord, Question, Timestamp, ToolError, ToolOutput, WaitId, write_outcome,
};

/// Something that a run waits for, mostly one of its calls. [`Run::waits`](crate::run::Run::waits) returns all of them, and
/// [`Run::resolve`](crate::run::Run::resolve) ends one.
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
    /// The path of the call: its id, behind the ids of the calls that lead to its agent, as in `call_1/call_2`. If a [provider of
    /// tools](crate::toolset::ToolProviderRequest::asker) asks, this is the path of the call that asked the agent, and empty for the
    /// outermost one.
    pub path: String,
    /// The name of the call's tool, or of the provider that asks.
    pub tool: String,
    /// What the call waits for.
    pub reason: WaitReason,
    /// The time since when it waits, as far as the run [knows the time](crate::run::Run::tick).
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

impl WaitReason {
    pub(super) fn expected_decision(&self) -> &'static str {
        match self {
            Self::Approval(_) => "the call awaits approval; use `Decision::approve()` or `Decision::deny(…)`",
            Self::Answer(_) => "the call asks the user; use `Decision::answer(…)` or `Decision::decline()`",
            Self::CallerResult(_) => "the call awaits a result of the caller; use `Decision::result(…)`",
            Self::Until(_) => "the call waits for a point in time, and nobody decides about it",
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

    /// Returns the wait as the run around its own one has it, in which this call asked the agent.
    pub(super) fn inside(self, call_id: &str) -> Self {
        let path = match &*self.path {
            "" => call_id.to_owned(),
            path => format!("{call_id}/{path}"),
        };
        Self { path, ..self }
    }

    /// Returns `true` if the call waits for a point in time, and nobody has to decide.
    #[must_use]
    pub fn is_until(&self) -> bool {
        matches!(self.reason, WaitReason::Until(_))
    }

    /// Returns `true` if deciders are asked about this wait of a call whose approval is demanded so many levels outside of their run.
    pub(crate) fn is_for_decider(&self, level: usize) -> bool {
        match self.reason {
            // Of the level that demanded it.
            WaitReason::Approval(_) => level == 0,
            WaitReason::Answer(_) => true,
            _ => false,
        }
    }
}

/// A decision that ends a [`Wait`], with who decided, when and why, as far as that is known.
///
/// ```
/// use tool_core::run::Decision;
/// use tool_core::signatures::Timestamp;
///
/// let decision = Decision::deny("not on a Sunday").by("ada").at(Timestamp::now());
/// assert_eq!(format!("{decision:?}"), "Decision(Denied)");
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[must_use]
pub struct Decision {
    pub(super) verdict: Verdict,
    #[serde(flatten)]
    pub(super) author: Author,
    /// New arguments were checked against the definition that the approval is bound to.
    /// Not read with the decision, which can be of anybody.
    #[serde(skip)]
    pub(crate) has_checked_arguments: bool,
}

/// Who decided, when and why.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Author {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
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
        Self { verdict, author: Author::default(), has_checked_arguments: false }
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

    /// Answers a question. An answer that cannot be serialized as JSON is refused when the question is resolved.
    pub fn answer(answer: impl Serialize) -> Self {
        let json = serde_json::to_string(&answer);
        Self::new(Verdict::Answer(json.unwrap_or_else(|error| error.to_string())))
    }

    /// Answers a question with a JSON text, which keeps every digit.
    pub fn answer_json(answer: impl Into<String>) -> Self {
        Self::new(Verdict::Answer(answer.into()))
    }

    /// Answers a question with what a person wrote or a program sent: one of the choices or its label, a JSON text, or else a text.
    ///
    /// ```
    /// use tool_core::run::Decision;
    /// use tool_core::tool::Question;
    ///
    /// let question: Question = serde_json::from_str(r#"{"text": "Name?", "schema": {"type": "string"}}"#)?;
    /// assert!(Decision::answer_text(&question, "42") == Decision::answer("42"));
    /// let question: Question = serde_json::from_str(r#"{"text": "How many?", "schema": {"type": "integer"}}"#)?;
    /// assert!(Decision::answer_text(&question, "42") == Decision::answer(42));
    /// # Ok::<_, serde_json::Error>(())
    /// ```
    pub fn answer_text(question: &Question, text: &str) -> Self {
        Self::answer_json(question.answer_of(text))
    }

    /// Declines to answer a question, or denies a call, without a reason.
    pub fn decline() -> Self {
        Self::new(Verdict::Declined)
    }

    /// States that there is nobody to answer a question, and [why](Self::because). Its default is the answer, if it has one.
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

    /// Returns the record of this decision about a wait, or `None` if it is postponed.
    ///
    /// ```
    /// use tool_core::run::Decision;
    /// use tool_core::signatures::DecisionKind;
    ///
    /// let record = Decision::deny("too much").by("ada").record(&"0123".into()).unwrap();
    /// assert_eq!((record.kind, record.by.as_deref(), record.why.as_deref()), (DecisionKind::Denied, Some("ada"), Some("too much")));
    /// ```
    #[must_use]
    pub fn record(&self, wait: &WaitId) -> Option<DecisionRecord> {
        let Author { by, at, why } = self.author.clone();
        let why = why.or_else(|| match &self.verdict {
            Verdict::Approval(Approval::Deny(reason)) => reason.clone(),
            _ => None,
        });
        Some(DecisionRecord { wait: wait.clone(), kind: self.kind()?, by, at, why })
    }

    /// Returns the arguments that replace the model's.
    #[must_use]
    pub fn edited_arguments(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Approval(Approval::ApproveWith(arguments)) => Some(arguments),
            _ => None,
        }
    }

    /// Returns this decision in the form that is recorded about a wait.
    pub(crate) fn about(mut self, wait: &Wait) -> Self {
        if matches!((&wait.reason, &self.verdict), (WaitReason::Approval(_), Verdict::Declined)) {
            self.verdict = Verdict::Approval(Approval::Deny(self.author.why.clone()));
        }
        self
    }

    /// Sets the time, unless it is set.
    pub(crate) fn or_at(mut self, time: Timestamp) -> Self {
        self.author.at.get_or_insert(time);
        self
    }

    /// Returns the kind with which the decision is recorded, unless it is [deferred](Self::defer).
    #[must_use]
    pub fn kind(&self) -> Option<DecisionKind> {
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
