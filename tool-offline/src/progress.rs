//! Where a plan stands: it is gone through again with the calls that were made so far.

use serde_json::Value;

use super::choose::{Tool, Tools};
use super::facts::{self, Fact, Holds};
use super::fill::{Filled, fill};
use super::plan::{Plan, Step};
use tool_core::{Message, ToolCall, ToolMessage};

/// A call of this question, and what came of it.
#[derive(Debug)]
pub(crate) struct Made<'a> {
    pub(crate) call: &'a ToolCall,
    pub(crate) result: Option<&'a ToolMessage>,
}

/// Where one step stands.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    Done(String),
    Failed(String),
    /// It is to be called with these arguments.
    Ready(Value),
    /// A result that it may need is not there yet.
    Waiting,
    /// A step that it needs has failed.
    Blocked,
    /// No value is there for these slots of the tool.
    Missing(Vec<usize>),
    /// The question lists so many values, more than the tool takes.
    Excess(usize),
}

#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) standings: Vec<Standing>,
    /// For each step, whether another has taken its result.
    pub(crate) is_part: Vec<bool>,
    /// The calls that belong to a step.
    pub(crate) claimed: Vec<usize>,
}

/// The calls after the question, each with its result.
pub(crate) fn made(messages: &[Message]) -> Vec<Made<'_>> {
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
    calls.map(|call| Made { call, result: result(call) }).collect()
}

/// Goes through the plan until it stands. Every step takes at most one call, and every call that was made
/// is taken if a step of its tool is open, so a question has an end.
pub(crate) fn progress(plan: &Plan, tools: &Tools<'_>, made: &[Made<'_>]) -> Progress {
    let mut adopted = vec![None; plan.steps.len()];
    loop {
        let progress = Progress::through(plan, tools, made, &adopted);
        // A call may have been changed on its way, by an application that approves calls.
        let adoptable =
            plan.steps.iter().zip(&progress.standings).enumerate().find_map(|(at, (step, standing))| {
                let name = tools.get(step.tool).filter(|_| matches!(standing, Standing::Ready(_)))?.name();
                let mut free = (0..made.len()).filter(|call| !progress.claimed.contains(call));
                Some((at, free.find(|call| made.get(*call).is_some_and(|made| made.call.name == name))?))
            });
        match adoptable.and_then(|(step, call)| Some((adopted.get_mut(step)?, call))) {
            Some((step, call)) => *step = Some(call),
            None => return progress,
        }
    }
}

impl Progress {
    fn through(plan: &Plan, tools: &Tools<'_>, made: &[Made<'_>], adopted: &[Option<usize>]) -> Self {
        let is_part = vec![false; plan.steps.len()];
        let mut progress =
            Self { standings: Vec::new(), is_part, claimed: adopted.iter().flatten().copied().collect() };
        for (step, adopted) in plan.steps.iter().zip(adopted) {
            let Some(tool) = tools.get(step.tool) else {
                progress.standings.push(Standing::Blocked);
                continue;
            };
            let mut standing = progress.standing(plan, step, tool);
            if let Standing::Ready(arguments) = &standing {
                let written = arguments.to_string();
                let is_same = |made: &Made<'_>| {
                    let read = || serde_json::from_str::<Value>(&made.call.arguments);
                    let same = made.call.arguments == written || read().is_ok_and(|made| made == *arguments);
                    made.call.name == tool.name() && same
                };
                let call = adopted.or_else(|| made.iter().position(is_same));
                if let Some((call, made)) = call.and_then(|call| Some((call, made.get(call)?))) {
                    progress.claimed.push(call);
                    standing = match made.result {
                        Some(result) if !result.is_error => {
                            Standing::Done(result.content.text().into_owned())
                        }
                        Some(result) => Standing::Failed(result.content.text().into_owned()),
                        None => Standing::Failed("there is no result".to_owned()),
                    };
                }
            }
            progress.standings.push(standing);
        }
        progress
    }

    fn standing(&mut self, plan: &Plan, step: &Step, tool: &Tool<'_>) -> Standing {
        if let Some(excess) = step.excess {
            return Standing::Excess(excess);
        }
        if step.facts.iter().filter_map(|fact| fact.step).any(|step| self.is_lost(step)) {
            return Standing::Blocked;
        }
        let missing = match self.attempt(plan, step, tool, &step.facts) {
            Ok(standing) => return standing,
            Err(missing) => missing,
        };
        if let Some(before) = step.implied {
            if self.is_lost(before) {
                return Standing::Blocked;
            }
            let facts: Vec<_> =
                [Fact::pending(before, 0..0)].into_iter().chain(step.facts.iter().cloned()).collect();
            if let Ok(standing) = self.attempt(plan, step, tool, &facts) {
                return standing;
            }
        }
        if self.standings.iter().any(|standing| matches!(standing, Standing::Ready(_) | Standing::Waiting)) {
            return Standing::Waiting;
        }
        // The fields of earlier results stand for their steps, so that these count as parts.
        let fields = (0..self.standings.len()).flat_map(|before| self.fields(before));
        let fields: Vec<_> = fields.chain(step.facts.iter().cloned()).collect();
        let spare = step.spare.iter().map(|spare| step.facts.iter().chain(spare).cloned().collect());
        for facts in [fields].into_iter().chain(spare) {
            if let Ok(standing) = self.attempt(plan, step, tool, &facts) {
                return standing;
            }
        }
        Standing::Missing(missing)
    }

    /// Fills the call from these facts; else tells the slots that are missing.
    fn attempt(
        &mut self,
        plan: &Plan,
        step: &Step,
        tool: &Tool<'_>,
        facts: &[Fact],
    ) -> Result<Standing, Vec<usize>> {
        let settled: Vec<_> = facts.iter().map(|fact| self.settled(fact)).collect();
        let Filled { arguments, used, missing, waits } = fill(tool, &plan.text, &step.range, &settled);
        if !missing.is_empty() {
            return Err(missing);
        }
        for fact in used.iter().filter_map(|at| facts.get(*at)) {
            if let Some(part) = fact.step.and_then(|step| self.is_part.get_mut(step)) {
                *part = true;
            }
        }
        Ok(if waits { Standing::Waiting } else { Standing::Ready(arguments) })
    }

    /// A result that was pending and is there now.
    fn settled(&self, fact: &Fact) -> Fact {
        match fact.holds {
            Holds::Pending(step) => match self.standings.get(step) {
                Some(Standing::Done(text)) => {
                    Fact { holds: Holds::Known, text: text.clone(), ..fact.clone() }
                }
                _ => fact.clone(),
            },
            _ => fact.clone(),
        }
    }

    fn is_lost(&self, step: usize) -> bool {
        !matches!(self.standings.get(step), Some(Standing::Done(_) | Standing::Ready(_) | Standing::Waiting))
    }

    fn fields(&self, step: usize) -> Vec<Fact> {
        match self.standings.get(step) {
            Some(Standing::Done(text)) => facts::fields(text, step),
            _ => Vec::new(),
        }
    }
}
