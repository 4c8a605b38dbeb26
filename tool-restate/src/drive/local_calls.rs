//! Calls in the invocation of their run.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use restate_sdk::prelude::*;
use tool_core::CancellationToken;
use tool_core::tool::{ToolError, ToolExecution};

use super::state::{Branch, Drive, DriveError, Driven};
use crate::calls::is_first_execution;
use crate::events::Unfinished;
use crate::limit;
use crate::names::CallInput;
use crate::path::call_ids;

impl<'c> Drive<'c> {
    /// Executes calls of runs in this invocation, in one recorded step. Those of a run end when its time is up.
    pub(super) async fn execute_locally(&mut self, mut calls: Vec<(Branch, Vec<CallInput>)>) -> Driven {
        let limits: Vec<_> =
            calls.iter().map(|(branch, _)| self.run.limit_at(&call_ids(&branch.path))).collect();
        let mut inputs = Vec::new();
        for (run, ((_, calls), limit)) in calls.iter_mut().zip(&limits).enumerate() {
            let left = limit.as_ref().map(|(_, left)| *left);
            inputs.extend(calls.drain(..).map(|input| (run, left, input)));
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
        let execute = move || -> BoxFuture<'_, HandlerResult<Json<Vec<_>>>> {
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
                            Some(left) => match tokio::time::timeout(left, executed).await {
                                Ok(executed) => executed,
                                Err(_) => return (run, None),
                            },
                            None => executed.await,
                        };
                        limit::limited(executed, max_bytes)
                    };
                    stash.lock().unwrap_or_else(PoisonError::into_inner).push((run, execution.clone()));
                    (run, Some(execution))
                };
                execution.boxed()
            });
            executions.collect::<FuturesUnordered<_>>().collect().map(|executed| Ok(Json(executed))).boxed()
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
        let Json(mut executed) = executed?;
        let mut recorded = Ok(());
        // The time of a run is up once all outcomes are recorded.
        executed.sort_by_key(|(_, execution): &(usize, Option<ToolExecution>)| execution.is_none());
        for (run, execution) in executed {
            match (calls.get(run), limits.get(run), execution) {
                (Some((branch, _)), _, Some(execution)) => {
                    recorded = recorded.and(self.judge_and_record(branch, execution).await);
                }
                (_, Some(Some((place, _))), None) => self.end_by_time(place),
                _ => {}
            }
        }
        recorded
    }
}

/// The outcomes of calls, each with the number of its run.
type Outcomes = Vec<(usize, ToolExecution)>;
