//! When a run is compacted, and what is hidden: decided from its messages, what the provider reported, and prices.
//!
//! When a compaction pays depends on the tokens that were read again, not on the share of the context window in use, because an ordinary
//! run costs money long before it fills the window.

use super::options::Compaction;
use crate::memory::group_start;
use crate::model::{ChatModel, Message, Prices, Usage, estimate_tokens};
use crate::run::Run;

/// The tokens of the last messages that stay by default.
const DEFAULT_RECENT_TOKENS: u64 = 4_000;

/// The tokens that remain of a hidden output: of an ordinary tool, and of a `pure` one.
const CLEARED_TOKENS: u64 = 160;
const EMPTIED_TOKENS: u64 = 30;

/// The bytes of encrypted reasoning per token.
const REASONING_BYTES_PER_TOKEN: usize = 6;

/// How many times its price a compaction has to be worth.
const MIN_GAIN_FACTOR: f64 = 2.0;

/// Hiding less than this part of a request is not worth what the model forgets.
const MIN_SHARE: u64 = 5;

/// The part of the context window at which a run is compacted.
const WINDOW_SHARE: f64 = 0.8;

/// The prices of tokens, relative to each other.
#[derive(Clone, Copy, Debug)]
pub(in crate::agent) struct Rates {
    cached: f64,
    written: f64,
    output: f64,
}

/// What compaction has to know of a tool.
#[derive(Clone, Copy, Default)]
pub(in crate::agent) struct ToolFacts {
    pub(in crate::agent) is_pure: bool,
    pub(in crate::agent) keeps_output: bool,
}

/// The size of the next request, and of what could be hidden.
#[derive(Clone, Debug)]
pub(in crate::agent) struct Measure {
    /// The tokens of the request.
    total: u64,
    /// The tokens that a summary would hide.
    pub(in crate::agent) hideable: u64,
    /// The tokens of the instructions, the question and the last messages.
    kept: u64,
    /// The position of the first of the last messages.
    boundary: usize,
    clear: Vec<usize>,
    empty: Vec<usize>,
    /// The tokens saved by hiding outputs without a summary.
    clearable: u64,
    /// The position of the last message of the user, and the tokens of the reasoning before.
    turn: usize,
    reasoning: u64,
    /// The tokens from the first hidden output to the end of the messages.
    behind: u64,
    /// The request for a summary is read from the cache.
    is_cached: bool,
}

/// What is hidden.
#[derive(Debug, PartialEq)]
pub(in crate::agent) struct Plan {
    /// The results whose outputs are hidden, if no summary replaces them.
    pub(in crate::agent) clear: Vec<usize>,
    pub(in crate::agent) empty: Vec<usize>,
    /// Replies before this position are sent without reasoning.
    pub(in crate::agent) unreasoned: usize,
    /// A summary replaces the messages before this position.
    pub(in crate::agent) hide: Option<usize>,
    /// It hides too little to be repeated often.
    pub(in crate::agent) is_small: bool,
}

impl Rates {
    /// Without prices.
    const USUAL: Self = Self { cached: 0.1, written: 1.25, output: 5.0 };

    /// Returns the rates by these prices for a model, if they are known.
    pub(in crate::agent) fn from_prices(prices: Option<&Prices>, model: Option<&str>) -> Self {
        let (Some(prices), Some(model)) = (prices, model) else { return Self::USUAL };
        let price = |usage: Usage| prices.cost(model, usage).ok().map(|cost| cost.micros() as f64);
        let million = |cached: u64, written: u64, output: u64| Usage {
            cached_tokens: Some(cached),
            cache_write_tokens: Some(written),
            ..Usage::new(1_000_000 - output, output)
        };
        let known = (|| {
            let input = price(million(0, 0, 0)).filter(|input| *input > 0.0)?;
            Some(Self {
                cached: price(million(1_000_000, 0, 0))? / input,
                written: price(million(0, 1_000_000, 0))? / input,
                output: price(million(0, 0, 1_000_000))? / input,
            })
        })();
        known.unwrap_or(Self::USUAL)
    }
}

