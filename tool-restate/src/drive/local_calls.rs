//! Calls in the invocation of their run.

use std::future::ready;
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
use crate::path::call_ids;

impl<'c> Drive<'c> {
    /// Executes calls of runs in this invocation, in one recorded step. Those of a run end when its time is up.
    pub(super) async fn execute_locally(&mut self, calls: Vec<(Branch, Vec<ToolCall>)>) -> Driven {
        let limits: Vec<_> =
            calls.iter().map(|(branch, _)| self.run.least_time_left(&call_ids(&branch.path))).collect();
        let (mut inputs, mut begun) = (Vec::new(), vec![0; calls.len()]);
        for (run, ((branch, calls), limit)) in calls.iter().zip(&limits).enumerate() {
            for input in calls.iter().filter_map(|call| self.input(branch, call)) {
                inputs.push((run, limit.map(|(_, left)| left), input));
                begun[run] += 1;
            }
        }
        if inputs.is_empty() {
            return Ok(());
        }
        let may_repeat = match inputs.iter().any(|(.., input)| input.at_most_once) {
            true => is_first_execution!(self.ctx)?,
            false => true,
        };
        // A cancelled step returns nothing to its caller, so the outcomes of its calls are left here.
        let done: Arc<Mutex<Outcomes>> = Arc::default();
        let setup = self.setup;
        let unfinished = Unfinished::default();
        let published = unfinished.clone();
        // The outcomes of all calls are one value.
        let max_bytes = setup.settings.max_bytes / inputs.len();
        let stash = Arc::clone(&done);
        let execute = move || -> BoxFuture<'_, HandlerResult<Json<Outcomes>>> {
            let executions = inputs.into_iter().map(move |(run, time_left, input)| {
                let (stash, published) = (Arc::clone(&stash), published.clone());
                let execution = async move {
                    let execution = if input.at_most_once && !may_repeat {
                        ToolExecution::new(input.request.call, Err(ToolError::outcome_unknown()))
                    } else {
                        let cancellation = CancellationToken::new();
                        // Also cancelled when the time is up and this future is dropped.
                        let _cancels = cancellation.clone().drop_guard();
                        let executed = setup.calls.execute(input, &cancellation, &published);
                        let executed = match time_left {
                            Some(left) => tokio::time::timeout(left, executed).await.ok()?,
                            None => executed.await,
                        };
                        limit::limited(executed, max_bytes)
                    };
                    stash.lock().unwrap_or_else(PoisonError::into_inner).push((run, execution.clone()));
                    Some((run, execution))
                };
                execution.boxed()
            });
            let executed = executions.collect::<FuturesUnordered<_>>().filter_map(ready);
            executed.collect().map(|executed| Ok(Json(executed))).boxed()
        };
        let executed = self.ctx.run(execute).name("calls").await.map_err(DriveError::from);
        unfinished.finish().await;
        if let Err(DriveError::Cancelled) = &executed {
            let take = || async move {
                Ok(Json(std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner))))
            };
            let left = self.ctx.run(take).name("calls before the cancellation").await;
            for (run, execution) in left.map(|Json(left)| left).unwrap_or_default() {
                if let Some((branch, _)) = calls.get(run) {
                    self.record(branch, execution);
                }
            }
        }
        let Json(executed) = executed?;
        let mut recorded = Ok(());
        let mut ended = vec![0; calls.len()];
        for (run, execution) in executed {
            let Some(((branch, _), ended)) = calls.get(run).zip(ended.get_mut(run)) else { continue };
            *ended += 1;
            recorded = recorded.and(self.record_judged(branch, execution).await);
        }
        for ((((branch, _), limit), ended), begun) in calls.iter().zip(limits).zip(ended).zip(begun) {
            if let Some((depth, _)) = limit.filter(|_| ended < begun) {
                self.end_time(&branch.path[..depth]);
            }
        }
        recorded
    }
}

/// The outcomes of calls, each with the number of its run.
type Outcomes = Vec<(usize, ToolExecution)>;
