//! The messages of a conversation.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::content::{Content, Part};
use crate::model::ProviderData;

/// One message of a conversation.
///
/// ```
/// use tool_core::Message;
///
/// let conversation = [Message::system("Be brief."), Message::user("What is 2 + 2?")];
/// assert_eq!(conversation[1].text(), "What is 2 + 2?");
/// ```
///
/// `Debug` shows only sizes, because conversations are private. To read one, use [`text`](Self::text) or a
/// [`Transcript`](crate::signatures::Transcript).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", content = "message", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// Instructions from the application.
    System(Content),
    /// A message from the user.
    User(Content),
    /// A message from the model: text, tool calls, or both.
    Assistant(AssistantMessage),
    /// The result of a tool call.
    Tool(ToolMessage),
}

impl Message {
    /// Creates a system message, the application's instructions to the model.
    #[must_use]
    pub fn system(content: impl Into<Content>) -> Self {
        Self::System(content.into())
    }

    /// Creates a message from the user.
    #[must_use]
    pub fn user(content: impl Into<Content>) -> Self {
        Self::User(content.into())
    }

    /// Creates a message from the model with only a text.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant(AssistantMessage::text(text))
    }

    /// Creates the result of a successful call, the text that the model reads. [`Message::tool`] creates it from the output
    /// or the error of a call.
    ///
    /// ```
    /// use tool_core::{Message, ToolCall};
    ///
    /// let call = ToolCall::new("call_1", "sum", r#"{"a": 2, "b": 40}"#);
    /// assert_eq!(Message::tool_text(&call, "42").text(), "42");
    /// ```
    #[must_use]
    pub fn tool_text(call: &ToolCall, text: impl Into<String>) -> Self {
        Self::Tool(ToolMessage::new(&*call.id, &*call.name, text.into()))
    }

    /// Returns the message if it is from the model.
    #[must_use]
    pub fn as_assistant(&self) -> Option<&AssistantMessage> {
        match self {
            Self::Assistant(message) => Some(message),
            _ => None,
        }
    }

    /// Returns the text of the message, which is empty if there is none.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::System(content) | Self::User(content) => content.text(),
            Self::Assistant(message) => (&*message.text).into(),
            Self::Tool(message) => message.content.text(),
        }
    }
}

impl From<&Message> for Message {
    fn from(message: &Message) -> Self {
        message.clone()
    }
}

impl Message {
    /// Returns about how many bytes of memory the message takes, with its images and files.
    #[must_use]
    pub fn approximate_bytes(&self) -> usize {
        let of_content = |content: &Content| content.parts().iter().map(of_part).sum::<usize>();
        size_of::<Self>()
            + match self {
                Self::System(content) | Self::User(content) => of_content(content),
                Self::Assistant(message) => {
                    message.content_bytes() + message.tool_calls.len() * size_of::<ToolCall>()
                }
                Self::Tool(result) => of_content(&result.content) + result.name.len() + result.call_id.len(),
            }
    }
}

fn of_part(part: &Part) -> usize {
    let data = match part {
        Part::Image(image) => Some(image.url()),
        Part::File(file) => file.url(),
        _ => part.as_text(),
    };
    size_of::<Part>() + data.map_or(0, str::len)
}

impl From<AssistantMessage> for Message {
    fn from(message: AssistantMessage) -> Self {
        Self::Assistant(message)
    }
}

