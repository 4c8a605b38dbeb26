//! Starts, continues and cancels runs, and passes decisions and messages to them.
//!
//! No lock is held while a store is read or written: the store decides what was first.
//!
//! - A store that hangs for one run must not keep others waiting. A question reserves its conversation while it starts, because two at once
//!   would else start two runs.
//! - A run that a page or a chat continues is driven in a task of its own, because nobody's window may cancel what was approved.
//! - Which decision is first is decided by the order of the run's inbox, which the poster reads again, and by the run itself, because a
//!   window can be old and a program is not alone. A decision that was recorded here is recognized before (`decisions`).
//! - A chat asks the store for its run unless it drives it, because another process can have asked the last question.
//! - A message in a chat denies what its user could have decided and nothing else, because "how long does it take?" must not deny a refund.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::timeout;
use tool_core::agent::{Ask, CommandError, CommandErrorKind};
use tool_core::content::Content;
use tool_core::memory::{RunStatus, Window};
use tool_core::run::{Decision, Run, UserMessage, Wait};
use tool_core::signatures::{DecisionKind, DecisionReceipt, DecisionRecord, ResolveErrorKind};
use tool_core::store::{ChatStore, PostOutcome, PostedCommand, RunCommand};
use tool_core::tool::WaitId;
use tool_core::{CancellationToken, ConversationId, Event, Message, RunErrorKind};
use tool_http::server::SenderPermit;

use crate::bounded::lock;
use crate::decisions::{Recorded, digest};
use crate::entry::Failure;
use crate::guard::HttpError;
use crate::hub::{Follower, Hub};
use crate::log::{FrontendTools, RunLog};
use crate::source::{Loaded, Source};

/// The number of messages that are remembered in a conversation of an agent without a memory.
const MAX_HISTORY: usize = 200;

/// How long a message waits until the run of the last question is stored, or its driver has left it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was asked, and what is shown of it.
pub(crate) struct Followed {
    pub(crate) log: Arc<RunLog>,
    /// The position behind which the response begins.
    pub(crate) after: Option<u64>,
    /// The number of messages of the user.
    pub(crate) messages: usize,
}

/// A run that is to be driven here.
struct Driving {
    follower: Follower,
    /// The conversation that is remembered here.
    conversation: Option<ConversationId>,
}

impl Hub {
    /// Counts a run as driven for a sender until the permit is dropped.
    fn permit_run(&self, sender: &str) -> Result<SenderPermit, HttpError> {
        self.driven.acquire(sender).map_err(|limit| {
            HttpError::too_many(limit, |max| {
                format!("`{sender}` has {max} runs in progress already; wait until one ends, or cancel one")
            })
        })
    }

    /// Begins to follow a run that this process drives.
    fn follow(&self, source: &Arc<Source>, run: &Run) -> Driving {
        let has_memory = source.agent.as_ref().is_some_and(|agent| agent.memory().is_some());
        let conversation = run.conversation().cloned().filter(|_| !has_memory);
        self.index.forget(run.id().as_str());
        Driving { follower: Follower::new(self, source, run.id().as_str()), conversation }
    }

