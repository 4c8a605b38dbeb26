//! What the present program does with the runs that wait, have failed or were interrupted, before it is deployed.

use std::fmt;

use serde_json::{Value, json};
use tool_core::Agent;
use tool_core::engine::{self, ReplayEnd, ReplayParts};
use tool_core::memory::{RunFilter, RunStatus};
use tool_core::run::{Run, Wait};
use tool_core::store::RunStore;
use tool_core::tool::ToolErrorKind;

use crate::error::{Result, failure};
use crate::kept::{KeptRuns, agent_of, no_agent};
use crate::replay::{Difference, Replay, ReplayOutcome, describe_wait};

/// Says of each run that waits, has failed or was interrupted what the present agents do with it. Nothing is executed, sent or stored: the store has the
/// same content afterwards.
///
/// Runs come from a store, or from a [directory](KeptRuns) of exported ones. Each is of the agent of its name; `replay` stands in for the
/// application's own code: layers that judge are asked. Run it with the new program on a copy of the store, or on the store of production itself, which is only read.
///
/// ```
/// use tool_core::memory::InMemoryStore;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, ToolSet, tool, tools};
/// use tool_testing::{RehearsedOutcome, rehearse};
///
/// #[tool("Deletes the account", needs_approval)]
/// fn delete(name: String) {}
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tool_testing::Result {
/// let store = InMemoryStore::new();
/// let desk = |tools: ToolSet, model| Agent::builder(model).name("desk").tools(tools).run_store(store.clone()).build();
/// let model = ScriptedModel::new().calls("delete", r#"{"name": "ada"}"#);
/// desk(tools![delete], model)?.ask("Delete Ada").await.unwrap_err();
///
/// rehearse(&store, [desk(tools![delete], ScriptedModel::new())?]).await?.check()?;
/// let rehearsal = rehearse(&store, [desk(tools![], ScriptedModel::new())?]).await?;
/// assert!(matches!(&rehearsal.runs[0].outcome, RehearsedOutcome::Stranded(_)));
/// assert!(rehearsal.check().is_err());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Fails if the runs cannot be listed or read. One that has an unknown format is stranded.
pub async fn rehearse(
    source: &(impl RunSource + ?Sized),
    agents: impl IntoIterator<Item = Agent>,
) -> Result<Rehearsal> {
    rehearse_with(source, agents, &Replay::new()).await
}

/// Like [`rehearse`], with what stands in for the application's own code.
///
/// # Errors
///
/// Fails for the same reasons.
pub async fn rehearse_with(
    source: &(impl RunSource + ?Sized),
    agents: impl IntoIterator<Item = Agent>,
    replay: &Replay,
) -> Result<Rehearsal> {
    let agents: Vec<_> = agents.into_iter().collect();
    let parts = replay.parts()?;
    let mut runs = Vec::new();
    for loaded in source.load_open().await? {
        runs.push(match loaded {
            Ok(run) => {
                let outcome = match agent_of(&run, &agents) {
                    Some(agent) => rehearse_run(&run, agent, replay, &parts).await,
                    None => RehearsedOutcome::Stranded(no_agent(&run, &agents)),
                };
                let agent = run.agent_name().map(str::to_owned);
                RehearsedRun { id: run.id().to_string(), agent, outcome }
            }
            Err(Unreadable { id, agent, why }) => {
                RehearsedRun { id, agent, outcome: RehearsedOutcome::Stranded(why) }
            }
        });
    }
    runs.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(Rehearsal { runs })
}

async fn rehearse_run(run: &Run, agent: &Agent, replay: &Replay, parts: &ReplayParts) -> RehearsedOutcome {
    let next = engine::rehearse(agent, run, parts.clone()).await;
    if let ReplayEnd::Failed { text, .. } = next.end {
        return RehearsedOutcome::Stranded(text);
    }
    if let Some(reason) = next.run.stop_reason().filter(|_| run.stop_reason().is_none() && !run.is_undoing())
    {
        return RehearsedOutcome::Stranded(format!("it ends: {reason}"));
    }
    if let Some(why) = refused(run, &next.run) {
        return RehearsedOutcome::Stranded(why);
    }
    let before = run.waits();
    let again = next.waits.into_iter().find(|wait| !before.iter().any(|one| one.id == wait.id));
    if let Some(wait) = again {
        return RehearsedOutcome::WaitsAgain(Box::new(wait));
    }
    match replay.run(run, agent).await {
        ReplayOutcome::Diverged(difference) => RehearsedOutcome::Differs(difference),
        ReplayOutcome::CannotReplay(why) => RehearsedOutcome::Stranded(why),
        _ => RehearsedOutcome::GoesOn,
    }
}

/// Returns why an open call of a run cannot be executed any more.
fn refused(before: &Run, now: &Run) -> Option<String> {
    for (call, _) in before.current_calls().filter(|(_, outcome)| outcome.is_none()) {
        let finished = now.tool_executions().iter().find(|one| one.call().id == call.id);
        let current = || now.current_calls().find(|(one, _)| one.id == call.id)?.1;
        let error = finished.or_else(current).and_then(|execution| execution.error());
        if let Some(error) = error
            && matches!(error.kind(), ToolErrorKind::UnknownTool | ToolErrorKind::InvalidArguments)
        {
            return Some(format!("the call {} of `{}` is refused: {error}", call.id, call.name));
        }
    }
    let inside = before.inner_runs().zip(now.inner_runs());
    inside.filter_map(|(before, now)| refused(before.run(), now.run())).next()
}

/// What the present program does with runs.
#[derive(Debug)]
#[must_use = "check it or print it"]
#[non_exhaustive]
pub struct Rehearsal {
    /// The runs, by their ids.
    pub runs: Vec<RehearsedRun>,
}

/// A run, and what the present program does with it.
#[derive(Debug)]
#[non_exhaustive]
pub struct RehearsedRun {
    /// The id of the run.
    pub id: String,
    /// The name of its agent, if it has one.
    pub agent: Option<String>,
    /// What becomes of it.
    pub outcome: RehearsedOutcome,
}

/// What the present program does with a run that has not ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum RehearsedOutcome {
    /// It goes on from where it is, once it is resumed or what it waits for is decided.
    GoesOn,
    /// It waits for something that it has not waited for, such as an approval that has lapsed with the definition of its tool.
    WaitsAgain(Box<Wait>),
    /// What has happened before would be otherwise today.
    Differs(Box<Difference>),
    /// It cannot go on, and why: its tool is gone or refuses its arguments, its agent or layer is gone, or its format is unknown.
    Stranded(String),
}

