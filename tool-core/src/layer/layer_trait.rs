//! The trait of all layers, and what follows a layer on the way of a request. They are in one file because each names the other.
//!
//! Layers learn of each other's decisions by `Layer::decided`, because an audit must not depend on its place in the list, and of what
//! happens to calls by `Layer::record`, behind the save that contains it.

use std::error::Error;
use std::fmt;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};

use super::context::LayerContext;
use super::recorded_call::RecordedCall;
use super::verdict::{AnswerVerdict, CallVerdict, OutputVerdict, QuestionVerdict};
use crate::content::Content;
use crate::model::{ChatModel, ChatRequest, ChatStream, Meter, ModelError, ToolCall, ToolDefinition};
use crate::tool::{Panicked, ToolError, ToolExecution, VerdictRecord};

/// An error of a layer. Nothing passes that it did not judge: the run returns with
/// [`RunErrorKind::Layer`](crate::RunErrorKind::Layer) and can be resumed.
pub type LayerError = Box<dyn Error + Send + Sync>;

/// The error of a call whose arguments a layer has written and the tool refuses.
pub(super) fn refused_rewrite(layer: &str, error: &ToolError) -> ToolError {
    ToolError::not_executed(&format!("the layer `{layer}` wrote arguments that the tool refuses: {error}"))
}

/// The future of a verdict.
pub type LayerFuture<'a, V> = Pin<Box<dyn Future<Output = Result<V, LayerError>> + Send + 'a>>;

/// A phase of a run in which layers are asked, one per method of [`Layer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerPhase {
    /// [`Layer::question`]
    Question,
    /// [`Layer::offers`]
    Offer,
    /// [`Layer::model`]
    Model,
    /// [`Layer::rewrite`]. The arguments of calls are streamed once they are final.
    Rewrite,
    /// [`Layer::judge`]
    Judge,
    /// [`Layer::output`]
    Output,
    /// [`Layer::answer`]. The text of each reply is streamed once it is judged, with the reasoning before it. That of a reply without text
    /// is left out. Answers are not typed.
    Answer,
    /// [`Layer::record`]
    Record,
}

/// A layer between an agent and its callers, model and tools. It sees every question, offered tool, model request, call, output and answer,
/// however the agent is run.
///
/// [`guard`](crate::layer::guard) and [`rewrite`](crate::layer::rewrite) make layers from closures. Layers are asked in the order in which
/// they were added, outer agents' layers first. A panic or an error of a layer lets nothing pass.
///
/// ```
/// use tool_core::layer::{CallVerdict, Layer, LayerFuture, LayerPhase, LayerContext};
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, ToolCall, tool, tools};
///
/// #[tool("Deletes a file")]
/// fn delete(path: String) {}
///
/// struct ReadOnly;
///
/// impl Layer for ReadOnly {
///     fn name(&self) -> &str {
///         "read_only"
///     }
///
///     fn sees(&self, phase: LayerPhase) -> bool {
///         phase == LayerPhase::Judge
///     }
///
///     fn judge<'a>(&'a self, call: &'a ToolCall, _: &'a LayerContext<'a>) -> LayerFuture<'a, CallVerdict> {
///         Box::pin(async move {
///             Ok(if call.name == "delete" { CallVerdict::deny("read only") } else { CallVerdict::Pass })
///         })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("delete", r#"{"path": "/"}"#).says("I may not.");
/// let agent = Agent::builder(model).tools(tools![delete]).layer(ReadOnly).build()?;
/// let answer = agent.ask("Delete all").await?;
/// assert_eq!(answer.new_messages()[2].text(), "the call was denied: read only");
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer",
    note = "the functions of `layer::guard` and `layer::rewrite` make layers from closures"
)]
pub trait Layer: Send + Sync {
    /// Returns the name, which is unique among the layers of an agent and identifies the layer in records.
    fn name(&self) -> &str;

