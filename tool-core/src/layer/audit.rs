//! One record per decision of a layer.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::future::ready;

use serde::{Deserialize, Serialize};

use super::layer_trait::{Layer, LayerFuture, Part};
use super::place::Place;
use crate::content::printable;
use crate::model::{RunUser, ToolCall};
use crate::tool::{VerdictKind, VerdictRecord};

/// Reports each decision of a layer around the runs of an agent: of its own layers and of other agents' layers, as far as
/// they decide about these runs. In a [set of tools](crate::ToolSet::layer), it reports the decisions of the set's layers, which it omits in
/// an agent. A question that passes is a decision; a call, an output or an answer that passes is none.
///
/// The closure receives a record before the decision takes effect, and again if the layer decides again, for example because the run was
/// resumed. It must not block; a channel can take the records further. If it panics, nothing passes. What persons decided is in
/// [`ToolExecution::decisions`](crate::tool::ToolExecution::decisions).
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
/// # Ok(())
/// # }
/// ```
#[must_use = "pass it to `AgentBuilder::layer` or `ToolSet::layer`"]
pub struct Audit {
    name: Cow<'static, str>,
    sink: Box<dyn Fn(AuditRecord) + Send + Sync>,
    has_arguments: bool,
}

/// What a layer decided, for a log. It contains no text that was judged, unless a layer quotes it in its reason.
///
/// `Display` writes one line. `Debug` omits the reason and the arguments.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditRecord {
    /// The names of the agents that lead to the one whose run this is, like [`Place::agents`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// [Whose run it is](crate::run::Run::user), if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<RunUser>,
    /// Who decided what, and why.
    #[serde(flatten)]
    pub verdict: VerdictRecord,
    /// The id of the call that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The tool of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments of the call, if they were [asked for](Audit::with_arguments).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
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

impl Layer for Audit {
    fn name(&self) -> &str {
        &self.name
    }

    fn sees(&self, _: Part) -> bool {
        false
    }

    fn decided<'a>(
        &'a self,
        verdict: &'a VerdictRecord,
        call: Option<&'a ToolCall>,
        at: &'a Place<'a>,
    ) -> LayerFuture<'a, ()> {
        (self.sink)(AuditRecord {
            agents: at.agents.to_vec(),
            user: at.context.get().cloned(),
            verdict: verdict.clone(),
            call_id: call.map(|call| call.id.clone()),
            tool: call.map(|call| call.name.clone()),
            arguments: call.filter(|_| self.has_arguments).map(|call| call.arguments.clone()),
        });
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
        let did = match self.verdict.kind {
            VerdictKind::Passed => "passed",
            VerdictKind::Answered => "answered",
            VerdictKind::Rewritten => "rewrote",
            VerdictKind::Denied => "denied",
            VerdictKind::NeedsApproval => "demanded approval of",
            VerdictKind::LeftToCaller => "left to the caller",
            VerdictKind::Replaced => "replaced",
            VerdictKind::Retried => "sent back",
            VerdictKind::Ended => "ended the run at",
        };
        write!(f, "`{}` {did} ", self.verdict.layer)?;
        match (&self.tool, &self.call_id, self.verdict.kind) {
            (Some(tool), Some(id), _) => write!(f, "the call `{tool}` ({id})")?,
            (.., VerdictKind::Passed | VerdictKind::Answered | VerdictKind::Rewritten) => {
                f.write_str("the question")?
            }
            _ => f.write_str("a text")?,
        }
        if let Some(why) = &self.verdict.why {
            write!(f, ": {why}")?;
        }
        Ok(f)
    }
}

impl fmt::Debug for AuditRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditRecord")
            .field("agents", &self.agents)
            .field("verdict", &self.verdict)
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
