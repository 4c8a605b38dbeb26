//! Stores the conversation of a run, and the run itself while it is in progress.
//!
//! A question in a conversation goes on with the run of that conversation that was interrupted, or failed after its calls had effects,
//! because a new run would not know what they have done. A run that failed and changed nothing is removed instead, because whatever made it
//! fail would stop its conversation. A new run is stored before its conversation is looked at again, because two processes can ask at the
//! same moment.

use std::sync::Arc;

use futures_util::FutureExt;

use super::job::Job;
use super::lease::{HeldLease, RunLease};
use super::work::{StepPhase, Work};
use crate::agent::question::Begun;
use crate::agent::question_rules::{QuestionRules, Uncounted};
use crate::agent::trace::RunTrace;
use crate::agent::{Agent, RunDriver, WhileWaiting};
use crate::memory::{
    ChatMemory, CompactionSummary, LeaseRequest, LeaseState, MemoryError, OpenConversation, RunConflict,
    RunFilter, RunStatus, RunStore, RunSummary, UnreadableRun,
};
use crate::model::{ConversationId, Message};
use crate::run::{Carried, Run, RunErrorKind};
use crate::tool::Timestamp;

impl RunDriver {
    /// Fails if another agent was asked, before anything is stored or executed.
    pub(super) fn check_agent(&self) -> Result<(), RunErrorKind> {
        let name = self.performer.origin.name();
        if self.run.is_driven_by(name) {
            return Ok(());
        }
        Err(RunErrorKind::OtherAgent { name: name.map(str::to_owned) })
    }

    /// Waits for the conversation, if the agent has a memory, and inserts its messages before the question.
    pub(super) async fn load_history(&mut self) -> Result<(), RunErrorKind> {
        match self.open_conversation() {
            // Boxed, because most steps load nothing.
            Some(job) => self.load_conversation(job).boxed().await,
            None => Ok(()),
        }
    }

    async fn load_conversation(
        &mut self,
        opening: Job<Option<OpenConversation>>,
    ) -> Result<(), RunErrorKind> {
        let Some(opened) = self.perform(opening).await? else { return Ok(()) };
        let id = self.run.conversation().cloned().unwrap_or_else(ConversationId::unique);
        if let Some(earlier) = self.earlier_run(&id).await? {
            return self.go_on_with(earlier, opened).await;
        }
        let inserting = self.insert_opened(opened);
        self.perform(inserting).await?;
        self.refuse_beside(&id).await
    }

    /// Waits for the conversation, if the run has to read one. The job returns nothing if that was interrupted.
    pub(super) fn open_conversation(&self) -> Option<Job<Option<OpenConversation>>> {
        let is_needed = self.run.is_asking() && !self.run.has_loaded_history();
        let memory = self.memory_of(&self.performer.origin).filter(|_| is_needed)?.clone();
        let id = self.conversation.key.clone().or_else(|| self.run.conversation().cloned());
        let key = id.unwrap_or_else(ConversationId::unique);
        let opening = async move { memory.open(&key).await }.boxed();
        Some(Job::new(self.run_until_interrupted(opening), |driver, opened| match opened {
            Ok(opened) => opened.map(Some).map_err(|error| RunErrorKind::Store(error.into())),
            Err(interruption) => {
                driver.interrupt(&interruption);
                Ok(None)
            }
        }))
    }

    /// Inserts what is sent of a conversation before the question, with the summary of its first messages, and keeps it open.
    pub(super) fn insert_opened(&self, conversation: OpenConversation) -> Job {
        let reads_summary = self.reads_summary();
        let reading = async move {
            let summary = if reads_summary { conversation.summary().await } else { Ok(None) };
            (conversation, summary)
        };
        Job::new(self.run_until_interrupted(reading.boxed()), |driver, read| {
            let (conversation, summary) = match read {
                Ok(read) => read,
                Err(interruption) => {
                    driver.interrupt(&interruption);
                    return Ok(());
                }
            };
            let summary = summary.map_err(|error| RunErrorKind::Store(error.into()))?;
            driver.insert_loaded(conversation.messages(), conversation.stored_len(), summary);
            driver.conversation.opened = Some(Arc::new(conversation));
            Ok(())
        })
    }

