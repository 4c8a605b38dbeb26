//! The run of an agent that a call asks.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_channel::mpsc;
use futures_util::future::{Either, select};
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use super::inside::{Inside, OuterRun};
use crate::agent::emitter::EventEmitter;
use crate::agent::executor::{CallExecutor, Ending, Link};
use crate::agent::layers::Layers;
use crate::agent::question::Question;
use crate::agent::{AgentTool, RunDriver};
use crate::model::{ConversationId, ToolCall};
use crate::run::{Run, RunError, RunErrorKind, StopReason, Wait, WaitReason};
use crate::tool::{AgentQuestion, Asking, Attempt, Outcome, ToolContext, ToolError, ToolOutput, panic_text};

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
        }
    }

    /// Executes a call that asks the agent of a tool.
    pub(super) async fn execute(
        self,
        tool: &AgentTool,
        executor: &CallExecutor,
        call: ToolCall,
        attempt: Attempt,
        asking: Asking,
    ) -> Ending {
        let (sender, mut asked) = mpsc::channel(0);
        let suspended = CancellationToken::new();
        let scope = Arc::new(OnceLock::new());
        let link = Link { agent: sender, suspended: suspended.clone(), scope: Arc::clone(&scope) };
        let mut execution = pin!(executor.execute(call.clone(), attempt, Some(link), asking));
        let asked = match select(execution.as_mut(), asked.next()).await {
            // It has not asked: its arguments are wrong, or a layer of its set has refused it.
            Either::Left((execution, _)) => return Ending::Executed(execution),
            Either::Right((asked, _)) => asked,
        };
        if let Some(AgentQuestion { question, answer }) = asked {
            let outcome = match (self.is_too_deep(), scope.get().cloned()) {
                (None, Some(scope)) => match scope.instrument(self.begin(tool, question).drive()).await {
                    Driven::Ended(outcome) => outcome,
                    Driven::Panicked(panic) => {
                        Err(ToolError::panicked(&call.id, &format!("panicked: {}", panic_text(&*panic))))
                    }
                    Driven::Suspended(why, _) => {
                        suspended.cancel();
                        execution.await;
                        return Ending::Suspended { call, why };
                    }
                },
                (Some(error), _) => Err(error),
                (None, None) => Err(ToolError::not_executed("the agent was asked before its call began")),
            };
            // The call waits for it.
            let _ = answer.send(outcome);
        }
        Ending::Executed(execution.await)
    }

    /// Returns the error of a call that asks one level of agents too many.
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
        let driver = RunDriver::new(question.begin(false), Some(inside)).resumed_by_its_agent();
        AskedAgent { driver, tool: tool.clone(), by_tool, is_undo: self.is_undo }
    }
}

/// How far the run of an agent was driven.
pub(in crate::agent) enum Driven {
    /// To its end: this is the outcome of the call.
    Ended(Outcome),
    /// It cannot continue now, for this reason.
    Suspended(RunErrorKind, Box<AskedAgent>),
    /// To its end after a panic. Its calls are undone.
    Panicked(Box<dyn Any + Send>),
}

impl AskedAgent {
    /// Drives the run as far as possible.
    pub(in crate::agent) async fn drive(mut self) -> Driven {
        let driven = AssertUnwindSafe(self.drive_to_end()).catch_unwind().await;
        let (driven, panic) = match driven {
            Ok(driven) => (driven, None),
            // The call fails, and nothing else undoes the calls of its run.
            Err(panic) => (self.stop().await, Some(panic)),
        };
        match (driven, panic) {
            (Ok(_), Some(panic)) => Driven::Panicked(panic),
            (Ok(output), None) => Driven::Ended(self.finish(output)),
            (Err(why), _) => Driven::Suspended(why, Box::new(self)),
        }
    }

    /// Drives the run of a call that belongs to none to its end.
    pub(in crate::agent) async fn drive_alone(self) -> Outcome {
        match self.drive().await {
            Driven::Ended(outcome) => outcome,
            Driven::Panicked(panic) => resume_unwind(panic),
            // Nothing could continue the run.
            Driven::Suspended(why, mut asked) => {
                // The reason why it waits is the one that the model reads.
                let waits = asked.driver.run.waits();
                let _ = asked.stop().await;
                Err(failure(&asked.driver.into_error(why), &waits))
            }
        }
    }

    /// Drives the run to its end. The output is empty if the run stopped without an answer.
    async fn drive_to_end(&mut self) -> Result<ToolOutput, RunErrorKind> {
        let form = Arc::clone(&self.tool.form);
        let output = self.driver.drive_to_answer(|text| form.output(text), self.by_tool).await?;
        self.driver.commit().await?;
        Ok(output.unwrap_or_else(|| ToolOutput::text("")))
    }

    /// Stops the run and undoes its calls.
    async fn stop(&mut self) -> Result<ToolOutput, RunErrorKind> {
        self.driver.cancel();
        self.drive_to_end().boxed().await
    }

    /// Returns the outcome of a call that ends now, because its run is done, or the driver of a run that continues.
    pub(super) fn end_if(mut self, is_last: bool) -> Result<Outcome, Box<RunDriver>> {
        if !is_last {
            return Err(Box::new(self.driver));
        }
        let form = Arc::clone(&self.tool.form);
        match self.driver.read_answer(|text| form.output(text), self.by_tool) {
            Ok(Some(output)) => Ok(self.finish(output.unwrap_or_else(|| ToolOutput::text("")))),
            _ => Err(Box::new(self.driver)),
        }
    }

    /// Returns the outcome of a call whose run is done.
    fn finish(self, output: ToolOutput) -> Outcome {
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
        RunErrorKind::MaxCost { .. } | RunErrorKind::Budget { .. } => "it reached one of its limits",
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