    /// Returns `false` for a phase that the layer does not concern: it is then not asked, and text that nobody judges is streamed at once.
    fn sees(&self, phase: LayerPhase) -> bool {
        let _ = phase;
        true
    }

    /// Returns `true` if questions are judged while the model already works. No text leaves and no call starts before the verdict.
    fn is_beside(&self) -> bool {
        false
    }

    /// Returns what is wrong with the layer, which [`build`](crate::agent::AgentBuilder::build) then refuses.
    fn mistake(&self) -> Option<String> {
        None
    }

    /// Returns the names of the tools that the layer refers to. An agent without one of them is not
    /// [built](crate::agent::AgentBuilder::build); with a provider of tools, its first turn fails. Tools of agents that it asks, or hands
    /// over to, are not known then: with such agents, names are not checked.
    fn tools(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Judges the question of a run, before the model is asked.
    fn question<'a>(
        &'a self,
        question: &'a Content,
        at: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, QuestionVerdict> {
        let _ = (question, at);
        Box::pin(ready(Ok(QuestionVerdict::Pass)))
    }

    /// Returns `false` for a tool that the model is not offered in the turn. If it calls the tool nevertheless, it reads that there is no such
    /// tool. The tool of a typed answer is always offered.
    ///
    /// The layer is asked before each turn, and again if a request is repeated or a run is resumed in the middle of a turn; the messages are
    /// those before the reply. While the same tools are left out, the prompt cache of the provider is hit.
    fn offers(&self, tool: &ToolDefinition, at: &LayerContext<'_>) -> bool {
        let _ = (tool, at);
        true
    }

    /// Sends a request of the agent to the model, through [`NextLayer::call`].
    fn model<'a>(&'a self, request: ChatRequest<'a>, next: NextLayer<'a>) -> ChatStream<'a> {
        next.call(request)
    }

    /// Rewrites the arguments of a call, before anything judges it. `None` leaves them as they are.
    fn rewrite<'a>(
        &'a self,
        call: &'a ToolCall,
        at: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, Option<String>> {
        let _ = (call, at);
        Box::pin(ready(Ok(None)))
    }

    /// Judges a call with its final arguments. A call that has waited, or that another process continues or repeats, is judged again before
    /// it is executed.
    fn judge<'a>(&'a self, call: &'a ToolCall, at: &'a LayerContext<'a>) -> LayerFuture<'a, CallVerdict> {
        let _ = (call, at);
        Box::pin(ready(Ok(CallVerdict::Pass)))
    }

    /// Judges the outcome of a call, after its last attempt. If this fails, an output is recorded with the run, and judged before the next
    /// step; an error is not, so the call counts as interrupted. The outcome of a call that undoes another is then recorded as an error, and
    /// undoing goes on. The limit of time and cancellation hold for this also after the end of the run: once the run is cancelled or has
    /// used its time, only a verdict that is ready at once counts.
    fn output<'a>(
        &'a self,
        execution: &'a ToolExecution,
        at: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, OutputVerdict> {
        let _ = (execution, at);
        Box::pin(ready(Ok(OutputVerdict::Pass)))
    }

    /// Judges the text of a reply before anybody sees it: the answer, and text beside calls.
    fn answer<'a>(&'a self, text: &'a str, at: &'a LayerContext<'a>) -> LayerFuture<'a, AnswerVerdict> {
        let _ = (text, at);
        Box::pin(ready(Ok(AnswerVerdict::Pass)))
    }

    /// Receives what a layer around the run, or of the same set of tools, has decided, this one or another, before it takes effect. `call` is what it is about, unless
    /// it is about the question or a reply.
    fn decided<'a>(
        &'a self,
        verdict: &'a VerdictRecord,
        call: Option<&'a ToolCall>,
        at: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, ()> {
        let _ = (verdict, call, at);
        Box::pin(ready(Ok(())))
    }

    /// Receives what was decided about a call that waited, and the outcome of each call, once it is recorded: in the order of the events of
    /// the run, with those of agents that calls ask. Nothing interrupts it, but a layer that takes longer than 10 seconds has failed. If this fails, the
    /// other layers and hooks are told, and the run returns with the error and can be resumed, without this entry.
    fn record<'a>(&'a self, entry: RecordedCall<'a>, at: &'a LayerContext<'a>) -> LayerFuture<'a, ()> {
        let _ = (entry, at);
        Box::pin(ready(Ok(())))
    }
}

