//! The trait that a provider implements.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_channel::mpsc;
use futures_util::stream::{self, StreamExt};
use futures_util::{FutureExt, SinkExt, Stream};

use crate::model::{AssistantMessage, ChatRequest, ChatResponse, Delta, ModelError, ModelInfo};

/// The future returned by [`ChatModel::chat`], and with other values by other methods of a model.
pub type ModelFuture<'a, T = ChatResponse> = Pin<Box<dyn Future<Output = Result<T, ModelError>> + Send + 'a>>;

/// The other end of a stream that is [sent](ChatStream::sent_by).
pub(crate) type DeltaSender = mpsc::Sender<Result<Delta, ModelError>>;

/// The stream returned by [`ChatModel::stream`].
///
/// ```
/// use tool_core::ChatModel;
/// use tool_core::model::{ChatRequest, ChatResponse, Delta, ModelError};
///
/// async fn print(model: &dyn ChatModel, request: &ChatRequest<'_>) -> Result<Option<ChatResponse>, ModelError> {
///     let mut deltas = model.stream(request);
///     while let Some(delta) = deltas.next().await {
///         match delta? {
///             Delta::Text(text) => print!("{text}"),
///             Delta::Done(response) => return Ok(Some(response)),
///             _ => {}
///         }
///     }
///     Ok(None)
/// }
/// ```
#[must_use = "a stream does nothing unless it is polled"]
pub struct ChatStream<'a>(Pin<Box<dyn Stream<Item = Result<Delta, ModelError>> + Send + 'a>>);

impl<'a> ChatStream<'a> {
    /// Creates the stream that a model returns.
    pub fn new(deltas: impl Stream<Item = Result<Delta, ModelError>> + Send + 'a) -> Self {
        Self(Box::pin(deltas))
    }

    /// Creates the stream of a future that sends all deltas but the last, and returns the response.
    pub(crate) fn sent_by<F>(send: impl FnOnce(DeltaSender) -> F) -> Self
    where
        F: Future<Output = Result<ChatResponse, ModelError>> + Send + 'a,
    {
        // A delta is sent once the one before was received. One task polls both, so nothing continues once the stream is dropped.
        let (sender, deltas) = mpsc::channel(0);
        Self::new(stream::select(deltas, send(sender).into_stream().map(|reply| reply.map(Delta::Done))))
    }

    /// Sends all deltas but the last, and returns the response.
    pub(crate) async fn forward(mut self, sender: &mut DeltaSender) -> Result<ChatResponse, ModelError> {
        while let Some(delta) = self.next().await {
            match delta? {
                Delta::Done(response) => return Ok(response),
                // The receiver is never dropped before this future, as the stream owns both.
                delta => _ = sender.send(Ok(delta)).await,
            }
        }
        Err(ModelError::cut_off())
    }

    /// Returns the next delta, or `None` after the last one. Like `StreamExt::next`, without the import.
    ///
    /// # Errors
    ///
    /// Returns a [`ModelError`] if the model cannot be reached, rejects the request, or stops before the response is complete.
    pub async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        self.0.next().await
    }
}

impl Stream for ChatStream<'_> {
    type Item = Result<Delta, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl fmt::Debug for ChatStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatStream").finish_non_exhaustive()
    }
}

/// A chat model.
///
/// # Contract
///
/// - The response depends only on the request: a model stores no conversation.
/// - A stream ends with [`Delta::Done`], which has the complete response, or with an error.
/// - Dropping the future or the stream cancels the request.
///
/// # Examples
///
/// ```
/// use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse};
/// use tool_core::provider::ModelFuture;
/// use tool_core::ChatModel;
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
/// [`provider`](crate::provider) says how a provider is written.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a model",
    label = "not a `ChatModel`",
    note = "call `.chat_model(\"…\")` on an endpoint such as `OpenAi` to get a model",
    note = "an agent owns its model; pass a shared one as `Arc<dyn ChatModel>`, not as a reference",
    note = "several models are one: `Fallback::new(first).or(second)`"
)]
pub trait ChatModel: Send + Sync {
    /// Sends a request to the model and returns the complete response.
    ///
    /// # Errors
    ///
    /// Returns a [`ModelError`] if the model cannot be reached or rejects the request.
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a>;

