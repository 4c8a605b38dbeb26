//! The steps of a run: preparing, taking and recording them.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_channel::{mpsc, oneshot};
use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use super::Offer;
use super::interruption::{Interruption, run_until_interrupted};
use crate::agent::delegation::{Delegation, InnerState, InnerStates};
use crate::agent::emitter::EventEmitter;
use crate::agent::executor::{CallExecutor, Ending};
use crate::agent::run_tools::RunTools;
use crate::agent::tool_search::{Mode, SentMessages, unwrap_calls, wrap_calls};
use crate::agent::turn::Changes;
use crate::agent::{Approver, Event, RunDriver, Turn};
use crate::model::{
    ChatModel, ChatRequest, ChatResponse, Delta, Message, ModelError, ToolCall, ToolChoice, ToolPolicy,
};
use crate::run::{Approval, MAX_DEPTH, Run, RunErrorKind, Step};
use crate::tool::{Attempt, ToolError, ToolExecution};

impl RunDriver {
    /// Takes the next step. Returns `false` if nothing is left to do.
    pub(super) async fn take_step(&mut self) -> Result<bool, RunErrorKind> {
        let span = self.trace.enter_run(&self.tools.agent, &self.run);
        span.instrument(self.take_step_in_span()).await
    }

    async fn take_step_in_span(&mut self) -> Result<bool, RunErrorKind> {
        self.prepare().await?;
        let time_left = self.time_left();
        match next_step(&mut self.run, &self.offer, self.sent.as_ref(), &self.tools, &self.earlier_tools) {
            Step::CallModel(request) => {
                let model = &*self.tools.agent.0.model;
                let is_streamed = self.emitter.streams_replies();
                let span = self.trace.enter_chat(&self.tools.agent, &request, is_streamed);
                let response = span.instrument(call_model(model, &request, &mut self.emitter));
                let response =
                    run_until_interrupted(response, self.question.cancellation.as_ref(), time_left);
                let events = match response.await {
                    Ok(Ok(response)) => self.apply_response(response)?,
                    Ok(Err(error)) => {
                        self.trace.record_model_error(&error);
                        return Err(RunErrorKind::Model(error));
                    }
                    Err(interruption) => {
                        self.interrupt(&interruption);
                        Vec::new()
                    }
                };
                self.emit_all(events).await;
                Ok(true)
            }
            Step::CallTools(calls) => self.execute_calls(calls).await.map(|()| true),
            Step::NeedsApproval(_) => Err(RunErrorKind::ApprovalNeeded),
            Step::NeedsResults(_) => Err(RunErrorKind::ResultsNeeded),
            Step::Done => {
                // The model streams its text; what tools return directly is in no reply.
                let returned = self.run.returned_text().filter(|_| self.emitter.streams_replies());
                if let Some(text) = returned.filter(|text| !text.is_empty()) {
                    self.emitter.emit(|| Event::Text(text)).await;
                }
                Ok(false)
            }
        }
    }

    /// Prepares the next step: loads the history, resolves the tools, asks the approver and stores the run.
    pub(super) async fn prepare(&mut self) -> Result<(), RunErrorKind> {
        if let Some(error) = &self.question.error {
            return Err(RunErrorKind::Question(Box::new(error.clone())));
        }
        self.update_elapsed();
        if self.question.cancellation.as_ref().is_some_and(CancellationToken::is_cancelled) {
            self.has_unsaved_changes |= !self.run.is_done();
            self.run.cancel();
        }
        self.load_history().await?;
        loop {
            let events = self.follow_handovers()?;
            self.emit_all(events).await;
            // Calls are looked up in exactly the set that the model was offered.
            if self.run.is_asking() || !self.offer.is_resolved {
                let (cancellation, time_left) = (self.question.cancellation.clone(), self.time_left());
                match run_until_interrupted(self.resolve_offer(), cancellation.as_ref(), time_left).await {
                    // The calls of a resumed run are subject to the agent's present rule.
                    Ok(resolved) => resolved.map(|()| self.require_approvals())?,
                    Err(interruption) => {
                        self.interrupt(&interruption);
                        break;
                    }
                }
            }
            if self.run.is_asking() {
                break;
            }
            self.settle();
            if self.run.is_asking() {
                continue;
            }
            if !self.run.is_blocked() {
                break;
            }
            if let Some(approver) = self.question.approver.clone().or_else(|| self.tools.agent.approver())
                && self.ask_approver(&*approver).await?
            {
                continue;
            }
            self.clock = None;
            self.trace.pause();
            let unapproved: Vec<_> = self.run.awaiting_approval().cloned().collect();
            if !unapproved.is_empty() {
                self.emitter.emit(|| Event::ApprovalNeeded(unapproved)).await;
            }
            let external: Vec<_> = self.run.awaiting_results().cloned().collect();
            if !external.is_empty() {
                self.emitter.emit(|| Event::ResultsNeeded(external)).await;
            }
            break;
        }
        self.store_run().await?;
        if !self.run.is_done() {
            self.trace.enter_turn(self.run.turns().saturating_add(u32::from(self.run.is_asking())));
        }
        let turn = self.run.turns().saturating_add(1);
        if self.run.is_asking() && self.announced_turn != turn {
            self.announced_turn = turn;
            let changed = self.offer.changes.as_ref().and_then(|changes| changes.messages.as_ref());
            let messages = changed.map_or(self.run.messages(), Vec::as_slice).len();
            self.emitter.emit(|| Event::TurnStarted { turn, messages }).await;
        }
        Ok(())
    }

