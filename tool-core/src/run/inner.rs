//! The runs of agents that calls of a run ask. Each is part of the state of the outer run.

use std::collections::HashSet;
use std::time::Duration;

use super::compaction::CompactionRecord;
use super::effect::RunPath;
use super::handoff::Handoff;
use super::id::RunId;
use super::state::{CallRecord, Fact, InnerRun, Run, Stage};
use super::step_error::StepError;
use crate::model::{ToolCall, Usage};
use crate::tool::Attempt;
use crate::transcript::Transcript;

const NO_CALL: &str = "no call with this path is open";

/// Returns `true` if a call awaits a decision, or if it awaits a result.
type Awaits = fn(&CallRecord) -> bool;

impl InnerRun {
    pub(crate) fn new(call: &ToolCall, has_own_limits: bool, run: Run) -> Self {
        let (call_id, agent) = (call.id.clone(), call.name.clone());
        Self { call_id, agent, has_own_limits, run: Box::new(run) }
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

    /// Adds the conversations of these runs to the outer run's.
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

    /// Returns the path of a call of the run, from the path of the call in the outer one.
    fn path_within<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(&*self.call_id)?.strip_prefix('/')
    }

    /// Stops the run, also if it has an answer already.
    pub(super) fn revoke(&mut self) {
        self.run.head.is_revoked = true;
        self.run.touch();
        // What was in flight has been abandoned with the run around.
        self.run.for_each_run(&mut Run::forget_unjudged);
        self.run.revoke();
    }

    /// Returns `true` if calls of the run are to be undone with the outer run's calls, or were.
    pub(super) fn is_undoable(&self) -> bool {
        self.run.head.is_revoked || !self.is_ended() && self.run.has_undoable_calls()
    }

    fn is_ended(&self) -> bool {
        matches!(self.run.stage, Stage::Ended(_))
    }
}

impl CallRecord {
    /// Returns `true` if a call of the agent that this open call asked has this path in the outer run, and awaits this.
    fn awaits_inside(&self, path: &str, awaits: Awaits) -> bool {
        let within = self.open_inner().and_then(|inner| Some((&inner.run, inner.path_within(path)?)));
        within.is_some_and(|(run, path)| {
            let mut inside = run.stage.records().iter();
            run.record(path).is_some_and(awaits) || inside.any(|record| record.awaits_inside(path, awaits))
        })
    }
}

impl Run {
    /// Returns the runs of the agents that calls of this run asked, in the order of the calls. A call that was retried can have
    /// several.
    pub fn inner_runs(&self) -> impl Iterator<Item = &InnerRun> {
        let open = self.stage.records().iter().filter_map(CallRecord::inner);
        self.inner_runs.iter().chain(open)
    }

    /// Returns the ids of the run and of all runs inside, at any depth.
    pub(crate) fn ids_of_tree(&self) -> Vec<RunId> {
        let mut ids = vec![self.id().clone()];
        ids.extend(self.inner_runs().flat_map(|inner| inner.run().ids_of_tree()));
        ids
    }

