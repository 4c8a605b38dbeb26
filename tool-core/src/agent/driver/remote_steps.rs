//! Single steps of a run whose driver records the steps of the whole tree.

use tokio_util::sync::CancellationToken;

use crate::agent::RunDriver;
use crate::agent::emitter::EventEmitter;
use crate::agent::executor::CallExecutor;
use crate::memory::CompactionSummary;
use crate::model::{Message, ToolCall};
use crate::run::{EmittedCalls, RunError, RunErrorKind, StepError};
use crate::tool::{Attempt, CallNotes, ToolExecution};

/// A call of an agent whose run is driven by others.
struct CallOfAgent {
    executor: CallExecutor,
    call: ToolCall,
    attempt: Attempt,
}

/// Single steps of a run whose driver records the steps of the whole tree, or hands the run to others.
pub trait RunDriverExt: Sized {
    /// Takes the lease of the run and then stores it, so that no other driver continues the run until this one is driven or dropped.
    fn store_under_lease(&mut self) -> impl Future<Output = Result<(), RunErrorKind>> + Send;

    /// Returns a token that is cancelled with the run, also by others once [`store_under_lease`](Self::store_under_lease) has taken the lease.
    #[must_use]
    fn cancellation(&self) -> CancellationToken;

    /// Inserts what is sent of a stored conversation before the question, with the summary that stands for its first messages.
    fn insert_conversation(
        &mut self,
        messages: &[Message],
        stored_len: usize,
        summary: Option<CompactionSummary>,
    );

    /// Returns the driver of the run of the agent that an open call has asked, or the outcome of the call if the agent cannot continue.
    ///
    /// # Errors
    ///
    /// Fails if the call was not started, or if the application does not say what the run has.
    fn descend(
        &mut self,
        call_id: &str,
    ) -> impl Future<Output = Result<Result<Self, Box<ToolExecution>>, RunError>> + Send;

    /// Executes a started call until it asks its agent. Returns the driver of the agent's run, which is a new one before it is part of
    /// this run, and the execution that waits for it, or the outcome of a call that has ended. The caller has waited for
    /// the [delay](crate::tool::Attempt::delay) of the attempt.
    ///
    /// # Errors
    ///
    /// Fails if the call was not started, or if the application does not say what the run has.
    fn begin_agent(
        &mut self,
        call_id: &str,
    ) -> impl Future<Output = Result<Result<(Self, ToolExecution), Box<ToolExecution>>, RunError>> + Send;

    /// Executes a call again whose agent's run is done, and returns its outcome, or the driver of the run if the answer is rejected, with which
    /// the run continues.
    ///
    /// # Errors
    ///
    /// Fails if the call was not started, or if the application does not say what the run has.
    fn end_agent(
        &mut self,
        call_id: &str,
    ) -> impl Future<Output = Result<Result<Self, Box<ToolExecution>>, RunError>> + Send;

    /// Lets the layers see what precedes the next step: an answer that is an output, or calls that were decided about. Calls keep the
    /// tools that were offered when they were recorded.
    ///
    /// # Errors
    ///
    /// Fails if a layer fails, or if the tools of the turn cannot be resolved.
    fn judge_before_step(&mut self) -> impl Future<Output = Result<(), RunError>> + Send;

    /// Reports to their tools which calls of the run will not be continued.
    fn give_up(&mut self) -> impl Future<Output = ()> + Send;

    /// Executes a started call that searches for tools, and records its outcome with the tools that were found.
    ///
    /// # Errors
    ///
    /// Fails if the call was not started, if a layer fails, or if the tools of the turn cannot be resolved.
    fn search(&mut self, call_id: &str) -> impl Future<Output = Result<(), RunError>> + Send;

    /// Returns this driver, whose layers and hooks know only these of the calls that have finished.
    fn with_reported(self, reported: EmittedCalls) -> Self;

    /// Lets the layers see results that they have not judged, also of a run that has ended.
    ///
    /// # Errors
    ///
    /// Fails if a layer fails, or if the application does not say what the run has.
    fn judge_results(&mut self) -> impl Future<Output = Result<(), RunError>> + Send;

    /// Reports what was decided and which calls have finished, as far as it is not known.
    ///
    /// # Errors
    ///
    /// Fails if a layer fails.
    fn report_finished(&mut self) -> impl Future<Output = Result<(), RunError>> + Send;

    /// Returns `true` if this run does not count for the limits of the one around it.
    #[must_use]
    fn has_own_limits(&self) -> bool;
}

impl RunDriverExt for RunDriver {
    async fn store_under_lease(&mut self) -> Result<(), RunErrorKind> {
        self.take_lease().await?;
        self.store_run().await
    }

    fn cancellation(&self) -> CancellationToken {
        self.question.cancellation.clone().unwrap_or_default()
    }

    fn insert_conversation(
        &mut self,
        messages: &[Message],
        stored_len: usize,
        summary: Option<CompactionSummary>,
    ) {
        self.insert_loaded(messages, stored_len, summary);
    }

