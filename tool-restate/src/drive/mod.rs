//! Drives a run inside its invocation. Everything here follows from the journal, so that a replay takes the same way: the rules
//! are those of [`Run`], and what depends on the agent, its worker or the time is in the recorded steps.

mod turns;
mod calls;
mod local_calls;
mod waits;
mod publish;
mod end;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures_util::future::ready;
use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::*;
use tool_core::Message;
use tool_core::agent::EventRecord;
use tool_core::layer::Part;
use tool_core::model::{ConversationId, ModelError, ToolDefinitions, ToolPolicy};
use tool_core::run::{ReportedCalls, Run, Step};
use tool_core::tool::{Timestamp, WaitId};

use self::end::{CANCELLED_MESSAGE, never_started};
use crate::clock::{Clock, now};
use crate::events::{EventTarget, events_service};
use crate::names::{Ended, HoldRequest, JsonContext, Question, conversations_service};
use crate::runs::{INVOCATION, QUESTION, Runs};
use crate::turn::{CalledTool, Started};

/// The code of the error with which the engine reports a cancellation.
const CANCELLED: u16 = 409;

/// The longest delay between two requests to a model that fails.
const MODEL_DELAY: Duration = Duration::from_secs(60);

fn is_cancellation(error: &TerminalError) -> bool {
    error.code() == CANCELLED
}

/// A run in progress.
pub(crate) struct Drive<'c> {
    service: &'c Runs,
    ctx: &'c WorkflowContext<'c>,
    run: Run,
    /// The tools of the run's calls so far, by name.
    called: BTreeMap<String, CalledTool>,
    /// The tools that undo the run's calls, by name, with the hashes of their definitions.
    undoing: BTreeMap<String, (ToolPolicy, Option<String>)>,
    /// The names of all tools of the last turn, if it called another one.
    offered: Vec<String>,
    definitions: ToolDefinitions,
    /// The agent's tools when the run started.
    started_with: BTreeMap<String, String>,
    context: JsonContext,
    conversation: Option<ConversationId>,
    clock: Clock,
    /// The object that stores the events of the run and its steps, if there may be readers.
    events: Option<EventTarget>,
    unpublished: Vec<EventRecord>,
    reported: ReportedCalls,
    /// The number of messages when layers last judged a question, and an output as the answer.
    judged_questions: usize,
    judged_answers: usize,
    /// The calls that wait or have waited, and do not start again.
    waited: HashSet<String>,
    /// What is known to wait for a decision.
    waiting: Vec<WaitId>,
    /// The last wait for an approval of each call, by the id of the call.
    approvals: BTreeMap<String, WaitId>,
    /// The number of times that the run waited for a decision.
    round: u32,
    /// The reason of a failure that is not one of the run's rules.
    failure: Option<String>,
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
        let Started { run, tools, at } = started;
        let reported = ReportedCalls::all_of(&run);
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
            run,
            called: BTreeMap::new(),
            undoing: BTreeMap::new(),
            offered: Vec::new(),
            definitions: ToolDefinitions::default(),
            started_with: tools,
            context,
            conversation,
            clock: Clock::starting_at(at),
            events,
            unpublished: Vec::new(),
            reported,
            judged_questions: 0,
            judged_answers: 0,
            waited: HashSet::new(),
            waiting: Vec::new(),
            approvals: BTreeMap::new(),
            round: 0,
            failure: None,
        };
        drive.drive_to_end().await?;
        Ok(drive.finish())
    }

    async fn drive_to_end(&mut self) -> HandlerResult<()> {
        loop {
            let (has_question, has_answer) = (self.has_new_question(), self.has_new_answer());
            match self.run.next(&self.definitions) {
                Step::CallModel(_) if has_question => {
                    self.judged_questions = self.run.messages().len();
                    self.judge_next("question").await?;
                }
                Step::CallModel(_) => self.take_turn().await?,
                Step::CallTools(_) | Step::Waiting(_) => self.execute_calls().await?,
                Step::Done if has_answer => {
                    self.judged_answers = self.run.messages().len();
                    self.judge_next("answer").await?;
                }
                Step::Done => return Ok(()),
                _ => self.fail("this version of the worker does not know a step of the run"),
            }
        }
    }

    /// Returns `true` if layers have to judge a message of the user.
    fn has_new_question(&self) -> bool {
        let messages = self.run.messages();
        self.service.model.agent.has_layer_for(Part::Question)
            && messages.len() > self.judged_questions
            && matches!(messages.last(), Some(Message::User(_)))
    }

    /// Returns `true` if layers have to judge an answer that is an output, and no reply.
    fn has_new_answer(&self) -> bool {
        let messages = self.run.messages();
        self.service.model.agent.has_layer_for(Part::Answer)
            && messages.len() > self.judged_answers
            && matches!(messages.last(), Some(Message::Tool(_)))
    }

    /// Stops the run for a reason that is none of its rules. The effects of its calls are undone.
    fn fail(&mut self, message: impl Into<String>) {
        self.failure.get_or_insert_with(|| message.into());
        self.run.cancel();
    }

    /// Counts the time until this moment.
    fn elapse(&mut self, at: u64) {
        let passed = self.clock.advance(at);
        self.run.add_elapsed(passed);
        self.tick();
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
