//! The entries of a transcript.

use std::borrow::Cow;
use std::collections::HashMap;

use super::transcript::Transcript;
use crate::content::{Content, Part, printable};
use crate::model::{Message, ToolMessage};
use crate::tool::{ToolErrorKind, ToolExecution};

/// Prefixes of the results of calls that were not executed, for calls that have no execution.
const NOT_EXECUTED: [&str; 3] = ["the call was not executed", "the call was not made", "the call was denied"];

/// The limit of characters per name.
pub(super) const MAX_NAME_CHARS: usize = 64;

/// An entry of a transcript.
pub(super) enum Entry<'a> {
    System(Cow<'a, str>),
    User(Cow<'a, str>),
    Reasoning(&'a str),
    Answer(&'a str),
    Refusal(&'a str),
    /// The calls of one message.
    Calls(Vec<Call<'a>>),
    /// Later messages of the model belong to the agent with this name.
    Handoff(&'a str),
}

/// A call and its outcome.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    /// `None` for a result without a call.
    pub(super) arguments: Option<&'a str>,
    pub(super) outcome: Outcome<'a>,
    execution: Option<&'a ToolExecution>,
    /// The conversations of the agent that the call asked.
    pub(super) inner: Vec<Vec<Entry<'a>>>,
}

pub(super) enum Outcome<'a> {
    Output(Cow<'a, str>),
    Error(Cow<'a, str>),
    NotExecuted(Cow<'a, str>),
    Missing,
}

impl<'a> Call<'a> {
    fn new(
        name: &'a str,
        arguments: Option<&'a str>,
        result: Option<&'a ToolMessage>,
        execution: Option<&'a ToolExecution>,
    ) -> Self {
        let outcome = match result {
            None => Outcome::Missing,
            Some(result) => {
                let text = text_of(&result.content);
                let is_not_executed = match execution {
                    Some(execution) => {
                        execution.outcome().is_err_and(|error| error.kind() == ToolErrorKind::NotExecuted)
                    }
                    None => result.is_error && NOT_EXECUTED.iter().any(|prefix| text.starts_with(prefix)),
                };
                match (is_not_executed, result.is_error) {
                    (true, _) => Outcome::NotExecuted(text),
                    (false, true) => Outcome::Error(text),
                    (false, false) => Outcome::Output(text),
                }
            }
        };
        Self { name, arguments, outcome, execution, inner: Vec::new() }
    }

    fn with_inner(mut self, transcript: &Transcript<'a>, id: &str) -> Self {
        let inner = transcript.inner.iter().filter(|(call_id, _)| *call_id == id);
        self.inner = inner.map(|(_, inner)| entries(inner)).collect();
        self
    }

    pub(super) fn annotations(&self) -> String {
        self.execution.map_or_else(String::new, annotations)
    }
}

/// Returns the duration and the number of repairs of a call, such as ` (1.2ms, 1 argument repaired)`, or an empty string.
pub(super) fn annotations(execution: &ToolExecution) -> String {
    let mut annotations = Vec::new();
    if !execution.duration().is_zero() {
        annotations.push(format!("{:.1?}", execution.duration()));
    }
    let ignored = execution.repairs().iter().filter(|repair| repair.is_ignored()).count();
    for (count, what) in [(execution.repairs().len() - ignored, "repaired"), (ignored, "ignored")] {
        match count {
            0 => {}
            1 => annotations.push(format!("1 argument {what}")),
            _ => annotations.push(format!("{count} arguments {what}")),
        }
    }
    if annotations.is_empty() { String::new() } else { format!(" ({})", annotations.join(", ")) }
}

/// Returns the entries of a transcript, with each result beside its call.
pub(super) fn entries<'a>(transcript: &Transcript<'a>) -> Vec<Entry<'a>> {
    let executions: HashMap<&str, &ToolExecution> =
        transcript.executions.iter().map(|execution| (&*execution.call().id, execution)).collect();
    let mut entries = Vec::new();
    let mut messages = transcript.messages;
    while let [message, rest @ ..] = messages {
        messages = rest;
        match message {
            Message::System(content) => entries.push(Entry::System(text_of(content))),
            Message::User(content) => entries.push(Entry::User(text_of(content))),
            Message::Assistant(message) => {
                entries.extend(
                    message.reasoning.as_deref().filter(|text| !text.is_empty()).map(Entry::Reasoning),
                );
                let has_other_entries = message.refusal.is_some() || !message.tool_calls.is_empty();
                if !message.text.is_empty() || !has_other_entries {
                    entries.push(Entry::Answer(&message.text));
                }
                entries.extend(message.refusal.as_deref().map(Entry::Refusal));
                let mut results: HashMap<&str, Option<&ToolMessage>> =
                    message.tool_calls.iter().map(|call| (&*call.id, None)).collect();
                while let [Message::Tool(result), rest @ ..] = messages {
                    let Some(slot @ None) = results.get_mut(&*result.call_id) else { break };
                    *slot = Some(result);
                    messages = rest;
                }
                let calls = message.tool_calls.iter().map(|call| {
                    let result = results.get(&*call.id).copied().flatten();
                    let execution = executions.get(&*call.id).copied();
                    Call::new(&call.name, Some(&call.arguments), result, execution)
                        .with_inner(transcript, &call.id)
                });
                let calls: Vec<_> = calls.collect();
                if !calls.is_empty() {
                    entries.push(Entry::Calls(calls));
                }
                let handoffs = transcript.handoffs.iter().filter(|(id, _)| results.contains_key(id));
                entries.extend(handoffs.map(|(_, agent)| Entry::Handoff(agent)));
            }
            Message::Tool(result) => {
                let execution = executions.get(&*result.call_id).copied();
                entries.push(Entry::Calls(vec![Call::new(&result.name, None, Some(result), execution)]));
            }
        }
    }
    entries
}

/// Returns the text of a content, with a placeholder for each image and file.
pub(super) fn text_of(content: &Content) -> Cow<'_, str> {
    if content.parts().iter().all(|part| part.as_text().is_some()) {
        return content.text();
    }
    let texts = content.parts().iter().map(|part| match part {
        Part::Image(image) => match (image.media_type(), image.base64()) {
            (Some(media_type), _) => format!("[image: {media_type}]").into(),
            (None, Some(_)) => Cow::Borrowed("[image]"),
            (None, None) => format!("[image: {}]", image.url()).into(),
        },
        Part::File(file) => format!("[file: {}]", file.label()).into(),
        other => Cow::Borrowed(other.as_text().unwrap_or_default()),
    });
    texts.collect::<Vec<_>>().join("\n").into()
}

/// Truncates a text to `max_chars` characters and appends the number of omitted ones. Line breaks become `\n`, and
/// what a person does not see is escaped.
pub(super) fn sanitize(text: &str, max_chars: usize) -> String {
    let mut sanitized = String::with_capacity(text.len().min(max_chars));
    let mut characters = text.chars().peekable();
    let mut room = max_chars;
    while room > 0
        && let Some(character) = characters.next()
    {
        room -= 1;
        match character {
            '\r' if characters.peek() == Some(&'\n') => room += 1,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => sanitized.push('\n'),
            _ => sanitized.push(character),
        }
    }
    let mut sanitized = printable(&sanitized).into_owned();
    match characters.count() {
        0 => {}
        1 => sanitized.push_str(" [… 1 more character]"),
        more => sanitized.push_str(&format!(" [… {more} more characters]")),
    }
    sanitized
}

/// Returns an untrusted name as a single line.
pub(super) fn sanitize_name(name: &str, max_chars: usize) -> String {
    let name = sanitize(name.trim(), max_chars).replace(['\n', '\t'], " ");
    if name.is_empty() { "(no name)".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sanitizes_and_truncates_texts() {
        let table = [
            ("", 3, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "abc [… 1 more character]"),
            ("äöüßé", 3, "äöü [… 2 more characters]"),
            ("ab", 0, " [… 2 more characters]"),
            ("a\r\nb\rc\nd\u{2028}e\u{85}f", 99, "a\nb\nc\nd\ne\nf"),
            ("\r\n\r\n", 2, "\n\n"),
            ("\u{1b}[31m\0\u{9b}\u{ffff}\t", 99, "\\u{1b}[31m\\u{0}\\u{9b}\\u{ffff}\t"),
        ];
        for (text, max_chars, expected) in table {
            assert_eq!(sanitize(text, max_chars), expected, "{text:?}");
        }
    }

    #[test]
    fn sanitized_names_are_one_line() {
        let long = "a".repeat(70);
        let cut = "a".repeat(64) + " [… 6 more characters]";
        let table =
            [("sum", "sum"), ("", "(no name)"), (" \n", "(no name)"), ("a\nb\tc", "a b c"), (&long, &cut)];
        for (name, expected) in table {
            assert_eq!(sanitize_name(name, MAX_NAME_CHARS), expected);
        }
    }
}
