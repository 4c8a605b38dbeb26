//! What the application gave a run when it began, and the model sees: it stays for the run, because caches of providers and signed
//! reasoning depend on it.
//!
//! What the model sees of what the application gives, instructions and definitions of tools, is an entry of the log, because caches of
//! providers and signed reasoning are bound to it.

use super::amendment::Amendment;
use super::settings::QuestionSettings;
use super::state::{Fact, Run};
use crate::content::Content;
use crate::model::ToolDefinition;

impl Run {
    /// Returns `true` if the application can still give the run what the model sees: nothing was sent yet.
    pub(crate) fn can_be_given_tools(&self) -> bool {
        self.given_tools().is_none() && self.head.turns == 0 && self.head.handoffs.is_empty()
    }

    /// Returns the definitions of the tools that the application gave the run, once it has begun.
    pub(crate) fn given_tools(&self) -> Option<&[ToolDefinition]> {
        self.history.given_tools()
    }

    pub(crate) fn give_tools(&mut self, tools: Vec<ToolDefinition>) {
        self.append(Fact::Opened(tools));
    }

    /// Replaces the instructions, if the run has some. Agents that take the run over join those of the question with theirs.
    pub(crate) fn give_instructions(
        &mut self,
        had_some: bool,
        instructions: Option<Content>,
        question: QuestionSettings,
    ) {
        self.head.settings.question = Some(question.into());
        self.amend(Amendment::Instructions { had_some, instructions });
    }
}
