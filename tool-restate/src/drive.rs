//! Drives a run inside its invocation. Everything here follows from the journal, so that a replay takes the same way: the rules
//! are those of [`Run`], and what depends on the agent, its worker or the time is in the recorded steps.

use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, StreamExt, stream};
use restate_sdk::context::{DurableFuture, RequestTarget};
use restate_sdk::prelude::*;
use tool_core::content::Content;
use tool_core::model::{ConversationId, ToolDefinition, ToolDefinitions};
use tool_core::run::{Run, RunErrorKind, Step, StopReason};
use tool_core::tool::{ToolError, ToolErrorKind, ToolExecution};
use tool_core::{Approval, CancellationToken, Message, ToolCall};

use crate::calls::is_first_execution;
use crate::clock::{Clock, micros};
use crate::events::{EventTarget, RunEvent, events_service};
use crate::limit;
use crate::names::{
    Added, CallInput, Decided, Ended, HoldRequest, JsonContext, Question, RunFailure, Stop, Waiting,
    calls_service, conversations_service,
};
use crate::runs::{FIRST_STOP, INVOCATION, Runs, WAITING, decision_signal, message_signal, stop};
use crate::turn::{CalledTool, Started, TurnOutcome, TurnRecord};

/// The code of the error with which the engine reports a cancellation.
const CANCELLED: u16 = 409;

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
    definitions: ToolDefinitions,
    /// The agent's tools when the run started.
    started_with: BTreeMap<String, String>,
    context: JsonContext,
    conversation: Option<ConversationId>,
    clock: Clock,
    /// The object that stores the events of the run and its steps, if there may be readers.
    events: Option<EventTarget>,
    unpublished: Vec<RunEvent>,
    /// The number of times that the run waited for a person.
    round: u32,
    /// The reason of a failure that is not one of the run's rules.
    failure: Option<String>,
}

type Pending<'c> = Pin<Box<dyn DurableFuture<Output = Result<Arrived, TerminalError>> + Send + 'c>>;

/// Something for which a run with open calls waits.
enum Arrived {
    Executed(ToolExecution),
    Decision(String, Decided<Approval>),
    Message(Decided<Content>),
    TimeLimit,
}

/// A call that another invocation executes.
struct InFlight {
    call: ToolCall,
    undoes: bool,
    handle: Option<InvocationHandle>,
}

/// The open calls of a turn.
struct Open<'c> {
    pending: DurableFuturesUnordered<Pending<'c>>,
    in_flight: BTreeMap<usize, InFlight>,
    /// The calls about which a person was asked.
    asked: HashSet<String>,
    has_timer: bool,
}

