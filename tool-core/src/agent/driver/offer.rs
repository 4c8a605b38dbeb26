//! The tools and options of a turn, and the step with them.

use std::sync::Arc;

use crate::agent::run_tools::RunTools;
use crate::agent::tool_search::{Divided, Mode, SentMessages};
use crate::agent::turn::Changes;
use crate::model::{ToolDefinitions, ToolPolicy};
use crate::run::{InFlight, Run, Step};
use crate::toolset::ToolSet;

/// The tools and options of a turn.
#[derive(Default)]
pub(in crate::agent) struct Offer {
    /// The tools in which calls are looked up, and which the model is offered if there is no search.
    pub(super) tools: ToolSet,
    /// The tools that the model finds, and the definitions that it is offered.
    pub(super) searched: Option<(Arc<Divided>, ToolDefinitions)>,
    /// The changes of a hook to this turn.
    pub(super) changes: Option<Changes>,
    /// The tools were resolved for this turn.
    pub(super) is_resolved: bool,
}

/// Returns the policy of the tool with this name that undoes calls of the agent after this number of handoffs.
pub(super) fn undo_policy(
    tools: &RunTools,
    earlier: &[RunTools],
    handoffs: usize,
    name: &str,
) -> Option<ToolPolicy> {
    earlier.get(handoffs).unwrap_or(tools).undo.policy(name)
}

/// Returns the run's next step, with the changes of a hook to the turn.
pub(super) fn next_step<'a>(
    run: &'a mut Run,
    offer: &'a Offer,
    sent: Option<&'a SentMessages>,
    tools: &RunTools,
    earlier: &[RunTools],
) -> Step<'a> {
    let undo_policy = |handoffs, name: &str| undo_policy(tools, earlier, handoffs, name);
    let step = run.next_with_undo_tools(offer.tools.definitions(), undo_policy, &InFlight::NONE);
    let Step::CallModel(mut request) = step else { return step };
    if let Some((divided, offered)) = &offer.searched {
        request = request.with_tools(offered).with_tool_search(divided.mode == Mode::ByProvider);
    }
    if let Some(sent) = sent {
        request = request.with_other_messages(&sent.messages, Some(&sent.cache));
    }
    if let Some(Changes { options, tool_choice, messages }) = &offer.changes {
        request = request.with_options(options.clone()).with_tool_choice(tool_choice.clone());
        if let Some(messages) = messages {
            request = request.with_other_messages(messages, None);
        }
    }
    Step::CallModel(request)
}
