//! The next request to the model, for a hook to change.

use std::fmt;

use crate::model::{Message, ModelOptions, ToolChoice};
use crate::run::Run;
use crate::tool::ToolContext;
use crate::toolset::ToolSet;

/// The next request to the model, which an [`AgentBuilder::before_turn`](crate::agent::AgentBuilder::before_turn) hook can change.
/// Changes apply to this turn only.
#[non_exhaustive]
pub struct Turn<'a> {
    /// The tools to offer to the model, in which its calls are looked up. Keep the same set while the tools stay the same, so
    /// that their definitions are serialized once and the provider's prompt cache is hit.
    pub tools: ToolSet,
    /// The options of the model.
    pub options: ModelOptions,
    /// The choice whether the model may, must or must not call tools.
    pub tool_choice: ToolChoice,
    run: &'a Run,
    context: &'a ToolContext,
}

impl<'a> Turn<'a> {
    pub(super) fn new(run: &'a Run, context: &'a ToolContext, tools: ToolSet) -> Self {
        let (options, tool_choice) = (run.options().clone(), run.current_tool_choice().clone());
        Self { tools, options, tool_choice, run, context }
    }

    /// Returns the number of the turn, starting at 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.run.turns().saturating_add(u32::from(self.run.is_asking()))
    }

    /// Returns the messages that are sent to the model in this turn.
    #[must_use]
    pub fn messages(&self) -> &'a [Message] {
        let messages = self.run.messages();
        // If the run was resumed in the middle of a turn, the last message is the reply.
        let replies = usize::from(!self.run.is_asking());
        &messages[..messages.len().saturating_sub(replies)]
    }

    /// Returns the run so far, with its calls, tokens and limits.
    #[must_use]
    pub fn run(&self) -> &'a Run {
        self.run
    }

    /// Returns the context of the tools.
    #[must_use]
    pub fn context(&self) -> &'a ToolContext {
        self.context
    }

    pub(super) fn into_parts(self) -> (ToolSet, (ModelOptions, ToolChoice)) {
        (self.tools, (self.options, self.tool_choice))
    }
}

/// Omits messages, because conversations are private.
impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("number", &self.number())
            .field("tools", &self.tools)
            .field("options", &self.options)
            .field("tool_choice", &self.tool_choice)
            .finish_non_exhaustive()
    }
}
