//! What outlasts a run: its conversation, and the run itself while it is under way.

use crate::agent::RunDriver;
use crate::model::ConversationId;
use crate::run::Kind;

impl RunDriver {
    /// Waits for the conversation, if the agent has a memory, and puts what was said before in front of the question.
    pub(super) async fn remember(&mut self) -> Result<(), Kind> {
        let agent = self.tools.agent().clone();
        let Some(memory) = &agent.0.memory else { return Ok(()) };
        if !self.run.is_asking() || self.run.remembers() {
            return Ok(());
        }
        let id = self.run.conversation().cloned().unwrap_or_else(ConversationId::unique);
        let conversation = match self.unless_stopped(memory.open(&id)).await {
            Ok(opened) => opened.map_err(|error| Kind::NotKept(error.into()))?,
            Err(stop) => {
                self.stop(&stop);
                return Ok(());
            }
        };
        self.run.remember(conversation.messages(), conversation.stored_len());
        self.conversation = Some(conversation);
        self.is_changed = true;
        Ok(())
    }

    /// Adds what the run added to its conversation, if it has an answer.
    pub(super) async fn commit(&mut self) -> Result<(), Kind> {
        let agent = self.tools.agent().clone();
        let (Some(memory), Some(id)) = (&agent.0.memory, self.run.conversation()) else {
            return self.forget().await;
        };
        if self.run.answer_text().is_some() {
            let committed = match self.conversation.take() {
                Some(conversation) => conversation.commit(self.run.added()).await,
                None => memory.commit_once(id, self.run.added(), self.run.conversation_had()).await,
            };
            committed.map_err(|error| Kind::NotKept(error.into()))?;
        }
        self.forget().await
    }

    /// Keeps the run as it stands, if the agent keeps its runs.
    pub(super) async fn keep(&mut self) -> Result<(), Kind> {
        if self.is_changed
            && let Some(store) = &self.tools.agent().0.run_store
        {
            store.save_run(self.run.id().as_str(), &self.run).await.map_err(Kind::NotKept)?;
        }
        self.is_changed = false;
        Ok(())
    }

    /// The run is over, and need not be kept any more.
    pub(super) async fn forget(&mut self) -> Result<(), Kind> {
        match &self.tools.agent().0.run_store {
            Some(store) if self.run.is_done() => {
                store.remove_run(self.run.id().as_str()).await.map_err(Kind::NotKept)
            }
            _ => Ok(()),
        }
    }
}
