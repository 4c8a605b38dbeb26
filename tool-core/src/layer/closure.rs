//! Layers from closures.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::StreamExt;

use super::context::LayerContext;
use super::layer_trait::{Layer, LayerError, LayerFuture, LayerPhase, NextLayer};
use super::verdict::{AnswerVerdict, CallVerdict, OutputVerdict, QuestionVerdict, TextVerdict};
use crate::content::Content;
use crate::model::{ChatRequest, ChatStream, Delta, ToolCall, ToolDefinition};
use crate::tool::ToolExecution;

/// A value that the closure of a guard can return: a verdict, a `Result` of one, or a boxed future of either.
///
/// ```
/// use tool_core::layer::{AnswerVerdict, CallVerdict, LayerFuture, guard};
/// use tool_core::ToolCall;
///
/// # async fn is_allowed(tool: String) -> Result<bool, std::io::Error> { Ok(tool != "pay") }
/// guard::answer(|_| Box::pin(async { AnswerVerdict::Pass }));
/// guard::call(|call: &ToolCall| -> LayerFuture<'static, CallVerdict> {
///     let tool = call.name.clone();
///     Box::pin(async move { Ok(if is_allowed(tool).await? { CallVerdict::Pass } else { CallVerdict::deny("not now") }) })
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `{V}`",
    label = "the closure returns no `{V}`",
    note = "return the verdict, a `Result` of it, or `Box::pin(async move {{ … }})` of either; with `?`, write the type: `|…| -> LayerFuture<'static, {V}>`"
)]
pub trait IntoVerdict<V> {
    /// Converts the value into the future of a verdict.
    fn into_verdict(self) -> LayerFuture<'static, V>;
}

macro_rules! into_verdict {
    ($($verdict:ty),+) => {$(
        #[diagnostic::do_not_recommend]
        impl IntoVerdict<$verdict> for $verdict {
            fn into_verdict(self) -> LayerFuture<'static, $verdict> {
                Box::pin(ready(Ok(self)))
            }
        }

        #[diagnostic::do_not_recommend]
        impl<E: Into<LayerError>> IntoVerdict<$verdict> for Result<$verdict, E> {
            fn into_verdict(self) -> LayerFuture<'static, $verdict> {
                Box::pin(ready(self.map_err(Into::into)))
            }
        }

        #[diagnostic::do_not_recommend]
        impl<F> IntoVerdict<$verdict> for Pin<Box<F>>
        where
            F: Future<Output: IntoVerdict<$verdict>> + Send + ?Sized + 'static,
        {
            fn into_verdict(self) -> LayerFuture<'static, $verdict> {
                self.then(IntoVerdict::into_verdict).boxed()
            }
        }
    )+};
}

into_verdict!(QuestionVerdict, CallVerdict, OutputVerdict, AnswerVerdict, Option<String>);