    /// Asks the approver about the calls that await approval, one by one. Returns `false` if it decided about none.
    async fn ask_approver(&mut self, approver: &dyn Approver) -> Result<bool, RunErrorKind> {
        self.update_elapsed();
        let calls: Vec<_> = self.run.awaiting_approval().cloned().collect();
        let mut has_decided = false;
        for call in calls {
            let decision = approver.approve(&call);
            match run_until_interrupted(decision, self.question.cancellation.as_ref(), None).await {
                Ok(Approval::Defer) => {}
                Ok(approval) => {
                    self.resolve_approval(&call.id, approval).map_err(RunErrorKind::Step)?;
                    has_decided = true;
                }
                Err(interruption) => {
                    self.interrupt(&interruption);
                    has_decided = true;
                    break;
                }
            }
        }
        // Time spent awaiting approval does not count.
        self.clock = Some(Instant::now());
        Ok(has_decided)
    }

    /// Resolves the tools and options of this turn.
    async fn resolve_offer(&mut self) -> Result<(), RunErrorKind> {
        self.offer.is_resolved = false;
        let tools = self.tools.resolve(&self.run).await?;
        self.offer = Offer { tools, searched: None, changes: None, is_resolved: true };
        let agent = self.tools.agent.clone();
        let before_turn = agent.0.before_turn.as_ref();
        let is_changed = before_turn.is_some() || !agent.0.sends_earlier_turns;
        if is_changed && self.run.is_in_turn() {
            let mut turn = Turn::new(&self.run, &self.tools.context, self.offer.tools.clone());
            if !agent.0.sends_earlier_turns {
                turn.remove_earlier_turns();
            }
            if let Some(before_turn) = before_turn {
                before_turn(&mut turn);
            }
            let (tools, changes) = turn.into_parts();
            self.tools.check_changed(&tools)?;
            let changes = Some(changes).filter(|_| self.run.is_asking());
            self.offer = Offer { tools, searched: None, changes, is_resolved: true };
        }
        let found = self.divide_offer();
        self.offer.is_resolved = found.is_ok();
        found
    }

    /// Divides the tools of this turn if the agent has a search, and converts the messages to send if tools are called through
    /// another one.
    fn divide_offer(&mut self) -> Result<(), RunErrorKind> {
        self.sent = self.sent.take().filter(|_| self.run.is_in_turn());
        if !self.run.is_in_turn() {
            return Ok(());
        }
        let Some(divided) = self.tools.divide(&self.offer.tools, self.run.required_tool())? else {
            self.sent = None;
            return Ok(());
        };
        let found =
            self.run.found_tools().iter().filter(|_| divided.mode == Mode::Append).map(String::as_str);
        // A hook can require a tool that was not found, which must then be in the request.
        let required = match self.offer.changes.as_ref().map(|changes| &changes.tool_choice) {
            Some(ToolChoice::Tool(name)) if !found.clone().any(|found| found == name) => Some(&**name),
            _ => None,
        };
        let names = found.chain(required).filter(|name| divided.is_hidden(name)).map(str::to_owned).collect();
        let offered = self.tools.offered(&divided, names);
        if divided.mode == Mode::CallThrough && self.run.is_asking() {
            match self.offer.changes.as_mut().and_then(|changes| changes.messages.as_mut()) {
                Some(changed) => {
                    changed.iter_mut().for_each(|message| *message = wrap_calls(message, &offered));
                }
                None => self.sent.get_or_insert_default().update(self.run.messages(), &offered),
            }
        }
        self.offer.tools = divided.tools.clone();
        self.offer.searched = Some((divided, offered));
        Ok(())
    }

