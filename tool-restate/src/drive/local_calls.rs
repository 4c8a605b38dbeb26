//! Calls in the invocation of their run.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use restate_sdk::prelude::*;
use tool_core::CancellationToken;
use tool_core::engine::EffectId;
use tool_core::tool::{ToolError, ToolExecution};

use super::state::{Drive, DriveError, Driven};
use crate::calls::is_first_execution;
use crate::events::Unfinished;
use crate::limit;
use crate::names::CallInput;

impl<'c> Drive<'c> {
    /// Executes calls of runs in this invocation, in one recorded step. Those of a run end when its time is up.
    pub(super) async fn execute_locally(&mut self, calls: Vec<(EffectId, CallInput)>) -> Driven {
        let times: Vec<_> = calls.iter().map(|(id, _)| self.run.engine_view().limit_at(id.path())).collect();
        let (ids, inputs): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let left = times.iter().map(|limit| limit.as_ref().map(|(_, left)| *left));
        let inputs: Vec<_> = inputs
            .into_iter()
            .zip(left)
            .enumerate()
            .map(|(call, (input, left))| (call, left, input))
            .collect();
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
            let executions = inputs.into_iter().map(move |(call, remaining, input)| {
                let (stash, published) = (Arc::clone(&stash), published.clone());
                let execution = async move {
                    let execution = if input.at_most_once && !may_repeat {
                        ToolExecution::new(input.request.call, Err(ToolError::outcome_unknown()))
                    } else {
                        let cancellation = CancellationToken::new();
                        // Also cancelled when the time is up and this future is dropped.
                        let _cancels = cancellation.clone().drop_guard();
                        let executed = setup.calls.execute(input, &cancellation, &published);
                        let executed = match remaining {
                            Some(left) => match tokio::time::timeout(left, executed).await {
                                Ok(executed) => executed,
                                Err(_) => return (call, None),
                            },
                            None => executed.await,
                        };
                        limit::limited(executed, max_bytes)
                    };
                    stash.lock().unwrap_or_else(PoisonError::into_inner).push((call, execution.clone()));
                    (call, Some(execution))
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
            for (call, execution) in left.map(|Json(left)| left).unwrap_or_default() {
                if let Some(id) = ids.get(call) {
                    self.take_outcome(id, execution);
                }
            }
        }
        let Json(mut executed) = executed?;
        // The time of a run is up once the run has all outcomes.
        executed.sort_by_key(|(_, execution): &(usize, Option<ToolExecution>)| execution.is_none());
        for (call, execution) in executed {
            match (ids.get(call), times.get(call), execution) {
                (Some(id), _, Some(execution)) => self.take_outcome(id, execution),
                (_, Some(Some((limited, _))), None) => self.run.engine().use_up_time_at(limited),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The outcomes of calls, each with its number.
type Outcomes = Vec<(usize, ToolExecution)>;
