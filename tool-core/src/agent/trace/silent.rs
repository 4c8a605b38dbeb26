//! No tracing: the same names, and nothing behind them.

use crate::agent::Agent;
use crate::model::{ChatRequest, ChatResponse, ModelError, ToolCall};
use crate::run::{Answer, Run, RunError};
use crate::tool::ToolExecution;
use crate::toolset::ToolSet;

#[derive(Clone, Copy, Default)]
pub(in crate::agent) struct Settings {}

pub(in crate::agent) struct RunTrace;

#[derive(Clone, Copy)]
pub(in crate::agent) struct CallTrace;

pub(in crate::agent) struct CallSpan;

pub(in crate::agent) struct Scope;

impl RunTrace {
    pub(in crate::agent) fn new(_settings: Settings) -> Self {
        Self
    }

    pub(in crate::agent) fn goes_on(&mut self, _agent: &Agent, _run: &Run) -> Scope {
        Scope
    }

    pub(in crate::agent) fn takes_turn(&mut self, _number: u32) {}

    pub(in crate::agent) fn asks(
        &mut self,
        _agent: &Agent,
        _request: &ChatRequest<'_>,
        _streams: bool,
    ) -> Scope {
        Scope
    }

    pub(in crate::agent) fn record_response(&mut self, _response: &ChatResponse) {}

    pub(in crate::agent) fn not_replied(&mut self, _error: &ModelError) {}

    pub(in crate::agent) fn stopped(&mut self) {}

    pub(in crate::agent) fn laid_aside(&mut self) {}

    pub(in crate::agent) fn failed(&mut self, _error: &RunError) {}

    pub(in crate::agent) fn answered(&mut self, _answer: &Answer) {}

    pub(in crate::agent) fn of_calls(&self) -> CallTrace {
        CallTrace
    }
}

impl CallTrace {
    pub(in crate::agent) fn calls(self, _call: &ToolCall, _tools: &ToolSet, _attempt: u32) -> CallSpan {
        CallSpan
    }
}

impl CallSpan {
    pub(in crate::agent) fn scope(&self) -> Scope {
        Scope
    }

    pub(in crate::agent) fn called(self, _execution: &ToolExecution) {}
}

impl Scope {
    pub(in crate::agent) fn holds<F: Future>(self, future: F) -> F {
        future
    }
}
