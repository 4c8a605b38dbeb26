//! One record per decision and per call.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::future::ready;

use serde::{Deserialize, Serialize};

use super::context::LayerContext;
use super::layer_trait::{Layer, LayerFuture, LayerPhase};
use super::recorded_call::RecordedCall;
use crate::content::printable;
use crate::model::{RunUser, ToolCall};
use crate::tool::{
    CallDecision, DecisionKind, DecisionRecord, Timestamp, ToolError, ToolErrorKind, VerdictKind,
    VerdictRecord,
};

/// Reports what is decided in the runs of an agent, and each call that has ended: one record per decision of a layer around the runs (of its
/// own layers and of other agents' layers, as far as they decide about these runs), per decision of a person or a program about a call that
/// waited, wherever it was made, or that was refused, and per outcome. In a [set of tools](crate::ToolSet::layer), it reports the decisions of the set's
/// layers, which it omits in an agent. A question that passes is a decision; a call, an output or an answer that passes is none.
///
/// The closure receives the decision of a layer before it takes effect. If a run is resumed and the layer decides the same about the call again,
/// this is not reported. The closure receives the rest once it is part of the run. It must not block; a channel can take the records further. If it panics, nothing passes.
///
/// ```
/// use std::sync::mpsc;
///
/// use tool_core::layer::{Audit, CallVerdict, guard};
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, ToolCall, tool, tools};
///
/// #[tool("Pays a bill")]
/// fn pay(cents: u32) {}
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (log, records) = mpsc::channel();
/// let model = ScriptedModel::new().calls("pay", r#"{"cents": 1}"#).says("Later.");
/// let agent = Agent::builder(model)
///     .tools(tools![pay])
///     .layer(guard::call(|_: &ToolCall| CallVerdict::deny("not at night")).named("night"))
///     .layer(Audit::new(move |record| log.send(record.to_string()).expect("somebody reads")))
///     .build()?;
/// agent.ask("Pay").await?;
/// assert_eq!(records.recv()?, "`night` denied the call `pay` (call_1_0): not at night");
/// assert_eq!(records.recv()?, "the call `pay` (call_1_0) failed: denied");
/// # Ok(())
/// # }
/// ```
#[must_use = "pass it to `AgentBuilder::layer` or `ToolSet::layer`"]
pub struct Audit {
    name: Cow<'static, str>,
    sink: Box<dyn Fn(AuditRecord) + Send + Sync>,
    has_arguments: bool,
}

/// What was decided or done, for a log. It contains no text that was judged, unless a layer or a person quotes it in a reason.
///
/// `Display` writes one line. `Debug` omits reasons and arguments.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditRecord {
    /// The names of the agents that lead to the one whose run this is, like [`LayerContext::agents`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// The [id](crate::run::RunId) of the run, unless it was outside of one, as in a [set of tools](crate::ToolSet::layer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// When this was reported. A decision has its own time.
    pub at: Timestamp,
    /// [Whose run it is](crate::run::Run::user), if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<RunUser>,
    /// What happened.
    #[serde(flatten)]
    pub event: AuditEvent,
    /// The id of the call that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The tool of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments of the call, if they were [asked for](Audit::with_arguments) and are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
}

/// What happened, in an [`AuditRecord`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditEvent {
    /// A layer decided.
    Verdict(VerdictRecord),
    /// A person or a program decided about a call that waited, or its time was up.
    Decision(DecisionRecord),
    /// Somebody wanted to decide so who [may not](crate::agent::RunSetup::may_decide).
    Refused(DecisionRecord),
    /// A call has ended, with this kind of error if it failed.
    Called(Option<ToolErrorKind>),
}

impl Audit {
    /// Creates a layer that passes each record to a closure.
    pub fn new(sink: impl Fn(AuditRecord) + Send + Sync + 'static) -> Self {
        Self { name: "audit".into(), sink: Box::new(sink), has_arguments: false }
    }

    /// Adds the arguments of calls to the records.
    pub fn with_arguments(mut self) -> Self {
        self.has_arguments = true;
        self
    }

    /// Sets the name, which is unique among the layers of an agent. It is `audit` by default.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Cow::Owned(name.into());
        self
    }
}

impl Audit {
    fn report(
        &self,
        at: &LayerContext<'_>,
        event: AuditEvent,
        call: Option<(&str, &str)>,
        arguments: Option<&str>,
    ) {
        (self.sink)(AuditRecord {
            agents: at.agents.to_vec(),
            run: at.run().map(str::to_owned),
            user: at.context.get().cloned(),
            at: Timestamp::now(),
            event,
            call_id: call.map(|(id, _)| id.to_owned()),
            tool: call.map(|(_, tool)| tool.to_owned()),
            arguments: arguments.filter(|_| self.has_arguments).map(str::to_owned),
        });
    }
}

