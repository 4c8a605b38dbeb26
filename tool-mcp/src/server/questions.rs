//! Questions of tools during a call: the host asks its user, and calls again with the answers.
//!
//! A call is a run that waits, and is at rest the request of its only call (`CallRequest`). The host keeps that, encrypted, because values of
//! `Asker::once` are none of its business, and because the next call need not find a session. It is redeemed once in the process that sealed
//! it, because what follows a question may be `at_most_once`.
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
use tool_core::agent::Decider;
use tool_core::engine::{CallRequest, ToolSetExt};
use tool_core::run::{Decision, Run, Wait, WaitReason};
use tool_core::signatures::{StepError, Timestamp};
use tool_core::{ToolCall, ToolContext, ToolError, ToolExecution, ToolOutput, ToolSet};
use tool_http::server::{Caller, SenderPermits, Shutdown};

use super::decider::ServerDecider;
use super::form::{form_of, read_answer};
use super::sealed_state::{AskedCall, StateSealer, TIME_TO_LIVE};
use super::task_id::TaskId;

/// The number of times that a call may ask the host.
const MAX_ROUNDS: usize = 10;

/// The question of the run of a call, which no model reads.
const QUESTION: &str = "An MCP host calls a tool.";

/// The most calls whose host is asked while they are open, and those of one caller. Each holds a permit of the requests in flight.
const MAX_ASKING: usize = 512;
const MAX_ASKING_OF_CALLER: usize = 64;

/// The most bytes of the arguments of a task.
const MAX_ARGUMENTS_BYTES: usize = 64 << 10;

/// Returns `true` if a call has too many arguments to be stored.
pub(super) fn has_long_arguments(call: &ToolCall) -> bool {
    call.arguments.len() > MAX_ARGUMENTS_BYTES
}

/// Returns the permits of [`HostCall::ask_now`].
pub(super) fn permits_to_ask() -> SenderPermits {
    SenderPermits::new(MAX_ASKING, MAX_ASKING_OF_CALLER)
}

