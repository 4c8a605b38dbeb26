//! Compacts a run.
//!
//! A run is compacted while a step is prepared, and saved before the request, in whatever way it is driven.
//!
//! A provider that summarizes by itself comes first, because it alone can keep reasoning that is bound to hidden messages valid. For that, its
//! summary stands before all other messages, also in place of the question, which is repeated at the end. Every step that fails leads to the
//! next one.

use std::fmt::Write;

use futures_util::FutureExt;

use super::compactor::{Compactor, Reason};
use super::job::Job;
use super::summarizing::{MAX_NOTED_CHARS, MAX_OUTPUT_CHARS, NoSummary};
use crate::agent::compaction::{COMPACT, Compaction, Measure, Plan, READ_OUTPUT, Rates, ToolFacts};
use crate::agent::interruption::run_until_interrupted;
use crate::agent::lock::lock;
use crate::agent::trace::warn_of_compaction;
use crate::agent::{Event, RunDriver};
use crate::content::Part;
use crate::memory::group_start;
use crate::model::{ChatResponse, FinishReason, Message, ModelInfo};
use crate::run::{CompactionRecord, MAX_USELESS, ProviderSummary, RunErrorKind, StepError};

/// Why a run is not compacted.
const BOUND: &str = "the provider accepts the model's reasoning only after the messages that it had read; compact the run after the next \
    message of the user";

impl RunDriver {
    /// Returns a job that compacts the run before the next request, if its agent or the caller wants that.
    pub(super) fn compact_if_needed(&mut self) -> Option<Job<Option<Event>>> {
        if let Some(options) = self.compacting.ordered.take() {
            return Some(self.compact(Reason::Order(options)));
        }
        let agent = &self.performer.tools.agent.0;
        let is_wanted = agent.compaction.is_some() && agent.sends_earlier_turns;
        is_wanted.then(|| self.compact(Reason::Request))
    }

    /// Compacts the run for a caller, and stores it. What precedes a request happens before: handoffs, and what layers judge.
    pub(in crate::agent) async fn compact_for_caller(
        &mut self,
        options: &Compaction,
    ) -> Result<(), RunErrorKind> {
        if !self.run.is_asking() || !self.performer.tools.agent.0.sends_earlier_turns {
            return Ok(());
        }
        let failure = self.run.failure();
        self.compacting.ordered = Some(options.clone());
        self.prepare().await?;
        self.change_run().set_failure(failure);
        self.store_run().await
    }

    /// Records how long the last request was.
    pub(super) fn record_context_size(&mut self, response: &ChatResponse) {
        let agent = &self.performer.tools.agent.0;
        let is_tracked = agent.tracks_cache;
        if agent.compaction.is_none() && !is_tracked {
            return;
        }
        let hideable = std::mem::take(&mut self.compacting.hideable);
        let usage = response.credible_usage();
        let messages = self.run.messages().len() + 1;
        let repeats_earlier = self.offer.messages.is_none();
        self.run.record_request(usage.unwrap_or_default(), is_tracked, repeats_earlier);
        self.run.change_context_size(|size| {
            size.reread = size.reread.saturating_add(hideable);
            (size.tokens, size.messages) = match usage {
                Some(usage) => (usage.input_tokens.saturating_add(usage.output_tokens), messages),
                None => (0, 0),
            };
        });
    }
}

impl Compactor {
    /// Compacts the run for a reason. Returns the event to emit once that is saved.
    pub(super) async fn compact_for(&mut self, reason: Reason) -> Result<Option<Event>, RunErrorKind> {
        let agent = self.agent.clone();
        match (reason, &agent.0.compaction) {
            (Reason::Order(options), _) => {
                let compacted = self.compact_now(&options, true).await?;
                let is_bound = self.is_asking() && self.has_bound_reasoning();
                match compacted {
                    None if is_bound && plan_now(&options, self.measure(&options)).is_some() => {
                        Err(RunErrorKind::Step(StepError(BOUND)))
                    }
                    compacted => Ok(compacted),
                }
            }
            (Reason::TooLong, Some(options)) => self.compact_now(options, false).await,
            (Reason::Request, Some(options)) => self.compact_before_request(options).await,
            (_, None) => Ok(None),
        }
    }

