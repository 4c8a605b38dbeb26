//! The tools and options of a turn, and the step with them.

use std::sync::Arc;

use super::sent::Sent;
use crate::agent::run_tools::RunTools;
use crate::agent::tool_search::{Divided, Mode};
use crate::model::{ChatRequest, Message, ToolDefinitions, ToolPolicy};
use crate::run::{Run, SharedRequest, Step};
use crate::toolset::ToolSet;

/// The tools and options of a turn.
#[derive(Clone, Default)]
pub(in crate::agent) struct Offer {
    /// The tools in which calls are looked up, and which the model is offered if there is no search.
    pub(super) tools: ToolSet,
    /// The tools that the model finds, and the definitions that it is offered.
    pub(super) searched: Option<(Arc<Divided>, ToolDefinitions)>,
    /// The messages to send in place of the run's own.
    pub(super) messages: Option<Vec<Message>>,
    /// The tools were resolved for this turn.
    pub(super) is_resolved: bool,
}

impl Offer {
    /// Returns the request for the model, with what is offered.
    pub(super) fn request<'a>(&'a self, run: &'a Run, sent: &'a Sent) -> ChatRequest<'a> {
        self.add_to(run.request(self.tools.definitions()), sent)
    }

    /// Returns the request of a run that is not borrowed, with what is offered.
    pub(super) fn request_of<'a>(&'a self, run: &'a SharedRequest, sent: &'a Sent) -> ChatRequest<'a> {
        self.add_to(run.with_tools(self.tools.definitions()), sent)
    }

    fn add_to<'a>(&'a self, mut request: ChatRequest<'a>, sent: &'a Sent) -> ChatRequest<'a> {
        if let Some((divided, offered)) = &self.searched {
            request = request.with_tools(offered).with_tool_search(divided.mode == Mode::ByProvider);
        }
        request = sent.add_to(request);
        if let Some(messages) = &self.messages {
            request = request.with_other_messages(messages, None);
        }
        request
    }
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

/// Returns the run's next step, with what is offered.
pub(super) fn next_step<'a>(
    run: &'a mut Run,
    offer: &'a Offer,
    sent: &'a Sent,
    tools: &RunTools,
    earlier: &[RunTools],
) -> Step<'a> {
    let undo_policy = |handoffs, name: &str| undo_policy(tools, earlier, handoffs, name);
    run.forget_in_flight();
    let step = run.next_with_undo_tools(offer.tools.definitions(), undo_policy);
    match step {
        Step::CallModel(request) => Step::CallModel(offer.add_to(request, sent)),
        step => step,
    }
}

/// Returns the messages without the earlier turns of the run: those between the question and the last reply with its results. Messages of
/// the user stay.
pub(super) fn without_earlier_turns(run: &Run) -> Option<Vec<Message>> {
    let messages = run.sent_messages();
    let question = run.messages().len() - run.new_messages().len();
    let last_reply = messages.iter().rposition(|message| matches!(message, Message::Assistant(_)));
    let earlier = question..last_reply.unwrap_or_default();
    let is_left_out = |(position, message): &(usize, &Message)| {
        earlier.contains(position) && matches!(message, Message::Assistant(_) | Message::Tool(_))
    };
    let enumerated = || messages.iter().enumerate();
    let kept = enumerated().filter(|one| !is_left_out(one)).map(|(_, message)| message.clone());
    enumerated().any(|one| is_left_out(&one)).then(|| kept.collect())
}
