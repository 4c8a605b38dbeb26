//! One turn of the model, as it is recorded: whatever depends on more than the run is decided here, once.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::{join, ready};
use futures_util::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use tool_core::agent::{Ask, RunDriver};
use tool_core::layer::Part;
use tool_core::model::{AssistantMessage, ChatResponse, ModelError, ToolDefinition, ToolKind, ToolPolicy};
use tool_core::run::{Run, RunChanges, RunError, RunErrorKind, Step};
use tool_core::tool::{ToolError, ToolExecution};
use tool_core::{Agent, Event};

use crate::clock::now;
use crate::context::ContextTypes;
use crate::events::{EventTarget, Publisher, Publishing, Unfinished};
use crate::limit;
use crate::names::{JsonContext, Question, digest};
use crate::path::{Asked, call_ids, event_at, stream_name};
use crate::worker::ChangedTools;

/// The beginning of a run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Started {
    pub(crate) run: Run,
    /// The agent's tools, by name, with the hashes of their definitions.
    pub(crate) tools: BTreeMap<String, String>,
    pub(crate) at: u64,
    pub(crate) max_concurrent_calls: usize,
    /// The run is inside of another, for whose limits it does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_own_limits: bool,
}

/// The reason why a step of a run cannot be taken.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Obstacle {
    /// The outermost run fails, for this reason.
    Refused(String),
    /// The agent cannot be asked: its call, in the run at this depth, has an outcome.
    Ended(usize, Box<ToolExecution>),
}

/// The outcome of a step at the beginning or the end of an agent's run.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Inside {
    Started(Box<Started>),
    Obstacle(Obstacle),
    /// The answer was rejected, and the run continues.
    Rejected(RunChanges),
}

/// The tools of a worker, compared with those that a run started with.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tools {
    Same,
    /// The run fails, for this reason.
    Refused(String),
    /// The run continues with those that are the same.
    Changed(BTreeMap<String, String>),
}

/// The outcome of one turn.
#[derive(Serialize, Deserialize)]
pub(crate) struct TurnRecord {
    pub(crate) outcome: TurnOutcome,
    pub(crate) started: u64,
    pub(crate) finished: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TurnOutcome {
    Taken {
        changes: RunChanges,
        /// The reply of the model without its message, if there is one and there may be readers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply: Option<Box<ChatResponse>>,
        /// The tools that the reply calls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tools: Vec<CalledTool>,
        /// The names of all tools that were offered, if the reply calls another one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        offered: Vec<String>,
        /// A layer has failed, and the calls are not judged.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_unjudged: bool,
    },
    /// No request can be sent.
    Refused(Obstacle),
}

/// The part of a tool that the rules of a run need.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct CalledTool {
    pub(crate) name: String,
    pub(crate) hash: String,
    pub(crate) policy: ToolPolicy,
    #[serde(default)]
    pub(crate) kind: ToolKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) undo: Option<(String, ToolPolicy)>,
    /// The hash of the tool that undoes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) undo_hash: Option<String>,
}

impl CalledTool {
    /// Returns the definition that the rules of a run need: without parameters, but bound to the hash of the tool's own.
    pub(crate) fn definition(&self) -> ToolDefinition {
        let definition = ToolDefinition::new(&*self.name).with_description(&*self.hash);
        let definition = definition.with_policy(self.policy.clone()).with_kind(self.kind);
        match &self.undo {
            Some((undo, _)) => definition.with_undo(&**undo),
            None => definition,
        }
    }
}

/// An agent on this worker.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) agent: Agent,
    pub(crate) types: Arc<ContextTypes>,
    pub(crate) changed_tools: ChangedTools,
    pub(crate) max_bytes: usize,
    pub(crate) publisher: Option<Publisher>,
}

impl Model {
    /// Returns `true` if a layer sees this part of the run to which the path leads.
    pub(crate) fn has_layer_for(&self, path: &[Asked], part: Part) -> bool {
        let is_own = matches!(part, Part::Question | Part::Answer);
        let agents = (0..=path.len()).filter(|depth| !is_own || *depth == path.len());
        agents.filter_map(|depth| self.agent_at(&path[..depth])).any(|agent| agent.has_layer_for(part))
    }

    fn agent_at(&self, path: &[Asked]) -> Option<&Agent> {
        path.iter().try_fold(&self.agent, |agent, asked| Some(agent.agent_tool(&asked.agent)?.agent()))
    }

