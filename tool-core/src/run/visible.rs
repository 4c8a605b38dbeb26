//! What the model sees of a run that was compacted. The log keeps all of it.
//!
//! A compaction is an entry of the log and hides messages from requests only, because the run must be undone, shown and resumed with all of
//! them.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;
use std::time::Duration;

use super::cache_use::CacheUse;
use super::compaction::{Carried, CompactionRecord, ContextSize, MAX_USELESS, ProviderSummary};
use super::state::{Fact, Run};
use crate::content::{Content, abbreviate};
use crate::model::{ChatModel, Message, Usage, estimate_tokens};
use crate::tool::Timestamp;

/// The characters that remain of an output that is hidden.
const KEPT_CHARS: usize = 500;

/// What the compactions of a run hide together.
pub(crate) struct Hidden<'a> {
    /// The messages before this position are hidden, for which there is a summary.
    pub(crate) before: usize,
    /// The first question of the run, and the last one among the hidden messages.
    questions: [usize; 2],
    pub(crate) summary: Option<&'a str>,
    /// The summary in the form of its provider, which also takes the place of the question.
    by_provider: Option<&'a ProviderSummary>,
    cleared: HashSet<usize>,
    emptied: HashSet<usize>,
}

impl<'a> Hidden<'a> {
    /// Returns `true` if nothing of the message is visible.
    pub(crate) fn hides(&self, position: usize, message: &Message) -> bool {
        position < self.before
            && (self.by_provider.is_some() || !self.questions.contains(&position))
            && !matches!(message, Message::System(_))
    }

    /// Returns `true` if nothing of the output at a position is visible.
    pub(crate) fn empties(&self, position: usize) -> bool {
        self.emptied.contains(&position)
    }

    /// Returns `true` if not everything of the message is visible.
    pub(crate) fn changes(&self, position: usize, message: &Message) -> bool {
        self.hides(position, message) || self.cleared.contains(&position)
    }
}

impl Run {
    /// Returns what was hidden from the model, in the order of time.
    #[must_use]
    pub fn compactions(&self) -> &[CompactionRecord] {
        self.history.compactions()
    }

    /// Returns `true` if three compactions in a row have failed or hidden too little: the run is compacted only when the provider refuses a
    /// request as too long, or by [`Agent::compact`](crate::Agent::compact). A warning in the trace says so, too.
    #[must_use]
    pub fn has_useless_compactions(&self) -> bool {
        self.context_size().useless >= MAX_USELESS
    }

    /// Returns the last compaction whose summary has a text, or one of a provider that the model reads: it reads the messages rather than
    /// nothing of them. Without a model, only texts are read.
    fn summary_for(&self, model: Option<&dyn ChatModel>) -> Option<&CompactionRecord> {
        let is_read = |one: &ProviderSummary| one.has_text() || is_read_by(one, model);
        let mut summaries = self.compactions().iter().rev().filter(|one| one.summary.is_some());
        summaries.find(|one| one.by_provider.as_ref().is_none_or(is_read))
    }

    /// Returns the summary in use in the form of its provider, if the model reads it. Another one reads the text.
    pub(crate) fn summary_read_by(&self, model: &dyn ChatModel) -> Option<&ProviderSummary> {
        let by_provider = self.summary_for(Some(model))?.by_provider.as_ref();
        by_provider.filter(|one| is_read_by(one, Some(model)))
    }

    pub(crate) fn record_compaction(&mut self, mut compaction: CompactionRecord) {
        compaction.executions = self.tool_executions().len();
        self.append(Fact::Compacted(compaction.into()));
    }

    /// Hides what earlier runs of the conversation have hidden: its first messages, if there is a summary of this text, and outputs.
    pub(crate) fn carry_compaction(&mut self, messages: usize, text: String, carried: Carried) {
        let given = self.history.given();
        let stored = self.stored_conversation_len().unwrap_or_default();
        let is_system = |message: &&Message| matches!(message, Message::System(_));
        let leading = self.messages().iter().take_while(is_system).count();
        // Messages of the system stay in a window, which moves the others, and so does a repair of the conversation.
        if messages > stored || self.messages()[leading..given].iter().any(|message| is_system(&message)) {
            return;
        }
        // A window can begin behind a position. Then nothing else is hidden.
        let own = |position: usize| given.saturating_sub(stored.saturating_sub(position)).max(leading);
        let is_result = |at: usize| matches!(self.messages().get(at), Some(Message::Tool(_)));
        let outputs = |positions: Vec<usize>| -> Vec<usize> {
            let in_window = positions.into_iter().filter(|position| stored - given.min(stored) <= *position);
            in_window.map(own).filter(|at| *at < given && is_result(*at)).collect()
        };
        let Carried { mut by_provider, cleared, emptied, unreasoned } = carried;
        let hidden = own(messages);
        if let Some(one) = &mut by_provider {
            let at = own(one.note.0);
            one.note.0 = if is_result(at) { hidden } else { at.max(hidden) };
        }
        let mut record = CompactionRecord {
            cleared: outputs(cleared),
            emptied: outputs(emptied),
            unreasoned: if unreasoned == 0 { 0 } else { own(unreasoned) },
            carried: Some(messages),
            ..Default::default()
        };
        if !text.is_empty() && !is_result(hidden) {
            (record.hidden, record.summary, record.by_provider) = (hidden, Some(text), by_provider);
        }
        if record.summary.is_some() || !record.cleared.is_empty() || record.unreasoned > 0 {
            self.record_compaction(record);
        }
    }

