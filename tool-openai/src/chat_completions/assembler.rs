//! Puts a response together from its pieces; a whole answer is one piece.

use tool_core::{AssistantMessage, ChatResponse, Delta, FinishReason, ToolCall, Usage};

use super::response::{Completion, WireCall, WireMessage};
use crate::quirks;
use crate::streaming::Problem;

/// What has come of a response.
#[derive(Default)]
pub(super) struct Assembler {
    id: Option<String>,
    model: Option<String>,
    message: AssistantMessage,
    calls: Vec<Slot>,
    finish_reason: Option<FinishReason>,
    usage: Option<Usage>,
    has_choice: bool,
}

/// One call that is coming.
struct Slot {
    index: Option<u32>,
    call: ToolCall,
    /// The call had no id when it was told of; it keeps the one that it was given then.
    has_made_up_id: bool,
    /// Its position among the calls that were told of, once it has a name.
    told: Option<usize>,
}

/// What the entries of a list of calls are.
#[derive(Clone, Copy)]
enum Calls {
    Whole,
    Fragments,
}

impl Assembler {
    /// Takes in a piece, and tells what is new; a reason to finish that is a failure of the provider is a problem.
    pub(super) fn add_piece(
        &mut self,
        piece: Completion<'_>,
        tell: &mut impl FnMut(Delta),
    ) -> Result<(), Problem> {
        self.id = self.id.take().or(piece.id.filter(|id| !id.is_empty()));
        self.model = self.model.take().or(piece.model.filter(|model| !model.is_empty()));
        if let Some(usage) = piece.usage {
            self.usage = Some(usage.into());
        }
        let choices = piece.choices.into_iter().flatten();
        for choice in choices.filter(|choice| choice.index.unwrap_or(0) == 0) {
            self.has_choice = true;
            if let Some(message) = choice.message {
                self.add_message(message, Calls::Whole, tell);
            }
            if let Some(delta) = choice.delta {
                self.add_message(delta, Calls::Fragments, tell);
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                if quirks::is_failure(&reason) {
                    let why = format!("the provider gave the reply up, with the finish reason `{reason}`");
                    return Err(Problem::GivenUp(why));
                }
                self.finish_reason = Some(finish_reason(reason));
            }
        }
        Ok(())
    }

    fn add_message(&mut self, message: WireMessage, calls: Calls, tell: &mut impl FnMut(Delta)) {
        let content = message.content.unwrap_or_default();
        for thought in [message.reasoning_content.or(message.reasoning), Some(content.thinking)] {
            if let Some(thought) = thought.filter(|thought| !thought.is_empty()) {
                self.message.reasoning.get_or_insert_default().push_str(&thought);
                tell(Delta::Reasoning(thought));
            }
        }
        if let Some(refusal) = message.refusal.filter(|refusal| !refusal.is_empty()) {
            self.message.refusal.get_or_insert_default().push_str(&refusal);
        }
        if !content.text.is_empty() {
            self.message.text.push_str(&content.text);
            tell(Delta::Text(content.text));
        }
        for call in message.tool_calls.into_iter().flatten() {
            self.add_call(call, calls, tell);
        }
    }

    fn add_call(&mut self, fragment: WireCall, calls: Calls, tell: &mut impl FnMut(Delta)) {
        let id = fragment.id.filter(|id| !id.trim().is_empty());
        let (name, arguments) =
            fragment.function.map_or((None, None), |function| (function.name, function.arguments));
        let position = match calls {
            Calls::Whole => self.new_slot(None),
            Calls::Fragments => self.slot(fragment.index, id.as_deref()),
        };
        let told_so_far = self.calls.iter().filter(|slot| slot.told.is_some()).count();
        let slot = &mut self.calls[position];
        if let Some(id) = id.filter(|_| !slot.has_made_up_id) {
            slot.call.id = id;
        }
        // Some servers repeat the name in every fragment: it is set once.
        if let Some(name) = name.filter(|name| slot.call.name.is_empty() && !name.trim().is_empty()) {
            slot.call.name = name;
        }
        let arguments = arguments.unwrap_or_default();
        slot.call.arguments.push_str(&arguments);
        // Arguments that came before the name are told with it.
        match slot.told {
            Some(index) if !arguments.is_empty() => tell(Delta::Arguments { index, text: arguments }),
            None if !slot.call.name.is_empty() => {
                slot.told = Some(told_so_far);
                if slot.call.id.is_empty() {
                    slot.call.id = made_up_id(self.id.as_deref(), position);
                    slot.has_made_up_id = true;
                }
                tell(Delta::ToolCall {
                    index: told_so_far,
                    id: slot.call.id.clone(),
                    name: slot.call.name.clone(),
                });
                if !slot.call.arguments.is_empty() {
                    tell(Delta::Arguments { index: told_so_far, text: slot.call.arguments.clone() });
                }
            }
            _ => {}
        }
    }

    /// The slot that a fragment belongs to. The index is the key, where there is one; but one index with
    /// two ids are two calls, and without an index a new id is a new call.
    fn slot(&mut self, index: Option<u32>, id: Option<&str>) -> usize {
        let is_same_id = |slot: &Slot| {
            id.is_none_or(|id| slot.call.id.is_empty() || slot.has_made_up_id || slot.call.id == id)
        };
        let found = match (index, id) {
            (Some(_), _) => self.calls.iter().rposition(|slot| slot.index == index && is_same_id(slot)),
            (None, Some(id)) => self.calls.iter().rposition(|slot| slot.call.id == id),
            (None, None) => self.calls.len().checked_sub(1),
        };
        found.unwrap_or_else(|| self.new_slot(index))
    }

    fn new_slot(&mut self, index: Option<u32>) -> usize {
        self.calls.push(Slot { index, call: ToolCall::new("", "", ""), has_made_up_id: false, told: None });
        self.calls.len() - 1
    }

    /// Something of the response has come.
    pub(super) fn has_begun(&self) -> bool {
        self.has_choice
    }

    /// A reason to finish has come.
    pub(super) fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// The response, of what has come.
    pub(super) fn into_response(self) -> ChatResponse {
        let Self { id, model, mut message, calls, finish_reason, usage, has_choice: _ } = self;
        let calls = calls.into_iter().map(|slot| slot.call);
        // DeepSeek ends with a call that is nothing.
        let calls = calls.filter(|call| !(call.name.is_empty() && call.arguments.is_empty()));
        message.tool_calls = calls.collect();
        let mut response = ChatResponse::new(message);
        if let Some(reason) = finish_reason {
            response.finish_reason = reason;
        }
        response.usage = usage;
        response.id = id;
        response.model = model;
        response
    }
}

/// An id for a call that came without: the response's name and the call's position, which no other call has.
fn made_up_id(response: Option<&str>, position: usize) -> String {
    format!("call_{}_{position}", response.unwrap_or_default())
}

fn finish_reason(wire: String) -> FinishReason {
    match &*wire {
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Other(wire),
    }
}