    /// Compacts the run before the next request, if that pays or has to be.
    async fn compact_before_request(&mut self, options: &Compaction) -> Result<Option<Event>, RunErrorKind> {
        let measure = self.measure(options);
        self.hideable = measure.hideable;
        let (is_bound, by_provider) = (self.has_bound_reasoning(), self.is_summarized_by_provider());
        let size = self.run.context_size();
        let has_failed = self.run.has_useless_compactions() || size.useless_at == self.run.messages().len();
        if has_failed || is_bound && !by_provider {
            return Ok(None);
        }
        if options.offers_tool && self.has_order() {
            return self.compact_now(options, true).await;
        }
        let rates = Rates::from_prices(self.agent.0.prices.as_ref(), self.model_name_in_use());
        let window = match measure.hideable {
            0 => None,
            _ => self.context_window().await,
        };
        if !self.is_asking() {
            return Ok(None);
        }
        let is_cold = self.run.time_since_request().is_some_and(|time| time > options.cache_lifetime);
        let reread = self.run.context_size().reread;
        let plan = |measure: Measure| measure.plan(options, reread, rates, is_cold, window, false);
        self.compact_by_plan(options, measure, plan, true).await
    }

    /// Returns `true` if the model has ordered a compaction in the last turn that has not happened yet.
    fn has_order(&self) -> bool {
        let before = self.run.compactions().last().map_or(0, |last| last.executions);
        let new = self.run.tool_executions().get(before..).unwrap_or_default();
        let results =
            self.run.messages().iter().rev().take_while(|one| !matches!(one, Message::Assistant(_)));
        let mut orders = results.filter_map(|one| match one {
            Message::Tool(result) if result.name == COMPACT => Some(&result.call_id),
            _ => None,
        });
        orders.any(|id| new.iter().any(|one| one.call().id == *id && one.was_executed()))
    }

    /// Compacts the run as far as possible. Without a summary of the provider or the run's own model, if these cannot read the conversation.
    async fn compact_now(
        &mut self,
        options: &Compaction,
        can_read: bool,
    ) -> Result<Option<Event>, RunErrorKind> {
        let measure = self.measure(options);
        self.compact_by_plan(options, measure, |measure| plan_now(options, measure), can_read).await
    }

    async fn compact_by_plan(
        &mut self,
        options: &Compaction,
        measure: Measure,
        plan: impl Fn(Measure) -> Option<Plan>,
        can_read: bool,
    ) -> Result<Option<Event>, RunErrorKind> {
        let by_provider = can_read && self.is_summarized_by_provider();
        let is_cached = self.agent.model().compacts_from_cache();
        if by_provider && let Some(plan) = plan(measure.clone().of_summary(is_cached)) {
            let compacted = self.compact_by_provider(options, plan).boxed().await?;
            if compacted.is_some() || !self.is_asking() {
                return Ok(compacted);
            }
        }
        // What the provider refuses as too long cannot be continued otherwise.
        match plan(measure).filter(|_| !can_read || !self.has_bound_reasoning()) {
            Some(plan) => self.compact(options, plan, can_read).boxed().await,
            None => Ok(None),
        }
    }

    /// Lets the provider summarize the run. Returns nothing if it cannot, or fails.
    async fn compact_by_provider(
        &mut self,
        options: &Compaction,
        plan: Plan,
    ) -> Result<Option<Event>, RunErrorKind> {
        let Some(hidden) = plan.hide.and_then(|before| self.end_for_provider(before)) else {
            return Ok(None);
        };
        let reply = self.ask_for_summary(options, Some(hidden)).await;
        let model = self.agent.model();
        // A summary in a form that the model does not read would move what its reasoning is bound to.
        let is_compaction = |reply: &ChatResponse| reply.finish_reason == FinishReason::Compaction;
        let is_summary = |reply: &ChatResponse| is_compaction(reply) && model.reads_summary(&reply.message);
        // Of several models, another one may read it.
        let has_content = |reply: &ChatResponse| {
            !reply.message.text.is_empty() || is_compaction(reply) && model.passes_requests_on()
        };
        let is_other = |reply: &ChatResponse| !is_summary(reply) && has_content(reply);
        let mut is_refused = match &reply {
            Ok(reply) => is_other(reply),
            Err(NoSummary::Refused) => true,
            Err(NoSummary::Failed) => false,
        };
        let mut reply = reply.ok().filter(is_summary);
        if let Some(text) = reply.as_ref().map(|reply| reply.message.text.clone())
            && !text.is_empty()
        {
            // The provider accepts its summary only as it wrote it. What changes one, changes the next one, too.
            is_refused = self.judge_summary(text.clone()).await?.as_ref() != Some(&text);
            reply = reply.filter(|_| !is_refused);
        }
        if !self.is_asking() {
            return Ok(None);
        }
        let mut note =
            format!("The beginning of this conversation was replaced by its summary{}.", self.searching());
        let message = reply.filter(|reply| match reply.message.text.as_str() {
            "" => {
                // It has what the user said, and earlier notes, and the reasoning behind it is not bound to that.
                let earlier = self.run.hidden_for(Some(self.agent.model())).before;
                note += &self.facts(earlier..hidden, MAX_NOTED_CHARS);
                self.is_shorter_by_usage(reply.usage.unwrap_or_default(), &note, hidden)
            }
            text => self.is_shorter(text, hidden),
        });
        let message = message.map(|reply| reply.message);
        self.restart_measuring(message.is_none() || plan.is_small);
        // That an API takes no prompt of the author is no surprise.
        let is_expected = is_refused && options.prompt.is_some();
        self.record_provider_attempt(message.is_some(), is_refused, is_expected);
        let Some(message) = message else { return Ok(None) };
        let (summary, note) = if message.text.is_empty() {
            (self.without_summary(hidden, MAX_NOTED_CHARS), (hidden, note.into()))
        } else {
            let [question, last] = self.run.questions_before(hidden);
            let mut said = vec![(question, "question"), (last, "last message of the user in it")];
            said.dedup_by_key(|(position, _)| *position);
            let mut parts = Vec::new();
            for (position, what) in said {
                let message = self.run.messages()[..hidden].get(position);
                let Some(Message::User(content)) = message else { continue };
                let _ = write!(note, "\n\nThe {what} was:\n\n{}", content.text());
                // Images and files cannot be read again.
                let is_other = |part: &&Part| matches!(part, Part::Image(_) | Part::File(_));
                parts.extend(content.parts().iter().filter(is_other).cloned());
            }
            let facts = self.facts(0..hidden, MAX_OUTPUT_CHARS);
            let note = parts.into_iter().chain([(note + &facts).into()]).collect();
            (self.summarized(&message.text, &facts), (self.run.messages().len(), note))
        };
        let (summary, by_provider) = (Some(summary), Some(ProviderSummary { message, note }));
        Ok(self.record_compaction(CompactionRecord { hidden, summary, by_provider, ..Default::default() }))
    }

