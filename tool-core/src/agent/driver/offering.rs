//! What the model is offered in a turn, and what it asks for in return.

use std::sync::Arc;

use super::job::Job;
use super::offer::{Offer, undo_policy, without_earlier_turns};
use crate::agent::RunDriver;
use crate::agent::builder::{check_tool_choice, check_tools_of_layers};
use crate::agent::compaction::{COMPACT, READ_OUTPUT};
use crate::agent::run_tools::{AskingProvider, ProvidersRequest, invalid_tools};
use crate::agent::tool_search::{Mode, wrap_calls};
use crate::layer::LayerPhase;
use crate::run::{ResolveError, RunErrorKind};
use crate::tool::Timestamp;
use crate::toolset::ToolSet;

impl RunDriver {
    /// Resolves the tools and options of this turn, unless a provider of tools asks the user first. Returns a job if providers have to be
    /// asked.
    pub(super) fn resolve_tools(&mut self) -> Result<Option<Job>, RunErrorKind> {
        if self.offer.is_resolved {
            Arc::make_mut(&mut self.offer).is_resolved = false;
        }
        if let Some(tools) = self.performer.tools.resolve(&self.run)? {
            return self.offer_tools(tools).map(|()| None);
        }
        let (tools, request) = (self.performer.tools.clone(), ProvidersRequest::of(&self.run));
        let asking = async move { tools.ask_providers(&request).await };
        Ok(Some(Job::new(asking, |driver, provided| match provided? {
            Ok(provided) => {
                let tools = driver.performer.tools.offer_all(provided)?;
                driver.offer_tools(tools)
            }
            Err((AskingProvider { name, number, notes }, fixed)) => {
                driver.performer.tools.remember(fixed);
                driver.change_run().await_tools(&name, number, notes);
                Ok(())
            }
        })))
    }

    fn offer_tools(&mut self, tools: ToolSet) -> Result<(), RunErrorKind> {
        let (layers, run) = (&self.performer.layers, &self.run);
        let tools = match run.is_in_turn() && layers.see(LayerPhase::Offer) {
            true => {
                let view = run.view();
                self.performer.tools.choose(tools, |tool| layers.offer(tool, &view))?
            }
            false => tools,
        };
        if run.is_asking() {
            check_tool_choice(run.current_tool_choice(), &tools).map_err(invalid_tools)?;
        }
        let agent = &self.performer.tools.agent.0;
        if run.turns() == 0 && !agent.providers.is_empty() {
            check_tools_of_layers(agent, &tools).map_err(invalid_tools)?;
        }
        self.update_view();
        let tools = self.with_reader(tools);
        let run = &self.run;
        let sends_all = self.performer.tools.agent.0.sends_earlier_turns || !run.is_asking();
        let messages = if sends_all { None } else { without_earlier_turns(run) };
        self.offer = Arc::new(Offer { tools, searched: None, messages, is_resolved: true });
        let found = self.divide_offer();
        Arc::make_mut(&mut self.offer).is_resolved = found.is_ok();
        found
    }

    /// Brings what the model sees of a compacted run up to date. The arguments of calls that are open can still change.
    fn update_view(&mut self) {
        if !self.run.compactions().is_empty() && self.run.is_asking() {
            Arc::make_mut(&mut self.sent)
                .view
                .get_or_insert_default()
                .update(&self.run, self.performer.tools.agent.model());
        }
    }

    /// Adds the tool that reads what the model does not read in full.
    fn with_reader(&mut self, tools: ToolSet) -> ToolSet {
        let agent = &self.performer.tools.agent.0;
        let outputs = self.performer.layers.stored_outputs();
        // The provider keeps the reasoning of what stays only if the tools stay, too.
        let is_expected = agent.compaction.is_some() && agent.model.supports_compaction();
        let is_needed = outputs.is_some() || is_expected || !self.run.compactions().is_empty();
        if !self.run.is_in_turn() || !is_needed {
            return tools;
        }
        Arc::make_mut(&mut self.sent).reader.get_or_insert_default().add_to(
            tools,
            &self.run,
            &agent.model,
            outputs,
        )
    }

    /// Divides the tools of this turn if the agent has a search, and converts the messages to send if tools are called through
    /// another one.
    fn divide_offer(&mut self) -> Result<(), RunErrorKind> {
        if !self.run.is_in_turn() {
            self.forget_converted();
            return Ok(());
        }
        let reader = self.sent.reader.as_ref().map(|_| READ_OUTPUT);
        let compact =
            self.performer.tools.agent.0.compaction.as_ref().filter(|one| one.offers_tool).map(|_| COMPACT);
        let always = self.run.required_tool().into_iter().chain(reader).chain(compact);
        let Some(divided) = self.performer.tools.divide(&self.offer.tools, always)? else {
            self.forget_converted();
            return Ok(());
        };
        let found =
            self.run.found_tools().iter().filter(|_| divided.mode == Mode::Append).map(String::as_str);
        let names = found.filter(|name| divided.is_hidden(name)).map(str::to_owned).collect();
        let offered = self.performer.tools.offered(&divided, names);
        if divided.mode == Mode::CallThrough && self.run.is_asking() {
            match &mut Arc::make_mut(&mut self.offer).messages {
                Some(messages) => {
                    messages.iter_mut().for_each(|message| *message = wrap_calls(message, &offered));
                }
                None => {
                    let sent = Arc::make_mut(&mut self.sent);
                    let mut through = sent.through.take().unwrap_or_default();
                    through.update(sent.messages(&self.run), &offered);
                    sent.through = Some(through);
                }
            }
        }
        let offer = Arc::make_mut(&mut self.offer);
        offer.tools = divided.tools.clone();
        offer.searched = Some((divided, offered));
        Ok(())
    }

    /// Forgets the messages that were sent with converted calls.
    fn forget_converted(&mut self) {
        if self.sent.through.is_some() {
            Arc::make_mut(&mut self.sent).through = None;
        }
    }

    /// Adds the tools that the model has called unsearched to those that it has found. It knows them, and may have mistaken their
    /// parameters.
    pub(super) fn add_called_tools(&mut self) {
        let Some((divided, _)) = &self.offer.searched else { return };
        if divided.mode == Mode::Append {
            let calls = self.run.open_calls();
            let names = calls.iter().map(|call| &*call.name).filter(|name| divided.is_hidden(name));
            self.run.add_found_tools(names);
        }
    }

    pub(super) fn apply_tool_policies(&mut self) {
        let (tools, earlier) = (&self.performer.tools, &self.performer.earlier_tools);
        let was_blocked = self.run.is_blocked();
        self.run.forget_in_flight();
        self.run.apply_tool_policies(self.offer.tools.definitions(), |handoffs, name| {
            undo_policy(tools, earlier, handoffs, name)
        });
        // Of calls that were stored before a driver had their tools.
        self.storage.has_unsaved_changes |= self.run.is_blocked() != was_blocked;
    }

    /// Fails if a call was approved with arguments that do not match its tool, before the model reads the mistake of a person. The call
    /// awaits approval again.
    pub(super) fn refuse_new_arguments(&mut self) -> Result<(), RunErrorKind> {
        let tools = &self.offer.tools;
        let Some(error) = self.run.refuse_new_arguments(|call| tools.check_arguments(call)) else {
            return Ok(());
        };
        self.change_run().tick(Timestamp::now());
        Err(RunErrorKind::Decision(ResolveError::invalid_arguments(error.to_string())))
    }
}
