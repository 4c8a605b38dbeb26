//! The runs of agents that calls of a run ask. Each is part of the state of the outer run.

use std::collections::HashSet;

use super::approval::Approval;
use super::handoff::Handoff;
use super::resolve_error::ResolveError;
use super::state::{CallRecord, InnerRun, Memo, Run, Stage};
use super::step_error::StepError;
use super::wait::Decision;
use crate::model::{ToolCall, Usage};
use crate::tool::{Timestamp, ToolExecution, WaitId};
use crate::transcript::Transcript;

pub(super) const SEVERAL_CALLS: &str = "several calls have this path; begin it with the id of the outer call";

/// Returns those calls of an inner run that await a decision, or those that await a result.
type Awaiting = fn(&InnerRun) -> &[ToolCall];

impl InnerRun {
    pub(crate) fn new(call_id: String, agent: String, has_own_limits: bool, run: Run) -> Self {
        let mut inner = Self {
            call_id,
            agent,
            has_own_limits,
            is_revoked: false,
            run,
            awaiting_approval: Vec::new(),
            approval_levels: Vec::new(),
            awaiting_results: Vec::new(),
        };
        inner.update_awaiting();
        inner
    }

    /// Returns the id of the call of the outer run that asked the agent.
    #[must_use]
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    /// Returns the name of the tool by which the agent was called.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Returns the run in its current state.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Adds the conversations of these runs to that of the outer one.
    pub(super) fn add_transcripts<'a>(
        inner: impl IntoIterator<Item = &'a Self>,
        outer: Transcript<'a>,
    ) -> Transcript<'a> {
        inner.into_iter().fold(outer, |outer, inner| outer.with_inner(&inner.call_id, inner.run.transcript()))
    }

    /// Adds the tokens of the agent, and of those that it asked, to the parts with these names.
    pub(super) fn add_usage(&self, outer: &str, parts: &mut Vec<(String, Usage)>) {
        let name = if outer.is_empty() { self.agent.clone() } else { format!("{outer}/{}", self.agent) };
        for (agent, used) in self.run.own_usage_by_agent() {
            let name = if agent.is_empty() { name.clone() } else { format!("{name}/{agent}") };
            // The first part is of the agent that was asked, whose name an inner agent can have, too.
            match parts.iter_mut().skip(1).find(|(other, _)| *other == name) {
                Some((_, usage)) => *usage += used,
                None => parts.push((name, used)),
            }
        }
        self.run.inner_runs().for_each(|inner| inner.add_usage(&name, parts));
    }

    /// Lists the calls that the run awaits now.
    pub(super) fn update_awaiting(&mut self) {
        let with_path =
            |call: &ToolCall| ToolCall { id: format!("{}/{}", self.call_id, call.id), ..call.clone() };
        let awaiting = self.run.awaiting_approval_at_levels();
        (self.awaiting_approval, self.approval_levels) =
            awaiting.map(|(call, level)| (with_path(call), level)).unzip();
        self.awaiting_results = self.run.awaiting_results().map(with_path).collect();
    }

    pub(super) fn resolve(&mut self, wait: &WaitId, decision: Decision) -> Result<(), ResolveError> {
        let resolved = self.run.resolve(wait, decision);
        self.update_awaiting();
        resolved
    }

    pub(super) fn tick(&mut self, now: Timestamp) -> bool {
        self.run.tick(now)
    }

    /// Stops the run, so that it continues only to undo its calls. A run that has stopped already stays as it is.
    pub(super) fn cancel(&mut self) {
        self.run.cancel();
        self.update_awaiting();
    }

    /// Stops the run, also if it has an answer already.
    pub(super) fn revoke(&mut self) {
        self.is_revoked = true;
        self.run.revoke();
        self.update_awaiting();
    }

    /// Returns `true` if calls of the run are to be undone with those of the outer run, or were.
    pub(super) fn is_undoable(&self) -> bool {
        self.is_revoked || !self.is_ended() && self.run.has_undoable_calls()
    }

    fn is_ended(&self) -> bool {
        matches!(self.run.stage, Stage::Ended(_))
    }
}

impl Run {
    /// Returns the runs of the agents that calls of this run asked, in the order of the calls. A call that was retried can have
    /// several.
    pub fn inner_runs(&self) -> impl Iterator<Item = &InnerRun> {
        let open = self.stage.records().iter().filter_map(CallRecord::inner);
        self.inner_runs.iter().chain(open)
    }

