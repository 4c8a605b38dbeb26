//! A model that replies from a script and checks its requests.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, Message, ModelError, ModelFuture, ToolCall, Usage,
};

/// A model for tests that returns the replies of a script in order and checks every request.
///
/// A request must be valid for providers: every call has exactly one result, directly after its message.
/// [`expects`](Self::expects) adds further checks. A failed check, or a request beyond the script, is an error of the
/// model and ends the run. Clones share the script, so a test can hold a clone and inspect the
/// [`requests`](Self::requests) afterwards.
///
/// ```
/// use tool_core::testing::ScriptedModel;
/// use tool_core::model::ChatRequest;
/// use tool_core::{ChatModel, Message};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new()
///     .expects(|request| request.messages().len() == 1)
///     .says("Good morning!");
/// let response = model.chat(&ChatRequest::new([Message::user("Hello")])).await?;
/// assert_eq!(response.message.text, "Good morning!");
/// assert_eq!(model.requests()[0][0].text(), "Hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct ScriptedModel(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    replies: VecDeque<ScriptedReply>,
    /// The checks of the request for the next reply.
    checks: Vec<Check>,
    requests: Vec<Vec<Message>>,
}

type Check = Box<dyn Fn(&ChatRequest<'_>) -> bool + Send>;

struct ScriptedReply {
    checks: Vec<Check>,
    outcome: Result<ChatResponse, String>,
}

impl ScriptedModel {
    /// Creates a model with an empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check of the request for the next reply.
    pub fn expects(self, check: impl Fn(&ChatRequest<'_>) -> bool + Send + 'static) -> Self {
        self.script().checks.push(Box::new(check));
        self
    }

    /// Adds a reply with a text.
    pub fn says(self, text: impl Into<String>) -> Self {
        self.replies(ChatResponse::new(AssistantMessage::text(text)))
    }

    /// Adds a reply with one call. `arguments` is JSON text.
    pub fn calls(self, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        self.calls_all([(name.into(), arguments.into())])
    }

    /// Adds a reply with several calls, each a name and JSON text.
    pub fn calls_all<N: Into<String>, A: Into<String>>(
        self,
        calls: impl IntoIterator<Item = (N, A)>,
    ) -> Self {
        let turn = self.script().replies.len() + 1;
        let calls = calls.into_iter().enumerate();
        let calls = calls.map(|(position, (name, arguments))| {
            ToolCall::new(format!("call_{turn}_{position}"), name, arguments)
        });
        self.replies(ChatResponse::new(AssistantMessage::default().with_tool_calls(calls)))
    }

    /// Adds a response as reply.
    pub fn replies(self, response: ChatResponse) -> Self {
        self.push(Ok(response))
    }

    /// Sets the usage of the last reply.
    pub fn with_usage(self, usage: Usage) -> Self {
        if let Some(ScriptedReply { outcome: Ok(response), .. }) = self.script().replies.back_mut() {
            response.usage = Some(usage);
        }
        self
    }

    /// Adds an error in place of a reply. Its kind is [`Other`](crate::model::ModelErrorKind::Other), after which a
    /// [`Fallback`](crate::model::Fallback) asks the next model only if it is set to.
    pub fn fails(self, message: impl Into<String>) -> Self {
        self.push(Err(message.into()))
    }

    fn push(self, outcome: Result<ChatResponse, String>) -> Self {
        let mut script = self.script();
        let checks = std::mem::take(&mut script.checks);
        script.replies.push_back(ScriptedReply { checks, outcome });
        drop(script);
        self
    }

    /// Returns the messages of every request so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Vec<Message>> {
        self.script().requests.clone()
    }

    /// Returns the number of remaining replies.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.script().replies.len()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reply(&self, request: &ChatRequest<'_>) -> Result<ChatResponse, ModelError> {
        let broken = |message: String| ModelError::new(message).permanent();
        let mut script = self.script();
        script.requests.push(request.messages().to_vec());
        let number = script.requests.len();
        check_history(request.messages())
            .map_err(|error| broken(format!("request {number} is invalid: {error}")))?;
        let Some(reply) = script.replies.pop_front() else {
            return Err(broken(format!("request {number} is beyond the end of the script")));
        };
        drop(script);
        if let Some(check) = reply.checks.iter().position(|check| !check(request)) {
            return Err(broken(format!("request {number} fails check {} of the script", check + 1)));
        }
        reply.outcome.map_err(ModelError::new)
    }
}

impl ChatModel for ScriptedModel {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { self.reply(request) })
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

/// Checks that every call has one result directly after its message, and that every result has a call.
///
/// Providers require this: <https://platform.openai.com/docs/guides/function-calling>.
fn check_history(messages: &[Message]) -> Result<(), String> {
    let mut open: HashSet<&str> = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        if let Message::Tool(result) = message {
            if !open.remove(&*result.call_id) {
                return Err(format!("message {index} is a result without a call: {}", result.call_id));
            }
            continue;
        }
        if !open.is_empty() {
            return Err(format!("calls without a result before message {index}: {open:?}"));
        }
        if let Message::Assistant(message) = message {
            for call in &message.tool_calls {
                if !open.insert(&call.id) {
                    return Err(format!("message {index} has two calls with the id {}", call.id));
                }
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("calls without a result at the end: {open:?}")) }
}
