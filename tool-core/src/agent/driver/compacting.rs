//! Compacts a run.
//!
//! A run is compacted while a step is prepared, and saved before the request, in whatever way it is driven.
//!
//! A provider that summarizes by itself comes first, because it alone can keep reasoning that is bound to hidden messages valid. For that, its
//! summary stands before all other messages, also in place of the question, which is repeated at the end. Every step that fails leads to the
//! next one.

use std::fmt::Write;
use std::sync::Arc;

use futures_util::FutureExt;

use super::hold::Hold;
use super::model_request::{Passage, call_model};
use crate::agent::compaction::{COMPACT, Compaction, Measure, Plan, READ_OUTPUT, Rates, ToolFacts};
use crate::agent::emitter::EventEmitter;
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::agent::lock::lock;
use crate::agent::{Event, RunDriver};
use crate::content::{Part, abbreviate};
use crate::layer::{Phase, RunEnded};
use crate::memory::group_start;
use crate::model::{
    ChatModel, ChatRequest, ChatResponse, FinishReason, Message, ModelErrorKind, ToolCall, ToolChoice,
    ToolMessage, ToolPolicy, estimate_tokens,
};
use crate::run::{CompactionRecord, ProviderSummary, RunErrorKind, StepError};
use crate::tool::{ToolExecution, ToolOutput};
use crate::transcript::Transcript;

/// The number of compactions in a row that hide too little or fail, after which only a request that is too long causes another one.
const MAX_USELESS: u8 = 3;

/// The characters of arguments and outputs that remain of calls that must not be repeated.
const MAX_ARGUMENTS_CHARS: usize = 200;
const MAX_OUTPUT_CHARS: usize = 500;

/// The number of these calls that are named.
const MAX_FACTS: usize = 30;

/// The least limit of the output tokens of a summary, which the run's answers may stay far below: of the own model, and of a provider, which
/// counts thinking and fails if the summary is not whole.
const MIN_OUTPUT_TOKENS: u32 = 2_048;
const MIN_PROVIDER_TOKENS: u32 = 8_192;

/// What precedes the text of a summary.
const SUMMARIZED: &str = "The beginning of this conversation was removed to save room; `read_output` searches it. This is its summary:\n\n";

/// Why a run is not compacted.
const BOUND: &str = "the provider accepts the model's reasoning only after the messages that it had read; compact the run after the next \
    message of the user";

/// What takes the place of messages if there is no summary.
const NO_SUMMARY: &str = "Earlier messages of this conversation were removed, because it was too long. `read_output` searches them.";

/// What precedes the calls that a summary names.
const FACTS: &str = "\n\nThese calls were executed and must not be repeated:";

