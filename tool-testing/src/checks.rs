//! What can be checked.

use tool_core::run::{Answer, Run, RunError};

use crate::calls::CheckCalls;
use crate::cost::CheckCost;
use crate::seen;

/// Checks of an [`Answer`], a [`Run`], or a [`RunError`], whose run can wait.
///
/// ```
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, call, tool, tools};
/// use tool_testing::Checks;
///
/// #[tool("Deletes the account", needs_approval)]
/// fn delete(name: String) {}
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tool_testing::Result {
/// let model = ScriptedModel::new().calls("delete", r#"{"name": "ada"}"#);
/// let desk = Agent::builder(model).tools(tools![delete]).build()?;
/// let error = desk.ask("Delete Ada").await.unwrap_err();
/// error.check_calls().first(call!(delete { name: "ada" }).waiting()).check()?;
/// error.check_cost().turns(..=1).check()?;
/// # Ok(())
/// # }
/// ```
pub trait Checks {
    /// Returns expectations about the calls, to which methods add.
    fn check_calls(&self) -> CheckCalls;

    /// Returns expectations about tokens and cost, to which methods add.
    fn check_cost(&self) -> CheckCost;
}

impl Checks for Answer {
    fn check_calls(&self) -> CheckCalls {
        CheckCalls::new(seen::of_answer(self))
    }

    fn check_cost(&self) -> CheckCost {
        CheckCost::new(self.usage(), self.cost(), self.turns())
    }
}

impl Checks for Run {
    fn check_calls(&self) -> CheckCalls {
        CheckCalls::new(seen::of_run(self))
    }

    fn check_cost(&self) -> CheckCost {
        CheckCost::new(self.usage(), self.usage().cost, self.turns())
    }
}

impl Checks for RunError {
    fn check_calls(&self) -> CheckCalls {
        self.run().check_calls()
    }

    fn check_cost(&self) -> CheckCost {
        self.run().check_cost()
    }
}