    /// Drives a run in a task of its own, which holds the permit: who asked or decided can leave.
    fn drive(self: &Arc<Self>, driving: Driving, ask: Ask, permit: Option<SenderPermit>) {
        let Driving { follower, conversation } = driving;
        let token = CancellationToken::new();
        *lock(&follower.0.token) = Some(token.clone());
        let mut events = ask.tools(follower.0.tools()).cancellation_token(token).stream();
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            let _permit = permit;
            while let Some(event) = events.next().await {
                match (event, &conversation) {
                    (Ok(Event::Done(answer)), Some(conversation)) => {
                        hub.remember(conversation, answer.into_messages()).await;
                    }
                    (Ok(_), _) => {}
                    (Err(error), _) => {
                        Failure::of(&error).into_iter().for_each(|why| follower.0.set_failure(why));
                    }
                }
            }
            // The run is at rest once it is stored again.
            hub.index.forget(&follower.0.id);
        });
    }

    /// Records decisions about what a run waits for, and continues the run if nobody drives it. Only the first decision about a
    /// wait counts; an equal one is answered in the same way, and of another one, the record of the first is returned as the inner
    /// error. If one of them is refused, none is recorded, unless another process decides in the same moment.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        id: &str,
        by: &str,
        decisions: Vec<(WaitId, Decision)>,
    ) -> Result<Result<Vec<Recorded>, DecisionRecord>, HttpError> {
        let (mut answers, mut open) = (Vec::new(), Vec::new());
        for (wait, decision) in decisions {
            match self.decisions.get(&wait) {
                Some(recorded) if recorded.is(&decision) => answers.push(recorded),
                Some(recorded) => return Ok(Err(recorded.record)),
                None => open.push((wait, decision)),
            }
        }
        if open.is_empty() {
            return Ok(Ok(answers));
        }
        let permit = self.permit_run(by)?;
        let Some(source) = self.source_of(id).await? else { return Err(self.refusal(id).await) };
        let log = self.log_of(&source, id);
        log.refresh().await;
        let position = log.last();
        let decided = loop {
            let signed = open.iter().map(|(wait, decision)| (wait.clone(), decision.clone().by(by)));
            let error = match source.decide(id, signed.collect()).await {
                Ok(decided) => break decided,
                Err(error) => error,
            };
            let Some(earlier) = error.decided().cloned() else { return Err(self.refused(id, &error).await) };
            // Another process has recorded it. Answers and new arguments cannot be compared.
            let is_same = |(wait, decision): &(WaitId, Decision)| {
                *wait == earlier.wait && decision.kind() == Some(earlier.kind) && is_plain(earlier.kind)
            };
            let Some(index) = open.iter().position(is_same) else { return Ok(Err(earlier)) };
            let (_, decision) = open.remove(index);
            let before = log.position_before(&earlier.wait);
            answers.push(self.decisions.insert(earlier, digest(&decision), before));
            if open.is_empty() {
                return Ok(Ok(answers));
            }
        };
        let digests: Vec<_> = open.iter().map(|(_, decision)| digest(decision)).collect();
        check_secret(&decided)?;
        let records: Vec<_> = decided.decisions().iter().map(|(_, record)| record.clone()).collect();
        self.continue_decided(&source, decided, permit);
        for (record, digest) in records.into_iter().zip(digests) {
            answers.push(self.decisions.insert(record, digest, position));
        }
        Ok(Ok(answers))
    }

    /// Continues a run that was decided about, unless another driver does or its budget is unknown here.
    fn continue_decided(
        self: &Arc<Self>,
        source: &Arc<Source>,
        decided: DecisionReceipt,
        permit: SenderPermit,
    ) {
        if decided.is_driven_elsewhere() || check_budget(decided.run()).is_err() {
            return;
        }
        let driving = self.follow(source, decided.run());
        if let Some(ask) = decided.resume() {
            self.drive(driving, ask, Some(permit));
        }
    }

    /// Explains why a command to a run has no effect.
    async fn refused(&self, id: &str, error: &CommandError) -> HttpError {
        match error.kind() {
            CommandErrorKind::UnknownRun => self.refusal(id).await,
            CommandErrorKind::Refused(refused) if refused.kind() == ResolveErrorKind::UnknownWait => {
                if let Err(ended) = self.load_open(id).await {
                    return ended;
                }
                HttpError::conflict("the run does not wait for this any more; read it again")
            }
            CommandErrorKind::Refused(refused) => HttpError::bad_request(refused.to_string()),
            CommandErrorKind::NotAllowed { .. } => HttpError(StatusCode::FORBIDDEN, error.to_string()),
            CommandErrorKind::Full => HttpError(StatusCode::TOO_MANY_REQUESTS, error.to_string()),
            CommandErrorKind::Store(_) => HttpError::store(),
            _ => HttpError::conflict(error.to_string()),
        }
    }

    /// Asks a question in a conversation, or says it to the run that works or waits there. `waits_of` returns what the sender may end.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        source: &Arc<Source>,
        conversation: &ConversationId,
        question: Content,
        tools: FrontendTools,
        sender: &str,
        waits_of: impl Fn(&Run) -> Vec<Wait>,
    ) -> Result<Followed, HttpError> {
        let agent = source.agent.as_ref().ok_or_else(HttpError::unknown_run)?;
        // Two questions at once would start two runs.
        let _asking = source.begin_question(conversation).ok_or_else(|| {
            HttpError::conflict("the last question is just being asked; send this one again")
        })?;
        if let Some(run) = self.run_of(source, conversation).await
            && let Some(asked) = self.say_in_turn(&run, &question, sender, waits_of).await?
        {
            return Ok(asked);
        }
        let permit = self.permit_run(sender)?;
        let mut ask = agent.ask(question).user(sender).conversation(conversation.clone());
        if agent.memory().is_none() {
            ask = ask.history(self.histories.load(conversation).await.unwrap_or_default());
        }
        let run = ask.start().into_run();
        let driving = self.follow(source, &run);
        let log = Arc::clone(&driving.follower.0);
        log.offer(tools);
        self.drive(driving, agent.resume(run), Some(permit));
        source.set_run_of(conversation, &log.id);
        Ok(Followed { log, after: None, messages: 1 })
    }

    /// Says something to the run of a conversation. What the sender may end of what it waits for is denied, and it goes on; what others
    /// decide stays open, because a question about a refund must not deny it. Returns `None` if the run neither works nor waits.
    async fn say_in_turn(
        self: &Arc<Self>,
        id: &str,
        message: &Content,
        sender: &str,
        waits_of: impl Fn(&Run) -> Vec<Wait>,
    ) -> Result<Option<Followed>, HttpError> {
        let loaded = self.load(id).await?;
        let is_running = |loaded: &Loaded| loaded.status == RunStatus::RunningElsewhere;
        let elsewhere = loaded.as_ref().filter(|loaded| is_running(loaded)).map(|loaded| &loaded.source);
        let driven = self.log(id).filter(|log| log.is_driven());
        if let Some(log) = driven.or_else(|| elsewhere.map(|source| self.log_of(source, id))) {
            let messages = loaded.map(async |loaded| loaded.messages().await);
            let messages = 1 + match messages {
                Some(messages) => messages.await,
                // It is about to be stored.
                None => 1,
            };
            if !self.post_message(id, message, sender).await? {
                wait_until_left(&log).await;
                return Ok(None);
            }
            log.refresh().await;
            return Ok(Some(Followed { after: log.last(), log, messages }));
        }
        let loaded = loaded.filter(|loaded| {
            // One that has failed and changed nothing is forgotten by the next question.
            let has_failed = loaded.status == RunStatus::Failed && loaded.run.may_have_had_effects();
            has_failed || matches!(loaded.status, RunStatus::Waiting | RunStatus::Interrupted)
        });
        let Some(loaded) = loaded else { return Ok(None) };
        let messages = loaded.messages().await + 1;
        let Loaded { source, run, .. } = loaded;
        check_budget(&run)?;
        let permit = self.permit_run(sender)?;
        let log = self.log_of(&source, id);
        let denial = || Decision::deny("the user sent another message instead").by("the next message");
        // Calls whose results the caller supplies go on waiting.
        let denied = waits_of(&run).into_iter().filter(|wait| wait.check(&denial()).is_ok());
        let denials: Vec<_> = denied.map(|wait| (wait.id, denial())).collect();
        if !self.post_message(id, message, sender).await? {
            return Ok(None);
        }
        // Without it, somebody has decided in the same moment.
        let decided = source.decide(id, denials).await.ok();
        decided.as_ref().map(check_secret).transpose()?;
        // What was denied belongs to the message before.
        log.refresh().await;
        let after = log.last();
        match decided {
            Some(decided) => self.continue_decided(&source, decided, permit),
            None => _ = self.resume_now(id, Some(permit)).await?,
        }
        Ok(Some(Followed { log, after, messages }))
    }

    /// Returns the latest run of a conversation, which another process can have started.
    pub(crate) async fn run_of(&self, source: &Source, conversation: &ConversationId) -> Option<String> {
        let known = source.known_run_of(conversation);
        let is_driven = |id: &String| self.log(id).is_some_and(|log| log.is_driven());
        match known.filter(is_driven) {
            Some(known) => Some(known),
            None => {
                source.stored_run_of(conversation, true).await.or_else(|| source.known_run_of(conversation))
            }
        }
    }

    /// Loads a run that has not ended.
    async fn load_open(&self, id: &str) -> Result<Option<Loaded>, HttpError> {
        let loaded = self.load(id).await?;
        match loaded.as_ref().is_some_and(|loaded| loaded.status == RunStatus::Finished) {
            true => Err(HttpError::conflict("the run has ended")),
            false => Ok(loaded),
        }
    }

    /// Loads a run, which can be about to be stored.
    pub(crate) async fn load_begun(&self, log: &RunLog) -> Result<Option<Loaded>, HttpError> {
        loop {
            let mut changes = log.changes();
            let loaded = self.load(&log.id).await?;
            if loaded.is_some() || !log.is_driven() || timeout(PATIENCE, changes.changed()).await.is_err() {
                return Ok(loaded);
            }
        }
    }

    /// Says something to a run that works or waits.
    pub(crate) async fn say(&self, id: &str, message: &Content, sender: &str) -> Result<(), HttpError> {
        match self.post_message(id, message, sender).await? {
            true => Ok(()),
            false => Err(HttpError::conflict("the run has ended")),
        }
    }

    /// Returns `false` if the run has finished: the message is a new question then.
    async fn post_message(&self, id: &str, message: &Content, sender: &str) -> Result<bool, HttpError> {
        let source = self.source_of(id).await?;
        let Some(agent) = source.as_ref().and_then(|source| source.agent.as_ref()) else {
            return Err(self.refusal(id).await);
        };
        loop {
            let log = self.log(id).filter(|log| log.is_driven());
            let mut changes = log.map(|log| log.changes());
            let message = UserMessage::new(message.clone()).by(sender);
            let Err(error) = agent.say(id, message).await else { return Ok(true) };
            // One that is being undone has ended, too, but not finished.
            let has_ended = matches!(error.kind(), CommandErrorKind::Ended);
            if has_ended && self.load(id).await?.is_none_or(|loaded| loaded.status == RunStatus::Finished) {
                return Ok(false);
            }
            // A run that has just begun is stored before its first event.
            let may_begin = matches!(error.kind(), CommandErrorKind::UnknownRun);
            let has_begun = match changes.as_mut().filter(|_| may_begin) {
                Some(changes) => timeout(PATIENCE, changes.changed()).await.is_ok(),
                None => false,
            };
            if !has_begun {
                return Err(self.refused(id, &error).await);
            }
        }
    }

    /// Continues a stored run, unless somebody drives it. Fails if nobody here can drive it.
    pub(crate) async fn resume(self: &Arc<Self>, id: &str, sender: &str) -> Result<(), HttpError> {
        self.load_open(id).await?.map_or(Ok(()), |loaded| check_budget(&loaded.run))?;
        let permit = self.permit_run(sender)?;
        if self.resume_now(id, Some(permit)).await? { Ok(()) } else { Err(self.refusal(id).await) }
    }

    async fn resume_now(self: &Arc<Self>, id: &str, permit: Option<SenderPermit>) -> Result<bool, HttpError> {
        self.index.forget(id);
        let Some(Loaded { source, run, status }) = self.load(id).await? else { return Ok(false) };
        if status == RunStatus::Finished {
            return Ok(true);
        }
        let Some(agent) = &source.agent else { return Ok(false) };
        let is_driven_here = self.log(id).is_some_and(|log| log.is_driven());
        if status != RunStatus::RunningElsewhere && !is_driven_here {
            let driving = self.follow(&source, &run);
            self.drive(driving, agent.resume(run).ignore_expiry(), permit);
        }
        Ok(true)
    }

    /// Cancels a run, in this process or in another.
    pub(crate) async fn cancel(self: &Arc<Self>, id: &str) -> Result<(), HttpError> {
        let loaded = self.load_open(id).await?;
        let token = self.log(id).and_then(|log| lock(&log.token).clone());
        token.iter().for_each(CancellationToken::cancel);
        let command = PostedCommand::new(RunCommand::Cancel);
        if let Some(loaded) = loaded
            && matches!(loaded.source.store.post(id, &command).await, Ok(PostOutcome::Posted))
        {
            // It only ends, which needs no permit.
            self.resume_now(id, None).await?;
        } else if token.is_none() {
            return Err(self.refusal(id).await);
        }
        Ok(())
    }

    /// Ends a stored run that nobody drives, and keeps what its calls have done.
    pub(crate) async fn end(&self, id: &str) -> Result<(), HttpError> {
        self.index.forget(id);
        let Some(Loaded { source, run, .. }) = self.load_open(id).await? else {
            return Err(self.refusal(id).await);
        };
        let Some(agent) = &source.agent else { return Err(self.refusal(id).await) };
        agent.end(run).await.map_err(|error| match error.kind() {
            RunErrorKind::Store(_) => HttpError::store(),
            _ => HttpError::conflict(error.to_string()),
        })
    }

    /// Remembers the messages of an answer. A conversation that is too large is forgotten.
    async fn remember(&self, conversation: &ConversationId, messages: Vec<Message>) {
        let mut history = self.histories.load(conversation).await.unwrap_or_default();
        history.extend(messages);
        let history = Window::messages(MAX_HISTORY).apply(history);
        if self.histories.replace(conversation, &history).await.is_err() {
            drop(self.histories.clear(conversation).await);
        }
    }
}

