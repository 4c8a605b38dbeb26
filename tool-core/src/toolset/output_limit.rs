//! The limit on the output of calls.

use super::Settings;
use crate::toolset::ToolSet;

impl ToolSet {
    /// Limits the number of characters that the model reads of the output or error of one call: see
    /// [`ToolOutput::truncated`](crate::ToolOutput::truncated). The smallest of several limits applies.
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
        let limit = self.output_limit().map_or(characters, |limit| limit.min(characters));
        let settings = Settings { output_limit: Some(limit), ..self.0.settings };
        self.with_settings(settings)
    }

    /// Returns the limit on the characters of one output.
    pub(crate) fn output_limit(&self) -> Option<usize> {
        self.0.settings.output_limit
    }
}