    /// Returns the beginning of a run, or an error if it is too large.
    fn started(&self, run: Run, agent: &Agent, has_own_limits: bool) -> Result<Started, String> {
        let (tools, max_concurrent_calls) = (hashes(agent), agent.max_concurrent_calls());
        let started = Started { run, tools, at: now(), max_concurrent_calls, has_own_limits };
        limit::check("the run with its history", &started, self.max_bytes)?;
        Ok(started)
    }

    /// Creates the run.
    pub(crate) fn start(
        &self,
        question: Question,
        history: Vec<tool_core::Message>,
    ) -> Result<Started, String> {
        let start = || self.start_run(question, history);
        catch_unwind(AssertUnwindSafe(start)).unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    fn start_run(&self, question: Question, history: Vec<tool_core::Message>) -> Result<Started, String> {
        let Question { question, conversation, context, .. } = question;
        let mut ask = self.agent.ask(question).history(history);
        if let Some(conversation) = conversation {
            ask = ask.conversation(conversation);
        }
        let run = self.types.apply_to_ask(ask, &context)?.start().into_run();
        self.started(run, &self.agent, false)
    }

    /// Creates the run of an agent that a call asks, which the path names last. If the run is done, returns the outcome of the call, whose
    /// run was created at this time.
    pub(crate) async fn ask_agent(&self, tree: &Tree<'_>, since: Option<u64>) -> Result<Inside, ModelError> {
        let Some((asked, outer)) = tree.path.split_last() else { return Err(ModelError::new(NO_RUN)) };
        let asking = async {
            let mut driver = match self.drive_inside(&Tree { path: outer, ..*tree }).await? {
                Ok(driver) => driver,
                Err(obstacle) => return Ok(Inside::Obstacle(obstacle)),
            };
            Ok(match (driver.inside(&asked.call, since.is_some()).await, tree.run()) {
                (Ok(Ok(inside)), Some(before)) => Inside::Rejected(inside.run().changes_since(before)),
                (Ok(Ok(inside)), None) => {
                    let (has_own_limits, agent) = (inside.has_own_limits(), inside.agent().clone());
                    let started = self.started(inside.into_run(), &agent, has_own_limits);
                    started.map_or_else(Inside::refused, |started| Inside::Started(started.into()))
                }
                (Ok(Err(execution)), _) => {
                    let since = since.unwrap_or_else(now);
                    let (started, took) =
                        (UNIX_EPOCH + Duration::from_micros(since), now().saturating_sub(since));
                    let execution = execution.with_timing(started, Duration::from_micros(took));
                    let execution = limit::limited(execution, self.max_bytes);
                    Inside::Obstacle(Obstacle::Ended(outer.len(), execution.into()))
                }
                (Err(error), _) => Inside::refused(error.to_string()),
            })
        };
        let asked = AssertUnwindSafe(asking).catch_unwind().await;
        asked.unwrap_or_else(|panic| Ok(Inside::refused(panicked(&*panic))))
    }

    /// Takes the next turn of a copy of a run. Fails if the model does. The time of the runs around it can be limited.
    pub(crate) async fn take_turn(
        &self,
        tree: &Tree<'_>,
        events: Option<&EventTarget>,
        unfinished: &Unfinished,
        time_left: Option<Duration>,
    ) -> Result<TurnRecord, ModelError> {
        let started = now();
        let Some(run) = tree.run() else { return Err(ModelError::new(NO_RUN)) };
        let turn = run.turns() + 1;
        let publisher = self.publisher.as_ref().zip(events);
        let publishing = publisher.map(|(publisher, target)| {
            let begins = event_at(tree.path, Event::turn_started(turn, run.messages().len()));
            publisher.begin(target, stream_name(tree.path, "turn", turn), Some(begins))
        });
        let asked = self.ask_model(tree, run, publishing.as_ref(), events.is_some());
        // The engine would repeat a step that panics without end.
        let asked = AssertUnwindSafe(asked).catch_unwind();
        let asked = match time_left {
            Some(left) => tokio::time::timeout(left, asked).await,
            None => Ok(asked.await),
        };
        let asked = match asked {
            Ok(Ok(asked)) => asked,
            Ok(Err(panic)) => Ok(TurnOutcome::Refused(Obstacle::Refused(panicked(&*panic)))),
            // The run around it ends with the time that is counted.
            Err(_) => Ok(TurnOutcome::taken(run.changes_since(run))),
        };
        if let Some(publishing) = publishing {
            unfinished.add(publishing);
        }
        let outcome = asked?;
        let outcome = match limit::check("the reply of the model", &outcome, self.max_bytes) {
            Ok(()) => outcome,
            Err(reason) => TurnOutcome::Refused(Obstacle::Refused(reason)),
        };
        Ok(TurnRecord { outcome, started, finished: now() })
    }

    /// Compares the tools of this worker with those that a run started with. Fails if the run is to wait for others.
    pub(crate) fn compare_tools(&self, started_with: &BTreeMap<String, String>) -> Result<Tools, ModelError> {
        let present = hashes(&self.agent);
        if present == *started_with {
            return Ok(Tools::Same);
        }
        let reason = difference(started_with, &present);
        match self.changed_tools {
            ChangedTools::Fail => Ok(Tools::Refused(reason)),
            ChangedTools::Wait => Err(ModelError::new(reason)),
            ChangedTools::Continue => Ok(Tools::Changed(present)),
        }
    }

    /// Resumes a copy of the outermost run with those of the agent's tools that it may have, or returns why it cannot.
    fn resume(&self, tree: &Tree<'_>) -> Result<Result<Ask, Obstacle>, ModelError> {
        let mut ask = self.agent.resume(tree.outermost.clone());
        match self.compare_tools(tree.started_with)? {
            Tools::Same => {}
            Tools::Refused(reason) => return Ok(Err(Obstacle::Refused(reason))),
            Tools::Changed(present) => {
                let is_same = |name: &str| tree.started_with.get(name) == present.get(name);
                let asked = tree.path.first().filter(|asked| !is_same(&asked.agent));
                let mut calls = tree.outermost.current_calls();
                if let Some((call, _)) = asked.and_then(|asked| calls.find(|(call, _)| call.id == asked.call))
                {
                    let reason = format!("the agent `{}` has changed since it was asked", call.name);
                    let execution = ToolExecution::new(call.clone(), Err(ToolError::not_executed(&reason)));
                    return Ok(Err(Obstacle::Ended(0, execution.into())));
                }
                ask = ask.only_tools(self.agent.tools().clone().filter(|tool| is_same(tool.name())));
            }
        }
        Ok(self.types.apply_to_ask(ask, tree.context).map_err(Obstacle::Refused))
    }

    /// Returns the driver of a copy of the run to which the path leads.
    async fn drive_inside(&self, tree: &Tree<'_>) -> Result<Result<RunDriver, Obstacle>, ModelError> {
        match self.resume(tree)? {
            Ok(ask) => Ok(descend(ask.start(), tree.path).await),
            Err(obstacle) => Ok(Err(obstacle)),
        }
    }

    async fn ask_model(
        &self,
        tree: &Tree<'_>,
        before: &Run,
        publishing: Option<&Publishing>,
        has_readers: bool,
    ) -> Result<TurnOutcome, ModelError> {
        let ask = match self.resume(tree)? {
            Ok(ask) => ask,
            Err(obstacle) => return Ok(TurnOutcome::Refused(obstacle)),
        };
        let (driver, mut events) = match publishing {
            Some(_) => {
                let (driver, events) = ask.start_streamed();
                (driver, Some(events))
            }
            None => (ask.start(), None),
        };
        let driver = match descend(driver, tree.path).await {
            Ok(driver) => driver,
            Err(obstacle) => return Ok(TurnOutcome::Refused(obstacle)),
        };
        let taken = self.drive_turn(driver, before, has_readers);
        let Some((publishing, events)) = publishing.zip(events.take()) else { return taken.await };
        let publish = events.for_each(|event| {
            // The run itself sends the others, once.
            if is_delta(&event) {
                publishing.emit(event);
            }
            ready(())
        });
        // The events end with the driver.
        let (taken, ()) = join(taken, publish).await;
        taken
    }

    async fn drive_turn(
        &self,
        mut driver: RunDriver,
        before: &Run,
        has_readers: bool,
    ) -> Result<TurnOutcome, ModelError> {
        let ended = |driver: &RunDriver| TurnOutcome::taken(driver.run().changes_since(before));
        let cannot = |reason| TurnOutcome::Refused(Obstacle::Refused(reason));
        match driver.next().await {
            Ok(Step::CallModel(_)) => {}
            // A layer has answered the question, or ended the run.
            Ok(_) => return Ok(ended(&driver)),
            Err(error) => return Ok(cannot(refused(&error)?)),
        }
        // The tools of a provider are known only now.
        let is_unknown_agent = |one: &&ToolDefinition| {
            one.kind() == ToolKind::Agent && driver.agent().agent_tool(one.name()).is_none()
        };
        if let Some(tool) = driver.tools().definitions().iter().find(is_unknown_agent) {
            return Ok(cannot(provided_agent_refused(tool.name())));
        }
        let response = match driver.call_model().await {
            Ok(response) => response,
            // A layer or the limit of time has ended the request.
            Err(error)
                if matches!(error.kind(), RunErrorKind::Step(_))
                    && !driver.run().changes_since(before).is_empty() =>
            {
                return Ok(ended(&driver));
            }
            Err(error) => return Ok(cannot(refused(&error)?)),
        };
        let reply = has_readers.then(|| {
            let mut reply = Box::new(response.clone());
            let calls = std::mem::take(&mut reply.message.tool_calls);
            reply.message = AssistantMessage::default().with_tool_calls(calls);
            reply
        });
        let mut is_unjudged = false;
        if let Err(error) = driver.record_response(response).await {
            match refused(&error) {
                Ok(reason) => return Ok(cannot(reason)),
                // The model is not asked again.
                Err(_) if driver.run().turns() > before.turns() => is_unjudged = true,
                Err(error) => return Err(error),
            }
        }
        let mut names: Vec<_> = driver.run().current_calls().map(|(call, _)| call.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let tools: Vec<_> = names.iter().filter_map(|name| called_tool(&driver, name)).collect();
        let all = || driver.tools().definitions().iter().map(|one| one.name().to_owned()).collect();
        let offered = if tools.len() < names.len() { all() } else { Vec::new() };
        let changes = driver.run().changes_since(before);
        Ok(TurnOutcome::Taken { changes, reply, tools, offered, is_unjudged })
    }

    /// Judges something of a copy of a run. Fails if a layer does.
    pub(crate) async fn judge(&self, tree: &Tree<'_>, subject: Subject) -> Result<Judged, ModelError> {
        let Some(before) = tree.run() else { return Err(ModelError::new(NO_RUN)) };
        let mut driver = match self.drive_inside(tree).await? {
            Ok(driver) => driver,
            Err(obstacle) => return Ok(Judged::Refused(obstacle)),
        };
        let judging = AssertUnwindSafe(async {
            match subject {
                Subject::DecidedCalls => driver.judge_decided_calls().await,
                Subject::Outcome(execution) => driver.record_result(*execution).await,
                Subject::Next => driver.next().await.map(drop),
            }
        });
        let reason = match judging.catch_unwind().await {
            Ok(Ok(())) => return Ok(Judged::Changed(driver.run().changes_since(before))),
            Ok(Err(error)) => refused(&error)?,
            Err(panic) => panicked(&*panic),
        };
        Ok(Judged::Refused(Obstacle::Refused(reason)))
    }
}

/// A run of which a step is taken, among those around it.
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
    /// Returns the run to which the path leads.
    pub(crate) fn run(&self) -> Option<&'a Run> {
        self.outermost.inner_run_at(call_ids(self.path))
    }
}