impl Measure {
    pub(in crate::agent) fn new(
        options: &Compaction,
        run: &Run,
        model: &dyn ChatModel,
        facts: impl Fn(&str) -> ToolFacts,
    ) -> Self {
        let (messages, hidden) = (run.messages(), run.hidden_for(Some(model)));
        let size = |position: usize| -> u64 {
            let message = &messages[position];
            let size = estimate_tokens(message) as u64;
            match (hidden.hides(position, message), hidden.changes(position, message)) {
                (true, _) => 0,
                (false, true) if hidden.empties(position) => size.min(EMPTIED_TOKENS),
                (false, true) => size.min(CLEARED_TOKENS),
                (false, false) => size,
            }
        };
        let sizes: Vec<u64> = (0..messages.len()).map(size).collect();
        let estimated = sizes.iter().sum::<u64>();
        let reported = run.context_size();
        let new: u64 = sizes.iter().skip(reported.messages).sum();
        let total = if reported.tokens > 0 { reported.tokens + new } else { estimated };
        let keep =
            options.keep_recent.unwrap_or_else(|| options.at.map_or(DEFAULT_RECENT_TOKENS, |at| at / 4));
        let (mut boundary, mut recent) = (messages.len(), 0);
        // The model has not read the results of its last reply, also if the user has said something meanwhile.
        let last_reply = messages.iter().rposition(|message| matches!(message, Message::Assistant(_)));
        let stays = last_reply.unwrap_or(messages.len().saturating_sub(1));
        // What a summary stands for stays hidden.
        let floor = hidden.before;
        while boundary > floor {
            let start = group_start(&messages[..boundary]).max(floor);
            let group: u64 = sizes[start..boundary].iter().sum();
            if recent + group > keep && boundary <= stays {
                break;
            }
            (boundary, recent) = (start, recent + group);
        }
        let question = run.messages().len() - run.new_messages().len();
        // Of the user's messages, a summary leaves the question and the last one before its end.
        let asked = messages[..boundary].iter().rposition(|message| matches!(message, Message::User(_)));
        let is_hideable = |position: usize| {
            position != question
                && Some(position) != asked
                && !matches!(messages[position], Message::System(_))
        };
        let hideable =
            (0..boundary).filter(|position| is_hideable(*position)).map(|position| sizes[position]).sum();
        let turn =
            messages.iter().rposition(|message| matches!(message, Message::User(_))).unwrap_or_default();
        let reasoning = (run.unreasoned()..turn).filter(|position| sizes[*position] > 0);
        // What is bound to messages before it is no longer sent once these were changed, unless its provider has summarized them.
        let reads_summary = run.summary_read_by(model).is_some();
        let is_changed = (0..turn).any(|position| {
            let message = &messages[position];
            hidden.changes(position, message) && !(reads_summary && hidden.hides(position, message))
        });
        let reasoning = reasoning.filter_map(|position| messages[position].as_assistant());
        let reasoning = reasoning.filter(|reply| !(is_changed && model.binds_reasoning(reply)));
        let reasoning: usize = reasoning.map(|reply| model.reasoning_bytes(reply)).sum();
        let mut measure = Self {
            turn,
            reasoning: (reasoning / REASONING_BYTES_PER_TOKEN) as u64,
            total,
            hideable,
            kept: estimated.saturating_sub(hideable),
            boundary,
            clear: Vec::new(),
            empty: Vec::new(),
            clearable: 0,
            behind: 0,
            is_cached: true,
        };
        for (position, message) in messages[..boundary].iter().enumerate() {
            let Message::Tool(result) = message else { continue };
            let facts = facts(&result.name);
            let left = if facts.is_pure { EMPTIED_TOKENS } else { CLEARED_TOKENS };
            if facts.keeps_output || hidden.changes(position, message) || sizes[position] <= 2 * left {
                continue;
            }
            if measure.clear.is_empty() {
                measure.behind = sizes[position..].iter().sum();
            }
            measure.clearable += sizes[position] - left;
            measure.clear.push(position);
            if facts.is_pure {
                measure.empty.push(position);
            }
        }
        measure
    }

    /// Returns the same measure, where only a summary can hide something, whose request is read from the cache or not.
    pub(in crate::agent) fn of_summary(self, is_cached: bool) -> Self {
        Self {
            clear: Vec::new(),
            empty: Vec::new(),
            clearable: 0,
            behind: 0,
            reasoning: 0,
            is_cached,
            ..self
        }
    }