    /// Returns `true` if a summary can take the place of messages, which the model can read only if the agent compacts.
    fn reads_summary(&self) -> bool {
        self.performer.origin.0.compaction.is_some()
    }

    /// Inserts what is sent of a stored conversation before the question, with the summary that stands for its first messages.
    pub(super) fn insert_loaded(
        &mut self,
        messages: &[Message],
        stored_len: usize,
        summary: Option<CompactionSummary>,
    ) {
        self.change_run().insert_history(messages, stored_len);
        let summary = summary.filter(|_| self.reads_summary());
        let Some(CompactionSummary { messages, text, details }) = summary else { return };
        // Without a summary of a provider that cannot be restored, its text may say nothing.
        if let Ok(carried) = details.map_or(Ok(Carried::default()), |json| serde_json::from_str(&json)) {
            self.change_run().carry_compaction(messages, text, carried);
        }
    }

    /// Returns the run of this conversation that the question goes on with, because it was interrupted, has failed after its calls had
    /// effects, or waits and takes questions. Fails if another one waits, is expired with effects, or has a driver. One that has failed and
    /// changed nothing is removed: what made it fail must not stop its conversation.
    async fn earlier_run(&self, conversation: &ConversationId) -> Result<Option<Run>, RunErrorKind> {
        let agent = &self.performer.origin.0;
        let Some(store) = self.performer.store() else { return Ok(None) };
        let mut earlier = None;
        for listed in self.others_of(&**store, conversation).await? {
            let is_own = listed.is_driven_by(self.performer.origin.name());
            let goes_on = match listed.status {
                RunStatus::Failed | RunStatus::Interrupted if is_own => true,
                RunStatus::Waiting if is_own && agent.stored_runs.while_waiting == WhileWaiting::GoOn => true,
                RunStatus::Waiting | RunStatus::RunningElsewhere | RunStatus::Expired => false,
                _ => continue,
            };
            // One that has ended meanwhile, or is about to end, says no more.
            let Some(run) = store.load_run(&listed.id).await.map_err(RunErrorKind::Store)? else { continue };
            let is_of_user = listed.user.as_ref() == self.run.user();
            match listed.status {
                RunStatus::Failed if goes_on && !run.may_have_had_effects() => {
                    if is_of_user {
                        self.forget_failed(store, listed).await?;
                    }
                    continue;
                }
                RunStatus::Expired if !run.may_have_had_effects() => continue,
                // Its answer is only to be stored.
                RunStatus::Interrupted if run.is_done() => continue,
                _ => {}
            }
            if !is_of_user {
                return Err(RunErrorKind::Question("the conversation has a run of another user".into()));
            }
            let is_unpaid = run.has_own_budget() && self.question.budgets.is_empty();
            if !goes_on || is_unpaid {
                return Err(RunErrorKind::ConversationWaits { run: listed.id });
            }
            if run.takes_messages() {
                earlier.get_or_insert(run);
            }
        }
        Ok(earlier)
    }

    /// Removes a run that has failed and changed nothing, unless another driver has taken it meanwhile.
    async fn forget_failed(&self, store: &Arc<dyn RunStore>, listed: RunSummary) -> Result<(), RunErrorKind> {
        let lease = HeldLease::new(Arc::clone(store), listed.id.clone());
        let taken = LeaseRequest::Take(self.performer.origin.0.stored_runs.lease);
        let state = lease.request(taken).await.map_err(RunErrorKind::Store)?;
        let run = store.load_run(&listed.id).await.map_err(RunErrorKind::Store)?;
        if state == LeaseState::HeldElsewhere || run.is_some_and(|run| run.may_have_had_effects()) {
            return Err(RunErrorKind::ConversationWaits { run: listed.id });
        }
        store.remove_run(&listed.id).await.map_err(RunErrorKind::Store)
    }

