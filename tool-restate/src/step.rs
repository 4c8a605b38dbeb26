//! What the recorded steps of a run have in common, and those at the beginning and the end of a run.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use tool_core::agent::{Ask, RunDriver};
use tool_core::engine::{AgentExt, AskExt, LayerSight, Panicked, RunDriverExt, panic_text};
use tool_core::layer::LayerPhase;
use tool_core::model::ModelError;
use tool_core::run::{Run, RunError, RunErrorKind};
use tool_core::signatures::Handoff;
use tool_core::store::RunChanges;
use tool_core::tool::{ToolError, ToolExecution};
use tool_core::{Agent, ToolCall};

use crate::clock::now;
use crate::limit;
use crate::names::{History, Identity, JsonContext, Question};
use crate::path::{Asked, call_ids};
use crate::settings::Settings;
use crate::tools::{ChangedTools, Deployed, Tools, difference};

/// The beginning of a run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Started {
    pub(crate) run: Run,
    #[serde(flatten)]
    pub(crate) deployed: Deployed,
    pub(crate) at: u64,
    /// The run is inside of another, for whose limits it does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_own_limits: bool,
    /// The execution of the call that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<Box<ToolExecution>>,
}

/// The reason why a step of a run cannot be taken.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Obstacle {
    /// The outermost run fails, for this reason.
    Refused(String),
    /// The agent of the run has panicked, with this text.
    Panicked(String),
    /// The run has no money left, for this reason, and goes on when an operator lets it.
    Unpaid(String),
    /// The agent cannot be asked, or has answered: its call, in the run at this depth, has an outcome.
    Ended(usize, Box<ToolExecution>),
}

/// The reason why a step has no outcome.
pub(crate) enum Failure {
    Obstacle(Obstacle),
    /// The step is repeated.
    Repeated(ModelError),
}

impl From<Obstacle> for Failure {
    fn from(obstacle: Obstacle) -> Self {
        Self::Obstacle(obstacle)
    }
}

/// A reason for which the outermost run fails.
impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Obstacle(Obstacle::Refused(reason))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error.kind() {
            RunErrorKind::Model(cause) if !cause.is_permanent() => {
                Self::Repeated(ModelError::new(cause.to_string()))
            }
            RunErrorKind::Model(cause) => cause.to_string().into(),
            RunErrorKind::Layer { error: cause, .. } if !cause.is::<Panicked>() => {
                Self::Repeated(ModelError::new(error.to_string()))
            }
            RunErrorKind::RunSetup(_) | RunErrorKind::Store(_) => {
                Self::Repeated(ModelError::new(error.to_string()))
            }
            RunErrorKind::MaxCost { .. } | RunErrorKind::Budget { .. } | RunErrorKind::BudgetInUse { .. } => {
                Self::Obstacle(Obstacle::Unpaid(error.to_string()))
            }
            _ => error.to_string().into(),
        }
    }
}

/// What is recorded of a step. Nothing is if it fails with an error, and is repeated.
pub(crate) type Recorded<T> = Result<Result<T, Obstacle>, ModelError>;

/// Takes a step. The engine would repeat one that panics without end.
pub(crate) async fn record<T>(step: impl Future<Output = Result<T, Failure>>) -> Recorded<T> {
    let taken = AssertUnwindSafe(step).catch_unwind().await;
    match taken.unwrap_or_else(|panic| Err(Obstacle::Panicked(panic_text(&*panic).to_owned()).into())) {
        Ok(outcome) => Ok(Ok(outcome)),
        Err(Failure::Obstacle(obstacle)) => Ok(Err(obstacle)),
        Err(Failure::Repeated(error)) => Err(error),
    }
}

/// What is judged in a step of its own.
#[derive(Clone)]
pub(crate) enum Judged {
    /// The outcome of a call, which is recorded as well.
    Outcome(Box<ToolExecution>),
    /// This call, which searches for tools, and is executed as well.
    Search(String),
    /// What precedes the next step: an answer that is an output, or calls that were decided about.
    Next,
    /// Results that layers have not seen. What has happened is reported as well.
    Results,
    /// Nothing, but tools learn which of their calls will not be continued.
    GivenUp,
}

/// A run that takes a step, among the runs around it.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'a> {
    pub(crate) outermost: &'a Run,
    /// The calls that lead to the run.
    pub(crate) path: &'a [Asked],
    /// The tools of the outermost agent when its run started.
    pub(crate) started_with: &'a BTreeMap<String, String>,
    pub(crate) context: &'a JsonContext,
}