type Judge<T, V> = Box<dyn Fn(&T, &LayerContext<'_>) -> LayerFuture<'static, V> + Send + Sync>;

type Offers = dyn Fn(&ToolDefinition, &LayerContext<'_>) -> bool + Send + Sync;

type Rewrite = dyn for<'a> Fn(ChatRequest<'a>, &LayerContext<'_>) -> ChatRequest<'a> + Send + Sync;

/// What a closure judges or rewrites.
pub(super) enum Closure {
    Question(Judge<Content, QuestionVerdict>),
    Offer(Box<Offers>),
    Request(Box<Rewrite>),
    Text(usize, Box<dyn Fn(&str) -> TextVerdict + Send + Sync>),
    Rewrite(Judge<ToolCall, Option<String>>),
    Call(Judge<ToolCall, CallVerdict>),
    Output(Judge<ToolExecution, OutputVerdict>),
    Answer(Judge<str, AnswerVerdict>),
}

/// A layer from a closure; created by the functions of [`guard`](crate::layer::guard) and [`rewrite`](crate::layer::rewrite).
#[must_use = "pass it to `AgentBuilder::layer`"]
pub struct ClosureLayer {
    name: Cow<'static, str>,
    closure: Closure,
    /// The only tool that it concerns.
    tool: Option<Arc<str>>,
}

impl ClosureLayer {
    pub(super) fn new(name: &'static str, closure: Closure) -> Self {
        Self { name: name.into(), closure, tool: None }
    }

    pub(super) fn about(self, tool: Arc<str>) -> Self {
        Self { tool: Some(tool), ..self }
    }

    /// Sets the name, which is unique among the layers of an agent. It is the path of the function by default.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Cow::Owned(name.into());
        self
    }
}

impl Layer for ClosureLayer {
    fn name(&self) -> &str {
        &self.name
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase
            == match self.closure {
                Closure::Question(_) => LayerPhase::Question,
                Closure::Offer(_) => LayerPhase::Offer,
                Closure::Request(_) | Closure::Text(..) => LayerPhase::Model,
                Closure::Rewrite(_) => LayerPhase::Rewrite,
                Closure::Call(_) => LayerPhase::Judge,
                Closure::Output(_) => LayerPhase::Output,
                Closure::Answer(_) => LayerPhase::Answer,
            }
    }

    fn tools(&self) -> Vec<&str> {
        self.tool.as_deref().into_iter().collect()
    }

    fn mistake(&self) -> Option<String> {
        let is_empty = matches!(self.closure, Closure::Text(0, _));
        is_empty.then(|| "its window has no characters".to_owned())
    }

    fn question<'a>(
        &'a self,
        question: &'a Content,
        at: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, QuestionVerdict> {
        match &self.closure {
            Closure::Question(judge) => judge(question, at),
            _ => QuestionVerdict::Pass.into_verdict(),
        }
    }

    fn offers(&self, tool: &ToolDefinition, at: &LayerContext<'_>) -> bool {
        match &self.closure {
            Closure::Offer(offers) => offers(tool, at),
            _ => true,
        }
    }

    fn model<'a>(&'a self, request: ChatRequest<'a>, next: NextLayer<'a>) -> ChatStream<'a> {
        match &self.closure {
            Closure::Request(rewrite) => {
                let before = request.clone();
                next.call(rewrite(request, next.context()).with_results_of(&before))
            }
            Closure::Text(window, judge) => self.watch_text(*window, &**judge, next.call(request)),
            _ => next.call(request),
        }
    }

    fn rewrite<'a>(
        &'a self,
        call: &'a ToolCall,
        at: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, Option<String>> {
        match &self.closure {
            Closure::Rewrite(rewrite) => rewrite(call, at),
            _ => None.into_verdict(),
        }
    }

    fn judge<'a>(&'a self, call: &'a ToolCall, at: &'a LayerContext<'a>) -> LayerFuture<'a, CallVerdict> {
        match &self.closure {
            Closure::Call(judge) => judge(call, at),
            _ => CallVerdict::Pass.into_verdict(),
        }
    }

    fn output<'a>(
        &'a self,
        execution: &'a ToolExecution,
        at: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, OutputVerdict> {
        match &self.closure {
            Closure::Output(judge) => judge(execution, at),
            _ => OutputVerdict::Pass.into_verdict(),
        }
    }

    fn answer<'a>(&'a self, text: &'a str, at: &'a LayerContext<'a>) -> LayerFuture<'a, AnswerVerdict> {
        match &self.closure {
            Closure::Answer(judge) => judge(text, at),
            _ => AnswerVerdict::Pass.into_verdict(),
        }
    }
}

impl ClosureLayer {
    /// Passes deltas on, each once it is judged with the characters before it.
    fn watch_text<'a>(
        &'a self,
        window: usize,
        judge: &'a (dyn Fn(&str) -> TextVerdict + Send + Sync),
        deltas: ChatStream<'a>,
    ) -> ChatStream<'a> {
        let mut seen = String::new();
        let mut shown = String::new();
        let mut judge_more = move |text: &str| {
            seen.push_str(text);
            if let TextVerdict::End(reason) = judge(&seen) {
                return Err(NextLayer::end_run(reason));
            }
            let kept = seen.char_indices().rev().take(window).last();
            seen.drain(..kept.map_or(seen.len(), |(start, _)| start));
            Ok(())
        };
        let judged = deltas.map(move |delta| {
            let delta = delta?;
            match &delta {
                Delta::Text(text) | Delta::Refusal(text) => {
                    shown.push_str(text);
                    judge_more(text)?;
                }
                Delta::Done(response) => {
                    let message = &response.message;
                    let whole = message.text.clone() + message.refusal.as_deref().unwrap_or_default();
                    // Without a reader, or if the provider sends something else at the end.
                    if whole != shown {
                        judge_more(&whole)?;
                    }
                }
                _ => {}
            }
            Ok(delta)
        });
        ChatStream::new(judged)
    }
}

/// A guard of questions; created by [`guard::question`](super::guard::question).
#[must_use = "pass it to `AgentBuilder::layer`"]
pub struct QuestionGuard {
    layer: ClosureLayer,
    is_beside: bool,
}

impl QuestionGuard {
    pub(super) fn new(layer: ClosureLayer) -> Self {
        Self { layer, is_beside: false }
    }

    /// Judges questions while the model already works. No text leaves and no call starts before the verdict.
    pub fn beside(mut self) -> Self {
        self.is_beside = true;
        self
    }

    /// Sets the name, which is unique among the layers of an agent.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.layer = self.layer.named(name);
        self
    }
}

impl Layer for QuestionGuard {
    fn name(&self) -> &str {
        self.layer.name()
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        self.layer.sees(phase)
    }

    fn is_beside(&self) -> bool {
        self.is_beside
    }

    fn question<'a>(
        &'a self,
        question: &'a Content,
        at: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, QuestionVerdict> {
        self.layer.question(question, at)
    }
}

impl fmt::Debug for ClosureLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClosureLayer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for QuestionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuestionGuard").field("name", &self.layer.name).finish_non_exhaustive()
    }
}