/// Waits until the driver of a finished run has left it: the next question begins with the conversation as the driver has left it.
async fn wait_until_left(log: &RunLog) {
    let mut changes = log.changes();
    let left = async { while log.is_driven() && changes.changed().await.is_ok() {} };
    let _ = timeout(PATIENCE, left).await;
}

/// Returns `true` if two decisions of this kind are equal.
fn is_plain(kind: DecisionKind) -> bool {
    matches!(kind, DecisionKind::Approved | DecisionKind::Denied | DecisionKind::Declined)
}

/// Checks that an answer that is stored nowhere is used here.
fn check_secret(decided: &DecisionReceipt) -> Result<(), HttpError> {
    let is_secret = decided.decisions().iter().any(|(wait, record)| {
        record.kind == DecisionKind::Answered && wait.question().is_some_and(|one| one.is_secret())
    });
    if is_secret { check_budget(decided.run()) } else { Ok(()) }
}

/// Checks that a run is charged to nothing that only its program knows.
pub(crate) fn check_budget(run: &Run) -> Result<(), HttpError> {
    match run.engine_view().has_own_budget() {
        false => Ok(()),
        true => Err(HttpError::conflict(
            "the run is charged to a budget that only its program knows; let it continue the run: `agent.resume(run).budget(…)`",
        )),
    }
}