    /// Returns what is to be hidden now, if it pays, or has to be: it is required if the request is too long, or somebody has asked for it.
    pub(in crate::agent) fn plan(
        self,
        options: &Compaction,
        reread: u64,
        rates: Rates,
        is_cold: bool,
        window: Option<u64>,
        is_required: bool,
    ) -> Option<Plan> {
        let summary = (self.hideable / 8).clamp(200, 1_500);
        let (hideable, clearable) = (self.hideable as f64, self.clearable as f64);
        // Nothing is in a cold cache: the next request is paid for like a new one, whatever is hidden.
        let read = if is_cold { rates.written } else { rates.cached };
        let reread = reread as f64 * rates.cached + if is_cold { hideable * read } else { 0.0 };
        let clearing =
            (self.behind - self.clearable.min(self.behind)) as f64 * (rates.written - read).max(0.0);
        let summarizing = self.total as f64 * if self.is_cached { read } else { read.max(1.0) }
            + summary as f64 * rates.output
            + (self.kept + summary) as f64 * rates.written;
        let is_worth = hideable > 0.0 && options.at.is_none();
        let has_enough = if is_cold { self.clearable >= self.total / MIN_SHARE } else { self.clearable > 0 };
        let clears = is_worth && has_enough && reread * (clearable / hideable) >= MIN_GAIN_FACTOR * clearing;
        let summarizes = is_worth && reread >= MIN_GAIN_FACTOR * summarizing;
        let marks = options.at.into_iter().chain(options.at_most);
        let safe = window.map(|window| (window as f64 * WINDOW_SHARE) as u64);
        let mark = marks.chain(safe).min().filter(|mark| self.total >= *mark);
        // What has to be hidden brings the request below half of the mark, or near to what always stays.
        let low =
            mark.or(is_required.then_some(self.total)).map(|mark| (mark / 2).max(self.kept + mark / 10));
        let is_due = clears || summarizes || low.is_some();
        let is_long = self.hideable >= 2 * summary;
        if !is_due || !is_long && self.clearable.max(self.reasoning) < 2 * CLEARED_TOKENS {
            return None;
        }
        let is_low = |saved| low.is_some_and(|low| self.total.saturating_sub(saved) <= low);
        let is_enough = if low.is_some() { is_low(self.clearable) } else { clears };
        // Reasoning of earlier turns is hidden if that makes a summary unnecessary, or there is nothing else.
        let is_needed = !is_enough && is_low(self.clearable + self.reasoning);
        let forgets = low.is_some() && self.reasoning > 0 && (is_needed || !is_long && self.clear.is_empty());
        let unreasoned = if forgets { self.turn } else { 0 };
        let is_enough = is_enough || forgets || low.is_some() && !is_long;
        let saved = match (is_enough, forgets) {
            (true, true) => self.clearable + self.reasoning,
            (true, false) => self.clearable,
            (false, _) => self.hideable.saturating_sub(summary),
        };
        // One that pays is worth it, however small it is.
        let is_small = low.is_some() && saved < self.total / MIN_SHARE;
        let hide = if is_enough && (forgets || !self.clear.is_empty()) { None } else { Some(self.boundary) };
        Some(Plan { clear: self.clear, empty: self.empty, unreasoned, hide, is_small })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(total: u64, hideable: u64) -> Measure {
        Measure {
            total,
            hideable,
            kept: 0,
            boundary: 4,
            clear: Vec::new(),
            empty: Vec::new(),
            clearable: 0,
            turn: 2,
            reasoning: 400,
            behind: 0,
            is_cached: true,
        }
    }

    #[test]
    fn a_summary_may_be_longer_than_what_it_hides() {
        let measure = measure(1_000, 100);
        let options = Compaction::when_it_pays();
        let plan = measure.plan(&options, 1_000_000, Rates::USUAL, false, None, false);
        assert_eq!(plan.unwrap().hide, Some(4));
    }

    /// A request that is not read from the cache costs ten times as much, so it has to be worth more.
    #[test]
    fn a_summary_that_misses_the_cache_pays_later() {
        let options = Compaction::when_it_pays();
        let due = [true, false].map(|is_cached| {
            let plan = |reread: &u64| {
                let measure = measure(100_000, 90_000).of_summary(is_cached);
                measure.plan(&options, *reread, Rates::USUAL, false, None, false).is_some()
            };
            (1..50).map(|step| step * 100_000).find(plan)
        });
        assert_eq!(due, [Some(400_000), Some(2_200_000)]);
    }
}
