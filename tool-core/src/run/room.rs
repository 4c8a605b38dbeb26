//! What may start now, beside the calls in flight.
//!
//! What may start beside exclusive calls is decided for the whole tree of runs, in this process and on Restate (`TreeInFlight`), because
//! each run sees only its own calls. A call that asks an agent is beside others, unless it is exclusive.

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
    ids: Vec<String>,
    /// Those that have ended without an outcome. They occupy no room, and are not started again.
    suspended: Vec<String>,
    max: usize,
}

impl InFlight {
    /// No calls, without a limit.
    pub(crate) const NONE: Self = Self { ids: Vec::new(), suspended: Vec::new(), max: usize::MAX };

    /// Creates an empty set, to which at most so many calls are added.
    #[must_use]
    pub fn new(max_concurrent: usize) -> Self {
        Self { max: max_concurrent, ..Self::NONE }
    }

    /// Adds a call that was started.
    pub fn begin(&mut self, call_id: impl Into<String>) {
        self.ids.push(call_id.into());
    }

    /// Removes a call that has an outcome, or whose attempt has one.
    pub fn end(&mut self, call_id: &str) {
        self.ids.retain(|id| id != call_id);
    }

    /// Removes a call without an outcome, which is not started again in this step.
    pub(crate) fn suspend(&mut self, call_id: &str) {
        self.end(call_id);
        self.suspended.push(call_id.to_owned());
    }

    pub(crate) fn contains(&self, call_id: &str) -> bool {
        self.ids.iter().any(|id| id == call_id)
    }

    fn room(&self) -> usize {
        self.max.saturating_sub(self.ids.len())
    }
}

/// What is in flight in a run and in the runs of the agents that its calls ask. Their places are the calls that lead to them.
#[doc(hidden)] // For the crates of this project.
#[derive(Debug)]
pub struct TreeInFlight<'a, T> {
    has_calls: bool,
    has_exclusive_call: bool,
    /// The place of the exclusive agent at work, if there is one.
    exclusive_agent: &'a [T],
    is_exclusive_awaited: bool,
}

impl<'a, T: PartialEq> TreeInFlight<'a, T> {
    /// Creates it from the calls in flight other than those that ask agents, each with whether it is exclusive, and from the places of the
    /// exclusive agents at work, in the order in which they were asked.
    pub fn new(
        calls: impl IntoIterator<Item = bool>,
        exclusive_agents: impl IntoIterator<Item = &'a [T]>,
    ) -> Self {
        let (mut has_calls, mut has_exclusive_call) = (false, false);
        for is_exclusive in calls {
            has_calls = true;
            has_exclusive_call |= is_exclusive;
        }
        // One inside the other; of several, the one that was asked first.
        let exclusive_agent = exclusive_agents
            .into_iter()
            .fold(&[][..], |outer, inner| if inner.starts_with(outer) { inner } else { outer });
        Self { has_calls, has_exclusive_call, exclusive_agent, is_exclusive_awaited: false }
    }

    /// States that an exclusive call of another run can start once it has room. Otherwise it could wait for ever while others overlap.
    #[must_use]
    pub fn with_exclusive_awaited(self, is_awaited: bool) -> Self {
        // The calls of an exclusive agent are what it is waited for.
        let is_exclusive_awaited = is_awaited && self.exclusive_agent.is_empty();
        Self { is_exclusive_awaited, ..self }
    }

    /// Returns `true` if a call of the run at this place can start beside them. The run itself has checked its own. An exclusive call runs
    /// alone; a call that asks an agent is beside others, unless it is exclusive: then only calls of its agent run.
    #[must_use]
    pub fn leaves_room(&self, place: &[T], is_exclusive: bool, asks_agent: bool) -> bool {
        let is_beside_exclusive = self.has_exclusive_call || !place.starts_with(self.exclusive_agent);
        match is_exclusive {
            true => !self.has_calls && !is_beside_exclusive,
            false => asks_agent || !(is_beside_exclusive || self.is_exclusive_awaited),
        }
    }
}

impl Run {
    /// Returns the calls that can be started now, beside those in flight: as many as there is room for, and an exclusive one alone.
    #[doc(hidden)] // For the crates of this project.
    #[must_use]
    pub fn startable(&self, in_flight: &InFlight) -> Vec<ToolCall> {
        match &self.stage {
            Stage::Calling(_) => self.ready_calls(in_flight).unwrap_or_default(),
            Stage::Undoing(undoing)
                if !in_flight.contains(&undoing.call.id)
                    && !in_flight.suspended.contains(&undoing.call.id) =>
            {
                vec![undoing.call.clone()]
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
    /// open calls wait.
    pub(super) fn ready_calls(&self, in_flight: &InFlight) -> Option<Vec<ToolCall>> {
        let is_exclusive = |(_, record): &(&ToolCall, &CallRecord)| record.is_exclusive();
        let ready = self.calls_with_records().filter(|(_, record)| record.is_ready());
        let ready = ready.filter(|(call, _)| !in_flight.suspended.contains(&call.id));
        let (running, startable): (Vec<_>, Vec<_>) =
            ready.partition(|(call, _)| in_flight.contains(&call.id));
        let (exclusive, others): (Vec<_>, Vec<_>) = startable.into_iter().partition(is_exclusive);
        // An exclusive call runs alone, once no other call is ready or in flight.
        let calls = if running.iter().any(is_exclusive) {
            &[]
        } else if running.is_empty() && others.is_empty() {
            &exclusive[..exclusive.len().min(1)]
        } else {
            &*others
        };
        let calls: Vec<_> = calls.iter().take(in_flight.room()).map(|(call, _)| (*call).clone()).collect();
        (!calls.is_empty() || !running.is_empty()).then_some(calls)
    }
}