    /// Returns a readable view of the messages that the run added, with those of the agents that it asked.
    pub(super) fn transcript(&self) -> Transcript<'_> {
        let own = Transcript::new(self.new_messages(), &self.tool_executions);
        let own = Handoff::add_to_transcript(&self.handoffs, &self.tool_executions, own);
        InnerRun::add_transcripts(self.inner_runs(), own)
    }

    /// Returns the run that this open call continues, if it has asked an agent already.
    pub(crate) fn open_inner_run(&self, call_id: &str) -> Option<&Run> {
        if let Some(position) = self.undone_inner_run(call_id) {
            return Some(&self.inner_runs[position].run);
        }
        Some(&self.record(call_id)?.inner()?.run)
    }

    /// Records the current state of the run of an agent that an open call asked. The outer run stops if its limits are
    /// exceeded.
    ///
    /// # Errors
    ///
    /// Fails if no such call is open.
    pub(crate) fn record_inner_run(&mut self, inner: Box<InnerRun>) -> Result<(), StepError> {
        if let Some(position) = self.undone_inner_run(&inner.call_id) {
            let current = &mut self.inner_runs[position];
            current.run = inner.run;
            current.update_awaiting();
            return Ok(());
        }
        let record = self.open_record(&inner.call_id)?;
        record.memo = Some(Memo::Inner(inner));
        if let Some(reason) = self.exceeded_limit() {
            self.stop(reason);
        }
        Ok(())
    }

    /// Moves the run of a failed attempt out of the record of its call, which is executed again. A run that has not ended
    /// stays there and is continued.
    pub(super) fn retire_inner_run(&mut self, call_id: &str) {
        if let Ok(record) = self.open_record(call_id)
            && record.inner().is_some_and(|inner| inner.run.is_done())
            && let Some(Memo::Inner(inner)) = record.memo.take()
        {
            self.inner_runs.push(*inner);
        }
    }

    /// Returns `true` if the only calls in flight ask agents whose runs have limits of their own. Their time does not count.
    pub(crate) fn waits_only_for_own_limits(&self) -> bool {
        let is_running = |record: &&CallRecord| record.is_running() && record.is_ready();
        let Stage::Calling(turn) = &self.stage else { return false };
        let mut running = turn.unfinished().iter().filter(is_running);
        let has_own_limits = |record: &CallRecord| record.inner().is_some_and(|inner| inner.has_own_limits);
        running.next().is_some_and(has_own_limits) && running.all(has_own_limits)
    }

    /// Returns the runs that count for the limits of this one.
    pub(super) fn counted_inner_runs(&self) -> impl Iterator<Item = &Run> {
        self.inner_runs().filter(|inner| !inner.has_own_limits).map(|inner| &inner.run)
    }

    /// Returns the inner run of an open call with this path, and the rest of the path.
    fn inner_run_at<'p>(
        &mut self,
        path: &[&'p str],
        awaiting: Awaiting,
    ) -> Result<(&mut InnerRun, Vec<&'p str>), StepError> {
        let records = match &mut self.stage {
            Stage::Calling(turn) => &mut *turn.calls,
            _ => &mut [],
        };
        let open = records.iter_mut().filter(|record| record.is_open());
        let mut found: Vec<_> = open.filter_map(CallRecord::inner_mut).collect();
        let rest = match path {
            [joined] => {
                found.retain(|inner| awaiting(inner).iter().any(|call| call.id == *joined));
                let rest = found.first().and_then(|inner| joined.get(inner.call_id.len() + 1..));
                rest.into_iter().collect()
            }
            [first, rest @ ..] => {
                let is_id = found.iter().any(|inner| inner.call_id == *first);
                // The model chooses the ids. One that is the name of an agent must not stand for another's call.
                if is_id && found.iter().any(|inner| inner.agent == *first && inner.call_id != *first) {
                    return Err(StepError(
                        "the path begins with the id of one call and the agent of another; pass the path as one text, \
                         as the run returns it",
                    ));
                }
                found.retain(|inner| *first == if is_id { &inner.call_id } else { &inner.agent });
                rest.to_vec()
            }
            [] => return Err(StepError("the path of the call is empty")),
        };
        let is_unique = found.len() == 1;
        match found.pop() {
            Some(inner) if is_unique => Ok((inner, rest)),
            Some(_) => Err(StepError(SEVERAL_CALLS)),
            None => Err(StepError("no call with this path is open")),
        }
    }

    pub(super) fn resolve_inner_approval(
        &mut self,
        path: &[&str],
        approval: Approval,
    ) -> Result<(), StepError> {
        let (inner, rest) = self.inner_run_at(path, |inner| &inner.awaiting_approval)?;
        let resolved = inner.run.resolve_approval_at(&rest, approval);
        inner.update_awaiting();
        resolved
    }

    pub(super) fn awaits_inner(&self, path: &str, awaiting: Awaiting) -> bool {
        let open = self.stage.records().iter().filter_map(CallRecord::open_inner);
        open.flat_map(awaiting).any(|call| call.id == path)
    }

    /// Records the result of a call of an inner run, which the caller supplies. The id of the call is its path.
    pub(super) fn record_inner_result(&mut self, mut execution: ToolExecution) -> Result<(), StepError> {
        let path = std::mem::take(&mut execution.call.id);
        let (inner, rest) = self.inner_run_at(&[&path], |inner| &inner.awaiting_results)?;
        execution.call.id = rest.concat();
        let recorded = inner.run.record_result(execution);
        inner.update_awaiting();
        recorded
    }

    /// Returns `true` if the inner runs belong to calls of this run, and each call has at most one that can be undone.
    pub(super) fn has_consistent_inner_runs(&self) -> bool {
        let finished = self.tool_executions.iter().map(|one| &one.call.id);
        let known: HashSet<_> = finished.chain(self.calls().iter().map(|call| &call.id)).collect();
        let mut not_ended = HashSet::new();
        let mut is_only = |inner: &InnerRun| inner.is_ended() || not_ended.insert(inner.call_id.clone());
        let is_of_call = |(call, record): (&ToolCall, &CallRecord)| {
            record.inner().is_none_or(|inner| {
                inner.call_id == call.id && (record.has_begun() || record.outcome().is_some())
            })
        };
        self.inner_runs().all(|inner| known.contains(&inner.call_id) && is_only(inner))
            && self.calls_with_records().all(is_of_call)
    }
}