/// The layers inside of one, and the model. It is `Copy`, so a layer can call it several times.
///
/// A layer that awaits something first returns `ChatStream::new(stream::once(async move { …; next.call(request) }).flatten())`. The last item of
/// a stream is the whole response, which this cache stores:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use futures_util::{StreamExt, stream};
/// use tool_core::layer::{Layer, LayerPhase, NextLayer};
/// use tool_core::model::{ChatRequest, ChatResponse, ChatStream, Delta};
///
/// #[derive(Default)]
/// struct Cache(Mutex<HashMap<String, ChatResponse>>);
///
/// impl Layer for Cache {
///     fn name(&self) -> &str {
///         "cache"
///     }
///
///     fn sees(&self, phase: LayerPhase) -> bool {
///         phase == LayerPhase::Model
///     }
///
///     fn model<'a>(&'a self, request: ChatRequest<'a>, next: NextLayer<'a>) -> ChatStream<'a> {
///         let tools: Vec<_> = request.tools().iter().map(|tool| tool.name()).collect();
///         let key = (request.messages(), request.options(), tools);
///         let key = serde_json::to_string(&key).expect("requests are JSON");
///         if let Some(response) = self.0.lock().expect("nobody panics").get(&key) {
///             return ChatStream::new(stream::iter(response.clone().into_deltas().into_iter().map(Ok)));
///         }
///         ChatStream::new(next.call(request).inspect(move |delta| {
///             if let Ok(Delta::Done(response)) = delta {
///                 let mut response = response.clone();
///                 response.usage = None; // a hit costs nothing
///                 self.0.lock().expect("nobody panics").insert(key.clone(), response);
///             }
///         }))
///     }
/// }
/// ```
#[derive(Clone, Copy)]
pub struct NextLayer<'a> {
    route: Route<'a>,
    place: &'a LayerContext<'a>,
}

impl<'a> NextLayer<'a> {
    /// Sends a request through the remaining layers to the model. What it costs is counted for the run, also if the layer has created
    /// it.
    pub fn call(self, request: ChatRequest<'a>) -> ChatStream<'a> {
        self.route.send(request)
    }

    /// Returns the context of the request.
    #[must_use]
    pub fn context(&self) -> &'a LayerContext<'a> {
        self.place
    }

    /// Returns this with another model, for example to ask it after the first one has failed.
    #[must_use]
    pub fn with_model(self, model: &'a dyn ChatModel) -> Self {
        Self { route: Route { model, ..self.route }, ..self }
    }

    /// Returns what counts the attempts of the request.
    #[cfg(feature = "rate-limit")]
    pub(super) fn meter(&self) -> Option<&'a dyn Meter> {
        self.route.meter
    }

    #[cfg(feature = "rate-limit")]
    pub(super) fn with_meter(self, meter: &'a dyn Meter) -> Self {
        Self { route: Route { meter: Some(meter), ..self.route }, ..self }
    }

    /// Returns the model. [`call`](Self::call) asks it; what is asked in another way is not counted for the run.
    #[must_use]
    pub fn model(&self) -> &'a dyn ChatModel {
        self.route.model
    }

    /// Returns `true` if somebody reads the reply while it arrives.
    #[must_use]
    pub fn is_streamed(&self) -> bool {
        self.route.is_streamed
    }

    /// Returns the error with which a layer ends a reply to end the run for this reason: see
    /// [`StopReason::Blocked`](crate::run::StopReason::Blocked).
    #[must_use]
    pub fn end_run(reason: impl Into<String>) -> ModelError {
        ModelError::new(RunEnded { reason: reason.into(), by: None }).permanent()
    }
}

