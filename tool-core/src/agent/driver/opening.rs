//! Asks the application what a run has, before it starts or goes on.

use std::sync::Arc;

use super::job::Job;
use crate::agent::question_rules::Uncounted;
use crate::agent::shared::join_instructions;
use crate::agent::{RunDriver, RunInfo, RunResources};
use crate::run::RunErrorKind;
use crate::tool::ToolContext;
use crate::toolset::ToolSet;

impl RunDriver {
    /// Asks the application what the run has, and sets its limits, once for each driver.
    pub(super) async fn open(&mut self) -> Result<(), RunErrorKind> {
        match self.open_apart()? {
            Some(job) => self.perform(job).await,
            None => Ok(()),
        }
    }

    /// Sets the limits of the run, once for each driver. Returns a job if the application has to be asked what the run has.
    pub(super) fn open_apart(&mut self) -> Result<Option<Job>, RunErrorKind> {
        if self.is_open || self.run.is_done() {
            return Ok(None);
        }
        match self.performer.open(RunInfo::of(&self.run)) {
            Some(opening) => Ok(Some(Job::new(opening, |driver, parts| driver.set_open(Some(parts?))))),
            None => self.set_open(None).map(|()| None),
        }
    }

    fn set_open(&mut self, parts: Option<RunResources>) -> Result<(), RunErrorKind> {
        let (mut limits, mut given) = (None, ToolContext::new());
        let is_new = self.run.turns() == 0 && self.performer.asked.is_none();
        if let Some(parts) = parts {
            let tools = self.given_tools(&parts)?;
            self.performer.give(&parts, &tools);
            limits = parts.limits.map(|change| change(self.run.limits().clone()));
            (self.conversation.key, given) = (parts.memory_key, parts.context);
        }
        if is_new && self.performer.origin.0.run_store.get().is_some() {
            self.performer.origin.warn_of_lost_values(&self.performer.tools.context, &given);
        }
        let current = limits.as_ref().unwrap_or(self.run.limits());
        let limits = match self.question.uncounted {
            Uncounted::Nothing => limits,
            Uncounted::Time => Some(self.run.time_limit_from_now(current)),
            Uncounted::All => Some(self.run.limits_from_now(current)),
        };
        if let Some(limits) = limits {
            Arc::make_mut(&mut self.performer.layers).limit(&limits);
            self.change_run().set_limits(limits);
        }
        self.is_open = true;
        Ok(())
    }

    /// Gives a run that begins what the model sees of it. Returns the tools with which the run began.
    fn given_tools(&mut self, parts: &RunResources) -> Result<ToolSet, RunErrorKind> {
        let tools = parts.offered_tools()?;
        if self.run.can_be_given_tools() {
            let mut question = self.run.question_settings();
            self.change_run().give_tools(tools.definitions().iter().cloned().collect());
            if let Some(given) = parts.instructions.clone() {
                let agent = self.performer.tools.agent.clone();
                let had_some = agent.0.instructions.is_some() || question.instructions.is_some();
                question.instructions = join_instructions(question.instructions, Some(given));
                let joined = agent.run_settings(question.clone()).instructions;
                self.change_run().give_instructions(had_some, joined, question);
            }
        }
        tools
            .as_recorded(self.run.given_tools().unwrap_or_default())
            .map_err(|error| RunErrorKind::RunSetup(error.into()))
    }
}
