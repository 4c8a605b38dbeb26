//! What a world reads of a run, and by what it changes one.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use crate::model::{Message, ToolCall, ToolKind};
use crate::run::effect::RunPath;
use crate::run::state::{AgentProfile, CallRecord, EmittedCalls, LayerSight, Run, Stage};
use crate::run::step_error::StepError;
use crate::run::user_message::UserMessage;
use crate::tool::{CallDecision, ToolExecution};

/// By what a world, the program that performs what a run needs, drives the run and those inside: [`poll`](Self::poll) says what is to be done,
/// [`handle`](Self::handle) takes what has come of it, [`advance`](Self::advance) the time. Returned by [`Run::engine`].
#[derive(Debug)]
pub struct Engine<'r>(pub(super) &'r mut Run);

/// What a world reads of a run and of those inside, beside what [`Run`] says to everybody. Returned by [`Run::engine_view`].
#[derive(Clone, Copy, Debug)]
pub struct EngineView<'r>(pub(super) &'r Run);

impl Run {
    /// Returns by what a world drives the run and those inside.
    pub fn engine(&mut self) -> Engine<'_> {
        Engine(self)
    }

    /// Returns what a world reads of the run and of those inside.
    #[must_use]
    pub fn engine_view(&self) -> EngineView<'_> {
        EngineView(self)
    }
}

impl Deref for Engine<'_> {
    type Target = Run;

    fn deref(&self) -> &Run {
        self.0
    }
}

impl DerefMut for Engine<'_> {
    fn deref_mut(&mut self) -> &mut Run {
        self.0
    }
}

impl Deref for EngineView<'_> {
    type Target = Run;

    fn deref(&self) -> &Run {
        self.0
    }
}

impl Engine<'_> {
    /// Sets what the rules of the run need of its agent. Layers know all calls that have finished before the first time.
    pub fn set_profile(&mut self, profile: AgentProfile) {
        self.0.set_profile(profile);
    }

    /// Notes that the model of the run at this place is asked, for the readers of events, unless it was noted before.
    pub fn note_asked_at(&mut self, path: &RunPath) {
        self.0.mark_at(path, |run| {
            let (turn, messages) = (run.turn(), run.messages().len());
            if !run.has_asked(turn) {
                run.note_asked(turn, messages);
            }
        });
    }

    /// Adds a message that somebody has posted, whose size and number were checked when it was.
    ///
    /// # Errors
    ///
    /// Fails if the run has ended.
    pub fn add_posted_message(&mut self, message: UserMessage) -> Result<(), StepError> {
        self.0.add_posted_message(message)
    }

    /// Cancels the run, also if tools have returned an answer that layers have not judged.
    pub fn cancel_unjudged(&mut self) {
        self.0.cancel_unjudged();
    }
}

impl<'r> EngineView<'r> {
    /// Returns the runs of the tree that are open, the outermost first.
    #[must_use]
    pub fn open_places(self) -> Vec<RunPath> {
        self.0.open_places()
    }

