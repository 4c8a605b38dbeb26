//! The events of a run, derived from its log.
//!
//! This is the one place that knows which entries make which events. A reader begins with the first entry, because an entry names what
//! earlier ones have: a call by its id, a run inside by the id of its run.
//!
//! What layers have still to judge is held back until they have, as the driver does: outcomes of callers, and outputs that can become the
//! answer.

use std::collections::{BTreeMap, HashSet};

use serde::de::Error as _;

use super::amendment::Amendment;
use super::event::Event;
use super::event_record::EventRecord;
use super::id::RunId;
use super::state::{CompletedReply, Fact, InnerRun, LayerSight, LogEntry, Request, Run, Stage};
use crate::model::{AssistantMessage, ChatResponse, Message};
use crate::tool::{Judgement, OutcomeOrigin, ToolExecution, VerdictKind};

/// Derives the events of a run from the entries of its log.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogReader {
    runs: BTreeMap<RunId, Followed>,
    /// The position after the last entry.
    next: u64,
}

/// A run whose entries are read.
#[derive(Clone, Debug, Default)]
struct Followed {
    /// The run around it with the name of the tool and the id of the call that asked it.
    asked_by: Option<(RunId, String, String)>,
    sees: LayerSight,
    /// What users have said and no event has shown.
    questions: Vec<ShownQuestion>,
    /// The number of messages of users so far.
    asked: usize,
    /// The number of replies so far.
    turns: u32,
    reply: AssistantMessage,
    /// The state of the turn, until the reply is complete.
    incomplete: Option<Incomplete>,
    /// A layer has answered in place of the model.
    is_answered: bool,
    /// A driver says when a reply is complete: before, layers have not judged its calls.
    is_driven: bool,
    /// The ids of the calls of the turn whose outputs can be the answer.
    direct: HashSet<String>,
    /// Outcomes that layers have still to judge.
    unjudged: Vec<ToolExecution>,
}

#[derive(Clone, Debug)]
struct ShownQuestion {
    number: usize,
    text: String,
    by: Option<String>,
}

/// What is known of the calls of a reply before it is complete.
#[derive(Clone, Debug, Default)]
struct Incomplete {
    outcomes: Vec<ToolExecution>,
    is_closed: bool,
}

impl LogReader {
    /// Returns the position of the next entry to read.
    pub(crate) fn next_position(&self) -> u64 {
        self.next
    }

    /// Reads the next entry, as a store has it. Returns its events, with its position.
    ///
    /// # Errors
    ///
    /// Fails if the entry cannot be read.
    pub(crate) fn read(&mut self, position: u64, entry: &str) -> serde_json::Result<Vec<EventRecord>> {
        let mut events = Vec::new();
        if position == 0 {
            *self = Self::default();
            self.begin(&serde_json::from_str(entry)?, None, &mut events);
        } else {
            let (run, LogEntry { fact, .. }): (RunId, LogEntry) = serde_json::from_str(entry)?;
            if !self.runs.contains_key(&run) {
                return Err(serde_json::Error::custom("an entry is of a run that has not begun"));
            }
            self.add(&run, fact, &mut events);
        }
        self.next = position + 1;
        Ok(events.into_iter().map(|event| event.at(position)).collect())
    }

    /// Returns the events of what was held back and is not judged any more, because the run has ended.
    pub(crate) fn end(&mut self) -> Vec<EventRecord> {
        let (mut events, position) = (Vec::new(), self.next.saturating_sub(1));
        let ids: Vec<_> = self.runs.keys().cloned().collect();
        for run in &ids {
            self.complete(run, None, &mut events);
            self.release(run, &mut events);
        }
        events.into_iter().map(|event| event.at(position)).collect()
    }

    /// Begins to follow a run, and adds the events of what it has done so far.
    pub(crate) fn begin(
        &mut self,
        run: &Run,
        asked_by: Option<(RunId, String, String)>,
        out: &mut Vec<Event>,
    ) {
        let shown = &run.head.shown;
        let replies = run.new_messages().iter().filter(|message| message.as_assistant().is_some()).count();
        let followed = Followed {
            asked_by,
            sees: shown.sees,
            turns: run.turns().saturating_sub(u32::try_from(replies).unwrap_or(u32::MAX)),
            ..Followed::default()
        };
        self.runs.insert(run.id().clone(), followed);
        for (at, message) in run.new_messages().iter().enumerate() {
            match message {
                Message::User(_) => {
                    run.question_at(at).into_iter().for_each(|(text, by)| self.say(run.id(), text, by));
                    if at < shown.added {
                        self.show_questions(run.id(), out);
                    }
                }
                Message::Assistant(reply) => self.begin_turn(run, at, reply, out),
                _ => {}
            }
        }
        let undone = run.undo_executions().iter().cloned();
        undone.for_each(|execution| self.emit(run.id(), Event::CallFinished(execution), out));
        if run.is_asking() && shown.request.turn == run.turn() {
            self.add(run.id(), Fact::Asked(shown.request), out);
        }
    }

