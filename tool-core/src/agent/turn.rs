//! What is about to be asked, for a hook to change.

use std::fmt;

use crate::model::{Message, ModelOptions, ToolChoice};
use crate::run::Run;
use crate::tool::ToolContext;
use crate::toolset::ToolSet;

/// What the model is about to be asked: [`AgentBuilder::before_turn`](crate::AgentBuilder::before_turn) may change it.
/// What it changes holds for this turn.
#[non_exhaustive]
pub struct Turn<'a> {
    /// The tools that the model is offered, and that its calls are looked up in. As long as they stay the same, the same
    /// set should be given, so that requests are written once and a provider's prompt cache hits.
    pub tools: ToolSet,
    /// How the model is to answer.
    pub options: ModelOptions,
    /// Whether the model may, must or must not call a tool.
    pub tool_choice: ToolChoice,
    run: &'a Run,
    context: &'a ToolContext,
}

impl<'a> Turn<'a> {
    pub(super) fn new(run: &'a Run, context: &'a ToolContext, tools: ToolSet) -> Self {
        let (options, tool_choice) = (run.options().clone(), run.choice_of_this_turn().clone());
        Self { tools, options, tool_choice, run, context }
    }

    /// Which turn it is, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.run.turns().saturating_add(u32::from(self.run.is_asking()))
    }

    /// What the model is sent of the conversation in this turn.
    #[must_use]
    pub fn messages(&self) -> &'a [Message] {
        let messages = self.run.messages();
        // Of a run that was resumed in the middle of a turn, the last is the reply.
        let replies = usize::from(!self.run.is_asking());
        &messages[..messages.len().saturating_sub(replies)]
    }

    /// The run so far: its calls, its tokens, its limits.
    #[must_use]
    pub fn run(&self) -> &'a Run {
        self.run
    }

    /// What the tools are handed.
    #[must_use]
    pub fn context(&self) -> &'a ToolContext {
        self.context
    }

    pub(super) fn into_parts(self) -> (ToolSet, (ModelOptions, ToolChoice)) {
        (self.tools, (self.options, self.tool_choice))
    }
}

/// Tells how much there is, not what: conversations are private.
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
