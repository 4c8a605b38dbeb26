//! Lends the driver of an agent's run to a driver that records the steps of the whole tree.

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use crate::agent::RunDriver;
use crate::agent::delegation::Delegation;
use crate::agent::executor::Ending;
use crate::agent::lock::lock;
use crate::run::{RunError, RunErrorKind, StepError};
use crate::tool::{Asker, AttemptContext, Connection, Progress, ToolExecution};

/// The connection of a call that leaves the driver of its agent's run here, and has no outcome.
pub(in crate::agent) struct Lending {
    pub(in crate::agent) delegation: Arc<Delegation>,
    /// The call has an outcome nevertheless if the run is done, unless its answer is rejected.
    pub(in crate::agent) is_last: bool,
    pub(in crate::agent) lent: Mutex<Option<RunDriver>>,
}

impl Connection for Lending {
    fn is_suspended(&self) -> bool {
        lock(&self.lent).is_some()
    }

    fn is_passed(&self) -> bool {
        !self.is_last && lock(&self.delegation.continued).is_some()
    }
}

#[doc(hidden)] // For the crates of this project.
impl RunDriver {
    /// Returns the driver of the run of the agent that a started call asks, which is a new one before it is part of this run. If `is_last`,
    /// returns the outcome of a call whose run is done, or its driver if the answer is rejected, with which the run continues. Also
    /// returns an outcome if the agent cannot be asked.
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
        if !attempt.is_continued && attempt.number > 1 {
            tokio::time::sleep(attempt.delay()).await;
        }
        let executor = self.executor();
        let lending = Arc::new(Lending {
            delegation: self.delegate(&executor, &call, None),
            is_last,
            lent: Mutex::default(),
        });
        let context = executor.context.for_attempt(AttemptContext {
            attempt,
            progress: Progress::default(),
            cancellation: CancellationToken::new(),
            undone: executor.undone.clone(),
            asker: Asker::NOBODY,
            delegation: Some(Arc::clone(&lending) as _),
        });
        // The tools of a turn need not be known for it.
        let tools = &self.earlier_undoing().unwrap_or(&self.tools).agent.0.tools;
        let (outcome, history) = tools.execute_call(&call, &context).await;
        let lent = lock(&lending.lent).take();
        Ok(lent.ok_or_else(|| ToolExecution::new(call, outcome).with_history(history).into()))
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
        let not_started = RunErrorKind::Step(StepError("the call was not started"));
        let (call, attempt) = self.run.call_in_flight(call_id).ok_or(not_started)?;
        if let Some(Ending::Executed(execution)) = self.execute_one(call, attempt).await? {
            let event = self.apply_result(execution).await?;
            self.emit_all(event).await?;
        }
        Ok(())
    }

    /// Returns `true` if this run does not count for the limits of the one around it.
    #[must_use]
    pub fn has_own_limits(&self) -> bool {
        self.outer.as_ref().is_some_and(|outer| outer.has_own_limits)
    }
}
