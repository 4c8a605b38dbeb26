//! Writes runs of a store as files.

use std::future::IntoFuture;
use std::path::PathBuf;
use std::pin::Pin;

use tool_core::Agent;
use tool_core::engine::AgentExt as _;
use tool_core::memory::{RunFilter, RunStatus};
use tool_core::run::Run;

use super::file;
use super::redaction::{Redaction, redact};
use crate::error::{Result, failure};

/// Writes the stored runs of an agent that a filter admits, but those that are driven, into a directory, one file each. Runs that have ended are there if
/// the agent [keeps](tool_core::agent::AgentBuilder::keep_finished) them. Say what is removed from them, or that nothing is, and await it.
///
/// A file is named by the id of its run and has the same bytes each time, so a directory is reviewed like code.
///
/// ```
/// use std::time::Duration;
///
/// use tool_core::Agent;
/// use tool_core::layer::Redact;
/// use tool_core::memory::{InMemoryStore, RunFilter};
/// use tool_core::testing::ScriptedModel;
/// use tool_testing::{KeptRuns, check_runs, export_runs};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tool_testing::Result {
/// # let directory = std::env::temp_dir().join(format!("kept-runs-{}", std::process::id()));
/// let day = Duration::from_secs(24 * 3_600);
/// let model = ScriptedModel::new().says("Good morning!");
/// let desk = Agent::builder(model).name("desk").run_store(InMemoryStore::new()).keep_finished(day).build()?;
/// desk.ask("Hello, I am ada@example.com").await?;
///
/// let redact = Redact::new().email_addresses();
/// let files = export_runs(&desk, &RunFilter::new(), &directory).redact(redact).await?;
/// assert!(std::fs::read_to_string(&files[0])?.contains("I am [e-mail address]"));
/// check_runs(KeptRuns::in_dir(&directory), [desk]).await?;
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok(())
/// # }
/// ```
pub fn export_runs(agent: &Agent, filter: &RunFilter, directory: impl Into<PathBuf>) -> ExportRuns {
    let source = Source::Stored(filter.clone());
    ExportRuns { agent: agent.clone(), source, directory: directory.into(), redaction: None }
}

/// Writes one run of an agent into a directory, also one that is in no store, such as one of a worker of Restate. See [`export_runs`].
pub fn export_run(agent: &Agent, run: Run, directory: impl Into<PathBuf>) -> ExportRuns {
    let source = Source::Run(Box::new(run));
    ExportRuns { agent: agent.clone(), source, directory: directory.into(), redaction: None }
}

/// An export of runs; created by [`export_runs`].
#[derive(Debug)]
#[must_use = "nothing is written until it is awaited"]
pub struct ExportRuns {
    agent: Agent,
    source: Source,
    directory: PathBuf,
    /// What is removed, once that was said.
    redaction: Option<Option<Redaction>>,
}

#[derive(Debug)]
enum Source {
    Stored(RunFilter),
    Run(Box<Run>),
}

impl ExportRuns {
    /// Removes what a [`Redact`](tool_core::layer::Redact) finds, or what a function replaces, from all that persons, models and tools have written. The
    /// same text becomes the same placeholder. An argument for which the schema of its tool does not allow the placeholder gets one of its own form: `C-1815`
    /// becomes `C-0001`. Names of tools, agents and layers, ids and definitions stay.
    pub fn redact(mut self, redaction: impl Into<Redaction>) -> Self {
        self.redaction = Some(Some(redaction.into()));
        self
    }

    /// Writes runs as they are, with all texts and arguments.
    pub fn unredacted(mut self) -> Self {
        self.redaction = Some(None);
        self
    }

    async fn export(self) -> Result<Vec<PathBuf>> {
        let Some(redaction) = self.redaction else {
            let text =
                "say what is removed from runs that are kept: `.redact(Redact::new().…)`, or `.unredacted()`";
            return Err(failure(text));
        };
        let runs = match self.source {
            Source::Run(run) => vec![*run],
            Source::Stored(filter) => stored(&self.agent, &filter).await?,
        };
        let tools = self.agent.tools_of_tree();
        file::create(&self.directory)?;
        let mut files = Vec::new();
        for run in runs {
            let mut json = serde_json::to_value(&run)?;
            if let Some(redaction) = &redaction {
                redact(&mut json, redaction, &tools)?;
                if let Err(error) = serde_json::from_value::<Run>(json.clone()) {
                    let text = format!("what the redaction leaves of `{}` is no run: {error}", run.id());
                    return Err(failure(text));
                }
            }
            files.push(file::write(&self.directory, run.id().as_str(), &json)?);
        }
        Ok(files)
    }
}

async fn stored(agent: &Agent, filter: &RunFilter) -> Result<Vec<Run>> {
    let Some(store) = agent.run_store() else {
        return Err(failure("the agent has no `run_store`, so there are no runs to be kept"));
    };
    let mut runs = Vec::new();
    for listed in agent.list_runs(filter).await? {
        if listed.status != RunStatus::RunningElsewhere
            && listed.agent.as_deref() == agent.name()
            && let Some(run) = store.load_run(&listed.id).await.map_err(|error| failure(error.to_string()))?
        {
            runs.push(run);
        }
    }
    Ok(runs)
}

impl IntoFuture for ExportRuns {
    type Output = Result<Vec<PathBuf>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.export())
    }
}
