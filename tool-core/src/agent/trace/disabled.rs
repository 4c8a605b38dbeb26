//! Tracing without the feature: one type, in place of all of them, that does nothing.

use std::sync::Arc;

use crate::agent::spending::RequestMeter;
use crate::model::{ChatModel, ChatRequest, ChatResponse, Cost, FinishReason, ModelError, ToolCall};
use crate::run::{Run, RunError};
use crate::tool::ToolExecution;
use crate::toolset::ToolSet;

#[derive(Clone, Copy, Default)]
pub(in crate::agent) struct Disabled;

impl Disabled {
    pub(in crate::agent) fn new(_settings: Self) -> Self {
        Self
    }

    pub(in crate::agent) fn enter_run(
        &mut self,
        _name: Option<&str>,
        _model: &dyn ChatModel,
        _run: &Run,
    ) -> Self {
        Self
    }

    pub(in crate::agent) fn enter_turn(&mut self, _number: u32) {}

    pub(in crate::agent) fn enter_chat(
        &mut self,
        _model: &dyn ChatModel,
        _request: &ChatRequest<'_>,
        _is_streamed: bool,
    ) -> Self {
        Self
    }

    pub(in crate::agent) fn record_response(&mut self, _response: &ChatResponse) {}

    pub(in crate::agent) fn set_meter(&mut self, _meter: Option<Arc<RequestMeter>>) {}

    pub(in crate::agent) fn record_charges(&mut self) {}

    pub(in crate::agent) fn record_cost(&mut self, _cost: Option<Cost>) {}

    pub(in crate::agent) fn record_model_error(&mut self, _error: &ModelError) {}

    pub(in crate::agent) fn interrupt(&mut self) {}

    pub(in crate::agent) fn pause(&mut self) {}

    pub(in crate::agent) fn record_error(&mut self, _error: &RunError) {}

    pub(in crate::agent) fn record_answer(&mut self, _reason: &FinishReason, _text: &str) {}

    pub(in crate::agent) fn call_trace(&self) -> Self {
        Self
    }

    pub(in crate::agent) fn start_call(self, _call: &ToolCall, _tools: &ToolSet, _attempt: u32) -> Self {
        Self
    }

    pub(in crate::agent) fn suspend(self) {}

    pub(in crate::agent) fn run_scope(&self) -> Option<Self> {
        Some(Self)
    }

    pub(in crate::agent) fn scope(&self) -> Self {
        Self
    }

    pub(in crate::agent) fn finish(self, _execution: &ToolExecution) {}

    pub(in crate::agent) fn instrument<F: Future>(self, future: F) -> F {
        future
    }

    pub(in crate::agent) fn in_scope<T>(self, function: impl FnOnce() -> T) -> T {
        function()
    }
}
