//! The calls of a turn: starting, executing and recording them.
//!
//! The error of an attempt that is retried is left out of events if a layer sees outputs, because layers see the last attempt alone.
//!
//! The output of a call that a layer fails to judge is recorded as pending (`Judgement`) and judged before the next step, because the call
//! must not have its effect again; an undo call is recorded as an error, because undoing must go on.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::job::Job;
use super::review::{OutputRuling, Report};
use crate::agent::executor::CallExecutor;
use crate::agent::interruption::run_until_interrupted;
use crate::agent::run_tools::RunTools;
use crate::agent::{Event, RunDriver};
use crate::layer::LayerPhase;
use crate::model::ToolCall;
use crate::run::{GivenUp, LayerSight, RunErrorKind};
use crate::tool::{Attempt, Judgement, ToolError, ToolExecution};

/// The longest wait for providers whose tools are to know that calls will not be continued.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(10);

impl RunDriver {
    /// Records the start of a call for a caller that drives step by step, and stores the run.
    pub(super) async fn begin_and_store(&mut self, call: &ToolCall) -> Result<Attempt, RunErrorKind> {
        let span = self.enter_span();
        span.instrument(async {
            self.start_clock();
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

    pub(super) fn begin_attempt(&mut self, call: &ToolCall) -> Result<Attempt, RunErrorKind> {
        self.run.check_call(call).map_err(RunErrorKind::Step)?;
        if let Some(attempt) = self.run.begun_attempt(&call.id) {
            return Ok(attempt);
        }
        self.change_run().begin_call(&call.id).map_err(RunErrorKind::Step)
    }

    /// Lets these calls start, and returns what executes them. Calls of the next step can have other tools.
    pub(super) fn open_step(&mut self, calls: Vec<ToolCall>) -> Arc<CallExecutor> {
        let ids = calls.into_iter().map(|call| call.id).collect();
        let (max, sees) = (self.agent().0.max_concurrent_calls, self.sees_outcomes());
        self.run.open_step(max, ids, sees);
        Arc::new(self.executor())
    }

    /// Returns what layers see of the outcomes of calls.
    fn sees_outcomes(&self) -> LayerSight {
        LayerSight { outputs: self.performer.layers.may_see_outputs(), ..LayerSight::default() }
    }

    /// Returns `true` if the run has changed since the last save of the runs around it. All of its head is saved then.
    pub(super) fn take_unsaved(&mut self) -> bool {
        self.record_layer_usage();
        if self.storage.has_unsaved_changes {
            self.run.touch();
        }
        std::mem::take(&mut self.storage.has_unsaved_changes)
    }

    /// Notes that a run inside has changed. The run stops if its limits are exceeded.
    pub(super) fn note_change_inside(&mut self) {
        self.change_run().check_limits_inside();
    }

    /// Reports to their tools which calls will not be continued.
    pub(super) fn give_up_apart(&mut self) -> Option<Job> {
        let given_up = self.run.take_given_up();
        if given_up.is_empty() { None } else { Some(self.give_up_calls(given_up)) }
    }

    /// Reports to their tools that these calls will not be continued.
    pub(super) fn give_up_calls(&self, mut given_up: Vec<GivenUp>) -> Job {
        if self.agent().0.stand_in.is_some() {
            given_up.clear();
        }
        let (agent, context) = (self.performer.origin.clone(), self.performer.tools.context.clone());
        let reporting = async move {
            for GivenUp { asked_by, request } in given_up {
                let names: Vec<_> = asked_by.iter().map(String::as_str).collect();
                agent.give_up_request(&names, request, &context).await;
            }
        };
        // A provider may have to connect again, for which the end of the run does not wait long.
        let reporting = run_until_interrupted(reporting.boxed(), None, Some(GIVE_UP_TIMEOUT));
        Job::new(reporting, |_, _| Ok(()))
    }

    /// Asks the layers about the outcome of a call, and records it. Returns the event to emit.
    pub(super) async fn apply_result(
        &mut self,
        execution: ToolExecution,
    ) -> Result<Option<Event>, RunErrorKind> {
        let is_judged = self.run.must_be_judged(&execution, self.sees_outcomes());
        let (execution, ruling) = match is_judged {
            true => {
                let judged = self.judge_output(execution).await;
                self.count_time();
                judged
            }
            false if self.run.will_retry(&execution) => (execution, OutputRuling::Retried),
            false => (execution, OutputRuling::Seen(None)),
        };
        self.record_outcome(execution, ruling)
    }

    /// Adds the tools that a call has found.
    pub(super) fn note_result(&mut self, execution: &ToolExecution) {
        if let Some((divided, _)) = &self.offer.searched {
            self.run.add_found_tools(divided.found_by(execution));
        }
    }

    /// Returns how the outcome of a call is reported once it is recorded.
    pub(super) fn report_of(&self, execution: &ToolExecution) -> Report {
        let id = &execution.call().id;
        if execution.is_waiting() || !self.has_listeners() || !self.run.has_open_call(id) {
            return Report::Nothing;
        }
        if self.run.will_retry(execution) {
            let sees_outputs = self.performer.layers.see(LayerPhase::Output);
            let failed = execution.of_failed_attempt(sees_outputs);
            return Report::Event(Box::new(Event::CallRetried(failed)));
        }
        // One that may be the answer is emitted after the turn, once that is known and judged.
        match self.run.may_be_answer(id) && self.performer.layers.see(LayerPhase::Answer) {
            true => Report::Nothing,
            false => Report::Finished { id: id.clone(), is_undone: self.run.is_undoing() },
        }
    }

    /// Returns the event of an outcome that is recorded.
    pub(super) fn report(&mut self, report: Report) -> Option<Event> {
        match report {
            Report::Nothing => None,
            Report::Event(event) => Some(*event),
            Report::Finished { id, .. } if self.run.has_open_call(&id) => None,
            Report::Finished { id, is_undone } => {
                self.news.reported.add(&id);
                let finished = match is_undone {
                    true => self.run.undo_executions().last(),
                    false => self.run.finished_call(&id),
                };
                finished.cloned().map(Event::CallFinished)
            }
        }
    }

    /// Records the outcome of a call. Returns the event to emit.
    pub(super) fn record_outcome(
        &mut self,
        mut execution: ToolExecution,
        ruling: OutputRuling,
    ) -> Result<Option<Event>, RunErrorKind> {
        self.storage.has_unsaved_changes = true;
        let was_undoing = self.run.is_undoing();
        let (mut end, mut failure, mut interruption) = (None, None, None);
        match ruling {
            OutputRuling::Retried => {}
            OutputRuling::Seen(ended) => end = ended,
            OutputRuling::Failed(_) | OutputRuling::Interrupted(_) if was_undoing => {
                execution = execution.unjudged();
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
        self.note_result(&execution);
        let report = self.report_of(&execution);
        self.run.record_result(execution).map_err(RunErrorKind::Step)?;
        if let Some(end) = end {
            self.run.stop_by_layer(end);
        }
        if let Some(interruption) = interruption {
            self.interrupt(&interruption);
        }
        self.run.stop_if_time_is_up();
        if let Some(why) = failure {
            return Err(why);
        }
        Ok(self.report(report))
    }

    /// Returns the tools of the agent before a handoff that undoes the next call: the agent that executed a call undoes it.
    pub(super) fn earlier_undoing(&self) -> Option<&RunTools> {
        self.performer.earlier_tools.get(self.run.handoffs_before_undone()?)
    }

    pub(super) fn executor(&mut self) -> CallExecutor {
        if self.run.is_undoing() {
            // Calls that undo others must not be cancelled together with them.
            self.cancellation = CancellationToken::new();
            self.cancel_on_drop = Some(self.cancellation.clone().drop_guard());
        }
        let tools_of_agent = self.earlier_undoing().unwrap_or(&self.performer.tools);
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
        let undone = self.run.next_undone();
        let context = tools_of_agent.context.clone().with_rules(self.performer.layers.clone());
        CallExecutor {
            tools,
            context: context
                .with_stored_outputs(self.performer.layers.outputs().is_some() && undone.is_none()),
            emitter: self.performer.emitter.clone(),
            trace: self.trace.call_trace(),
            cancellation: self.cancellation.clone(),
            timeout: tools_of_agent.agent.0.call_timeout,
            undone,
            stand_in: self.agent().0.stand_in.clone().map(|stand_in| (stand_in, self.run.id().clone())),
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
        let mut events: Vec<_> = self.run.take_decisions().into_iter().map(Event::CallDecided).collect();
        if self.has_listeners() {
            let (answers, outputs) = (
                self.performer.layers.see(LayerPhase::Answer),
                self.performer.layers.see(LayerPhase::Output),
            );
            let finished = self.news.reported.take_shown(&self.run, answers, outputs);
            events.extend(finished.into_iter().map(Event::CallFinished));
        }
        events
    }
}
