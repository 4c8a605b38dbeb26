//! The ids of the calls that a caller receives while a run waits for it, which lead back to the run in every process that has its store.
//!
//! What connects a request with its run is in the ids of calls and in the decisions of the run, because everything beside the run store
//! would be lost in a restart.

use serde::Serialize;
use tool_core::Message;
use tool_core::run::Run;
use tool_core::tool::WaitId;
use tool_http::random_id;
use tool_http::server::Caller;

use super::backend::BackendRequest;

/// The first part of the ids of calls.
const CALL: &str = "call_";

/// The first part of the ids of questions, by which they are recognized in a conversation.
pub(super) const QUESTION: &str = "ask_";

/// The hexadecimal digits of a run's number and of a tag. Some providers take ids of at most 40 characters.
const NUMBER_DIGITS: usize = 22;
const TAG_DIGITS: usize = 13;

/// The ids of the calls that follow a conversation of a caller.
///
/// An id consists of a random number, which leads to a run only together with the caller's key, and of the tag of what the run waits for. The
/// tag covers the conversation that the caller has sent, because the run continues no other one, and the id of the run's conversation, which
/// callers do not know: they cannot make the id of a wait that is not theirs.
pub(super) struct CallIds {
    caller: Caller,
    number: String,
    conversation: String,
}

impl CallIds {
    /// Returns the ids of the calls that follow these messages, for the run with this number.
    pub(super) fn new(request: &BackendRequest, number: String, messages: &[Message]) -> Self {
        let conversation = digest(request.caller, &(&request.model, messages));
        Self { caller: request.caller, number, conversation }
    }

    /// Returns a number for a new run.
    pub(super) fn new_number() -> String {
        random_id("").split_off(32 - NUMBER_DIGITS)
    }

    /// Splits an id into the number of its run and its tag. Returns `None` for an id of another server.
    pub(super) fn split(id: &str) -> Option<(&str, &str)> {
        let digits = id.strip_prefix(CALL).or_else(|| id.strip_prefix(QUESTION))?;
        let is_ours = digits.len() == NUMBER_DIGITS + TAG_DIGITS && digits.is_ascii();
        is_ours.then(|| digits.split_at(NUMBER_DIGITS))
    }

    /// Returns the id of a run of a model.
    pub(super) fn run_id(request: &BackendRequest, number: &str) -> String {
        format!("run_{}", request.caller.derive_id(&format!("{number} {}", request.model)))
    }

    pub(super) fn call(&self, run: &Run, wait: &WaitId) -> String {
        format!("{CALL}{}{}", self.number, self.tag(run, wait))
    }

    pub(super) fn question(&self, run: &Run, wait: &WaitId) -> String {
        format!("{QUESTION}{}{}", self.number, self.tag(run, wait))
    }

    pub(super) fn tag(&self, run: &Run, wait: &WaitId) -> String {
        let covered = (&self.number, &self.conversation, run.conversation(), wait);
        let mut tag = digest(self.caller, &covered);
        tag.truncate(TAG_DIGITS);
        tag
    }
}

/// Returns a digest that identifies a request, whether or not its answer is streamed.
pub(super) fn request_digest(BackendRequest { caller, model, chat, .. }: &BackendRequest) -> String {
    let tools: Vec<_> = chat.tools().iter().collect();
    let settings = (chat.tool_choice(), chat.parallel_tool_calls(), chat.response_format(), chat.options());
    digest(*caller, &(model, chat.messages(), tools, settings))
}

fn digest(caller: Caller, value: &impl Serialize) -> String {
    // These values can always be written.
    caller.derive_id(&serde_json::to_string(value).unwrap_or_default())
}
