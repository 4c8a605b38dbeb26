//! The spans of a run.

use tracing::field::Empty;
use tracing::instrument::Instrumented;
use tracing::{Instrument, Span, info_span};

use super::{content, names};
use crate::agent::{Agent, AgentBuilder};
use crate::model::{ChatRequest, ChatResponse, ConversationId, ModelError, ToolCall, Usage};
use crate::run::{Answer, Run, RunError};
use crate::tool::ToolExecution;
use crate::toolset::ToolSet;

impl AgentBuilder {
    #[doc = include_str!("../../../docs/tracing.md")]
    #[must_use]
    pub fn trace_content(mut self, content: bool) -> Self {
        self.agent.trace = Settings { content };
        self
    }
}

/// What traces may hold.
#[derive(Clone, Copy, Default)]
pub(in crate::agent) struct Settings {
    /// Arguments, outputs and texts, too.
    content: bool,
}

/// The spans of a run that are open: of the run, of its turn, and of the model call that is under way.
pub(in crate::agent) struct RunTrace {
    settings: Settings,
    // Closed from the innermost to the outermost.
    chat: Option<Open>,
    turn: Option<Turn>,
    run: Option<Open>,
    conversation: Option<ConversationId>,
    /// The tokens that the model calls of these spans took.
    usage: Option<Usage>,
}

struct Turn {
    number: u32,
    span: Span,
}

/// Makes the spans of the calls of a turn.
#[derive(Clone)]
pub(in crate::agent) struct CallTrace {
    settings: Settings,
    turn: Span,
}

/// The span of one call.
pub(in crate::agent) struct CallSpan {
    settings: Settings,
    open: Open,
}

/// Where something happens: the spans that are made there are below this one.
pub(in crate::agent) struct Scope(Span);

impl Scope {
    /// The span is entered whenever the future is polled, and only then.
    pub(in crate::agent) fn holds<F: Future>(self, future: F) -> Instrumented<F> {
        future.instrument(self.0)
    }
}

/// A span whose outcome is not known yet. What is closed before that was given up.
struct Open {
    span: Span,
    failure: Option<Failure>,
}

/// How it ends, unless something else becomes known.
struct Failure {
    kind: &'static str,
    text: Option<String>,
}

impl Open {
    fn new(span: Span) -> Self {
        Self { span, failure: Some(Failure { kind: "cancelled", text: None }) }
    }

    fn fails(&mut self, kind: &'static str, text: Option<String>) {
        self.failure = Some(Failure { kind, text });
    }

    fn succeeds(&mut self) {
        self.failure = None;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(Failure { kind, text }) = &self.failure {
            self.span.record("error.type", kind);
            self.span.record("otel.status_code", "ERROR");
            self.span.record("otel.status_description", text.as_deref());
        }
    }
}

impl RunTrace {
    pub(in crate::agent) fn new(settings: Settings) -> Self {
        Self { settings, chat: None, turn: None, run: None, conversation: None, usage: None }
    }

    /// The run takes a step: its span begins with the first.
    pub(in crate::agent) fn goes_on(&mut self, agent: &Agent, run: &Run) -> Scope {
        let open = match &mut self.run {
            Some(open) => {
                // What failed before is tried again, or a person has decided.
                open.fails("cancelled", None);
                open
            }
            none => {
                self.conversation = run.conversation().cloned();
                none.insert(Open::new(span_of_run(self.settings, agent, run)))
            }
        };
        Scope(open.span.clone())
    }

    /// The run is in this turn.
    pub(in crate::agent) fn takes_turn(&mut self, number: u32) {
        if self.turn.as_ref().is_some_and(|turn| turn.number == number) {
            return;
        }
        self.chat = None;
        let make = || {
            info_span!(
                target: "tool_core",
                "turn",
                otel.name = "turn",
                otel.kind = "internal",
                tool_core.turn.number = i64::from(number)
            )
        };
        let span = self.run.as_ref().map_or_else(Span::none, |run| run.span.in_scope(make));
        self.turn = Some(Turn { number, span });
    }

