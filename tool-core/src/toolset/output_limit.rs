//! The limit on the output of calls.

use super::Settings;
use crate::tool::{Outcome, truncate_outcome};
use crate::toolset::ToolSet;

/// A limit on the characters of one output.
#[derive(Clone, Copy)]
pub(super) struct OutputLimit {
    chars: usize,
    /// A function, so that programs without a limit do not contain its code and the tables of Unicode.
    truncate: fn(Outcome, usize) -> Outcome,
}

impl PartialEq for OutputLimit {
    fn eq(&self, other: &Self) -> bool {
        self.chars == other.chars
    }
}

impl OutputLimit {
    pub(super) fn smallest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|limit| limit.chars)
    }

    pub(super) fn apply(self, outcome: Outcome) -> Outcome {
        (self.truncate)(outcome, self.chars)
    }
}

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
        let limit = OutputLimit { chars: characters, truncate: truncate_outcome };
        let output_limit = OutputLimit::smallest(self.0.settings.output_limit, Some(limit));
        let settings = Settings { output_limit, ..self.0.settings };
        self.with_settings(settings)
    }

    /// Returns the limit on the characters of one output.
    pub(crate) fn output_limit(&self) -> Option<usize> {
        self.0.settings.output_limit.map(|limit| limit.chars)
    }
}