/// A call of a host, which may go on with answers.
pub(super) struct HostCall {
    /// The run of this call alone.
    pub(super) run: Run,
    id: String,
    tool: String,
    /// The name of the agent that drives the call if it becomes a task.
    agent: String,
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

/// What happens next to a call that waits.
pub(super) enum Next {
    /// Some of what it waits for was decided.
    Decided,
    /// The host has to ask its user.
    Asks,
    /// It goes on as a task.
    Waits,
    /// The host waits until then.
    Sleeps(Timestamp),
}

impl HostCall {
    /// Creates a call that begins.
    pub(super) fn new(
        request: CallRequest,
        task: Option<TaskId>,
        caller: Caller,
        agent: String,
    ) -> Result<Self, StepError> {
        let ToolCall { id, name, arguments, .. } = request.call.clone();
        let run = request.into_run(Some(&agent), QUESTION)?;
        let caller = caller.derive_id("request state");
        let (round, can_become_task, is_deferred) = (0, false, false);
        Ok(Self {
            run,
            id,
            tool: name,
            agent,
            round,
            arguments,
            caller,
            unable: None,
            task,
            can_become_task,
            is_deferred,
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn tool(&self) -> &str {
        &self.tool
    }

    /// States that the host follows tasks: a call that waits for something else than its user becomes one.
    pub(super) fn allow_task(&mut self) {
        self.can_become_task = self.task.is_some();
    }

    /// Returns `true` if the call becomes a task when it waits.
    pub(super) fn can_become_task(&self) -> bool {
        self.can_become_task
    }

    /// Returns `true` if the call was executed until it had to wait, and so may have had an effect.
    pub(super) fn was_executed(&self) -> bool {
        self.run.waits().iter().any(|wait| !matches!(wait.reason, WaitReason::Approval(_)))
    }

    /// Returns `true` if the decider of the server has been asked and has not decided.
    pub(super) fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    /// Starts an attempt.
    pub(super) fn request(&mut self) -> Result<CallRequest, ToolError> {
        let mut request = self.run.request_call(&self.id).map_err(ToolError::failed)?;
        // A call that has not asked yet need not be executed up to its question. That of a task is answered by others.
        if let Some(why) = self.unable.filter(|_| !self.is_continued() && !self.can_become_task) {
            request.refuse_questions(why);
        }
        if has_long_arguments(&request.call) {
            // It would be refused only after its effect.
            self.can_become_task = false;
        }
        Ok(request)
    }

    /// Decides about what the call waits for, as far as that is up to this server.
    pub(super) async fn decide(
        &mut self,
        waits: Vec<Wait>,
        decider: Option<&ServerDecider>,
    ) -> Result<Next, ToolError> {
        let mut next = None;
        for wait in waits {
            let decision = match (&wait.reason, decider) {
                (WaitReason::Approval(_), Some(decider)) => match decider.decide(&wait).await {
                    decision if !decision.is_deferred() => decision,
                    _ if self.can_become_task => {
                        self.is_deferred = true;
                        return Ok(Next::Waits);
                    }
                    _ => Decision::deny(self.why_not_approved()),
                },
                (WaitReason::CallerResult(_), _) => {
                    Decision::result(Err(ToolError::failed("the caller executes this call")))
                }
                // Without a decider, such a tool is served only if the host is trusted to ask.
                (WaitReason::Approval(_), None) => Decision::approve(),
                _ => continue,
            };
            self.run.resolve(&wait.id, decision).map_err(ToolError::failed)?;
            next = Some(Next::Decided);
        }
        Ok(next.unwrap_or_else(|| self.next_of_waiting()))
    }

    fn next_of_waiting(&mut self) -> Next {
        if self.has_to_ask() {
            return Next::Asks;
        }
        let waits = self.run.waits();
        if self.can_become_task && !waits.is_empty() {
            return Next::Waits;
        }
        // The host waits for what the call was parked for.
        waits.iter().filter_map(|wait| wait.deadline).max().map_or(Next::Decided, Next::Sleeps)
    }

    /// Returns the outcome of a call that has ended.
    pub(super) fn into_outcome(self) -> Result<ToolOutput, ToolError> {
        let execution = self.run.tool_executions().last().cloned();
        let interrupted = || Err(ToolError::failed("the call was interrupted"));
        execution.map_or_else(interrupted, ToolExecution::into_outcome)
    }

    /// Reports to its tool that the call will not be continued.
    pub(super) fn give_up(self, tools: &ToolSet, context: &ToolContext) {
        if let Some(request) = CallRequest::of_run(&self.run) {
            tools.give_up(request, context);
        }
    }

    /// Returns why nobody approves the call, if it cannot become a task.
    fn why_not_approved(&self) -> &'static str {
        match self.task {
            Some(_) => "a person of this service has to approve it, and this host cannot wait for that",
            None => "no one is available to approve it",
        }
    }

    /// Returns what becomes a task, with its id.
    pub(super) fn into_task(self) -> Option<(TaskId, Run)> {
        Some((self.task?, self.run))
    }

    /// Returns what a state of this call is valid for: its caller, its tool as it is, and its arguments in any order.
    fn binding(&self, tools: &ToolSet) -> Vec<u8> {
        let name = &self.tool;
        let definition = tools.get(name).map(|tool| tool.definition().hash());
        let mut arguments: Value = serde_json::from_str(&self.arguments).unwrap_or_default();
        arguments.sort_all_objects();
        json!([self.caller, name, definition, arguments]).to_string().into_bytes()
    }

    /// Sets the reason why the host cannot ask its user.
    pub(super) fn set_unable(&mut self, why: &'static str) {
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
        if asked.omits_arguments {
            asked.request.call.arguments.clone_from(&self.arguments);
        }
        let id = asked.request.call.id.clone();
        let run = asked.request.clone().into_run(Some(&self.agent), QUESTION);
        let mut run = run.map_err(|_| invalid())?;
        let mut answers = Vec::new();
        for (key, wait) in questions(&run) {
            if let Some(response) = responses.get(&key) {
                answers.push((wait, read_response(response)?));
            }
        }
        if !sealer.redeem(&asked, &self.caller, now) {
            return Err(invalid());
        }
        run.tick(now);
        for (wait, response) in answers {
            // What does not fit, or has come too late, is asked for again or has expired.
            let _ = run.resolve(&wait.id, decision_of(&wait, response));
        }
        (self.run, self.id, self.round, self.task) = (run, id, asked.round, asked.task);
        Ok(())
    }

    /// Returns `true` if the host has to ask its user. What it must not or cannot ask gets a reply with the reason, unless the call can wait
    /// for others.
    fn has_to_ask(&mut self) -> bool {
        for (_, wait) in questions(&self.run) {
            let Some(why) = self.unable.or_else(|| why_not_asked(&wait)) else { continue };
            if self.can_become_task {
                return false;
            }
            // An open question takes this.
            let _ = self.run.resolve(&wait.id, Decision::unavailable().because(why));
        }
        !questions(&self.run).is_empty()
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
        for (_, wait) in questions(&self.run) {
            // It may have expired while another one was answered.
            if !self.run.waits().iter().any(|open| open.id == wait.id) {
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
            self.run.tick(Timestamp::now());
            // What does not fit is asked for again, and what has come too late has expired.
            let _ = self.run.resolve(&wait.id, decision);
        }
        Ok(())
    }

    /// Asks the host for what the call waits for.
    ///
    /// # Errors
    ///
    /// Returns the call, which cannot go on, and the reason.
    pub(super) fn ask(
        mut self,
        sealer: &StateSealer,
        tools: &ToolSet,
    ) -> Result<InputRequiredResult, (Box<Self>, ToolError)> {
        if let Err(why) = self.begin_round() {
            return Err((Box::new(self), why));
        }
        let form = |(key, wait): (String, Wait)| Some((key, form_of(wait.question()?)?));
        let forms: InputRequests = questions(&self.run).into_iter().filter_map(form).collect();
        let Some(state) = self.seal(sealer, tools) else {
            let why = "the tool has to ask the user, but has recorded too much to continue later";
            return Err((Box::new(self), ToolError::failed(why)));
        };
        Ok(InputRequiredResult::new(Some(forms), Some(state)))
    }

    fn seal(&self, sealer: &StateSealer, tools: &ToolSet) -> Option<String> {
        let mut asked = AskedCall::new(CallRequest::of_run(&self.run)?, self.round);
        asked.omits_arguments = asked.request.call.arguments == self.arguments;
        asked.task.clone_from(&self.task);
        if asked.omits_arguments {
            asked.request.call.arguments.clear();
        }
        sealer.seal(&asked, &self.binding(tools))
    }
}

/// Returns the questions of a call in their order, each with its key.
fn questions(run: &Run) -> Vec<(String, Wait)> {
    let waits = run.waits().into_iter().filter(|wait| wait.question().is_some());
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
