//! The user whose run it is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::conversation_id::{impl_from_application, impl_id};

/// The user whose run it is, by the application's own identifier. [`Ask::user`](crate::agent::Ask::user) states it, and the run stores it.
/// Tools inject it with `#[inject] user: &RunUser`, at any depth of agents. The identifier comes from the authentication of the program,
/// never from a model or the body of a request.
///
/// ```
/// use tool_core::model::RunUser;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
///
/// #[tool("Lists the orders of the customer")]
/// fn orders(#[inject] user: &RunUser) -> String {
///     format!("the orders of {user}")
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("orders", "{}").says("None.");
/// let agent = Agent::builder(model).tools(tools![orders]).build()?;
/// let answer = agent.ask("Which orders do I have?").user("ada").await?;
/// let output = answer.tool_executions()[0].output().map(ToString::to_string);
/// assert_eq!(output.as_deref(), Some("the orders of ada"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct RunUser(Arc<str>);

impl_id!(RunUser);
impl_from_application!(RunUser: i32 i64 u32 u64);
