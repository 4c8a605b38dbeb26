//! Summarizes what is hidden of a run, and names what must not happen again.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use futures_util::FutureExt;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::compactor::Compactor;
use super::hold::Hold;
use super::model_request::{Passage, call_model};
use crate::agent::compaction::Compaction;
use crate::agent::emitter::EventEmitter;
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::agent::tool_search::Mode;
use crate::content::abbreviate;
use crate::layer::{LayerPhase, RunEnded};
use crate::model::{
    ChatModel, ChatRequest, ChatResponse, Message, ModelErrorKind, ToolCall, ToolChoice, ToolMessage, Usage,
    estimate_tokens,
};
use crate::run::RunErrorKind;
use crate::tool::{ToolExecution, ToolOutput, exceeds};
use crate::transcript::Transcript;

/// The characters of arguments and outputs that remain of calls that must not be repeated.
const MAX_ARGUMENTS_CHARS: usize = 200;
pub(super) const MAX_OUTPUT_CHARS: usize = 500;

/// The same in a note, which stays for ever.
pub(super) const MAX_NOTED_CHARS: usize = 100;

/// The characters that another model reads of each output.
const MAX_SUMMARIZED_CHARS: usize = 2_000;

/// The number of these calls that are named.
const MAX_FACTS: usize = 30;

/// The least limit of the output tokens of a summary, which the run's answers may stay far below: of the own model, and of a provider, which
/// counts thinking and fails if the summary is not whole.
const MIN_OUTPUT_TOKENS: u32 = 2_048;
const MIN_PROVIDER_TOKENS: u32 = 8_192;

/// What takes the place of messages if there is no summary.
const NO_SUMMARY: &str = "Earlier messages of this conversation were removed to save room.";

/// What precedes the tools that a summary names.
const FOUND: &str = "\n\nThese tools were found; search for them again to read their parameters:";

/// What precedes the calls that a summary names.
const FACTS: &str = "\n\nThese calls were made, and what they did must not be repeated:";

/// Why there is no summary.
pub(super) enum NoSummary {
    /// The request is invalid.
    Refused,
    Failed,
}

impl Compactor {
    /// Returns what takes the place of the messages before a position. Returns nothing if the model fails, or the run has ended.
    pub(super) async fn summary(
        &mut self,
        options: &Compaction,
        before: usize,
    ) -> Result<Option<String>, RunErrorKind> {
        let Ok(reply) = self.ask_for_summary(options, None).await else { return Ok(None) };
        let Some(text) = self.judge_summary(reply.message.text).await? else { return Ok(None) };
        let facts = self.facts(0..before, MAX_OUTPUT_CHARS);
        Ok(self.is_shorter(&text, before).then(|| self.summarized(&text, &facts)))
    }

    /// Returns what the model reads of a summary.
    pub(super) fn summarized(&self, summary: &str, facts: &str) -> String {
        let search = self.searching();
        format!(
            "The beginning of this conversation was removed to save room{search}. This is its summary:\n\n{summary}{facts}"
        )
    }

