//! One turn of the model, as it is recorded: whatever depends on more than the run is decided here, once.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::future::{join, ready};
use futures_util::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use tool_core::agent::{Ask, RunDriver};
use tool_core::model::{AssistantMessage, ChatResponse, ModelError, ToolDefinition, ToolKind, ToolPolicy};
use tool_core::run::{Run, RunChanges, RunError, RunErrorKind, Step};
use tool_core::tool::ToolExecution;
use tool_core::{Agent, Event};

use crate::clock::now;
use crate::context::ContextTypes;
use crate::events::{EventTarget, Publisher, Publishing, Unfinished};
use crate::limit;
use crate::names::{JsonContext, Question};
use crate::worker::{ChangedTools, agent_tool_refused};

/// The beginning of a run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Started {
    pub(crate) run: Run,
    /// The agent's tools, by name, with the hashes of their definitions.
    pub(crate) tools: BTreeMap<String, String>,
    pub(crate) at: u64,
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
    Refused(String),
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
    fn hashes(&self) -> BTreeMap<String, String> {
        let definitions =
            self.agent.tools().definitions().iter().chain(self.agent.undo_tools().definitions());
        definitions.map(|one| (one.name().to_owned(), one.hash())).collect()
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
        let started = Started { run, tools: self.hashes(), at: now() };
        limit::check("the run with its history", &started, self.max_bytes)?;
        Ok(started)
    }

    /// Takes the next turn of a copy of the run. Fails if the model does.
    pub(crate) async fn take_turn(
        &self,
        run: Run,
        started_with: &BTreeMap<String, String>,
        context: &JsonContext,
        events: Option<&EventTarget>,
        unfinished: &Unfinished,
    ) -> Result<TurnRecord, ModelError> {
        let started = now();
        let turn = run.turns() + 1;
        let publisher = self.publisher.as_ref().zip(events);
        let publishing = publisher.map(|(publisher, target)| {
            publisher.begin(target, format!("turn-{turn}"), Some((turn, run.messages().len())))
        });
        let asked = self.ask_model(run, started_with, context, publishing.as_ref(), events.is_some());
        let asked = AssertUnwindSafe(asked);
        // The engine would repeat a step that panics without end.
        let asked =
            asked.catch_unwind().await.unwrap_or_else(|panic| Ok(TurnOutcome::Refused(panicked(&*panic))));
        if let Some(publishing) = publishing {
            unfinished.add(publishing);
        }
        let outcome = asked?;
        let outcome = match limit::check("the reply of the model", &outcome, self.max_bytes) {
            Ok(()) => outcome,
            Err(reason) => TurnOutcome::Refused(reason),
        };
        Ok(TurnRecord { outcome, started, finished: now() })
    }

    /// Compares the tools of this worker with those that a run started with. Fails if the run is to wait for others.
    pub(crate) fn compare_tools(&self, started_with: &BTreeMap<String, String>) -> Result<Tools, ModelError> {
        let present = self.hashes();
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

    /// Resumes a copy of the run with those of the agent's tools that the run may have, or returns why it cannot.
    fn resume(
        &self,
        run: Run,
        started_with: &BTreeMap<String, String>,
        context: &JsonContext,
    ) -> Result<Result<Ask, String>, ModelError> {
        let mut ask = self.agent.resume(run);
        match self.compare_tools(started_with)? {
            Tools::Same => {}
            Tools::Refused(reason) => return Ok(Err(reason)),
            Tools::Changed(present) => {
                let is_same =
                    |tool: &ToolDefinition| started_with.get(tool.name()) == present.get(tool.name());
                ask = ask.only_tools(self.agent.tools().clone().filter(is_same));
            }
        }
        Ok(self.types.apply_to_ask(ask, context))
    }

    async fn ask_model(
        &self,
        run: Run,
        started_with: &BTreeMap<String, String>,
        context: &JsonContext,
        publishing: Option<&Publishing>,
        has_readers: bool,
    ) -> Result<TurnOutcome, ModelError> {
        let before = run.clone();
        let ask = match self.resume(run, started_with, context)? {
            Ok(ask) => ask,
            Err(reason) => return Ok(TurnOutcome::Refused(reason)),
        };
        let (driver, mut events) = match publishing {
            Some(_) => {
                let (driver, events) = ask.start_streamed();
                (driver, Some(events))
            }
            None => (ask.start(), None),
        };
        let taken = self.drive_turn(driver, &before, has_readers);
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
        let ended = |driver: &RunDriver| TurnOutcome::Taken {
            changes: driver.run().changes_since(before),
            reply: None,
            tools: Vec::new(),
            offered: Vec::new(),
            is_unjudged: false,
        };
        match driver.next().await {
            Ok(Step::CallModel(_)) => {}
            // A layer has answered the question, or ended the run.
            Ok(_) => return Ok(ended(&driver)),
            Err(error) => return Ok(TurnOutcome::Refused(refused(&error)?)),
        }
        // The tools of a provider are known only now.
        if let Some(tool) = driver.tools().iter().find(|tool| tool.definition().kind() == ToolKind::Agent) {
            return Ok(TurnOutcome::Refused(agent_tool_refused(tool.definition().name())));
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
            Err(error) => return Ok(TurnOutcome::Refused(refused(&error)?)),
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
                Ok(reason) => return Ok(TurnOutcome::Refused(reason)),
                // The model is not asked again.
                Err(_) if driver.run().turns() > before.turns() => is_unjudged = true,
                Err(error) => return Err(error),
            }
        }
        let mut names: Vec<_> = driver.run().current_calls().map(|(call, _)| call.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let tools: Vec<_> = names.iter().filter_map(|name| self.called_tool(driver.tools(), name)).collect();
        let all = || driver.tools().definitions().iter().map(|one| one.name().to_owned()).collect();
        let offered = if tools.len() < names.len() { all() } else { Vec::new() };
        let changes = driver.run().changes_since(before);
        Ok(TurnOutcome::Taken { changes, reply, tools, offered, is_unjudged })
    }

    /// Judges something of a copy of the run. Fails if a layer does.
    pub(crate) async fn judge(
        &self,
        run: Run,
        started_with: &BTreeMap<String, String>,
        context: &JsonContext,
        subject: Subject,
    ) -> Result<Judged, ModelError> {
        let before = run.clone();
        let mut driver = match self.resume(run, started_with, context)? {
            Ok(ask) => ask.start(),
            Err(reason) => return Ok(Judged::Refused(reason)),
        };
        let judging = AssertUnwindSafe(async {
            match subject {
                Subject::DecidedCalls => driver.judge_decided_calls().await,
                Subject::Outcome(execution) => driver.record_result(*execution).await,
                Subject::Next => driver.next().await.map(drop),
            }
        });
        match judging.catch_unwind().await {
            Ok(Ok(())) => Ok(Judged::Changed(driver.run().changes_since(&before))),
            Ok(Err(error)) => Ok(Judged::Refused(refused(&error)?)),
            Err(panic) => Ok(Judged::Refused(panicked(&*panic))),
        }
    }

    fn called_tool(&self, offered: &tool_core::ToolSet, name: &str) -> Option<CalledTool> {
        let definition = offered.get(name)?.definition();
        let undo = definition.undo().and_then(|undo| {
            let tool = self.agent.undo_tools().get(undo).or_else(|| offered.get(undo))?;
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
    Refused(String),
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
