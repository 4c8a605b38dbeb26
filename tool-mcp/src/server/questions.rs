//! Questions of tools during a call: the host asks its user, and calls again with the answers.
//!
//! A call that asks is one by request (`CallRequest`) that ends with its notes, as for calls on other machines, so there is no replay of its
//! own here. The host keeps the request, encrypted, because values of `Asker::once` are none of its business, and because the next call need
//! not find a session. It is redeemed once in the process that sealed it, because what follows a question may be `at_most_once`.
//!
//! A host of an older revision is asked during its call instead, which stays open.

use std::future::ready;
use std::time::Duration;

use rmcp::model::{
    ClientResult, ElicitRequest, ElicitResult, ElicitationAction, ErrorData, InputRequest, InputRequests,
    InputRequiredResult, InputResponses, ProtocolVersion, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RequestHandle, RoleServer};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tool_core::__internals::CallRequest;
use tool_core::model::RunUser;
use tool_core::run::{Decision, Wait};
use tool_core::tool::Timestamp;
use tool_core::{ToolCall, ToolError, ToolSet};
use tool_http::server::{Caller, SenderPermits, Shutdown};

use super::form::{form_of, read_answer};
use super::sealed_state::{AskedCall, StateSealer, TIME_TO_LIVE};
use super::task_id::TaskId;

/// The number of times that a call may ask the host.
const MAX_ROUNDS: usize = 10;

/// The most calls whose host is asked while they are open, and those of one caller. Each holds a permit of the requests in flight.
const MAX_ASKING: usize = 512;
const MAX_ASKING_OF_CALLER: usize = 64;

/// Returns the permits of [`HostCall::ask_now`].
pub(super) fn permits_to_ask() -> SenderPermits {
    SenderPermits::new(MAX_ASKING, MAX_ASKING_OF_CALLER)
}

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
    /// The task that the call can become.
    task: Option<TaskId>,
    can_become_task: bool,
    is_deferred: bool,
}

impl HostCall {
    /// Creates a call that begins.
    pub(super) fn new(call: ToolCall, caller: Caller) -> Self {
        let (arguments, caller) = (call.arguments.clone(), caller.derive_id("request state"));
        let request = CallRequest::standalone(call);
        let (task, can_become_task, is_deferred) = (None, false, false);
        Self { request, round: 0, arguments, caller, unable: None, task, can_become_task, is_deferred }
    }

    /// Gives a call that begins the key of a run, of which it may become a part.
    pub(super) fn with_task(mut self, task: TaskId, caller: Caller, user: Option<RunUser>) -> Self {
        let key = format!("{}/{}", task.run_id(caller), self.request.call.id);
        self.request.attempt.key = key.into();
        self.request.user = user;
        self.task = Some(task);
        self
    }

    /// States that the host follows tasks: a call that waits for something else than its user becomes one.
    pub(super) fn allow_task(&mut self) {
        self.can_become_task = self.task.is_some();
    }

    /// Returns `true` if the call becomes a task when it waits.
    pub(super) fn can_become_task(&self) -> bool {
        self.can_become_task
    }

    /// Makes the request wait for the call, as for hosts that do not follow tasks.
    pub(super) fn refuse_task(&mut self) {
        self.can_become_task = false;
    }

    /// Returns `true` if the call was executed until it had to wait, and so may have had an effect.
    pub(super) fn was_executed(&self) -> bool {
        !self.request.waits().is_empty()
    }

    /// Records that the decider of the server has deferred the approval of the call.
    pub(super) fn defer(&mut self) {
        self.is_deferred = true;
    }

