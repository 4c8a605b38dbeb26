//! The user whose run it is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::conversation_id::{impl_from_application, impl_id};

/// The user whose run it is, by the application's own identifier. [`Ask::user`](crate::agent::Ask::user) states it, the run stores it, and tools
/// can have it injected with `#[inject] user: &RunUser`, also those of agents inside. It is what an authentication says, never a model or
/// the body of a request.
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

impl RunUser {
    /// Creates an id from the application's own identifier.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self::from(id.into())
    }
}

impl_id!(RunUser);
impl_from_application!(RunUser: i32 i64 u32 u64);
