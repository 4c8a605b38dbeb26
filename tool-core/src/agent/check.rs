//! Reviews what an agent sends with each request.

use crate::agent::Agent;
use crate::content::Content;
use crate::tool::Timestamp;
use crate::toolset::ToolReport;

impl Agent {
    /// Reviews the agent's own tools like [`ToolSet::check`](crate::ToolSet::check), and its instructions: if these contain the time, each
    /// start of the program, or each agent that it builds, loses the provider's prompt cache. Call it in a test, on an agent that was just
    /// built: today's date is found, and the time of the last ten seconds in any time zone. Other dates and times are taken for examples, and so are
    /// full minutes; use full minutes in examples, which are never found by chance. Tools of providers and instructions of questions are not reviewed; [`track_cache`](crate::agent::AgentBuilder::track_cache)
    /// shows what these lose.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::signatures::FindingKind;
    /// use tool_core::Agent;
    ///
    /// # fn main() -> Result<(), tool_core::BuildError> {
    /// let agent = Agent::builder(ScriptedModel::new()).instructions("You help. Write times as 14:03:00.").build()?;
    /// assert!(!agent.check().findings().iter().any(|one| one.kind() == FindingKind::TimeInInstructions));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn check(&self) -> ToolReport {
        let instructions = self.0.instructions.as_ref().map(Content::text).unwrap_or_default();
        self.0.tools.check_with(&instructions, Timestamp::now())
    }
}
