//! Stores the conversation of a run, and the run itself while it is in progress.

use super::inside::Inside;
use crate::agent::{Agent, RunDriver, WhileWaiting};
use crate::memory::{ChatMemory, RunConflict, RunFilter, RunStatus, RunSummary};
use crate::model::ConversationId;
use crate::run::RunErrorKind;

impl RunDriver {
    /// Fails if another agent was asked, before anything is stored or executed.
    pub(super) fn check_agent(&self) -> Result<(), RunErrorKind> {
        let name = self.origin.name();
        if self.run.is_driven_by(name) {
            return Ok(());
        }
        Err(RunErrorKind::OtherAgent { name: name.map(str::to_owned) })
    }

    /// Waits for the conversation, if the agent has a memory, and inserts its messages before the question.
    pub(super) async fn load_history(&mut self) -> Result<(), RunErrorKind> {
        let agent = self.origin.clone();
        let Some(memory) = self.memory_of(&agent) else { return Ok(()) };
        if !self.run.is_asking() || self.run.has_loaded_history() {
            return Ok(());
        }
        let id = self.run.conversation().cloned().unwrap_or_else(ConversationId::unique);
        let conversation = match self.run_until_interrupted(memory.open(&id)).await {
            Ok(opened) => opened.map_err(|error| RunErrorKind::Store(error.into()))?,
            Err(interruption) => {
                self.interrupt(&interruption);
                return Ok(());
            }
        };
        self.refuse_while_waiting(&id).await?;
        self.change_run().insert_history(conversation.messages(), conversation.stored_len());
        self.conversation = Some(conversation);
        Ok(())
    }

    /// Fails if another run of the conversation waits, and the agent then refuses questions.
    async fn refuse_while_waiting(&self, conversation: &ConversationId) -> Result<(), RunErrorKind> {
        let agent = &self.origin.0;
        let Some(store) = agent.run_store.get().filter(|_| self.outer.is_none()) else { return Ok(()) };
        if agent.stored_runs.while_waiting == WhileWaiting::Answer {
            return Ok(());
        }
        let waiting = RunFilter::new().conversation(conversation.clone()).status(RunStatus::Waiting);
        let waiting = store.list_runs(&waiting).await.map_err(RunErrorKind::Store)?;
        match waiting.into_iter().find(|other| other.id != self.run.id().as_str()) {
            Some(RunSummary { id, .. }) => Err(RunErrorKind::ConversationWaits { run: id }),
            None => Ok(()),
        }
    }

    /// Stores the run, so that it can be resumed after an error, and releases its lease. The caller gets that error, not one of
    /// the store.
    pub(super) async fn store_failure(&mut self, kind: &RunErrorKind) {
        if kind.keeps_run() {
            if !matches!(kind, RunErrorKind::Waiting) && self.outer.is_none() {
                self.change_run().set_failed(true);
            }
            let _ = self.store_run().await;
        }
        self.release_lease().await;
    }

    /// Adds the new messages to the conversation if the run has an answer, and removes a finished run from the store, or marks it as finished.
    pub(in crate::agent) async fn commit(&mut self) -> Result<(), RunErrorKind> {
        let span = self.trace.enter_run(self.tools.agent.name(), self.tools.agent.model(), &self.run);
        span.instrument(self.commit_in_span()).await
    }

    async fn commit_in_span(&mut self) -> Result<(), RunErrorKind> {
        self.check_agent()?;
        self.review_returned().await?;
        // A copy that is outdated must not remove the run that another one continues.
        self.store_run().await?;
        let agent = self.origin.clone();
        let (Some(memory), Some(id)) = (self.memory_of(&agent), self.run.conversation()) else {
            return self.remove_stored_run().await;
        };
        if self.run.answer_text().is_some() && !self.run.has_blocked_question() {
            let messages = self.run.new_messages();
            let committed = match self.conversation.take() {
                Some(conversation) => conversation.commit(messages).await,
                None => memory.commit_once(id, messages, self.run.stored_conversation_len()).await,
            };
            committed.map_err(|error| RunErrorKind::Store(error.into()))?;
        }
        self.remove_stored_run().await
    }

    /// Returns the agent's memory, if the run has a conversation in it.
    fn memory_of<'a>(&self, agent: &'a Agent) -> Option<&'a ChatMemory> {
        agent.0.memory.as_ref().filter(|_| self.outer.as_ref().is_none_or(|outer| outer.has_conversation))
    }

    /// Stores the run in its current state: as a part of the outer run, or if the agent has a run store. Fails if the run was
    /// continued elsewhere.
    pub(super) async fn store_run(&mut self) -> Result<(), RunErrorKind> {
        self.record_layer_usage();
        if !self.has_unsaved_changes {
            return Ok(());
        }
        match (&self.outer, self.origin.0.run_store.get()) {
            (Some(Inside { delegation: Some(delegation), has_own_limits, .. }), _) => {
                delegation.store(&mut self.run, *has_own_limits).await?;
            }
            (None, Some(store)) => {
                let id = self.run.id().clone();
                let saved = store.save_run_after(id.as_str(), &mut self.run, &self.applied_commands).await;
                saved.map_err(|error| {
                    if error.is::<RunConflict>() {
                        RunErrorKind::Conflict
                    } else {
                        RunErrorKind::Store(error)
                    }
                })?;
            }
            _ => {}
        }
        self.has_unsaved_changes = false;
        self.applied_commands.clear();
        Ok(())
    }

    /// Removes the run from the store if it is done, unless the agent keeps finished runs.
    async fn remove_stored_run(&mut self) -> Result<(), RunErrorKind> {
        let agent = self.origin.clone();
        match agent.0.run_store.get().filter(|_| self.run.is_done() && self.outer.is_none()) {
            Some(_) if agent.0.stored_runs.keep_finished.is_some() => {
                self.change_run().set_finished();
                self.store_run().await?;
                agent.remove_old_runs().await;
                Ok(())
            }
            Some(store) => store.remove_run(self.run.id().as_str()).await.map_err(RunErrorKind::Store),
            None => Ok(()),
        }
    }
}
