//! The trait that a provider implements.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream::{self, StreamExt};

use crate::model::{ChatRequest, ChatResponse, ModelError};

/// The future of one [`ChatModel::chat`].
pub type ModelFuture<'a> = Pin<Box<dyn Future<Output = Result<ChatResponse, ModelError>> + Send + 'a>>;

/// The stream of one [`ChatModel::stream`].
pub type ChatStream<'a> = Pin<Box<dyn Stream<Item = Result<Delta, ModelError>> + Send + 'a>>;

/// A model that can be talked with.
///
/// # Contract
///
/// - A request is answered from what is in it alone: a model keeps no conversation.
/// - A stream ends with [`Delta::Done`], which holds the whole response, or with an error.
/// - Dropping the future or the stream gives up the request.
///
/// # Examples
///
/// ```
/// use tool_core::{AssistantMessage, ChatModel, ChatRequest, ChatResponse, ModelFuture};
///
/// struct Parrot;
///
/// impl ChatModel for Parrot {
///     fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
///         let last = request.messages().last().map(|message| message.text().into_owned());
///         Box::pin(async { Ok(ChatResponse::new(AssistantMessage::text(last.unwrap_or_default()))) })
///     }
/// }
/// ```
///
#[doc = include_str!("../../docs/provider.md")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a model",
    label = "not a `ChatModel`",
    note = "of an endpoint such as `OpenAi`, take a model: `.chat_model(\"…\")`"
)]
pub trait ChatModel: Send + Sync {
    /// Asks the model and waits for the whole response.
    ///
    /// # Errors
    ///
    /// The future gives a [`ModelError`] when the model cannot be reached or refuses the request.
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a>;

    /// Asks the model and gives the response as it comes. Unless the model can do better, it comes in one piece.
    ///
    /// # Errors
    ///
    /// The stream ends with a [`ModelError`] when the model cannot be reached, refuses the request or breaks off.
    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let deltas = async move {
            let deltas = match self.chat(request).await {
                Ok(response) => Delta::all_of(response).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            stream::iter(deltas)
        };
        Box::pin(stream::once(deltas).flatten())
    }

    /// The model can be held to a JSON schema, the request's [answer format](ChatRequest::response_format). One that
    /// cannot ignores it: to have an answer of a schema from such a model, offer it a tool that takes the answer.
    fn supports_response_format(&self) -> bool {
        false
    }

    /// The same, where the request offers tools, too. Some models call none as soon as they are held to a schema.
    fn supports_response_format_with_tools(&self) -> bool {
        self.supports_response_format()
    }

    /// Who answers, by the name that [OpenTelemetry] has for it, such as `openai`: what traces tell of the model.
    ///
    /// [OpenTelemetry]: https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/
    fn provider_name(&self) -> Option<&str> {
        None
    }

    /// The model's name, in the provider's words.
    fn model_name(&self) -> Option<&str> {
        None
    }
}

impl<M: ChatModel + ?Sized> ChatModel for Box<M> {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        (**self).chat(request)
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        (**self).stream(request)
    }

    fn supports_response_format(&self) -> bool {
        (**self).supports_response_format()
    }

    fn supports_response_format_with_tools(&self) -> bool {
        (**self).supports_response_format_with_tools()
    }

    fn provider_name(&self) -> Option<&str> {
        (**self).provider_name()
    }

    fn model_name(&self) -> Option<&str> {
        (**self).model_name()
    }
}

impl<M: ChatModel + ?Sized> ChatModel for Arc<M> {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        (**self).chat(request)
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        (**self).stream(request)
    }

    fn supports_response_format(&self) -> bool {
        (**self).supports_response_format()
    }

    fn supports_response_format_with_tools(&self) -> bool {
        (**self).supports_response_format_with_tools()
    }

    fn provider_name(&self) -> Option<&str> {
        (**self).provider_name()
    }

    fn model_name(&self) -> Option<&str> {
        (**self).model_name()
    }
}

/// A piece of a response, as it comes.
///
/// The pieces are for showing; [`Done`](Delta::Done) holds the whole response, put together by the
/// provider who knows how its pieces fit.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Delta {
    /// More of the text.
    Text(String),
    /// More of the reasoning.
    Reasoning(String),
    /// More of why the model would not answer.
    Refusal(String),
    /// A call begins.
    ToolCall {
        /// Its position among the calls of the response.
        index: usize,
        /// Its id.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments.
    Arguments {
        /// The position of the call among the calls of the response.
        index: usize,
        /// More of the JSON text.
        text: String,
    },
    /// The response is whole. The last piece.
    Done(ChatResponse),
}

impl Delta {
    /// A whole response as pieces, as many as it has parts.
    #[must_use]
    pub fn all_of(response: ChatResponse) -> Vec<Self> {
        let message = &response.message;
        let mut deltas = Vec::new();
        deltas.extend(message.reasoning.clone().map(Self::Reasoning));
        if !message.text.is_empty() {
            deltas.push(Self::Text(message.text.clone()));
        }
        deltas.extend(message.refusal.clone().map(Self::Refusal));
        for (index, call) in message.tool_calls.iter().enumerate() {
            deltas.push(Self::ToolCall { index, id: call.id.clone(), name: call.name.clone() });
            deltas.push(Self::Arguments { index, text: call.arguments.clone() });
        }
        deltas.push(Self::Done(response));
        deltas
    }
}

/// Tells how much there is, not what: conversations are private.
impl fmt::Debug for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Reasoning(text) => write!(f, "Reasoning({} bytes)", text.len()),
            Self::Refusal(text) => write!(f, "Refusal({} bytes)", text.len()),
            Self::ToolCall { index, id, name } => write!(f, "ToolCall({index}, {id}, {name})"),
            Self::Arguments { index, text } => write!(f, "Arguments({index}, {} bytes)", text.len()),
            Self::Done(response) => f.debug_tuple("Done").field(response).finish(),
        }
    }
}
