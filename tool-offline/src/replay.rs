//! Compares a plan with the calls that were executed so far.

use serde_json::Value;
use tool_core::model::ToolMessage;
use tool_core::{Message, ToolCall};

use crate::facts::{Fact, FactKind, Question};
use crate::fill::fill;
use crate::plan::{Plan, Step, Tool};

/// A call of the current question with its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Executed<'a> {
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
    /// It needs a result that is not there yet.
    Waiting,
    /// A step that it needs has no result.
    Blocked,
    /// There is no value for these parameters.
    Missing(Vec<String>),
}

impl Executed<'_> {
    /// Returns the text of the result, or of the error.
    pub(crate) fn outcome(&self) -> Result<String, String> {
        match self.result {
            Some(result) if !result.is_error => Ok(result.content.text().into_owned()),
            Some(result) => Err(result.content.text().into_owned()),
            None => Err("it has no result".to_owned()),
        }
    }
}

/// Returns the calls in the messages.
pub(crate) fn executed_calls(messages: &[Message]) -> Vec<Executed<'_>> {
    let result = |call: &ToolCall| {
        messages.iter().find_map(|message| match message {
            Message::Tool(result) if result.call_id == call.id => Some(result),
            _ => None,
        })
    };
    let replies = messages.iter().filter_map(Message::as_assistant);
    let calls = replies.flat_map(|reply| &reply.tool_calls);
    calls.map(|call| Executed { call, result: result(call) }).collect()
}

/// Returns the states of the steps, and the calls that belong to none. As the plan is always the same, a call is the first step with
/// its name that had what it needs: an approval can change the arguments of a call.
pub(crate) fn replay<'e>(
    plan: &Plan,
    tools: &[Tool<'_>],
    question: &Question<'_>,
    executed: &[Executed<'e>],
) -> (Vec<StepState>, Vec<Executed<'e>>) {
    let mut known = vec![None; plan.steps.len()];
    let mut others = Vec::new();
    for executed in executed {
        let is_done = |step: &usize| matches!(known[*step], Some(StepState::Done(_)));
        let is_step = |(at, step): (usize, &Step)| {
            let is_called = tools[step.tool].name == executed.call.name && step.is_complete;
            (known[at].is_none() && is_called && step.needs.iter().all(is_done)).then_some(at)
        };
        match plan.steps.iter().enumerate().find_map(is_step) {
            Some(step) => {
                known[step] = Some(executed.outcome().map_or_else(StepState::Failed, StepState::Done))
            }
            None => others.push(*executed),
        }
    }
    let mut states: Vec<StepState> = Vec::new();
    for (step, known) in plan.steps.iter().zip(known) {
        let state = known.unwrap_or_else(|| state(step, &states, tools, question));
        states.push(state);
    }
    (states, others)
}

/// Returns the state of a step that was not called. It needs only steps before it.
fn state(step: &Step, before: &[StepState], tools: &[Tool<'_>], question: &Question<'_>) -> StepState {
    let is_open = |step: &usize| matches!(before[*step], StepState::Ready(_) | StepState::Waiting);
    let is_done = |step: &usize| matches!(before[*step], StepState::Done(_));
    if !step.needs.iter().all(is_done) {
        let is_waiting = step.needs.iter().all(|step| is_open(step) || is_done(step));
        return if is_waiting { StepState::Waiting } else { StepState::Blocked };
    }
    let resolve = |fact: &Fact| match fact.kind {
        FactKind::Pending(step) => match &before[step] {
            StepState::Done(text) => Fact { kind: FactKind::Result, text: text.clone(), ..fact.clone() },
            _ => fact.clone(),
        },
        _ => fact.clone(),
    };
    let facts: Vec<_> = step.facts.iter().map(resolve).collect();
    let filled = fill(&tools[step.tool].form, question, &step.range, &facts);
    if filled.missing.is_empty() {
        StepState::Ready(filled.arguments)
    } else {
        StepState::Missing(filled.missing)
    }
}