    /// The model is asked: by the driver, or by whoever was handed the request.
    pub(in crate::agent) fn asks(
        &mut self,
        agent: &Agent,
        request: &ChatRequest<'_>,
        streams: bool,
    ) -> Scope {
        let turn = self.turn.as_ref().map_or_else(Span::none, |turn| turn.span.clone());
        // A caller who was handed the request may let the driver ask, after all.
        let open = self.chat.get_or_insert_with(|| {
            let span = turn.in_scope(|| span_of_chat(agent, request, self.conversation.as_ref(), streams));
            if self.settings.content && !span.is_disabled() {
                span.record("gen_ai.input.messages", content::input(request.messages()));
            }
            Open::new(span)
        });
        Scope(open.span.clone())
    }

    pub(in crate::agent) fn record_response(&mut self, response: &ChatResponse) {
        let Some(mut open) = self.chat.take() else { return };
        open.succeeds();
        if let Some(usage) = response.usage {
            *self.usage.get_or_insert_default() += usage;
            record_usage(&open.span, usage);
        }
        let reason = &response.finish_reason;
        open.span.record("gen_ai.response.id", response.id.as_deref());
        open.span.record("gen_ai.response.model", response.model.as_deref());
        open.span.record("gen_ai.response.finish_reasons", list(&[names::of_finish_reason(reason)]));
        if self.settings.content && !open.span.is_disabled() {
            open.span.record("gen_ai.output.messages", content::output(&response.message, reason));
        }
    }

    pub(in crate::agent) fn not_replied(&mut self, error: &ModelError) {
        if let Some(mut open) = self.chat.take() {
            open.fails("model", self.settings.content.then(|| error.to_string()));
        }
    }

    /// What was under way is given up.
    pub(in crate::agent) fn stopped(&mut self) {
        self.chat = None;
    }

    /// The run stands still, and is no failure: it waits for a person, or is kept by the caller.
    pub(in crate::agent) fn laid_aside(&mut self) {
        if let Some(open) = &mut self.run {
            open.succeeds();
        }
    }

    pub(in crate::agent) fn failed(&mut self, error: &RunError) {
        if let Some(open) = &mut self.run {
            if error.is_approval_needed() {
                open.succeeds();
            } else {
                open.fails(names::of_run_error(error), self.settings.content.then(|| error.to_string()));
            }
        }
    }

    pub(in crate::agent) fn answered(&mut self, answer: &Answer) {
        let Some(open) = &mut self.run else { return };
        open.succeeds();
        let reason = answer.finish_reason();
        open.span.record("gen_ai.response.finish_reasons", list(&[names::of_finish_reason(reason)]));
        if self.settings.content && !open.span.is_disabled() {
            open.span.record("gen_ai.output.messages", content::answer(answer.text(), reason));
        }
    }

    pub(in crate::agent) fn of_calls(&self) -> CallTrace {
        let turn = self.turn.as_ref().map_or_else(Span::none, |turn| turn.span.clone());
        CallTrace { settings: self.settings, turn }
    }
}

impl Drop for RunTrace {
    fn drop(&mut self) {
        if let (Some(open), Some(usage)) = (&self.run, self.usage) {
            record_usage(&open.span, usage);
        }
    }
}

impl CallTrace {
    /// A call is made.
    pub(in crate::agent) fn calls(&self, call: &ToolCall, tools: &ToolSet, attempt: u32) -> CallSpan {
        let span = self.turn.in_scope(|| span_of_call(call, tools, attempt));
        if self.settings.content {
            span.record("gen_ai.tool.call.arguments", &*call.arguments);
        }
        CallSpan { settings: self.settings, open: Open::new(span) }
    }
}

impl CallSpan {
    pub(in crate::agent) fn scope(&self) -> Scope {
        Scope(self.open.span.clone())
    }

