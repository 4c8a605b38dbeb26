//! What a run notes for the readers of its log, beside what has changed in it.

use super::event::Event;
use super::state::{CompletedReply, Fact, LayerSight, Request, Run};
use super::summary::RunStatus;
use crate::model::{ChatResponse, Cost, Message};

impl Run {
    /// Returns `true` if what happens is recorded for the next save.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recording.is_some()
    }

    /// Returns what layers see of outcomes, as readers of the log know it.
    pub(crate) fn shows_for(&self) -> LayerSight {
        self.head.shown.sees
    }

    /// Notes what layers see of outcomes from now on: readers are not shown what has still to be judged.
    pub(crate) fn show_for(&mut self, sees: LayerSight) {
        self.append(Fact::Layered(sees));
    }

    /// Notes that the model is asked for the reply of a turn, with so many messages.
    pub(crate) fn note_asked(&mut self, turn: u32, messages: usize) {
        self.append(Fact::Asked(Request { turn, messages }));
    }

    /// Returns `true` if readers of the log know that the reply of this turn was asked for.
    #[must_use]
    pub(crate) fn has_asked(&self, turn: u32) -> bool {
        self.head.shown.request.turn == turn
    }

    /// Notes that layers have judged what users have said.
    pub(crate) fn note_heard(&mut self) {
        self.append(Fact::Heard);
    }

    /// Returns what users have said and no event has shown, and who said it.
    pub(crate) fn unshown_questions(&self) -> impl Iterator<Item = (String, Option<String>)> {
        (self.head.shown.added..self.new_messages().len()).filter_map(|at| self.question_at(at))
    }

    /// Returns the message of a user at this position among the messages that the run added, and who sent it.
    pub(super) fn question_at(&self, at: usize) -> Option<(String, Option<String>)> {
        let Message::User(question) = self.new_messages().get(at)? else { return None };
        let is_rejection = self.head.settings.rejections.contains(&at);
        let by = || self.history.senders().iter().find(|(of, _)| *of == at).map(|(_, by)| by.clone());
        (!is_rejection).then(|| (question.text().into_owned(), by()))
    }

    /// Notes that the last reply is complete: its calls have their ids, and layers have judged them.
    pub(crate) fn note_completed(&mut self, response: &ChatResponse, positions: &[usize]) {
        if !self.is_recorded() {
            return;
        }
        let reply = CompletedReply { response: response.clone(), positions: positions.to_vec() };
        self.append(Fact::Completed(reply.into()));
    }

    /// Notes that layers have judged the answer that tools returned.
    pub(crate) fn show_returned(&mut self) {
        self.append(Fact::AnswerJudged);
    }

    /// Notes what a request to a model has cost.
    pub(crate) fn note_charged(&mut self, cost: Cost) {
        self.append(Fact::Charged(cost));
    }

    /// Returns the event with which the stored run rests: it waits, has failed or has ended. A run that is driven, or was interrupted, does not.
    pub(super) fn resting_event(&self) -> Option<Event> {
        match self.status() {
            RunStatus::Waiting => Some(Event::Waiting(self.waits())),
            RunStatus::Failed | RunStatus::NotUndone => self.head.stored.failure.clone().map(Event::Failed),
            RunStatus::Finished => Some(match Self::clone(self).finish() {
                Ok(mut answer) => {
                    answer.set_agent_name(self.agent_name());
                    Event::Done(answer)
                }
                Err(error) => Event::Failed(error.to_string()),
            }),
            _ => None,
        }
    }
}
