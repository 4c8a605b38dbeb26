//! The tool that reads what was hidden, and outputs that were too long.
//!
//! Hidden messages stay readable through `read_output`. Its kind is that of a search, because the run's driver executes calls of that kind.

use std::fmt::Write;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::outputs::{LongOutputs, READ_OUTPUT};
use crate::model::{ChatModel, Message, ToolKind};
use crate::run::{CompactionRecord, Run};
use crate::tool::{FunctionTool, ToolError};
use crate::toolset::{ToolSet, ToolSetError};

/// The characters that are returned at once.
const MAX_CHARS: usize = 8_000;

/// The characters of the line before a part, at most.
const HEADER_CHARS: usize = 80;

/// The places of a search, and the characters around each.
const MAX_FOUND: usize = 40;
const CONTEXT_CHARS: usize = 100;

const NOTHING: &str = "nothing that was removed contains this";

#[derive(Deserialize, JsonSchema)]
struct Read {
    /// the id of an output or message that was shortened or removed; without it, `search` searches all that were removed
    #[serde(default)]
    id: Option<String>,
    /// returns the places that contain this text, in any case
    #[serde(default)]
    search: Option<String>,
    /// the character to begin with, if the text was longer than one answer; 0 is the first
    #[serde(default)]
    from: Option<usize>,
}

/// A message that the model does not read in full any more.
struct Removed {
    /// The id of the call, or one derived from the position of the message.
    id: String,
    speaker: String,
    text: String,
}

/// Fails if a tool has the name of the one that reads.
pub(in crate::agent) fn check_reader_name(tools: &ToolSet) -> Result<(), ToolSetError> {
    let reader = ToolSet::default().with(FunctionTool::new(READ_OUTPUT, || ""))?;
    tools.clone().union(&reader).map(drop)
}

/// The tool that reads, for the state of a run.
#[derive(Clone, Default)]
pub(in crate::agent) struct Reader {
    /// The number of compactions that it knows, and the tool.
    tool: Option<(usize, ToolSet)>,
    /// The last tools, without it and with it.
    tools: Option<(ToolSet, ToolSet)>,
}

impl Reader {
    /// Adds the tool to the tools of a turn, unless its name is taken.
    pub(in crate::agent) fn add_to(
        &mut self,
        tools: ToolSet,
        run: &Run,
        model: &dyn ChatModel,
        outputs: Option<&LongOutputs>,
    ) -> ToolSet {
        // A model that is offered nothing may not be able to call anything.
        if tools.is_empty() || tools.get(READ_OUTPUT).is_some() {
            return tools;
        }
        let compactions = run.compactions().len();
        let set = match self.tool.take().filter(|(known, _)| *known == compactions) {
            Some((_, set)) => set,
            None => {
                self.tools = None;
                ToolSet::default().with(reader(run, model, outputs.cloned())).unwrap_or_default()
            }
        };
        let with = match &self.tools {
            Some((last, with)) if last.is_shared_with(&tools) => with.clone(),
            _ => {
                let with = tools.clone().union(&set).unwrap_or_else(|_| tools.clone());
                self.tools = Some((tools, with.clone()));
                with
            }
        };
        self.tool = Some((compactions, set));
        with
    }
}

/// Creates the tool that reads what the compactions of a run hide, and its long outputs.
fn reader(run: &Run, model: &dyn ChatModel, outputs: Option<LongOutputs>) -> FunctionTool {
    let hidden = run.hidden_as_sent(model);
    let messages = run.messages().iter().enumerate();
    let removed = messages.filter(|(position, message)| hidden.changes(*position, message));
    let removed = removed.map(|(position, message)| removed_message(position, message));
    let summaries = run.compactions().iter().filter_map(CompactionRecord::summary).enumerate();
    let summaries = summaries.map(|(number, text)| Removed {
        id: format!("summary-{number}"),
        speaker: "summary".to_owned(),
        text: text.to_owned(),
    });
    let removed: Arc<[Removed]> = removed.chain(summaries).collect();
    let id = run.id().clone();
    // Answers are limited like other outputs, and begin with a line.
    let page = outputs.as_ref().map_or(MAX_CHARS, |outputs| outputs.limit.saturating_sub(HEADER_CHARS));
    let page = page.clamp(1, MAX_CHARS);
    let read_output = move |read: Read| {
        let (removed, outputs, id) = (Arc::clone(&removed), outputs.clone(), id.clone());
        async move {
            let whole = match (&outputs, &read.id) {
                (Some(outputs), Some(call)) => outputs.store.load_output(&id, call).await,
                _ => Ok(None),
            };
            let whole =
                whole.map_err(|_| ToolError::failed("the output cannot be read now; try again later"))?;
            let has_stored = outputs.is_some();
            let whole = whole.zip(read.id.clone());
            match whole.map(|(text, id)| [Removed { id, speaker: "output".to_owned(), text }]) {
                Some(whole) => read_output(&whole, &read, page),
                None => read_output(&removed, &read, page).map(|text| match text.as_str() {
                    NOTHING if has_stored && read.id.is_none() => {
                        format!("{NOTHING}; outputs that were shortened are searched by their `id` alone")
                    }
                    _ => text,
                }),
            }
        }
    };
    FunctionTool::new(READ_OUTPUT, read_output)
        .description("Reads or searches the outputs and messages that were shortened or removed from this conversation to save room.")
        .with_kind(ToolKind::Search)
}

