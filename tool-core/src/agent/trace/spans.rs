//! The spans of a run.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::instrument::Instrumented;
use tracing::{Instrument, Span, debug, info_span};

use super::open_span::OpenSpan;
use super::{content, names};
use crate::agent::spending::RequestMeter;
use crate::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, ConversationId, Cost, FinishReason, ModelError,
    RunUser, ToolCall, Usage,
};
use crate::run::{Run, RunError, RunErrorKind};
use crate::tool::ToolExecution;
use crate::toolset::ToolSet;

#[derive(Clone, Copy, Default)]
pub(in crate::agent) struct Settings {
    /// Traces contain arguments, outputs and texts.
    pub(in crate::agent) content: bool,
    /// Spans of runs contain whose run it is.
    pub(in crate::agent) user: bool,
}

/// The open spans of a run: of the run, of its turn, and of the model request in flight.
pub(in crate::agent) struct RunTrace {
    settings: Settings,
    // Fields are dropped in order: the innermost span is closed first.
    chat: Option<OpenSpan>,
    /// The number of the turn and its span.
    turn: Option<(u32, Span)>,
    run: Option<OpenSpan>,
    conversation: Option<ConversationId>,
    /// The tokens that the model requests of these spans used.
    usage: Option<Usage>,
    cost: Option<Cost>,
    meter: Option<Arc<RequestMeter>>,
}

/// Creates the spans of the calls of a turn.
#[derive(Clone)]
pub(in crate::agent) struct CallTrace {
    settings: Settings,
    turn: Span,
}

pub(in crate::agent) struct CallSpan {
    settings: Settings,
    open: OpenSpan,
}

/// A span in which futures can run: spans that they create are its children.
#[derive(Clone)]
pub(in crate::agent) struct Scope(Span);

impl Scope {
    /// Enters the span whenever the future is polled.
    pub(in crate::agent) fn instrument<F: Future>(self, future: F) -> Instrumented<F> {
        future.instrument(self.0)
    }

    /// Enters the span while the function is called.
    pub(in crate::agent) fn in_scope<T>(&self, function: impl FnOnce() -> T) -> T {
        self.0.in_scope(function)
    }
}

impl RunTrace {
    pub(in crate::agent) fn new(settings: Settings) -> Self {
        Self {
            settings,
            chat: None,
            turn: None,
            run: None,
            conversation: None,
            usage: None,
            cost: None,
            meter: None,
        }
    }

    /// Enters the span of the run, which starts with the first step.
    pub(in crate::agent) fn enter_run(
        &mut self,
        name: Option<&str>,
        model: &dyn ChatModel,
        run: &Run,
    ) -> Scope {
        let open = match &mut self.run {
            Some(open) => {
                // The run continues after a failure or an approval.
                open.set_failure("cancelled", None);
                open
            }
            none => {
                self.conversation = run.conversation().cloned();
                none.insert(OpenSpan::new(run_span(self.settings, name, model, run)))
            }
        };
        Scope(open.span.clone())
    }

    /// Returns the span of the run, if it has started.
    pub(in crate::agent) fn run_scope(&self) -> Option<Scope> {
        self.run.as_ref().map(|open| Scope(open.span.clone()))
    }

    /// Starts the span of this turn, unless the run is in it already.
    pub(in crate::agent) fn enter_turn(&mut self, number: u32) {
        if self.turn.as_ref().is_some_and(|(current, _)| *current == number) {
            return;
        }
        self.chat = None;
        let create = || {
            info_span!(
                target: "tool_core",
                "turn",
                otel.name = "turn",
                otel.kind = "internal",
                tool_core.turn.number = i64::from(number)
            )
        };
        let span = self.run.as_ref().map_or_else(Span::none, |run| run.span.in_scope(create));
        self.turn = Some((number, span));
    }

    /// Enters the span of a model request, which the driver or the caller sends.
    pub(in crate::agent) fn enter_chat(
        &mut self,
        model: &dyn ChatModel,
        request: &ChatRequest<'_>,
        is_streamed: bool,
    ) -> Scope {
        let turn = self.turn_span();
        // The span exists already if the caller received the request but leaves it to the driver to send it.
        let open = self.chat.get_or_insert_with(|| {
            let span = turn.in_scope(|| chat_span(model, request, self.conversation.as_ref(), is_streamed));
            if self.settings.content && !span.is_disabled() {
                span.record("gen_ai.input.messages", content::input_messages(request.messages()));
            }
            let (messages, tools) = (request.messages().len(), request.tools().len());
            span.in_scope(|| debug!(target: "tool_core", messages, tools, "request"));
            OpenSpan::new(span)
        });
        Scope(open.span.clone())
    }

