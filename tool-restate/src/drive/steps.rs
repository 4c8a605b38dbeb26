//! The recorded steps of a run, and the pauses in which an operator is needed.
//!
//! A recorded step drives a copy of the run that records what changes, and returns that (`RunChanges`), so that the rules of the driver and
//! of layers hold on Restate without a second form. Calls in flight are no step: a copy would take them for interrupted, so their outcomes
//! are recorded by the run itself, and layers judge single ones (`RunDriver::record_result`).

use std::time::Duration;

use futures_util::future::BoxFuture;
use restate_sdk::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tool_core::Event;
use tool_core::engine::{EffectId, EffectResult, RunPath};
use tool_core::model::ModelError;

use super::state::{Drive, DriveError, Driven};
use crate::clock::now;
use crate::names::{Sent, Stop};
use crate::path::Asked;
use crate::signals::{WAITING, resume_signal};
use crate::step::{Judged, Steps, Tree};

/// The longest delay between two attempts of a step that fails.
const MAX_DELAY: Duration = Duration::from_secs(60);

impl<'c> Drive<'c> {
    /// Takes a recorded step of the run to which the way leads. Waits for an operator, and takes it again, if it fails for too long. Returns
    /// `None` if the time of the run is up before.
    pub(super) async fn step<T: Serialize + DeserializeOwned + Send + 'static>(
        &mut self,
        way: &[Asked],
        name: &str,
        step: impl for<'s> Fn(&'s Steps, Tree<'s>) -> BoxFuture<'s, Result<T, ModelError>> + Send + Sync,
    ) -> Driven<Option<T>> {
        let path: RunPath = way.iter().map(|asked| asked.call.clone()).collect();
        loop {
            let (steps, tree) = (&self.setup.steps, self.tree(way));
            let limit = self.limit_of_step([path.clone()]);
            let left = limit.as_ref().map_or(self.setup.settings.model_patience, |(_, left)| *left);
            let deadline = self.clock.after(left);
            match (take_step(self.ctx, name, deadline, None, || step(steps, tree)).await, limit) {
                (Err(DriveError::Failed(_)), Some((limited, _))) => {
                    self.run.engine().use_up_time_at(&limited);
                    return Ok(None);
                }
                (Err(DriveError::Failed(error)), None) => self.pause(error.message()).await?,
                (taken, _) => return taken.map(Some),
            }
        }
    }

    /// Lets the layers judge in a recorded step.
    pub(super) async fn judge(&mut self, id: &EffectId, name: &str, subject: Judged) -> Driven {
        let way = self.way(id.path());
        let judged = self.step(&way, name, |steps, tree| Box::pin(steps.judge(tree, subject.clone()))).await;
        match judged {
            Ok(Some(Ok(changes))) => self.handle(id, EffectResult::Changed(Box::new(changes))),
            Ok(Some(Err(obstacle))) => self.record_obstacle(id, obstacle).await?,
            Ok(None) => self.handle(id, EffectResult::Nothing),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Waits until an operator resumes the run.
    pub(super) async fn pause(&mut self, reason: &str) -> Driven {
        let reason = reason.to_owned();
        self.publish(&RunPath::default(), Event::Failed(reason.clone()));
        self.publish_stop(Vec::new(), Stop::Paused(reason));
        self.flush_events().await?;
        let Json(resumed) = self.ctx.signal::<Json<Sent<()>>>(&resume_signal(self.round)).await?;
        self.clock.advance(resumed.at);
        let waiting = self.waiting_state(Vec::new());
        self.ctx.set(WAITING, Json(waiting));
        // What waits for a person meanwhile is published again.
        self.waiting.clear();
        Ok(())
    }
}

/// Takes a step that is recorded. One that fails is repeated until the deadline, or as many times as is given; the time of the SDK's policy
/// begins anew with each client that begins to wait for the run.
pub(super) async fn take_step<'s, T: Serialize + DeserializeOwned + Send + 'static>(
    ctx: &'s WorkflowContext<'s>,
    name: &str,
    deadline: u64,
    max_attempts: Option<u32>,
    step: impl FnOnce() -> BoxFuture<'s, Result<T, ModelError>> + Send + 's,
) -> Driven<T> {
    // Boxed, because the compiler cannot prove for every lifetime that the future is `Send`.
    let attempt = move || -> BoxFuture<'s, HandlerResult<Json<T>>> {
        Box::pin(async move {
            step().await.map(Json).map_err(|error| match now() < deadline {
                true => error.into(),
                false => TerminalError::new(error.to_string()).into(),
            })
        })
    };
    let policy = RunRetryPolicy::default().max_delay(MAX_DELAY);
    let policy = max_attempts.into_iter().fold(policy, RunRetryPolicy::max_attempts);
    let Json(taken) = ctx.run(attempt).name(name).retry_policy(policy).await?;
    Ok(taken)
}
