//! What the record of a run has, for one that repeats it.

use std::collections::BTreeMap;

use super::history::History;
use super::state::{Fact, Run, Stage};
use crate::model::{FinishReason, Message, ResponseFormat, ToolDefinitions, Usage};
use crate::run::{Answer, StopReason};
use crate::tool::{CallNotes, DecisionRecord, ToolExecution};

/// Returns the record of the run that has given an answer, for programs that have answers and no stored runs, such as clients of workers. It
/// lacks what was said before the question, and what layers decided about the question and the answer.
///
/// ```
/// use tool_core::Agent;
/// use tool_core::engine::run_of_answer;
/// use tool_core::testing::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let desk = Agent::builder(ScriptedModel::new().says("Hi!")).name("desk").build()?;
/// let run = run_of_answer(&desk.ask("Hello").await?, desk.name());
/// assert_eq!((run.agent_name(), run.messages().len()), (Some("desk"), 2));
/// # Ok(())
/// # }
/// ```
#[must_use = "it is not stored"]
pub fn run_of_answer(answer: &Answer, agent: Option<&str>) -> Run {
    let mut run = Run::new([]);
    run.set_agent_name(agent);
    run.history = History::of_ended(answer.messages.clone(), answer.tool_executions.clone());
    run.inner_runs = answer.inner_runs.clone().into();
    run.head.handoffs.clone_from(&answer.handoffs);
    run.head.turns = answer.turns;
    answer.own_usage_by_agent.iter().for_each(|(_, used)| run.head.usage += *used);
    let results = answer.messages.iter().rev().take_while(|message| matches!(message, Message::Tool(_)));
    let first = answer.messages.len() - results.count();
    run.stage = match first == answer.messages.len() {
        true => Stage::Answered(answer.finish_reason.clone()),
        false => Stage::Returned { positions: (first..answer.messages.len()).collect(), is_judged: true },
    };
    run
}

impl Run {
    /// Returns the arguments of a call as the model wrote them, if they were changed.
    pub(crate) fn original_arguments(&self, call_id: &str) -> Option<&str> {
        match self.finished_call(call_id) {
            Some(execution) => Some(execution.original_arguments()),
            None => self.record(call_id)?.history.original_arguments.as_deref(),
        }
    }

    /// Returns the arguments of a call as they are now.
    pub(crate) fn current_arguments(&self, call_id: &str) -> Option<&str> {
        let finished = self.finished_call(call_id).map(ToolExecution::call);
        let call = finished.or_else(|| self.calls().iter().find(|call| call.id == call_id))?;
        Some(&call.arguments)
    }

    /// Returns the decisions about a call, in their order.
    pub(crate) fn decisions_about(&self, call_id: &str) -> impl Iterator<Item = &DecisionRecord> {
        let open = self.record(call_id).map(|record| &record.history.decisions);
        let finished = self.finished_call(call_id).map(ToolExecution::decisions);
        finished.or(open.map(Vec::as_slice)).unwrap_or_default().iter()
    }

    /// Returns the notes of a call that waits for what is in them.
    pub(crate) fn notes_of_waiting(&self, call_id: &str) -> Option<&CallNotes> {
        // Once it has a reply, it goes on.
        let waits = self.waits().iter().any(|wait| wait.path == call_id);
        self.record(call_id)?.notes().filter(|_| waits)
    }

    /// Returns why the run has stopped, or stops once its calls are undone.
    pub(crate) fn why_it_stops(&self) -> Option<&StopReason> {
        match &self.stage {
            Stage::Ended(reason) => Some(reason),
            Stage::Undoing(undoing) => Some(&undoing.reason),
            _ => None,
        }
    }

    /// Returns how the reply ended that is the answer.
    pub(crate) fn finish_reason(&self) -> Option<&FinishReason> {
        match &self.stage {
            Stage::Answered(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns what the replies of the model to this run alone have used.
    pub(crate) fn used_by_replies(&self) -> Usage {
        self.head.usage
    }

    /// Returns `true` if the message at this position among the new ones rejected an answer.
    pub(crate) fn is_rejection(&self, position: usize) -> bool {
        self.head.settings.rejections.contains(&position)
    }

    /// Notes what the model is offered.
    pub(crate) fn note_offered(&mut self, tools: &ToolDefinitions) {
        let digests = tools.digests();
        if digests.0 != *self.offered() {
            self.append(Fact::Offered(digests.0.clone()));
        }
    }

    /// Returns the digests of the definitions that the model was last offered, by their names.
    pub(crate) fn offered(&self) -> &BTreeMap<String, String> {
        self.history.offered()
    }

    /// Returns `true` if the model was offered this tool, or has called it.
    pub(crate) fn has_seen_tool(&self, name: &str) -> bool {
        let mut replies = self.new_messages().iter().filter_map(Message::as_assistant);
        self.offered().contains_key(name)
            || replies.any(|reply| reply.tool_calls.iter().any(|call| call.name == name))
    }

    /// Returns the form of answer that the question demanded.
    pub(crate) fn response_format(&self) -> Option<&ResponseFormat> {
        self.head.settings.response_format.as_ref()
    }

    /// Returns the number of calls of the open turn.
    pub(crate) fn open_turn(&self) -> usize {
        match &self.stage {
            Stage::Calling(turn) => turn.calls.len(),
            _ => 0,
        }
    }
}
