//! Asks the application what a run has, before it starts or goes on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::interruption::run_until_interrupted;
use super::question_rules::Uncounted;
use crate::agent::per_run::OpenRun;
use crate::agent::{RunDriver, RunInfo, RunParts};
use crate::run::RunErrorKind;
use crate::tool::panic_text;

/// The longest time that an application may take.
const PATIENCE: Duration = Duration::from_secs(10);

impl RunDriver {
    /// Asks the application what the run has, and sets its limits, once for each driver.
    pub(super) async fn open(&mut self) -> Result<(), RunErrorKind> {
        if self.is_open || self.run.is_done() {
            return Ok(());
        }
        let mut limits = None;
        if let Some(per_run) = self.origin.0.per_run.clone() {
            let parts = open_run(&*per_run, &RunInfo::of(&self.run)).boxed().await?;
            for tools in self.earlier_tools.iter_mut().chain([&mut self.tools]) {
                tools.add_context(&parts.context);
            }
            Arc::make_mut(&mut self.layers).open(&self.tools.context, &parts);
            limits = parts.limits;
        }
        let given = limits.as_ref().unwrap_or(self.run.limits());
        let limits = match self.question.uncounted {
            Uncounted::Nothing => limits,
            Uncounted::Time => Some(self.run.time_limit_from_now(given)),
            Uncounted::All => Some(self.run.limits_from_now(given)),
        };
        if let Some(limits) = limits {
            Arc::make_mut(&mut self.layers).limit(&limits);
            self.change_run().set_limits(limits);
        }
        self.is_open = true;
        Ok(())
    }
}

/// Asks the application what a run has.
pub(in crate::agent) async fn open_run(
    per_run: &dyn OpenRun,
    run: &RunInfo,
) -> Result<RunParts, RunErrorKind> {
    let opened = AssertUnwindSafe(async { per_run.open_run(run).await }).catch_unwind();
    // An interruption is the end of the time.
    match run_until_interrupted(opened, None, Some(PATIENCE)).await {
        Ok(Ok(opened)) => opened.map_err(RunErrorKind::PerRun),
        Ok(Err(panic)) => Err(RunErrorKind::PerRun(format!("it panicked: {}", panic_text(&*panic)).into())),
        Err(_) => Err(RunErrorKind::PerRun(format!("it took longer than {PATIENCE:?}").into())),
    }
}
