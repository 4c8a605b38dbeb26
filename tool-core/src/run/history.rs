//! What has happened in a run, folded from its log, which alone changes it.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::amendment::Amendment;
use super::cache_use::CacheUse;
use super::compaction::CompactionRecord;
use super::saved_execution;
use super::shared_vec::SharedVec;
use super::user_message::UserMessage;
use crate::model::{Message, ToolCall, ToolDefinition, ToolMessage};
use crate::tool::{ToolExecution, VerdictRecord};

/// The conversation of a run and the records of its calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct History {
    messages: SharedVec<Message>,
    /// The number of messages before the ones that the run added. The first one added is the user's.
    given: usize,
    #[serde(with = "saved_execution", default, skip_serializing_if = "<[_]>::is_empty")]
    executions: SharedVec<ToolExecution>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    undo_executions: Vec<ToolExecution>,
    /// What layers decided about the question and the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    verdicts: Vec<VerdictRecord>,
    /// The definitions of the tools that the application gave the run, once it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_tools: Option<Vec<ToolDefinition>>,
    /// The names of the tools that the model found by search or called, in that order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    found_tools: Vec<String>,
    /// The digests of the definitions that the model was last offered, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    offered: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    compactions: Vec<CompactionRecord>,
    /// What each request has read from the provider's cache.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cache: Vec<CacheUse>,
    /// Who sent messages of users, by their positions among the messages that the run added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    senders: Vec<(usize, String)>,
}

impl History {
    /// Creates the history of a run that is given a conversation, whose last message is the question.
    pub(super) fn new(messages: Vec<Message>) -> Self {
        Self { given: messages.len().saturating_sub(1), messages: messages.into(), ..Self::default() }
    }

    /// Creates the history of a run that has ended and added these messages, which begin with its question.
    pub(super) fn of_ended(messages: Vec<Message>, executions: Vec<ToolExecution>) -> Self {
        Self { messages: messages.into(), executions: executions.into(), ..Self::default() }
    }

    /// Adds the calls and results of the messages to the executions of a restored history. Returns `None` if one is missing, or if a
    /// call was recorded twice, which would be undone twice.
    pub(super) fn restore_executions(&mut self) -> Option<()> {
        let mut calls: HashMap<&str, (Option<&ToolCall>, Option<&ToolMessage>)> = HashMap::new();
        for message in &*self.messages {
            match message {
                Message::Assistant(message) => {
                    for call in &message.tool_calls {
                        calls.entry(&call.id).or_default().0 = Some(call);
                    }
                }
                Message::Tool(result) => calls.entry(&result.call_id).or_default().1 = Some(result),
                _ => {}
            }
        }
        for execution in self.executions.make_mut() {
            let (Some(call), Some(result)) = calls.remove(&*execution.call.id)? else { return None };
            execution.call = call.clone();
            execution.outcome = match &execution.outcome {
                Ok(output) => Ok(output.clone().with_content(result.content.clone())),
                Err(error) => Err(error.with_text(result.content.text().into_owned())),
            };
        }
        Some(())
    }