    /// Returns the end of what the provider can summarize so that reasoning behind it stays valid: before a message of another role, and not
    /// before the note of the summary in use, which would be missing among the messages that stay. There must be no instructions among the
    /// messages, because these would stand before the summary.
    fn end_for_provider(&self, mut end: usize) -> Option<usize> {
        let messages = self.run.messages();
        let leading = messages.iter().take_while(|message| matches!(message, Message::System(_))).count();
        if messages[leading..].iter().any(|message| matches!(message, Message::System(_))) {
            return None;
        }
        let model = self.agent.model();
        let first = self.run.hidden_for(Some(model)).before.max(leading);
        let note = self.run.summary_read_by(model).map_or(0, |one| one.note.0);
        let is_reply =
            |at: usize| messages.get(at).is_some_and(|message| matches!(message, Message::Assistant(_)));
        while end > first && is_reply(end) == is_reply(end - 1) {
            end = group_start(&messages[..end]);
        }
        (end > first && end >= note).then_some(end)
    }

    /// Returns `true` if the provider summarizes by itself, and has not refused to in this run.
    fn is_summarized_by_provider(&self) -> bool {
        let (model, size) = (self.agent.model(), self.run.context_size());
        model.supports_compaction()
            && size.refused_by.as_deref() != Some(model.model_name().unwrap_or_default())
    }

    /// Records whether the provider has summarized. It is not asked again in this run if it has refused to, or failed several times in a row.
    fn record_provider_attempt(&mut self, has_summarized: bool, is_refused: bool, is_expected: bool) {
        let name = self.agent.model().model_name().unwrap_or_default().to_owned();
        let earlier = self.run.context_size().provider_failures;
        let failures = if has_summarized { 0 } else { earlier.saturating_add(1) };
        let is_given_up = is_refused || failures >= MAX_USELESS;
        self.change(move |run| {
            run.change_context_size(|size| {
                size.provider_failures = if is_given_up { 0 } else { failures };
                if is_given_up {
                    size.refused_by = Some(name.clone());
                }
            });
        });
        if is_given_up && !is_expected {
            self.warn_of_compaction("the provider does not summarize this run, and is not asked again");
        }
    }

    fn warn_of_compaction(&self, why: &str) {
        let model = self.agent.model().model_name().unwrap_or_default();
        warn_of_compaction(self.run.id().as_str(), model, why);
    }

    fn measure(&self, options: &Compaction) -> Measure {
        Measure::new(options, &self.run, self.agent.model(), |name| {
            let policy = self.policy(name);
            let is_pure = policy.is_some_and(|policy| policy.pure) || name == READ_OUTPUT;
            ToolFacts { is_pure, keeps_output: policy.is_some_and(|policy| policy.keep_output) }
        })
    }