/// The error of a path that leads nowhere, which a driver never takes.
const NO_RUN: &str = "the call of the agent is not open";

/// Returns the driver of the run to which the path leads.
async fn descend(mut driver: RunDriver, path: &[Asked]) -> Result<RunDriver, Obstacle> {
    for (depth, asked) in path.iter().enumerate() {
        driver = match driver.inside(&asked.call, false).await {
            Ok(inside) => inside.map_err(|execution| Obstacle::Ended(depth, execution))?,
            Err(error) => return Err(Obstacle::Refused(error.to_string())),
        };
    }
    Ok(driver)
}

impl Inside {
    fn refused(reason: String) -> Self {
        Self::Obstacle(Obstacle::Refused(reason))
    }
}

impl TurnOutcome {
    /// A turn without calls.
    fn taken(changes: RunChanges) -> Self {
        let (tools, offered) = (Vec::new(), Vec::new());
        Self::Taken { changes, reply: None, tools, offered, is_unjudged: false }
    }
}

/// Returns the hashes of an agent's tools. That of a tool that is an agent covers the tools of this agent.
fn hashes(agent: &Agent) -> BTreeMap<String, String> {
    let definitions = agent.tools().definitions().iter().chain(agent.undo_tools().definitions());
    let hash = |one: &ToolDefinition| match agent.agent_tool(one.name()) {
        Some(tool) => digest(&(one.hash(), hashes(tool.agent()))),
        None => one.hash(),
    };
    definitions.map(|one| (one.name().to_owned(), hash(one))).collect()
}