    /// Returns the other runs of this conversation, each with its status.
    async fn others_of(
        &self,
        store: &dyn RunStore,
        conversation: &ConversationId,
    ) -> Result<Vec<RunSummary>, RunErrorKind> {
        let filter = RunFilter::new().conversation(conversation.clone());
        let mut listed =
            store.list_runs(&filter).await.map_err(|error| match error.downcast::<UnreadableRun>() {
                // Nobody knows what it waits for, or what its calls have done.
                Ok(unreadable) => RunErrorKind::ConversationWaits { run: unreadable.id },
                Err(error) => RunErrorKind::Store(error),
            })?;
        listed.retain(|run| run.id != self.run.id().as_str() && run.status != RunStatus::Finished);
        for run in &mut listed {
            run.status = run.status_of(run.status, self.performer.origin.0.stored_runs.max_age);
        }
        Ok(listed)
    }

    /// Adds the question to an earlier run, and drives that one.
    async fn go_on_with(&mut self, earlier: Run, conversation: OpenConversation) -> Result<(), RunErrorKind> {
        let was_interrupted = !earlier.has_failed() && !earlier.is_blocked();
        let mut run = earlier.with_answer_form_of(&self.run).with_limits(self.run.limits().clone());
        // Expiry precedes decisions.
        run.tick(Timestamp::now());
        for (_, question) in self.run.questions() {
            run.say(question.clone()).map_err(RunErrorKind::Step)?;
        }
        run.set_failure(None);
        self.release_lease().await;
        let (tools, mut emitter) = (self.performer.tools.anew(), self.performer.emitter.clone());
        let rules = QuestionRules { uncounted: Uncounted::All, ..std::mem::take(&mut self.question) };
        emitter.hooks.extend(self.performer.origin.watch_run(&run));
        let trace = std::mem::replace(&mut self.trace, RunTrace::new(self.performer.origin.0.trace));
        let clock = self.clock;
        // Otherwise messages were added to the conversation since the run began, which can be its own.
        let is_unchanged = run.stored_conversation_len() == Some(conversation.stored_len());
        *self = Self::new(Begun::new(run, tools, emitter, rules));
        (self.trace, self.clock) = (trace, clock);
        self.conversation.opened = is_unchanged.then(|| Arc::new(conversation));
        self.take_lease().await?;
        // Without leases, nobody knows whether another process drives it.
        if was_interrupted && matches!(self.storage.lease, RunLease::Unsupported) {
            return Err(RunErrorKind::ConversationWaits { run: self.run.id().to_string() });
        }
        self.open().await
    }

    /// Fails if another process has begun a run of this conversation at the same moment. Both can fail then.
    async fn refuse_beside(&mut self, conversation: &ConversationId) -> Result<(), RunErrorKind> {
        let Some(store) = self.performer.store().cloned() else { return Ok(()) };
        self.store_run().await?;
        let others = self.others_of(&*store, conversation).await?;
        let Some(other) = others.into_iter().find(|run| run.status == RunStatus::RunningElsewhere) else {
            return Ok(());
        };
        store.remove_run(self.run.id().as_str()).await.map_err(RunErrorKind::Store)?;
        Err(RunErrorKind::ConversationWaits { run: other.id })
    }

    /// Stores the run, so that it can be resumed after an error, and releases its lease. The caller gets that error, not one of
    /// the store.
    pub(super) async fn store_failure(&mut self, kind: &RunErrorKind) {
        if kind.keeps_run() {
            if !matches!(kind, RunErrorKind::Waiting) && self.performer.asked.is_none() {
                let why = kind.describe(&self.run);
                self.change_run().set_failure(Some(why));
            }
            let _ = self.store_run().await;
        }
        self.release_lease().await;
    }

    /// Adds the new messages to the conversation if the run has an answer, and removes a finished run from the store, or marks it as finished.
    pub(in crate::agent) async fn commit(&mut self) -> Result<(), RunErrorKind> {
        let span = self.enter_span();
        span.instrument(self.commit_in_span()).await
    }

    async fn commit_in_span(&mut self) -> Result<(), RunErrorKind> {
        self.begin_commit().await?;
        // A copy that is outdated must not remove the run that another one continues.
        self.store_run().await?;
        self.end_commit().await
    }

