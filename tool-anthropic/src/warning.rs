//! Warnings about requests that are changed so that the endpoint accepts them.

use std::fmt;
use std::sync::Arc;

/// A change to a request that was necessary for the endpoint to accept it: see
/// [`on_warning`](crate::AnthropicBuilder::on_warning).
#[derive(Debug)]
#[non_exhaustive]
pub enum Warning<'a> {
    /// The API does not have an option of the request, so it was omitted.
    #[non_exhaustive]
    OptionOmitted {
        /// The name of the option, such as `seed`.
        option: &'static str,
    },
    /// A strict tool is sent without `strict`, because the schemas of the request exceed a limit of the API.
    #[non_exhaustive]
    NotStrict {
        /// The name of the tool.
        tool: &'a str,
        /// The limit, such as `20 strict tools`.
        limit: &'static str,
    },
    /// A request is sent without [`Thinking::budget`](crate::Thinking::budget), because its last calls were made without thinking, for
    /// example by another model, and the API rejects thinking about their results.
    ThinkingOmitted,
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OptionOmitted { option } => {
                write!(f, "the option `{option}` was omitted, because the API does not support it")
            }
            Self::NotStrict { tool, limit } => {
                write!(
                    f,
                    "the tool `{tool}` is not strict, because the API accepts at most {limit} per request"
                )
            }
            Self::ThinkingOmitted => f.write_str(
                "`Thinking::budget` was omitted, because the last calls were made without thinking",
            ),
        }
    }
}

/// A function that is called with each warning.
pub(crate) type WarningHook = Arc<dyn Fn(&Warning<'_>) + Send + Sync>;
