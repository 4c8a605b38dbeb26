//! Decisions about what a run waits for, while it is in progress.
//!
//! Approvals and answers are decided by one trait (`Decider`) over what waits, because who is asked, when, and what is left to the next is
//! the same. Only the level that demanded an approval asks its deciders for it.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use crate::model::ToolCall;
use crate::run::{Decision, Wait, WaitReason};
use crate::tool::Question;

/// The future returned by [`Decider::decide`].
pub type DeciderFuture<'a> = Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;

/// Decides about calls that need approval, and answers questions of tools, while the run waits: for example with a prompt in a terminal or
/// by a rule. What it [defers](Decision::defer) is left to the next one; in the end, the run [returns](crate::RunErrorKind::Waiting) and
/// can be resumed later.
///
/// Implemented for functions from a [`Wait`] to a [`Decision`], which must not block. [`on_approval`] and [`on_question`] take
/// functions that decide about one of both.
///
/// ```
/// use tool_core::agent::on_approval;
/// use tool_core::run::Decision;
/// use tool_core::schemars::JsonSchema;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
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
///     .decider(on_approval(|call| match call.arguments_as::<Bill>() {
///         Ok(bill) if bill.cents <= 50_000 => Decision::approve(),
///         _ => Decision::deny("too much at once"),
///     }))
///     .build()?;
/// let answer = agent.ask("Pay the bill").await?;
/// let error = answer.tool_executions()[0].outcome().unwrap_err();
/// assert_eq!(error.to_string(), "the call was denied: too much at once");
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decide about what a run waits for",
    label = "not a `Decider`",
    note = "a function takes `&Wait` and returns a `Decision`; `on_approval(|call| …)` and `on_question(|question| …)` decide about one of both",
    note = "for a decision that is awaited, implement `Decider` for a type of your own"
)]
pub trait Decider: Send + Sync {
    /// Decides about something that a run waits for: an [approval](WaitReason::Approval) or an [answer](WaitReason::Answer).
    ///
    /// The future must not block. This decider asks in the terminal:
    ///
    /// ```
    /// use std::io;
    ///
    /// use tokio::task::spawn_blocking;
    /// use tool_core::agent::{Decider, DeciderFuture};
    /// use tool_core::run::{Decision, Wait, WaitReason};
    ///
    /// struct Terminal;
    ///
    /// impl Decider for Terminal {
    ///     fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
    ///         Box::pin(async move {
    ///             let WaitReason::Approval(call) = &wait.reason else { return Decision::defer() };
    ///             println!("{call:#}: allow? [y/n]");
    ///             match spawn_blocking(|| io::stdin().lines().next()).await {
    ///                 Ok(Some(Ok(line))) if line.trim() == "y" => Decision::approve(),
    ///                 _ => Decision::deny("the user declined"),
    ///             }
    ///         })
    ///     }
    /// }
    /// ```
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a>;
}

#[diagnostic::do_not_recommend]
impl<F: Fn(&Wait) -> Decision + Send + Sync> Decider for F {
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
        Box::pin(ready(self(wait)))
    }
}

/// Decides about calls that need approval. The id of a call of an [agent as a tool](crate::Agent::as_tool) is its [path](Wait::path).
pub fn on_approval(decide: impl Fn(&ToolCall) -> Decision + Send + Sync) -> impl Decider {
    move |wait: &Wait| match &wait.reason {
        WaitReason::Approval(call) => decide(&ToolCall { id: wait.path.clone(), ..call.clone() }),
        _ => Decision::defer(),
    }
}

/// Answers questions of tools.
///
/// ```
/// use tool_core::agent::on_question;
/// use tool_core::run::Decision;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::tool::Asker;
/// use tool_core::{Agent, ToolError, tool, tools};
///
/// #[tool("Orders a pizza")]
/// async fn order(#[inject] user: &Asker) -> Result<String, ToolError> {
///     let size: String = user.ask("Which size?").choices(["small", "large"]).await?;
///     Ok(format!("a {size} one"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("order", "{}").says("It is on its way.");
/// let agent = Agent::builder(model)
///     .tools(tools![order])
///     .decider(on_question(|question| Decision::answer(question.choices()[1].clone())))
///     .build()?;
/// let answer = agent.ask("A pizza, please").await?;
/// assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "a large one");
/// # Ok(())
/// # }
/// ```
pub fn on_question(answer: impl Fn(&Question) -> Decision + Send + Sync) -> impl Decider {
    move |wait: &Wait| wait.question().map_or_else(Decision::defer, &answer)
}

/// Asks one after the other, until one decides.
pub(super) struct Deciders(pub(super) Vec<Arc<dyn Decider>>);

impl Decider for Deciders {
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
        Box::pin(async move {
            for decider in &self.0 {
                let decision = decider.decide(wait).await;
                if !decision.is_deferred() {
                    return decision;
                }
            }
            Decision::defer()
        })
    }
}
