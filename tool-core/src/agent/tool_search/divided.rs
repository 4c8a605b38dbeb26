//! The tools of a turn, divided into those that are offered and those that are found.

use std::collections::HashSet;

use super::options::{Mode, ToolSearch};
use super::search_tools::{call_tool, search_tools};
use crate::model::{ChatModel, ToolDefinition, ToolDefinitions, ToolKind};
use crate::tool::ToolExecution;
use crate::toolset::{ToolSet, ToolSetError};

/// The tools of a turn. Some of them are found by search.
pub(in crate::agent) struct Divided {
    /// The tools before those that search were added.
    all: ToolSet,
    /// The tools in which calls are looked up: all, and those that search.
    pub(in crate::agent) tools: ToolSet,
    /// The definitions that the model is offered from the first turn on.
    offered: ToolDefinitions,
    hidden: HashSet<String>,
    /// The tools of this question that are always offered.
    always: Vec<String>,
    pub(in crate::agent) mode: Mode,
}

impl Divided {
    /// Divides the tools of a turn, which come from these sources. `always` has the names of those that are offered in any case.
    /// Returns `None` if all of them are.
    pub(in crate::agent) fn new(
        search: &ToolSearch,
        model: &dyn ChatModel,
        all: &ToolSet,
        sources: &[ToolSet],
        always: &[&str],
    ) -> Result<Option<Self>, ToolSetError> {
        let is_searched = all.len() >= search.min_tools;
        let offered_always: HashSet<_> =
            search.always.iter().map(String::as_str).chain(always.iter().copied()).collect();
        let is_always = |tool: &ToolDefinition| {
            // A model that should hand the run over does not search for a tool.
            offered_always.contains(tool.name()) || tool.kind() == ToolKind::Handoff
        };
        let is_hidden = |tool: &ToolDefinition| (is_searched || tool.is_deferred()) && !is_always(tool);
        let names = all.definitions().iter().filter(|tool| is_hidden(tool));
        let hidden: HashSet<_> = names.map(|tool| tool.name().to_owned()).collect();
        if hidden.is_empty() {
            return Ok(None);
        }
        let mode = search.mode(model, all.len());
        let mut tools = all.clone();
        if mode != Mode::ByProvider {
            tools = tools.with(search_tools(search, all, sources))?;
        }
        if mode == Mode::CallThrough {
            tools = tools.with(call_tool())?;
        }
        let is_hidden = |tool: &ToolDefinition| hidden.contains(tool.name());
        let offered = match mode {
            Mode::ByProvider => deferred_if(all.definitions(), is_hidden),
            _ => tools.definitions().iter().filter(|tool| !is_hidden(tool)).cloned().collect(),
        };
        let always = always.iter().copied().map(str::to_owned).collect();
        Ok(Some(Self { all: all.clone(), tools, offered, hidden, always, mode }))
    }

    /// Returns `true` if these are the tools that were divided, and those that are always offered.
    pub(in crate::agent) fn is_of(&self, all: &ToolSet, always: &[&str]) -> bool {
        self.all.is_shared_with(all) && self.always == always
    }

    /// Returns `true` if the model is offered the tool only once it has found it.
    pub(in crate::agent) fn is_hidden(&self, name: &str) -> bool {
        self.hidden.contains(name)
    }

    /// Returns the definitions to offer. The tools with these names need not be found.
    pub(in crate::agent) fn offered_with(&self, names: &[String]) -> ToolDefinitions {
        if names.is_empty() {
            return self.offered.clone();
        }
        if self.mode == Mode::ByProvider {
            let is_hidden =
                |tool: &ToolDefinition| tool.is_deferred() && !names.iter().any(|name| name == tool.name());
            return deferred_if(&self.offered, is_hidden);
        }
        // Behind the others, so that what was sent before stays the same.
        let more = names.iter().filter_map(|name| self.all.get(name)).map(|tool| tool.definition());
        self.offered.iter().chain(more).cloned().collect()
    }

    /// Returns the names of the tools that a call has found, if it was a search.
    pub(in crate::agent) fn found_by<'e>(
        &self,
        execution: &'e ToolExecution,
    ) -> impl Iterator<Item = &'e str> {
        let tool = self.tools.get(&execution.call().name);
        let is_search =
            execution.was_executed() && tool.is_some_and(|tool| tool.definition().kind() == ToolKind::Search);
        let data = execution.output().filter(|_| is_search).and_then(|one| one.data());
        let names = data.and_then(|data| data.get("found")?.as_array());
        names.into_iter().flatten().filter_map(|name| name.as_str())
    }
}

/// Returns the definitions, those deferred for which this holds.
fn deferred_if(
    definitions: &ToolDefinitions,
    is_deferred: impl Fn(&ToolDefinition) -> bool,
) -> ToolDefinitions {
    definitions.iter().map(|tool| tool.clone().with_deferred(is_deferred(tool))).collect()
}
