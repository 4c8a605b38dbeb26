//! The stored runs of an agent, for callers that show, decide and end them.

use crate::agent::Agent;
use crate::memory::{
    MemoryError, PostOutcome, RunCommand, RunFilter, RunStatus, RunSummary, StoredRun, StoredRuns, list, post,
};
use crate::run::{Run, RunError, RunErrorKind};

impl Agent {
    /// Returns the stored runs, ordered by id, each with its [status](crate::memory::RunStatus): those that were interrupted, wait
    /// for approvals or results, have failed, were cancelled, or are running elsewhere. [Finished](crate::agent::AgentBuilder::keep_finished) runs are not among them. Empty for an agent without a
    /// [run store](crate::agent::AgentBuilder::run_store). In a store that several agents share, runs of agents with
    /// another [name](crate::agent::AgentBuilder::name) are left out; agents without a name see each other's.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::memory::{InMemoryStore, RunStatus};
    /// use tool_core::run::Decision;
    /// use tool_core::{Agent, RunErrorKind, tool, tools};
    ///
    /// #[tool("Pays a bill", needs_approval)]
    /// fn pay(cents: u32) {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("pay", r#"{"cents": 700}"#).says("Paid.");
    /// let agent = Agent::builder(model).tools(tools![pay]).run_store(InMemoryStore::new()).build()?;
    /// let error = agent.ask("Pay the bill").await.unwrap_err();
    /// assert!(matches!(error.kind(), RunErrorKind::Waiting));
    ///
    /// // Later; with a store on disk, this can be another process:
    /// for mut stored in agent.stored_runs().await?.runs {
    ///     assert_eq!(stored.status, RunStatus::Waiting);
    ///     stored.run.resolve_all(|_| Decision::approve())?;
    ///     assert_eq!(agent.resume(stored.run).await?.text(), "Paid.");
    /// }
    /// assert!(agent.stored_runs().await?.runs.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If a run is resumed twice, even by two processes at once, one of them continues. The other one executes nothing and fails
    /// with [`RunErrorKind::RunningElsewhere`], or with
    /// [`RunErrorKind::Conflict`] if its copy of the run is outdated. A driver holds a
    /// [lease](crate::agent::AgentBuilder::run_lease) of its run. After a crash, the run is free when the lease has expired; it is then
    /// taken over, and its calls in flight count as interrupted. A process that was only suspended fails at its next step, but an
    /// effect that it had started before can still happen.
    ///
    /// # Errors
    ///
    /// Fails if the runs cannot be listed. A run whose state or [summary](RunSummary) cannot be read is among the
    /// [`unreadable`](StoredRuns::unreadable).
    pub async fn stored_runs(&self) -> Result<StoredRuns, MemoryError> {
        match self.0.run_store.get() {
            Some(store) => StoredRuns::load(&**store, self.name(), self.0.stored_runs.max_age).await,
            None => Ok(StoredRuns::default()),
        }
    }

