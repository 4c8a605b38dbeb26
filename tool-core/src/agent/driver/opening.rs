//! Asks the application what a run has, before it starts or goes on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::agent::interruption::run_until_interrupted;
use crate::agent::per_run::OpenRun;
use crate::agent::question_rules::Uncounted;
use crate::agent::shared::join_instructions;
use crate::agent::{RunDriver, RunInfo, RunParts};
use crate::run::{RunErrorKind, Wait};
use crate::tool::{ToolContext, panic_text};
use crate::toolset::{ToolSet, ToolSetError};

/// The longest time that an application may take.
const PATIENCE: Duration = Duration::from_secs(10);

impl RunDriver {
    /// Asks the application what the run has, and sets its limits, once for each driver.
    pub(super) async fn open(&mut self) -> Result<(), RunErrorKind> {
        if self.is_open || self.run.is_done() {
            return Ok(());
        }
        let (mut limits, mut given) = (None, ToolContext::new());
        let is_new = self.run.turns() == 0 && self.outer.is_none();
        if let Some(per_run) = self.origin.0.per_run.clone() {
            let parts = open_run(&*per_run, &RunInfo::of(&self.run)).boxed().await?;
            let tools_given = self.give(&parts)?;
            for tools in self.earlier_tools.iter_mut().chain([&mut self.tools]) {
                tools.add_context(&parts.context);
                tools.give(tools_given.clone());
            }
            Arc::make_mut(&mut self.layers).open(&self.tools.context, &parts);
            limits = parts.limits.map(|change| change(self.run.limits().clone()));
            (self.memory_key, given) = (parts.memory_key, parts.context);
        }
        if is_new && self.origin.0.run_store.get().is_some() {
            self.origin.warn_of_lost_values(&self.tools.context, &given);
        }
        let current = limits.as_ref().unwrap_or(self.run.limits());
        let limits = match self.question.uncounted {
            Uncounted::Nothing => limits,
            Uncounted::Time => Some(self.run.time_limit_from_now(current)),
            Uncounted::All => Some(self.run.limits_from_now(current)),
        };
        if let Some(limits) = limits {
            Arc::make_mut(&mut self.layers).limit(&limits);
            self.change_run().set_limits(limits);
        }
        self.is_open = true;
        Ok(())
    }

    /// Gives a run that begins what the model sees of it. Returns the tools with which the run began.
    fn give(&mut self, parts: &RunParts) -> Result<ToolSet, RunErrorKind> {
        let refused = |error: ToolSetError| RunErrorKind::PerRun(error.into());
        let tools = parts.tools.clone().map_err(refused)?;
        if self.run.can_be_given_tools() {
            let mut question = self.run.question_settings();
            self.change_run().give_tools(tools.definitions().iter().cloned().collect());
            if let Some(given) = parts.instructions.clone() {
                let agent = self.tools.agent.clone();
                let had_some = agent.0.instructions.is_some() || question.instructions.is_some();
                question.instructions = join_instructions(question.instructions, Some(given));
                let joined = agent.run_settings(question.clone()).instructions;
                self.change_run().give_instructions(had_some, joined, question);
            }
        }
        tools.as_recorded(self.run.given_tools().unwrap_or_default()).map_err(refused)
    }
}

/// Asks the application whether somebody may decide. Whatever is no answer is a refusal.
pub(in crate::agent) async fn may_decide(
    per_run: &dyn OpenRun,
    run: &RunInfo,
    wait: &Wait,
    by: Option<&str>,
) -> bool {
    let asked = AssertUnwindSafe(async { per_run.may(run, wait, by).await }).catch_unwind();
    matches!(run_until_interrupted(asked, None, Some(PATIENCE)).await, Ok(Ok(true)))
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
