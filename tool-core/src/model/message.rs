//! The messages of a conversation.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::model::ProviderData;

/// One message of a conversation.
///
/// ```
/// use tool_core::Message;
///
/// let conversation = [Message::system("Be brief."), Message::user("What is 2 + 2?")];
/// assert_eq!(conversation[1].text(), "What is 2 + 2?");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", content = "message", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// What the application tells the model to do.
    System(Content),
    /// What the user said.
    User(Content),
    /// What the model said, or which tools it called.
    Assistant(AssistantMessage),
    /// What a call gave back.
    Tool(ToolMessage),
}

impl Message {
    /// What the application tells the model to do.
    #[must_use]
    pub fn system(content: impl Into<Content>) -> Self {
        Self::System(content.into())
    }

    /// What the user said.
    #[must_use]
    pub fn user(content: impl Into<Content>) -> Self {
        Self::User(content.into())
    }

    /// What the model said, in plain text.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant(AssistantMessage::text(text))
    }

    /// The model's message, if it is one.
    #[must_use]
    pub fn as_assistant(&self) -> Option<&AssistantMessage> {
        match self {
            Self::Assistant(message) => Some(message),
            _ => None,
        }
    }

    /// The text of the message; empty if it has none.
    #[must_use]
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::System(content) | Self::User(content) => content.text(),
            Self::Assistant(message) => (&*message.text).into(),
            Self::Tool(message) => message.content.text(),
        }
    }
}

/// What the model said, or which tools it called, or both.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AssistantMessage {
    /// What the model said; empty when it only called tools.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What the model thought aloud, where a provider tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Why the model would not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The calls that the model asks for, in its order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// What the provider wants to have back with the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_data: Option<ProviderData>,
}

impl AssistantMessage {
    /// A plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A refusal: why the model would not answer.
    ///
    /// ```
    /// use tool_core::{AssistantMessage, ChatResponse};
    ///
    /// let response = ChatResponse::new(AssistantMessage::refusal("I may not say that"));
    /// assert_eq!(response.message.refusal.as_deref(), Some("I may not say that"));
    /// assert!(response.message.text.is_empty());
    /// ```
    #[must_use]
    pub fn refusal(why: impl Into<String>) -> Self {
        Self { refusal: Some(why.into()), ..Self::default() }
    }

    /// The same message with calls of tools.
    #[must_use]
    pub fn with_tool_calls(mut self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.tool_calls = calls.into_iter().collect();
        self
    }
}

/// Tells how much there is, not what: conversations are private.
impl fmt::Debug for AssistantMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssistantMessage")
            .field("text", &format_args!("{} bytes", self.text.len()))
            .field("tool_calls", &self.tool_calls)
            .finish_non_exhaustive()
    }
}

/// One call of a tool that the model asks for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// Ties the result to the call. Unique in a run.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, as the model wrote them: a JSON object, or what was meant as one. To look into them, use
    /// [`arguments_as`](Self::arguments_as): a tool takes more than serde does.
    pub arguments: String,
    /// What the provider wants to have back with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_data: Option<ProviderData>,
}

impl ToolCall {
    /// A call.
    ///
    /// ```
    /// use tool_core::ToolCall;
    ///
    /// let call = ToolCall::new("call_1", "sum", r#"{"a": 2, "b": 40}"#);
    /// assert_eq!(call.name, "sum");
    /// ```
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into(), provider_data: None }
    }
}

/// Leaves the arguments out: they may be secrets.
impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCall")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("arguments", &format_args!("{} bytes", self.arguments.len()))
            .finish()
    }
}

/// What a call gave back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolMessage {
    /// The [`id`](ToolCall::id) of the call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The output, or the error in words.
    pub content: Content,
    /// The call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl ToolMessage {
    /// What a call of this id and name gave back.
    #[must_use]
    pub fn new(call_id: impl Into<String>, name: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { call_id: call_id.into(), name: name.into(), content: content.into(), is_error: false }
    }
}
