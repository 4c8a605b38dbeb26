//! Who approves calls while a run is under way.

use std::future::{Future, ready};
use std::pin::Pin;

use crate::model::ToolCall;
use crate::run::Approval;

/// The future of one [`Approver::approve`].
pub type ApproverFuture<'a> = Pin<Box<dyn Future<Output = Approval> + Send + 'a>>;

/// Says whether a call that needs approval is made, while the run waits: a prompt in a terminal, a rule. Without one
/// such a run [ends for now](crate::RunError::is_approval_needed), and goes on when it is resumed.
///
/// A function from a [`ToolCall`] to an [`Approval`] is one; it must not block.
///
#[cfg_attr(feature = "testing", doc = "```")]
#[cfg_attr(not(feature = "testing"), doc = "```ignore")]
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, Approval, ToolCall, tool, tools};
///
/// #[tool("Pays a bill", needs_approval)]
/// fn pay(cents: u32) {}
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("pay", r#"{"cents": 70000}"#).says("I may not.");
/// let agent = Agent::builder(model)
///     .tools(tools![pay])
///     .approver(|call: &ToolCall| match call.arguments.len() {
///         0..16 => Approval::Approve,
///         _ => Approval::deny("too much at once"),
///     })
///     .build()?;
/// let answer = agent.ask("Pay the bill").await?;
/// let error = answer.tool_executions()[0].outcome().unwrap_err();
/// assert_eq!(error.to_string(), "the call was denied: too much at once");
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not approve calls",
    label = "not an `Approver`",
    note = "a function takes `&ToolCall` and gives an `Approval`"
)]
pub trait Approver: Send + Sync {
    /// What is said to the call.
    fn approve<'a>(&'a self, call: &'a ToolCall) -> ApproverFuture<'a>;
}

#[diagnostic::do_not_recommend]
impl<F: Fn(&ToolCall) -> Approval + Send + Sync> Approver for F {
    fn approve<'a>(&'a self, call: &'a ToolCall) -> ApproverFuture<'a> {
        Box::pin(ready(self(call)))
    }
}
