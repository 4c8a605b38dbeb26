//! The calls of a turn: starting, executing and recording them.

use std::collections::VecDeque;
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent_call::AgentCall;
use super::inside::OuterRun;
use super::review::OutputRuling;

use crate::agent::executor::{CallExecutor, Ending};
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::agent::memo::{CallMemo, MemoSender, Memos, SentMemo};
use crate::agent::run_tools::RunTools;
use crate::agent::{AgentTool, Event, RunDriver};
use crate::layer::Phase;
use crate::model::ToolCall;
use crate::run::{InFlight, MAX_DEPTH, Run, RunErrorKind};
use crate::tool::{Asking, Attempt, Judgement, ToolError, ToolExecution};

impl RunDriver {
    /// Records the start of a call for a caller that drives step by step, and stores the run.
    pub(super) async fn begin_and_store(&mut self, call: &ToolCall) -> Result<Attempt, RunErrorKind> {
        let span = self.enter_span();
        span.instrument(async {
            // Prepares the turn first: to prepare it later would treat the started call as interrupted.
            if !self.offer.is_resolved {
                self.prepare().await?;
            }
            self.review_calls().await?;
            self.emit_finished().await?;
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

    /// Executes the calls concurrently, up to the limit, and records each outcome as soon as the call has finished.
    pub(super) async fn execute_calls(&mut self, calls: Vec<ToolCall>) -> Result<(), RunErrorKind> {
        let executor = self.executor();
        let (sender, mut memos) = executor.channel(&calls).unzip();
        let mut in_flight = InFlight::new(self.tools.agent.0.max_concurrent_calls);
        let mut running = FuturesUnordered::new();
        let mut ended = VecDeque::new();
        // The first reason why a call has no outcome, other than that it waits.
        let mut failure = None;
        let mut event = None;
        let mut is_settled = false;
        loop {
            // Calls of the next step can have other tools.
            let is_of_step = |call: &ToolCall| calls.iter().any(|one| one.id == call.id);
            for call in self.run.startable(&in_flight).into_iter().filter(is_of_step) {
                let attempt = self.begin_attempt(&call)?;
                in_flight.begin(&call.id);
                running.push(self.execute_call(&executor, call, attempt, sender.as_ref()));
            }
            // The outcome is stored before its event, because a hook can panic and a reader of the stream can stop.
            self.store_run().await?;
            if !std::mem::replace(&mut is_settled, true) {
                self.settle_step().await?;
            }
            self.emit_all(event.take()).await?;
            let progress = match ended.pop_front() {
                Some(ending) => Ok(Progress::Ended(ending)),
                None => self.next_progress(&mut running, memos.as_mut()).await,
            };
            let ending = match progress {
                Ok(Progress::Ended(ending)) => ending,
                Ok(Progress::Memo(memo)) => {
                    if self.store_memo(memo).await? {
                        continue;
                    }
                    // The outer run has reached one of its limits.
                    drop(running);
                    return Ok(());
                }
                Ok(Progress::Done) => return failure.map_or(Ok(()), Err),
                Err(interruption) => {
                    self.interrupt(&interruption);
                    return Ok(());
                }
            };
            in_flight.end(ending.call_id());
            let mut execution = match ending {
                Ending::Executed(execution) if execution.is_waiting() => {
                    in_flight.suspend(&execution.call().id);
                    self.judged_calls.remove(&execution.call().id);
                    self.change_run().record_result(execution).map_err(RunErrorKind::Step)?;
                    continue;
                }
                Ending::Executed(execution) => execution,
                Ending::Suspended { call, why } => {
                    in_flight.suspend(&call.id);
                    if !matches!(why, RunErrorKind::Waiting) {
                        failure.get_or_insert(why);
                    }
                    continue;
                }
            };
            let was_undoing = self.run.is_undoing();
            let ruling = match self.ruling_without_layers(&execution) {
                Some(ruling) => Some(ruling),
                None => {
                    let memos = memos.as_mut();
                    self.ask_beside_calls(&mut execution, &mut running, memos, &mut ended).boxed().await?
                }
            };
            let Some(ruling) = ruling else {
                drop(running);
                return Ok(());
            };
            let id = execution.call().id.clone();
            event = match self.record_outcome(execution, ruling) {
                Err(why @ RunErrorKind::Layer { .. }) => {
                    in_flight.suspend(&id);
                    failure.get_or_insert(why);
                    None
                }
                recorded => recorded?,
            };
            // The call may have ended the run, which drops the calls that are still running.
            if self.run.is_done() || self.run.is_undoing() != was_undoing {
                drop(running);
                self.store_run().await?;
                self.emit_all(event).await?;
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
        let (sender, mut memos) = executor.channel(std::slice::from_ref(&call)).unzip();
        let execution = self.execute_call(&executor, call, attempt, sender.as_ref());
        let mut running = FuturesUnordered::from_iter([execution]);
        loop {
            match self.next_progress(&mut running, memos.as_mut()).await {
                Ok(Progress::Ended(ending)) => return Ok(Some(ending)),
                Ok(Progress::Done) => return Ok(None),
                Ok(Progress::Memo(memo)) => {
                    if !self.store_memo(memo).await? {
                        return Ok(None);
                    }
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
        memos: Option<&mut Memos>,
    ) -> Result<Progress, Interruption> {
        if !self.run.waits_only_for_own_limits() {
            return self.run_until_interrupted(next_progress(running, memos)).await;
        }
        let was_in_turn = self.run.is_in_turn();
        self.update_elapsed();
        if was_in_turn && !self.run.is_in_turn() {
            return Err(Interruption::TimeLimit);
        }
        let cancellation = self.question.cancellation.as_ref().filter(|_| !self.run.is_undoing());
        let progress = run_until_interrupted(next_progress(running, memos), cancellation, None).await;
        self.clock = Some(Instant::now());
        progress
    }

    /// Makes a memo part of the run, stores that, and lets the call continue. Returns `false` if that ended the run.
    async fn store_memo(&mut self, (memo, stored): SentMemo) -> Result<bool, RunErrorKind> {
        let was_undoing = self.run.is_undoing();
        let recorded = match memo {
            CallMemo::Inner(inner) => self.change_run().record_inner_run(inner),
            CallMemo::Changes(call_id, changes) => self.change_run().record_inner_changes(&call_id, &changes),
            CallMemo::Notes(call_id, notes) => self.change_run().record_notes(&call_id, notes),
        };
        recorded.map_err(RunErrorKind::Step)?;
        self.update_elapsed();
        if self.run.is_done() || self.run.is_undoing() != was_undoing {
            return Ok(false);
        }
        self.store_run().await?;
        // The call may have been dropped meanwhile.
        let _ = stored.send(());
        Ok(true)
    }

    /// Executes a call. The run of an agent that it asks is part of this one.
    fn execute_call<'a>(
        &self,
        executor: &'a CallExecutor,
        call: ToolCall,
        attempt: Attempt,
        sender: Option<&MemoSender>,
    ) -> BoxFuture<'a, Ending> {
        let tool = executor.tools.get(&call.name);
        let agent = tool.and_then(AgentTool::of).filter(|_| executor.asks_agent(&call));
        if agent.is_none() && tool.is_some() && self.run.open_inner_run(&call.id).is_some() {
            // Another tool has the name now, and cannot continue the run.
            let execution = ToolExecution::new(call, Err(ToolError::interrupted()));
            return ready(Ending::Executed(execution)).boxed();
        }
        // Boxed, because `FuturesUnordered` reserves room for one more future than it contains.
        let mut asking = Asking::new(self.run.notes(&call.id).cloned().unwrap_or_default());
        if let Some(sender) = sender.cloned() {
            let id = call.id.clone();
            asking = asking.store(Arc::new(move |notes| {
                let memo = CallMemo::Notes(id.clone(), notes);
                sender.clone().store(memo).map(|stored| stored.is_ok()).boxed()
            }));
        }
        match agent {
            Some(tool) => {
                let agent_call = self.agent_call(executor, &call, sender.cloned());
                agent_call.execute(tool, executor, call, attempt, asking).boxed()
            }
            None => executor.execute(call, attempt, None, asking).map(Ending::Executed).boxed(),
        }
    }

    /// Returns what the run of an agent that a call asks takes from this one.
    pub(super) fn agent_call(
        &self,
        executor: &CallExecutor,
        call: &ToolCall,
        memos: Option<MemoSender>,
    ) -> AgentCall {
        let outer = self.outer.as_ref().and_then(|outer| outer.outer.as_ref());
        let max_depth = self.run.limits().max_depth.min(MAX_DEPTH);
        let outer = OuterRun {
            call: call.clone(),
            levels: outer.map_or(max_depth, |outer| outer.levels.saturating_sub(1)),
            gate: executor.inner_gate(call),
            memos,
        };
        AgentCall {
            context: executor.context.clone(),
            cancellation: executor.cancellation.child_token(),
            layers: Some((Arc::clone(&self.layers), call.name.clone())),
            conversation: self.run.conversation().cloned(),
            timeout: executor.timeout,
            outer: Some((outer, self.emitter.clone())),
            continued: self.run.open_inner_run(&call.id).map(Run::recording_copy),
            is_undo: self.run.is_undoing(),
        }
    }

    /// Asks the layers about the outcome of a call, and records it. Returns the event to emit.
    pub(super) async fn apply_result(
        &mut self,
        mut execution: ToolExecution,
    ) -> Result<Option<Event>, RunErrorKind> {
        let ruling = match self.ruling_without_layers(&execution) {
            Some(ruling) => ruling,
            None => self.ask_about_output(&mut execution, &self.run).await,
        };
        self.record_outcome(execution, ruling)
    }

    /// Asks the layers about the outcome of a call while the other calls continue: a layer can wait for something that one of them holds.
    /// Returns `None` if one of them ended the run.
    async fn ask_beside_calls(
        &mut self,
        execution: &mut ToolExecution,
        running: &mut FuturesUnordered<BoxFuture<'_, Ending>>,
        memos: Option<&mut Memos>,
        ended: &mut VecDeque<Ending>,
    ) -> Result<Option<OutputRuling>, RunErrorKind> {
        let Some(memos) = memos.filter(|_| !running.is_empty()) else {
            let ruling = pin!(self.ask_about_output(execution, &self.run));
            return Ok(beside(ruling, running, None, ended).await.ok());
        };
        // Memos change the run meanwhile.
        let run = self.run.clone();
        let mut ruling = pin!(self.ask_about_output(execution, &run));
        loop {
            match beside(ruling.as_mut(), running, Some(memos), ended).await {
                Ok(ruling) => return Ok(Some(ruling)),
                Err(memo) => {
                    if !self.store_memo(memo).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Records the outcome of a call. Returns the event to emit.
    fn record_outcome(
        &mut self,
        mut execution: ToolExecution,
        ruling: OutputRuling,
    ) -> Result<Option<Event>, RunErrorKind> {
        self.has_unsaved_changes = true;
        let is_retried = matches!(ruling, OutputRuling::Retried);
        let was_undoing = self.run.is_undoing();
        let (mut end, mut failure, mut interruption) = (None, None, None);
        match ruling {
            OutputRuling::Retried => {}
            OutputRuling::Seen(ended) => end = ended,
            // The undo has happened, and the next one must follow.
            OutputRuling::Failed(_) | OutputRuling::Interrupted(_) if was_undoing => {
                let unjudged = ToolError::failed("a layer did not judge the outcome");
                execution = execution.with_outcome(Err(unjudged));
            }
            // An error can end the run, so nothing is recorded, and the call counts as interrupted.
            OutputRuling::Failed(why) if execution.error().is_some() => return Err(why),
            // The call is not executed again, and layers see the outcome before the model does.
            OutputRuling::Failed(why) => {
                execution.history.judgement = Some(Judgement::Pending);
                failure = Some(why);
            }
            OutputRuling::Interrupted(by) => {
                execution = execution.with_outcome(Err(ToolError::interrupted()));
                interruption = Some(by);
            }
        }
        if let Some((divided, _)) = &self.offer.searched {
            self.run.add_found_tools(divided.found_by(&execution));
        }
        let listeners = self.has_listeners();
        let failed =
            (listeners && is_retried).then(|| execution.of_failed_attempt(self.layers.see(Phase::Output)));
        let id = execution.call().id.clone();
        let may_be_answer = self.run.may_be_answer(&id);
        self.run.record_result(execution).map_err(RunErrorKind::Step)?;
        if let Some(end) = end {
            self.run.stop_by_layer(end);
        }
        if let Some(interruption) = interruption {
            self.interrupt(&interruption);
        }
        self.update_elapsed();
        if let Some(why) = failure {
            return Err(why);
        }
        let event = match failed {
            Some(failed) => Some(Event::CallRetried(failed)),
            // Emitted after the turn, once it is known and judged.
            None if may_be_answer && self.layers.see(Phase::Answer) => None,
            None if listeners => {
                self.reported.add(&id);
                let finished = match was_undoing {
                    true => self.run.undo_executions().last(),
                    false => self.run.finished_call(&id),
                };
                finished.cloned().map(Event::CallFinished)
            }
            None => None,
        };
        Ok(event)
    }

    /// Returns the tools of the agent before a handoff that undoes the next call: the agent that executed a call undoes it.
    pub(super) fn earlier_undoing(&self) -> Option<&RunTools> {
        self.earlier_tools.get(self.run.handoffs_before_undone()?)
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
            // The arguments come from the undone call; the tool that undoes it may take only some of them.
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
            context: tools_of_agent.context.clone().with_rules(self.layers.clone()),
            gate: Arc::clone(&self.gate),
            emitter: self.emitter.clone(),
            trace: self.trace.call_trace(),
            cancellation: self.cancellation.clone(),
            timeout: tools_of_agent.agent.0.call_timeout,
            undone: self.run.next_undone(),
        }
    }

    /// Emits the outcomes that the run has without an execution that was recorded: of calls that were denied, refused, reused or in
    /// flight when the run ended.
    pub(super) async fn emit_finished(&mut self) -> Result<(), RunErrorKind> {
        let events = self.take_finished();
        self.emit_all(events).await
    }

    /// Returns these events, after what was decided. Outcomes that layers have still to judge are emitted once they have.
    pub(super) fn take_finished(&mut self) -> Vec<Event> {
        let is_answer_judged = !self.layers.see(Phase::Answer) || self.has_judged_answer;
        let are_judged = (is_answer_judged || self.run.returned_text().is_none())
            && (!self.layers.see(Phase::Output) || self.run.unjudged_results().is_empty());
        let mut events: Vec<_> = self.run.take_decisions().into_iter().map(Event::CallDecided).collect();
        if self.has_listeners() && are_judged {
            events.extend(self.reported.take_unreported(&self.run).into_iter().map(Event::CallFinished));
        }
        events
    }
}

/// Progress of the calls of a turn.
#[allow(clippy::large_enum_variant, reason = "it is matched where it is created")]
enum Progress {
    Ended(Ending),
    Memo(SentMemo),
    /// No call is running.
    Done,
}

async fn next_progress(
    running: &mut FuturesUnordered<BoxFuture<'_, Ending>>,
    memos: Option<&mut Memos>,
) -> Progress {
    let Some(memos) = memos else {
        return running.next().await.map_or(Progress::Done, Progress::Ended);
    };
    match select(memos.next(), running.next()).await {
        Either::Left((Some(memo), _)) => Progress::Memo(memo),
        Either::Left((None, running)) => running.await.map_or(Progress::Done, Progress::Ended),
        Either::Right((ending, _)) => ending.map_or(Progress::Done, Progress::Ended),
    }
}

/// Awaits a verdict while the other calls continue. Returns a memo that one of them sends meanwhile.
async fn beside<T>(
    mut verdict: Pin<&mut impl Future<Output = T>>,
    running: &mut FuturesUnordered<BoxFuture<'_, Ending>>,
    mut memos: Option<&mut Memos>,
    ended: &mut VecDeque<Ending>,
) -> Result<T, SentMemo> {
    loop {
        let progress = pin!(next_progress(running, memos.as_deref_mut()));
        match select(verdict.as_mut(), progress).await {
            Either::Left((verdict, _)) => return Ok(verdict),
            Either::Right((Progress::Ended(ending), _)) => ended.push_back(ending),
            Either::Right((Progress::Memo(memo), _)) => return Err(memo),
            Either::Right((Progress::Done, _)) => return Ok(verdict.await),
        }
    }
}