impl<'c> Drive<'c> {
    pub(crate) async fn run(
        service: &'c Runs,
        ctx: &'c WorkflowContext<'c>,
        question: Question,
    ) -> HandlerResult<Ended> {
        ctx.set(INVOCATION, ctx.invocation_id().to_owned());
        let history = match &question.conversation {
            Some(conversation) => match open_conversation(service, ctx, conversation).await {
                Ok(history) => history,
                Err(error) if is_cancellation(&error) => {
                    return Ok(never_started(ctx, CANCELLED_MESSAGE));
                }
                Err(error) => return Err(error.into()),
            },
            None => Vec::new(),
        };
        let (context, conversation) = (question.context.clone(), question.conversation.clone());
        let publishes = question.events;
        let start = move || ready(Ok(Json(service.model.start(question, history))));
        let started = match ctx.run(start).name("start").await {
            Ok(Json(Ok(started))) => started,
            Ok(Json(Err(message))) => return Ok(never_started(ctx, &message)),
            Err(error) if is_cancellation(&error) => return Ok(never_started(ctx, CANCELLED_MESSAGE)),
            Err(error) => return Err(error.into()),
        };
        let Started { run, tools, at } = started;
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
                return Ok(never_started(ctx, CANCELLED_MESSAGE));
            }
        }
        let mut drive = Self {
            service,
            ctx,
            run,
            called: BTreeMap::new(),
            definitions: ToolDefinitions::default(),
            started_with: tools,
            context,
            conversation,
            clock: Clock::starting_at(at),
            events,
            unpublished: Vec::new(),
            round: 0,
            failure: None,
        };
        drive.drive_to_end().await?;
        Ok(drive.finish())
    }

    async fn drive_to_end(&mut self) -> HandlerResult<()> {
        loop {
            match self.run.next(&self.definitions) {
                Step::CallModel(_) => self.take_turn().await?,
                Step::CallTools(_) | Step::NeedsApproval(_) => self.execute_calls().await?,
                Step::Done => return Ok(()),
                _ => self.fail("a call awaits its result from the caller, which durable runs do not support"),
            }
        }
    }

    /// Stops the run for a reason that is none of its rules. The effects of its calls are undone.
    fn fail(&mut self, message: impl Into<String>) {
        self.failure.get_or_insert_with(|| message.into());
        self.run.cancel();
    }

    /// Adds an event of the run itself, if there may be readers.
    fn publish(&mut self, event: RunEvent) {
        if self.events.is_some() {
            self.unpublished.push(event);
        }
    }

    fn events_target(&self, handler: &str) -> RequestTarget {
        RequestTarget::object(events_service(&self.service.name), self.ctx.key(), handler)
    }

    /// Stores the events of the run itself, exactly once, and waits for it, so that those of the next step follow them.
    async fn flush_events(&mut self) -> Result<(), TerminalError> {
        if self.unpublished.is_empty() {
            return Ok(());
        }
        let events = std::mem::take(&mut self.unpublished);
        self.ctx.request::<_, ()>(self.events_target("add"), Json(events)).call().await
    }

    /// Counts the time until this moment.
    fn elapse(&mut self, at: u64) {
        let passed = self.clock.advance(at);
        self.run.add_elapsed(passed);
    }

    async fn take_turn(&mut self) -> HandlerResult<()> {
        match self.flush_events().await {
            Ok(()) => {}
            Err(error) if is_cancellation(&error) => {
                self.run.cancel();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let (model, run, tools, context) =
            (&self.service.model, &self.run, &self.started_with, &self.context);
        let events = self.events.as_ref();
        // Boxed, because the compiler cannot prove for every lifetime that the future is `Send`.
        let turn = move || -> BoxFuture<'_, HandlerResult<Json<TurnRecord>>> {
            Box::pin(async move { Ok(Json(model.take_turn(run.clone(), tools, context, events).await?)) })
        };
        let policy = RunRetryPolicy::default().max_attempts(self.service.model_attempts);
        let name = format!("turn {}", self.run.turns() + 1);
        let taken = self.ctx.run(turn).name(name).retry_policy(policy).await;
        match taken {
            Ok(Json(record)) => self.apply(record),
            Err(error) if is_cancellation(&error) => self.run.cancel(),
            Err(error) => self.fail(error.message()),
        }
        Ok(())
    }

    fn apply(&mut self, record: TurnRecord) {
        let TurnRecord { outcome, started, finished } = record;
        self.elapse(started);
        match outcome {
            TurnOutcome::Response { response, tools, approvals } => {
                for tool in tools {
                    self.called.insert(tool.name.clone(), tool);
                }
                let mut definitions: Vec<ToolDefinition> = Vec::new();
                for definition in self.called.values().flat_map(CalledTool::definitions) {
                    if definitions.iter().all(|one| one.name() != definition.name()) {
                        definitions.push(definition);
                    }
                }
                self.definitions = definitions.into_iter().collect();
                let text = response.message.text.clone();
                // Fails if the time was up: the run has ended then.
                if self.run.record_response(*response).is_ok() {
                    let turn = self.run.turns();
                    // The calls have their final ids now.
                    let calls = self.run.current_calls().map(|(call, _)| call.clone()).collect();
                    self.publish(RunEvent::TurnFinished { turn, text, calls });
                    for call in approvals {
                        let _ = self.run.require_approval(&call);
                    }
                }
            }
            TurnOutcome::TimedOut => self.run.add_elapsed(self.run.time_left().unwrap_or_default()),
            TurnOutcome::Refused(message) => self.fail(message),
        }
        self.elapse(finished);
    }

    /// Executes calls until the run needs the model again or is done.
    async fn execute_calls(&mut self) -> HandlerResult<()> {
        let mut open = Open {
            pending: DurableFuturesUnordered::new(),
            in_flight: BTreeMap::new(),
            asked: HashSet::new(),
            has_timer: false,
        };
        loop {
            self.abandon(&mut open);
            let running: HashSet<_> = open.in_flight.values().map(|one| one.call.id.clone()).collect();
            let ready = match self.run.next_beside(&self.definitions, |id| running.contains(id)) {
                Step::CallTools(calls) => calls,
                Step::NeedsApproval(_) => Vec::new(),
                _ => return Ok(()),
            };
            let mut flushed = self.flush_events().await;
            if flushed.is_ok() && self.service.has_local_calls && !ready.is_empty() {
                self.execute_locally(ready).await?;
                continue;
            }
            if flushed.is_ok() {
                flushed = self.start_calls(&mut open, ready).await?;
            }
            self.ask_person(&mut open);
            self.limit_time(&mut open);
            if flushed.is_ok() {
                flushed = self.flush_events().await;
            }
            let arrived = match flushed {
                Ok(()) => open.pending.next().await,
                Err(error) => Err(error),
            };
            match arrived {
                Ok(Some((index, Ok(arrived)))) => self.accept(&mut open, index, arrived),
                Ok(Some((index, Err(error)))) => match open.in_flight.remove(&index) {
                    // Its invocation was killed, or cancelled before it began.
                    Some(lost) => self.record(ToolExecution::new(lost.call, Err(ToolError::interrupted()))),
                    None => return Err(error.into()),
                },
                Ok(None) => return Err(TerminalError::new("a run waits for nothing").into()),
                Err(error) if is_cancellation(&error) => self.cancel(&mut open).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Cancels the calls that the run no longer waits for, because it has stopped.
    fn abandon(&mut self, open: &mut Open<'c>) {
        let awaited: HashSet<_> =
            self.run.current_calls().filter(|(_, done)| done.is_none()).map(|(call, _)| &*call.id).collect();
        open.in_flight.retain(|_, one| {
            let is_awaited = one.undoes || awaited.contains(&*one.call.id);
            if let Some(handle) = one.handle.as_ref().filter(|_| !is_awaited) {
                handle.cancel();
            }
            is_awaited
        });
    }

    /// Starts calls up to the limit. Returns the cancellation if the run was cancelled meanwhile.
    async fn start_calls(
        &mut self,
        open: &mut Open<'c>,
        ready: Vec<ToolCall>,
    ) -> HandlerResult<Result<(), TerminalError>> {
        let room = self.service.model.agent.max_concurrent_calls().saturating_sub(open.in_flight.len());
        // The handle takes another round trip, and only a call that others or the time can end needs it.
        let needs_handle =
            ready.len() > 1 || !open.in_flight.is_empty() || self.run.limits().max_time.is_some();
        for call in ready.into_iter().take(room) {
            let input = self.input(&call)?;
            let undoes = input.request.undone.is_some();
            let route = self.service.routes.get(&call.name).unwrap_or(&self.service.name);
            let target = RequestTarget::service(calls_service(route), "call");
            let future = self.ctx.request::<_, Json<ToolExecution>>(target, Json(input)).call();
            let handle = match needs_handle {
                true => Some(future.invocation_handle().await),
                false => None,
            };
            let index =
                open.pending.push(Box::pin(future.map_ok(|Json(execution)| Arrived::Executed(execution))));
            let (handle, failed) = match handle {
                Some(Ok(handle)) => (Some(handle), None),
                Some(Err(error)) => (None, Some(error)),
                None => (None, None),
            };
            open.in_flight.insert(index, InFlight { call, undoes, handle });
            if let Some(error) = failed {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Begins a call.
    fn input(&mut self, call: &ToolCall) -> Result<CallInput, TerminalError> {
        let request = self.run.request_call(&call.id).map_err(TerminalError::from_error)?;
        let called = self.called.get(&call.name).filter(|_| request.undone.is_none());
        let policy = self.definitions.iter().find(|one| one.name() == call.name).map(ToolDefinition::policy);
        Ok(CallInput {
            request,
            definition: called.map(|tool| tool.hash.clone()),
            at_most_once: policy.is_some_and(|policy| policy.at_most_once),
            events: self.events.clone(),
            context: self.context.clone(),
        })
    }

    /// Executes calls in this invocation, in one recorded step.
    async fn execute_locally(&mut self, calls: Vec<ToolCall>) -> HandlerResult<()> {
        let inputs = calls.iter().map(|call| self.input(call)).collect::<Result<Vec<_>, _>>()?;
        let may_repeat = match inputs.iter().any(|input| input.at_most_once) {
            true => match is_first_execution!(self.ctx) {
                Ok(is_first) => is_first,
                Err(error) if is_cancellation(&error) => {
                    self.run.cancel();
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            },
            false => true,
        };
        // A cancelled step returns nothing to its caller, so the outcomes of its calls are left here.
        let done: Arc<Mutex<Vec<ToolExecution>>> = Arc::default();
        let service = self.service;
        let limit = service.model.agent.max_concurrent_calls();
        // The outcomes of all calls are one value.
        let max_bytes = service.model.max_bytes / inputs.len().max(1);
        let stash = Arc::clone(&done);
        let execute = move || -> BoxFuture<'_, HandlerResult<Json<Vec<ToolExecution>>>> {
            let executions = inputs.into_iter().map(move |input| {
                let stash = Arc::clone(&stash);
                let execution = async move {
                    let execution = if input.at_most_once && !may_repeat {
                        ToolExecution::new(input.request.call, Err(ToolError::outcome_unknown()))
                    } else {
                        let never = CancellationToken::new();
                        let executed = service
                            .executor
                            .execute(input, &service.model.types, &never, service.model.publisher.as_ref())
                            .await;
                        limit::limited(executed, max_bytes)
                    };
                    stash.lock().unwrap_or_else(PoisonError::into_inner).push(execution.clone());
                    execution
                };
                execution.boxed()
            });
            let all = stream::iter(executions).buffer_unordered(limit).collect::<Vec<_>>();
            Box::pin(all.map(|executions| Ok(Json(executions))))
        };
        let executed = match self.ctx.run(execute).name("calls").await {
            Ok(Json(executions)) => executions,
            Err(error) if is_cancellation(&error) => {
                let take = || async move {
                    Ok(Json(std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner))))
                };
                let left = self.ctx.run(take).name("calls before the cancellation").await;
                for execution in left.map(|Json(left)| left).unwrap_or_default() {
                    self.record(execution);
                }
                self.run.cancel();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        for execution in executed {
            self.record(execution);
        }
        Ok(())
    }

    /// Publishes the calls that await approval, and waits for the decisions.
    fn ask_person(&mut self, open: &mut Open<'c>) {
        let waiting: Vec<ToolCall> = self.run.awaiting_approval().cloned().collect();
        let new: Vec<_> = waiting.iter().filter(|call| !open.asked.contains(&call.id)).cloned().collect();
        if new.is_empty() {
            return;
        }
        let turn = self.run.turns();
        if open.asked.is_empty() {
            let message = self.ctx.signal::<Json<Decided<Content>>>(&message_signal(turn));
            open.pending.push(Box::pin(message.map_ok(|Json(message)| Arrived::Message(message))));
        }
        for call in new {
            let decision = self.ctx.signal::<Json<Decided<Approval>>>(&decision_signal(&call.id));
            let id = call.id.clone();
            open.pending.push(Box::pin(decision.map_ok(|Json(decision)| Arrived::Decision(id, decision))));
            open.asked.insert(call.id);
        }
        self.round += 1;
        let calls = waiting.iter().map(|call| call.id.clone()).collect();
        self.ctx.set(WAITING, Json(Waiting { turn, calls, round: self.round }));
        if self.round == 1 {
            self.ctx.resolve_promise(FIRST_STOP, Json(None::<Added>));
        }
        self.publish(RunEvent::ApprovalNeeded(waiting.clone()));
        self.ctx.resolve_promise(&stop(self.round - 1), Json(Stop::NeedsApproval(waiting)));
    }

    fn limit_time(&mut self, open: &mut Open<'c>) {
        if let Some(left) = self.run.time_left().filter(|_| !open.has_timer && !open.in_flight.is_empty()) {
            // The time of a person does not count, and the timer is not set for it.
            open.has_timer = true;
            let timer = self.ctx.sleep(left.max(Duration::from_millis(1)));
            open.pending.push(Box::pin(timer.map_ok(|()| Arrived::TimeLimit)));
        }
    }

    fn accept(&mut self, open: &mut Open<'c>, index: usize, arrived: Arrived) {
        match arrived {
            Arrived::Executed(execution) => {
                if open.in_flight.remove(&index).is_some() {
                    self.record(execution);
                }
            }
            Arrived::Decision(call, Decided { value, at }) => {
                self.resume_clock(open, at);
                // Fails if the run has stopped or somebody has sent a message instead.
                let _ = self.run.resolve_approval(&call, value);
            }
            Arrived::Message(Decided { value, at }) => {
                self.resume_clock(open, at);
                let _ = self.run.push_user_message(value);
            }
            Arrived::TimeLimit => {
                open.has_timer = false;
                if open.in_flight.values().any(|one| !one.undoes) {
                    self.run.add_elapsed(self.run.time_left().unwrap_or_default());
                }
            }
        }
    }

    /// Counts the time until a decision, unless the run only waited for it.
    fn resume_clock(&mut self, open: &Open<'c>, at: u64) {
        match open.in_flight.is_empty() {
            true => drop(self.clock.advance(at)),
            false => self.elapse(at),
        }
    }

    fn record(&mut self, execution: ToolExecution) {
        let finished = execution.started_at().map(|started| micros(started + execution.duration()));
        self.publish(RunEvent::CallFinished(execution.clone()));
        // Fails if the run has stopped, and no longer waits for the call.
        let _ = self.run.record_result(execution);
        if let Some(at) = finished {
            self.elapse(at);
        }
    }

    /// Cancels the run. The engine has cancelled its calls, whose outcomes are awaited, so that the right ones are undone.
    async fn cancel(&mut self, open: &mut Open<'c>) {
        if open.in_flight.values().any(|one| one.undoes) {
            return;
        }
        while !open.in_flight.is_empty() {
            match open.pending.next().await {
                Ok(Some((index, arrived))) => {
                    let known = open.in_flight.remove(&index);
                    if let (Some(_), Ok(Arrived::Executed(execution))) = (known, arrived)
                        && !is_interrupted(&execution)
                    {
                        self.record(execution);
                    }
                }
                // A second cancellation: the outcomes remain unknown.
                Ok(None) | Err(_) => break,
            }
        }
        open.in_flight.clear();
        self.run.cancel();
    }

    /// Publishes the end of the run.
    fn finish(mut self) -> Ended {
        self.publish(RunEvent::Ended);
        if self.events.is_some() {
            let events = std::mem::take(&mut self.unpublished);
            drop(self.ctx.request::<_, ()>(self.events_target("add"), Json(events)).send());
            drop(
                self.ctx
                    .request::<(), ()>(self.events_target("clear"), ())
                    .send_after(self.service.retention),
            );
        }
        let Self { service, ctx, run, round, failure, conversation, .. } = self;
        let ended = match run.finish() {
            Ok(answer) => {
                match limit::check("the answer with its messages", &answer, service.model.max_bytes) {
                    Ok(()) => Ended::Answer(answer),
                    Err(message) => Ended::Failed(failed(message)),
                }
            }
            Err(error) => {
                let reason = match error.kind() {
                    RunErrorKind::Stopped(reason) if failure.is_none() => Some(reason.clone()),
                    _ => None,
                };
                Ended::Failed(RunFailure {
                    reason,
                    message: failure.unwrap_or_else(|| error.to_string()),
                    tool_executions: error.tool_executions().to_vec(),
                    undo_executions: error.run().undo_executions().to_vec(),
                })
            }
        };
        let added = match &ended {
            Ended::Answer(answer) => Some(Added { messages: answer.messages().to_vec() }),
            Ended::Failed(_) => None,
        };
        if round == 0 {
            ctx.resolve_promise(FIRST_STOP, Json(added));
        } else if let (Some(added), Some(conversation)) = (added, conversation) {
            let target =
                RequestTarget::object(conversations_service(&service.name), conversation.as_str(), "append");
            drop(ctx.request::<_, ()>(target, Json(added)).send());
        }
        ctx.set(WAITING, Json(Waiting { round, ..Waiting::default() }));
        ctx.resolve_promise(&stop(round), Json(Stop::Ended));
        ended
    }
}

fn is_interrupted(execution: &ToolExecution) -> bool {
    execution.outcome().is_err_and(|error| error.kind() == ToolErrorKind::OutcomeUnknown)
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

/// Ends a run before its first turn.
fn never_started(ctx: &WorkflowContext<'_>, message: &str) -> Ended {
    let reason = (message == CANCELLED_MESSAGE).then_some(StopReason::Cancelled);
    ctx.resolve_promise(FIRST_STOP, Json(None::<Added>));
    ctx.resolve_promise(&stop(0), Json(Stop::Ended));
    Ended::Failed(RunFailure { reason, ..failed(message.to_owned()) })
}

const CANCELLED_MESSAGE: &str = "the run was cancelled";

/// Returns the failure of a run that no rule ended, without records.
fn failed(message: String) -> RunFailure {
    RunFailure { reason: None, message, tool_executions: Vec::new(), undo_executions: Vec::new() }
}