impl<'a> Tree<'a> {
    /// Returns the run to which the path leads. A driver takes no other path.
    pub(crate) fn run(&self) -> Result<&'a Run, Failure> {
        let run = self.outermost.engine_view().inner_run_at(call_ids(self.path));
        run.ok_or_else(|| "the call of the agent is not open".to_owned().into())
    }

    /// Returns the driver of the run, from that of the outermost one.
    pub(crate) async fn descend(&self, outermost: RunDriver) -> Result<RunDriver, Failure> {
        let driver = descend(outermost, self.path).await?;
        // Layers that record get what they do not know.
        let recorded = self.run()?.engine_view().recorded().cloned();
        Ok(recorded.into_iter().fold(driver, RunDriver::with_reported))
    }

    /// Returns the names that lead to the agent of the run, or to the one that undoes its next call: of tools that ask agents or hand off to
    /// them.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for depth in 0..=self.path.len() {
            if let Some(run) = self.outermost.engine_view().inner_run_at(call_ids(&self.path[..depth])) {
                let handoffs = run.engine_view().handoffs_before_undone().unwrap_or(run.handoffs().len());
                names.extend(run.handoffs()[..handoffs].iter().map(|handoff| handoff.agent().to_owned()));
            }
            names.extend(self.path.get(depth).map(|asked| asked.agent.clone()));
        }
        names
    }
}

/// Takes the recorded steps of an agent's runs on this worker.
#[derive(Clone)]
pub(crate) struct Steps {
    pub(crate) agent: Agent,
    /// The hashes of its tools, because each step compares them.
    pub(crate) hashes: Arc<BTreeMap<String, String>>,
    pub(crate) settings: Arc<Settings>,
}

impl Steps {
    /// Returns what layers see of the outcomes of a run's calls.
    pub(crate) fn sees(&self, tree: &Tree<'_>) -> LayerSight {
        let names = tree.names();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let has_layer_for = |phase| {
            let agents =
                (0..=names.len()).filter_map(|end| self.agent.agent_at(names[..end].iter().copied()));
            agents.into_iter().any(|agent| agent.has_layer_for(phase))
        };
        let [answers, outputs, records] =
            [LayerPhase::Answer, LayerPhase::Output, LayerPhase::Record].map(has_layer_for);
        LayerSight { answers, outputs, records }
    }

    /// Returns the beginning of a run, or an error if it is too large.
    fn started(&self, started: Started) -> Result<Started, String> {
        limit::check("the run with its history", &started, self.settings.max_bytes)?;
        Ok(started)
    }

    /// Creates the run.
    pub(crate) fn start(&self, question: Question, history: Option<History>) -> Result<Started, String> {
        let start = || self.start_run(question, history);
        catch_unwind(AssertUnwindSafe(start)).unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    /// Returns a run that has nothing but the identity of one.
    pub(crate) fn identified(&self, Identity { run, user, conversation }: Identity) -> Run {
        let mut ask = self.agent.ask("").run_id(run);
        if let Some(user) = user {
            ask = ask.user(user);
        }
        if let Some(conversation) = conversation {
            ask = ask.conversation(conversation);
        }
        ask.start().into_run()
    }

    fn start_run(&self, question: Question, history: Option<History>) -> Result<Started, String> {
        let Question { question, user, conversation, context, .. } = question;
        let mut ask = self.agent.ask(question);
        if let Some(user) = user {
            ask = ask.user(user);
        }
        if let Some(conversation) = conversation {
            ask = ask.conversation(conversation);
        }
        let mut driver = self.settings.types.apply_to_ask(ask, &context)?.start();
        if let Some(History { messages, stored_len, summary }) = history {
            driver.insert_conversation(&messages, stored_len, summary);
        }
        let (deployed, has_own_limits, waiting) = (Deployed::of(&self.agent), false, None);
        self.started(Started { run: driver.into_run(), deployed, at: now(), has_own_limits, waiting })
    }

    /// Creates the run of an agent that a call asks, which the path names last, unless the call has an outcome.
    pub(crate) async fn begin_agent(&self, tree: Tree<'_>) -> Recorded<Box<Started>> {
        let beginning = async {
            let (call, mut outer) = self.driver_around(&tree).await?;
            let begun = outer.begin_agent(call).await?;
            let (inside, waiting) = begun.map_err(|execution| self.ended(&tree, *execution))?;
            let (deployed, has_own_limits) = (Deployed::of(inside.agent()), inside.has_own_limits());
            let (run, waiting) = (inside.into_run(), Some(waiting.into()));
            Ok(self.started(Started { run, deployed, at: now(), has_own_limits, waiting })?.into())
        };
        record(beginning).await
    }

    /// Ends the call of an agent whose run is done, which the path names last, unless the answer is rejected and the run continues.
    pub(crate) async fn end_agent(&self, tree: Tree<'_>) -> Recorded<RunChanges> {
        let ending = async {
            let (call, mut outer) = self.driver_around(&tree).await?;
            let ended = outer.end_agent(call).await?;
            let inside = ended.map_err(|execution| self.ended(&tree, *execution))?;
            Ok(inside.run().changes().without_time())
        };
        record(ending).await
    }

    /// Returns the last call of the path, and the driver of its run.
    async fn driver_around<'a>(&self, tree: &Tree<'a>) -> Result<(&'a str, RunDriver), Failure> {
        let (asked, outer) = tree.path.split_last().ok_or("no agent is asked".to_owned())?;
        Ok((&asked.call, descend(self.resume(tree)?.start(), outer).await?))
    }