/// The way of a request: the layers that see it, and the model.
#[derive(Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) layers: &'a [(&'a dyn Layer, LayerContext<'a>)],
    pub(crate) model: &'a dyn ChatModel,
    pub(crate) meter: Option<&'a dyn Meter>,
    pub(crate) is_streamed: bool,
}

impl<'a> Route<'a> {
    pub(crate) fn send(self, request: ChatRequest<'a>) -> ChatStream<'a> {
        let request = request.metered(self.meter);
        match self.layers.split_first() {
            Some(((layer, place), layers)) => {
                through(*layer, request, NextLayer { route: Self { layers, ..self }, place })
            }
            None => catch_panics(
                || {
                    // The stream owns the request, which the model borrows.
                    ChatStream::sent_by(|mut sender| async move {
                        request.reply_of(self.model, self.is_streamed).forward(&mut sender).await
                    })
                },
                |text| ModelError::new(format!("the model failed: {text}")),
            ),
        }
    }
}

/// Converts a panic into an error, so that it is known whose it is.
fn catch_panics<'a>(
    start: impl FnOnce() -> ChatStream<'a>,
    error: impl Fn(Panicked) -> ModelError + Send + 'a,
) -> ChatStream<'a> {
    match catch_unwind(AssertUnwindSafe(start)) {
        Ok(deltas) => {
            let deltas = AssertUnwindSafe(deltas).catch_unwind();
            ChatStream::new(
                deltas.map(move |delta| delta.unwrap_or_else(|panic| Err(error(Panicked::new(&*panic))))),
            )
        }
        Err(panic) => ChatStream::new(stream::iter([Err(error(Panicked::new(&*panic)))])),
    }
}

/// Sends a request through a layer. A panic is an error of the layer, and the end of a run is of its level.
fn through<'a>(layer: &'a dyn Layer, request: ChatRequest<'a>, next: NextLayer<'a>) -> ChatStream<'a> {
    let deltas = catch_panics(
        || layer.model(request, next),
        |panic| ModelError::new(LayerPanicked { layer: layer.name().to_owned(), panic }).permanent(),
    );
    ChatStream::new(deltas.map(move |delta| {
        delta.map_err(|error| {
            // The innermost layer that passes it on is the one that has ended the run.
            error.downcast().map_or_else(
                |other| other,
                |RunEnded { reason, by }| {
                    let by = by.unwrap_or_else(|| (layer.name().to_owned(), next.route.layers.len()));
                    ModelError::new(RunEnded { reason, by: Some(by) }).permanent()
                },
            )
        })
    }))
}

impl fmt::Debug for NextLayer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("place", self.place).finish_non_exhaustive()
    }
}

/// The error by which a layer ends the run from within a stream.
#[derive(Debug, thiserror::Error)]
#[error("a layer has ended the run: {reason}")]
pub(crate) struct RunEnded {
    pub(crate) reason: String,
    /// The layer that has ended it, and the number of layers inside of it; known once it has passed the error on.
    pub(crate) by: Option<(String, usize)>,
}

/// The error of a layer that panicked on the way of a request.
#[derive(Debug, thiserror::Error)]
#[error("the layer `{layer}` failed: {panic}")]
pub(crate) struct LayerPanicked {
    pub(crate) layer: String,
    pub(crate) panic: Panicked,
}

/// Awaits what a layer decides. A panic is an error.
pub(super) async fn await_verdict<'a, V>(
    layer: &'a dyn Layer,
    ask: impl FnOnce(&'a dyn Layer) -> LayerFuture<'a, V>,
) -> Result<V, LayerError> {
    let verdict = AssertUnwindSafe(async { ask(layer).await }).catch_unwind().await;
    verdict.unwrap_or_else(|panic| Err(Panicked::new(&*panic).into()))
}
