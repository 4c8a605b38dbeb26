//! Making the calls of a model.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::{Instant, SystemTime};

use futures_util::FutureExt;

use crate::arguments::Repair;
use crate::model::ToolCall;
use crate::tool::{ToolContext, ToolError, ToolExecution, ToolFuture, ToolOutput};
use crate::toolset::ToolSet;

type Outcome = Result<ToolOutput, ToolError>;

impl ToolSet {
    /// Makes one call.
    ///
    /// A tool that panics fails its call and nothing else.
    ///
    /// # Errors
    ///
    /// There is no such tool, the arguments are wrong, or the tool failed or panicked. The text of the
    /// error is meant for the model.
    pub async fn call(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        self.make(call, context, None).await
    }

    /// Makes one call, and notes what was mended for it.
    async fn make(
        &self,
        call: &ToolCall,
        context: &ToolContext,
        repairs: Option<&mut Vec<Repair>>,
    ) -> Outcome {
        let Some(tool) = self.get(&call.name) else { return self.within_budget(self.unknown_tool(call)) };
        let reading = self.0.settings.reading;
        let of_call;
        let context = if tool.injections().is_some_and(<[_]>::is_empty) && reading == context.read_mode() {
            context
        } else {
            of_call = context.with_call(call, reading);
            &of_call
        };
        // A tool is not looked at again after it panicked other than through its own methods, and
        // what it shares with them it has to keep sound itself: hence the assertions.
        let started = catch_unwind(AssertUnwindSafe(|| tool.call(&call.arguments, context)));
        let (outcome, mended) = match started.map(ToolFuture::into_outcome) {
            Ok(Ok(over)) => over,
            Ok(Err(mut future)) => {
                let outcome = poll_fn(|waker| {
                    let polled = catch_unwind(AssertUnwindSafe(|| future.poll_unpin(waker)));
                    polled.unwrap_or_else(|panic| Poll::Ready(panicked(call, &*panic)))
                });
                (outcome.await, future.take_repairs())
            }
            Err(panic) => (panicked(call, &*panic), Vec::new()),
        };
        if let Some(repairs) = repairs {
            *repairs = mended;
        }
        self.within_budget(outcome)
    }

    #[inline]
    fn within_budget(&self, outcome: Outcome) -> Outcome {
        match self.0.settings.budget {
            Some(budget) => budget.apply(outcome),
            None => outcome,
        }
    }

    #[cold]
    fn unknown_tool(&self, call: &ToolCall) -> Outcome {
        let known = self.definitions().iter().map(|definition| definition.name());
        Err(ToolError::unknown_tool(&call.name, known))
    }

    /// Makes one call and records it, for [`Run::record_result`](crate::run::Run::record_result).
    pub async fn execute(&self, call: ToolCall, context: &ToolContext) -> ToolExecution {
        let started_at = SystemTime::now();
        let clock = Instant::now();
        let mut repairs = Vec::new();
        let outcome = self.make(&call, context, Some(&mut repairs)).await;
        ToolExecution::new(call, outcome).with_repairs(repairs).with_timing(started_at, clock.elapsed())
    }
}

#[cold]
fn panicked(call: &ToolCall, panic: &(dyn Any + Send)) -> Outcome {
    Err(ToolError::panicked(&call.id, &text_of_panic(panic)))
}

fn text_of_panic(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("no text"))
}
