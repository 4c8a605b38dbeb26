//! Drives a run inside its invocation. Everything here follows from the journal, so that a replay takes the same way: [`Run`] has
//! the rules, and what depends on the agent, its worker or the time is in the recorded steps.

mod tree;
mod turns;
mod calls;
mod local_calls;
mod waits;
mod publish;
mod end;

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::ready;
use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::*;
use tool_core::agent::EventRecord;
use tool_core::layer::Part;
use tool_core::model::{ConversationId, ModelError};
use tool_core::run::{Run, Step};
use tool_core::tool::{Timestamp, WaitId};
use tool_core::{Message, ToolCall};

use self::calls::{Open, Remote};
use self::end::{CANCELLED_MESSAGE, never_started};
use self::tree::{Branch, Node};
use crate::clock::{Clock, now};
use crate::events::{EventTarget, events_service};
use crate::names::{Ended, HoldRequest, JsonContext, Question, conversations_service};
use crate::runs::{INVOCATION, QUESTION, Runs};
use crate::step::{Started, Subject};

/// The code of the error with which the engine reports a cancellation.
const CANCELLED: u16 = 409;

/// The longest delay between two requests to a model that fails.
const MODEL_DELAY: Duration = Duration::from_secs(60);

fn is_cancellation(error: &TerminalError) -> bool {
    error.code() == CANCELLED
}

/// A run in progress, with the runs of the agents that its calls ask.
pub(crate) struct Drive<'c> {
    service: &'c Runs,
    ctx: &'c WorkflowContext<'c>,
    /// The outermost run, whose state contains the others.
    run: Run,
    /// The agent's tools when the run started.
    started_with: BTreeMap<String, String>,
    /// What is known about each run that was started, the outermost first.
    nodes: Vec<Node>,
    /// The runs that have not ended, the outermost first.
    branches: Vec<Branch>,
    /// The calls that other invocations execute, by their positions among what is pending.
    in_flight: BTreeMap<usize, Remote>,
    open: Open<'c>,
    context: JsonContext,
    conversation: Option<ConversationId>,
    clock: Clock,
    /// The object that stores the events of the run and its steps, if there may be readers.
    events: Option<EventTarget>,
    unpublished: Vec<EventRecord>,
    /// What is known to wait for a decision.
    waiting: Vec<WaitId>,
    /// The last wait for an approval of each call, by the path of the call.
    approvals: BTreeMap<String, WaitId>,
    /// The number of times that the run waited for a decision.
    round: u32,
    /// The number of messages that were sent to the run.
    messages: u32,
    /// The reason of a failure that is not one of the run's rules.
    failure: Option<String>,
}

/// What is done next.
enum Action {
    /// Starts calls of a run.
    Start(Branch, Vec<ToolCall>),
    /// Asks the models of runs.
    Ask(Vec<Branch>),
    /// Ends a run that is done.
    End(Branch),
    /// Awaits something that is pending.
    Await,
}

impl<'c> Drive<'c> {
    pub(crate) async fn run(
        service: &'c Runs,
        ctx: &'c WorkflowContext<'c>,
        question: Question,
    ) -> HandlerResult<Ended> {
        ctx.set(INVOCATION, ctx.invocation_id().to_owned());
        ctx.set(QUESTION, question.digest());
        let publishes = question.events;
        let history = match &question.conversation {
            Some(conversation) => match open_conversation(service, ctx, conversation).await {
                Ok(history) => history,
                Err(error) if is_cancellation(&error) => {
                    return Ok(never_started(service, ctx, publishes, CANCELLED_MESSAGE));
                }
                Err(error) => return Ok(never_started(service, ctx, publishes, error.message())),
            },
            None => Vec::new(),
        };
        let (context, conversation) = (question.context.clone(), question.conversation.clone());
        let start = move || ready(Ok(Json(service.model.start(question, history))));
        let started = match ctx.run(start).name("start").await {
            Ok(Json(Ok(started))) => started,
            Ok(Json(Err(message))) => return Ok(never_started(service, ctx, publishes, &message)),
            Err(error) if is_cancellation(&error) => {
                return Ok(never_started(service, ctx, publishes, CANCELLED_MESSAGE));
            }
            Err(error) => return Err(error.into()),
        };
        let Started { run, profile, at, .. } = started;
        let events = publishes.then(|| EventTarget {
            agent: service.name.clone(),
            run: ctx.key().to_owned(),
            token: run.id().to_string(),
        });
        if let Some(events) = &events {
            let target = RequestTarget::object(events_service(&service.name), ctx.key(), "open");
            // Awaited, because the steps publish on another way.
            let opened = ctx.request::<_, ()>(target, events.token.clone()).call().await;
            if opened.is_err_and(|error| is_cancellation(&error)) {
                return Ok(never_started(service, ctx, publishes, CANCELLED_MESSAGE));
            }
        }
        let mut drive = Self {
            service,
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
            approvals: BTreeMap::new(),
            round: 0,
            messages: 0,
            failure: None,
        };
        drive.drive_to_end().await?;
        Ok(drive.finish())
    }