    /// Lets the layers judge the answer of a run inside of another, and adds it to its conversation once it is saved.
    pub(super) fn commit_inside(&mut self) -> Result<Work, RunErrorKind> {
        self.check_agent()?;
        let judged = Work::Save(StepPhase::Answered);
        Ok(match self.judge_returned() {
            Some(job) => Work::Job(job.then(|_, ()| Ok(judged))),
            None => judged,
        })
    }

    /// Lets the layers judge the answer before it is saved for good.
    async fn begin_commit(&mut self) -> Result<(), RunErrorKind> {
        self.check_agent()?;
        match self.judge_returned() {
            Some(job) => self.perform(job).await,
            None => Ok(()),
        }
    }

    async fn end_commit(&mut self) -> Result<(), RunErrorKind> {
        if let Some(job) = self.commit_apart() {
            self.perform(job).await?;
        }
        self.remove_stored_run().await
    }

    /// Adds the new messages of a run with an answer to its conversation, and removes its stored outputs.
    pub(super) fn commit_apart(&self) -> Option<Job> {
        let outputs = self.performer.layers.stored_outputs().filter(|_| self.run.is_done()).cloned();
        let memory = self.memory_of(&self.performer.origin).zip(self.run.conversation());
        let added = memory.and_then(|(memory, id)| {
            let messages = self.run.engine_view().added_to_conversation()?.to_vec();
            let key = self.conversation.key.as_ref().unwrap_or(id).clone();
            Some((memory.clone(), key, messages, self.run.stored_conversation_len()))
        });
        if outputs.is_none() && added.is_none() {
            return None;
        }
        let (summary, conversation) =
            (CompactionSummary::of_run(&self.run), self.conversation.opened.clone());
        let ids = self.run.ids_of_tree();
        let committing = async move {
            if let Some((memory, key, messages, stored)) = added {
                match &conversation {
                    Some(conversation) => conversation.append(&messages, summary.as_ref()).await?,
                    None => memory.commit_once(&key, &messages, stored, summary.as_ref()).await?,
                }
            }
            if let Some(outputs) = outputs {
                // The run has ended well, whatever remains in the store.
                let _ = outputs.remove(&ids).await;
            }
            Ok::<_, MemoryError>(())
        };
        Some(Job::new(committing.boxed(), |_, committed| {
            committed.map_err(|error| RunErrorKind::Store(error.into()))
        }))
    }

    /// Returns the agent's memory, if the run has a conversation in it.
    fn memory_of<'a>(&self, agent: &'a Agent) -> Option<&'a ChatMemory> {
        agent
            .0
            .memory
            .as_ref()
            .filter(|_| self.performer.asked.as_ref().is_none_or(|outer| outer.has_conversation))
    }

    /// Stores the run in its current state, if the agent has a run store and it is the outermost one. Fails if the run was continued
    /// elsewhere.
    pub(super) async fn store_run(&mut self) -> Result<(), RunErrorKind> {
        self.record_layer_usage();
        if !self.storage.has_unsaved_changes {
            return Ok(());
        }
        if let Some(store) = self.performer.store() {
            let id = self.run.id().clone();
            let saved =
                store.save_run_after(id.as_str(), &mut self.run, &self.storage.applied_commands).await;
            saved.map_err(|error| match error.is::<RunConflict>() {
                true => {
                    // They are another driver's.
                    self.news.forget();
                    RunErrorKind::Conflict
                }
                false => RunErrorKind::Store(error),
            })?;
        }
        self.storage.has_unsaved_changes = false;
        self.storage.applied_commands.clear();
        Ok(())
    }

    /// Removes the run from the store if it is done, unless the agent keeps finished runs.
    async fn remove_stored_run(&mut self) -> Result<(), RunErrorKind> {
        let agent = self.performer.origin.clone();
        match self.performer.store().filter(|_| self.run.is_done()) {
            Some(_) if agent.0.stored_runs.keep_finished.get().is_some() => {
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
