//! What the own requests of layers are charged to.

use std::fmt;
use std::sync::Arc;

use crate::model::Usage;
use crate::tool::ToolContext;

/// Where a layer reports what its own requests have used; [`LayerContext::usage_reporter`](crate::layer::LayerContext::usage_reporter) returns it.
///
/// The run records this usage under the name of the layer ([`Run::usage_by_layer`](crate::run::Run::usage_by_layer)). It is part of the usage and the
/// cost of the run, and counts for its [`max_cost`](crate::run::RunLimits::max_cost). Requests through
/// [`NextLayer`](crate::layer::NextLayer) belong to the run, and are counted without a report.
///
/// ```
/// use std::pin::Pin;
///
/// use tool_core::Agent;
/// use tool_core::layer::{LayerError, QuestionVerdict, guard};
/// use tool_core::model::Usage;
/// use tool_core::testing::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// type Verdict = Pin<Box<dyn Future<Output = Result<QuestionVerdict, LayerError>> + Send>>;
///
/// let moderator = Agent::builder(ScriptedModel::new().says("fine").with_usage(Usage::new(20, 1))).build()?;
/// let moderated = guard::question_with_context(move |question, at| -> Verdict {
///     let (check, reporter) = (moderator.ask(question.clone()), at.usage_reporter());
///     Box::pin(async move {
///         let check = check.await?;
///         reporter.report(check.usage());
///         Ok(if check.text() == "fine" { QuestionVerdict::Pass } else { QuestionVerdict::end("rude") })
///     })
/// });
/// let model = ScriptedModel::new().says("Good morning!").with_usage(Usage::new(5, 3));
/// let agent = Agent::builder(model).layer(moderated.named("moderation")).build()?;
/// let answer = agent.ask("Hello").await?;
/// assert_eq!(answer.usage_by_layer(), [("moderation".to_owned(), Usage::new(20, 1))]);
/// assert_eq!(answer.usage(), Usage::new(25, 4));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct UsageReporter(Option<Arc<dyn Fn(Usage) + Send + Sync>>);

impl UsageReporter {
    /// A reporter that records nothing.
    pub(super) const NONE: Self = Self(None);

    pub(crate) fn new(charge: impl Fn(Usage) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(charge)))
    }

    /// Adds what a request has used, at the [cost](Usage::cost) that it has. For a layer of a [set of tools](crate::ToolSet::layer), nothing is
    /// recorded unless the agent of a run calls the tool.
    pub fn report(&self, usage: Usage) {
        if let Some(report) = &self.0 {
            report(usage);
        }
    }
}

/// The accounts of the layers around a run.
pub(crate) trait Accounts: Send + Sync {
    /// Returns the account of the layer with this name.
    fn account(&self, layer: &str) -> UsageReporter;
}

/// The accounts of the run that a call belongs to.
impl Accounts for ToolContext {
    fn account(&self, layer: &str) -> UsageReporter {
        let layer = layer.to_owned();
        self.rules()
            .map_or(UsageReporter::NONE, |rules| UsageReporter::new(move |usage| rules.charge(&layer, usage)))
    }
}

impl fmt::Debug for UsageReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageReporter").finish_non_exhaustive()
    }
}
