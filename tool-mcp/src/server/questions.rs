//! Questions of tools during a call: the host asks its user, and calls again with the answers.
//!
//! A call that asks is one by request (`CallRequest`) that ends with its notes, as for calls on other machines, so there is no replay of its
//! own here. The host keeps the request, encrypted, because values of `Asker::once` are none of its business, and because the next call need
//! not find a session. It is redeemed once in the process that sealed it, because what follows a question may be `at_most_once`.

use rmcp::model::{
    ElicitResult, ElicitationAction, ErrorData, InputRequests, InputRequiredResult, InputResponses,
    ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use tool_core::__internals::CallRequest;
use tool_core::run::{Decision, Wait};
use tool_core::tool::Timestamp;
use tool_core::{ToolCall, ToolError, ToolSet};

use super::form::{form_of, read_answer};
use super::sealed_state::{AskedCall, StateSealer};

/// The number of times that a call may ask the host.
const MAX_ROUNDS: usize = 10;

/// A call of a host, which may go on with answers.
pub(super) struct HostCall {
    pub(super) request: CallRequest,
    round: usize,
    /// The arguments of the host: a person may have approved others.
    arguments: String,
    /// The id of the caller.
    caller: String,
    /// The reason why the host cannot ask its user, if so.
    unable: Option<&'static str>,
}

impl HostCall {
    /// Creates a call that begins.
    pub(super) fn new(call: ToolCall, caller: String) -> Self {
        let arguments = call.arguments.clone();
        Self { request: CallRequest::standalone(call), round: 0, arguments, caller, unable: None }
    }

    /// Returns what a state of this call is valid for: its caller, its tool as it is, and its arguments in any order.
    fn binding(&self, tools: &ToolSet) -> Vec<u8> {
        let name = &self.request.call.name;
        let definition = tools.get(name).map(|tool| tool.definition().hash());
        let mut arguments: Value = serde_json::from_str(&self.arguments).unwrap_or_default();
        arguments.sort_all_objects();
        json!([self.caller, name, definition, arguments]).to_string().into_bytes()
    }

    /// Sets the reason why the host cannot ask its user.
    pub(super) fn set_unable(&mut self, why: &'static str) {
        // A call that has not asked yet need not be executed up to its question.
        if !self.is_continued() {
            self.request.refuse_questions(why);
        }
        self.unable = Some(why);
    }

    /// Returns `true` if the call has asked before.
    pub(super) fn is_continued(&self) -> bool {
        self.round > 0
    }

    /// Continues a call with the answers to what it has asked. Answers to anything else are ignored.
    pub(super) fn resume(
        &mut self,
        state: &str,
        responses: &InputResponses,
        sealer: &StateSealer,
        tools: &ToolSet,
    ) -> Result<(), ErrorData> {
        let now = Timestamp::now();
        let invalid = || {
            let data = json!({ "reason": "invalid_request_state" });
            let message = "the `requestState` is invalid, expired or used; call the tool again without it";
            ErrorData::invalid_params(message, Some(data))
        };
        let mut asked = sealer.open(state, &self.binding(tools), now).ok_or_else(invalid)?;
        let mut answers = Vec::new();
        for (key, wait) in questions(&asked.request) {
            if let Some(response) = responses.get(&key) {
                let response = serde_json::from_value::<ElicitResult>(response.clone());
                let response = response.map_err(|_| {
                    ErrorData::invalid_params("an input response is not the result of an elicitation", None)
                })?;
                answers.push((wait, response));
            }
        }
        if !sealer.redeem(&asked, now) {
            return Err(invalid());
        }
        asked.request.tick(now);
        for (wait, response) in answers {
            let decision = match (response.action, wait.question()) {
                (ElicitationAction::Accept, Some(question)) => {
                    read_answer(question, response.content.unwrap_or(Value::Null))
                }
                _ => Decision::decline(),
            };
            // What does not fit, or has come too late, is asked for again or has expired.
            let _ = asked.request.resolve(&wait.id, decision);
        }
        if asked.omits_arguments {
            asked.request.call.arguments.clone_from(&self.arguments);
        }
        (self.request, self.round) = (asked.request, asked.round);
        Ok(())
    }

    /// Returns `true` if the host has to ask its user. What it must not or cannot ask gets a reply with the reason.
    pub(super) fn has_to_ask(&mut self) -> bool {
        for (_, wait) in questions(&self.request) {
            let why = match (self.unable, wait.question()) {
                (Some(why), _) => why,
                (None, Some(question)) if question.is_secret() => {
                    "the answer is secret, and the host would read it"
                }
                (None, Some(question)) if form_of(question).is_none() => {
                    "no form of the host can express the answer"
                }
                _ => continue,
            };
            // An open question takes this.
            let _ = self.request.resolve(&wait.id, Decision::unavailable().because(why));
        }
        !questions(&self.request).is_empty()
    }

    /// Asks the host for what the call waits for.
    pub(super) fn ask(self, sealer: &StateSealer, tools: &ToolSet) -> Result<InputRequiredResult, ToolError> {
        if self.round >= MAX_ROUNDS {
            return Err(ToolError::failed(format!("the user was asked {MAX_ROUNDS} times without an end")));
        }
        let form = |(key, wait): (String, Wait)| Some((key, form_of(wait.question()?)?));
        let forms: InputRequests = questions(&self.request).into_iter().filter_map(form).collect();
        let binding = self.binding(tools);
        let mut asked = AskedCall::new(self.request, self.round + 1);
        asked.omits_arguments = asked.request.call.arguments == self.arguments;
        if asked.omits_arguments {
            asked.request.call.arguments.clear();
        }
        let state = sealer.seal(&asked, &binding).ok_or_else(|| {
            ToolError::failed("the tool has to ask the user, but has recorded too much to continue later")
        })?;
        Ok(InputRequiredResult::new(Some(forms), Some(state)))
    }
}

/// Returns the questions of a call in their order, each with its key.
fn questions(request: &CallRequest) -> Vec<(String, Wait)> {
    let waits = request.waits().into_iter().filter(|wait| wait.question().is_some());
    waits.enumerate().map(|(position, wait)| (format!("{position:02}_{}", wait.id), wait)).collect()
}

/// Returns the reason why a host cannot ask its user, if so.
pub(super) fn why_unable_to_ask(context: &RequestContext<RoleServer>) -> Option<&'static str> {
    let version = context.protocol_version();
    if version.is_none_or(|version| version.as_str() < ProtocolVersion::V_2026_07_28.as_str()) {
        return Some("the host uses a protocol that is older than 2026-07-28");
    }
    let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // A host that names no mode supports forms.
    let has_forms = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
    (!has_forms).then_some("the host has not declared that it shows forms to its user")
}
