//! What the model is offered in a turn, and what it asks for in return.

use super::offer::{Offer, undo_policy, without_earlier_turns};
use crate::agent::RunDriver;
use crate::agent::builder::{check_tool_choice, check_tools_of_layers};
use crate::agent::run_tools::invalid_tools;
use crate::agent::tool_search::{Mode, wrap_calls};
use crate::layer::Phase;
use crate::run::{InFlight, ResolveError, RunErrorKind};
use crate::tool::Timestamp;

impl RunDriver {
    /// Resolves the tools and options of this turn.
    pub(super) async fn resolve_offer(&mut self) -> Result<(), RunErrorKind> {
        self.offer.is_resolved = false;
        let tools = self.tools.resolve(&self.run).await?;
        let (layers, run) = (&self.layers, &self.run);
        let tools = match run.is_in_turn() && layers.see(Phase::Offer) {
            true => self.tools.choose(tools, |tool| layers.offer(tool, run))?,
            false => tools,
        };
        if run.is_asking() {
            check_tool_choice(run.current_tool_choice(), &tools).map_err(invalid_tools)?;
        }
        let agent = &self.tools.agent.0;
        if run.turns() == 0 && !agent.providers.is_empty() {
            check_tools_of_layers(agent, &tools).map_err(invalid_tools)?;
        }
        let sends_all = self.tools.agent.0.sends_earlier_turns || !run.is_asking();
        let messages = if sends_all { None } else { without_earlier_turns(run) };
        self.offer = Offer { tools, searched: None, messages, is_resolved: true };
        let found = self.divide_offer();
        self.offer.is_resolved = found.is_ok();
        found
    }

    /// Divides the tools of this turn if the agent has a search, and converts the messages to send if tools are called through
    /// another one.
    fn divide_offer(&mut self) -> Result<(), RunErrorKind> {
        self.sent = self.sent.take().filter(|_| self.run.is_in_turn());
        if !self.run.is_in_turn() {
            return Ok(());
        }
        let Some(divided) = self.tools.divide(&self.offer.tools, self.run.required_tool())? else {
            self.sent = None;
            return Ok(());
        };
        let found =
            self.run.found_tools().iter().filter(|_| divided.mode == Mode::Append).map(String::as_str);
        let names = found.filter(|name| divided.is_hidden(name)).map(str::to_owned).collect();
        let offered = self.tools.offered(&divided, names);
        if divided.mode == Mode::CallThrough && self.run.is_asking() {
            match &mut self.offer.messages {
                Some(messages) => {
                    messages.iter_mut().for_each(|message| *message = wrap_calls(message, &offered));
                }
                None => self.sent.get_or_insert_default().update(self.run.messages(), &offered),
            }
        }
        self.offer.tools = divided.tools.clone();
        self.offer.searched = Some((divided, offered));
        Ok(())
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
        let (tools, earlier) = (&self.tools, &self.earlier_tools);
        self.run.apply_tool_policies(
            self.offer.tools.definitions(),
            |handoffs, name| undo_policy(tools, earlier, handoffs, name),
            &InFlight::NONE,
        );
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