    /// Sends a request to the model and streams the response. By default, the response arrives all at once.
    ///
    /// Sending is async and this method is not, so the request can be the first part of the stream:
    ///
    /// ```
    /// use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
    /// use tool_core::ChatModel;
    /// use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta, ModelError, ModelErrorKind};
    /// use tool_core::provider::ModelFuture;
    ///
    /// type Line = Result<String, ModelError>;
    ///
    /// struct Acme;
    ///
    /// impl Acme {
    ///     async fn send(&self, _request: &ChatRequest<'_>) -> Result<impl Stream<Item = Line>, ModelError> {
    ///         Ok(stream::iter(["It", " is", " 42.", "end"]).map(|line| Ok(line.to_owned()))) // in a real provider, of an HTTP client
    ///     }
    /// }
    ///
    /// impl ChatModel for Acme {
    ///     fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
    ///         let deltas = async move {
    ///             let lines = Box::pin(self.send(request).await?);
    ///             Ok(stream::try_unfold(Some((lines, String::new())), |state| async move {
    ///                 let Some((mut lines, mut text)) = state else { return Ok(None) };
    ///                 match lines.next().await.transpose()?.as_deref() {
    ///                     None => Err(ModelError::new("the stream ended early").with_kind(ModelErrorKind::Unavailable)),
    ///                     Some("end") => Ok(Some((Delta::Done(ChatResponse::new(AssistantMessage::text(text))), None))),
    ///                     Some(word) => {
    ///                         text.push_str(word);
    ///                         Ok(Some((Delta::Text(word.to_owned()), Some((lines, text)))))
    ///                     }
    ///                 }
    ///             }))
    ///         };
    ///         ChatStream::new(stream::once(deltas).try_flatten())
    ///     }
    ///     // …
    /// #   fn chat<'a>(&'a self, _request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
    /// #       Box::pin(async { Err(ModelError::new("not part of this sample")) })
    /// #   }
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ModelError> {
    /// # let request = ChatRequest::new(Vec::new());
    /// # let deltas: Vec<_> = Acme.stream(&request).try_collect().await?;
    /// # let [Delta::Text(_), Delta::Text(_), Delta::Text(_), Delta::Done(response)] = &deltas[..] else { panic!("{deltas:?}") };
    /// # assert_eq!(response.message.text, "It is 42.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The stream ends with a [`ModelError`] if the model cannot be reached, rejects the request, or stops before the
    /// response is complete.
    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let deltas = async move {
            let deltas = match self.chat(request).await {
                Ok(response) => response.into_deltas().into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            stream::iter(deltas)
        };
        ChatStream::new(stream::once(deltas).flatten())
    }

    /// Returns `true` if a reply of the model has reasoning that the provider accepts only behind exactly the messages that the model had
    /// read. A run is then not [compacted](crate::agent::Compaction) before the next message of the user, unless it is too long, or the
    /// provider [does that](Self::supports_compaction).
    fn binds_reasoning(&self, reply: &AssistantMessage) -> bool {
        let _ = reply;
        false
    }

    /// Returns the number of bytes of the reasoning in a reply that the model reads again with later messages of the user, unless a request
    /// [leaves it out](ChatRequest::with_reasoning_start). The default is 0.
    fn reasoning_bytes(&self, reply: &AssistantMessage) -> usize {
        let _ = reply;
        0
    }

    /// Returns `true` if the provider summarizes conversations by itself: a [request](ChatRequest::with_compaction) that asks for it gets a
    /// response with the [finish reason](crate::model::FinishReason::Compaction) `Compaction`, whose text is the summary. Sent first among the
    /// messages, with its provider's data unchanged, its message takes the place of those that it summarizes. One without a text can be read only
    /// by its provider, and has the user's messages in full. By default, no provider does, and an agent asks the model for a summary.
    fn supports_compaction(&self) -> bool {
        false
    }

    /// Returns `true` if a request to [summarize](Self::supports_compaction) begins like the other requests of a conversation, so that it is read
    /// from the provider's cache, which is the default. An agent compacts later if it is not.
    fn compacts_from_cache(&self) -> bool {
        true
    }

    /// Returns `true` if the model reads this summary of a [provider](Self::supports_compaction) in its own form. Another model is sent the text of
    /// the summary instead, as a message of the user; if it has none, the messages.
    fn reads_summary(&self, summary: &AssistantMessage) -> bool {
        let _ = summary;
        false
    }

    /// Returns `true` if the model supports the request's [response format](ChatRequest::response_format). Other models
    /// ignore it: to get an answer that matches a schema from them, provide a tool that accepts the answer. The default is `false`.
    fn supports_response_format(&self) -> bool {
        false
    }

    /// Returns `true` if the model supports a response format in a request that also has tools. Some models call no tool
    /// when they are constrained to a schema. By default, it does if it supports one without tools.
    fn supports_response_format_with_tools(&self) -> bool {
        self.supports_response_format()
    }

    /// Returns `true` if the provider searches this number of tools by itself: it accepts requests [with tool
    /// search](ChatRequest::with_tool_search). By default, it does not, and an agent searches in its place.
    fn supports_tool_search(&self, tools: usize) -> bool {
        let _ = tools;
        false
    }

    /// Asks the provider for the number of input tokens of a request, without sending it to the model. The result is `None` if the
    /// provider does not count tokens, which is the default; [`ChatRequest::estimate_tokens`] then estimates it.
    fn count_tokens<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a, Option<u64>> {
        let _ = request;
        Box::pin(ready(Ok(None)))
    }

    /// Asks the provider for what it knows about the model. The result is `None` if the provider reports nothing, which is the
    /// default.
    fn model_info(&self) -> ModelFuture<'_, Option<ModelInfo>> {
        Box::pin(ready(Ok(None)))
    }