    /// Returns the size of the model's context window, if it is known. The provider is asked once, or by each driver while it fails.
    async fn context_window(&mut self) -> Option<u64> {
        let agent = self.agent.clone();
        let (model, infos) = (agent.model(), &agent.0.model_infos);
        let name = &*self.model_name_in_use()?.to_owned();
        // What several models allow is not what the first of them does, whose name they have.
        let is_several = model.passes_requests_on();
        let key = if is_several { format!("{name} and others") } else { name.to_owned() };
        let info = lock(infos).get(&key).cloned();
        let window_of = |info: ModelInfo| {
            let stated = info.context_window;
            let of_prices =
                agent.0.prices.as_ref().map(|prices| prices.model_info(name, info).context_window);
            let known = of_prices.flatten().or(stated);
            known.into_iter().chain(stated.filter(|_| is_several)).min()
        };
        // A model reports only what it knows of itself.
        let is_known = info.is_some() || self.has_no_window || model.model_name() != Some(name);
        let window = window_of(info.unwrap_or_default());
        if is_known || window.is_some() && !is_several {
            return window;
        }
        match run_until_interrupted(model.model_info(), self.cancellation.as_ref(), self.time_left()).await {
            Ok(Ok(asked)) => window_of(lock(infos).entry(key).or_insert(asked.unwrap_or_default()).clone()),
            // Another run may be luckier.
            Ok(Err(_)) => {
                self.has_no_window = true;
                window
            }
            Err(interruption) => {
                self.interrupt(interruption);
                None
            }
        }
    }

    /// Returns `true` if a reply since the last user message contains reasoning that the provider accepts only after the original messages.
    fn has_bound_reasoning(&self) -> bool {
        let of_turn = self.run.messages().iter().rev().take_while(|one| !matches!(one, Message::User(_)));
        let model = self.agent.model();
        of_turn.filter_map(Message::as_assistant).any(|reply| model.binds_reasoning(reply))
    }

    async fn compact(
        &mut self,
        options: &Compaction,
        plan: Plan,
        can_read: bool,
    ) -> Result<Option<Event>, RunErrorKind> {
        let Plan { clear, empty, unreasoned, hide, is_small } = plan;
        let (mut summary, mut by_provider) = (None, None);
        match hide {
            None => {}
            Some(before) if options.model.is_none() && !can_read => {
                // A summary that only the provider reads stays, because the text has nothing of it.
                let earlier = self.run.summary_read_by(self.agent.model());
                let earlier = earlier.filter(|one| !one.has_text()).map(|one| one.message.clone());
                let chars = if earlier.is_some() { MAX_NOTED_CHARS } else { MAX_OUTPUT_CHARS };
                let text = self.without_summary(before, chars);
                by_provider =
                    earlier.map(|message| ProviderSummary { message, note: (before, text.clone().into()) });
                summary = Some(text);
            }
            Some(before) => summary = self.summary(options, before).await?,
        }
        if !self.is_asking() {
            return Ok(None);
        }
        let has_failed = hide.is_some() && summary.is_none();
        let record = match hide.filter(|_| !has_failed) {
            Some(hidden) => CompactionRecord { hidden, summary, by_provider, ..CompactionRecord::default() },
            None => {
                CompactionRecord { cleared: clear, emptied: empty, unreasoned, ..CompactionRecord::default() }
            }
        };
        self.restart_measuring(is_small || has_failed);
        Ok(self.record_compaction(record))
    }

    /// Measures anew what is read again, after an attempt to compact the run. Several of them before one request count as one.
    fn restart_measuring(&mut self, is_useless: bool) {
        let (messages, size) = (self.run.messages().len(), self.run.context_size());
        let is_another = is_useless && size.useless_at != messages;
        let useless = size.useless.saturating_add(1);
        let is_given_up = is_another && useless == MAX_USELESS;
        self.change(move |run| {
            run.change_context_size(|size| {
                size.reread = 0;
                match is_useless {
                    true if !is_another => {}
                    true => (size.useless, size.useless_at) = (useless, messages),
                    false => (size.useless, size.useless_at) = (0, 0),
                }
            });
        });
        if is_given_up {
            self.warn_of_compaction(
                "the last compactions failed or hid too little: the run is compacted only when a request is too long",
            );
        }
    }

    /// Records a compaction, unless it hides nothing, and returns its event.
    fn record_compaction(&mut self, record: CompactionRecord) -> Option<Event> {
        let (outputs, messages) = (record.cleared.len(), record.hidden);
        if outputs == 0 && messages == 0 && record.unreasoned == 0 {
            return None;
        }
        self.change(move |run| {
            run.record_compaction(record.clone());
            run.change_context_size(|size| {
                (size.tokens, size.messages, size.sent, size.asked) = Default::default();
            });
        });
        self.sent = Default::default();
        // Measured again before the next request that can be compacted.
        self.hideable = 0;
        Some(Event::Compacted { outputs, messages })
    }
}

/// Returns what is to be hidden of a run that is compacted as far as possible, unless there is nothing.
fn plan_now(options: &Compaction, measure: Measure) -> Option<Plan> {
    measure.plan(options, 0, Rates::from_prices(None, None), false, None, true)
}
