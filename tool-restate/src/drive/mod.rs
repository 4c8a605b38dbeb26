//! Drives a run inside its invocation. Everything here follows from the journal, so that a replay takes the same way: the run decides what is
//! next (`Engine::poll`), and what depends on the agent, its worker or the time is in the recorded steps.
//!
//! The agent, providers, hooks and clocks are only asked inside recorded steps (`turn.rs`, `calls.rs`), because a replay must take the same
//! way on a worker with another program.

mod state;
mod steps;
mod tree;
mod turns;
mod calls;
mod local_calls;
mod waits;
mod publish;
mod end;

use std::collections::BTreeMap;
use std::iter;

use futures_util::future::ready;
use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::*;
use tool_core::engine::{AgentProfile, Effect, EffectId, EffectResult, LayerSubject};
use tool_core::model::ConversationId;
use tool_core::signatures::Timestamp;
use tool_core::store::{MessageVolume, RunEvents};

use self::end::{CANCELLED_MESSAGE, never_started};
pub(crate) use self::state::{Drive, Setup};
use self::state::{DriveError, Driven, Node, Open};
use crate::clock::Clock;
use crate::names::{
    Ended, EventTarget, History, HoldRequest, Question, conversations_service, events_service,
};
use crate::signals::{CANCELLED, INVOCATION, QUESTION};
use crate::step::{Judged, Started};

impl<'c> Drive<'c> {
    pub(crate) async fn run(
        setup: &'c Setup,
        ctx: &'c WorkflowContext<'c>,
        question: Question,
    ) -> HandlerResult<Ended> {
        let publishes = question.events;
        let mut drive = match Self::begin(setup, ctx, question).await {
            Ok(drive) => drive,
            Err(DriveError::Cancelled) => return Ok(never_started(setup, ctx, publishes, CANCELLED_MESSAGE)),
            Err(DriveError::Failed(error)) => {
                return Ok(never_started(setup, ctx, publishes, error.message()));
            }
        };
        drive.drive_to_end().await?;
        Ok(drive.finish())
    }

    async fn begin(setup: &'c Setup, ctx: &'c WorkflowContext<'c>, question: Question) -> Driven<Self> {
        ctx.set(INVOCATION, ctx.invocation_id().to_owned());
        ctx.set(QUESTION, question.digest());
        if ctx.peek_promise::<bool>(CANCELLED).await?.is_some() {
            return Err(DriveError::Cancelled);
        }
        let publishes = question.events;
        let history = match &question.conversation {
            Some(conversation) => Some(open_conversation(setup, ctx, conversation).await?),
            None => None,
        };
        let (context, conversation) = (question.context.clone(), question.conversation.clone());
        let start = move || ready(Ok(Json(setup.steps.start(question, history))));
        let Json(started) = ctx.run(start).name("start").await?;
        let Started { mut run, deployed, at, .. } = started.map_err(TerminalError::new)?;
        run.engine().set_profile(AgentProfile::new(deployed.max_concurrent_calls));
        let events = publishes.then(|| EventTarget {
            agent: setup.name.clone(),
            run: ctx.key().to_owned(),
            token: run.id().to_string(),
        });
        if let Some(events) = &events {
            let target = RequestTarget::object(events_service(&setup.name), ctx.key(), "open");
            // Awaited, because the steps publish on another way.
            ctx.request::<_, ()>(target, events.token.clone()).call().await?;
        }
        Ok(Self {
            setup,
            ctx,
            started_with: deployed.tools.clone(),
            nodes: BTreeMap::from([(run.id().to_string(), Node::new(deployed))]),
            recorded: events.is_some().then(|| RunEvents::of(&mut run)),
            run,
            in_flight: BTreeMap::new(),
            open: Open::default(),
            context,
            conversation,
            clock: Clock::starting_at(at),
            events,
            unpublished: Vec::new(),
            waiting: Vec::new(),
            round: 0,
            messages: 0,
            message_volume: MessageVolume::default(),
            messages_checked_at: at,
            failure: None,
        })
    }

