//! The tool that reads what was hidden, and outputs that were too long.
//!
//! Hidden messages stay readable through `read_output`. Its kind is that of a search, because the run's driver executes calls of that kind.

use std::fmt::Write;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::outputs::{LongOutputs, READ_OUTPUT};
use crate::model::{Message, ToolKind};
use crate::run::{CompactionRecord, Run};
use crate::tool::{FunctionTool, ToolError};
use crate::toolset::ToolSet;

/// The characters that are returned at once.
const MAX_CHARS: usize = 8_000;

/// The characters of the line before a part, at most.
const HEADER_CHARS: usize = 80;

/// The places of a search, and the characters around each.
const MAX_FOUND: usize = 40;
const CONTEXT_CHARS: usize = 100;

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

/// The tool that reads, for the state of a run.
#[derive(Default)]
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
                ToolSet::default().with(reader(run, outputs.cloned())).unwrap_or_default()
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
fn reader(run: &Run, outputs: Option<LongOutputs>) -> FunctionTool {
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
    let id = run.id().clone();
    // Answers are limited like other outputs, and begin with a line.
    let page = outputs.as_ref().map_or(MAX_CHARS, |outputs| outputs.limit.saturating_sub(HEADER_CHARS));
    let page = page.clamp(1, MAX_CHARS);
    let read_output = move |read: Read| {
        let (removed, outputs, id) = (Arc::clone(&removed), outputs.clone(), id.clone());
        async move {
            let whole = match (outputs, &read.id) {
                (Some(outputs), Some(call)) => outputs.store.load_output(&id, call).await,
                _ => Ok(None),
            };
            let whole =
                whole.map_err(|_| ToolError::failed("the output cannot be read now; try again later"))?;
            let whole = whole.zip(read.id.clone());
            match whole.map(|(text, id)| [Removed { id, speaker: "output".to_owned(), text }]) {
                Some(whole) => read_output(&whole, &read, page),
                None => read_output(&removed, &read, page),
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
