//! The tool that reads what was hidden.
//!
//! Hidden messages stay readable through `read_output`. Its kind is that of a search, because the run's driver executes calls of that kind.

use std::fmt::Write;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::model::{Message, ToolKind};
use crate::run::{CompactionRecord, Run};
use crate::tool::{FunctionTool, ToolError};

/// The name of the tool.
pub(in crate::agent) const READ_OUTPUT: &str = "read_output";

/// The characters that are returned at once.
const MAX_CHARS: usize = 8_000;

/// The places of a search, and the characters around each.
const MAX_FOUND: usize = 40;
const CONTEXT_CHARS: usize = 100;

#[derive(Deserialize, JsonSchema)]
struct Read {
    /// the id of an output or message that was removed; without it, `search` searches all of them
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

/// Creates the tool that reads what the compactions of a run hide.
pub(super) fn reader(run: &Run) -> FunctionTool {
    let hidden = run.hidden();
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
    FunctionTool::new(READ_OUTPUT, move |read: Read| read_output(&removed, &read))
        .description("Reads or searches the outputs and messages that were removed from this conversation to save room.")
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

fn read_output(removed: &[Removed], read: &Read) -> Result<String, ToolError> {
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
    let text: String = found.text.chars().skip(from).take(MAX_CHARS).collect();
    let to = from.saturating_add(text.chars().count());
    Ok(match from == 0 && to == all {
        true => text,
        false => format!("characters {from} to {to} of {all}:\n{text}"),
    })
}

fn search_in<'a>(removed: impl Iterator<Item = &'a Removed>, search: &str) -> String {
    let search: Vec<char> = search.chars().flat_map(char::to_lowercase).collect();
    let (mut text, mut count) = (String::new(), 0_usize);
    for one in removed {
        let chars: Vec<char> = one.text.chars().collect();
        // One character each, so that positions are those of the text.
        let lower: Vec<char> = chars.iter().map(|one| one.to_lowercase().next().unwrap_or(*one)).collect();
        let mut at = 0;
        while let Some(found) = lower[at..].windows(search.len()).position(|window| *window == search[..]) {
            let start = at + found;
            count += 1;
            if count <= MAX_FOUND {
                let end = (start + search.len() + CONTEXT_CHARS).min(chars.len());
                let context: String = chars[start.saturating_sub(CONTEXT_CHARS)..end].iter().collect();
                let _ = writeln!(text, "{} {}, character {start}: {context}", one.speaker, one.id);
            }
            at = start + search.len() + CONTEXT_CHARS;
            if at >= lower.len() {
                break;
            }
        }
    }
    match count {
        0 => "nothing that was removed contains this".to_owned(),
        _ if count > MAX_FOUND => format!("{text}and {} more", count - MAX_FOUND),
        _ => text,
    }
}