    /// Adds the tools that the model has called unsearched to those that it has found. It knows them, and may have mistaken their
    /// parameters.
    fn add_called_tools(&mut self) {
        let Some((divided, _)) = &self.offer.searched else { return };
        if divided.mode == Mode::Append {
            let calls = self.run.open_calls();
            let names = calls.iter().map(|call| &*call.name).filter(|name| divided.is_hidden(name));
            self.run.add_found_tools(names);
        }
    }

    /// Records the start of a call for a caller that drives step by step, and stores the run.
    pub(super) async fn begin_and_store(&mut self, call: &ToolCall) -> Result<Attempt, RunErrorKind> {
        let span = self.trace.enter_run(&self.tools.agent, &self.run);
        span.instrument(async {
            // Prepares the turn first: to prepare it later would treat the started call as interrupted.
            if !self.offer.is_resolved {
                self.prepare().await?;
            }
            let attempt = self.begin_attempt(call)?;
            self.store_run().await?;
            Ok(attempt)
        })
        .await
    }

    fn begin_attempt(&mut self, call: &ToolCall) -> Result<Attempt, RunErrorKind> {
        let is_started = self.run.is_started(call).map_err(RunErrorKind::Step)?;
        if let Some(attempt) = self.started_calls.remove(&call.id).filter(|_| is_started) {
            return Ok(attempt);
        }
        self.change_run().begin_call(&call.id).map_err(RunErrorKind::Step)
    }

    /// Records the response of the model and returns the events to emit.
    pub(super) fn apply_response(&mut self, mut response: ChatResponse) -> Result<Vec<Event>, RunErrorKind> {
        if self.offer.searched.as_ref().is_some_and(|(divided, _)| divided.mode == Mode::CallThrough) {
            unwrap_calls(&mut response);
        }
        self.trace.record_response(&response);
        let copy = self.emitter.has_listeners().then(|| response.clone());
        let options = self.offer.changes.as_ref().map_or(self.run.options(), |changes| &changes.options);
        let of_agent = self.tools.agent.0.execute_calls_if.as_ref();
        let execute = self.question.execute_calls_if.as_ref().or(of_agent);
        let executes = execute.is_none_or(|execute| execute(&response, options));
        self.change_run().record_response(response).map_err(RunErrorKind::Step)?;
        if !executes {
            self.run.leave_calls_to_caller();
        }
        self.add_called_tools();
        if self.offer.is_resolved {
            // The policies of the tools apply at once, also if the caller executes calls without taking the next step.
            self.settle();
        }
        self.require_approvals();
        self.update_elapsed();
        let Some(mut response) = copy else { return Ok(Vec::new()) };
        // The reply of the run has the final ids of the calls.
        let reply = self.run.messages().iter().rev().find_map(Message::as_assistant);
        response.message = reply.cloned().unwrap_or_default();
        let mut events: Vec<_> = self.run.open_calls().into_iter().map(Event::CallReady).collect();
        events.push(Event::TurnFinished { turn: self.run.turns(), response });
        Ok(events)
    }

    fn settle(&mut self) {
        let (tools, earlier) = (&self.tools, &self.earlier_tools);
        self.run.settle(self.offer.tools.definitions(), |name| undo_policy(tools, earlier, name), |_| false);
    }

    /// Asks the agent's predicate which calls need approval, and binds these approvals to the definitions.
    fn require_approvals(&mut self) {
        if let Some(needs_approval) = &self.tools.agent.0.needs_approval {
            self.run.require_approval_if(needs_approval);
            if self.offer.is_resolved {
                self.settle();
            }
        }
    }