    /// Returns what the next run of the conversation hides, once this one is part of it, unless that is what is stored with it: the number
    /// of messages that the summary stands for, its text, and the rest. Positions are those of the conversation.
    pub(crate) fn compaction_of_conversation(&self) -> Option<(usize, &str, Carried)> {
        let all = self.compactions();
        if all.iter().all(|one| one.carried.is_some()) {
            return None;
        }
        let (stored, given) = (self.stored_conversation_len()?, self.history.given());
        let stored_position = |position: usize| (stored + position).checked_sub(given);
        let last = all.iter().rev().find(|one| one.summary.is_some());
        let hidden = last.map_or(0, |one| one.hidden);
        let messages = match last {
            Some(last) => last.carried.or_else(|| stored_position(hidden))?,
            None => 0,
        };
        let outputs = |of: fn(&CompactionRecord) -> &Vec<usize>| -> Vec<usize> {
            let visible: BTreeSet<_> = all.iter().flat_map(of).copied().filter(|at| *at >= hidden).collect();
            visible.into_iter().filter_map(stored_position).collect()
        };
        let mut by_provider = last.and_then(|one| one.by_provider.clone());
        if let Some(one) = &mut by_provider {
            one.note.0 = stored_position(one.note.0)?;
        }
        let unreasoned = Some(self.unreasoned()).filter(|position| *position > 0).and_then(stored_position);
        let carried = Carried {
            by_provider,
            cleared: outputs(|one| &one.cleared),
            emptied: outputs(|one| &one.emptied),
            unreasoned: unreasoned.unwrap_or_default(),
        };
        Some((messages, last.and_then(CompactionRecord::summary).unwrap_or_default(), carried))
    }

    /// Returns the position before which replies are shown without reasoning.
    pub(crate) fn unreasoned(&self) -> usize {
        self.compactions().iter().map(|one| one.unreasoned).max().unwrap_or_default()
    }

    pub(crate) fn context_size(&self) -> &ContextSize {
        static NOTHING: LazyLock<ContextSize> = LazyLock::new(ContextSize::default);
        self.head.context.as_deref().unwrap_or(&NOTHING)
    }

    pub(crate) fn change_context_size(&mut self, change: impl FnOnce(&mut ContextSize)) {
        self.touch();
        change(self.head.context.get_or_insert_default());
    }

    /// Returns the time since the last request, if the run knows when that was.
    pub(crate) fn time_since_request(&self) -> Option<Duration> {
        let asked = self.context_size().asked;
        (asked != Timestamp::default()).then(|| self.now.since(asked))
    }

    /// Returns what each request has read from the provider's cache, of an agent that
    /// [tracks](crate::agent::AgentBuilder::track_cache) it. Runs [inside](Self::inner_runs) have their own.
    #[must_use]
    pub fn cache(&self) -> &[CacheUse] {
        self.history.cache()
    }

    /// Records a response: the tokens of its request, and what these have read from the cache, if that is tracked.
    pub(crate) fn record_request(&mut self, usage: Usage, is_tracked: bool, repeats_earlier: bool) {
        let asked = self.now;
        let mut expected_tokens = 0;
        self.change_context_size(|size| {
            expected_tokens = std::mem::replace(&mut size.sent, usage.input_tokens);
            size.asked = asked;
        });
        if let Some(cached_tokens) = usage.cached_tokens.filter(|_| is_tracked) {
            let expected_tokens = if repeats_earlier { expected_tokens } else { 0 };
            let turn = self.turns().saturating_add(1);
            self.append(Fact::Cached(CacheUse { turn, cached_tokens, expected_tokens }));
        }
    }

