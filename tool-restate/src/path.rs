//! The way from the outermost run to one inside of it.

use std::fmt;

use serde::{Deserialize, Serialize};
use tool_core::Event;

/// A call that asks an agent, on the way from the outermost run to one inside of it.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) call: String,
    /// The name of the tool.
    pub(crate) agent: String,
}

/// Returns the ids of the calls that lead to a run.
pub(crate) fn call_ids(path: &[Asked]) -> Vec<&str> {
    path.iter().map(|asked| &*asked.call).collect()
}

/// Returns the names of the tools that lead to an agent.
pub(crate) fn agent_names(path: &[Asked]) -> Vec<&str> {
    path.iter().map(|asked| &*asked.agent).collect()
}

/// Returns the name of the stream of the events of a step in a run, such as the turn 3 or the call `call_1_0`.
pub(crate) fn stream_name(path: &[Asked], what: &str, which: impl fmt::Display) -> String {
    let inside: String = path.iter().map(|asked| format!("{}/", asked.call)).collect();
    format!("{what}-{inside}{which}")
}

/// Returns the event of a run inside of others, as the readers of the outermost one see it.
pub(crate) fn event_at(path: &[Asked], event: Event) -> Event {
    path.iter().rev().fold(event, |event, asked| event.inside(&*asked.agent, &*asked.call))
}