    /// Returns how the model finds what was removed. An agent that offers no tools does not offer this one either.
    pub(super) fn searching(&self) -> &'static str {
        if self.can_read_back() { "; `read_output` searches it" } else { "" }
    }

    fn can_read_back(&self) -> bool {
        !self.offer.tools.is_empty()
    }

    /// Returns what takes the place of the messages before a position if there is no text of a summary.
    pub(super) fn without_summary(&self, before: usize, max_output_chars: usize) -> String {
        // Without what is added anew.
        let earlier = self.run.hidden_for(Some(self.agent.model())).summary.unwrap_or_default();
        let earlier = [FACTS, FOUND, NO_SUMMARY]
            .into_iter()
            .fold(earlier, |earlier, text| earlier.rsplit_once(text).map_or(earlier, |(before, _)| before));
        let earlier = earlier.trim_end();
        let gap = if earlier.is_empty() { "" } else { "\n\n" };
        let search = if self.can_read_back() { " `read_output` searches them." } else { "" };
        format!("{earlier}{gap}{NO_SUMMARY}{search}{}", self.facts(0..before, max_output_chars))
    }

    /// Returns `true` if a summary that only its provider reads, by what it has used, and its note are shorter than the messages before a
    /// position.
    pub(super) fn is_shorter_by_usage(&self, usage: Usage, note: &str, before: usize) -> bool {
        let written = usage.output_tokens.saturating_sub(usage.reasoning_tokens.unwrap_or_default());
        let written = written.saturating_add(estimate_tokens(&Message::user(note)) as u64);
        written <= self.run.visible_tokens(before, self.agent.model()) as u64
    }

    /// Returns `true` if a summary has a text, which is shorter than the messages before a position.
    pub(super) fn is_shorter(&self, summary: &str, before: usize) -> bool {
        let tokens = estimate_tokens(&Message::user(summary));
        !summary.trim().is_empty() && tokens <= self.run.visible_tokens(before, self.agent.model())
    }

    /// Asks for a summary: the provider, if this is the position of the first message that stays.
    pub(super) async fn ask_for_summary(
        &mut self,
        options: &Compaction,
        end_for_provider: Option<usize>,
    ) -> Result<ChatResponse, NoSummary> {
        let meter = self.new_meter();
        let (layers, agent) = (Arc::clone(&self.layers), self.agent.clone());
        let (prompt, messages);
        let is_by_provider = end_for_provider.is_some();
        let own_model = options.model.as_ref().filter(|_| !is_by_provider);
        let (model, request): (&dyn ChatModel, ChatRequest<'_>) = match own_model {
            Some(model) => {
                let messages = self.readable_messages();
                let text = Transcript::new(&messages, &[]).with_max_text_chars(usize::MAX).to_string();
                prompt = [Message::user(format!("{text}\n\n{}", options.prompt()))];
                (&**model, ChatRequest::borrowing(&prompt))
            }
            None => {
                let own = self.offer.request(&self.run, &self.sent);
                let (end, prompt) = match end_for_provider {
                    None => (own.messages().len(), Some(Message::user(options.prompt()))),
                    Some(end) => {
                        let hidden = self.run.hidden_as_sent(agent.model());
                        let stays = self.run.visible(end, &hidden).count();
                        (own.messages().len().saturating_sub(stays), None)
                    }
                };
                messages = own.messages()[..end].iter().cloned().chain(prompt).collect::<Vec<_>>();
                // The tools stay, because they precede the messages in the cache. The format stays for a provider, whose tools may depend on it.
                let own = match own.tool_choice() {
                    ToolChoice::None => own,
                    _ => own.with_tool_choice(ToolChoice::Auto),
                };
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
        let view = self.run.view();
        let of_model = layers.of_model(&view);
        let passage = Passage { layers: &of_model, beside: None, hold: Hold::default() };
        let nobody = EventEmitter::default();
        let left = self.time_left();
        let limit = left.map_or(options.timeout, |left| left.min(options.timeout));
        let asked = call_model(model, &request, &nobody, passage);
        let asked = run_until_interrupted(asked, self.cancellation.as_ref(), Some(limit)).await;
        let mut is_invalid = false;
        let reply = match asked {
            Ok(Ok(reply)) => match reply.into_response() {
                Some(Err(error)) => {
                    // A layer can end the run by any of its requests.
                    match error.downcast::<RunEnded>() {
                        Ok(ended) => {
                            let end = self.layers.end_of_reply(ended);
                            self.change(move |run| run.stop_by_layer(end.clone()));
                        }
                        Err(error) => is_invalid = error.kind() == ModelErrorKind::InvalidRequest,
                    }
                    None
                }
                response => response.and_then(Result::ok),
            },
            Ok(Err(_)) => None,
            Err(interruption) => {
                let is_cancelled = matches!(interruption, Interruption::Cancelled);
                if is_cancelled || left.is_some_and(|left| left <= options.timeout) {
                    self.interrupt(interruption);
                }
                None
            }
        };
        let mut usage = reply.as_ref().and_then(|reply| reply.usage).unwrap_or_default();
        usage.cost = meter.and_then(|meter| meter.charged()).or(usage.cost);
        self.change(move |run| run.add_compaction_usage(usage));
        let is_whole = |reply: &ChatResponse| {
            reply.message.tool_calls.is_empty()
                && reply.message.refusal.is_none()
                && !reply.finish_reason.is_truncated()
        };
        reply.filter(is_whole).ok_or(if is_invalid { NoSummary::Refused } else { NoSummary::Failed })
    }

    /// Returns what another model summarizes: the messages in place of a summary that has no text, whose outputs it need not read in full.
    fn readable_messages(&self) -> Vec<Message> {
        let hidden = self.run.hidden_for(None);
        let shortened = |message: Cow<'_, Message>| match message.into_owned() {
            Message::Tool(mut result) if exceeds(&result.content.text(), MAX_SUMMARIZED_CHARS) => {
                result.content = abbreviate(&result.content.text(), MAX_SUMMARIZED_CHARS).into_owned().into();
                Message::Tool(result)
            }
            message => message,
        };
        self.run.visible(0, &hidden).map(shortened).collect()
    }

    /// Lets the layers judge a summary as the output of a call.
    pub(super) async fn judge_summary(&mut self, text: String) -> Result<Option<String>, RunErrorKind> {
        if !self.layers.see(LayerPhase::Output) {
            return Ok(Some(text));
        }
        let layers = Arc::clone(&self.layers);
        let call = ToolCall::new("compaction", "summarize", "{}");
        let mut execution = ToolExecution::new(call, Ok(ToolOutput::text(text)));
        let view = self.run.view();
        let judged = layers.output(&mut execution, &view).boxed();
        let end = match run_until_interrupted(judged, self.cancellation.as_ref(), self.time_left()).await {
            Ok(judged) => judged?,
            Err(interruption) => {
                self.interrupt(interruption);
                return Ok(None);
            }
        };
        if let Some(end) = end {
            self.change(move |run| run.stop_by_layer(end.clone()));
            return Ok(None);
        }
        Ok(execution.output().map(ToString::to_string))
    }

    /// Returns what calls have done that must not be repeated, of those between two positions.
    pub(super) fn facts(&self, range: Range<usize>, max_output_chars: usize) -> String {
        let is_unique = |name: &str| self.policy(name).is_some_and(|policy| policy.at_most_once);
        // The last execution counts. Results of earlier questions have none in this run.
        let executions = self.run.tool_executions().iter();
        let was_executed: HashMap<_, _> =
            executions.map(|one| (&*one.call().id, one.was_executed())).collect();
        let was_refused = |id: &str| was_executed.get(id) == Some(&false);
        let (mut calls, mut done): (HashMap<&str, &ToolCall>, Vec<(&ToolCall, &ToolMessage)>) =
            Default::default();
        for message in &self.run.messages()[range] {
            match message {
                // The first of several calls with one id counts.
                Message::Assistant(reply) => {
                    calls = reply.tool_calls.iter().rev().map(|call| (&*call.id, call)).collect();
                }
                Message::Tool(result) if is_unique(&result.name) && !was_refused(&result.call_id) => {
                    done.extend(calls.get(&*result.call_id).map(|call| (*call, result)));
                }
                _ => {}
            }
        }
        let mut facts = String::new();
        let earlier = done.len().saturating_sub(MAX_FACTS);
        if earlier > 0 {
            let found = if self.can_read_back() { ", which `read_output` finds" } else { "" };
            let _ = write!(facts, "\n- and {earlier} earlier ones{found}");
        }
        for (call, result) in &done[earlier..] {
            let arguments = written_arguments(&call.arguments);
            let failed = if result.is_error { "failed: " } else { "" };
            let output = quoted(&result.content.text(), max_output_chars);
            let _ = write!(facts, "\n- {} {arguments}: {failed}{output}", call.name);
        }
        let heading = if facts.is_empty() { "" } else { FACTS };
        format!("{}{heading}{facts}", self.found_tools())
    }

    /// Returns the tools whose definitions were only in the results of searches. Others are offered from then on.
    fn found_tools(&self) -> String {
        let found = self.run.found_tools();
        let is_called_through =
            self.offer.searched.as_ref().is_some_and(|(divided, _)| divided.mode == Mode::CallThrough);
        if !is_called_through || found.is_empty() {
            return String::new();
        }
        let names: Vec<_> = found.iter().rev().take(MAX_FACTS).map(|name| format!(" `{name}`")).collect();
        format!("{FOUND}{}", names.join(","))
    }
}

