//! Replays a plan against the calls that were executed so far.

use serde_json::Value;

use crate::clock::shift_time;
use crate::facts::{self, Fact, FactKind};
use crate::fill::{Filled, fill};
use crate::matching::{Tool, Tools};
use crate::planner::{Plan, Step};
use tool_core::model::ToolMessage;
use tool_core::{Message, ToolCall};

/// A call of the current question, with its result.
#[derive(Debug)]
pub(crate) struct ExecutedCall<'a> {
    pub(crate) call: &'a ToolCall,
    pub(crate) result: Option<&'a ToolMessage>,
}

/// The state of one step.
#[derive(Clone, Debug)]
pub(crate) enum StepState {
    Done(String),
    Failed(String),
    /// It can be called with these arguments.
    Ready(Value),
    /// It may need a result that is not available yet.
    Waiting,
    /// A step that it needs has failed.
    Blocked,
    /// These slots of the tool have no value.
    Missing(Vec<usize>),
    /// The question lists this many values, more than the tool takes.
    Excess(usize),
}

#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) states: Vec<StepState>,
    /// For each step, whether another step uses its result.
    pub(crate) is_consumed: Vec<bool>,
    /// The indices of the calls that belong to a step.
    pub(crate) claimed: Vec<usize>,
}

/// Returns the calls in the messages, each with its result.
pub(crate) fn executed_calls(messages: &[Message]) -> Vec<ExecutedCall<'_>> {
    let result = |call: &ToolCall| {
        messages.iter().find_map(|message| match message {
            Message::Tool(result) if result.call_id == call.id => Some(result),
            _ => None,
        })
    };
    let calls = messages.iter().flat_map(|message| match message {
        Message::Assistant(message) => &message.tool_calls[..],
        _ => &[],
    });
    calls.map(|call| ExecutedCall { call, result: result(call) }).collect()
}

/// Evaluates the plan until nothing changes. Every step claims at most one call, and every executed call is claimed
/// if a step of its tool is ready, so every question ends.
pub(crate) fn evaluate(plan: &Plan, tools: &Tools<'_>, calls: &[ExecutedCall<'_>]) -> Progress {
    let mut adopted = vec![None; plan.steps.len()];
    loop {
        let progress = Progress::pass(plan, tools, calls, &adopted);
        // An approval may have changed the arguments of a call.
        let adoptable =
            plan.steps.iter().zip(&progress.states).enumerate().find_map(|(at, (step, state))| {
                let name = tools.get(step.tool).filter(|_| matches!(state, StepState::Ready(_)))?.name();
                let mut free = (0..calls.len()).filter(|call| !progress.claimed.contains(call));
                Some((
                    at,
                    free.find(|call| calls.get(*call).is_some_and(|executed| executed.call.name == name))?,
                ))
            });
        match adoptable.and_then(|(step, call)| Some((adopted.get_mut(step)?, call))) {
            Some((step, call)) => *step = Some(call),
            None => return progress,
        }
    }
}