fn removed_message(position: usize, message: &Message) -> Removed {
    let mut text = message.text().into_owned();
    let (id, speaker) = match message {
        Message::Tool(result) => (result.call_id.clone(), result.name.clone()),
        Message::User(_) => (format!("message-{position}"), "user".to_owned()),
        Message::Assistant(_) | Message::System(_) => (format!("message-{position}"), "assistant".to_owned()),
    };
    for call in message.as_assistant().map(|reply| &*reply.tool_calls).unwrap_or_default() {
        let _ = write!(text, "\ncall {}: {} {}", call.id, call.name, call.arguments);
    }
    Removed { id, speaker, text }
}

fn read_output(removed: &[Removed], read: &Read, page: usize) -> Result<String, ToolError> {
    if let Some(search) = read.search.as_deref().filter(|search| !search.is_empty()) {
        let is_searched = |one: &&Removed| read.id.as_ref().is_none_or(|id| one.id == *id);
        return Ok(search_in(removed.iter().filter(is_searched), search));
    }
    let Some(id) = &read.id else {
        return Err(ToolError::failed("pass `id` to read an output, or `search` to search what was removed"));
    };
    // An id can be repeated in a conversation; the last one is meant.
    let found = removed.iter().rev().find(|one| one.id == *id);
    let found = found.ok_or_else(|| ToolError::failed(format!("nothing with the id `{id}` was removed")))?;
    let (from, all) = (read.from.unwrap_or_default(), found.text.chars().count());
    let text: String = found.text.chars().skip(from).take(page).collect();
    let to = from.saturating_add(text.chars().count());
    Ok(match from == 0 && to == all {
        true => text,
        false => format!("characters {from} to {to} of {all}:\n{text}"),
    })
}

fn search_in<'a>(removed: impl Iterator<Item = &'a Removed>, search: &str) -> String {
    let search: Vec<char> = search.chars().map(lowercase).collect();
    let failures = failures(&search);
    let (mut text, mut count) = (String::new(), 0_usize);
    for one in removed {
        // The next place is looked for behind the context of the last one.
        let (mut matched, mut next) = (0, 0);
        for (at, (end, found)) in one.text.char_indices().enumerate() {
            if at < next {
                continue;
            }
            let found_lower = lowercase(found);
            while matched > 0 && search[matched] != found_lower {
                matched = failures[matched - 1];
            }
            matched += usize::from(search[matched] == found_lower);
            if matched < search.len() {
                continue;
            }
            (matched, next) = (0, at + 1 + CONTEXT_CHARS);
            count += 1;
            if count <= MAX_FOUND {
                let start = at + 1 - search.len();
                let context = context(&one.text, end + found.len_utf8(), search.len());
                let _ = writeln!(text, "{} {}, character {start}: {context}", one.speaker, one.id);
            }
        }
    }
    match count {
        0 => NOTHING.to_owned(),
        _ if count > MAX_FOUND => format!("{text}and {} more", count - MAX_FOUND),
        _ => text,
    }
}

/// Returns one character in lower case for each, so that positions are those of the text.
fn lowercase(one: char) -> char {
    one.to_lowercase().next().unwrap_or(one)
}

/// Returns for each beginning of the text how much of it is a beginning again at its end (Knuth, Morris and Pratt), so that a search takes a
/// time that is linear in the text, whatever a model searches for.
fn failures(search: &[char]) -> Vec<usize> {
    let mut failures = vec![0; search.len()];
    for end in 1..search.len() {
        let mut length: usize = failures[end - 1];
        while length > 0 && search[length] != search[end] {
            length = failures[length - 1];
        }
        failures[end] = length + usize::from(search[length] == search[end]);
    }
    failures
}

/// Returns a place of so many characters that ends at a byte of the text, with the characters around it.
fn context(text: &str, end: usize, chars: usize) -> &str {
    let before = text[..end].char_indices().rev().nth(chars + CONTEXT_CHARS - 1).map_or(0, |(at, _)| at);
    let after = text[end..].char_indices().nth(CONTEXT_CHARS).map_or(text.len(), |(at, _)| end + at);
    &text[before..after]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, search: &str) -> Vec<usize> {
        let removed = Removed { id: "a".to_owned(), speaker: "read".to_owned(), text: text.to_owned() };
        let found = search_in([removed].iter(), search);
        let positions =
            found.lines().filter_map(|line| line.split_once("character ")?.1.split_once(':')?.0.parse().ok());
        positions.collect()
    }

    #[test]
    fn finds_characters_in_any_case() {
        let long = format!("{}aab{}AAB", "a".repeat(300), "\u{e4}".repeat(150));
        let table: [(&str, &str, &[usize]); 7] = [
            ("one Two three", "tWo", &[4]),
            ("\u{c4}pfel und \u{e4}pfel", "\u{e4}PFEL", &[0]),
            ("aaaab", "aab", &[2]),
            ("abcabcabd", "abcabd", &[3]),
            ("abc", "abcd", &[]),
            ("", "a", &[]),
            (&long, "aab", &[300, 453]),
        ];
        for (text, search, expected) in table {
            assert_eq!(found(text, search), expected, "{search} in {text}");
        }
        let text = "x".repeat(250) + "needle" + &"y".repeat(250);
        let removed = [Removed { id: "a".to_owned(), speaker: "read".to_owned(), text }];
        let expected = format!("read a, character 250: {}needle{}\n", "x".repeat(100), "y".repeat(100));
        assert_eq!(search_in(removed.iter(), "NEEDLE"), expected);
    }
}