    async fn drive_to_end(&mut self) -> HandlerResult<()> {
        loop {
            match self.advance().await {
                Ok(false) => {}
                Ok(true) => return Ok(()),
                Err(DriveError::Cancelled) => self.cancel().await,
                Err(DriveError::Failed(error)) => return Err(error.into()),
            }
        }
    }

    /// Does what is next. Returns `true` if the run has ended.
    async fn advance(&mut self) -> Driven<bool> {
        self.drop_abandoned();
        self.expire_questions().await?;
        let group: Vec<_> = iter::from_fn(|| self.run.engine().poll()).collect();
        if !group.is_empty() {
            return self.perform(group).await.map(|()| false);
        }
        if self.run.is_done() && !self.has_message().await? {
            self.publish_waits();
            return Ok(true);
        }
        self.await_next().await?;
        Ok(false)
    }

    /// Performs effects that do not depend on each other's results. Those that were not performed when the run is cancelled are polled again.
    async fn perform(&mut self, group: Vec<(EffectId, Effect)>) -> Driven {
        let ids: Vec<_> = group.iter().map(|(id, _)| id.clone()).collect();
        let performed = self.perform_all(group).await;
        if performed.is_err() {
            ids.iter().for_each(|id| self.handle(id, EffectResult::Cancelled));
        }
        performed
    }

    async fn perform_all(&mut self, group: Vec<(EffectId, Effect)>) -> Driven {
        let (mut started, mut asking) = (Vec::new(), Vec::new());
        for (id, effect) in group {
            match effect {
                Effect::Call(request) => started.push((id, *request, false)),
                Effect::Begin(request) => started.push((id, *request, true)),
                Effect::CallModel => asking.push(id),
                Effect::End => self.finish_agent(&id).await?,
                Effect::Judge(LayerSubject::Execution(execution)) => {
                    self.judge(&id, "output", Judged::Outcome(execution)).await?;
                }
                Effect::Judge(LayerSubject::Next) => self.judge(&id, "preparation", Judged::Next).await?,
                Effect::Judge(LayerSubject::Results) => self.judge(&id, "records", Judged::Results).await?,
                Effect::GiveUp => self.judge(&id, "calls that are given up", Judged::GivenUp).await?,
            }
        }
        if !started.is_empty() {
            self.start(started).await?;
        }
        if !asking.is_empty() {
            self.ask(&asking).await?;
        }
        Ok(())
    }

    /// Asks the models of runs.
    async fn ask(&mut self, asking: &[EffectId]) -> Driven {
        if self.is_time_to_check_messages() && self.has_message().await? {
            asking.iter().for_each(|id| self.handle(id, EffectResult::Cancelled));
            return self.await_next().await;
        }
        self.publish_waits();
        self.take_turns(asking).await
    }

    /// Hands the run the result of an effect.
    fn handle(&mut self, id: &EffectId, result: EffectResult) {
        if self.run.engine().handle(id, result).is_err() {
            self.fail("a recorded step is of another state of the run");
        }
    }

    /// Stops the run for a reason that is none of its rules. The effects of its calls are undone.
    fn fail(&mut self, message: impl Into<String>) {
        self.failure.get_or_insert_with(|| message.into());
        self.run.engine().cancel_unjudged();
    }

    /// Sets the time of the run, but to none at which a question expires about which somebody may have decided.
    fn tick(&mut self) {
        let questions = self.run.waits().into_iter().filter(|wait| wait.question().is_some());
        let before =
            questions.filter_map(|wait| wait.deadline).map(|at| at.as_millis().saturating_sub(1)).min();
        let now = self.clock.time();
        self.run.tick(before.map_or(now, |before| now.min(Timestamp::from_millis(before))));
    }
}

/// Waits until the conversation is free, and returns what the run reads of it.
async fn open_conversation(
    setup: &Setup,
    ctx: &WorkflowContext<'_>,
    conversation: &ConversationId,
) -> Result<History, TerminalError> {
    let target = RequestTarget::object(conversations_service(&setup.name), conversation.as_str(), "hold");
    let hold = HoldRequest { run: ctx.key().to_owned(), invocation: ctx.invocation_id().to_owned() };
    drop(ctx.request::<_, ()>(target, Json(hold)).send());
    let Json(history) = ctx.signal::<Json<History>>("history").await?;
    Ok(history)
}