    /// Adds the events of a turn of a run that is stored as a whole.
    fn begin_turn(&mut self, run: &Run, at: usize, reply: &AssistantMessage, out: &mut Vec<Event>) {
        let id = run.id();
        let turn = self.runs.get(id).map_or(0, |followed| followed.turns) + 1;
        let messages = run.messages().len() - run.new_messages().len() + at;
        self.add(id, Fact::Asked(Request { turn, messages }), out);
        self.add(id, Fact::Replied(reply.clone()), out);
        let response = ChatResponse::new(reply.clone()).without_message();
        let positions = (0..reply.tool_calls.len()).collect();
        let is_last = run.new_messages()[at + 1..].iter().all(|message| message.as_assistant().is_none());
        let is_open = matches!(run.stage, Stage::Calling(_)) && is_last;
        if is_last && let Some(followed) = self.runs.get_mut(id) {
            followed.direct.extend(run.unjudged_answers());
            followed.direct.extend(run.head.shown.held_back.iter().cloned());
        }
        if !is_open || run.engine_view().unjudged_calls().next().is_none() {
            self.add(id, Fact::Completed(CompletedReply { response, positions }.into()), out);
        }
        for call in &reply.tool_calls {
            for inner in run.inner_runs().filter(|inner| inner.call_id() == call.id) {
                self.begin_inner(id, inner, out);
            }
            let earlier = run.tool_executions().iter().find(|execution| execution.call().id == call.id);
            let current = || run.finished_call(&call.id).filter(|_| is_open);
            if let Some(execution) = earlier.or_else(current) {
                self.add(id, Fact::Finished(execution.clone().into()), out);
            }
        }
        let handed_off = run.handoffs().iter().filter(|handoff| handoff.turn() == turn && handoff.is_entered);
        for handoff in handed_off {
            self.add(id, Fact::HandedOff(handoff.agent().to_owned()), out);
        }
    }

    fn begin_inner(&mut self, around: &RunId, inner: &InnerRun, out: &mut Vec<Event>) {
        let asked_by = (around.clone(), inner.agent().to_owned(), inner.call_id().to_owned());
        self.begin(inner.run(), Some(asked_by), out);
    }

    fn say(&mut self, run: &RunId, text: String, by: Option<String>) {
        let Some(followed) = self.runs.get_mut(run) else { return };
        followed.questions.push(ShownQuestion { number: followed.asked, text, by });
        followed.asked += 1;
    }

    /// Adds the events of a fact.
    fn add(&mut self, run: &RunId, fact: Fact, out: &mut Vec<Event>) {
        match fact {
            Fact::Said(message) => self.say(run, message.content.text().into_owned(), message.by),
            Fact::Began(inner) => self.begin_inner(run, &inner, out),
            Fact::MayBeAnswer(call) => {
                self.runs
                    .get_mut(run)
                    .into_iter()
                    .for_each(|followed| followed.direct.extend([call.clone()]));
            }
            Fact::Asked(request) => {
                self.runs.get_mut(run).into_iter().for_each(|followed| followed.is_driven = true);
                self.complete(run, None, out);
                self.release(run, out);
                let (turn, messages) = (request.turn, request.messages);
                self.emit(run, Event::TurnStarted { turn, messages }, out);
            }
            Fact::Replied(message) => {
                self.complete(run, None, out);
                self.show_questions(run, out);
                let Some(followed) = self.runs.get_mut(run) else { return };
                followed.turns += 1;
                followed.reply = message;
                followed.incomplete = (!followed.is_answered).then(Incomplete::default);
                followed.direct.clear();
            }
            Fact::Heard => {
                self.complete(run, None, out);
                self.release(run, out);
                self.show_questions(run, out);
            }
            Fact::Completed(reply) => self.complete(run, Some(*reply), out),
            Fact::Started { id, undo, undone_run } => {
                self.complete(run, None, out);
                let undone = undone_run.and_then(|undone| self.runs.get_mut(&undone)?.asked_by.as_mut());
                // Its agent is asked again, by this call.
                undone.into_iter().for_each(|(_, _, call_id)| call_id.clone_from(&id));
                let of_reply =
                    || self.runs.get(run)?.reply.tool_calls.iter().find(|call| call.id == id).cloned();
                if let Some(call) = undo.or_else(of_reply) {
                    self.emit(run, Event::CallStarted(call), out);
                }
            }
            Fact::Retried { failed: Some(failed), .. } => {
                let is_judged = self.runs.get(run).is_some_and(|followed| followed.sees.outputs);
                self.emit(run, Event::call_retried(&failed, is_judged), out);
            }
            Fact::Finished(execution) => self.finish(run, *execution, out),
            Fact::Undone(execution) => self.emit(run, Event::CallFinished(*execution), out),
            Fact::Closed(_) => {
                if let Some(incomplete) =
                    self.runs.get_mut(run).and_then(|followed| followed.incomplete.as_mut())
                {
                    incomplete.is_closed = true;
                }
            }
            Fact::Decided(decision) => self.emit(run, Event::CallDecided(decision), out),
            Fact::HandedOff(agent) => {
                self.complete(run, None, out);
                self.release(run, out);
                self.emit(run, Event::HandedOff { agent }, out);
            }
            Fact::Charged(cost) => self.emit(run, Event::Charged(cost), out),
            Fact::Compacted(record) => {
                let (outputs, messages) = (record.cleared.len(), record.hidden);
                self.emit(run, Event::Compacted { outputs, messages }, out);
            }
            Fact::Layered(sees) => {
                self.runs.get_mut(run).into_iter().for_each(|followed| followed.sees = sees)
            }
            Fact::AnswerJudged => self.release(run, out),
            Fact::Amended(amendment) => self.amend(run, amendment, out),
            Fact::Judged(verdict) => {
                let is_answered = verdict.kind == VerdictKind::Answered;
                self.runs.get_mut(run).into_iter().for_each(|followed| followed.is_answered |= is_answered);
            }
            Fact::Rested
            | Fact::Remembered(_)
            | Fact::Retried { failed: None, .. }
            | Fact::Rejected(_)
            | Fact::Opened(_)
            | Fact::Found(_)
            | Fact::Offered(_)
            | Fact::Cached(_) => {}
        }
    }

