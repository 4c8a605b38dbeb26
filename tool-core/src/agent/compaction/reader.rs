//! The tool that reads what was hidden.

use std::fmt::Write;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::content::abbreviate;
use crate::model::{Message, ToolKind};
use crate::run::Run;
use crate::tool::{FunctionTool, ToolError};

/// The name of the tool.
pub(in crate::agent) const READ_OUTPUT: &str = "read_output";

/// The lines that are returned by default, and the characters at most.
const LINES: usize = 200;
const MAX_CHARS: usize = 8_000;

/// The lines of a search, and the characters of each.
const MAX_FOUND: usize = 40;
const MAX_FOUND_CHARS: usize = 200;

#[derive(Deserialize, JsonSchema)]
struct Read {
    /// the id of the call whose output is read; without it, `search` searches everything that was removed
    #[serde(default)]
    id: Option<String>,
    /// returns the lines that contain this text, in any case
    #[serde(default)]
    search: Option<String>,
    /// the first line to return, beginning at 1
    #[serde(default)]
    from: Option<usize>,
    /// how many lines are returned
    #[serde(default)]
    lines: Option<usize>,
}

/// A message that the model does not read in full any more.
struct Removed {
    /// Empty for messages that are no outputs.
    id: String,
    speaker: String,
    text: String,
}

/// Creates the tool that reads what the compactions of a run hide.
pub(super) fn reader(run: &Run) -> FunctionTool {
    let hidden = run.hidden();
    let messages = run.messages().iter().enumerate();
    let removed = messages.filter(|(position, message)| hidden.changes(*position, message));
    let removed: Arc<[Removed]> = removed.map(|(_, message)| removed_message(message)).collect();
    FunctionTool::new(READ_OUTPUT, move |read: Read| read_output(&removed, &read))
        .description("Reads or searches the outputs and messages that were removed from this conversation to save room.")
        .with_kind(ToolKind::Search)
        .pure()
}

fn removed_message(message: &Message) -> Removed {
    let text = message.text().into_owned();
    let (id, speaker) = match message {
        Message::Tool(result) => (result.call_id.clone(), result.name.clone()),
        Message::User(_) => (String::new(), "user".to_owned()),
        Message::Assistant(_) | Message::System(_) => (String::new(), "assistant".to_owned()),
    };
    Removed { id, speaker, text }
}

fn read_output(removed: &[Removed], read: &Read) -> Result<String, ToolError> {
    if let Some(search) = read.search.as_deref().filter(|search| !search.is_empty()) {
        let is_searched = |one: &&Removed| read.id.as_ref().is_none_or(|id| one.id == *id);
        return Ok(search_lines(removed.iter().filter(is_searched), search));
    }
    let Some(id) = &read.id else {
        return Err(ToolError::failed("pass `id` to read an output, or `search` to search what was removed"));
    };
    // An id can be repeated in a conversation; the last one is meant.
    let found = removed.iter().rev().find(|one| one.id == *id);
    let found =
        found.ok_or_else(|| ToolError::failed(format!("no output with the id `{id}` was removed")))?;
    let from = read.from.unwrap_or(1).max(1);
    let all = found.text.lines().count();
    let lines = found.text.lines().skip(from - 1).take(read.lines.unwrap_or(LINES).max(1));
    let text = lines.collect::<Vec<_>>().join("\n");
    let last = from.saturating_add(text.lines().count()).saturating_sub(1);
    Ok(format!("lines {from} to {last} of {all}:\n{}", abbreviate(&text, MAX_CHARS)))
}

fn search_lines<'a>(removed: impl Iterator<Item = &'a Removed>, search: &str) -> String {
    let (search, mut text, mut count) = (search.to_lowercase(), String::new(), 0_usize);
    for one in removed {
        let lines = one.text.lines().enumerate();
        for (number, line) in lines.filter(|(_, line)| line.to_lowercase().contains(&search)) {
            count += 1;
            if count <= MAX_FOUND {
                let (id, line) = (&one.id, abbreviate(line, MAX_FOUND_CHARS));
                let place = if id.is_empty() { String::new() } else { format!(" {id}") };
                let _ = writeln!(text, "{}{place}, line {}: {line}", one.speaker, number + 1);
            }
        }
    }
    match count {
        0 => "nothing that was removed contains this".to_owned(),
        _ if count > MAX_FOUND => format!("{text}and {} more", count - MAX_FOUND),
        _ => text,
    }
}