impl Progress {
    fn pass(plan: &Plan, tools: &Tools<'_>, calls: &[ExecutedCall<'_>], adopted: &[Option<usize>]) -> Self {
        let is_consumed = vec![false; plan.steps.len()];
        let mut progress =
            Self { states: Vec::new(), is_consumed, claimed: adopted.iter().flatten().copied().collect() };
        for (step, adopted) in plan.steps.iter().zip(adopted) {
            let Some(tool) = tools.get(step.tool) else {
                progress.states.push(StepState::Blocked);
                continue;
            };
            let mut state = progress.state_of(plan, step, tool);
            if let StepState::Ready(arguments) = &state {
                let written = arguments.to_string();
                let is_same = |executed: &ExecutedCall<'_>| {
                    let read = || serde_json::from_str::<Value>(&executed.call.arguments);
                    let same =
                        executed.call.arguments == written || read().is_ok_and(|value| value == *arguments);
                    executed.call.name == tool.name() && same
                };
                let call = adopted.or_else(|| calls.iter().position(is_same));
                if let Some((call, executed)) = call.and_then(|call| Some((call, calls.get(call)?))) {
                    progress.claimed.push(call);
                    state = match executed.result {
                        Some(result) if !result.is_error => {
                            StepState::Done(result.content.text().into_owned())
                        }
                        Some(result) => StepState::Failed(result.content.text().into_owned()),
                        None => StepState::Failed("it has no result".to_owned()),
                    };
                }
            }
            progress.states.push(state);
        }
        progress
    }

    fn state_of(&mut self, plan: &Plan, step: &Step, tool: &Tool<'_>) -> StepState {
        if let Some(excess) = step.excess {
            return StepState::Excess(excess);
        }
        if step.facts.iter().filter_map(|fact| fact.step).any(|step| self.is_unavailable(step)) {
            return StepState::Blocked;
        }
        let missing = match self.try_fill(plan, step, tool, &step.facts) {
            Ok(state) => return state,
            Err(missing) => missing,
        };
        if let Some(before) = step.previous {
            if self.is_unavailable(before) {
                return StepState::Blocked;
            }
            let facts: Vec<_> =
                [Fact::pending_result(before, 0..0)].into_iter().chain(step.facts.iter().cloned()).collect();
            if let Ok(state) = self.try_fill(plan, step, tool, &facts) {
                return state;
            }
        }
        if self.states.iter().any(|state| matches!(state, StepState::Ready(_) | StepState::Waiting)) {
            return StepState::Waiting;
        }
        // Fields of results count as uses of their steps.
        let fields = (0..self.states.len()).flat_map(|before| self.fields(before));
        let fields: Vec<_> = fields.chain(step.facts.iter().cloned()).collect();
        let fallbacks =
            step.fallbacks.iter().map(|fallbacks| step.facts.iter().chain(fallbacks).cloned().collect());
        for facts in [fields].into_iter().chain(fallbacks) {
            if let Ok(state) = self.try_fill(plan, step, tool, &facts) {
                return state;
            }
        }
        StepState::Missing(missing)
    }

    /// Fills in the call from these facts, or returns the missing slots.
    fn try_fill(
        &mut self,
        plan: &Plan,
        step: &Step,
        tool: &Tool<'_>,
        facts: &[Fact],
    ) -> Result<StepState, Vec<usize>> {
        let settled: Vec<_> = facts.iter().map(|fact| self.resolve_pending(fact)).collect();
        let Filled { arguments, used, missing, is_waiting } = fill(tool, &plan.text, &step.range, &settled);
        if !missing.is_empty() {
            return Err(missing);
        }
        for fact in used.iter().filter_map(|at| facts.get(*at)) {
            if let Some(part) = fact.step.and_then(|step| self.is_consumed.get_mut(step)) {
                *part = true;
            }
        }
        Ok(if is_waiting { StepState::Waiting } else { StepState::Ready(arguments) })
    }

    /// Replaces a pending result by the actual result once it is available.
    fn resolve_pending(&self, fact: &Fact) -> Fact {
        match fact.kind {
            FactKind::PendingResult(step) => match self.states.get(step) {
                Some(StepState::Done(text)) => {
                    let shifted = fact.offset_seconds.map(|seconds| shift_time(text, seconds));
                    let text = match shifted {
                        // The words themselves, if the result is no time.
                        Some(shifted) => shifted.unwrap_or_else(|| fact.text.clone()),
                        None => text.clone(),
                    };
                    Fact { kind: FactKind::Result, text, ..fact.clone() }
                }
                _ => fact.clone(),
            },
            _ => fact.clone(),
        }
    }

    fn is_unavailable(&self, step: usize) -> bool {
        !matches!(self.states.get(step), Some(StepState::Done(_) | StepState::Ready(_) | StepState::Waiting))
    }

    fn fields(&self, step: usize) -> Vec<Fact> {
        match self.states.get(step) {
            Some(StepState::Done(text)) => facts::fields(text, step),
            _ => Vec::new(),
        }
    }
}