    /// Executes the calls concurrently, up to the limit, and records each outcome as soon as the call has finished.
    async fn execute_calls(&mut self, calls: Vec<ToolCall>) -> Result<(), RunErrorKind> {
        let executor = self.executor();
        let max_concurrent = self.tools.agent.0.max_concurrent_calls;
        let (states, mut inner_states) = executor.channel(&calls).unzip();
        let mut queue = VecDeque::from(calls);
        let mut running = FuturesUnordered::new();
        let mut stored = None;
        // The first reason why a call has no outcome, other than that it waits.
        let mut failure = None;
        // Only for listeners.
        let mut running_ids: Vec<String> = Vec::new();
        let mut event = None;
        loop {
            while running.len() < max_concurrent
                && let Some(call) = queue.pop_front()
            {
                let attempt = self.begin_attempt(&call)?;
                running_ids.extend(self.emitter.has_listeners().then(|| call.id.clone()));
                running.push(self.execute_call(&executor, call, attempt, states.as_ref()));
            }
            // The outcome is stored before its event, because a hook can panic and a reader of the stream can stop.
            self.store_run().await?;
            stored.take().into_iter().for_each(confirm);
            self.emit_all(event.take()).await;
            let ending = match self.next_progress(&mut running, inner_states.as_mut()).await {
                Ok(Progress::Ended(ending)) => ending,
                Ok(Progress::InnerState(state)) => {
                    stored = self.record_inner_state(state)?;
                    if stored.is_some() {
                        continue;
                    }
                    // The outer run has reached one of its limits.
                    drop(running);
                    self.store_run().await?;
                    self.emit_interrupted(&running_ids).await;
                    return Ok(());
                }
                Ok(Progress::Done) => return failure.map_or(Ok(()), Err),
                Err(interruption) => {
                    self.interrupt(&interruption);
                    drop(running);
                    self.emit_interrupted(&running_ids).await;
                    return Ok(());
                }
            };
            running_ids.retain(|id| id != ending.call_id());
            let execution = match ending {
                Ending::Executed(execution) => execution,
                Ending::Suspended { why, .. } => {
                    if !matches!(why, RunErrorKind::ApprovalNeeded | RunErrorKind::ResultsNeeded) {
                        failure.get_or_insert(why);
                    }
                    continue;
                }
            };
            let was_undoing = self.run.is_undoing();
            let retry;
            (retry, event) = self.apply_result(execution)?;
            queue.extend(retry);
            // The call may have ended the run, which drops the calls that are still running.
            if self.run.is_done() || self.run.is_undoing() != was_undoing {
                drop(running);
                self.store_run().await?;
                self.emit_all(event).await;
                self.emit_interrupted(&running_ids).await;
                return Ok(());
            }
        }
    }

    /// Executes one call to its end. Returns `None` if the run ended meanwhile.
    pub(super) async fn execute_one(
        &mut self,
        call: ToolCall,
        attempt: Attempt,
    ) -> Result<Option<Ending>, RunErrorKind> {
        let executor = self.executor();
        let (states, mut inner_states) = executor.channel(std::slice::from_ref(&call)).unzip();
        let execution = self.execute_call(&executor, call, attempt, states.as_ref());
        let mut running = FuturesUnordered::from_iter([execution]);
        loop {
            match self.next_progress(&mut running, inner_states.as_mut()).await {
                Ok(Progress::Ended(ending)) => return Ok(Some(ending)),
                Ok(Progress::Done) => return Ok(None),
                Ok(Progress::InnerState(state)) => {
                    let Some(stored) = self.record_inner_state(state)? else { return Ok(None) };
                    self.store_run().await?;
                    confirm(stored);
                }
                Err(interruption) => {
                    self.interrupt(&interruption);
                    return Ok(None);
                }
            }
        }
    }

    /// Waits for the calls of a turn. The time of agents with limits of their own does not count.
    async fn next_progress(
        &mut self,
        running: &mut FuturesUnordered<BoxFuture<'_, Ending>>,
        inner_states: Option<&mut InnerStates>,
    ) -> Result<Progress, Interruption> {
        if !self.run.waits_only_for_own_limits() {
            return self.run_until_interrupted(next_progress(running, inner_states)).await;
        }
        let was_in_turn = self.run.is_in_turn();
        self.update_elapsed();
        if was_in_turn && !self.run.is_in_turn() {
            return Err(Interruption::TimeLimit);
        }
        let cancellation = self.question.cancellation.as_ref().filter(|_| !self.run.is_undoing());
        let progress = run_until_interrupted(next_progress(running, inner_states), cancellation, None).await;
        self.clock = Some(Instant::now());
        progress
    }

