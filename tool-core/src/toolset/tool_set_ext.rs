//! Executes calls of runs that are driven elsewhere.
//!
//! The hash of a tool's definition travels with its calls, because the worker that executes a call can have another program than the one
//! whose tool was offered and approved. It is compared where the tool is looked up, so that providers cannot exchange it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::tool::{
    Asker, Asking, AttemptContext, CallNotes, CallRequest, Progress, ToolContext, ToolError, ToolExecution,
};
use crate::toolset::ToolSet;

/// What a world asks of a [`ToolSet`], beyond what programs with agents do.
pub trait ToolSetExt {
    /// Executes a call of a run that is driven elsewhere. The run counts the attempts: one after the first begins with its
    /// [delay](crate::tool::Attempt::delay), which requires tokio's timers.
    /// [`AgentExt::execute_request`](crate::engine::AgentExt::execute_request) also applies the settings of an agent.
    fn execute_request(
        &self,
        request: CallRequest,
        context: &ToolContext,
        cancellation: &CancellationToken,
        progress: Progress,
    ) -> impl Future<Output = ToolExecution> + Send;

    /// Reports to its tool that a call will not be continued.
    fn give_up(&self, request: CallRequest, context: &ToolContext);
}

impl ToolSetExt for ToolSet {
    async fn execute_request(
        &self,
        request: CallRequest,
        context: &ToolContext,
        cancellation: &CancellationToken,
        progress: Progress,
    ) -> ToolExecution {
        let tools = match self.accept(&request) {
            Ok(tools) => tools,
            Err(refused) => return *refused,
        };
        let CallRequest { call, attempt, undone, conversation, notes, nobody_to_ask, .. } = request;
        let delay = attempt.delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let context = match conversation {
            Some(conversation) => context.clone().with(conversation),
            None => context.clone(),
        };
        let cancellation = cancellation.child_token();
        let asking = Arc::new(Asking::new(notes.map_or_else(CallNotes::default, |notes| *notes)));
        let policy = tools.get(&call.name).map(|tool| tool.definition().policy());
        let asker = match (nobody_to_ask, policy) {
            (Some(why), _) => Asker::refusing(why),
            (None, Some(policy)) => Asker::new(&asking, undone.is_some(), policy),
            (None, None) => Asker::NOBODY,
        };
        let attempt = AttemptContext { attempt, progress, cancellation, undone, asker, agent: None };
        let context = context.for_attempt(attempt);
        match asking.execute(tools.execute(call.clone(), &context)).await {
            Ok(execution) => execution.with_notes(asking.notes()),
            Err(notes) => ToolExecution::waiting(call, Some(notes)),
        }
    }

    fn give_up(&self, request: CallRequest, context: &ToolContext) {
        let CallRequest { call, attempt, notes, .. } = request;
        let Some(tool) = self.get(&call.name) else { return };
        let asking = Arc::new(Asking::new(notes.map_or_else(CallNotes::default, |notes| *notes)));
        let asker = Asker::new(&asking, false, tool.definition().policy());
        let (cancellation, progress) = (CancellationToken::new(), Progress::default());
        cancellation.cancel();
        let attempt = AttemptContext { attempt, progress, cancellation, undone: None, asker, agent: None };
        let context = context.for_attempt(attempt).with_call(&call, self.0.settings.reading);
        // A tool that panics affects nothing else.
        let _ = catch_unwind(AssertUnwindSafe(|| tool.give_up(&context)));
    }
}

impl ToolSet {
    /// Returns this set for a call of a run that is driven elsewhere, or the execution that refuses the call, because its tool is
    /// another one than the model was offered.
    pub(crate) fn accept(&self, request: &CallRequest) -> Result<Self, Box<ToolExecution>> {
        if let (Some(offered), Some(tool)) = (&request.definition, self.get(&request.call.name))
            && tool.definition().hash() != *offered
        {
            let error = ToolError::not_executed("the tool was changed since it was offered; call it again");
            return Err(ToolExecution::new(request.call.clone(), Err(error)).into());
        }
        // The arguments come from the undone call; the tool that undoes it may take only some of them.
        Ok(match request.undone {
            Some(_) => self.clone().ignore_unknown_arguments(),
            None => self.clone(),
        })
    }
}