    async fn descend(&mut self, call_id: &str) -> Result<Result<Self, Box<ToolExecution>>, RunError> {
        let CallOfAgent { executor, call, .. } = self.call_of_agent(call_id).await?;
        let asked = self.ask_agent_apart(&executor, &call, String::new());
        Ok(asked.map(|asked| asked.driver).map_err(|error| ToolExecution::new(call, Err(error)).into()))
    }

    async fn begin_agent(
        &mut self,
        call_id: &str,
    ) -> Result<Result<(Self, ToolExecution), Box<ToolExecution>>, RunError> {
        let CallOfAgent { executor, call, attempt } = self.call_of_agent(call_id).await?;
        let (question, asked) = match executor.ask(call, attempt).await {
            Ok(execution) => return Ok(Err(execution.into())),
            Err(asked) => asked,
        };
        let agent = match self.ask_agent_apart(&executor, &asked.call, question) {
            Ok(agent) => agent,
            Err(error) => return Ok(Err(executor.answer(*asked, Err(error)).await.into())),
        };
        asked.span.suspend();
        let waiting = ToolExecution::waiting(asked.call, Some(CallNotes::of_agent(asked.note)));
        Ok(Ok((agent.driver, waiting)))
    }

    async fn end_agent(&mut self, call_id: &str) -> Result<Result<Self, Box<ToolExecution>>, RunError> {
        let CallOfAgent { executor, call, attempt } = self.call_of_agent(call_id).await?;
        let answer = match self.ask_agent_apart(&executor, &call, String::new()) {
            Ok(agent) => agent.end(),
            Err(error) => return Ok(Err(ToolExecution::new(call, Err(error)).into())),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(driver) => return Ok(Ok(*driver)),
        };
        let note = self.run.notes(call_id).and_then(CallNotes::agent).cloned().unwrap_or_default();
        Ok(Err(executor.answer(executor.reopen(call, attempt, note), answer).await.into()))
    }

    async fn judge_before_step(&mut self) -> Result<(), RunError> {
        self.prepare().await.map_err(|kind| self.error(kind))
    }

    async fn give_up(&mut self) {
        if let Some(job) = self.give_up_apart() {
            // It only reports.
            let _ = self.perform(job).await;
        }
    }

    async fn search(&mut self, call_id: &str) -> Result<(), RunError> {
        self.execute_search(call_id).await.map_err(|kind| self.error(kind))
    }

    fn with_reported(mut self, reported: EmittedCalls) -> Self {
        self.news.reported = reported;
        self
    }

    async fn judge_results(&mut self) -> Result<(), RunError> {
        let judging = async {
            self.open().await?;
            while let Some(job) = self.judge_result() {
                let is_interrupted = self.perform(job).await?;
                self.emit_queued().await?;
                if is_interrupted {
                    break;
                }
            }
            Ok(())
        };
        let judged: Result<_, RunErrorKind> = judging.await;
        judged.map_err(|kind| self.error(kind))
    }

    async fn report_finished(&mut self) -> Result<(), RunError> {
        self.emit_finished().await.map_err(|kind| self.error(kind))
    }

    fn has_own_limits(&self) -> bool {
        self.performer.asked.as_ref().is_some_and(|outer| outer.has_own_limits)
    }
}

impl RunDriver {
    async fn call_of_agent(&mut self, call_id: &str) -> Result<CallOfAgent, RunError> {
        self.open().await.map_err(|kind| self.error(kind))?;
        let in_flight = self.run.call_in_flight(call_id);
        let not_started = RunErrorKind::Step(StepError("the call was not started"));
        let (call, attempt) = in_flight.ok_or_else(|| self.error(not_started))?;
        let executor = self.executor();
        let executor = CallExecutor {
            // The tools of a turn need not be known for it.
            tools: self.earlier_undoing().unwrap_or(&self.performer.tools).agent.0.tools.clone(),
            // The caller reports what happens to the call.
            emitter: EventEmitter::default(),
            // The caller drives the run of the agent without this one.
            cancellation: CancellationToken::new(),
            ..executor
        };
        Ok(CallOfAgent { executor, call, attempt: Attempt { is_continued: true, ..attempt } })
    }

    async fn execute_search(&mut self, call_id: &str) -> Result<(), RunErrorKind> {
        if !self.offer.is_resolved
            && let Some(job) = self.resolve_tools()?
        {
            self.perform(job).await?;
        }
        if self.run.awaits_tools() {
            // The call stays open until they are known.
            return Ok(());
        }
        let not_started = RunErrorKind::Step(StepError("the call was not started"));
        let (call, attempt) = self.run.call_in_flight(call_id).ok_or(not_started)?;
        if let Some(execution) = self.execute_one(call, attempt).await? {
            let event = self.apply_result(execution).await?;
            self.emit_all(event).await?;
        }
        Ok(())
    }
}