    /// Makes the state of an inner run part of this one. Returns `None` if that ended this run.
    fn record_inner_state(&mut self, state: InnerState) -> Result<Option<oneshot::Sender<()>>, RunErrorKind> {
        let was_undoing = self.run.is_undoing();
        self.change_run().record_inner_run(state.run).map_err(RunErrorKind::Step)?;
        self.update_elapsed();
        let has_ended = self.run.is_done() || self.run.is_undoing() != was_undoing;
        Ok((!has_ended).then_some(state.stored))
    }

    /// Executes a call; one that asks an agent is connected to this run.
    fn execute_call<'a>(
        &self,
        executor: &'a CallExecutor,
        call: ToolCall,
        attempt: Attempt,
        states: Option<&mpsc::Sender<InnerState>>,
    ) -> BoxFuture<'a, Ending> {
        let continued = self.run.open_inner_run(&call.id);
        let states = states.filter(|_| executor.asks_agent(&call));
        if states.is_none() && continued.is_some() && executor.tools.get(&call.name).is_some() {
            // Another tool has the name now, and cannot continue the run.
            let execution = ToolExecution::new(call, Err(ToolError::interrupted()));
            return ready(Ending::Executed(execution)).boxed();
        }
        let delegation = states.map(|states| {
            let outer = self.outer.as_ref().and_then(|outer| outer.delegation.as_ref());
            let max_depth = self.run.limits().max_depth.min(MAX_DEPTH);
            Arc::new(Delegation {
                call: call.clone(),
                is_undo: self.run.is_undoing(),
                levels: outer.map_or(max_depth, |outer| outer.levels.saturating_sub(1)),
                timeout: executor.timeout,
                emitter: self.emitter.clone(),
                states: states.clone(),
                continued: Mutex::new(continued.cloned()),
                suspended: Mutex::default(),
            })
        });
        // Boxed, because `FuturesUnordered` reserves room for one more future than it contains.
        executor.execute(call, attempt, delegation).boxed()
    }

    /// Records the outcome of a call. Returns the call if it is to be retried, and the event to emit.
    pub(super) fn apply_result(
        &mut self,
        mut execution: ToolExecution,
    ) -> Result<(Option<ToolCall>, Option<Event>), RunErrorKind> {
        self.has_unsaved_changes = true;
        let retry = self.run.will_retry(&execution).then(|| execution.call().clone());
        let agent = &self.earlier_undoing().unwrap_or(&self.tools).agent;
        let handler = agent.0.on_tool_error.as_ref().filter(|_| retry.is_none());
        if let (Some(handler), Err(error)) = (handler, execution.outcome())
            && let Some(outcome) = handler(execution.call(), error)
        {
            execution = execution.with_outcome(outcome);
        }
        if let Some((divided, _)) = &self.offer.searched {
            self.run.add_found_tools(divided.found_by(&execution));
        }
        let copy = self.emitter.has_listeners().then(|| execution.clone());
        self.run.record_result(execution).map_err(RunErrorKind::Step)?;
        self.update_elapsed();
        let event = copy.map(if retry.is_some() { Event::CallRetried } else { Event::CallFinished });
        Ok((retry, event))
    }

    /// Returns the tools of the agent before a handover that undoes the next call: the agent that executed a call undoes it.
    fn earlier_undoing(&self) -> Option<&RunTools> {
        self.earlier_tools.get(self.run.handovers_before_undone()?)
    }

    pub(super) fn executor(&mut self) -> CallExecutor {
        if self.run.is_undoing() {
            // Calls that undo others must not be cancelled together with them.
            self.cancellation = CancellationToken::new();
            self.cancel_on_drop = Some(self.cancellation.clone().drop_guard());
        }
        let tools_of_agent = self.earlier_undoing().unwrap_or(&self.tools);
        let tools = match self.run.next_undo_call() {
            Some(_) if self.run.is_undoing_inner_run() => match self.earlier_undoing() {
                Some(earlier) => earlier.last_resolved(),
                None => self.offer.tools.clone(),
            },
            // The arguments are those of the undone call; the tool that undoes it may take only some of them.
            Some(undo) => tools_of_agent
                .undo
                .set_with(&undo.name)
                .cloned()
                .unwrap_or_default()
                .ignore_unknown_arguments(),
            None => self.offer.tools.clone(),
        };
        CallExecutor {
            tools,
            context: tools_of_agent.context.clone(),
            emitter: self.emitter.clone(),
            trace: self.trace.call_trace(),
            cancellation: self.cancellation.clone(),
            timeout: tools_of_agent.agent.0.call_timeout,
            undone: self.run.next_undone(),
        }
    }

    /// Emits the outcomes of the calls that were in flight when the run ended.
    pub(super) async fn emit_interrupted(&mut self, running_ids: &[String]) {
        if self.emitter.has_listeners() {
            let executions = self.run.tool_executions().iter();
            let interrupted = executions.filter(|one| running_ids.contains(&one.call().id));
            let events: Vec<_> = interrupted.cloned().map(Event::CallFinished).collect();
            self.emit_all(events).await;
        }
    }

    pub(super) async fn emit_all(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.emitter.emit(|| event).await;
        }
    }
}