    fn ended(&self, tree: &Tree<'_>, execution: ToolExecution) -> Obstacle {
        let execution = limit::limited(execution, self.settings.max_bytes);
        Obstacle::Ended(tree.path.len() - 1, execution.into())
    }

    /// Judges something of a copy of a run. Fails if a layer does.
    pub(crate) async fn judge(&self, tree: Tree<'_>, subject: Judged) -> Recorded<RunChanges> {
        let judging = async {
            let mut driver = tree.descend(self.resume(&tree)?.start()).await?;
            match subject {
                Judged::Outcome(execution) => driver.record_result(*execution).await?,
                Judged::Search(call) => driver.search(&call).await?,
                Judged::Next => {
                    for call in self.changed_calls(&tree)? {
                        driver.record_result(call).await?;
                    }
                    driver.judge_before_step().await?;
                }
                Judged::Results => driver.judge_results().await?,
                Judged::GivenUp => driver.give_up().await,
            }
            driver.report_finished().await?;
            Ok(driver.run().changes().without_time())
        };
        record(judging).await
    }

    /// Compares the tools of this worker with those that a run started with. Fails if the run is to wait for others.
    pub(crate) fn compare_tools(&self, started_with: &BTreeMap<String, String>) -> Result<Tools, ModelError> {
        let present = &*self.hashes;
        if present == started_with {
            return Ok(Tools::Same);
        }
        let reason = difference(started_with, present);
        match self.settings.changed_tools {
            ChangedTools::Fail => Ok(Tools::Refused(reason)),
            ChangedTools::Wait => Err(ModelError::new(reason)),
            ChangedTools::Continue => Ok(Tools::Changed(present.clone())),
        }
    }

    /// Returns the outcomes of calls that have waited, maybe for days, and whose tools have changed meanwhile. Those of agents inside are
    /// not resumed at all.
    fn changed_calls(&self, tree: &Tree<'_>) -> Result<Vec<ToolExecution>, Failure> {
        let Tools::Changed(present) = self.compare_tools(tree.started_with).map_err(Failure::Repeated)?
        else {
            return Ok(Vec::new());
        };
        let (names, run) = (tree.names(), tree.run()?);
        let is_changed = |call: &&ToolCall| {
            let tool = names.first().unwrap_or(&call.name);
            let before = tree.started_with.get(tool);
            before.is_some() && before != present.get(tool)
        };
        let changed = run.engine_view().unjudged_calls().filter(is_changed).map(|call| {
            let reason = format!("the tool `{}` has changed since the call was approved", call.name);
            ToolExecution::new(call.clone(), Err(ToolError::not_executed(&reason)))
        });
        Ok(changed.collect())
    }

    /// Resumes a copy of the outermost run with the tools of the agent that it may have.
    pub(crate) fn resume(&self, tree: &Tree<'_>) -> Result<Ask, Failure> {
        let mut ask = self.agent.resume(tree.outermost.engine_view().recording_copy());
        match self.compare_tools(tree.started_with).map_err(Failure::Repeated)? {
            Tools::Same => {}
            Tools::Refused(reason) => return Err(reason.into()),
            Tools::Changed(present) => {
                let is_same = |name: &str| tree.started_with.get(name) == present.get(name);
                // The first agent on the way covers the others.
                let handoffs = tree.outermost.engine_view().handoffs_before_undone().unwrap_or(usize::MAX);
                let handoff = tree.outermost.handoffs().iter().take(handoffs).next();
                let asked = tree.path.first();
                let asked = asked.filter(|asked| !is_same(handoff.map_or(&asked.agent, Handoff::agent)));
                let mut calls = tree.outermost.current_calls().map(|(call, _)| call);
                if let Some(call) = asked.and_then(|asked| calls.find(|call| call.id == asked.call)) {
                    let name = &call.name;
                    let error = match tree.outermost.engine_view().inner_run_at([&*call.id]) {
                        None => ToolError::not_executed(&format!(
                            "the agent `{name}` has changed since it was asked"
                        )),
                        Some(_) => ToolError::failed(format!(
                            "the agent `{name}` has changed and cannot continue; what its calls have done so far remains"
                        )),
                    };
                    let execution = ToolExecution::new(call.clone(), Err(error));
                    return Err(Obstacle::Ended(0, execution.into()).into());
                }
                ask = ask.only_tools(self.agent.tools().clone().filter(|tool| is_same(tool.name())));
            }
        }
        Ok(self.settings.types.apply_to_ask(ask, tree.context)?.remote())
    }
}

/// Returns the driver of the run to which the path leads.
async fn descend(mut driver: RunDriver, path: &[Asked]) -> Result<RunDriver, Failure> {
    for (depth, asked) in path.iter().enumerate() {
        let lent = driver.descend(&asked.call).await?;
        driver = lent.map_err(|execution| Obstacle::Ended(depth, execution))?;
    }
    Ok(driver)
}

/// Describes a panic of the agent's model, hooks, predicates or providers.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> String {
    agent_panicked(panic_text(panic))
}

pub(crate) fn agent_panicked(text: &str) -> String {
    format!("the agent panicked: {text}")
}
