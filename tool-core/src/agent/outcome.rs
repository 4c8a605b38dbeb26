//! The outcome of driving a run, for callers that do something about each.

use crate::agent::{Ask, RunDriver};
use crate::run::{Answer, Run, RunError, RunErrorKind};

/// The outcome of driving a run, returned by [`Ask::outcome`]: what a web service reports to its client.
///
/// ```
/// use tool_core::agent::Outcome;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
///
/// #[tool("Pays a bill", needs_approval)]
/// fn pay(cents: u32) {}
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("pay", r#"{"cents": 700}"#);
/// let agent = Agent::builder(model).tools(tools![pay]).build()?;
/// let status = match agent.ask("Pay the bill").outcome().await {
///     Outcome::Answer(answer) => answer.text().to_owned(),
///     Outcome::Waiting(run) => format!("{} waits for {} decision(s)", run.id(), run.waits().len()),
///     Outcome::Failed(error) if error.is_resumable() => "please try again".to_owned(),
///     Outcome::Failed(_) => "sorry".to_owned(),
/// };
/// assert!(status.ends_with(" waits for 1 decision(s)"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is matched where it is returned")]
pub enum Outcome {
    /// The run has an answer.
    Answer(Answer),
    /// Calls [wait](Run::waits) for approvals, answers or results. Resolve them and
    /// [resume](crate::Agent::resume) the run.
    Waiting(Run),
    /// The run has no answer. The error has a [kind](RunError::kind), and states whether it
    /// [is resumable](RunError::is_resumable).
    Failed(RunError),
}

impl From<Result<Answer, RunError>> for Outcome {
    fn from(result: Result<Answer, RunError>) -> Self {
        match result {
            Ok(answer) => Self::Answer(answer),
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => Self::Waiting(error.into_run()),
            Err(error) => Self::Failed(error),
        }
    }
}

impl Ask {
    /// Drives the run to its end, like awaiting the question, and returns an outcome in which a run that waits is no error.
    pub async fn outcome(self) -> Outcome {
        self.await.into()
    }
}

impl RunDriver {
    /// Drives the run to its end, like [`Ask::outcome`].
    pub async fn outcome(self) -> Outcome {
        self.drive().await.into()
    }
}
