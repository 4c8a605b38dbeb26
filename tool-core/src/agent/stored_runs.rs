//! The stored runs of an agent, for callers that show, decide and end them.

use crate::agent::Agent;
use crate::memory::{
    MemoryError, RunFilter, RunStatus, RunSummary, StoredRun, UnreadableRun, list, list_unreadable,
};
use crate::run::{Run, RunError, RunErrorKind, RunId};

impl Agent {
    /// Lists the stored runs that a filter admits, ordered by id, each with its [status](RunStatus): those that were interrupted, wait for
    /// decisions or results, have failed, were cancelled or are running elsewhere, and those that have
    /// [finished](crate::agent::AgentBuilder::keep_finished). It reads no states, so a list of many runs takes little time and memory.
    /// Empty for an agent without a [run store](crate::agent::AgentBuilder::run_store). In a store that several agents share, runs of
    /// agents with another [name](crate::agent::AgentBuilder::name) are left out; agents without a name see each other's. Left out are
    /// also those whose summaries cannot be read: see [`unreadable_runs`](Self::unreadable_runs).
    ///
    /// ```
    /// use tool_core::memory::{InMemoryStore, RunFilter, RunStatus};
    /// use tool_core::run::Decision;
    /// use tool_core::testing::ScriptedModel;
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
    /// for listed in agent.list_runs(&RunFilter::new().status(RunStatus::Waiting)).await? {
    ///     let Some(stored) = agent.stored_run(listed.id).await? else { continue };
    ///     let decisions = stored.run.waits().into_iter().map(|wait| (wait.id, Decision::approve().by("ada")));
    ///     // Nothing, while another process drives it.
    ///     if let Some(resumed) = agent.decide_all(stored.run.id(), decisions.collect()).await?.resume() {
    ///         assert_eq!(resumed.await?.text(), "Paid.");
    ///     }
    /// }
    /// assert!(agent.list_runs(&RunFilter::new()).await?.is_empty());
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

    /// Returns the stored runs whose summaries cannot be read, for example because another version wrote them, with the reasons: lists leave
    /// them out. In a store that several agents share, runs of agents with another [name](crate::agent::AgentBuilder::name) are left out.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn unreadable_runs(&self) -> Result<Vec<UnreadableRun>, MemoryError> {
        match self.0.run_store.get() {
            Some(store) => list_unreadable(&**store, self.name()).await,
            None => Ok(Vec::new()),
        }
    }

    /// Returns the stored run with this id and its status, or `None` if there is none, for example because it has ended, or if it
    /// is of an agent of another [name](crate::agent::AgentBuilder::name).
    ///
    /// # Errors
    ///
    /// Fails if the run cannot be read.
    pub async fn stored_run(&self, id: impl Into<RunId>) -> Result<Option<StoredRun>, MemoryError> {
        let id = id.into();
        match self.0.run_store.get() {
            Some(store) => {
                let stored = StoredRun::load(&**store, &id, self.0.stored_runs.max_age).await?;
                Ok(stored.filter(|stored| stored.run.is_driven_by(self.name())))
            }
            None => Ok(None),
        }
    }

    /// Removes the finished runs that were kept for long enough. What fails is tried again after the next run.
    pub(super) async fn remove_old_runs(&self) {
        let (Some(store), Some(age)) = (self.0.run_store.get(), self.0.stored_runs.keep_finished.get())
        else {
            return;
        };
        let old = RunFilter::new().status(RunStatus::Finished).min_age(*age);
        for run in store.list_runs(&old).await.unwrap_or_default() {
            if run.is_driven_by(self.name()) && !run.is_leased {
                let _ = store.remove_run(&run.id).await;
            }
        }
    }

    /// Ends a run that nobody wants to continue: its calls are undone if their tools support it, and it leaves the store. To
    /// keep what they have done, [`end`](Self::end) it instead. A run that has an answer already keeps it.
    ///
    /// # Errors
    ///
    /// Fails if another driver works on the run, which a [cancellation](Self::cancel) ends, or if the run cannot be driven to
    /// its end.
    pub async fn undo_and_end(&self, mut run: Run) -> Result<(), RunError> {
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