impl RunDriver {
    /// Compacts the run before the next request, if that pays or has to be. Returns the event to emit once that is saved.
    pub(super) async fn compact_if_needed(&mut self) -> Result<Option<Event>, RunErrorKind> {
        if let Some(options) = self.ordered_compaction.take() {
            let compacted = self.compact_now(&options, true).await?;
            let is_bound = self.run.is_asking() && self.has_bound_reasoning();
            return match compacted {
                None if is_bound && plan_now(&options, self.measure(&options)).is_some() => {
                    Err(RunErrorKind::Step(StepError(BOUND)))
                }
                compacted => Ok(compacted),
            };
        }
        let agent = self.tools.agent.clone();
        let Some(options) = agent.0.compaction.as_ref().filter(|_| agent.0.sends_earlier_turns) else {
            return Ok(None);
        };
        let measure = self.measure(options);
        self.hideable = measure.hideable;
        let model = agent.model();
        let (is_bound, by_provider) = (self.has_bound_reasoning(), self.is_summarized_by_provider());
        let size = self.run.context_size();
        let has_failed = size.useless >= MAX_USELESS || size.useless_at == self.run.messages().len();
        if has_failed || is_bound && !by_provider {
            return Ok(None);
        }
        if options.offers_tool && self.has_order() {
            return self.compact_now(options, true).await;
        }
        let rates = Rates::from_prices(agent.0.prices.as_ref(), model.model_name());
        let window = self.context_window(model.model_name());
        let is_cold = self.run.time_since_request().is_some_and(|time| time > options.cache_lifetime);
        let reread = self.run.context_size().reread;
        let plan = |measure: Measure| measure.plan(options, reread, rates, is_cold, window, false);
        if by_provider && let Some(plan) = plan(self.measure(options).of_summary()) {
            let compacted = self.compact_by_provider(options, plan).boxed().await?;
            if compacted.is_some() || !self.run.is_asking() {
                return Ok(compacted);
            }
        }
        match plan(measure).filter(|_| !is_bound) {
            Some(plan) => self.compact(options, plan, true).boxed().await,
            None => Ok(None),
        }
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

    /// Compacts a run whose request the provider has refused as too long. Returns the event to emit once that is saved.
    pub(super) async fn compact_too_long(&mut self) -> Result<Option<Event>, RunErrorKind> {
        let agent = self.tools.agent.clone();
        let Some(options) = agent.0.compaction.as_ref().filter(|_| agent.0.sends_earlier_turns) else {
            return Ok(None);
        };
        let compacted = self.compact_now(options, false).await?;
        if compacted.is_some() {
            self.resolve_offer().await?;
        }
        Ok(compacted)
    }

    /// Compacts the run for a caller, and stores it. What precedes a request happens before: handoffs, and what layers judge.
    pub(in crate::agent) async fn compact_for_caller(
        &mut self,
        options: &Compaction,
    ) -> Result<(), RunErrorKind> {
        if !self.run.is_asking() || !self.tools.agent.0.sends_earlier_turns {
            return Ok(());
        }
        let has_failed = self.run.has_failed();
        self.ordered_compaction = Some(options.clone());
        self.prepare().await?;
        self.change_run().set_failed(has_failed);
        self.store_run().await
    }

    /// Compacts the run as far as possible. Without a summary of the provider or the run's own model, if these cannot read the conversation.
    async fn compact_now(
        &mut self,
        options: &Compaction,
        can_read: bool,
    ) -> Result<Option<Event>, RunErrorKind> {
        let by_provider = can_read && self.is_summarized_by_provider();
        if by_provider && let Some(plan) = plan_now(options, self.measure(options).of_summary()) {
            let compacted = self.compact_by_provider(options, plan).boxed().await?;
            if compacted.is_some() || !self.run.is_asking() {
                return Ok(compacted);
            }
        }
        // What the provider refuses as too long cannot be continued otherwise.
        let plan = plan_now(options, self.measure(options));
        match plan.filter(|_| !can_read || !self.has_bound_reasoning()) {
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
        let reply = self.ask_for_summary(options, Some(hidden)).await?;
        let model = self.tools.agent.model();
        // A summary in a form that the model does not read would move what its reasoning is bound to.
        let is_summary = |reply: &ChatResponse| {
            reply.finish_reason == FinishReason::Compaction && model.reads_summary(&reply.message)
        };
        let is_other = |reply: &ChatResponse| !reply.message.text.is_empty() && !is_summary(reply);
        let is_refused = reply.as_ref().is_some_and(is_other);
        let message = reply.filter(is_summary).map(|reply| reply.message);
        let judged = match &message {
            Some(message) => self.judge_summary(message.text.clone()).await?,
            None => None,
        };
        if !self.run.is_asking() {
            return Ok(None);
        }
        // The provider accepts its summary only as it wrote it.
        let message = message.filter(|message| {
            judged.as_ref() == Some(&message.text) && self.is_shorter(&message.text, hidden)
        });
        self.restart_measuring(message.is_none() || plan.is_small);
        self.record_provider_attempt(message.is_some(), is_refused);
        let Some(message) = message else { return Ok(None) };
        let facts = self.facts(hidden);
        let summary = Some(format!("{SUMMARIZED}{}{facts}", message.text));
        let mut note =
            "The beginning of this conversation was replaced by its summary; `read_output` searches it."
                .to_owned();
        let [question, last] = self.run.questions_before(hidden);
        let mut said = vec![(question, "The question was"), (last, "The last message of the user in it was")];
        said.dedup_by_key(|(position, _)| *position);
        let mut parts = Vec::new();
        for (position, what) in said {
            let Some(Message::User(content)) = self.run.messages()[..hidden].get(position) else { continue };
            let _ = write!(note, "\n\n{what}:\n\n{}", content.text());
            // Images and files cannot be read again.
            let others = content.parts().iter().filter(|part| matches!(part, Part::Image(_) | Part::File(_)));
            parts.extend(others.cloned());
        }
        let note = parts.into_iter().chain([(note + &facts).into()]).collect();
        let note = (self.run.messages().len(), note);
        let by_provider = Some(ProviderSummary { message, note });
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
        let compactions = self.run.compactions();
        let first = compactions.iter().map(|one| one.hidden).max().unwrap_or_default().max(leading);
        let note = self.run.provider_summary().map_or(0, |one| one.note.0);
        let is_reply =
            |at: usize| messages.get(at).is_some_and(|message| matches!(message, Message::Assistant(_)));
        while end > first && is_reply(end) == is_reply(end - 1) {
            end = group_start(&messages[..end]);
        }
        (end > first && end >= note).then_some(end)
    }

    /// Returns `true` if the provider summarizes by itself, and has not refused to in this run.
    fn is_summarized_by_provider(&self) -> bool {
        let (model, size) = (self.tools.agent.model(), self.run.context_size());
        model.supports_compaction()
            && size.refused_by.as_deref() != Some(model.model_name().unwrap_or_default())
    }

    /// Records whether the provider has summarized. It is not asked again in this run if it has refused to, or failed several times in a row.
    fn record_provider_attempt(&mut self, has_summarized: bool, is_refused: bool) {
        let name = self.tools.agent.model().model_name().unwrap_or_default().to_owned();
        self.change_run().change_context_size(|size| {
            size.provider_failures =
                if has_summarized { 0 } else { size.provider_failures.saturating_add(1) };
            if is_refused || size.provider_failures >= MAX_USELESS {
                size.refused_by = Some(name);
            }
        });
    }

    fn measure(&self, options: &Compaction) -> Measure {
        Measure::new(options, &self.run, self.tools.agent.model(), |name| {
            let policy = self.policy(name);
            let is_pure = policy.is_some_and(|policy| policy.pure) || name == READ_OUTPUT;
            ToolFacts { is_pure, keeps_output: policy.is_some_and(|policy| policy.keep_output) }
        })
    }

    /// Returns the policy of a tool, also of one that is not offered now.
    fn policy(&self, name: &str) -> Option<&ToolPolicy> {
        let agents = [&self.tools].into_iter().chain(&self.earlier_tools);
        let mut sets = [&self.offer.tools].into_iter().chain(agents.map(|tools| &tools.agent.0.tools));
        sets.find_map(|tools| tools.get(name)).map(|tool| tool.definition().policy())
    }

    /// Returns the size of a model's context window, if it is known.
    fn context_window(&self, model: Option<&str>) -> Option<u64> {
        let agent = &self.tools.agent.0;
        let known = lock(&agent.model_infos).get(model?).cloned().unwrap_or_default();
        let known = match &agent.prices {
            Some(prices) => prices.model_info(model?, known),
            None => known,
        };
        known.context_window
    }

    /// Returns `true` if a reply since the last user message contains reasoning that the provider accepts only after the original messages.
    fn has_bound_reasoning(&self) -> bool {
        let of_turn = self.run.messages().iter().rev().take_while(|one| !matches!(one, Message::User(_)));
        let model = self.tools.agent.model();
        of_turn.filter_map(Message::as_assistant).any(|reply| model.binds_reasoning(reply))
    }

    async fn compact(
        &mut self,
        options: &Compaction,
        plan: Plan,
        can_read: bool,
    ) -> Result<Option<Event>, RunErrorKind> {
        let Plan { clear, empty, unreasoned, hide, is_small } = plan;
        let summary = match hide {
            None => None,
            Some(before) => self.summary(options, before, can_read).await?,
        };
        if !self.run.is_asking() {
            return Ok(None);
        }
        let has_failed = hide.is_some() && summary.is_none();
        let record = match hide.filter(|_| !has_failed) {
            Some(hidden) => CompactionRecord { hidden, summary, ..CompactionRecord::default() },
            None => {
                CompactionRecord { cleared: clear, emptied: empty, unreasoned, ..CompactionRecord::default() }
            }
        };
        self.restart_measuring(is_small || has_failed);
        Ok(self.record_compaction(record))
    }

    /// Measures anew what is read again, after an attempt to compact the run. Several of them before one request count as one.
    fn restart_measuring(&mut self, is_useless: bool) {
        let messages = self.run.messages().len();
        self.change_run().change_context_size(|size| {
            size.reread = 0;
            match is_useless {
                true if size.useless_at == messages => {}
                true => (size.useless, size.useless_at) = (size.useless.saturating_add(1), messages),
                false => (size.useless, size.useless_at) = (0, 0),
            }
        });
    }

    /// Records a compaction, unless it hides nothing, and returns its event.
    fn record_compaction(&mut self, record: CompactionRecord) -> Option<Event> {
        let (outputs, messages) = (record.cleared.len(), record.hidden);
        if outputs == 0 && messages == 0 && record.unreasoned == 0 {
            return None;
        }
        self.run.record_compaction(record);
        self.run.change_context_size(|size| {
            (size.tokens, size.messages, size.sent, size.asked) = Default::default();
        });
        self.sent = Default::default();
        // Measured again before the next request that can be compacted.
        self.hideable = 0;
        Some(Event::Compacted { outputs, messages })
    }

    /// Returns what takes the place of the messages before a position. Returns nothing if the model fails, or the run has ended.
    async fn summary(
        &mut self,
        options: &Compaction,
        before: usize,
        can_read: bool,
    ) -> Result<Option<String>, RunErrorKind> {
        if options.model.is_none() && !can_read {
            // Without what is added anew.
            let earlier = self.run.summary_in_use().unwrap_or_default();
            let earlier = earlier.rsplit_once(FACTS).map_or(earlier, |(text, _)| text);
            let earlier = earlier.strip_suffix(NO_SUMMARY).unwrap_or(earlier).trim_end();
            let gap = if earlier.is_empty() { "" } else { "\n\n" };
            return Ok(Some(format!("{earlier}{gap}{NO_SUMMARY}{}", self.facts(before))));
        }
        let Some(reply) = self.ask_for_summary(options, None).await? else { return Ok(None) };
        let Some(text) = self.judge_summary(reply.message.text).await? else { return Ok(None) };
        let facts = self.facts(before);
        Ok(self.is_shorter(&text, before).then(|| format!("{SUMMARIZED}{text}{facts}")))
    }

    /// Returns `true` if a summary has a text, which is shorter than the messages before a position.
    fn is_shorter(&self, summary: &str, before: usize) -> bool {
        let tokens = estimate_tokens(&Message::user(summary));
        !summary.trim().is_empty() && tokens <= self.run.visible_tokens(before)
    }

    /// Asks for a summary: the provider, if this is the position of the first message that stays.
    async fn ask_for_summary(
        &mut self,
        options: &Compaction,
        end_for_provider: Option<usize>,
    ) -> Result<Option<ChatResponse>, RunErrorKind> {
        let meter = self.layers.meter(&self.tools.agent).map(Arc::new);
        let (layers, agent) = (Arc::clone(&self.layers), self.tools.agent.clone());
        let (prompt, messages);
        let is_by_provider = end_for_provider.is_some();
        let own_model = options.model.as_ref().filter(|_| !is_by_provider);
        let (model, request): (&dyn ChatModel, ChatRequest<'_>) = match own_model {
            Some(model) => {
                let text = Transcript::new(self.sent.messages(&self.run), &[]).to_string();
                prompt = [Message::user(format!("{text}\n\n{}", options.prompt()))];
                (&**model, ChatRequest::borrowing(&prompt))
            }
            None => {
                let own = self.offer.request(&self.run, &self.sent);
                let (end, prompt) = match end_for_provider {
                    None => (own.messages().len(), Some(Message::user(options.prompt()))),
                    Some(end) => {
                        let hidden = self.run.hidden().for_provider(self.run.summary_read_by(agent.model()));
                        let stays = self.run.visible(end, &hidden).count();
                        (own.messages().len().saturating_sub(stays), None)
                    }
                };
                messages = own.messages()[..end].iter().cloned().chain(prompt).collect::<Vec<_>>();
                // The tools stay, because they precede the messages in the cache. The format stays for a provider, whose tools may depend on it.
                let own = own.with_tool_choice(ToolChoice::Auto);
                let (own, least) = match end_for_provider {
                    None => (own.with_response_format(None), MIN_OUTPUT_TOKENS),
                    Some(_) => {
                        let own = own.with_compaction(true).with_summary_prompt(options.prompt.clone());
                        (own, MIN_PROVIDER_TOKENS)
                    }
                };
                let mut options = own.options().clone();
                options.max_output_tokens = options.max_output_tokens.map(|limit| limit.max(least));
                let own = own.with_options(options);
                (agent.model(), own.with_other_messages(&messages, None))
            }
        };
        let request = request.metered(meter.as_deref().map(|meter| meter as _));
        let of_model = layers.of_model(&self.run);
        let passage = Passage { layers: &of_model, beside: None, hold: Hold::default() };
        let mut nobody = EventEmitter::default();
        let left = self.time_left();
        let limit = left.map_or(options.timeout, |left| left.min(options.timeout));
        let asked = call_model(model, &request, &mut nobody, passage);
        let asked = run_until_interrupted(asked, self.question.cancellation.as_ref(), Some(limit)).await;
        let reply = match asked {
            Ok(Ok(reply)) => match reply.into_response() {
                Some(Err(error)) => {
                    // A layer can end the run by any of its requests.
                    match error.downcast::<RunEnded>() {
                        Ok(ended) => {
                            let end = self.layers.end_of_reply(ended);
                            self.change_run().stop_by_layer(end);
                        }
                        Err(error) if is_by_provider && error.kind() == ModelErrorKind::InvalidRequest => {
                            self.record_provider_attempt(false, true);
                        }
                        Err(_) => {}
                    }
                    None
                }
                response => response.and_then(Result::ok),
            },
            Ok(Err(_)) => None,
            Err(interruption) => {
                let is_of_run = match interruption {
                    Interruption::Cancelled => true,
                    Interruption::TimeLimit => left.is_some_and(|left| left <= options.timeout),
                };
                if is_of_run {
                    self.interrupt(&interruption);
                }
                None
            }
        };
        let mut usage = reply.as_ref().and_then(|reply| reply.usage).unwrap_or_default();
        usage.cost = meter.and_then(|meter| meter.charged()).or(usage.cost);
        self.change_run().add_compaction_usage(usage);
        let is_whole = |reply: &ChatResponse| {
            reply.message.tool_calls.is_empty()
                && reply.message.refusal.is_none()
                && !reply.finish_reason.is_truncated()
        };
        Ok(reply.filter(is_whole))
    }

    /// Lets the layers judge a summary as the output of a call.
    async fn judge_summary(&mut self, text: String) -> Result<Option<String>, RunErrorKind> {
        if !self.layers.see(Phase::Output) {
            return Ok(Some(text));
        }
        let layers = Arc::clone(&self.layers);
        let call = ToolCall::new("compaction", "summarize", "{}");
        let mut execution = ToolExecution::new(call, Ok(ToolOutput::text(text)));
        let judged = layers.output(&mut execution, &self.run).boxed();
        let end = match self.run_until_interrupted(judged).await {
            Ok(judged) => judged?,
            Err(interruption) => {
                self.interrupt(&interruption);
                return Ok(None);
            }
        };
        if let Some(end) = end {
            self.change_run().stop_by_layer(end);
            return Ok(None);
        }
        Ok(execution.output().map(ToString::to_string))
    }

    /// Returns what calls have done that must not be repeated, of those before a position.
    fn facts(&self, before: usize) -> String {
        let is_unique = |name: &str| self.policy(name).is_some_and(|policy| policy.at_most_once);
        // Also of earlier questions, whose executions belong to other runs.
        let (mut calls, mut done): (&[ToolCall], Vec<(&ToolCall, &ToolMessage)>) = (&[], Vec::new());
        for message in &self.run.messages()[..before] {
            match message {
                Message::Assistant(reply) => calls = &reply.tool_calls,
                Message::Tool(result) if is_unique(&result.name) => {
                    let call = calls.iter().find(|call| call.id == result.call_id);
                    done.extend(call.map(|call| (call, result)));
                }
                _ => {}
            }
        }
        let mut facts = String::new();
        let earlier = done.len().saturating_sub(MAX_FACTS);
        if earlier > 0 {
            let _ = write!(facts, "\n- and {earlier} earlier ones, which `read_output` finds");
        }
        for (call, result) in &done[earlier..] {
            let arguments = abbreviate(&call.arguments, MAX_ARGUMENTS_CHARS);
            let failed = if result.is_error { "failed: " } else { "" };
            let output = result.content.text();
            let output = abbreviate(&output, MAX_OUTPUT_CHARS);
            let _ = write!(facts, "\n- {} {arguments}: {failed}{output}", call.name);
        }
        match facts.is_empty() {
            true => facts,
            false => format!("{FACTS}{facts}"),
        }
    }

    /// Records how long the last request was.
    pub(super) fn record_context_size(&mut self, response: &ChatResponse) {
        let agent = &self.tools.agent.0;
        let is_tracked = agent.tracks_cache;
        if agent.compaction.is_none() && !is_tracked {
            return;
        }
        let hideable = std::mem::take(&mut self.hideable);
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

/// Returns what is to be hidden of a run that is compacted as far as possible, unless there is nothing.
fn plan_now(options: &Compaction, measure: Measure) -> Option<Plan> {
    measure.plan(options, 0, Rates::from_prices(None, None), false, None, true)
}
