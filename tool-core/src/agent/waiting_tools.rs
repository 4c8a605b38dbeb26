//! The tools of the calls that a run waits for.

use std::collections::HashMap;

use crate::agent::{Agent, AgentTool};
use crate::run::{Run, Wait};
use crate::tool::{Tool, WaitId};

/// The names of the agents on the path of a call that waits, outermost first, and its tool, if it is known.
type WaitingTool<'a> = (Vec<String>, Option<&'a dyn Tool>);

/// Returns the tools of what a run and the agents inside wait for. All are found at once, because a model can propose thousands of
/// calls. The tools of an agent that a run was handed off to are not known.
pub fn waiting_tools<'a>(run: &Run, agent: Option<&'a Agent>) -> HashMap<WaitId, WaitingTool<'a>> {
    let mut found = HashMap::new();
    find(run, &[], &|name| agent?.tools().get(name), &mut found);
    found
}

fn find<'a>(
    run: &Run,
    agents: &[String],
    tool: &dyn Fn(&str) -> Option<&'a dyn Tool>,
    found: &mut HashMap<WaitId, WaitingTool<'a>>,
) {
    let tool = |name: &str| tool(name).filter(|_| run.handoffs().is_empty());
    // Those of the agents inside are among them, and get their own places below.
    // What a provider of tools asks belongs to no call.
    let tool_of = |wait: &Wait| tool(&wait.tool).filter(|_| !wait.path.is_empty());
    found.extend(run.waits().into_iter().map(|wait| (wait.id.clone(), (agents.to_vec(), tool_of(&wait)))));
    for inner in run.inner_runs() {
        let (outer, agents) = (tool(inner.agent()), [agents, &[inner.agent().to_owned()]].concat());
        find(inner.run(), &agents, &|name| AgentTool::of(outer?)?.agent().tools().get(name), found);
    }
}
