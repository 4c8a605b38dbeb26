//! What providers of tools ask the user before a turn, or before open calls of their tools go on.
//!
//! A provider that asks is asked for its tools again once all its questions have a reply, and finds the replies in its notes. They stay for the
//! whole run, because a user who has declined must not be asked again in each turn. If the agent no longer has the provider, its driver
//! decides that the question is over, because nobody would read the answer.

use super::handoff::Handoff;
use super::resolve::{reply_to_question, wait_id, waits_of_notes, wrong_decision};
use super::resolve_error::ResolveError;
use super::state::{ProviderState, Run, Stage};
use super::wait::{Decision, Wait, WaitReason};
use crate::model::ToolCall;
use crate::tool::{CallDecision, CallNotes, DecisionRecord, ProviderNotes, QuestionReply, Timestamp, WaitId};

/// What stands for the id of a call, because the question of a provider belongs to none.
const NO_CALL: &str = "";

impl Run {
    /// Returns `true` if the run waits for the answer to a question of a provider of tools, before its next turn or its open calls.
    pub(crate) fn awaits_tools(&self) -> bool {
        let mut providers = self.head.providers.iter();
        let needs_tools = matches!(self.stage, Stage::Asking | Stage::Calling(_));
        needs_tools && providers.any(|one| one.asked.notes.is_waiting())
    }

    /// Returns the agent that the run was handed off to, whose providers are asked now.
    fn agent_of_providers(&self) -> Option<&str> {
        self.head.handoffs.last().map(Handoff::agent)
    }

    /// Returns what the providers of the agent have asked.
    pub(crate) fn provider_notes(&self) -> impl Iterator<Item = &ProviderNotes> {
        let asked = self.head.providers.iter().map(|one| &one.asked);
        asked.filter(|asked| asked.is_of_agent(self.agent_of_providers()))
    }

    /// Waits for what a provider of tools asks before the next turn. The number is its position among the providers of this name.
    pub(crate) fn await_tools(&mut self, provider: &str, number: usize, notes: CallNotes) {
        self.touch();
        let agent = self.agent_of_providers();
        let asked = ProviderNotes::new(agent, provider, number, notes);
        match self.head.providers.iter_mut().find(|one| one.asked.key() == asked.key()) {
            Some(one) => one.asked = asked,
            None => self.head.providers.push(ProviderState { asked, decisions: Vec::new() }),
        }
    }

    /// Returns what providers of tools wait for.
    pub(super) fn waits_for_tools(&self) -> Vec<Wait> {
        if !self.awaits_tools() {
            return Vec::new();
        }
        self.head.providers.iter().flat_map(|one| self.waits_of_provider(&one.asked)).collect()
    }

    fn waits_of_provider(&self, asked: &ProviderNotes) -> Vec<Wait> {
        let call = ToolCall::new(NO_CALL, &*asked.name, "");
        waits_of_notes(&(&self.id, asked.key()), &call, &asked.notes, self.now)
    }

    /// Returns the ids of what providers wait for that are not there. A provider has a name and a number among those of this name.
    pub(crate) fn waits_of_missing_providers(&self, is_there: impl Fn(&str, usize) -> bool) -> Vec<WaitId> {
        let providers = self.head.providers.iter().filter(|_| self.awaits_tools());
        let missing = providers.filter(|one| !is_there(&one.asked.name, one.asked.number));
        missing.flat_map(|one| self.waits_of_provider(&one.asked)).map(|wait| wait.id).collect()
    }

    /// Records a decision about a question of a provider, if the run waits for this one.
    pub(super) fn resolve_for_tools(
        &mut self,
        wait: &WaitId,
        decision: &Decision,
    ) -> Option<Result<(), ResolveError>> {
        let is_it = |found: &Wait| found.id == *wait;
        let find = |one: &ProviderState| self.waits_of_provider(&one.asked).into_iter().find(is_it);
        let mut providers = self.head.providers.iter().enumerate().filter(|_| self.awaits_tools());
        let (position, found) = providers.find_map(|(position, one)| Some((position, find(one)?)))?;
        drop(providers);
        Some(self.answer_provider(position, found, decision.clone()))
    }

    fn answer_provider(
        &mut self,
        position: usize,
        wait: Wait,
        decision: Decision,
    ) -> Result<(), ResolveError> {
        if decision.is_deferred() {
            return Ok(());
        }
        wait.check(&decision)?;
        let (record, Decision { verdict, mut author, .. }) = (decision.record(&wait.id), decision);
        let (WaitReason::Answer(question), Some(reply)) =
            (&wait.reason, reply_to_question(verdict, &mut author))
        else {
            return Err(wrong_decision(&wait.reason));
        };
        self.head.providers[position].asked.notes.reply(question, reply);
        if let Some(mut record) = record {
            record.at = record.at.or_else(|| self.known_time());
            self.decide_for_provider(position, record);
        }
        Ok(())
    }

    fn decide_for_provider(&mut self, position: usize, record: DecisionRecord) {
        let provider = &mut self.head.providers[position];
        provider.decisions.push(record.clone());
        let decision =
            CallDecision { call_id: NO_CALL.to_owned(), tool: provider.asked.name.clone(), record };
        self.note_decision(decision);
    }

    /// Lets questions of providers expire. Returns `true` if one has.
    pub(super) fn tick_providers(&mut self, now: Timestamp) -> bool {
        if !self.awaits_tools() {
            return false;
        }
        let mut has_expired = false;
        for position in 0..self.head.providers.len() {
            let asked = &mut self.head.providers[position].asked;
            for question in asked.notes.tick(now) {
                let asked = &mut self.head.providers[position].asked;
                asked.notes.reply(&question, QuestionReply::Expired);
                let id = wait_id(&(&self.id, asked.key()), NO_CALL, &question);
                self.decide_for_provider(position, DecisionRecord::expired(id, now));
                has_expired = true;
            }
        }
        // The time since when they wait is stored.
        self.touch();
        has_expired
    }

    /// Returns the decisions about questions of providers.
    pub(super) fn decisions_for_tools(&self) -> impl Iterator<Item = &DecisionRecord> {
        self.head.providers.iter().flat_map(|one| &one.decisions)
    }
}
