//! Compacts a run between two of its steps.

use crate::agent::{Agent, Compaction};
use crate::run::{Run, RunError};

impl Agent {
    /// Hides as much as possible of a run from the model now, by the agent's [compaction](crate::agent::AgentBuilder::compaction), or else
    /// by the default one. A stored run is stored again. A run whose next step is no request to the model stays as it is.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Reads a book", pure)]
    /// fn read() -> String {
    ///     "Call me Ishmael. ".repeat(2_000)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new()
    ///     .calls("read", "{}")
    ///     .calls("read", "{}")
    ///     .fails("down")
    ///     .says("Ishmael.");
    /// let agent = Agent::builder(model).tools(tools![read]).build()?;
    /// let failed = agent.ask("Who tells the story?").await.unwrap_err();
    /// let run = agent.compact(failed.into_run()).await?;
    /// assert_eq!(run.compactions().len(), 1);
    /// assert_eq!(agent.resume(run).await?.text(), "Ishmael.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with a [`Step`](crate::run::RunErrorKind::Step) error, and changes nothing, if something could be hidden, but the provider accepts the reasoning of the last replies
    /// only [behind](crate::ChatModel::binds_reasoning) the original messages and does not summarize them by itself, or fails to: this ends with
    /// the next message of the user. Also fails if another process drives the run, if its tools cannot be resolved, if a layer fails, or if it cannot be stored.
    pub async fn compact(&self, run: Run) -> Result<Run, RunError> {
        let options = self.0.compaction.clone().unwrap_or_else(Compaction::when_it_pays);
        let mut driver = self.resume(run).start();
        let compacted = driver.compact_for_caller(&options).await;
        driver.release_lease().await;
        match compacted {
            Ok(()) => Ok(driver.into_run()),
            Err(kind) => Err(driver.into_error(kind)),
        }
    }
}
