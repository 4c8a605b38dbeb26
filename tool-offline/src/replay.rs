//! Compares a plan with the calls that were executed so far.

use serde_json::Value;
use tool_core::model::ToolMessage;
use tool_core::{Message, ToolCall};

use crate::facts::{Fact, FactKind, Question};
use crate::fill::fill;
use crate::plan::{Plan, Tool};

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

/// Returns the calls in the messages, by the replies that contain them.
pub(crate) fn executed_calls(messages: &[Message]) -> Vec<Vec<Executed<'_>>> {
    let result = |call: &ToolCall| {
        messages.iter().find_map(|message| match message {
            Message::Tool(result) if result.call_id == call.id => Some(result),
            _ => None,
        })
    };
    let replies = messages.iter().filter_map(Message::as_assistant).map(|reply| &reply.tool_calls);
    replies.map(|calls| calls.iter().map(|call| Executed { call, result: result(call) }).collect()).collect()
}

/// Returns the states of the steps, and the calls that belong to none. As the plan is always the same, the calls of each reply are
/// steps that were ready then, by their names: an approval can change the arguments of a call.
pub(crate) fn replay<'e>(
    plan: &Plan,
    tools: &[Tool<'_>],
    question: &Question<'_>,
    replies: &[Vec<Executed<'e>>],
) -> (Vec<StepState>, Vec<Executed<'e>>) {
    let mut states = vec![None; plan.steps.len()];
    let mut others = Vec::new();
    for reply in replies {
        let before = evaluate(plan, tools, question, &states);
        for executed in reply {
            let is_step = |at: &usize| {
                let is_same = tools[plan.steps[*at].tool].name == executed.call.name;
                is_same && states[*at].is_none() && matches!(before[*at], StepState::Ready(_))
            };
            match (0..states.len()).find(is_step) {
                Some(step) => {
                    states[step] = Some(executed.outcome().map_or_else(StepState::Failed, StepState::Done));
                }
                None => others.push(*executed),
            }
        }
    }
    (evaluate(plan, tools, question, &states), others)
}

/// Returns the states of all steps, of which some are known. A step needs only steps before it.
fn evaluate(
    plan: &Plan,
    tools: &[Tool<'_>],
    question: &Question<'_>,
    known: &[Option<StepState>],
) -> Vec<StepState> {
    let mut states: Vec<StepState> = Vec::new();
    for (step, known) in plan.steps.iter().zip(known) {
        let mut needed = step.needs.iter().map(|needed| &states[*needed]);
        let state = match known {
            Some(known) => known.clone(),
            None if needed.clone().all(|state| matches!(state, StepState::Done(_))) => {
                let resolve = |fact: &Fact| match fact.kind {
                    FactKind::Pending(step) => match &states[step] {
                        StepState::Done(text) => {
                            Fact { kind: FactKind::Result, text: text.clone(), ..fact.clone() }
                        }
                        _ => fact.clone(),
                    },
                    _ => fact.clone(),
                };
                let facts: Vec<_> = step.facts.iter().map(resolve).collect();
                let filled = fill(&tools[step.tool].form, question, &step.range, &facts);
                match filled.missing.is_empty() {
                    true => StepState::Ready(filled.arguments),
                    false => StepState::Missing(filled.missing),
                }
            }
            None if needed.any(|state| {
                matches!(state, StepState::Failed(_) | StepState::Blocked | StepState::Missing(_))
            }) =>
            {
                StepState::Blocked
            }
            None => StepState::Waiting,
        };
        states.push(state);
    }
    states
}
