//! A model that replies what it was told to, and checks what it is sent.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, Message, ModelError, ModelFuture, ToolCall, Usage,
};

/// A model for tests: it gives the replies of its script in order, and checks every request.
///
/// A request must be one that providers accept: every call of the history has one result, right behind
/// it. [`expects`](Self::expects) adds checks of one's own. A check that fails, or a request beyond the
/// script, is an error of the model, so it ends the run. Cloning shares the script, so a test can keep a
/// clone and look at the [`requests`](Self::requests) afterwards.
///
/// ```
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{ChatModel, ChatRequest, Message};
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
pub struct ScriptedModel(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    replies: VecDeque<Reply>,
    /// Checks for the request that the next reply answers.
    checks: Vec<Check>,
    requests: Vec<Vec<Message>>,
}

type Check = Box<dyn Fn(&ChatRequest<'_>) -> bool + Send>;

struct Reply {
    checks: Vec<Check>,
    outcome: Result<ChatResponse, String>,
}

impl ScriptedModel {
    /// A model with an empty script.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the request that the next reply answers.
    #[must_use]
    pub fn expects(self, check: impl Fn(&ChatRequest<'_>) -> bool + Send + 'static) -> Self {
        self.script().checks.push(Box::new(check));
        self
    }

    /// Replies with a text.
    #[must_use]
    pub fn says(self, text: impl Into<String>) -> Self {
        self.replies(ChatResponse::new(AssistantMessage::text(text)))
    }

    /// Replies with one call; the arguments are JSON text.
    #[must_use]
    pub fn calls(self, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        self.calls_all([(name.into(), arguments.into())])
    }

    /// Replies with several calls at once, each a name and JSON text.
    #[must_use]
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

    /// Replies with any response.
    #[must_use]
    pub fn replies(self, response: ChatResponse) -> Self {
        self.push(Ok(response))
    }

    /// Adds the tokens that the last reply took.
    #[must_use]
    pub fn with_usage(self, usage: Usage) -> Self {
        if let Some(Reply { outcome: Ok(response), .. }) = self.script().replies.back_mut() {
            response.usage = Some(usage);
        }
        self
    }

    /// Fails instead of a reply.
    #[must_use]
    pub fn fails(self, why: impl Into<String>) -> Self {
        self.push(Err(why.into()))
    }

    fn push(self, outcome: Result<ChatResponse, String>) -> Self {
        let mut script = self.script();
        let checks = std::mem::take(&mut script.checks);
        script.replies.push_back(Reply { checks, outcome });
        drop(script);
        self
    }

    /// The messages of every request so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Vec<Message>> {
        self.script().requests.clone()
    }

    /// How many replies of the script are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.script().replies.len()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reply(&self, request: &ChatRequest<'_>) -> Result<ChatResponse, String> {
        let mut script = self.script();
        script.requests.push(request.messages().to_vec());
        let number = script.requests.len();
        acceptable(request.messages())
            .map_err(|wrong| format!("request {number} is not acceptable: {wrong}"))?;
        let Some(reply) = script.replies.pop_front() else {
            return Err(format!("the script is over, but request {number} came"));
        };
        drop(script);
        if let Some(check) = reply.checks.iter().position(|check| !check(request)) {
            return Err(format!("request {number} fails check {} of the script", check + 1));
        }
        reply.outcome
    }
}

impl ChatModel for ScriptedModel {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { self.reply(request).map_err(ModelError::new) })
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

/// Every call has one result right behind its message, and every result has its call.
///
/// The rule is the API's: <https://platform.openai.com/docs/guides/function-calling>.
fn acceptable(messages: &[Message]) -> Result<(), String> {
    let mut open: HashSet<&str> = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        if let Message::Tool(result) = message {
            if !open.remove(&*result.call_id) {
                return Err(format!("message {index} is the result of no open call: {}", result.call_id));
            }
            continue;
        }
        if !open.is_empty() {
            return Err(format!("before message {index}, calls have no result: {open:?}"));
        }
        if let Message::Assistant(message) = message {
            for call in &message.tool_calls {
                if !open.insert(&call.id) {
                    return Err(format!("message {index} has two calls of the id {}", call.id));
                }
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("at the end, calls have no result: {open:?}")) }
}