    fn amend(&mut self, run: &RunId, amendment: Amendment, out: &mut Vec<Event>) {
        let Some(followed) = self.runs.get_mut(run) else { return };
        match amendment {
            Amendment::Question { number: Some(number), question, .. } => {
                let shown = followed.questions.iter_mut().find(|question| question.number == number);
                shown.into_iter().for_each(|shown| shown.text = question.text().into_owned());
            }
            // Of an earlier version: it is not known which one.
            Amendment::Question { number: None, .. } => followed.questions.clear(),
            Amendment::Arguments { call, arguments, is_rewritten } => {
                let Some(call) = followed.reply.tool_calls.get_mut(call) else { return };
                call.arguments = arguments;
                if is_rewritten {
                    (call.provider_data, followed.reply.provider_data) = (None, None);
                }
            }
            Amendment::Text(text) => followed.reply.replace_text(&text),
            Amendment::Result(execution) => {
                let id = &execution.call.id;
                let outcomes = followed.incomplete.iter_mut().flat_map(|incomplete| &mut incomplete.outcomes);
                let is_its = |known: &&mut ToolExecution| known.call.id == *id;
                if let Some(known) = outcomes.chain(&mut followed.unjudged).find(is_its) {
                    *known = *execution;
                }
                self.release_judged(run, out);
            }
            Amendment::Instructions { .. } => {}
        }
    }

    fn show_questions(&mut self, run: &RunId, out: &mut Vec<Event>) {
        let questions = self.runs.get_mut(run).map(|followed| std::mem::take(&mut followed.questions));
        for ShownQuestion { text, by, .. } in questions.unwrap_or_default() {
            self.emit(run, Event::Question { text, by }, out);
        }
    }

    /// Adds the events of the last reply, unless they were added.
    fn complete(&mut self, run: &RunId, completed: Option<CompletedReply>, out: &mut Vec<Event>) {
        let Some(followed) = self.runs.get_mut(run) else { return };
        let Some(Incomplete { mut outcomes, is_closed }) = followed.incomplete.take() else { return };
        let calls = followed.reply.tool_calls.clone();
        if completed.is_none() && followed.is_driven {
            outcomes.into_iter().for_each(|execution| self.finish(run, execution, out));
            return;
        }
        // By hand, or by an earlier version.
        let completed = completed.unwrap_or_else(|| CompletedReply {
            response: ChatResponse::new(followed.reply.clone()).without_message(),
            positions: (0..calls.len()).collect(),
        });
        let response = ChatResponse { message: followed.reply.clone(), ..completed.response };
        let turn = followed.turns;
        let place = |id: &String| calls.iter().position(|call| call.id == *id);
        outcomes.sort_by_key(|execution| place(&execution.call.id));
        for (call, index) in calls.iter().zip(completed.positions).filter(|_| !is_closed) {
            if !outcomes.iter().any(|execution| execution.call.id == call.id) {
                self.emit(run, Event::CallReady { index, call: call.clone() }, out);
            }
        }
        self.emit(run, Event::TurnFinished { turn, response }, out);
        outcomes.into_iter().for_each(|execution| self.finish(run, execution, out));
    }