/// A message from the model: text, tool calls, or both.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AssistantMessage {
    /// The text, which is empty if the model only called tools.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The model's reasoning, if the provider returns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The model's explanation if it refused to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The requested tool calls, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The sources of the text, if the provider returns them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub citations: Vec<Citation>,
    /// Data that the provider expects back with the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_data: Option<ProviderData>,
    /// The name of the model, if a [`Fallback`](crate::model::Fallback) or a [`Router`](crate::model::Router) chose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl AssistantMessage {
    /// Returns the bytes of what a provider reads of the message.
    pub(crate) fn content_bytes(&self) -> usize {
        let calls = self.tool_calls.iter().map(|call| call.id.len() + call.name.len() + call.arguments.len());
        let texts = [self.text.len(), self.refusal.as_ref().map_or(0, String::len)];
        calls.chain(texts).sum::<usize>() + self.reasoning_and_data_bytes()
    }

    /// Returns the bytes of the reasoning and of the provider's own data, which are mostly reasoning.
    pub(crate) fn reasoning_and_data_bytes(&self) -> usize {
        let of_data =
            |data: &ProviderData| data.for_provider(data.provider()).map_or(0, |json| json.as_str().len());
        let data = self.tool_calls.iter().filter_map(|call| call.provider_data.as_ref());
        let data = data.chain(&self.provider_data).map(of_data);
        data.chain(self.reasoning.as_ref().map(String::len)).sum()
    }

    /// Creates a message with only a text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates a refusal with the model's explanation.
    ///
    /// ```
    /// use tool_core::model::{AssistantMessage, ChatResponse};
    ///
    /// let response = ChatResponse::new(AssistantMessage::refusal("I may not say that"));
    /// assert_eq!(response.message.refusal.as_deref(), Some("I may not say that"));
    /// assert!(response.message.text.is_empty());
    /// ```
    #[must_use]
    pub fn refusal(reason: impl Into<String>) -> Self {
        Self { refusal: Some(reason.into()), ..Self::default() }
    }

    /// Returns this message with these tool calls.
    #[must_use]
    pub fn with_tool_calls(mut self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.tool_calls = calls.into_iter().collect();
        self
    }
}

/// Shows only the length of the text, as conversations are private.
impl fmt::Debug for AssistantMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssistantMessage")
            .field("text", &format_args!("{} bytes", self.text.len()))
            .field("tool_calls", &self.tool_calls)
            .finish_non_exhaustive()
    }
}

/// A source that a part of a reply is based on, such as a page that the provider found, or a passage of a file.
///
/// ```
/// use tool_core::model::AssistantMessage;
/// use tool_core::provider::Citation;
///
/// let mut reply = AssistantMessage::text("High tide is at 14:20.");
/// let mut citation = Citation::new(0..22);
/// citation.url = Some("https://example.org/tides".into());
/// reply.citations = vec![citation];
/// assert_eq!(reply.text.get(reply.citations[0].range.clone()), Some("High tide is at 14:20."));
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Citation {
    /// The part of the [`text`](AssistantMessage::text), in bytes.
    pub range: Range<usize>,
    /// The URL of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The title of the page or the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The passage of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
}

impl Citation {
    /// Creates a citation for this part of the text, in bytes.
    #[must_use]
    pub fn new(range: Range<usize>) -> Self {
        Self { range, url: None, title: None, quote: None }
    }
}

/// Shows only the range, as conversations are private.
impl fmt::Debug for Citation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Citation({:?})", self.range)
    }
}

/// A tool call that the model requests.
///
/// `Display` writes the name and the arguments on one line, for people who are allowed to see them. `Debug` omits the
/// arguments.
///
/// ```
/// let call = tool_core::ToolCall::new("call_1", "sum", r#"{"a":1,"b":2}"#);
/// assert_eq!(call.to_string(), r#"sum {"a":1,"b":2}"#);
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// The id that links the result to the call. Unique within a run.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model wrote them: a JSON object, which can be malformed. To parse them, use
    /// [`arguments_as`](Self::arguments_as), which accepts what tools accept and is more lenient than serde.
    pub arguments: String,
    /// Data that the provider expects back with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_data: Option<ProviderData>,
}

impl ToolCall {
    /// Creates a call.
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

    /// Returns the arguments as valid JSON: text that is not JSON becomes a JSON string; empty text becomes `{}`.
    pub(crate) fn arguments_as_json(&self) -> Cow<'_, str> {
        match serde_json::from_str::<&RawValue>(&self.arguments) {
            Ok(json) => json.get().into(),
            Err(_) if self.arguments.trim().is_empty() => "{}".into(),
            Err(_) => Value::from(&*self.arguments).to_string().into(),
        }
    }
}

/// Omits the arguments, which can contain secrets; `Display` writes them.
impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCall")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("arguments", &format_args!("{} bytes", self.arguments.len()))
            .finish()
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolMessage {
    /// The [`id`](ToolCall::id) of the call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The output, or the text of the error.
    pub content: Content,
    /// `true` if the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl ToolMessage {
    /// Creates the result of a successful call with this id and tool name.
    #[must_use]
    pub fn new(call_id: impl Into<String>, name: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { call_id: call_id.into(), name: name.into(), content: content.into(), is_error: false }
    }
}