    /// Adds what summaries have used.
    pub(crate) fn add_compaction_usage(&mut self, usage: Usage) {
        self.touch();
        self.add_layer_usage(vec![("compaction".to_owned(), usage)]);
    }

    /// Returns what the compactions hide from a model, or from a reader of texts, as if the summary were sent as a text.
    pub(crate) fn hidden_for(&self, model: Option<&dyn ChatModel>) -> Hidden<'_> {
        let (all, last) = (self.compactions(), self.summary_for(model));
        let before = last.map_or(0, |one| one.hidden);
        Hidden {
            before,
            questions: self.questions_before(before),
            summary: last.and_then(|one| one.summary.as_deref()),
            by_provider: None,
            cleared: all.iter().flat_map(|one| one.cleared.iter().copied()).collect(),
            emptied: all.iter().flat_map(|one| one.emptied.iter().copied()).collect(),
        }
    }

    /// Returns what the compactions hide in requests to a model, where the summary has the form of its provider, if the model reads that.
    pub(crate) fn hidden_as_sent(&self, model: &dyn ChatModel) -> Hidden<'_> {
        Hidden { by_provider: self.summary_read_by(model), ..self.hidden_for(Some(model)) }
    }

    /// Returns the positions of the first question of the run, and of the last message of the user before a position.
    pub(crate) fn questions_before(&self, position: usize) -> [usize; 2] {
        let first = self.history.given();
        let asked = self.messages()[..position].iter().rposition(|one| matches!(one, Message::User(_)));
        [first, asked.unwrap_or(first)]
    }

    /// Estimates the tokens that a model sees of the messages before a position, without instructions and the question.
    pub(crate) fn visible_tokens(&self, before: usize, model: &dyn ChatModel) -> usize {
        let hidden = self.hidden_for(Some(model));
        let tokens = |from: usize| -> usize {
            let shown =
                self.visible(from, &hidden).filter(|message| !matches!(**message, Message::System(_)));
            shown.map(|message| estimate_tokens(&message)).sum()
        };
        let question = self.messages()[..before].get(self.history.given()).map_or(0, estimate_tokens);
        tokens(0).saturating_sub(tokens(before)).saturating_sub(question)
    }

    /// Returns the messages from a position on, as the model sees them.
    pub(crate) fn visible<'a>(
        &'a self,
        from: usize,
        hidden: &'a Hidden<'a>,
    ) -> impl Iterator<Item = Cow<'a, Message>> {
        // Behind the last message, it was shown before.
        let is_new = |note: &&(usize, Content)| from == 0 || from < note.0;
        let note = hidden.by_provider.map(|one| &one.note).filter(is_new);
        let note = move |at: usize| {
            let note = note.filter(|(position, _)| *position == at);
            note.map(|(_, content)| Cow::Owned(Message::User(content.clone())))
        };
        let messages = self.messages().iter().enumerate().skip(from);
        let shown = messages.flat_map(move |(position, message)| {
            // Behind the question, if that is among the hidden messages.
            let summary = hidden.summary.filter(|_| position == hidden.before);
            let summary = summary.map(|text| match hidden.by_provider {
                Some(by_provider) => Cow::Owned(Message::Assistant(by_provider.message.clone())),
                None => Cow::Owned(Message::user(text)),
            });
            let shown = match message {
                _ if hidden.hides(position, message) => None,
                Message::Tool(result) if hidden.cleared.contains(&position) => {
                    let mut result = result.clone();
                    let kept = if hidden.empties(position) { 0 } else { KEPT_CHARS };
                    result.content = cleared(&result.call_id, &result.content.text(), kept).into();
                    Some(Cow::Owned(Message::Tool(result)))
                }
                message => Some(Cow::Borrowed(message)),
            };
            summary.into_iter().chain(note(position)).chain(shown)
        });
        shown.chain(note(self.messages().len()))
    }
}

fn is_read_by(summary: &ProviderSummary, model: Option<&dyn ChatModel>) -> bool {
    model.is_some_and(|model| model.reads_summary(&summary.message))
}

/// Returns what the model reads behind an output that is stored whole.
pub(crate) fn reading_hint(call_id: &str) -> String {
    format!("\n[`read_output` with the id `{call_id}` reads and searches all of it.]")
}

/// Returns what remains of an output.
fn cleared(id: &str, text: &str, kept: usize) -> String {
    let chars = text.chars().count();
    let beginning = if kept == 0 { String::new() } else { format!("{}\n", abbreviate(text, kept)) };
    format!(
        "{beginning}[The output had {chars} characters and was removed to save room. `read_output` with the id `{id}` returns it.]"
    )
}