    /// Returns a readable view of the messages that the run and the agents that it asked have added.
    pub(super) fn transcript(&self) -> Transcript<'_> {
        let own = Transcript::new(self.new_messages(), self.tool_executions());
        let own = Handoff::add_to_transcript(&self.head.handoffs, self.tool_executions(), own);
        let own = CompactionRecord::add_to_transcript(self.compactions(), self.tool_executions(), own);
        InnerRun::add_transcripts(self.inner_runs(), own)
    }

    /// Returns the run that this open call continues, if it has asked an agent already.
    pub(crate) fn open_inner_run(&self, call_id: &str) -> Option<&Run> {
        Some(&self.open_inner(call_id)?.run)
    }

    fn open_inner(&self, call_id: &str) -> Option<&InnerRun> {
        match self.undone_inner_run(call_id) {
            Some(position) => self.inner_runs.get(position),
            None => self.record(call_id)?.inner(),
        }
    }

    /// Returns the time that the run to which these calls lead has left, and those around it for whose limits it counts: the depth of the
    /// run with the least time, and this time.
    pub(crate) fn least_time_left(&self, calls: &[&str]) -> Option<(usize, Duration)> {
        let (mut run, mut least) = (self, self.time_left().map(|left| (0, left)));
        for (depth, call) in calls.iter().enumerate() {
            // The run of an agent that is about to be asked does not exist yet.
            let Some(inner) = run.open_inner(call) else { break };
            run = &inner.run;
            let around = least.filter(|_| !inner.has_own_limits);
            let own = run.time_left().map(|left| (depth + 1, left));
            least = own.into_iter().chain(around).min_by_key(|(_, left)| *left);
        }
        least
    }

    /// Returns a call that was started, and its attempt.
    pub(crate) fn call_in_flight(&self, call_id: &str) -> Option<(ToolCall, Attempt)> {
        let record = self.record(call_id).filter(|record| record.is_running())?;
        let (key, number) = (self.key(call_id), record.running_attempt()?);
        let is_continued = self.open_inner_run(call_id).is_some();
        let attempt = Attempt { is_continued, ..Attempt::new(key, number) };
        Some((self.requested_call(call_id)?.clone(), attempt))
    }

    /// Returns the run to which these calls lead: each asks an agent, in whose run the next one is open.
    pub(crate) fn inner_run_at<'a>(&self, calls: impl IntoIterator<Item = &'a str>) -> Option<&Self> {
        calls
            .into_iter()
            .try_fold(self, |run, call| run.has_open_call(call).then(|| run.open_inner_run(call)).flatten())
    }

    /// Changes the run to which these calls lead. The runs around it stop if their limits are exceeded. Returns `None` if there is no
    /// such run.
    pub(crate) fn change_inner_run_at<T>(
        &mut self,
        calls: &[&str],
        change: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let Some((call, rest)) = calls.split_first() else { return Some(change(self)) };
        let undone = self.undone_inner_run(call);
        let inner = match undone {
            Some(position) => &mut self.inner_runs.make_mut()[position],
            // Nothing of its own record changes.
            None => self.record_mut(call).filter(|record| record.is_open())?.inner_mut()?,
        };
        let changed = inner.run.change_inner_run_at(rest, change);
        if let Some(reason) = self.exceeded_limit().filter(|_| undone.is_none()) {
            self.stop(reason);
        }
        changed
    }

    /// Makes a new run part of this one: the run of the agent that an open call asks by the tool of this name.
    ///
    /// # Errors
    ///
    /// Fails if no such call is open.
    pub(crate) fn add_inner_run(
        &mut self,
        call: &ToolCall,
        has_own_limits: bool,
        run: Self,
    ) -> Result<(), StepError> {
        self.open_record(&call.id)?;
        self.append(Fact::Began(Box::new(InnerRun::new(call, has_own_limits, run))));
        Ok(())
    }

    /// Returns where the run is to which these calls lead. Nothing notes that something changes there.
    pub(crate) fn inner_run_slot(&mut self, calls: &[String]) -> Option<&mut Box<Self>> {
        let (call, rest) = calls.split_first()?;
        let inner = match self.undone_inner_run(call) {
            Some(position) => &mut self.inner_runs.make_mut()[position],
            None => self.record_mut(call).filter(|record| record.is_open())?.inner_mut()?,
        };
        match rest {
            [] => Some(&mut inner.run),
            rest => inner.run.inner_run_slot(rest),
        }
    }

    /// Changes what the driver of a run of the tree does, by which no limit is exceeded. Returns `None` if there is no such run.
    pub(super) fn mark_at<T>(&mut self, path: &RunPath, change: impl FnOnce(&mut Self) -> T) -> Option<T> {
        match path.depth() {
            0 => Some(change(self)),
            _ => self.inner_run_slot(path.ids()).map(|run| change(run)),
        }
    }

    /// Stops the run if its limits are exceeded by what has happened in runs inside. What is undone has no limits.
    pub(crate) fn check_limits_inside(&mut self) {
        if let Some(reason) = self.exceeded_limit().filter(|_| !self.is_undoing()) {
            self.stop(reason);
        }
    }

    /// Returns `true` if the only calls in flight or parked ask agents whose runs have limits of their own. Their time does not count.
    pub(crate) fn waits_only_for_own_limits(&self) -> bool {
        let Stage::Calling(turn) = &self.stage else { return false };
        let takes_time =
            |record: &&CallRecord| record.is_running() && record.is_ready() || record.is_parked();
        let mut taking_time = turn.unfinished().iter().filter(takes_time);
        let has_own_limits = |record: &CallRecord| record.inner().is_some_and(|inner| inner.has_own_limits);
        taking_time.next().is_some_and(has_own_limits) && taking_time.all(has_own_limits)
    }

    /// Returns the runs that count for the limits of this one.
    pub(super) fn counted_inner_runs(&self) -> impl Iterator<Item = &Run> {
        self.inner_runs().filter(|inner| !inner.has_own_limits).map(|inner| &*inner.run)
    }

    /// Returns the run that the call with this path belongs to, and the call's id. Of the calls of inner runs, only those that await
    /// this are found.
    pub(super) fn call_at<'p>(
        &mut self,
        path: &'p str,
        awaits: Awaits,
    ) -> Result<(&mut Self, &'p str), StepError> {
        let records = self.stage.records().iter().enumerate();
        let inside = records.filter(|(_, record)| record.awaits_inside(path, awaits));
        match (self.has_open_call(path), &*inside.map(|(position, _)| position).collect::<Vec<_>>()) {
            (_, []) => Ok((self, path)),
            (false, [position]) => {
                let Stage::Calling(turn) = &mut self.stage else { return Err(StepError(NO_CALL)) };
                let inner = turn.calls[*position].inner_mut().ok_or(StepError(NO_CALL))?;
                let path = inner.path_within(path).ok_or(StepError(NO_CALL))?;
                inner.run.call_at(path, awaits)
            }
            // Only in an edited state, because ids that look like paths are replaced.
            _ => {
                Err(StepError("several calls have this path; use `resolve` with the id of one of `waits()`"))
            }
        }
    }

    /// Returns `true` if the inner runs belong to calls of this run.
    pub(super) fn has_consistent_inner_runs(&self) -> bool {
        let finished = self.tool_executions().iter().map(|one| &one.call.id);
        let known: HashSet<_> = finished.chain(self.calls().iter().map(|call| &call.id)).collect();
        let is_of_call = |(call, record): (&ToolCall, &CallRecord)| {
            record.inner().is_none_or(|inner| {
                inner.call_id == call.id && (record.has_begun() || record.outcome().is_some())
            })
        };
        self.inner_runs().all(|inner| known.contains(&inner.call_id))
            && self.calls_with_records().all(is_of_call)
    }
}
