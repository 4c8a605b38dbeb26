//! Single steps of a run whose driver records the steps of the whole tree.

use std::pin::pin;

use futures_channel::mpsc;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use tokio_util::sync::CancellationToken;

use super::agent_call::AgentCall;
use crate::agent::{AgentTool, Event, RunDriver};
use crate::run::{ReportedCalls, RunError, RunErrorKind, StepError};
use crate::tool::{AgentQuestion, Asker, AttemptContext, Progress, ToolExecution};

#[doc(hidden)] // For the crates of this project.
impl RunDriver {
    /// Returns the driver of the run of the agent that a started call asks, which is a new one before it is part of this run. If `is_last`,
    /// returns the outcome of a call whose run is done, or its driver if the answer is rejected, with which the run continues. Also
    /// returns an outcome if the agent cannot be asked. The caller has waited for the [delay](crate::tool::Attempt::delay) of the attempt.
    ///
    /// # Errors
    ///
    /// Fails if the call was not started, or if the application does not say what the run has.
    pub async fn inside(
        &mut self,
        call_id: &str,
        is_last: bool,
    ) -> Result<Result<Self, Box<ToolExecution>>, RunError> {
        self.open().await.map_err(|kind| self.error(kind))?;
        let in_flight = self.run.call_in_flight(call_id);
        let not_started = RunErrorKind::Step(StepError("the call was not started"));
        let (call, attempt) = in_flight.ok_or_else(|| self.error(not_started))?;
        let executor = self.executor();
        // The tools of a turn need not be known for it.
        let tools = self.earlier_undoing().unwrap_or(&self.tools).agent.0.tools.clone();
        // The caller drives the run of the agent without this one.
        let agent_call =
            AgentCall { cancellation: CancellationToken::new(), ..self.agent_call(&executor, &call) };
        let tool = tools.get(&call.name).and_then(AgentTool::of);
        if let Some(tool) = tool.filter(|_| agent_call.continued.is_some() && !is_last) {
            return Ok(Ok(agent_call.begin(tool, String::new()).driver));
        }
        let (sender, mut asked) = mpsc::channel(0);
        let context = executor.context.for_attempt(AttemptContext {
            attempt,
            progress: Progress::default(),
            cancellation: CancellationToken::new(),
            undone: executor.undone.clone(),
            asker: Asker::NOBODY,
            agent_link: tool.map(|_| sender),
        });
        let mut executed = pin!(tools.execute_call(&call, &context));
        let (outcome, history) = match (select(executed.as_mut(), asked.next()).await, tool) {
            (Either::Left((executed, _)), _) => executed,
            (Either::Right((Some(AgentQuestion { question, answer, .. }), _)), Some(tool)) => {
                let outcome = match agent_call.is_too_deep() {
                    Some(error) => Err(error),
                    None => match agent_call.begin(tool, question).end_if(is_last) {
                        Ok(outcome) => outcome,
                        Err(driver) => return Ok(Ok(*driver)),
                    },
                };
                // The call waits for it.
                let _ = answer.send(outcome);
                executed.await
            }
            (Either::Right(_), _) => executed.await,
        };
        Ok(Err(ToolExecution::new(call.clone(), outcome).with_history(history).into()))
    }

    /// Lets the layers see what precedes the next step: an answer that is an output, or calls that were decided about. Calls keep the
    /// tools that were offered when they were recorded.
    ///
    /// # Errors
    ///
    /// Fails if a layer fails, or if the tools of the turn cannot be resolved.
    pub async fn judge_before_step(&mut self) -> Result<(), RunError> {
        self.prepare().await.map_err(|kind| self.error(kind))
    }

    /// Reports to their tools which calls of the run will not be continued.
    pub async fn give_up(&mut self) {
        self.give_up_calls().await;
    }

    /// Executes a started call that searches for tools, and records its outcome with the tools that were found.
    ///
    /// # Errors
    ///
    /// Fails if the call was not started, if a layer fails, or if the tools of the turn cannot be resolved.
    pub async fn search(&mut self, call_id: &str) -> Result<(), RunError> {
        self.execute_search(call_id).await.map_err(|kind| self.error(kind))
    }

    async fn execute_search(&mut self, call_id: &str) -> Result<(), RunErrorKind> {
        if !self.offer.is_resolved {
            self.resolve_offer().await?;
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

    /// Returns this driver, whose layers and hooks know only these of the calls that have finished.
    pub fn with_reported(mut self, reported: ReportedCalls) -> Self {
        self.reported = reported;
        self
    }

    /// Lets the layers see results that they have not judged, also of a run that has ended.
    ///
    /// # Errors
    ///
    /// Fails if a layer fails, or if the application does not say what the run has.
    pub async fn judge_results(&mut self) -> Result<(), RunError> {
        let judging = async {
            self.open().await?;
            while let Some(judged) = self.review_results().await? {
                self.emit_all([Event::CallFinished(judged)]).await?;
            }
            Ok(())
        };
        let judged: Result<_, RunErrorKind> = judging.await;
        judged.map_err(|kind| self.error(kind))
    }

    /// Reports what was decided and which calls have finished, as far as it is not known.
    ///
    /// # Errors
    ///
    /// Fails if a layer fails.
    pub async fn report_finished(&mut self) -> Result<(), RunError> {
        self.emit_finished().await.map_err(|kind| self.error(kind))
    }

    /// Returns `true` if this run does not count for the limits of the one around it.
    #[must_use]
    pub fn has_own_limits(&self) -> bool {
        self.outer.as_ref().is_some_and(|outer| outer.has_own_limits)
    }
}
