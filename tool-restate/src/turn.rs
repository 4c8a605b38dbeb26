//! One turn of the model, as it is recorded: whatever depends on more than the run is decided here, once.
//!
//! What layers see is recorded with each turn, because a replay on a worker with other layers must take the same way.

use futures_util::StreamExt;
use futures_util::future::{join, join_all, ready};
use serde::{Deserialize, Serialize};
use tool_core::Event;
use tool_core::agent::RunDriver;
use tool_core::engine::{AgentExt, AskExt, LayerSight, RunPath};
use tool_core::model::{ModelError, ToolDefinition};
use tool_core::provider::ToolKind;
use tool_core::run::{Run, RunErrorKind, Step};
use tool_core::store::RunChanges;

use crate::clock::now;
use crate::events::{Publishing, Unfinished};
use crate::limit;
use crate::names::EventTarget;
use crate::path::{event_at, stream_name};
use crate::step::{Failure, Obstacle, Steps, Tree, record};
use crate::tools::{CalledTool, Deployed, called_tool};

/// The outcome of one turn, or the reason why no request can be sent.
#[derive(Serialize, Deserialize)]
pub(crate) struct TurnRecord {
    pub(crate) outcome: Result<Turn, Obstacle>,
    pub(crate) started: u64,
    pub(crate) finished: u64,
}

/// A turn.
#[derive(Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) changes: RunChanges,
    /// The tools that the reply calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<CalledTool>,
    /// The names of all tools that were offered, if the reply calls another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) offered: Vec<String>,
    /// That of the agent, if the run was handed off to it since the turn before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deployed: Option<Deployed>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) sees: LayerSight,
}

impl Turn {
    /// A turn without calls.
    fn without_calls(changes: RunChanges) -> Self {
        let (tools, offered) = (Vec::new(), Vec::new());
        Self { changes, tools, offered, deployed: None, sees: LayerSight::default() }
    }
}

