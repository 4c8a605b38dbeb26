//! Execution of calls.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::{Instant, SystemTime};

use futures_util::FutureExt;

use crate::model::ToolCall;
use crate::tool::{
    Outcome, Returned, ToolContext, ToolError, ToolExecution, ToolFuture, ToolOutput, panic_text,
};
use crate::toolset::ToolSet;

impl ToolSet {
    /// Executes one call.
    ///
    /// If a tool panics, its call fails; nothing else is affected.
    ///
    /// # Errors
    ///
    /// Fails if there is no such tool, if the arguments are invalid, or if the tool fails or panics. The text of the
    /// error is meant for the model.
    pub async fn call(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        self.execute_call(call, context).await.0.map(ToolOutput::within_limit)
    }

    /// Executes one call. Returns its history, too. An output to be [stored](ToolContext::stores_outputs) is not truncated yet.
    pub(crate) async fn execute_call(&self, call: &ToolCall, context: &ToolContext) -> Returned {
        let Some(tool) = self.get(&call.name) else {
            return (self.limit_output(Err(self.unknown_tool_error(call)), context), None);
        };
        let reading = self.0.settings.reading;
        let call_context;
        let context = if tool.injections().is_some_and(<[_]>::is_empty) && reading == context.read_mode() {
            context
        } else {
            call_context = context.with_call(call, reading);
            &call_context
        };
        // After a panic, the tool is used only through its own methods, and it is responsible for the state that they
        // share. This justifies the assertions.
        let started = catch_unwind(AssertUnwindSafe(|| tool.call(&call.arguments, context)));
        let (outcome, history) = match started.map(ToolFuture::into_outcome) {
            Ok(Ok(finished)) => finished,
            Ok(Err(future)) => {
                let mut call_in_flight = CallInFlight(future);
                let outcome = poll_fn(|waker| {
                    let polled = catch_unwind(AssertUnwindSafe(|| call_in_flight.0.poll_unpin(waker)));
                    polled.unwrap_or_else(|panic| Poll::Ready(failed(call, panic)))
                });
                (outcome.await, call_in_flight.0.take_history())
            }
            Err(panic) => (failed(call, panic), None),
        };
        (self.limit_output(outcome, context), history)
    }

    /// Checks arguments that a person wrote in place of the model's, without executing the call. Arguments of a tool that cannot
    /// [check](crate::Tool::check_arguments) them, or is not in the set, are accepted.
    ///
    /// ```
    /// use tool_core::{ToolCall, tool, tools};
    ///
    /// #[tool("Pays a bill")]
    /// fn pay(cents: u32) {}
    ///
    /// let error = tools![pay].check_arguments(&ToolCall::new("call_1", "pay", "{}")).unwrap_err();
    /// assert!(error.to_string().starts_with("invalid arguments: `cents` is missing"));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error that the model would read if the arguments are invalid.
    pub fn check_arguments(&self, call: &ToolCall) -> Result<(), ToolError> {
        let Some(tool) = self.get(&call.name) else { return Ok(()) };
        let context = ToolContext::new().with_call(call, self.0.settings.reading);
        // A type that panics while it is read fails the call, not the check.
        let checked = catch_unwind(AssertUnwindSafe(|| tool.check_arguments(&call.arguments, &context)));
        checked.unwrap_or_else(|panic| {
            drop_contained(panic);
            Ok(())
        })
    }

    /// Returns an outcome within the limit of the set.
    pub(crate) fn limited(&self, outcome: Outcome) -> Outcome {
        let context = ToolContext::new();
        self.limit_output(outcome, &context).map(ToolOutput::within_limit)
    }

    fn limit_output(&self, outcome: Outcome, context: &ToolContext) -> Outcome {
        match self.0.settings.output_limit {
            Some(limit) => limit.apply(outcome, context.stores_outputs()),
            None => outcome,
        }
    }

    /// Returns the error of a call whose tool is not in the set.
    #[cold]
    pub(crate) fn unknown_tool_error(&self, call: &ToolCall) -> ToolError {
        ToolError::unknown_tool(&call.name, self.definitions().names())
    }

    /// Executes one call and returns a record of it, for [`Run::record_result`](crate::run::Run::record_result).
    pub async fn execute(&self, call: ToolCall, context: &ToolContext) -> ToolExecution {
        let started_at = SystemTime::now();
        let clock = Instant::now();
        let (outcome, history) = self.execute_call(&call, context).await;
        let outcome = outcome.map(ToolOutput::within_limit);
        ToolExecution::new(call, outcome).with_history(history).with_timing(started_at, clock.elapsed())
    }
}

/// The future of a tool. A panic while it is dropped, for example at a timeout, affects nothing else.
struct CallInFlight<'a>(ToolFuture<'a>);

impl Drop for CallInFlight<'_> {
    fn drop(&mut self) {
        drop_contained(self.0.take());
    }
}

/// Drops a value of a tool. If that panics, the panic ends here.
fn drop_contained<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // To drop what it panicked with can panic, too.
        std::mem::forget(panic);
    }
}

#[cold]
fn failed(call: &ToolCall, panic: Box<dyn Any + Send>) -> Outcome {
    let error = ToolError::panicked(&call.id, &format!("panicked: {}", panic_text(&*panic)));
    drop_contained(panic);
    Err(error)
}
