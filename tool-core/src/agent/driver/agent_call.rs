//! The run of an agent that a call asks.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::inside::{Inside, OuterRun};
use super::steps::{Phase, Work};
use crate::agent::emitter::EventEmitter;
use crate::agent::layers::Layers;
use crate::agent::question::Question;
use crate::agent::{AgentTool, RunDriver};
use crate::model::{ConversationId, ToolCall};
use crate::run::{Run, RunError, RunErrorKind, StopReason, Wait, WaitReason};
use crate::tool::{Outcome, ToolContext, ToolError, ToolOutput};

/// A call that asks an agent, with what the run of the agent takes from the run around it.
pub(in crate::agent) struct AgentCall {
    pub(super) context: ToolContext,
    pub(super) cancellation: CancellationToken,
    /// The layers around the outer run, and the name of the call.
    pub(super) layers: Option<(Arc<Layers>, String)>,
    /// The conversation of the outer run.
    pub(super) conversation: Option<ConversationId>,
    /// The time limit of the call, which is one of the agent's run.
    pub(super) timeout: Option<Duration>,
    /// The run around the agent's, and its listeners.
    pub(super) outer: Option<(OuterRun, EventEmitter)>,
    /// The run that the call continues.
    pub(super) continued: Option<Run>,
    /// The call undoes the calls of the run that it started.
    pub(super) is_undo: bool,
    /// Others record each step of the tree.
    pub(super) is_elsewhere: bool,
    /// A run whose calls are all parked waits, instead of being held until they are due.
    pub(super) leaves_parked: bool,
}

/// An agent that a call has asked.
pub(in crate::agent) struct AskedAgent {
    pub(super) driver: RunDriver,
    tool: AgentTool,
    /// The agent gives its answer by calling a tool.
    by_tool: bool,
    is_undo: bool,
}

impl AgentCall {
    /// Returns a call that belongs to no run.
    pub(in crate::agent) fn alone(context: &ToolContext, layers: Option<(Arc<Layers>, String)>) -> Self {
        Self {
            context: context.clone(),
            cancellation: context.cancellation().clone(),
            layers,
            conversation: context.get().cloned(),
            timeout: None,
            outer: None,
            continued: None,
            is_undo: false,
            is_elsewhere: false,
            leaves_parked: false,
        }
    }

    /// Returns the error of a call that exceeds the allowed depth of agents.
    pub(super) fn is_too_deep(&self) -> Option<ToolError> {
        let outer = self.outer.as_ref().filter(|_| self.continued.is_none());
        outer.filter(|(outer, _)| outer.levels == 0)?;
        Some(ToolError::failed("agents are nested too deeply here; answer without this one"))
    }

    /// Asks the agent, or continues its run.
    pub(in crate::agent) fn begin(self, tool: &AgentTool, text: String) -> AskedAgent {
        let of_continued = self.continued.as_ref().and_then(|run| run.conversation().cloned());
        let is_new = self.continued.is_none();
        let mut question = match self.continued {
            Some(run) => Question::resume(tool.agent().clone(), run),
            None => tool.question(text, self.timeout),
        };
        question.tools.context = tool.context_inside(&self.context);
        question.rules.cancellation = Some(self.cancellation);
        (question.rules.is_elsewhere, question.rules.leaves_parked) = (self.is_elsewhere, self.leaves_parked);
        let outer = self.conversation.filter(|_| is_new && tool.has_conversation);
        let new = outer.map(|outer| outer.of_agent(tool.definition.name()));
        if let Some(own) = of_continued.or(new) {
            question.tools.context = question.tools.context.with(own);
        }
        let by_tool = tool.form.constrain(&mut question);
        if let Some((run, emitter)) = &self.outer {
            question.emitter = question.emitter.inside(emitter, &run.call, tool.streams_text);
        }
        let inside = Inside {
            outer: self.outer.map(|(run, _)| run),
            layers: self.layers,
            has_own_limits: tool.has_own_limits,
            has_conversation: tool.has_conversation,
        };
        let driver = RunDriver::new(question.begin(false), Some(inside));
        AskedAgent { driver, tool: tool.clone(), by_tool, is_undo: self.is_undo }
    }
}

/// How far an agent's part of a call is. Between two phases, the runs around it are saved.
pub(super) enum AgentPhase {
    /// Its run takes a step.
    Driving(Phase),
    /// Its answer is saved, and this is the output.
    Answered(ToolOutput),
}

/// What an agent has done, or needs before it goes on.
pub(super) enum AgentWork {
    /// The runs around it have to be saved, before it continues with this phase.
    Save(AgentPhase),
    /// These calls of its run are to be executed.
    Calls(Vec<ToolCall>),
    /// Nothing can be done before somebody decides, or time passes.
    Waiting,
    /// The run is done. The output is empty if it stopped without an answer.
    Done(ToolOutput),
}