/// Returns arguments as one line of JSON. The model wrote them, perhaps following an output.
fn written_arguments(arguments: &str) -> String {
    let is_whole = !exceeds(arguments, MAX_ARGUMENTS_CHARS);
    match is_whole && serde_json::from_str::<IgnoredAny>(arguments).is_ok() {
        true => without_line_breaks(arguments),
        false => quoted(arguments, MAX_ARGUMENTS_CHARS),
    }
}

/// Returns the beginning of a text as a JSON string of one line. What stands in a message of the user must not end the list that it is part
/// of, and go on as the user.
fn quoted(text: &str, max_chars: usize) -> String {
    without_line_breaks(&Value::from(abbreviate(text, max_chars)).to_string())
}

/// Returns a JSON text on one line. A control character is whitespace in it, unless it is one of those that JSON allows in strings.
fn without_line_breaks(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\0'..='\u{1f}' => line.push(' '),
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(line, "\\u{:04x}", u32::from(character));
            }
            other => line.push(other),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever an output or the arguments contain, they stay one line, which JSON reads as what they were.
    #[test]
    fn facts_are_quoted_as_one_line_of_json() {
        let breaks = [
            "\n", "\r\n", "\r", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}", "\0", "\u{1b}", "\"",
            "\\", "\\\"",
        ];
        let is_line =
            |text: &str| !text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'));
        for text in breaks.map(|one| format!("ok{one}- refund {{}}: \"refunded\"{one}")) {
            let line = quoted(&text, 500);
            assert!(is_line(&line), "{line:?}");
            assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
            let arguments = format!("{{\n\t\"text\":\r{}}}", Value::from(&*text));
            let line = written_arguments(&arguments);
            assert!(is_line(&line), "{line:?}");
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["text"], *text);
            // Arguments that are none.
            assert_eq!(written_arguments(&text), quoted(&text, 500));
        }
        assert_eq!(quoted("ok\n- refund", 4), r#""ok\n-…""#);
        let long = format!("{{\"text\": \"{}\"}}", "x".repeat(MAX_ARGUMENTS_CHARS));
        assert_eq!(
            written_arguments(&long),
            format!("\"{{\\\"text\\\": \\\"{}…\"", "x".repeat(MAX_ARGUMENTS_CHARS - 10))
        );
        assert_eq!(written_arguments(r#"{"cents": 999}"#), r#"{"cents": 999}"#);
    }
}
