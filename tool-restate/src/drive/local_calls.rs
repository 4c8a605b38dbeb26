//! Calls in the invocation of their run.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use restate_sdk::prelude::*;
use tool_core::tool::{ToolError, ToolExecution};
use tool_core::{CancellationToken, ToolCall};

use super::state::{Branch, Drive, DriveError, Driven};
use crate::calls::is_first_execution;
use crate::events::Unfinished;
use crate::limit;

impl<'c> Drive<'c> {
    /// Executes calls in this invocation, in one recorded step. It ends when the time of the run is up.
    pub(super) async fn execute_locally(&mut self, branch: &Branch, calls: Vec<ToolCall>) -> Driven {
        let started = calls.len();
        let limit = self.time_limit(branch);
        let time_left = limit.map(|(_, left)| left);
        let inputs = calls.iter().map(|call| self.input(branch, call)).collect::<Result<Vec<_>, _>>()?;
        let may_repeat = match inputs.iter().any(|input| input.at_most_once) {
            true => is_first_execution!(self.ctx)?,
            false => true,
        };
        // A cancelled step returns nothing to its caller, so the outcomes of its calls are left here.
        let done: Arc<Mutex<Vec<ToolExecution>>> = Arc::default();
        let setup = self.setup;
        let unfinished = Unfinished::default();
        let published = unfinished.clone();
        // The outcomes of all calls are one value.
        let max_bytes = setup.settings.max_bytes / inputs.len().max(1);
        let stash = Arc::clone(&done);
        let execute = move || -> BoxFuture<'_, HandlerResult<Json<Vec<ToolExecution>>>> {
            let executions = inputs.into_iter().map(move |input| {
                let (stash, published) = (Arc::clone(&stash), published.clone());
                let execution = async move {
                    let execution = if input.at_most_once && !may_repeat {
                        ToolExecution::new(input.request.call, Err(ToolError::outcome_unknown()))
                    } else {
                        let cancellation = CancellationToken::new();
                        // Also cancelled when the time is up and this future is dropped.
                        let _cancels = cancellation.clone().drop_guard();
                        limit::limited(setup.calls.execute(input, &cancellation, &published).await, max_bytes)
                    };
                    stash.lock().unwrap_or_else(PoisonError::into_inner).push(execution.clone());
                    execution
                };
                execution.boxed()
            });
            let time_is_up = async move {
                match time_left {
                    Some(left) => tokio::time::sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            let executed = executions.collect::<FuturesUnordered<_>>().take_until(time_is_up);
            executed.collect().map(|executed| Ok(Json(executed))).boxed()
        };
        let executed = self.ctx.run(execute).name("calls").await.map_err(DriveError::from);
        unfinished.finish().await;
        if let Err(DriveError::Cancelled) = &executed {
            let take = || async move {
                Ok(Json(std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner))))
            };
            let left = self.ctx.run(take).name("calls before the cancellation").await;
            for execution in left.map(|Json(left)| left).unwrap_or_default() {
                self.record(branch, execution);
            }
        }
        let Json(executed) = executed?;
        let is_time_up = executed.len() < started;
        let mut recorded = Ok(());
        for execution in executed {
            recorded = recorded.and(self.record_judged(branch, execution).await);
        }
        if let Some((depth, _)) = limit.filter(|_| is_time_up) {
            self.end_time(&branch.path[..depth]);
        }
        recorded
    }
}