    pub(in crate::agent) fn called(mut self, execution: &ToolExecution) {
        match execution.outcome() {
            Ok(output) => {
                self.open.succeeds();
                if self.settings.content {
                    self.open.span.record("gen_ai.tool.call.result", &*output.content().text());
                }
            }
            Err(error) => {
                let text = self.settings.content.then(|| error.to_string());
                self.open.fails(names::of_tool_error(error.kind()), text);
            }
        }
    }
}

fn span_of_run(settings: Settings, agent: &Agent, run: &Run) -> Span {
    let span = info_span!(
        target: "tool_core",
        "invoke_agent",
        otel.name = with_name("invoke_agent", agent.name()),
        otel.kind = "internal",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = agent.name(),
        gen_ai.conversation.id = run.conversation().map(ConversationId::as_str),
        gen_ai.provider.name = agent.model().provider_name(),
        gen_ai.request.model = run.options().model.as_deref().or(agent.model().model_name()),
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.reasoning.output_tokens = Empty,
        gen_ai.input.messages = Empty,
        gen_ai.output.messages = Empty,
        tool_core.run.id = run.id().as_str(),
        "error.type" = Empty
    );
    if settings.content && !span.is_disabled() {
        span.record("gen_ai.input.messages", content::input(run.messages()));
    }
    span
}

fn span_of_chat(
    agent: &Agent,
    request: &ChatRequest<'_>,
    conversation: Option<&ConversationId>,
    streams: bool,
) -> Span {
    let options = request.options();
    let model = options.model.as_deref().or(agent.model().model_name());
    info_span!(
        target: "tool_core",
        "chat",
        otel.name = with_name("chat", model),
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.conversation.id = conversation.map(ConversationId::as_str),
        gen_ai.provider.name = agent.model().provider_name(),
        "gen_ai.output.type" = request.response_format().map(|_| "json"),
        gen_ai.request.model = model,
        gen_ai.request.max_tokens = options.max_output_tokens.map(i64::from),
        gen_ai.request.seed = options.seed,
        gen_ai.request.stop_sequences = (!options.stop.is_empty()).then(|| list(&options.stop)),
        gen_ai.request.stream = streams.then_some(true),
        gen_ai.request.temperature = options.temperature,
        gen_ai.request.top_p = options.top_p,
        gen_ai.response.id = Empty,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.reasoning.output_tokens = Empty,
        gen_ai.input.messages = Empty,
        gen_ai.output.messages = Empty,
        "error.type" = Empty
    )
}

fn span_of_call(call: &ToolCall, tools: &ToolSet, attempt: u32) -> Span {
    let tool = || tools.get(&call.name).map(crate::tool::Tool::definition);
    info_span!(
        target: "tool_core",
        "execute_tool",
        // A name that a model made up is no name to group by.
        otel.name = with_name("execute_tool", tool().map(|tool| tool.name())),
        otel.kind = "internal",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = &*call.name,
        gen_ai.tool.call.id = &*call.id,
        "gen_ai.tool.type" = "function",
        gen_ai.tool.description = tool().and_then(|tool| tool.description()),
        gen_ai.tool.call.arguments = Empty,
        gen_ai.tool.call.result = Empty,
        tool_core.call.attempt = i64::from(attempt),
        "error.type" = Empty
    )
}

/// The name of a span: what is done, and to what.
fn with_name(operation: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{operation} {name}"),
        None => operation.to_owned(),
    }
}

/// A field holds no list, so it is written as JSON.
fn list<T: AsRef<str>>(texts: &[T]) -> String {
    texts.iter().map(AsRef::as_ref).collect::<serde_json::Value>().to_string()
}

fn record_usage(span: &Span, usage: Usage) {
    // OpenTelemetry's numbers have a sign.
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    span.record("gen_ai.usage.input_tokens", count(usage.input_tokens));
    span.record("gen_ai.usage.output_tokens", count(usage.output_tokens));
    span.record("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens.map(count));
    span.record("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens.map(count));
}