fn called_tool(driver: &RunDriver, name: &str) -> Option<CalledTool> {
    let offered = driver.tools();
    let definition = offered.get(name)?.definition();
    let undo = definition.undo().and_then(|undo| {
        let tool = driver.agent().undo_tools().get(undo).or_else(|| offered.get(undo))?;
        Some(tool.definition())
    });
    Some(CalledTool {
        name: name.to_owned(),
        hash: definition.hash(),
        policy: definition.policy().clone(),
        kind: definition.kind(),
        undo: undo.map(|undo| (undo.name().to_owned(), undo.policy().clone())),
        undo_hash: undo.map(ToolDefinition::hash),
    })
}

/// What is judged in a step of its own.
#[derive(Clone)]
pub(crate) enum Subject {
    /// The calls that people have decided about.
    DecidedCalls,
    /// The outcome of a call, which is recorded as well.
    Outcome(Box<ToolExecution>),
    /// What precedes the next step: a question, or an answer that is an output.
    Next,
}

/// What layers decided in a step of its own.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Judged {
    Changed(RunChanges),
    Refused(Obstacle),
}

fn is_delta(event: &Event) -> bool {
    if let Event::Agent { event, .. } = event {
        return is_delta(event);
    }
    matches!(
        event,
        Event::Text(_)
            | Event::Reasoning(_)
            | Event::Refusal(_)
            | Event::CallAnnounced { .. }
            | Event::Arguments { .. }
    )
}