    /// Returns `true` if the decider of the server has been asked and has not decided.
    pub(super) fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    /// Returns why nobody approves the call, if it cannot become a task.
    pub(super) fn why_not_approved(&self) -> &'static str {
        match self.task {
            Some(_) => "a person of this service has to approve it, and this host cannot wait for that",
            None => "no one is available to approve it",
        }
    }

    /// Returns what becomes a task, with its id.
    pub(super) fn into_task(self) -> Option<(TaskId, CallRequest)> {
        Some((self.task?, self.request))
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
        // A call that has not asked yet need not be executed up to its question. That of a task is answered by others.
        if !self.is_continued() && !self.can_become_task {
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
                answers.push((wait, read_response(response)?));
            }
        }
        if !sealer.redeem(&asked, &self.caller, now) {
            return Err(invalid());
        }
        asked.request.tick(now);
        for (wait, response) in answers {
            // What does not fit, or has come too late, is asked for again or has expired.
            let _ = asked.request.resolve(&wait.id, decision_of(&wait, response));
        }
        if asked.omits_arguments {
            asked.request.call.arguments.clone_from(&self.arguments);
        }
        (self.request, self.round, self.task) = (asked.request, asked.round, asked.task);
        Ok(())
    }

    /// Returns `true` if the host has to ask its user. What it must not or cannot ask gets a reply with the reason, unless the call can wait
    /// for others.
    pub(super) fn has_to_ask(&mut self) -> bool {
        for (_, wait) in questions(&self.request) {
            let Some(why) = self.unable.or_else(|| why_not_asked(&wait)) else { continue };
            if self.can_become_task {
                return false;
            }
            // An open question takes this.
            let _ = self.request.resolve(&wait.id, Decision::unavailable().because(why));
        }
        !questions(&self.request).is_empty()
    }

    fn begin_round(&mut self) -> Result<(), ToolError> {
        if self.round >= MAX_ROUNDS {
            return Err(ToolError::failed(format!("the user was asked {MAX_ROUNDS} times without an end")));
        }
        self.round += 1;
        Ok(())
    }

    /// Asks a host of an older revision for what the call waits for. The call stays open until its user has answered.
    ///
    /// A server that stops takes no answers, so nobody can be asked from then on.
    pub(super) async fn ask_now(
        &mut self,
        peer: &Peer<RoleServer>,
        shutdown: &Shutdown,
        asking: &SenderPermits,
    ) -> Result<(), ToolError> {
        self.begin_round()?;
        let permit = asking.acquire(&*self.caller);
        for (_, wait) in questions(&self.request) {
            // It may have expired while another one was answered.
            if !self.request.waits().iter().any(|open| open.id == wait.id) {
                continue;
            }
            let remaining = wait.deadline.map(|deadline| deadline.since(Timestamp::now()));
            let time = remaining.unwrap_or(TIME_TO_LIVE).min(TIME_TO_LIVE);
            let Some(InputRequest::Elicitation(form)) = wait.question().and_then(form_of) else { continue };
            let decision = tokio::select! {
                biased;
                () = shutdown.requested() => Decision::unavailable().because("the server stops"),
                () = ready(()), if permit.is_err() => {
                    Decision::unavailable().because("too many questions are open")
                }
                response = show_form(peer, form, time) => match response {
                    Some(response) => decision_of(&wait, response),
                    None => Decision::unavailable().because("the host has not answered the question"),
                },
            };
            self.request.tick(Timestamp::now());
            // What does not fit is asked for again, and what has come too late has expired.
            let _ = self.request.resolve(&wait.id, decision);
        }
        Ok(())
    }

    /// Asks the host for what the call waits for.
    pub(super) fn ask(
        mut self,
        sealer: &StateSealer,
        tools: &ToolSet,
    ) -> Result<InputRequiredResult, ToolError> {
        self.begin_round()?;
        let form = |(key, wait): (String, Wait)| Some((key, form_of(wait.question()?)?));
        let forms: InputRequests = questions(&self.request).into_iter().filter_map(form).collect();
        let binding = self.binding(tools);
        let mut asked = AskedCall::new(self.request, self.round);
        asked.omits_arguments = asked.request.call.arguments == self.arguments;
        asked.task = self.task;
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

/// Returns the answer of a host of an older revision, or `None` if there is none in time.
async fn show_form(peer: &Peer<RoleServer>, form: ElicitRequest, time: Duration) -> Option<ElicitResult> {
    let (form, options) = (ServerRequest::ElicitRequest(form), PeerRequestOptions::no_options());
    let mut question = OpenQuestion(Some(peer.send_request_with_option(form, options).await.ok()?));
    let response = tokio::time::timeout(time, &mut question.0.as_mut()?.rx).await.ok()?;
    question.0 = None;
    match response {
        Ok(Ok(ClientResult::ElicitResult(response))) => Some(response),
        _ => None,
    }
}

/// A question that is shown. If it is dropped without a response, the host is notified, and the SDK forgets it.
struct OpenQuestion(Option<RequestHandle<RoleServer>>);

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if let (Some(request), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(request.cancel(None));
        }
    }
}

/// Reads the response to an input request.
pub(super) fn read_response(response: &Value) -> Result<ElicitResult, ErrorData> {
    let read = serde_json::from_value(response.clone());
    read.map_err(|_| ErrorData::invalid_params("an input response is not the result of an elicitation", None))
}

/// Returns what the user of a host has decided about a question.
pub(super) fn decision_of(wait: &Wait, response: ElicitResult) -> Decision {
    match (response.action, wait.question()) {
        (ElicitationAction::Accept, Some(question)) => {
            read_answer(question, response.content.unwrap_or(Value::Null))
        }
        _ => Decision::decline(),
    }
}

/// Returns the reason why no host is asked this question, if so.
pub(super) fn why_not_asked(wait: &Wait) -> Option<&'static str> {
    let question = wait.question()?;
    if question.is_secret() {
        return Some("the answer is secret, and the host would read it");
    }
    form_of(question).is_none().then_some("no form of the host can express the answer")
}

/// Returns the reason why a host cannot ask its user, if so.
pub(super) fn why_unable_to_ask(context: &RequestContext<RoleServer>) -> Option<&'static str> {
    let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // A host that names no mode supports forms.
    let has_forms = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
    (!has_forms).then_some("the host has not declared that it shows forms to its user")
}

/// Returns `true` for a request of revision 2026-07-28 or a later one.
pub(super) fn is_newest(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}
