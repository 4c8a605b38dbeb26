//! What may start now, beside the calls in flight.
//!
//! What may start beside exclusive calls is decided for the whole tree of runs, in this process and on Restate (`TreeInFlight`), because
//! each run sees only its own calls. What waits occupies no room: neither a parked call nor an agent in whose run everything waits.

use std::borrow::Cow;
use std::collections::HashSet;

use super::state::{CallRecord, Run, Stage};
use crate::model::{ToolCall, ToolKind};

/// The calls that a driver has in flight, and how many it may have at once.
///
/// ```
/// use tool_core::model::{AssistantMessage, ChatResponse, ToolDefinitions};
/// use tool_core::run::{InFlight, Run};
/// use tool_core::{Message, ToolCall};
///
/// let mut run = Run::new([Message::user("Go")]);
/// let calls = ["a", "b", "c"].map(|id| ToolCall::new(id, "work", "{}"));
/// run.record_response(ChatResponse::new(AssistantMessage::default().with_tool_calls(calls)))?;
/// let mut in_flight = InFlight::new(2);
/// in_flight.begin("a");
/// let startable = run.startable(&in_flight);
/// assert_eq!(startable.iter().map(|call| &*call.id).collect::<Vec<_>>(), ["b"]);
/// # Ok::<_, tool_core::run::StepError>(())
/// ```
#[derive(Clone, Debug)]
pub struct InFlight {
    ids: HashSet<String>,
    /// Those that have ended without an outcome. They occupy no room, and are not started again.
    suspended: HashSet<String>,
    /// The calls that can still start, if not all of the run can.
    only: Option<HashSet<String>>,
    max: usize,
}

impl InFlight {
    /// Creates an empty set, to which at most so many calls are added.
    #[must_use]
    pub fn new(max_concurrent: usize) -> Self {
        Self { ids: HashSet::new(), suspended: HashSet::new(), only: None, max: max_concurrent }
    }

    /// No calls, without a limit.
    pub(crate) fn none() -> Self {
        Self::new(usize::MAX)
    }

    /// Lets no other calls start.
    pub(crate) fn only(self, ids: HashSet<String>) -> Self {
        Self { only: Some(ids), ..self }
    }

    /// Adds a call that was started.
    pub fn begin(&mut self, call_id: impl Into<String>) {
        let call_id = call_id.into();
        self.forget(&call_id);
        self.ids.insert(call_id);
    }

    /// Removes a call that has an outcome, or whose attempt has one.
    pub fn end(&mut self, call_id: &str) {
        if let (Some(id), Some(only)) = (self.ids.take(call_id), &mut self.only) {
            only.insert(id);
        }
    }

    /// Notes that a call cannot start any more.
    pub(crate) fn forget(&mut self, call_id: &str) {
        self.only.iter_mut().for_each(|only| _ = only.remove(call_id));
    }

    /// Removes a call without an outcome, which is not started again in this step.
    pub(crate) fn suspend(&mut self, call_id: &str) {
        self.ids.remove(call_id);
        self.forget(call_id);
        self.suspended.insert(call_id.to_owned());
    }

    pub(crate) fn contains(&self, call_id: &str) -> bool {
        self.ids.contains(call_id)
    }

    /// Returns `true` if this driver executes or can start the call.
    fn takes(&self, call_id: &str) -> bool {
        let can_start = self.only.as_ref().is_none_or(|only| only.contains(call_id));
        self.contains(call_id) || can_start && !self.suspended.contains(call_id)
    }
}

/// What is in flight in a run and in the runs of the agents that its calls ask.
#[doc(hidden)] // For the crates of this project.
#[derive(Debug, Default)]
pub struct TreeInFlight<'a>(Vec<PlacedRun<'a>>);

/// A run, the calls that lead to it, and those in flight in it.
#[derive(Debug)]
struct PlacedRun<'a> {
    place: Vec<&'a str>,
    run: &'a Run,
    in_flight: Cow<'a, InFlight>,
}

