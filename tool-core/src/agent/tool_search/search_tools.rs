//! The tools that the model is offered in place of those that it finds.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::{CALL_TOOL, SEARCH_TOOLS, ToolSearch};
use crate::content::abbreviate;
use crate::model::{ToolDefinition, ToolDefinitions, ToolKind};
use crate::tool::future::on_blocking_thread_if_any;
use crate::tool::{FunctionTool, ToolError, ToolOutput};
use crate::toolset::{ToolSet, name_groups, search};

/// The bytes of definitions that one search makes available. A server can send definitions of any length.
const MAX_DEFINITION_BYTES: usize = 16_000;

/// The characters of a description in a list of tools, and of a source in the description of the search.
const MAX_DESCRIPTION_CHARS: usize = 300;
const MAX_SOURCE_CHARS: usize = 100;

/// The groups of names that a search without a match lists, and the names in each.
const MAX_GROUPS: usize = 50;
const MAX_GROUP_NAMES: usize = 10;

/// The sources that the description of the search lists.
const MAX_SOURCES: usize = 20;

#[derive(Deserialize, JsonSchema)]
struct Search {
    /// keywords of what the tool should do, in the language of the tools, such as `convert currency`
    query: String,
}

#[derive(Deserialize, JsonSchema)]
struct Call {
    /// the name of a tool that `search_tools` returned
    name: String,
    /// the arguments, as the parameters of that tool require
    #[serde(default)]
    #[schemars(with = "serde_json::Map<String, Value>")]
    #[expect(dead_code, reason = "describes the arguments to the model")]
    arguments: Option<Value>,
}

/// Creates the tool that searches in these sources, which together are `all`.
pub(super) fn search_tools(settings: &ToolSearch, all: &ToolSet, sources: &[ToolSet]) -> FunctionTool {
    let sources: Arc<[ToolDefinitions]> = sources.iter().map(|source| source.definitions().clone()).collect();
    let (max_results, calls_through) = (settings.max_results, settings.calls_through);
    // The middle of a longer output would be left out.
    let max_bytes = all.output_limit().map_or(MAX_DEFINITION_BYTES, |limit| limit.min(MAX_DEFINITION_BYTES));
    let description = describe(all, calls_through);
    FunctionTool::new(SEARCH_TOOLS, move |Search { query }: Search| {
        let sources = Arc::clone(&sources);
        // Servers supply the texts, and the first search indexes them.
        on_blocking_thread_if_any(move || {
            let found = search(&*sources, &query, max_results);
            if found.is_empty() {
                return list_groups(&sources, max_bytes);
            }
            if calls_through { show(&found, max_bytes) } else { list(&found, max_bytes) }
        })
    })
    .description(description)
    .with_kind(ToolKind::Search)
    .pure()
}

/// Creates the tool by which the model calls others. Its calls become calls of the other tools before the run sees them, except calls
/// that name no tool.
pub(super) fn call_tool() -> FunctionTool {
    let refuse = |Call { name, arguments: _ }: Call| -> Result<String, ToolError> {
        Err(ToolError::failed(format!("`{CALL_TOOL}` cannot call `{name}` in this way; call it directly")))
    };
    FunctionTool::new(CALL_TOOL, refuse)
        .with_kind(ToolKind::CallThrough)
        .description(format!("Calls a tool that `{SEARCH_TOOLS}` has found, by its name."))
}

/// Describes the search: how the tools that it finds are called, and where they come from, so that the model knows what there can be.
/// Contains nothing that changes during a run, because the description precedes the messages.
fn describe(all: &ToolSet, calls_through: bool) -> String {
    let mut description = String::from("Searches further tools, which are not listed here. ");
    description.push_str(if calls_through {
        "Returns their definitions; call them with `call_tool`."
    } else {
        "The tools that it finds can be called from the next turn on."
    });
    description.push_str(" Search before you state that something cannot be done.");
    let mut sources: Vec<_> = all.iter().filter_map(|tool| tool.origin()).collect();
    sources.sort_unstable();
    sources.dedup();
    let sources: Vec<_> =
        sources.iter().take(MAX_SOURCES).map(|one| one_line(one, MAX_SOURCE_CHARS)).collect();
    if !sources.is_empty() {
        description.extend([" There are tools of ", &sources.join(", "), "."]);
    }
    description
}

/// Lists the tools that can be called from now on. The data of the output names those whose definitions are to be appended.
fn list(found: &[&ToolDefinition], max_bytes: usize) -> ToolOutput {
    let mut text = first_line(found, "They can be called from now on:");
    let mut names = Vec::new();
    let mut left = max_bytes;
    for definition in found {
        let line = line(definition);
        match left.checked_sub(definition.to_json().to_string().len()) {
            Some(rest) => {
                left = rest;
                names.push(definition.name());
                text.extend(["\n- ", &line]);
            }
            None => text.extend(["\n- ", &line, " (its parameters are too long to be shown)"]),
        }
    }
    ToolOutput::text(text).with_data(json!({ "found": names }))
}

/// Lists the names of all tools by their first word, so that the model learns the words of the tools.
fn list_groups(sources: &[ToolDefinitions], max_bytes: usize) -> ToolOutput {
    let mut text = String::from(
        "No tool matches. Search with other words, one task at a time. These are the names of the tools, grouped by \
         their first word:",
    );
    for (word, names) in
        name_groups(sources.iter().flat_map(|source| source.iter())).into_iter().take(MAX_GROUPS)
    {
        let shown = names.iter().take(MAX_GROUP_NAMES).copied().collect::<Vec<_>>().join(", ");
        let more = if names.len() > MAX_GROUP_NAMES { ", …" } else { "" };
        let line = format!("\n- {word} ({}): {shown}{more}", names.len());
        if text.len() + line.len() > max_bytes {
            break;
        }
        text.push_str(&line);
    }
    ToolOutput::text(text)
}

/// Shows the definitions of the tools, each on one line. The data of the output has their names, for when the text is removed.
fn show(found: &[&ToolDefinition], max_bytes: usize) -> ToolOutput {
    let mut text = first_line(found, "Call them with `call_tool`:");
    let names: Vec<_> = found.iter().map(|definition| definition.name()).collect();
    let mut left = max_bytes.saturating_sub(text.len());
    for definition in found {
        let mut line = definition.to_json().to_string();
        if line.len() >= left {
            line = format!("{} (its parameters are too long to be shown)", self::line(definition));
        }
        left = left.saturating_sub(line.len() + 1);
        text.extend(["\n", &line]);
    }
    ToolOutput::text(text).with_data(json!({ "found": names }))
}

fn first_line(found: &[&ToolDefinition], how: &str) -> String {
    match found.len() {
        1 => format!("Found 1 tool. {}", how.replace("They", "It").replace("them", "it")),
        count => format!("Found {count} tools, the best match first. {how}"),
    }
}

fn line(definition: &ToolDefinition) -> String {
    let description = one_line(definition.description().unwrap_or_default(), MAX_DESCRIPTION_CHARS);
    format!("{}: {description}", definition.name())
}

/// Returns the beginning of a text, which can come from an untrusted server, without line breaks.
fn one_line(text: &str, max_chars: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    abbreviate(&text, max_chars).into_owned()
}