impl AskedAgent {
    /// Works until the runs around it have to be saved, or others have to act.
    pub(super) async fn work(&mut self, phase: AgentPhase) -> Result<AgentWork, RunErrorKind> {
        let mut phase = match phase {
            AgentPhase::Driving(phase) => phase,
            AgentPhase::Answered(output) => {
                self.driver.end_commit().await?;
                return Ok(AgentWork::Done(output));
            }
        };
        let form = Arc::clone(&self.tool.form);
        loop {
            phase = match self.driver.work(phase).await? {
                Work::Save(next) => return Ok(AgentWork::Save(AgentPhase::Driving(next))),
                Work::Asked => Phase::Beginning,
                Work::Calls(calls) => return Ok(AgentWork::Calls(calls)),
                Work::Waiting => return Ok(AgentWork::Waiting),
                Work::Done => match self.driver.read_answer(|text| form.output(text), self.by_tool)? {
                    // The model answers again.
                    None => Phase::Beginning,
                    Some(output) => {
                        self.driver.begin_commit().await?;
                        let output = output.unwrap_or_else(|| ToolOutput::text(""));
                        return Ok(AgentWork::Save(AgentPhase::Answered(output)));
                    }
                },
            };
        }
    }

    /// Drives the run of a call that belongs to none to its end.
    pub(in crate::agent) async fn drive_alone(mut self) -> Outcome {
        let driven = AssertUnwindSafe(self.drive()).catch_unwind().await;
        let (driven, panic) = match driven {
            Ok(driven) => (driven, None),
            // The call fails, and nothing else undoes the calls of its run.
            Err(panic) => (self.stop().await, Some(panic)),
        };
        match (driven, panic) {
            (Ok(_), Some(panic)) => resume_unwind(panic),
            (Ok(output), None) => self.finish(output),
            // Nothing could continue the run.
            (Err(why), _) => {
                // The reason why it waits is the one that the model reads.
                let waits = self.driver.run.waits();
                let _ = self.stop().await;
                Err(failure(&self.driver.into_error(why), &waits))
            }
        }
    }

    /// Drives the run to its end.
    async fn drive(&mut self) -> Result<ToolOutput, RunErrorKind> {
        let mut phase = AgentPhase::Driving(Phase::Beginning);
        loop {
            phase = match self.work(phase).await? {
                AgentWork::Save(next) => {
                    self.driver.store_run().await?;
                    next
                }
                AgentWork::Calls(calls) => {
                    self.driver.execute_calls(calls).await?;
                    AgentPhase::Driving(Phase::Beginning)
                }
                AgentWork::Waiting => return Err(RunErrorKind::Waiting),
                AgentWork::Done(output) => return Ok(output),
            };
        }
    }

    /// Stops the run and undoes its calls.
    async fn stop(&mut self) -> Result<ToolOutput, RunErrorKind> {
        self.driver.cancel();
        self.drive().boxed().await
    }

    /// Returns the outcome of a call whose run is done, or the driver of the run if the answer is rejected.
    pub(super) fn end(mut self) -> Result<Outcome, Box<RunDriver>> {
        let form = Arc::clone(&self.tool.form);
        match self.driver.read_answer(|text| form.output(text), self.by_tool) {
            Ok(Some(output)) => Ok(self.finish(output.unwrap_or_else(|| ToolOutput::text("")))),
            _ => Err(Box::new(self.driver)),
        }
    }

    /// Returns the outcome of a call whose run is done.
    pub(super) fn finish(self, output: ToolOutput) -> Outcome {
        if self.is_undo {
            return undone(&self.driver);
        }
        let answer = self.driver.into_answer().map_err(|error| failure(&error, &[]))?;
        match answer.finish_reason().is_truncated() {
            true => self.tool.form.truncated(output, answer.text()),
            false => Ok(output),
        }
    }
}

/// Returns the error of a call whose inner run ended without an answer, as the outer model reads it.
fn failure(error: &RunError, waits: &[Wait]) -> ToolError {
    let why = match error.kind() {
        RunErrorKind::Stopped(reason) => match reason {
            StopReason::Cancelled => "it was cancelled",
            StopReason::Refused(_) => "it refused to answer",
            StopReason::ToolFailed { .. } => "one of its tools failed",
            StopReason::WrongAnswer(_) => "its answers did not have the requested form",
            reason if reason.is_limit() => "it reached one of its limits",
            _ => "it stopped early",
        },
        RunErrorKind::Waiting => match waits.first().map(|wait| &wait.reason) {
            Some(WaitReason::Approval(_)) => "one of its calls needs the approval of a person",
            Some(WaitReason::Answer(_)) => "one of its calls has to ask the user",
            Some(WaitReason::CallerResult(_)) => "one of its calls is executed elsewhere",
            Some(WaitReason::Until(_)) | None => "one of its calls has to wait",
        },
        RunErrorKind::MaxCost { .. } | RunErrorKind::Budget { .. } | RunErrorKind::BudgetInUse { .. } => {
            "it reached one of its limits"
        }
        RunErrorKind::Model(_) => "its model is not available",
        _ => "it cannot be asked now",
    };
    ToolError::failed(format!("the agent gave no answer: {why}"))
}

/// Returns the outcome of undoing the calls of an inner run.
fn undone(driver: &RunDriver) -> Result<ToolOutput, ToolError> {
    let executions = driver.run().undo_executions();
    // What layers made of an outcome changes nothing about the effect.
    let failed = executions.iter().filter(|execution| execution.original_outcome().is_err()).count();
    match failed {
        0 => Ok(ToolOutput::text(format!("calls undone: {}", executions.len()))),
        _ => Err(ToolError::failed(format!(
            "calls that could not be undone: {failed} of {}",
            executions.len()
        ))),
    }
}
