//! The run of an agent that a call asks.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::{mem, slice};

use futures_util::FutureExt;

use super::held::HasDriver;
use crate::agent::executor::CallExecutor;
use crate::agent::layers::Layers;
use crate::agent::performer::AskedInside;
use crate::agent::question::AskedQuestion;
use crate::agent::{AgentTool, RunDriver};
use crate::model::{ConversationId, ToolCall};
use crate::run::{MAX_DEPTH, Run, RunError, RunErrorKind, StopReason, Wait, WaitReason};
use crate::tool::{Outcome, ToolContext, ToolError, ToolOutput};

/// An agent that a call has asked.
pub(in crate::agent) struct AskedAgent {
    pub(super) driver: RunDriver,
    tool: AgentTool,
    is_undo: bool,
}

impl RunDriver {
    /// Asks the agent of a call, or continues a copy of the run that the call began.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`ask_agent`](Self::ask_agent).
    pub(super) fn ask_agent_apart(
        &self,
        executor: &CallExecutor,
        call: &ToolCall,
        text: String,
    ) -> Result<AskedAgent, ToolError> {
        let continued = self.run.open_inner_run(&call.id).map(Run::recording_copy);
        self.ask_agent(executor, call, text, continued)
    }

    /// Asks the agent of a call, or continues the run that the call began, which is part of this one.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`ask_agent`](Self::ask_agent).
    pub(super) fn ask_agent_inside(
        &mut self,
        executor: &CallExecutor,
        call: &ToolCall,
        text: String,
    ) -> Result<AskedAgent, ToolError> {
        executor.agent_of(call).ok_or_else(ToolError::interrupted)?;
        let path = slice::from_ref(&call.id);
        // A copy, because a layer is asked that can panic.
        let continued = self.run.inner_run_slot(path).map(|run| Run::clone(run));
        let mut asked = self.ask_agent(executor, call, text, continued)?;
        match self.change_run().inner_run_slot(path) {
            Some(run) => *run = mem::replace(&mut asked.driver.run, placeholder()),
            None => {
                let run = mem::replace(&mut asked.driver.run, placeholder());
                let begun = self.run.add_inner_run(call, asked.tool.has_own_limits, *run);
                begun.map_err(ToolError::failed)?;
            }
        }
        Ok(asked)
    }

    /// Asks the agent of a call, or continues the run that the call began. The run takes what it has from this one.
    ///
    /// # Errors
    ///
    /// Fails if the call exceeds the allowed depth of agents, or if it is none of an agent any more.
    fn ask_agent(
        &self,
        executor: &CallExecutor,
        call: &ToolCall,
        text: String,
        continued: Option<Run>,
    ) -> Result<AskedAgent, ToolError> {
        let tool = &executor.agent_of(call).ok_or_else(ToolError::interrupted)?.repeating_as(self.agent());
        let is_new = continued.is_none();
        let outer = self.performer.asked.as_ref().and_then(|asked| asked.levels);
        let max_depth = self.run.limits().max_depth.min(MAX_DEPTH);
        let levels = outer.map_or(max_depth, |levels| levels.saturating_sub(1));
        if levels == 0 && continued.is_none() {
            return Err(ToolError::failed("agents are nested too deeply here; answer without this one"));
        }
        let conversation = match &continued {
            Some(run) => run.conversation().cloned(),
            None => {
                let own = self.run.conversation().filter(|_| tool.has_conversation);
                own.map(|own| own.of_agent(tool.definition.name()))
            }
        };
        let mut question = match continued {
            Some(run) => tool.resume(run, &executor.context),
            None => tool.question(text, executor.timeout, &executor.context),
        };
        if let Some(conversation) = conversation {
            question.tools.context = question.tools.context.with(conversation);
        }
        let rules = &mut question.rules;
        rules.cancellation = Some(executor.cancellation.child_token());
        (rules.is_remote, rules.returns_when_parked) =
            (self.question.is_remote, self.question.returns_when_parked);
        question.emitter = question.emitter.inside(&self.performer.emitter, call, tool.streams_text);
        let asked = AskedInside { call: Some(call.clone()), levels: Some(levels), ..tool.asked() };
        let layers = Some(&*self.performer.layers);
        let asked = AskedAgent {
            is_undo: self.run.is_undoing(),
            ..AskedAgent::new(tool, question, asked, layers, &call.name)
        };
        if let Some(stand_in) = self.agent().0.stand_in.as_ref().filter(|_| is_new) {
            stand_in.begin_inside(self.run.id(), &call.id, asked.driver.run.id());
        }
        Ok(asked)
    }
}

impl HasDriver for AskedAgent {
    fn driver(&mut self) -> &mut RunDriver {
        &mut self.driver
    }
}

impl AskedAgent {
    fn new(
        tool: &AgentTool,
        question: AskedQuestion,
        asked: AskedInside,
        layers: Option<&Layers>,
        called_as: &str,
    ) -> Self {
        let mut begun = question.begin(false);
        begun.performer = begun.performer.asked(asked, layers, called_as);
        Self { driver: RunDriver::new(begun), tool: tool.clone(), is_undo: false }
    }

    /// Asks the agent of a call with this name that belongs to no run.
    pub(in crate::agent) fn alone(
        tool: &AgentTool,
        text: String,
        context: &ToolContext,
        layers: Option<&Layers>,
        called_as: &str,
    ) -> Self {
        let mut question = tool.question(text, None, context);
        question.rules.cancellation = Some(context.cancellation().clone());
        if let Some(conversation) = context.get::<ConversationId>().filter(|_| tool.has_conversation) {
            let own = conversation.of_agent(tool.definition.name());
            question.tools.context = question.tools.context.with(own);
        }
        Self::new(tool, question, tool.asked(), layers, called_as)
    }

    /// Reads the answer of a run that is done. Returns `None` if the model answers again; the output is empty if the run stopped without an
    /// answer.
    pub(super) fn read_answer(&mut self) -> Result<Option<ToolOutput>, RunErrorKind> {
        let form = Arc::clone(&self.tool.form);
        let output = self.driver.read_answer(|text| form.output(text))?;
        Ok(output.map(|output| output.unwrap_or_else(|| ToolOutput::text(""))))
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
        loop {
            self.driver.drive_tree().await?;
            if let Some(output) = self.read_answer()? {
                self.driver.commit().await?;
                return Ok(output);
            }
        }
    }

    /// Stops the run and undoes its calls.
    async fn stop(&mut self) -> Result<ToolOutput, RunErrorKind> {
        self.driver.cancel();
        self.drive().boxed().await
    }

    /// Returns the outcome of a call whose run is done, or the driver of the run if the answer is rejected.
    pub(super) fn end(mut self) -> Result<Outcome, Box<RunDriver>> {
        match self.read_answer() {
            Ok(Some(output)) => Ok(self.finish(output)),
            _ => Err(Box::new(self.driver)),
        }
    }

    /// Returns the outcome of a call whose run is done.
    pub(super) fn finish(&mut self, output: ToolOutput) -> Outcome {
        if self.is_undo {
            return undone(&self.driver);
        }
        let (finish_reason, text) = self.driver.end_inside().map_err(|error| failure(&error, &[]))?;
        match finish_reason.is_truncated() {
            true => self.tool.form.truncated(output, &text),
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

/// Returns what is in the place of a run that is elsewhere.
fn placeholder() -> Box<Run> {
    Box::new(Run::new([]))
}
