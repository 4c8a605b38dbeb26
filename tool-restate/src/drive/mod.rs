//! Drives a run inside its invocation. Everything here follows from the journal, so that a replay takes the same way: [`Run`] has
//! the rules, and what depends on the agent, its worker or the time is in the recorded steps.
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

use futures_util::future::ready;
use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::*;
use tool_core::ToolCall;
use tool_core::model::ConversationId;
use tool_core::run::{MessageLoad, Run};
use tool_core::tool::Timestamp;

use self::end::{CANCELLED_MESSAGE, never_started};
use self::state::{Branch, DriveError, Driven, Node, Open};
pub(crate) use self::state::{Drive, Setup};
use crate::clock::Clock;
use crate::names::{
    Ended, EventTarget, History, HoldRequest, Question, conversations_service, events_service,
};
use crate::path::call_ids;
use crate::signals::{CANCELLED, INVOCATION, QUESTION};
use crate::step::{Started, Subject};

/// What is done next.
enum Action {
    /// Starts calls of a run.
    Start(Branch, Vec<ToolCall>),
    /// Lets the agent of a run see what its layers have not judged: an answer that is an output, or calls that were decided about.
    Prepare(Branch),
    /// Reports what has happened in a run to layers that record it.
    Record(Branch),
    /// Asks the models of runs.
    Ask(Vec<Branch>),
    /// Ends a run that is done.
    End(Branch),
    /// Awaits something that is pending.
    Await,
}

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
        let Started { run, profile, at, .. } = started.map_err(TerminalError::new)?;
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
            started_with: profile.tools.clone(),
            nodes: vec![Node::new(&run, profile, at)],
            branches: vec![Branch::default()],
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
            message_load: MessageLoad::default(),
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
        self.drop_ended();
        self.expire_questions().await?;
        self.apply_tool_policies();
        if self.run.has_given_up_calls() {
            self.judge(&Branch::default(), "calls that are given up", Subject::GivenUp).await?;
            self.run.forget_given_up_calls();
        }
        match self.next_action() {
            Action::Start(branch, calls) => self.start(&branch, calls).await?,
            Action::Prepare(branch) => self.judge(&branch, "preparation", Subject::Next).await?,
            Action::Record(branch) => self.judge(&branch, "records", Subject::Results).await?,
            Action::Ask(branches) => self.ask(&branches).await?,
            Action::End(branch) if branch.path.is_empty() => {
                if self.has_message().await? {
                    self.await_next().await?;
                    return Ok(false);
                }
                self.publish_waits();
                return Ok(true);
            }
            Action::End(branch) => self.finish_agent(&branch).await?,
            Action::Await => self.await_next().await?,
        }
        Ok(false)
    }

    /// Returns what is done next. All calls are started before models are asked, because nothing else happens meanwhile.
    fn next_action(&self) -> Action {
        let runs = || self.branches.iter().filter_map(|one| Some((one, self.run_at(&one.path)?)));
        let all = |is: fn(&Run) -> bool| runs().filter(move |(_, run)| is(run)).map(|(one, _)| one.clone());
        let tree = self.tree_in_flight(&[]);
        let mut startable = self.branches.iter().map(|one| (one, self.startable(one, &tree)));
        if let Some((branch, calls)) = startable.find(|(_, calls)| !calls.is_empty()) {
            return Action::Start(branch.clone(), calls);
        }
        if let Some(branch) = all(Run::awaits_layers).next() {
            return Action::Prepare(branch);
        }
        // Not in the step that asks a model, which reports it again each time that the model fails.
        if let Some((branch, _)) = runs().find(|(one, run)| self.nodes[one.node].has_unrecorded(run)) {
            return Action::Record(branch.clone());
        }
        if let Some(branch) = all(Run::is_done).next() {
            return Action::End(branch);
        }
        let mut asking: Vec<_> = all(Run::is_asking).collect();
        // What one request costs is known before the next one: requests of one step do not know of each other.
        if runs().any(|(_, run)| run.limits().max_cost.is_some()) {
            asking.truncate(1);
        }
        if asking.is_empty() { Action::Await } else { Action::Ask(asking) }
    }

    /// Applies the policies of the tools to the open calls, which can finish them. Layers judge them before.
    fn apply_tool_policies(&mut self) {
        let in_flight = self.in_flight(&[]);
        for (branch, in_flight) in self.branches.iter().zip(&in_flight) {
            let node = &self.nodes[branch.node];
            let how_to_undo = |handoffs, name: &str| node.how_to_undo(handoffs, name);
            self.run.change_inner_run_at(&call_ids(&branch.path), |run| {
                if !run.awaits_layers() {
                    run.apply_tool_policies(&node.definitions, how_to_undo, in_flight);
                }
            });
        }
    }

    /// Asks the models of runs.
    async fn ask(&mut self, branches: &[Branch]) -> Driven {
        if self.is_time_to_check_messages() && self.has_message().await? {
            return self.await_next().await;
        }
        self.publish_waits();
        self.take_turns(branches).await
    }

    /// Stops the run for a reason that is none of its rules. The effects of its calls are undone.
    fn fail(&mut self, message: impl Into<String>) {
        self.failure.get_or_insert_with(|| message.into());
        self.run.cancel_unjudged();
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