    pub(in crate::agent) fn record_response(&mut self, response: &ChatResponse) {
        let Some(mut open) = self.chat.take() else { return };
        open.set_success();
        if let Some(usage) = response.usage {
            *self.usage.get_or_insert_default() += usage;
            record_usage(&open.span, usage);
        }
        let reason = &response.finish_reason;
        open.span.record("gen_ai.response.id", response.id.as_deref());
        open.span.record("gen_ai.response.model", response.model.as_deref());
        if let Some(provider) = &response.provider {
            open.span.record("gen_ai.provider.name", provider);
        }
        record_finish_reason(&open.span, reason);
        if self.settings.content && !open.span.is_disabled() {
            open.span.record("gen_ai.output.messages", content::output_messages(&response.message, reason));
        }
        let (message, usage) = (&response.message, response.usage);
        open.span.in_scope(|| {
            debug!(
                target: "tool_core",
                duration_ms = milliseconds(open.started.elapsed()),
                text_bytes = message.text.len(),
                calls = message.tool_calls.len(),
                finish_reason = names::finish_reason(reason),
                input_tokens = usage.map(|usage| usage.input_tokens),
                output_tokens = usage.map(|usage| usage.output_tokens),
                "response"
            );
        });
    }

    /// Sets what counts the request in flight. A request that is dropped has a cost, too.
    pub(in crate::agent) fn set_meter(&mut self, meter: Option<Arc<RequestMeter>>) {
        self.meter = meter;
    }

    /// Records what the request in flight has cost.
    pub(in crate::agent) fn record_charges(&mut self) {
        let cost = self.meter.take().and_then(|meter| meter.charged());
        self.record_cost(cost);
    }

    pub(in crate::agent) fn record_cost(&mut self, cost: Option<Cost>) {
        self.chat.iter().for_each(|open| record_cost(&open.span, cost));
        self.cost = Cost::sum(self.cost, cost);
    }

    pub(in crate::agent) fn record_model_error(&mut self, error: &ModelError) {
        if let Some(mut open) = self.chat.take() {
            let duration_ms = milliseconds(open.started.elapsed());
            open.span.in_scope(|| debug!(target: "tool_core", duration_ms, error = "model", "response"));
            open.set_failure("model", self.settings.content.then(|| error.to_string()));
        }
    }

    /// Closes the span of the model request in flight.
    pub(in crate::agent) fn interrupt(&mut self) {
        self.chat = None;
    }

    /// Marks the run as paused, not failed: it waits for approvals or results, or the caller stores it.
    pub(in crate::agent) fn pause(&mut self) {
        if let Some(open) = &mut self.run {
            open.set_success();
        }
    }

    pub(in crate::agent) fn record_error(&mut self, error: &RunError) {
        if let Some(open) = &mut self.run {
            if matches!(error.kind(), RunErrorKind::Waiting) {
                open.set_success();
            } else {
                open.set_failure(
                    names::run_error_type(error),
                    self.settings.content.then(|| error.to_string()),
                );
            }
        }
    }

    pub(in crate::agent) fn record_answer(&mut self, reason: &FinishReason, text: &str) {
        let Some(open) = &mut self.run else { return };
        open.set_success();
        record_finish_reason(&open.span, reason);
        if self.settings.content && !open.span.is_disabled() {
            let message = AssistantMessage::text(text);
            open.span.record("gen_ai.output.messages", content::output_messages(&message, reason));
        }
    }

    pub(in crate::agent) fn call_trace(&self) -> CallTrace {
        CallTrace { settings: self.settings, turn: self.turn_span() }
    }

    fn turn_span(&self) -> Span {
        self.turn.as_ref().map_or_else(Span::none, |(_, span)| span.clone())
    }
}

impl Drop for RunTrace {
    fn drop(&mut self) {
        self.record_charges();
        if let Some(open) = &self.run {
            self.usage.iter().for_each(|usage| record_usage(&open.span, *usage));
            record_cost(&open.span, self.cost);
        }
    }
}

impl CallTrace {
    /// Starts the span of a call.
    pub(in crate::agent) fn start_call(&self, call: &ToolCall, tools: &ToolSet, attempt: u32) -> CallSpan {
        let span = self.turn.in_scope(|| call_span(call, tools, attempt));
        if self.settings.content {
            span.record("gen_ai.tool.call.arguments", &*call.arguments);
        }
        span.in_scope(|| {
            let (tool, id, arguments_bytes) = (&*call.name, &*call.id, call.arguments.len());
            debug!(target: "tool_core", tool, id, arguments_bytes, attempt, "call");
        });
        CallSpan { settings: self.settings, open: OpenSpan::new(span) }
    }
}

impl CallSpan {
    /// Ends the span of a call that has no outcome yet.
    pub(in crate::agent) fn suspend(mut self) {
        self.open.set_success();
    }

    pub(in crate::agent) fn scope(&self) -> Scope {
        Scope(self.open.span.clone())
    }