impl<'a> TreeInFlight<'a> {
    /// Adds a run with its calls in flight, among them those that ask agents, after the runs around it. Its place are the calls that lead to
    /// it.
    pub fn add(&mut self, place: Vec<&'a str>, run: &'a Run, in_flight: Cow<'a, InFlight>) {
        self.0.push(PlacedRun { place, run, in_flight });
    }

    /// Returns the calls of the run at this place that can start now, beside those of the whole tree.
    #[must_use]
    pub fn startable(&self, place: &[&str]) -> Vec<ToolCall> {
        let Some(own) = self.0.iter().find(|one| one.place == place) else { return Vec::new() };
        let mut calls = own.run.can_start(&own.in_flight);
        if !calls.is_empty() {
            let agent = self.exclusive_agent();
            let is_awaited = self.awaits_exclusive(place, &agent);
            calls.retain(|call| self.leaves_room(own, call, &agent, is_awaited));
        }
        calls.into_iter().cloned().collect()
    }

    /// Returns `true` if a call can start beside those of the whole tree; its run has checked its own. An exclusive call runs alone. A call
    /// that asks an agent is beside others, unless it is exclusive: then only calls of its agent run.
    fn leaves_room(&self, own: &PlacedRun<'_>, call: &ToolCall, agent: &[&str], is_awaited: bool) -> bool {
        let is_exclusive = own.run.is_exclusive(&call.id);
        if own.run.asks_agent(&call.id) && !is_exclusive {
            return true;
        }
        // Calls outside of an exclusive agent can have started while it waited.
        let mut excludes = self.0.iter().flat_map(|one| {
            let executed = one.run.working(&one.in_flight).filter(|(id, _)| !one.run.asks_agent(id));
            executed.map(|(_, record)| is_exclusive || record.is_exclusive() || !one.place.starts_with(agent))
        });
        own.place.starts_with(agent) && (is_exclusive || !is_awaited) && !excludes.any(|excludes| excludes)
    }

    /// Returns the place of the exclusive agent at work, empty without one.
    fn exclusive_agent(&self) -> Vec<&str> {
        let agents = self.0.iter().flat_map(|one| {
            let calls = one.run.working(&one.in_flight).filter(|(_, record)| record.is_exclusive());
            let agents = calls.filter(|(id, _)| one.run.asks_agent(id));
            agents.map(|(id, _)| one.place.iter().copied().chain([id]).collect::<Vec<_>>())
        });
        // One inside the other; of several, the first one of the reply.
        agents.fold(Vec::new(), |outer, inner| if inner.starts_with(&outer) { inner } else { outer })
    }

    /// Returns `true` if an exclusive call of another run can start once it has room. Otherwise it could wait for ever while others overlap.
    /// Those outside of an exclusive agent at work wait for its end.
    fn awaits_exclusive(&self, place: &[&str], agent: &[&str]) -> bool {
        let mut others = self.0.iter().filter(|one| one.place != place && one.place.starts_with(agent));
        others.any(|one| one.run.can_start(&one.in_flight).iter().any(|call| one.run.is_exclusive(&call.id)))
    }
}

impl Run {
    /// Returns the calls that can be started now, beside those in flight: as many as there is room for, and an exclusive one alone.
    #[doc(hidden)] // For the crates of this project.
    #[must_use]
    pub fn startable(&self, in_flight: &InFlight) -> Vec<ToolCall> {
        self.can_start(in_flight).into_iter().cloned().collect()
    }

    /// Returns the calls that can be started now.
    pub(crate) fn can_start(&self, in_flight: &InFlight) -> Vec<&ToolCall> {
        match &self.stage {
            // The tools of the calls are not known yet.
            Stage::Calling(_) if self.awaits_tools() => Vec::new(),
            Stage::Calling(_) if in_flight.only.as_ref().is_some_and(HashSet::is_empty) => Vec::new(),
            Stage::Calling(_) => self.ready_calls(in_flight).unwrap_or_default(),
            Stage::Undoing(undoing)
                if in_flight.takes(&undoing.call.id) && !in_flight.contains(&undoing.call.id) =>
            {
                vec![&undoing.call]
            }
            _ => Vec::new(),
        }
    }