/// Returns why a step cannot be taken. Fails if it can be repeated: the model or a layer has failed.
fn refused(error: &RunError) -> Result<String, ModelError> {
    match error.kind() {
        RunErrorKind::Model(error) if error.is_permanent() => Ok(error.to_string()),
        RunErrorKind::Model(error) => Err(ModelError::new(error.to_string())),
        RunErrorKind::Layer { error: cause, .. } if !cause.to_string().starts_with("it panicked") => {
            Err(ModelError::new(error.to_string()))
        }
        _ => Ok(error.to_string()),
    }
}

/// Describes why an agent of a provider cannot be asked.
fn provided_agent_refused(tool: &str) -> String {
    format!(
        "the tool `{tool}` of a provider is an agent, which another worker could not find for its next step; \
         add it to the agent with `.tool(..)`"
    )
}

/// Describes a panic of the agent's model, hooks, predicates or providers.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the agent panicked: {}", text.unwrap_or("no text"))
}

/// Describes how the tools of a worker differ from those that a run started with.
fn difference(before: &BTreeMap<String, String>, present: &BTreeMap<String, String>) -> String {
    let list =
        |names: Vec<&String>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let missing: Vec<_> = before.keys().filter(|name| !present.contains_key(*name)).collect();
    let new: Vec<_> = present.keys().filter(|name| !before.contains_key(*name)).collect();
    let is_changed = |(name, hash): &(&String, &String)| present.get(*name).is_some_and(|now| now != *hash);
    let changed: Vec<_> = before.iter().filter(is_changed).map(|(name, _)| name).collect();
    let parts = [("missing", missing), ("new", new), ("changed", changed)];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<_> = parts.map(|(what, names)| format!("{what}: {}", list(names))).collect();
    format!(
        "the worker has other tools than the run started with ({}); deploy it under another URI, \
         or set `.changed_tools(..)`",
        parts.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_each_tool() {
        let tools = |list: &[(&str, &str)]| {
            list.iter()
                .map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let text = difference(
            &tools(&[("a", "1"), ("b", "1"), ("c", "1")]),
            &tools(&[("b", "2"), ("c", "1"), ("d", "1")]),
        );
        assert!(text.contains("(missing: `a`; new: `d`; changed: `b`)"), "{text}");
    }
}