    /// Returns the messages and the executions as they are now.
    pub(super) fn share(&self) -> (SharedVec<Message>, SharedVec<ToolExecution>) {
        (self.messages.clone(), self.executions.clone())
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the number of messages before those that the run added.
    pub(super) fn given(&self) -> usize {
        self.given
    }

    pub(super) fn executions(&self) -> &[ToolExecution] {
        &self.executions
    }

    pub(super) fn undo_executions(&self) -> &[ToolExecution] {
        &self.undo_executions
    }

    pub(super) fn verdicts(&self) -> &[VerdictRecord] {
        &self.verdicts
    }

    pub(super) fn given_tools(&self) -> Option<&[ToolDefinition]> {
        self.given_tools.as_deref()
    }

    pub(super) fn compactions(&self) -> &[CompactionRecord] {
        &self.compactions
    }

    /// Returns the ids of the calls whose outputs compactions have hidden.
    pub(super) fn hidden_outputs(&self) -> HashSet<&str> {
        let before = self.compactions.iter().map(|one| one.hidden).max().unwrap_or_default();
        let cleared: HashSet<_> = self.compactions.iter().flat_map(|one| &one.cleared).collect();
        let messages = self.messages.iter().enumerate();
        let hidden = messages.filter(|(position, _)| *position < before || cleared.contains(position));
        let outputs = hidden.filter_map(|(_, message)| match message {
            Message::Tool(result) => Some(&*result.call_id),
            _ => None,
        });
        outputs.collect()
    }

    pub(super) fn add_compaction(&mut self, compaction: CompactionRecord) {
        self.compactions.push(compaction);
    }

    pub(super) fn cache(&self) -> &[CacheUse] {
        &self.cache
    }

    pub(super) fn add_cache_use(&mut self, cache: CacheUse) {
        self.cache.push(cache);
    }

    pub(super) fn found_tools(&self) -> &[String] {
        &self.found_tools
    }

    pub(super) fn offered(&self) -> &BTreeMap<String, String> {
        &self.offered
    }

    pub(super) fn set_offered(&mut self, tools: BTreeMap<String, String>) {
        self.offered = tools;
    }

    /// Returns the calls of the last message, which is the reply of the open turn.
    pub(super) fn last_calls(&self) -> &[ToolCall] {
        match self.messages.last() {
            Some(Message::Assistant(message)) => &message.tool_calls,
            _ => &[],
        }
    }

    /// Returns what had happened when the history had so many messages, without what can be undone and what layers decided.
    pub(super) fn beginning(&self, position: usize) -> Self {
        let messages = self.messages[..position].to_vec();
        let results = messages[self.given..].iter().filter_map(|message| match message {
            Message::Tool(result) => Some(&result.call_id),
            _ => None,
        });
        let results: HashSet<_> = results.collect();
        let executed = self.executions.iter().filter(|execution| results.contains(&execution.call.id));
        let mut executions: Vec<_> = executed.cloned().collect();
        executions.iter_mut().for_each(|execution| execution.history.undo = None);
        // A later one hides what the model had not read at that time.
        let is_known =
            |one: &&CompactionRecord| one.is_before(position) && one.executions <= executions.len();
        let compactions = self.compactions.iter().filter(is_known).cloned().collect();
        Self {
            messages: messages.into(),
            given: self.given,
            executions: executions.into(),
            given_tools: self.given_tools.clone(),
            found_tools: self.found_tools.clone(),
            compactions,
            senders: self.senders.iter().filter(|(at, _)| self.given + at < position).cloned().collect(),
            ..Self::default()
        }
    }

    /// Moves the messages that the run added, the executions and the use of the cache out of the history.
    pub(super) fn into_added(self) -> (Vec<Message>, Vec<ToolExecution>, Vec<CacheUse>) {
        (self.messages.into_vec().split_off(self.given), self.executions.into_vec(), self.cache)
    }

    /// Adds the results of the open turn, in the order of its calls.
    pub(super) fn close(
        &mut self,
        results: Vec<Message>,
        executions: impl IntoIterator<Item = ToolExecution>,
    ) {
        self.messages.extend(results);
        self.executions.extend(executions);
    }

    /// Inserts messages after the instructions and before the question.
    pub(super) fn remember(&mut self, messages: Vec<Message>) {
        let is_system = |message: &&Message| matches!(message, Message::System(_));
        let place = self.messages.iter().take_while(is_system).count().min(self.given);
        self.given += messages.len();
        self.messages.make_mut().splice(place..place, messages);
    }

    pub(super) fn add_message(&mut self, message: Message) {
        self.messages.make_mut().push(message);
    }

    pub(super) fn add_user_message(&mut self, UserMessage { content, by }: UserMessage) {
        let position = self.messages.len() - self.given;
        self.senders.extend(by.map(|by| (position, by)));
        self.messages.make_mut().push(Message::User(content));
    }

    pub(super) fn senders(&self) -> &[(usize, String)] {
        &self.senders
    }

    pub(super) fn add_undo_execution(&mut self, execution: ToolExecution) {
        self.undo_executions.push(execution);
    }

    pub(super) fn add_verdict(&mut self, verdict: VerdictRecord) {
        self.verdicts.push(verdict);
    }

    pub(super) fn set_given_tools(&mut self, tools: Vec<ToolDefinition>) {
        self.given_tools = Some(tools);
    }

    pub(super) fn add_found_tools(&mut self, names: Vec<String>) {
        self.found_tools.extend(names);
    }

    pub(super) fn amend(&mut self, amendment: Amendment) {
        match amendment {
            Amendment::Question { message, question, .. } => {
                if let Some(message) = self.messages.make_mut().get_mut(message) {
                    *message = Message::User(question);
                }
            }
            Amendment::Arguments { call, arguments, is_rewritten } => {
                let Some(Message::Assistant(message)) = self.messages.make_mut().last_mut() else { return };
                let Some(call) = message.tool_calls.get_mut(call) else { return };
                call.arguments = arguments;
                if is_rewritten {
                    // What the provider sent contains the others.
                    (call.provider_data, message.provider_data) = (None, None);
                }
            }
            Amendment::Text(text) => {
                if let Some(Message::Assistant(message)) = self.messages.make_mut().last_mut() {
                    message.replace_text(&text);
                }
            }
            Amendment::Result(execution) => {
                let id = &execution.call.id;
                let is_its = |message: &&mut Message| matches!(message, Message::Tool(result) if result.call_id == *id);
                if let Some(message) = self.messages.make_mut().iter_mut().rev().find(is_its) {
                    *message = Message::from(&*execution);
                }
                if let Some(known) =
                    self.executions.make_mut().iter_mut().rev().find(|known| known.call.id == *id)
                {
                    *known = *execution;
                }
            }
            Amendment::Instructions { had_some, instructions } => {
                let before = self.messages.len();
                if had_some && matches!(self.messages.first(), Some(Message::System(_))) {
                    self.messages.make_mut().remove(0);
                    self.given = self.given.saturating_sub(1);
                }
                if let Some(instructions) = instructions {
                    self.messages.make_mut().insert(0, Message::System(instructions));
                    self.given += 1;
                }
                let moved = |position: &mut usize| {
                    *position = (*position + self.messages.len()).saturating_sub(before);
                };
                for compaction in &mut self.compactions {
                    compaction.cleared.iter_mut().chain(&mut compaction.emptied).for_each(moved);
                    if compaction.unreasoned > 0 {
                        moved(&mut compaction.unreasoned);
                    }
                    if compaction.summary.is_some() {
                        moved(&mut compaction.hidden);
                    }
                    if let Some(by_provider) = &mut compaction.by_provider {
                        moved(&mut by_provider.note.0);
                    }
                }
            }
        }
    }
}
