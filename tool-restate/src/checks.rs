//! Agents that cannot run durably are refused before a worker serves them.

use std::collections::{BTreeMap, BTreeSet};

use tool_core::engine::AgentExt;
use tool_core::model::ToolDefinition;
use tool_core::provider::ToolKind;
use tool_core::{Agent, Tool, ToolSet};

use crate::names::{calls_service, tool_service};

/// The error of a worker that cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The worker has neither agents nor tools.
    #[error("the worker has nothing to execute; add an agent with `.agent(agent)`")]
    Empty,
    /// An agent has no name, or one that the engine does not accept.
    #[error("{0}")]
    Name(String),
    /// An agent has a part that a durable run replaces.
    #[error("{0}")]
    Unsupported(String),
    /// A key of the server is invalid.
    #[error("{0}")]
    IdentityKey(String),
    /// The address cannot be listened on.
    #[error("the worker cannot listen")]
    Listen(#[source] std::io::Error),
}

/// Returns the names of the services that execute calls: one for each tool, and one for the tools of providers.
pub(crate) fn services<'a>(owner: &str, tools: impl IntoIterator<Item = &'a ToolSet>) -> BTreeSet<String> {
    let definitions = tools.into_iter().flat_map(|tools| tools.definitions().iter());
    let tools = definitions.map(|one| tool_service(owner, one.name(), &one.hash()));
    tools.chain([calls_service(owner)]).collect()
}

/// Refuses to route the calls of agents that are tools: which of the values of a question these agents take is not known elsewhere.
pub(crate) fn check_routes(
    routes: &BTreeMap<String, String>,
    agent: &Agent,
    name: &str,
) -> Result<(), WorkerError> {
    for (tool, inner) in agent.agent_tools() {
        let inner = tree_of(inner.agent()).flat_map(|one| one.tools().definitions().iter());
        let mut routed = inner.map(ToolDefinition::name).chain([tool]);
        if let Some(tool) = routed.find(|tool| routes.contains_key(*tool)) {
            return Err(WorkerError::Unsupported(format!(
                "the agent `{name}` has an agent as a tool, and `tools_at` names `{tool}`, which is this tool or one of that agent: \
                 leave it out of `tools_at`"
            )));
        }
    }
    agent.handoffs().try_for_each(|(_, other)| check_routes(routes, other, name))
}

/// Returns an agent, those that are its tools, and those that it hands off to, at all depths.
pub(crate) fn tree_of(agent: &Agent) -> Box<dyn Iterator<Item = &Agent> + '_> {
    let inner = agent.agent_tools().map(|(_, tool)| tool.agent());
    let others = inner.chain(agent.handoffs().map(|(_, other)| other)).flat_map(tree_of);
    Box::new(std::iter::once(agent).chain(others))
}

/// Refuses agents with parts that a durable run replaces. Returns the name of the agent.
pub(crate) fn check(agent: &Agent) -> Result<String, WorkerError> {
    let Some(name) = agent.name() else {
        return Err(WorkerError::Name(
            "a durable agent needs a name, by which clients ask it; set `.name(\"clerk\")`".into(),
        ));
    };
    let whose = format!("the agent `{name}`");
    refuse(
        &whose,
        [
            (
                agent.memory().is_some(),
                "has a `memory`, but the conversations of durable runs are objects of the engine: \
                 leave it out, and ask with `.conversation(id)`",
            ),
            (
                agent.run_store().is_some(),
                "has a `run_store`, but the engine stores durable runs: leave it out; conversations are objects of the engine, \
                 too, with `.conversation(id)`",
            ),
        ],
    )?;
    check_tree(agent, &whose)?;
    Ok(name.to_owned())
}

/// Refuses parts that neither a durable run nor one inside of it can have.
fn check_tree(agent: &Agent, whose: &str) -> Result<(), WorkerError> {
    let is_agent = |tool: &dyn Tool| tool.definition().kind() == ToolKind::Agent;
    let is_wrapped = |tool: &dyn Tool| is_agent(tool) && agent.agent_tool(tool.definition().name()).is_none();
    refuse(
        whose,
        [
            (
                agent.has_decider(),
                "has a `decider`, but durable runs wait for decisions without a process: leave it out, \
                 and decide with `RemoteRun::decide`",
            ),
            (
                agent.has_output_store(),
                "has an `output_store`, but the engine stores what durable runs have: leave it out, and limit outputs by \
                 `max_output_chars`",
            ),
            (
                agent.undo_tools().iter().any(is_agent),
                "has an agent among its `undo_tools`, whose own calls would not be recorded: undo calls with another tool",
            ),
            (
                agent.tools().iter().any(is_wrapped),
                "has a tool that contains an agent, whose own calls would not be recorded: add the agent itself, and judge its calls \
                 by a layer",
            ),
        ],
    )?;
    for (name, tool) in agent.agent_tools() {
        let inside = format!("the agent of the tool `{name}` of {whose}");
        let why = "has an `own_conversation` in its `memory`, but conversations are objects of the engine, and of the agents \
                   that clients ask: leave it out";
        refuse(&inside, [(tool.has_conversation(), why)])?;
        check_tree(tool.agent(), &inside)?;
    }
    for (name, other) in agent.handoffs() {
        check_tree(other, &format!("the agent of the handoff `{name}` of {whose}"))?;
    }
    Ok(())
}

/// Fails with the reason of the first part that is there.
fn refuse<const N: usize>(whose: &str, parts: [(bool, &str); N]) -> Result<(), WorkerError> {
    match parts.into_iter().find(|(is_there, _)| *is_there) {
        Some((_, why)) => Err(WorkerError::Unsupported(format!("{whose} {why}"))),
        None => Ok(()),
    }
}
