//! Answers to questions of tools while a run is in progress.

use std::future::{Future, ready};
use std::pin::Pin;

use crate::run::Decision;
use crate::tool::Question;

/// The future returned by [`Answerer::answer`].
pub type AnswererFuture<'a> = Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;

/// Answers the questions of tools while the run waits, for example with a prompt in a terminal or by a rule. Without one, the run
/// [returns](crate::RunErrorKind::Waiting) and can be resumed later.
///
/// Implemented for functions from a [`Question`] to a [`Decision`]; they must not block. The answerer of the innermost agent is asked
/// first, and [`Decision::defer`] leaves the question to the one outside of it.
///
/// ```
/// use tool_core::run::Decision;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::tool::{Asker, Question};
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
///     .answerer(|question: &Question| Decision::answer(question.choices()[1].clone()))
///     .build()?;
/// let answer = agent.ask("A pizza, please").await?;
/// assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "a large one");
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not answer questions",
    label = "not an `Answerer`",
    note = "a function takes `&Question` and returns a `Decision`; for an answer that is awaited, implement `Answerer` for a type of your own"
)]
pub trait Answerer: Send + Sync {
    /// Answers a question.
    fn answer<'a>(&'a self, question: &'a Question) -> AnswererFuture<'a>;
}

#[diagnostic::do_not_recommend]
impl<F: Fn(&Question) -> Decision + Send + Sync> Answerer for F {
    fn answer<'a>(&'a self, question: &'a Question) -> AnswererFuture<'a> {
        Box::pin(ready(self(question)))
    }
}