    /// Lists the stored runs that a filter admits, ordered by id, with their statuses. Unlike [`stored_runs`](Self::stored_runs), it reads
    /// no states, so a list of many runs takes little time and memory. Runs of agents with another
    /// [name](crate::agent::AgentBuilder::name) are left out, and so are those that cannot be listed, which `stored_runs` reports.
    ///
    /// ```
    /// use tool_core::memory::{InMemoryStore, RunFilter, RunStatus};
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::Agent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().fails("the line is dead")).run_store(InMemoryStore::new()).build()?;
    /// let run = agent.ask("Hello").await.unwrap_err().into_run();
    /// let failed = agent.list_runs(&RunFilter::new().status(RunStatus::Failed)).await?;
    /// assert_eq!(failed[0].id, run.id().as_str());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the runs cannot be listed, or if the filter names the run or the conversation of one that cannot.
    pub async fn list_runs(&self, filter: &RunFilter) -> Result<Vec<RunSummary>, MemoryError> {
        let Some(store) = self.0.run_store.get() else { return Ok(Vec::new()) };
        self.remove_old_runs().await;
        // A status that follows from the state alone is not the one that others see only if there is a lease, a cancellation or an age.
        let has_index = matches!(
            filter.status,
            Some(RunStatus::Waiting | RunStatus::Failed | RunStatus::Interrupted | RunStatus::Finished)
        );
        let broad = RunFilter { status: filter.status.filter(|_| has_index), ..filter.clone() };
        let mut runs = list(&**store, &broad).await?;
        for run in &mut runs {
            run.status = run.status_of(run.status, self.0.stored_runs.max_age);
        }
        runs.retain(|run| run.is_driven_by(self.name()) && filter.admits(run));
        Ok(runs)
    }

    /// Returns the stored run with this id and its status, or `None` if there is none, for example because it has ended, or if it
    /// is of an agent of another [name](crate::agent::AgentBuilder::name).
    ///
    /// # Errors
    ///
    /// Fails if the run cannot be read.
    pub async fn stored_run(&self, id: &str) -> Result<Option<StoredRun>, MemoryError> {
        match self.0.run_store.get() {
            Some(store) => {
                let stored = StoredRun::load(&**store, id, self.0.stored_runs.max_age).await?;
                Ok(stored.filter(|stored| stored.run.is_driven_by(self.name())))
            }
            None => Ok(None),
        }
    }

    /// Removes the finished runs that were kept for long enough. What fails is tried again after the next run.
    pub(super) async fn remove_old_runs(&self) {
        let (Some(store), Some(age)) = (self.0.run_store.get(), self.0.stored_runs.keep_finished) else {
            return;
        };
        let old = RunFilter::new().status(RunStatus::Finished).min_age(age);
        for run in store.list_runs(&old).await.unwrap_or_default() {
            if run.is_driven_by(self.name()) && !run.is_leased {
                let _ = store.remove_run(&run.id).await;
            }
        }
    }

    /// Posts a command to a stored run, whether another process drives it or nobody does: a driver that works on it, or the one
    /// that resumes it, takes the command before its next step. A cancellation interrupts a driver within a tenth of its
    /// [lease](crate::agent::AgentBuilder::run_lease).
    ///
    /// The store checks only that a message [fits](RunCommand::fits): decisions are made by [`decide`](Self::decide), and messages are posted by
    /// [`say`](Self::say).
    ///
    /// ```
    /// use tool_core::Agent;
    /// use tool_core::memory::{InMemoryStore, PostOutcome, RunCommand};
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().fails("the line is dead");
    /// let agent = Agent::builder(model).run_store(InMemoryStore::new()).build()?;
    /// let failed = agent.ask("Hello").await.unwrap_err().into_run();
    /// assert_eq!(agent.post(failed.id().as_str(), RunCommand::Cancel).await?, PostOutcome::Posted);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be stored.
    pub async fn post(&self, run: &str, command: RunCommand) -> Result<PostOutcome, MemoryError> {
        match self.0.run_store.get() {
            Some(store) => post(&**store, run, command).await,
            None => Ok(PostOutcome::Unsupported),
        }
    }

    /// Ends a run that nobody wants to continue: its calls are undone if their tools support it, and it leaves the store. To
    /// keep what they have done, [`end`](Self::end) it instead. A run that has an answer already keeps it.
    ///
    /// # Errors
    ///
    /// Fails if another driver works on the run, which a posted [`RunCommand::Cancel`] ends, or if the run cannot be driven to
    /// its end.
    pub async fn discard(&self, mut run: Run) -> Result<(), RunError> {
        run.cancel();
        self.drive_ended(run).await
    }

    /// Ends a run that nobody wants to continue, and keeps what its calls have done: nothing is undone, and the run leaves the store, or
    /// stays as [finished](crate::agent::AgentBuilder::keep_finished). A run that has an answer already keeps it.
    ///
    /// # Errors
    ///
    /// Fails if another driver works on the run, or if the store fails.
    pub async fn end(&self, mut run: Run) -> Result<(), RunError> {
        run.end();
        self.drive_ended(run).await
    }

    async fn drive_ended(&self, run: Run) -> Result<(), RunError> {
        match self.resume(run).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), RunErrorKind::Stopped(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