    pub(in crate::agent) fn finish(mut self, execution: &ToolExecution) {
        match execution.outcome() {
            Ok(output) => {
                self.open.set_success();
                if self.settings.content {
                    self.open.span.record("gen_ai.tool.call.result", &*output.content().text());
                }
            }
            Err(error) => {
                let text = self.settings.content.then(|| error.to_string());
                self.open.set_failure(error.kind().as_str(), text);
            }
        }
        self.open.span.in_scope(|| {
            debug!(
                target: "tool_core",
                tool = &*execution.call().name,
                id = &*execution.call().id,
                duration_ms = milliseconds(self.open.started.elapsed()),
                output_bytes = execution.output().map(|output| output.content().text().len()),
                error = execution.outcome().err().map(|error| error.kind().as_str()),
                "result"
            );
        });
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn run_span(settings: Settings, name: Option<&str>, model: &dyn ChatModel, run: &Run) -> Span {
    let span = info_span!(
        target: "tool_core",
        "invoke_agent",
        otel.name = with_name("invoke_agent", name),
        otel.kind = "internal",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = name,
        gen_ai.conversation.id = run.conversation().map(ConversationId::as_str),
        gen_ai.provider.name = model.provider_name(),
        gen_ai.request.model = run.options().model.as_deref().or(model.model_name()),
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.cache_creation.input_tokens = Empty,
        gen_ai.usage.reasoning.output_tokens = Empty,
        gen_ai.usage.cost = Empty,
        tool_core.cost.currency = Empty,
        gen_ai.input.messages = Empty,
        gen_ai.output.messages = Empty,
        tool_core.run.id = run.id().as_str(),
        user.id = run.user().filter(|_| settings.user).map(RunUser::as_str),
        "error.type" = Empty
    );
    if settings.content && !span.is_disabled() {
        span.record("gen_ai.input.messages", content::input_messages(run.messages()));
    }
    span
}

fn chat_span(
    model: &dyn ChatModel,
    request: &ChatRequest<'_>,
    conversation: Option<&ConversationId>,
    is_streamed: bool,
) -> Span {
    let options = request.options();
    let requested_model = options.model.as_deref().or(model.model_name());
    info_span!(
        target: "tool_core",
        "chat",
        otel.name = with_name("chat", requested_model),
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.conversation.id = conversation.map(ConversationId::as_str),
        gen_ai.provider.name = model.provider_name(),
        "gen_ai.output.type" = request.response_format().map(|_| "json"),
        gen_ai.request.model = requested_model,
        gen_ai.request.max_tokens = options.max_output_tokens.map(i64::from),
        gen_ai.request.seed = options.seed,
        gen_ai.request.stop_sequences = (!options.stop.is_empty()).then(|| list(&options.stop)),
        gen_ai.request.stream = is_streamed.then_some(true),
        gen_ai.request.temperature = options.temperature,
        gen_ai.request.top_p = options.top_p,
        gen_ai.response.id = Empty,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.cache_creation.input_tokens = Empty,
        gen_ai.usage.reasoning.output_tokens = Empty,
        gen_ai.usage.cost = Empty,
        tool_core.cost.currency = Empty,
        gen_ai.input.messages = Empty,
        gen_ai.output.messages = Empty,
        "error.type" = Empty
    )
}

fn call_span(call: &ToolCall, tools: &ToolSet, attempt: u32) -> Span {
    let tool = || tools.get(&call.name).map(crate::tool::Tool::definition);
    info_span!(
        target: "tool_core",
        "execute_tool",
        // A name that the model invented must not become the name of a span.
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

fn with_name(operation: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{operation} {name}"),
        None => operation.to_owned(),
    }
}

/// Encodes a list as JSON, because a field cannot contain a list.
fn list<T: AsRef<str>>(texts: &[T]) -> String {
    texts.iter().map(AsRef::as_ref).collect::<serde_json::Value>().to_string()
}

fn record_finish_reason(span: &Span, reason: &FinishReason) {
    if !span.is_disabled() {
        span.record("gen_ai.response.finish_reasons", list(&[names::finish_reason(reason)]));
    }
}

fn record_usage(span: &Span, usage: Usage) {
    // OpenTelemetry's integers are signed.
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    span.record("gen_ai.usage.input_tokens", count(usage.input_tokens));
    span.record("gen_ai.usage.output_tokens", count(usage.output_tokens));
    span.record("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens.map(count));
    span.record("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens.map(count));
    span.record("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens.map(count));
}

/// Records a cost under a name that tools for OpenTelemetry read, which defines none.
#[expect(clippy::cast_precision_loss, reason = "for display")]
fn record_cost(span: &Span, cost: Option<Cost>) {
    if let Some(cost) = cost {
        span.record("gen_ai.usage.cost", cost.micros() as f64 / 1e6);
        span.record("tool_core.cost.currency", cost.currency().as_str());
    }
}