    /// Adds the event of an outcome, unless layers have still to judge it.
    fn finish(&mut self, run: &RunId, execution: ToolExecution, out: &mut Vec<Event>) {
        let is_inside = |followed: &Followed| {
            followed
                .asked_by
                .as_ref()
                .is_some_and(|(around, _, call)| around == run && *call == execution.call.id)
        };
        let inside: Vec<_> =
            self.runs.iter().filter(|(_, one)| is_inside(one)).map(|(id, _)| id.clone()).collect();
        // The run of an agent has ended with its call.
        for id in inside {
            self.complete(&id, None, out);
            self.release_judged(&id, out);
            self.runs.get_mut(&id).into_iter().for_each(|inside| inside.reply = AssistantMessage::default());
        }
        let Some(followed) = self.runs.get_mut(run) else { return };
        if let Some(incomplete) = &mut followed.incomplete {
            incomplete.outcomes.push(execution);
        } else if followed.is_unjudged(&execution) {
            followed.unjudged.push(execution);
        } else {
            self.emit(run, Event::CallFinished(execution), out);
        }
    }

    /// Adds the events of outcomes that layers have judged meanwhile.
    fn release_judged(&mut self, run: &RunId, out: &mut Vec<Event>) {
        let Some(followed) = self.runs.get_mut(run) else { return };
        let held = std::mem::take(&mut followed.unjudged);
        let (unjudged, judged) = held.into_iter().partition(|execution| followed.is_unjudged(execution));
        followed.unjudged = unjudged;
        let judged: Vec<ToolExecution> = judged;
        judged.into_iter().for_each(|execution| self.emit(run, Event::CallFinished(execution), out));
    }

    /// Adds the events of outputs that can no longer become the answer, or were judged as such.
    fn release(&mut self, run: &RunId, out: &mut Vec<Event>) {
        self.runs.get_mut(run).into_iter().for_each(|followed| followed.direct.clear());
        self.release_judged(run, out);
    }

    fn emit(&self, run: &RunId, event: Event, out: &mut Vec<Event>) {
        let (mut event, mut at) = (event, run);
        while let Some((around, agent, call_id)) = self.runs.get(at).and_then(|one| one.asked_by.as_ref()) {
            event = event.inside(agent, call_id);
            at = around;
        }
        out.push(event);
    }
}

/// The events of a run in progress whose world stores no log: they are derived from what the run records.
///
/// ```
/// use tool_core::model::{AssistantMessage, ChatResponse};
/// use tool_core::run::Run;
/// use tool_core::store::RunEvents;
/// use tool_core::{Event, Message};
///
/// let mut run = Run::new([Message::user("Hello")]);
/// let mut events = RunEvents::of(&mut run);
/// run.record_response(ChatResponse::new(AssistantMessage::text("Hi")))?;
/// run.cancel();
/// let events = events.take(&mut run);
/// assert!(matches!(&events[0], Event::Question { text, .. } if text == "Hello"));
/// # Ok::<_, tool_core::signatures::StepError>(())
/// ```
#[derive(Debug)]
pub struct RunEvents {
    reader: LogReader,
    /// What the run had done before.
    first: Vec<Event>,
}

impl RunEvents {
    /// Lets the run record what happens from now on. Stores are not used beside it.
    pub fn of(run: &mut Run) -> Self {
        let (mut reader, mut first) = (LogReader::default(), Vec::new());
        reader.begin(run, None, &mut first);
        run.record_changes(0);
        Self { reader, first }
    }

    /// Returns the events of what has happened since the last call. They contain what layers have replaced, like those of a driver.
    pub fn take(&mut self, run: &mut Run) -> Vec<Event> {
        let mut entries: Vec<(RunId, LogEntry)> = Vec::new();
        run.for_each_run(&mut |run| {
            let Some(recording) = &mut run.recording else { return };
            recording.closed_calls.clear();
            entries.extend(recording.entries.drain(..).map(|entry| (run.id.clone(), entry)));
        });
        entries.sort_by_key(|(_, entry)| entry.number);
        let mut events = std::mem::take(&mut self.first);
        entries.into_iter().for_each(|(run, entry)| self.reader.add(&run, entry.fact, &mut events));
        events
    }
}

impl Followed {
    /// Returns `true` if layers have still to judge an outcome.
    fn is_unjudged(&self, execution: &ToolExecution) -> bool {
        let awaits_layers = match execution.history.judgement {
            Some(judgement) => judgement == Judgement::Pending,
            None => execution.origin() == OutcomeOrigin::External,
        };
        self.sees.outputs && awaits_layers || self.sees.answers && self.direct.contains(&execution.call.id)
    }
}
