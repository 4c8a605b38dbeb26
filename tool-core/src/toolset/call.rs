//! Making the calls of a model.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Instant, SystemTime};

use futures_util::FutureExt;

use super::ToolSet;
use crate::{Repair, Tool, ToolCall, ToolContext, ToolError, ToolExecution, ToolOutput};

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
        self.call_with_repairs(call, context).await.0
    }

    async fn call_with_repairs(
        &self,
        call: &ToolCall,
        context: &ToolContext,
    ) -> (Result<ToolOutput, ToolError>, Vec<Repair>) {
        let (outcome, repairs) = match self.get(&call.name) {
            Some(tool) => self.make(tool, call, context).await,
            None => {
                let known = self.definitions().iter().map(|definition| definition.name());
                (Err(ToolError::unknown_tool(&call.name, known)), Vec::new())
            }
        };
        match self.0.settings.budget {
            Some(budget) => (budget.apply(outcome), repairs),
            None => (outcome, repairs),
        }
    }

    async fn make(
        &self,
        tool: &dyn Tool,
        call: &ToolCall,
        context: &ToolContext,
    ) -> (Result<ToolOutput, ToolError>, Vec<Repair>) {
        let of_call;
        let reading = self.0.settings.reading;
        let context = if tool.injections().is_some_and(<[_]>::is_empty) && reading == context.reading() {
            context
        } else {
            of_call = context.of_call(call, reading);
            &of_call
        };
        // A tool is not looked at again after it panicked other than through its own methods, and
        // what it shares with them it has to keep sound itself: hence the assertions.
        let started = catch_unwind(AssertUnwindSafe(|| tool.call(&call.arguments, context)));
        let (outcome, repairs) = match started {
            Ok(mut future) => {
                let outcome = AssertUnwindSafe(&mut future).catch_unwind().await;
                (outcome, future.take_repairs())
            }
            Err(panic) => (Err(panic), Vec::new()),
        };
        let panicked =
            |panic: Box<dyn Any + Send>| Err(ToolError::panicked(&call.id, &text_of_panic(&*panic)));
        (outcome.unwrap_or_else(panicked), repairs)
    }

    /// Makes one call and records it, for [`Run::called`](crate::Run::called).
    pub async fn execute(&self, call: ToolCall, context: &ToolContext) -> ToolExecution {
        let started_at = SystemTime::now();
        let clock = Instant::now();
        let (outcome, repairs) = self.call_with_repairs(&call, context).await;
        let returns_direct =
            self.definitions().policy_of(&call.name).is_some_and(|policy| policy.return_direct);
        ToolExecution::new(call, outcome)
            .with_repairs(repairs)
            .with_timing(started_at, clock.elapsed())
            .returning_direct(returns_direct)
    }
}

fn text_of_panic(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("no text"))
}
