//! Limits on what a model reads of a call.

use super::Settings;
use crate::tool::Budget;
use crate::toolset::ToolSet;

impl ToolSet {
    /// The same tools, but the model reads so many characters of what a call gives back at most, be it an output or an
    /// error: see [`ToolOutput::truncated`](crate::ToolOutput::truncated). Of several limits the smallest holds.
    ///
    /// ```
    /// use tool_core::{ToolCall, ToolContext, tool, tools};
    ///
    /// /// Reads the log.
    /// #[tool]
    /// fn log() -> String {
    ///     "all is well\n".repeat(10_000)
    /// }
    ///
    /// # let outcome = futures_util::FutureExt::now_or_never(async {
    /// let set = tools![log].max_output_chars(4000);
    /// let output = set.call(&ToolCall::new("call_1", "log", "{}"), &ToolContext::new()).await?;
    /// assert!(output.to_string().chars().count() <= 4000);
    /// # Ok::<_, tool_core::ToolError>(())
    /// # });
    /// # outcome.unwrap().unwrap();
    /// ```
    #[must_use]
    pub fn max_output_chars(self, characters: usize) -> Self {
        self.with_budget(Budget::new(characters))
    }

    pub(crate) fn with_budget(self, budget: Budget) -> Self {
        let budget = Budget::tighter(Some(budget), self.0.settings.budget);
        let settings = Settings { budget, ..self.0.settings };
        self.with_settings(settings)
    }
}