    async fn drive_to_end(&mut self) -> HandlerResult<()> {
        loop {
            self.abandon();
            let taken = match self.expire().await {
                Ok(()) => match self.next_action() {
                    Action::Start(branch, calls) => self.start(&branch, calls).await?,
                    Action::Ask(branches) => self.ask(&branches).await?,
                    Action::End(branch) if self.has_new_answer(&branch) => {
                        let run = self.run_at(&branch.path);
                        self.nodes[branch.node].judged_answers = run.map_or(0, |run| run.messages().len());
                        self.judge(&branch, "answer", Subject::Next).await?
                    }
                    Action::End(branch) if branch.path.is_empty() => {
                        self.ask_person();
                        return Ok(());
                    }
                    Action::End(branch) => self.finish_agent(&branch).await?,
                    Action::Await => self.await_next().await?,
                },
                Err(error) => Err(error),
            };
            match taken {
                Ok(()) => {}
                Err(error) if is_cancellation(&error) => self.cancel().await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns what is done next. All calls are started before models are asked, because nothing else happens meanwhile.
    fn next_action(&mut self) -> Action {
        let (mut asking, mut done) = (Vec::new(), None);
        for branch in self.branches.clone() {
            let (in_flight, definitions) =
                (self.in_flight(&branch), self.nodes[branch.node].definitions.clone());
            let calls =
                self.change_at(&branch.path, |run| match run.next_with_in_flight(&definitions, &in_flight) {
                    Step::CallTools(calls) => calls,
                    _ => Vec::new(),
                });
            let calls = calls.unwrap_or_default().into_iter();
            let calls: Vec<_> = calls.filter(|call| self.may_start(&branch, call)).collect();
            if !calls.is_empty() {
                return Action::Start(branch, calls);
            }
            match self.run_at(&branch.path) {
                Some(run) if run.is_done() => drop(done.get_or_insert(branch)),
                Some(run) if run.is_asking() => asking.push(branch),
                _ => {}
            }
        }
        // What one request costs is known before the next one: requests of one step do not know of each other.
        let has_max_cost =
            |one: &Branch| self.run_at(&one.path).is_some_and(|run| run.limits().max_cost.is_some());
        if self.branches.iter().any(has_max_cost) {
            asking.truncate(1);
        }
        match done {
            Some(branch) => Action::End(branch),
            None if asking.is_empty() => Action::Await,
            None => Action::Ask(asking),
        }
    }

    /// Asks the models of runs, or the layers about a question that is new.
    async fn ask(&mut self, branches: &[Branch]) -> HandlerResult<Result<(), TerminalError>> {
        self.ask_person();
        self.open.has_timer = false;
        let Some(branch) = branches.iter().find(|branch| self.has_new_question(branch)) else {
            return self.take_turns(branches).await;
        };
        let run = self.run_at(&branch.path);
        self.nodes[branch.node].judged_questions = run.map_or(0, |run| run.messages().len());
        self.judge(branch, "question", Subject::Next).await
    }

    /// Returns `true` if layers have to judge a message of the user.
    fn has_new_question(&self, branch: &Branch) -> bool {
        let messages = self.run_at(&branch.path).map_or(&[][..], Run::messages);
        self.has_layer_for(branch, Part::Question)
            && messages.len() > self.nodes[branch.node].judged_questions
            && matches!(messages.last(), Some(Message::User(_)))
    }

    /// Returns `true` if layers have to judge an answer that is an output, and no reply.
    fn has_new_answer(&self, branch: &Branch) -> bool {
        let messages = self.run_at(&branch.path).map_or(&[][..], Run::messages);
        self.has_layer_for(branch, Part::Answer)
            && messages.len() > self.nodes[branch.node].judged_answers
            && matches!(messages.last(), Some(Message::Tool(_)))
    }

    /// Stops the run for a reason that is none of its rules. The effects of its calls are undone.
    fn fail(&mut self, message: impl Into<String>) {
        self.failure.get_or_insert_with(|| message.into());
        self.run.cancel();
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

/// Returns the outcome of a step, whose error ends it after this time; before, the engine repeats the step. Its own measure begins anew
/// with each client that begins to wait for the run.
fn repeat_until<T>(deadline: u64, outcome: Result<T, ModelError>) -> HandlerResult<Json<T>> {
    outcome.map(Json).map_err(|error| match now() < deadline {
        true => error.into(),
        false => TerminalError::new(error.to_string()).into(),
    })
}

/// Waits until the conversation is free, and returns its messages.
async fn open_conversation(
    service: &Runs,
    ctx: &WorkflowContext<'_>,
    conversation: &ConversationId,
) -> Result<Vec<Message>, TerminalError> {
    let target = RequestTarget::object(conversations_service(&service.name), conversation.as_str(), "hold");
    let hold = HoldRequest { run: ctx.key().to_owned(), invocation: ctx.invocation_id().to_owned() };
    drop(ctx.request::<_, ()>(target, Json(hold)).send());
    let Json(history) = ctx.signal::<Json<Vec<Message>>>("history").await?;
    Ok(history)
}
