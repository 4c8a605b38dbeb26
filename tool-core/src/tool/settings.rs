//! The options of tools that are created at run time: those that `#[tool(…)]` has for functions.

use std::sync::Arc;
use std::time::Duration;

use super::future;
use crate::model::{ToolDefinition, ToolPolicy};
use crate::tool::{ToolContext, ToolError, ToolFuture, ToolOutput};

/// Converts the output of a call.
type Convert = dyn Fn(ToolOutput) -> Result<ToolOutput, ToolError> + Send + Sync;

/// The definition of a tool and the options of its calls.
pub(super) struct Settings {
    pub(super) definition: ToolDefinition,
    pub(super) is_blocking: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) max_output_chars: Option<usize>,
    pub(super) convert: Option<Arc<Convert>>,
}

impl Settings {
    pub(super) fn new(definition: ToolDefinition) -> Self {
        Self { definition, is_blocking: false, timeout: None, max_output_chars: None, convert: None }
    }

    /// Applies the timeout, the conversion and the output limit to a call.
    pub(super) fn apply<'a>(&self, call: ToolFuture<'a>, context: &ToolContext) -> ToolFuture<'a> {
        call.map_pending(|mut pending| {
            if let Some(duration) = self.timeout {
                pending = future::with_timeout(pending, duration);
            }
            if let Some(convert) = self.convert.clone() {
                pending = future::map_outcome(pending, move |outcome| outcome.and_then(|one| convert(one)));
            }
            if let Some(limit) = self.max_output_chars {
                pending = future::with_max_chars(pending, (limit, context.stores_outputs()));
            }
            pending
        })
    }

    pub(super) fn change_policy(&mut self, change: impl FnOnce(&mut ToolPolicy)) {
        let mut policy = self.definition.policy().clone();
        change(&mut policy);
        self.change(|definition| definition.with_policy(policy));
    }

    pub(super) fn change(&mut self, change: impl FnOnce(ToolDefinition) -> ToolDefinition) {
        let definition = std::mem::replace(&mut self.definition, ToolDefinition::new(""));
        self.definition = change(definition);
    }
}

/// Implements the options for a tool with [`Settings`].
macro_rules! impl_options {
    ($tool:ty) => {
        /// The options that `#[tool(…)]` has for functions.
        impl $tool {
            /// Returns this tool with a description for the model, which replaces an earlier one.
            pub fn description(mut self, description: impl Into<String>) -> Self {
                self.settings.change(|definition| definition.with_description(description));
                self
            }

            pub(crate) fn with_kind(mut self, kind: $crate::model::ToolKind) -> Self {
                self.settings.change(|definition| definition.with_kind(kind));
                self
            }

            /// Returns this tool with a policy for its calls, which replaces all earlier options of that policy.
            pub fn policy(mut self, policy: $crate::model::ToolPolicy) -> Self {
                self.settings.change_policy(|current| *current = policy);
                self
            }

            /// Makes the output the answer of the run, without another turn of the model, under this condition. `true` is
            /// [`ReturnDirect::IfAll`](crate::model::ReturnDirect::IfAll).
            pub fn return_direct(mut self, condition: impl Into<$crate::model::ReturnDirect>) -> Self {
                let condition = condition.into();
                self.settings.change_policy(|policy| policy.return_direct = condition);
                self
            }

            /// Requires that a person approves each call.
            pub fn needs_approval(mut self) -> Self {
                self.settings.change_policy(|policy| policy.needs_approval = true);
                self
            }

            /// Leaves the calls to the caller of the run; see [`ToolKind::Caller`](crate::provider::ToolKind::Caller).
            pub fn external(self) -> Self {
                self.with_kind($crate::model::ToolKind::Caller)
            }

            /// Executes calls one at a time, with no other call running.
            pub fn exclusive(mut self) -> Self {
                self.settings.change_policy(|policy| policy.exclusive = true);
                self
            }

            /// Never executes a call again whose outcome is unknown.
            pub fn at_most_once(mut self) -> Self {
                self.settings.change_policy(|policy| policy.at_most_once = true);
                self
            }

            /// Promises that equal arguments give equal outputs and that a call has no effects.
            pub fn pure(mut self) -> Self {
                self.settings.change_policy(|policy| policy.pure = true);
                self
            }

            /// Keeps the outputs in the conversation when a [compaction](crate::agent::Compaction) hides others.
            pub fn keep_output(mut self) -> Self {
                self.settings.change_policy(|policy| policy.keep_output = true);
                self
            }

            /// Limits how often one call is executed if it fails or times out. 0 means 1.
            pub fn attempts(mut self, attempts: u32) -> Self {
                self.settings.change_policy(|policy| policy.attempts = attempts);
                self
            }

            /// Names the tool that undoes a call of this one.
            pub fn undo(mut self, tool: impl Into<String>) -> Self {
                self.settings.change(|definition| definition.with_undo(tool));
                self
            }

            /// Offers the tool to the model only once it has been found by
            /// [search](crate::agent::AgentBuilder::tool_search).
            pub fn deferred(mut self) -> Self {
                self.settings.change(|definition| definition.with_deferred(true));
                self
            }

            /// Asks the provider to constrain the arguments to the schema, in its
            /// [strict form](crate::model::ToolDefinition::into_strict). A set with a tool that has no strict form is an error.
            pub fn strict(mut self) -> Self {
                self.settings.change($crate::model::ToolDefinition::into_strict_or_error);
                self
            }

            /// Fails a call that takes longer. The function must return a future or be [`blocking`](Self::blocking), and a
            /// blocking one runs to its end in the background; calls of other functions are never interrupted. Requires
            /// tokio's timers.
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.settings.timeout = Some(timeout);
                self
            }

            /// Runs the function on tokio's thread pool for blocking code.
            pub fn blocking(mut self) -> Self {
                self.settings.is_blocking = true;
                self
            }

            /// Converts the output of each call that succeeds into another, or into an error.
            pub fn convert<R: $crate::tool::IntoToolOutput>(
                mut self,
                convert: impl Fn($crate::tool::ToolOutput) -> R + Send + Sync + 'static,
            ) -> Self {
                self.settings.convert =
                    Some(std::sync::Arc::new(move |output| convert(output).into_tool_output()));
                self
            }

            /// Limits the characters of an output or error that the model reads. The middle of a longer text is
            /// [left out](crate::tool::ToolOutput::truncated).
            pub fn max_output_chars(mut self, limit: usize) -> Self {
                self.settings.max_output_chars = Some(limit);
                self
            }
        }
    };
}

pub(super) use impl_options;