    /// Returns `true` if the run takes an outcome of this call: it is a call of the current turn, or the next one that undoes another,
    /// and has none yet. The calls in flight of a run that has stopped are to be cancelled.
    #[doc(hidden)] // For the crates of this project.
    #[must_use]
    pub fn has_open_call(&self, call_id: &str) -> bool {
        self.record(call_id).is_some_and(CallRecord::is_open)
    }

    /// Returns `true` if a call excludes others.
    #[doc(hidden)] // For the crates of this project.
    #[must_use]
    pub fn is_exclusive(&self, call_id: &str) -> bool {
        self.record(call_id).is_some_and(CallRecord::is_exclusive)
    }

    /// Returns `true` if a call asks an agent, or undoes the calls of one.
    #[doc(hidden)] // For the crates of this project.
    #[must_use]
    pub fn asks_agent(&self, call_id: &str) -> bool {
        self.kind_of(call_id) == Some(ToolKind::Agent) || self.open_inner_run(call_id).is_some()
    }

    /// Returns the calls in flight that occupy room, in the order of the reply. That of an agent whose run waits does not.
    fn working<'a>(&'a self, in_flight: &'a InFlight) -> impl Iterator<Item = (&'a str, &'a CallRecord)> {
        let undoing = match &self.stage {
            Stage::Undoing(undoing) => Some((&undoing.call, &undoing.record)),
            _ => None,
        };
        let undoing = undoing.filter(|(call, _)| in_flight.contains(&call.id));
        // They are few, and the calls of a reply can be many.
        let mut positions: Vec<_> = in_flight.ids.iter().filter_map(|id| self.call_position(id)).collect();
        positions.sort_unstable();
        let at = |position: usize| self.calls().get(position).zip(self.stage.records().get(position));
        let calls = positions.into_iter().filter_map(at).chain(undoing);
        calls.filter(|(_, record)| record.is_ready()).map(|(call, record)| (&*call.id, record))
    }

    /// Returns `true` if a call in flight occupies room.
    pub(crate) fn is_working(&self, in_flight: &InFlight) -> bool {
        in_flight.ids.iter().any(|id| self.record(id).is_some_and(CallRecord::is_ready))
    }

    /// Returns `true` if a call must not be executed again.
    #[doc(hidden)] // For the crates of this project.
    #[must_use]
    pub fn is_at_most_once(&self, call_id: &str) -> bool {
        self.record(call_id).is_some_and(CallRecord::is_at_most_once)
    }

    /// Returns the kind of a call's tool.
    #[doc(hidden)] // For the crates of this project.
    #[must_use]
    pub fn kind_of(&self, call_id: &str) -> Option<ToolKind> {
        self.record(call_id)?.kind
    }

    /// Returns the calls of the turn that can be started now, which are none while others must finish first. Returns `None` if all
    /// open calls wait. Looks no further than there is room.
    pub(super) fn ready_calls(&self, in_flight: &InFlight) -> Option<Vec<&ToolCall>> {
        let (mut running, mut is_alone) = (0, false);
        for (_, record) in self.working(in_flight) {
            (running, is_alone) = (running + 1, is_alone || record.is_exclusive());
        }
        let startable = || {
            let ready = self.unfinished_calls().filter(|(_, record)| record.is_ready());
            ready.filter(|(call, _)| !in_flight.contains(&call.id) && in_flight.takes(&call.id))
        };
        // An exclusive call runs alone, once no other call is ready or in flight.
        let room = if is_alone { 0 } else { in_flight.max.saturating_sub(running) };
        let mut calls: Vec<_> = startable().filter(|(_, one)| !one.is_exclusive()).take(room).collect();
        if running == 0 && calls.is_empty() {
            calls.extend(startable().take(room.min(1)));
        }
        (!calls.is_empty() || running > 0).then(|| calls.into_iter().map(|(call, _)| call).collect())
    }
}
