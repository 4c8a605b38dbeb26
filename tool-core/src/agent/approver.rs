//! Decisions about calls while a run is in progress.

use std::future::{Future, ready};
use std::pin::Pin;

use crate::model::ToolCall;
use crate::run::Approval;

/// The future returned by [`Approver::approve`].
pub type ApproverFuture<'a> = Pin<Box<dyn Future<Output = Approval> + Send + 'a>>;

/// Decides about calls that need approval while the run waits, for example with a prompt in a terminal or by a rule. Without
/// one, the run [returns](crate::RunErrorKind::Waiting) and can be resumed later.
///
/// Implemented for functions from a [`ToolCall`] to an [`Approval`]; they must not block.
///
/// ```
/// use tool_core::schemars::JsonSchema;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, Approval, ToolCall, tool, tools};
///
/// #[tool("Pays a bill", needs_approval)]
/// fn pay(cents: u32) {}
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Bill {
///     cents: u32,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("pay", r#"{"cents": 70000}"#).says("I may not.");
/// let agent = Agent::builder(model)
///     .tools(tools![pay])
///     .approver(|call: &ToolCall| match call.arguments_as::<Bill>() {
///         Ok(bill) if bill.cents <= 50_000 => Approval::Approve,
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
    note = "a function takes `&ToolCall` and returns an `Approval`; for a decision that is awaited, implement `Approver` for a type of your own"
)]
pub trait Approver: Send + Sync {
    /// Decides about a call.
    fn approve<'a>(&'a self, call: &'a ToolCall) -> ApproverFuture<'a>;
}

#[diagnostic::do_not_recommend]
impl<F: Fn(&ToolCall) -> Approval + Send + Sync> Approver for F {
    fn approve<'a>(&'a self, call: &'a ToolCall) -> ApproverFuture<'a> {
        Box::pin(ready(self(call)))
    }
}
