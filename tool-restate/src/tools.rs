//! The tools of a run, as they are recorded and compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tool_core::Agent;
use tool_core::agent::RunDriver;
use tool_core::engine::AgentExt;
use tool_core::model::{ToolDefinition, ToolPolicy};
use tool_core::provider::ToolKind;

use crate::names::digest;

/// The treatment of a run that started with other tools than the worker's agent has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangedTools {
    /// The run fails before its next turn, with the difference.
    #[default]
    Fail,
    /// The run waits until a worker has the tools that it started with: for [`Worker::model_patience`](crate::Worker::model_patience), and then for an operator.
    Wait,
    /// The model is offered those tools that are the same as at the start of the run, and reads which calls were not executed.
    Continue,
}

/// What a worker's program has of an agent.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Deployed {
    /// The agent's tools, by name, with the hashes of their definitions.
    pub(crate) tools: BTreeMap<String, String>,
    pub(crate) max_concurrent_calls: usize,
}

impl Deployed {
    pub(crate) fn of(agent: &Agent) -> Self {
        Self { tools: hashes(agent), max_concurrent_calls: agent.max_concurrent_calls() }
    }
}

/// The tools of a worker, compared with those that a run started with.
pub(crate) enum Tools {
    Same,
    /// The run fails, for this reason.
    Refused(String),
    /// The run continues with those that are the same.
    Changed(BTreeMap<String, String>),
}

/// The part of a tool that the rules of a run need.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct CalledTool {
    pub(crate) name: String,
    pub(crate) hash: String,
    pub(crate) policy: ToolPolicy,
    #[serde(default)]
    pub(crate) kind: ToolKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) undo: Option<(String, ToolPolicy)>,
    /// The hash of the tool that undoes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) undo_hash: Option<String>,
}

impl CalledTool {
    /// Returns the definition that the rules of a run need, without description and parameters.
    pub(crate) fn definition(&self) -> ToolDefinition {
        let definition = ToolDefinition::new(&*self.name).with_known_hash(&*self.hash);
        let definition = definition.with_policy(self.policy.clone()).with_kind(self.kind);
        match &self.undo {
            Some((undo, _)) => definition.with_undo(&**undo),
            None => definition,
        }
    }

    /// Returns the definition of the tool that undoes it.
    pub(crate) fn undo_definition(&self) -> Option<ToolDefinition> {
        let (name, policy) = self.undo.as_ref()?;
        let definition = ToolDefinition::new(&**name).with_policy(policy.clone());
        Some(match &self.undo_hash {
            Some(hash) => definition.with_known_hash(&**hash),
            None => definition,
        })
    }
}

/// Returns the hashes of an agent's tools. That of a tool that asks an agent or hands off to it covers the tools of this agent.
pub(crate) fn hashes(agent: &Agent) -> BTreeMap<String, String> {
    let definitions = agent.tools().definitions().iter().chain(agent.undo_tools().definitions());
    let hash = |one: &ToolDefinition| {
        let inner = agent.agent_at([one.name()]);
        inner.map_or_else(|| one.hash(), |inner| digest(&(one.hash(), hashes(inner))))
    };
    definitions.map(|one| (one.name().to_owned(), hash(one))).collect()
}

/// Returns the part of a tool that was offered.
pub(crate) fn called_tool(driver: &RunDriver, name: &str) -> Option<CalledTool> {
    let offered = driver.tools();
    let definition = offered.get(name)?.definition();
    let undo = definition.undo().and_then(|undo| {
        let tool = driver.agent().undo_tools().get(undo).or_else(|| offered.get(undo))?;
        Some(tool.definition())
    });
    Some(CalledTool {
        name: name.to_owned(),
        hash: definition.hash(),
        policy: definition.policy().clone(),
        kind: definition.kind(),
        undo: undo.map(|undo| (undo.name().to_owned(), undo.policy().clone())),
        undo_hash: undo.map(ToolDefinition::hash),
    })
}

/// Describes how the tools of a worker differ from those that a run started with.
pub(crate) fn difference(before: &BTreeMap<String, String>, present: &BTreeMap<String, String>) -> String {
    let list =
        |names: Vec<&String>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let missing: Vec<_> = before.keys().filter(|name| !present.contains_key(*name)).collect();
    let new: Vec<_> = present.keys().filter(|name| !before.contains_key(*name)).collect();
    let is_changed = |(name, hash): &(&String, &String)| present.get(*name).is_some_and(|now| now != *hash);
    let changed: Vec<_> = before.iter().filter(is_changed).map(|(name, _)| name).collect();
    let parts = [("missing", missing), ("new", new), ("changed", changed)];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<_> = parts.map(|(what, names)| format!("{what}: {}", list(names))).collect();
    format!(
        "the worker has other tools than the run started with ({}); deploy it under another URI, \
         or set `.changed_tools(..)`",
        parts.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_each_tool() {
        let tools = |list: &[(&str, &str)]| {
            list.iter()
                .map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let text = difference(
            &tools(&[("a", "1"), ("b", "1"), ("c", "1")]),
            &tools(&[("b", "2"), ("c", "1"), ("d", "1")]),
        );
        assert!(text.contains("(missing: `a`; new: `d`; changed: `b`)"), "{text}");
    }
}
