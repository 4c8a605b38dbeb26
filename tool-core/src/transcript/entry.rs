//! What there is to tell of a conversation, one thing after the other.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::content::{Content, Part};
use crate::model::{Message, ToolMessage};
use crate::tool::ToolExecution;
use crate::transcript::Transcript;

/// How the results of calls begin that were not made, where there is no record of the call that says so.
const NOT_MADE: [&str; 2] = ["the call was not made", "the call was denied"];

/// One thing that was said or done.
pub(super) enum Entry<'a> {
    System(Cow<'a, str>),
    User(Cow<'a, str>),
    Thought(&'a str),
    Answer(&'a str),
    Refusal(&'a str),
    /// The calls of one reply.
    Calls(Vec<Call<'a>>),
}

/// One call, and what came of it.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    /// Nothing if there is a result only.
    pub(super) arguments: Option<&'a str>,
    pub(super) outcome: Outcome<'a>,
    execution: Option<&'a ToolExecution>,
}

pub(super) enum Outcome<'a> {
    Output(Cow<'a, str>),
    Error(Cow<'a, str>),
    NotMade(Cow<'a, str>),
    /// There is no result.
    Open,
}

impl<'a> Call<'a> {
    fn new(
        name: &'a str,
        arguments: Option<&'a str>,
        result: Option<&'a ToolMessage>,
        execution: Option<&'a ToolExecution>,
    ) -> Self {
        let outcome = match result {
            None => Outcome::Open,
            Some(result) => {
                let text = text_of(&result.content);
                let is_not_made = match execution {
                    Some(execution) => execution.outcome().is_err_and(|error| error.is_not_made()),
                    None => result.is_error && NOT_MADE.iter().any(|words| text.starts_with(words)),
                };
                match (is_not_made, result.is_error) {
                    (true, _) => Outcome::NotMade(text),
                    (false, true) => Outcome::Error(text),
                    (false, false) => Outcome::Output(text),
                }
            }
        };
        Self { name, arguments, outcome, execution }
    }

    /// What was measured and what was mended, such as ` (1.2ms, 1 argument mended)`; empty if there is nothing to tell.
    pub(super) fn remarks(&self) -> String {
        let Some(execution) = self.execution else { return String::new() };
        let mut remarks = Vec::new();
        if !execution.duration().is_zero() {
            remarks.push(format!("{:.1?}", execution.duration()));
        }
        let ignored = execution.repairs().iter().filter(|repair| repair.is_ignored()).count();
        for (count, what) in [(execution.repairs().len() - ignored, "mended"), (ignored, "ignored")] {
            match count {
                0 => {}
                1 => remarks.push(format!("1 argument {what}")),
                _ => remarks.push(format!("{count} arguments {what}")),
            }
        }
        if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join(", ")) }
    }
}

/// All there is to tell. Results stand at their calls, in the order of the calls.
pub(super) fn entries<'a>(transcript: &Transcript<'a>) -> Vec<Entry<'a>> {
    let executions: HashMap<&str, &ToolExecution> =
        transcript.executions.iter().map(|execution| (&*execution.call().id, execution)).collect();
    let mut entries = Vec::new();
    let mut messages = transcript.messages;
    while let [message, behind @ ..] = messages {
        messages = behind;
        match message {
            Message::System(content) => entries.push(Entry::System(text_of(content))),
            Message::User(content) => entries.push(Entry::User(text_of(content))),
            Message::Assistant(message) => {
                entries
                    .extend(message.reasoning.as_deref().filter(|text| !text.is_empty()).map(Entry::Thought));
                let says_nothing = message.refusal.is_some() || !message.tool_calls.is_empty();
                if !message.text.is_empty() || !says_nothing {
                    entries.push(Entry::Answer(&message.text));
                }
                entries.extend(message.refusal.as_deref().map(Entry::Refusal));
                let mut results: HashMap<&str, Option<&ToolMessage>> =
                    message.tool_calls.iter().map(|call| (&*call.id, None)).collect();
                while let [Message::Tool(result), behind @ ..] = messages {
                    let Some(place @ None) = results.get_mut(&*result.call_id) else { break };
                    *place = Some(result);
                    messages = behind;
                }
                let calls = message.tool_calls.iter().map(|call| {
                    let result = results.get(&*call.id).copied().flatten();
                    let execution = executions.get(&*call.id).copied();
                    Call::new(&call.name, Some(&call.arguments), result, execution)
                });
                let calls: Vec<_> = calls.collect();
                if !calls.is_empty() {
                    entries.push(Entry::Calls(calls));
                }
            }
            Message::Tool(result) => {
                let execution = executions.get(&*result.call_id).copied();
                entries.push(Entry::Calls(vec![Call::new(&result.name, None, Some(result), execution)]));
            }
        }
    }
    entries
}

/// The text of a content, with a word for each picture.
fn text_of(content: &Content) -> Cow<'_, str> {
    if content.images().next().is_none() {
        return content.text();
    }
    let words = content.parts().iter().map(|part| match part {
        Part::Image(image) => match (image.media_type(), image.base64()) {
            (Some(media_type), _) => format!("[image: {media_type}]").into(),
            (None, Some(_)) => Cow::Borrowed("[image]"),
            (None, None) => format!("[image: {}]", image.url()).into(),
        },
        other => Cow::Borrowed(other.as_text().unwrap_or_default()),
    });
    words.collect::<Vec<_>>().join("\n").into()
}

/// A text of at most so many characters, and how many more there are; every break of a line is `\n`, and there is no
/// other control character in it than the tabulator.
pub(super) fn tidy(text: &str, longest: usize) -> String {
    let mut tidied = String::with_capacity(text.len().min(longest));
    let mut characters = text.chars().peekable();
    let mut room = longest;
    while room > 0 {
        let Some(character) = characters.next() else { return tidied };
        room -= 1;
        match character {
            '\r' if characters.peek() == Some(&'\n') => room += 1,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => tidied.push('\n'),
            '\t' => tidied.push('\t'),
            // What is no character of XML would break the drawing.
            '\u{fffe}' | '\u{ffff}' => tidied.push(char::REPLACEMENT_CHARACTER),
            _ if character.is_control() => tidied.push(char::REPLACEMENT_CHARACTER),
            _ => tidied.push(character),
        }
    }
    match characters.count() {
        0 => {}
        1 => tidied.push_str(" [… 1 more character]"),
        more => tidied.push_str(&format!(" [… {more} more characters]")),
    }
    tidied
}

/// A name as one line, as a stranger may have written it.
pub(super) fn tidy_name(name: &str) -> String {
    const LONGEST: usize = 64;
    let name = tidy(name.trim(), LONGEST).replace(['\n', '\t'], " ");
    if name.is_empty() { "(no name)".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_tidied_and_cut() {
        let table = [
            ("", 3, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "abc [… 1 more character]"),
            ("äöüßé", 3, "äöü [… 2 more characters]"),
            ("ab", 0, " [… 2 more characters]"),
            ("a\r\nb\rc\nd\u{2028}e\u{85}f", 99, "a\nb\nc\nd\ne\nf"),
            ("\r\n\r\n", 2, "\n\n"),
            ("\u{1b}[31m\0\u{9b}\u{ffff}\t", 99, "\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}\t"),
        ];
        for (text, longest, expected) in table {
            assert_eq!(tidy(text, longest), expected, "{text:?}");
        }
    }

    #[test]
    fn names_are_one_line() {
        let long = "a".repeat(70);
        let cut = "a".repeat(64) + " [… 6 more characters]";
        let table =
            [("sum", "sum"), ("", "(no name)"), (" \n", "(no name)"), ("a\nb\tc", "a b c"), (&long, &cut)];
        for (name, expected) in table {
            assert_eq!(tidy_name(name), expected);
        }
    }
}