impl RehearsedOutcome {
    /// Returns the name of the outcome, such as `goes on`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::GoesOn => "goes on",
            Self::WaitsAgain(_) => "waits again",
            Self::Differs(_) => "differs",
            Self::Stranded(_) => "stranded",
        }
    }

    /// Returns why the run does not just go on.
    fn why(&self) -> Option<String> {
        match self {
            Self::GoesOn => None,
            Self::WaitsAgain(wait) => Some(format!("{} (call {})", describe_wait(wait), wait.path)),
            Self::Differs(difference) => Some(difference.to_string()),
            Self::Stranded(why) => Some(why.clone()),
        }
    }

    fn is_failure(&self) -> bool {
        matches!(self, Self::Differs(_) | Self::Stranded(_))
    }
}

impl Rehearsal {
    /// Fails if a run is stranded or differs. One that waits again is no failure: somebody decides again.
    ///
    /// # Errors
    ///
    /// The error names these runs.
    pub fn check(&self) -> Result {
        let failed: Vec<_> = self.runs.iter().filter(|run| run.outcome.is_failure()).collect();
        if failed.is_empty() {
            return Ok(());
        }
        let lines: Vec<_> = failed.iter().map(ToString::to_string).collect();
        let (failed, all) = (failed.len(), self.runs.len());
        Err(failure(format!("{failed} of {all} runs cannot go on as they are:\n{}", lines.join("\n"))))
    }