/// Returns the policy of the tool with this name that undoes calls of one of the agents.
fn undo_policy(tools: &RunTools, earlier: &[RunTools], name: &str) -> Option<ToolPolicy> {
    earlier.iter().chain([tools]).find_map(|one| one.undo.policy(name))
}

/// Progress of the calls of a turn.
#[allow(clippy::large_enum_variant, reason = "it is matched where it is created")]
enum Progress {
    Ended(Ending),
    InnerState(InnerState),
    /// No call is running.
    Done,
}

async fn next_progress(
    running: &mut FuturesUnordered<BoxFuture<'_, Ending>>,
    inner_states: Option<&mut InnerStates>,
) -> Progress {
    let Some(inner_states) = inner_states else {
        return running.next().await.map_or(Progress::Done, Progress::Ended);
    };
    match select(inner_states.next(), running.next()).await {
        Either::Left((Some(state), _)) => Progress::InnerState(state),
        Either::Left((None, running)) => running.await.map_or(Progress::Done, Progress::Ended),
        Either::Right((ending, _)) => ending.map_or(Progress::Done, Progress::Ended),
    }
}

/// Lets an inner run continue whose state is stored.
fn confirm(stored: oneshot::Sender<()>) {
    // The call may have been dropped meanwhile.
    let _ = stored.send(());
}

/// Returns the run's next step, with the changes of a hook to the turn.
pub(super) fn next_step<'a>(
    run: &'a mut Run,
    offer: &'a Offer,
    sent: Option<&'a SentMessages>,
    tools: &RunTools,
    earlier: &[RunTools],
) -> Step<'a> {
    let undo_policy = |name: &str| undo_policy(tools, earlier, name);
    let step = run.next_with_undo_tools(offer.tools.definitions(), undo_policy, |_| false);
    let Step::CallModel(mut request) = step else { return step };
    if let Some((divided, offered)) = &offer.searched {
        request = request.with_tools(offered).with_tool_search(divided.mode == Mode::ByProvider);
    }
    if let Some(sent) = sent {
        request = request.with_other_messages(&sent.messages, Some(&sent.cache));
    }
    if let Some(Changes { options, tool_choice, messages }) = &offer.changes {
        request = request.with_options(options.clone()).with_tool_choice(tool_choice.clone());
        if let Some(messages) = messages {
            request = request.with_other_messages(messages, None);
        }
    }
    Step::CallModel(request)
}

/// Sends the request to the model; the reply is streamed if the run is.
async fn call_model(
    model: &dyn ChatModel,
    request: &ChatRequest<'_>,
    emitter: &mut EventEmitter,
) -> Result<ChatResponse, ModelError> {
    if !emitter.streams_replies() {
        return model.chat(request).await;
    }
    let mut deltas = model.stream(request);
    while let Some(delta) = deltas.next().await {
        match delta? {
            Delta::Text(text) => emitter.emit(|| Event::Text(text)).await,
            Delta::Refusal(text) => emitter.emit(|| Event::Refusal(text)).await,
            Delta::Reasoning(text) => emitter.emit(|| Event::Reasoning(text)).await,
            Delta::ToolCall { index, id, name } => {
                emitter.emit(|| Event::CallAnnounced { index, id, name }).await;
            }
            Delta::Arguments { index, text } => emitter.emit(|| Event::Arguments { index, text }).await,
            Delta::Done(response) => return Ok(response),
        }
    }
    Err(ModelError::new("the stream ended before the response was complete"))
}
