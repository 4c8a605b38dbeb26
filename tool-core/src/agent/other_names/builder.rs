//! Other names for the settings of an agent.

use crate::agent::AgentBuilder;
use crate::content::Content;
use crate::layer::{Layer, guard};
use crate::model::{ModelOptions, ToolCall};

/// Nothing implements it.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the type of an answer is named by its question: write `agent.ask(\"…\").answer_as::<{Self}>().await?`",
    label = "not a type of all answers of an agent",
    note = "remove it from the builder: one agent can answer questions of different types"
)]
pub trait TypeOfAllAnswers {}

/// Nothing implements it.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the model calls a tool to hand off: write `.handoff_to(\"billing\", \"Answers questions about invoices\", &agent)`",
    label = "agents without the name and the description of a tool",
    note = "write it once for each agent"
)]
pub trait NamedHandoffs {}

impl AgentBuilder {
    #[doc(hidden)]
    #[deprecated = "write `.instructions(\"…\")`"]
    pub fn preamble(self, text: impl Into<Content>) -> Self {
        self.instructions(text)
    }

    #[doc(hidden)]
    #[deprecated = "write `.instructions(\"…\")`"]
    pub fn system(self, text: impl Into<Content>) -> Self {
        self.instructions(text)
    }

    #[doc(hidden)]
    #[deprecated = "write `.instructions(\"…\")`"]
    pub fn system_prompt(self, text: impl Into<Content>) -> Self {
        self.instructions(text)
    }

    #[doc(hidden)]
    #[deprecated = "options of the model are in one place: write `.options(ModelOptions::default().with_temperature(0.2))`"]
    pub fn temperature(self, temperature: impl Into<f64>) -> Self {
        self.change_options(|options| options.with_temperature(temperature.into()))
    }

    #[doc(hidden)]
    #[deprecated = "options of the model are in one place: write `.options(ModelOptions::default().with_max_output_tokens(500))`"]
    pub fn max_tokens(self, tokens: u32) -> Self {
        self.change_options(|options| options.with_max_output_tokens(tokens))
    }

    fn change_options(mut self, change: impl FnOnce(ModelOptions) -> ModelOptions) -> Self {
        self.agent.options = change(self.agent.options);
        self
    }

    #[doc(hidden)]
    #[deprecated = "limits are in one place: write `.limits(|l| l.max_turns(3))`"]
    pub fn max_turns(self, turns: u32) -> Self {
        self.limits(|limits| limits.max_turns(turns))
    }

    #[doc(hidden)]
    #[deprecated = "limits are in one place: write `.limits(|l| l.max_turns(3))`"]
    pub fn max_steps(self, turns: u32) -> Self {
        self.limits(|limits| limits.max_turns(turns))
    }

    #[doc(hidden)]
    #[deprecated = "guards are layers: write `.layer(guard)`"]
    pub fn guard(self, guard: impl Layer + 'static) -> Self {
        self.layer(guard)
    }

    #[doc(hidden)]
    #[deprecated = "approval is demanded by the option `needs_approval` of a tool, or by a layer: write `.layer(guard::needs_approval(|call| …))`"]
    pub fn needs_approval(self, needs: impl Fn(&ToolCall) -> bool + Send + Sync + 'static) -> Self {
        self.layer(guard::needs_approval(needs))
    }

    #[doc(hidden)]
    pub fn output_type<T: TypeOfAllAnswers>(self) -> Self {
        self
    }

    #[doc(hidden)]
    pub fn handoffs(self, _: impl NamedHandoffs) -> Self {
        self
    }
}