    /// Returns the report as JSON: an object with one list, `runs`, of objects with `id`, `agent`, `outcome`, and `why` unless the run goes on.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let runs = self.runs.iter().map(|run| {
            let mut one = json!({ "id": run.id, "agent": run.agent, "outcome": run.outcome.as_str() });
            if let Some(why) = run.outcome.why() {
                one["why"] = why.into();
            }
            one
        });
        json!({ "runs": runs.collect::<Vec<_>>() })
    }

    /// Returns the report in the form of JUnit, which services of continuous integration show: a test case for each run.
    #[must_use]
    pub fn to_junit(&self) -> String {
        let failures = self.runs.iter().filter(|run| run.outcome.is_failure()).count();
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"rehearsal\" tests=\"{}\" failures=\"{failures}\">\n",
            self.runs.len()
        );
        for run in &self.runs {
            let (id, agent) = (escape(&run.id), escape(run.agent.as_deref().unwrap_or_default()));
            xml.push_str(&format!("  <testcase name=\"{id}\" classname=\"{agent}\">"));
            let outcome = run.outcome.as_str();
            let why = escape(&run.outcome.why().unwrap_or_default());
            if run.outcome.is_failure() {
                xml.push_str(&format!("<failure message=\"{outcome}\">{why}</failure>"));
            } else if !why.is_empty() {
                xml.push_str(&format!("<system-out>{outcome}: {why}</system-out>"));
            }
            xml.push_str("</testcase>\n");
        }
        xml + "</testsuite>\n"
    }
}

/// Returns a text as XML can contain it.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(one),
            one if one.is_control() || matches!(one, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            one => escaped.push(one),
        }
    }
    escaped
}

impl fmt::Display for RehearsedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        if let Some(agent) = &self.agent {
            write!(f, " of `{agent}`")?;
        }
        write!(f, ": {}", self.outcome.as_str())?;
        self.outcome.why().map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

/// One line a run, and the numbers of outcomes.
impl fmt::Display for Rehearsal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in &self.runs {
            writeln!(f, "{run}")?;
        }
        for outcome in ["goes on", "waits again", "differs", "stranded"] {
            let number = self.runs.iter().filter(|run| run.outcome.as_str() == outcome).count();
            write!(f, "{}{outcome}: {number}", if outcome == "goes on" { "" } else { ", " })?;
        }
        writeln!(f)
    }
}

/// A run that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    id: String,
    agent: Option<String>,
    why: String,
}

/// Where runs are rehearsed from: each [`RunStore`], and [`KeptRuns`].
pub trait RunSource: sealed::Source {}

impl<S: RunStore + ?Sized> RunSource for S {}

impl RunSource for KeptRuns {}

mod sealed {
    use tool_core::run::Run;

    use super::Unreadable;

    pub trait Source {
        /// Loads the runs that have not ended and that nobody drives.
        fn load_open(&self) -> impl Future<Output = crate::error::Result<Vec<Result<Run, Unreadable>>>>;
    }
}

impl<S: RunStore + ?Sized> sealed::Source for S {
    async fn load_open(&self) -> Result<Vec<std::result::Result<Run, Unreadable>>> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| failure(error.to_string());
        let mut runs = Vec::new();
        for listed in self.list_runs(&RunFilter::new()).await.map_err(failed)? {
            if matches!(listed.status, RunStatus::Finished | RunStatus::RunningElsewhere) {
                continue;
            }
            match self.load_run(&listed.id).await {
                Ok(run) => runs.extend(run.map(Ok)),
                Err(error) => {
                    let (id, agent) = (listed.id, listed.agent);
                    runs.push(Err(Unreadable { id, agent, why: format!("it cannot be read: {error}") }));
                }
            }
        }
        for unreadable in self.unreadable_runs().await.map_err(failed)? {
            let why = format!("it cannot be read: {unreadable}");
            runs.push(Err(Unreadable { id: unreadable.id, agent: None, why }));
        }
        Ok(runs)
    }
}

impl sealed::Source for KeptRuns {
    async fn load_open(&self) -> Result<Vec<std::result::Result<Run, Unreadable>>> {
        let mut runs = Vec::new();
        for (file, run) in self.read()? {
            match run {
                Ok(run) if run.is_done() => {}
                Ok(run) => runs.push(Ok(run)),
                Err(error) => {
                    let (id, why) = (file.display().to_string(), error.to_string());
                    runs.push(Err(Unreadable { id, agent: None, why }));
                }
            }
        }
        Ok(runs)
    }
}