impl Steps {
    /// Takes the next turns of copies of runs at the same time, each within the time that the runs around it have left. Those that are missing
    /// in the outcome have to be taken again. Fails if all models do.
    pub(crate) async fn take_turns(
        &self,
        turns: &[Tree<'_>],
        events: Option<&EventTarget>,
        unfinished: &Unfinished,
    ) -> Result<Vec<Option<TurnRecord>>, ModelError> {
        let taking = turns.iter().map(|tree| self.take_turn(tree, events, unfinished));
        let taken = join_all(taking).await;
        let has_one = taken.iter().any(Result::is_ok);
        let mut bytes = 0;
        // If only some of the models fail, these are asked again afterwards, and so are those whose replies are too large together with the
        // others.
        let records = taken.into_iter().map(|taken| match taken {
            Err(error) if !has_one => Err(error),
            taken => Ok(taken.ok().filter(|record| {
                let size = limit::size(record);
                let is_stored = bytes == 0 || bytes + size <= self.settings.max_bytes;
                bytes += if is_stored { size } else { 0 };
                is_stored
            })),
        });
        records.collect()
    }

    /// Takes the next turn of a copy of a run. Fails if the model does.
    async fn take_turn(
        &self,
        tree: &Tree<'_>,
        events: Option<&EventTarget>,
        unfinished: &Unfinished,
    ) -> Result<TurnRecord, ModelError> {
        let started = now();
        let publisher = self.settings.publisher.as_ref().zip(events).zip(tree.run().ok());
        let publishing = publisher.map(|((publisher, target), run)| {
            let turn = run.turns() + 1;
            let begins = event_at(tree.path, Event::turn_started(turn, run.messages().len()));
            publisher.begin(target, stream_name(tree.path, "turn", turn), Some(begins))
        });
        let asked = record(self.ask_model(tree, publishing.as_ref(), events.is_some())).await;
        if let Some(publishing) = publishing {
            unfinished.add(publishing);
        }
        let outcome = asked?.map(|taken| Turn { sees: self.sees(tree), ..taken });
        let checked = limit::check("the reply of the model", &outcome, self.settings.max_bytes);
        let outcome = outcome.and_then(|taken| checked.map(|()| taken).map_err(Obstacle::Refused));
        Ok(TurnRecord { outcome, started, finished: now() })
    }

    async fn ask_model(
        &self,
        tree: &Tree<'_>,
        publishing: Option<&Publishing>,
        has_readers: bool,
    ) -> Result<Turn, Failure> {
        // The driver of the run itself knows only its own limit.
        let path: RunPath = tree.path.iter().map(|asked| asked.call.clone()).collect();
        let limit = tree.outermost.engine_view().limit_at(&path);
        let remaining = limit.filter(|(limited, _)| *limited != path).map(|(_, left)| left);
        let (before, ask) = (tree.run()?, self.resume(tree)?);
        let (driver, events) = match has_readers {
            true => {
                let (driver, events) = ask.start_streamed();
                (driver, Some(events))
            }
            false => (ask.start(), None),
        };
        let driver = tree.descend(driver).await?;
        let taken = async {
            let taken = drive_turn(driver, before);
            let Some(left) = remaining else { return taken.await };
            // If it is up, the run around it ends with the time that is counted.
            let taken = tokio::time::timeout(left, taken).await;
            taken.unwrap_or_else(|_| {
                Ok(Turn::without_calls(before.engine_view().recording_copy().changes().without_time()))
            })
        };
        let Some(events) = events else { return taken.await };
        let publish = events.for_each(|event| {
            // The run itself sends the others, once.
            if is_delta(innermost(&event)) {
                publishing.into_iter().for_each(|one| one.emit(event.clone()));
            }
            ready(())
        });
        // The events end with the driver.
        join(taken, publish).await.0
    }
}

async fn drive_turn(mut driver: RunDriver, before: &Run) -> Result<Turn, Failure> {
    let ended = |driver: &RunDriver| Turn::without_calls(driver.run().changes().without_time());
    let Step::CallModel(_) = driver.next().await? else {
        // A layer has answered the question, or ended the run.
        return Ok(ended(&driver));
    };
    // Recorded before the model is asked, so that a repeated step asks no layer again and makes no second summary.
    let has_more = |count: fn(&Run) -> usize| count(driver.run()) > count(before);
    if has_more(|run| run.verdicts().len()) || has_more(|run| run.compactions().len()) {
        return Ok(ended(&driver));
    }
    // The tools of a provider are known only now.
    let is_unknown_agent = |one: &&ToolDefinition| {
        one.kind() == ToolKind::Agent && driver.agent().agent_tool(one.name()).is_none()
    };
    if let Some(tool) = driver.tools().definitions().iter().find(is_unknown_agent) {
        return Err(provided_agent_refused(tool.name()).into());
    }
    let response = match driver.call_model().await {
        Ok(response) => response,
        // A layer or the limit of time has ended the request, or the run was compacted, because it was too long.
        Err(error) if matches!(error.kind(), RunErrorKind::Step(_)) && !driver.run().changes().is_empty() => {
            return Ok(ended(&driver));
        }
        Err(error) => return Err(error.into()),
    };
    match driver.record_response(response).await.map_err(Failure::from) {
        // The model is not asked again, and the layers judge the calls in a step of their own.
        Err(Failure::Repeated(_)) if driver.run().turns() > before.turns() => {}
        recorded => recorded?,
    }
    let mut names: Vec<_> = driver.run().current_calls().map(|(call, _)| call.name.clone()).collect();
    names.sort_unstable();
    names.dedup();
    let tools: Vec<_> = names.iter().filter_map(|name| called_tool(&driver, name)).collect();
    let all = || driver.tools().definitions().iter().map(|one| one.name().to_owned()).collect();
    let offered = if tools.len() < names.len() { all() } else { Vec::new() };
    let changes = driver.run().changes().without_time();
    let handoff = before.handoffs().last().filter(|handoff| handoff.turn() == before.turns());
    let deployed = handoff.map(|_| Deployed::of(driver.agent()));
    Ok(Turn { tools, offered, deployed, ..Turn::without_calls(changes) })
}

fn is_default(sees: &LayerSight) -> bool {
    *sees == LayerSight::default()
}

/// Returns the event of the run inside of which it happened.
fn innermost(event: &Event) -> &Event {
    match event {
        Event::Agent { event, .. } => innermost(event),
        event => event,
    }
}

fn is_delta(event: &Event) -> bool {
    matches!(
        event,
        Event::Text(_)
            | Event::Reasoning(_)
            | Event::Refusal(_)
            | Event::CallAnnounced { .. }
            | Event::Arguments { .. }
    )
}

/// Describes why an agent of a provider cannot be asked.
fn provided_agent_refused(tool: &str) -> String {
    format!(
        "the tool `{tool}` of a provider is an agent, which another worker could not find for its next step; \
         add it to the agent with `.tools(..)`"
    )
}
