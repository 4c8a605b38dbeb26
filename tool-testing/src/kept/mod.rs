//! Runs that were kept as files, one JSON text each.

mod file;
mod placeholders;
mod redaction;
mod export;

use std::path::{Path, PathBuf};

use tool_core::Agent;
use tool_core::run::Run;

pub use self::export::{ExportRuns, export_run, export_runs};
pub use self::redaction::Redaction;

use crate::error::{Result, failure};
use crate::replay::Replay;

/// The runs in a directory, one file each, as [`export_runs`] writes them.
#[derive(Clone, Debug)]
#[must_use = "pass it to `check_runs`"]
pub struct KeptRuns {
    directory: PathBuf,
    replay: Replay,
}

impl KeptRuns {
    /// Names the directory, from that of the package, in which `cargo test` runs tests.
    pub fn in_dir(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), replay: Replay::new() }
    }

    /// Sets how the runs are repeated: what stands in for the application's own code.
    pub fn replay(mut self, replay: Replay) -> Self {
        self.replay = replay;
        self
    }

    /// Returns the directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads the files, in the order of their names.
    pub(crate) fn read(&self) -> Result<Vec<(PathBuf, Result<Run>)>> {
        let files = file::list(&self.directory)?;
        if files.is_empty() {
            let directory = self.directory.display();
            let text = format!("there is no kept run in `{directory}`; write some with `export_runs`");
            return Err(failure(text));
        }
        Ok(files.into_iter().map(|file| (file.clone(), file::read(&file))).collect())
    }
}

/// Repeats kept runs with the present agents, each with the one of its name, and fails unless each does the same. Notes, such as about other
/// instructions, are no failure.
///
/// ```no_run
/// use tool_core::Agent;
/// use tool_testing::{KeptRuns, check_runs};
///
/// # fn desk() -> Agent { unimplemented!() }
/// # fn billing() -> Agent { unimplemented!() }
/// # async fn production_still_holds() -> tool_testing::Result {
/// check_runs(KeptRuns::in_dir("tests/runs"), [desk(), billing()]).await
/// # }
/// ```
///
/// # Errors
///
/// Fails if the directory is missing or has no run, if a run cannot be read, repeated, or has no agent, or if one does something else. The error names
/// each run with its first difference.
pub async fn check_runs(kept: KeptRuns, agents: impl IntoIterator<Item = Agent>) -> Result {
    let agents: Vec<_> = agents.into_iter().collect();
    let runs = kept.read()?;
    let (number, mut failures) = (runs.len(), Vec::new());
    for (file, run) in runs {
        let run = run?;
        let why = match agent_of(&run, &agents) {
            Some(agent) => {
                let outcome = kept.replay.run(&run, agent).await;
                (!outcome.is_same()).then(|| outcome.to_string())
            }
            None => Some(no_agent(&run, &agents)),
        };
        failures.extend(why.map(|why| format!("{}: {why}", file.display())));
    }
    if failures.is_empty() {
        return Ok(());
    }
    let (differ, failures) = (failures.len(), failures.join("\n\n"));
    Err(failure(format!("{differ} of {number} kept runs do something else:\n\n{failures}")))
}

/// Returns the agent of a run.
pub(crate) fn agent_of<'a>(run: &Run, agents: &'a [Agent]) -> Option<&'a Agent> {
    agents.iter().find(|agent| agent.name() == run.agent_name())
}

pub(crate) fn no_agent(run: &Run, agents: &[Agent]) -> String {
    let names: Vec<_> = agents.iter().map(|agent| agent.name().unwrap_or("one without a name")).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    match run.agent_name() {
        Some(name) => format!("there is no agent `{name}`; the agents are: {names}"),
        None => format!("the run is of an agent without a name; the agents are: {names}"),
    }
}