    /// Returns `true` if the model is made of others and passes requests on to them with [`ChatRequest::send_to`] or
    /// [`ChatRequest::stream_to`], so that what each of them costs is counted. Any other model is assumed to send one request.
    fn passes_requests_on(&self) -> bool {
        false
    }

    /// Returns the provider's name as defined by [OpenTelemetry], such as `openai`, for traces.
    ///
    /// [OpenTelemetry]: https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/
    fn provider_name(&self) -> Option<&str> {
        None
    }

    /// Returns the name under which the model is asked unless the request names another one. [Prices](crate::model::Prices) are looked up by
    /// it. The default is `None`.
    fn model_name(&self) -> Option<&str> {
        None
    }
}

// `auto_impl` would do the same, but it needs a second major version of syn, which every program would have to compile.
macro_rules! delegate {
    ($($pointer:ident)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<M: ChatModel + ?Sized> ChatModel for $pointer<M> {
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

            fn binds_reasoning(&self, reply: &AssistantMessage) -> bool {
                (**self).binds_reasoning(reply)
            }

            fn reasoning_bytes(&self, reply: &AssistantMessage) -> usize {
                (**self).reasoning_bytes(reply)
            }

            fn supports_compaction(&self) -> bool {
                (**self).supports_compaction()
            }

            fn compacts_from_cache(&self) -> bool {
                (**self).compacts_from_cache()
            }

            fn reads_summary(&self, summary: &AssistantMessage) -> bool {
                (**self).reads_summary(summary)
            }

            fn supports_tool_search(&self, tools: usize) -> bool {
                (**self).supports_tool_search(tools)
            }

            fn count_tokens<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a, Option<u64>> {
                (**self).count_tokens(request)
            }

            fn model_info(&self) -> ModelFuture<'_, Option<ModelInfo>> {
                (**self).model_info()
            }

            fn passes_requests_on(&self) -> bool {
                (**self).passes_requests_on()
            }

            fn provider_name(&self) -> Option<&str> {
                (**self).provider_name()
            }

            fn model_name(&self) -> Option<&str> {
                (**self).model_name()
            }
        }
    )*};
}

delegate!(Box Arc);