    /// Returns the run to which these calls lead: each asks an agent, in whose run the next one is open.
    pub fn inner_run_at<'a>(self, calls: impl IntoIterator<Item = &'a str>) -> Option<&'r Run> {
        self.0.inner_run_at(calls)
    }

    /// Returns the names of the tools by which the agents on the way to a run are asked, as far as the way leads.
    #[must_use]
    pub fn names_to(self, path: &RunPath) -> Vec<String> {
        let calls = path.calls();
        let outer = |depth: usize| self.inner_run_at(calls[..depth].iter().copied());
        let names = calls.iter().enumerate().map_while(|(depth, call)| outer(depth)?.requested_call(call));
        names.map(|call| call.name.clone()).collect()
    }

    /// Returns what the rules of the run need of its agent, if a world has set it.
    #[must_use]
    pub fn profile(self) -> Option<&'r AgentProfile> {
        self.0.profile()
    }

    /// Returns what layers see of the outcomes of the last turn.
    #[must_use]
    pub fn sees(self) -> LayerSight {
        self.0.sees()
    }

    /// Returns what users have said that the model reads once the calls of the turn have ended.
    #[must_use]
    pub fn unread_messages(self) -> &'r [UserMessage] {
        match &self.0.stage {
            Stage::Calling(turn) => &turn.user_messages,
            _ => &[],
        }
    }

    /// Returns the number of messages of users that the run has taken, the question among them.
    #[must_use]
    pub fn messages_taken(self) -> usize {
        self.0.questions().count() + self.unread_messages().len()
    }

    /// Returns why the last attempt to drive the run failed, if it did.
    #[must_use]
    pub fn failure(self) -> Option<String> {
        self.0.failure()
    }

    /// Returns the finished calls that layers which record know.
    #[must_use]
    pub fn recorded(self) -> Option<&'r EmittedCalls> {
        self.0.recorded()
    }

    /// Returns the kind of a call's tool.
    #[must_use]
    pub fn kind_of(self, call_id: &str) -> Option<ToolKind> {
        self.record(call_id)?.kind
    }

    /// Returns `true` if a call must not be executed again.
    #[must_use]
    pub fn is_at_most_once(self, call_id: &str) -> bool {
        self.record(call_id).is_some_and(CallRecord::is_at_most_once)
    }

    /// Returns `true` if the run has no time left, and a step of it must not be recorded.
    #[must_use]
    pub fn is_time_up(self) -> bool {
        self.0.is_time_up()
    }

    /// Returns `true` if a call with this outcome is executed again.
    #[must_use]
    pub fn will_retry(self, execution: &ToolExecution) -> bool {
        self.0.will_retry(execution)
    }

    /// Returns the number of handoffs before the call that is undone next: the agent that executed a call undoes it.
    #[must_use]
    pub fn handoffs_before_undone(self) -> Option<usize> {
        self.0.handoffs_before_undone()
    }

    /// Returns the calls that could start once layers have judged them: none while their tools are not known.
    pub fn unjudged_calls(self) -> impl Iterator<Item = &'r ToolCall> {
        let run = self.0;
        let calls = run.calls_with_records().filter(|_| !run.awaits_tools());
        calls.filter(|(_, record)| record.is_ready() && record.awaits_layers()).map(|(call, _)| call)
    }

    /// Returns the decisions about calls of this run that no driver has reported yet.
    #[must_use]
    pub fn unreported_decisions(self) -> &'r [CallDecision] {
        &self.0.head.unreported
    }

    /// Returns `true` if a call of an `at_most_once` tool has begun, of this run or of one inside, and its outcome is not recorded. The model
    /// reads so when the run goes on.
    #[must_use]
    pub fn has_unknown_outcome(self) -> bool {
        let is_unknown = |record: &CallRecord| record.is_running() && record.forbidden_retry().is_some();
        self.stage.records().iter().any(is_unknown)
            || self.inner_runs().any(|inner| inner.run().engine_view().has_unknown_outcome())
    }

    /// Returns the digests of the definitions of the tools that the model was last offered, by the names of the tools. Empty if none was, or if the
    /// run is older than this is recorded.
    #[must_use]
    pub fn offered(self) -> &'r BTreeMap<String, String> {
        self.0.offered()
    }

    /// Returns `true` if tools have returned the answer, and layers have not judged it.
    #[must_use]
    pub fn has_unjudged_answer(self) -> bool {
        self.0.has_unjudged_answer()
    }

    /// Returns `true` if a budget of the question counts what the run spends.
    #[must_use]
    pub fn has_own_budget(self) -> bool {
        self.0.has_own_budget()
    }

    /// Returns the number of messages that the conversation had when the run read it.
    #[must_use]
    pub fn stored_conversation_len(self) -> Option<usize> {
        self.0.stored_conversation_len()
    }

    /// Returns the messages that the run adds to its conversation: none without an answer, or if a layer answered in place of the model.
    #[must_use]
    pub fn added_to_conversation(self) -> Option<&'r [Message]> {
        let run = self.0;
        let has_answer = matches!(run.stage, Stage::Answered(_) | Stage::Returned { .. });
        (has_answer && !run.has_blocked_question()).then(|| run.new_messages())
    }

    /// Returns a copy that records what changes in it.
    #[must_use = "it is a copy"]
    pub fn recording_copy(self) -> Run {
        self.0.recording_copy()
    }
}