impl Layer for Audit {
    fn name(&self) -> &str {
        &self.name
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == LayerPhase::Record
    }

    fn decided<'a>(
        &'a self,
        verdict: &'a VerdictRecord,
        call: Option<&'a ToolCall>,
        at: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, ()> {
        let about = call.map(|call| (&*call.id, &*call.name));
        let arguments = call.map(|call| &*call.arguments);
        self.report(at, AuditEvent::Verdict(verdict.clone()), about, arguments);
        Box::pin(ready(Ok(())))
    }

    fn record<'a>(&'a self, entry: RecordedCall<'a>, at: &'a LayerContext<'a>) -> LayerFuture<'a, ()> {
        match entry {
            RecordedCall::Decided(CallDecision { call_id, tool, record }) => {
                self.report(at, AuditEvent::Decision(record.clone()), Some((call_id, tool)), None);
            }
            RecordedCall::Refused(CallDecision { call_id, tool, record }) => {
                self.report(at, AuditEvent::Refused(record.clone()), Some((call_id, tool)), None);
            }
            RecordedCall::Finished(execution) => {
                let (call, error) = (execution.call(), execution.error().map(ToolError::kind));
                let about = Some((&*call.id, &*call.name));
                self.report(at, AuditEvent::Called(error), about, Some(&call.arguments));
            }
        }
        Box::pin(ready(Ok(())))
    }
}

/// One line, in which texts of models cannot imitate another.
impl fmt::Display for AuditRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.line()?).replace('\n', r"\n"))
    }
}

impl AuditRecord {
    fn line(&self) -> Result<String, fmt::Error> {
        let mut f = String::new();
        if let Some(user) = &self.user {
            write!(f, "{user}: ")?;
        }
        if !self.agents.is_empty() {
            write!(f, "{}: ", self.agents.join("/"))?;
        }
        let call = self
            .tool
            .as_ref()
            .zip(self.call_id.as_ref())
            .map(|(tool, id)| format!("the call `{tool}` ({id})"));
        let why = match &self.event {
            AuditEvent::Verdict(verdict) => {
                let about = call.as_deref().unwrap_or(match verdict.kind {
                    VerdictKind::Passed | VerdictKind::Answered | VerdictKind::Rewritten => "the question",
                    _ => "a text",
                });
                write!(f, "`{}` {} {about}", verdict.layer, did(verdict.kind))?;
                verdict.why.as_deref()
            }
            AuditEvent::Decision(decision) => {
                let by = decision.by.as_deref().unwrap_or("somebody");
                let call = call.unwrap_or_default();
                match decision.kind {
                    DecisionKind::Approved => write!(f, "{by} approved {call}")?,
                    DecisionKind::ApprovedWithChanges => {
                        write!(f, "{by} approved {call} with other arguments")?
                    }
                    DecisionKind::Denied => write!(f, "{by} denied {call}")?,
                    DecisionKind::Answered => write!(f, "{by} answered the question of {call}")?,
                    DecisionKind::Declined => write!(f, "{by} declined the question of {call}")?,
                    DecisionKind::Expired => write!(f, "nobody answered the question of {call} in time")?,
                    DecisionKind::Unavailable => {
                        write!(f, "there was nobody to answer the question of {call}")?
                    }
                    DecisionKind::Supplied => write!(f, "{by} supplied the result of {call}")?,
                }
                decision.why.as_deref()
            }
            AuditEvent::Refused(decision) => {
                let by = decision.by.as_deref().unwrap_or("somebody");
                write!(f, "{by} may not decide about {}", call.unwrap_or_default())?;
                None
            }
            AuditEvent::Called(None) => {
                write!(f, "{} succeeded", call.unwrap_or_default())?;
                None
            }
            AuditEvent::Called(Some(kind)) => {
                write!(f, "{} failed: {}", call.unwrap_or_default(), kind.as_str())?;
                None
            }
        };
        if let Some(why) = why {
            write!(f, ": {why}")?;
        }
        Ok(f)
    }
}

/// Returns what a layer did.
fn did(kind: VerdictKind) -> &'static str {
    match kind {
        VerdictKind::Passed => "passed",
        VerdictKind::Answered => "answered",
        VerdictKind::Rewritten => "rewrote",
        VerdictKind::Denied => "denied",
        VerdictKind::NeedsApproval => "demanded approval of",
        VerdictKind::LeftToCaller => "left to the caller",
        VerdictKind::Replaced => "replaced",
        VerdictKind::Retried => "sent back",
        VerdictKind::Ended => "ended the run at",
    }
}

impl fmt::Debug for AuditRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditRecord")
            .field("agents", &self.agents)
            .field("event", &self.event)
            .field("call_id", &self.call_id)
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("name", &self.name).finish_non_exhaustive()
    }
}
