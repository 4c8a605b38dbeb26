//! Tools that hand a run over to another agent.

use crate::agent::{Agent, AgentBuilder, Event, RunDriver};
use crate::model::{ReturnDirect, ToolDefinition, ToolKind};
use crate::run::RunErrorKind;
use crate::tool::{Tool, ToolContext, ToolFuture, ToolOutput};
use crate::toolset::redefined;

/// # Handoffs
impl AgentBuilder {
    /// Offers a tool without arguments by which the model hands the run over to another agent for good: the rest of the run has
    /// the other agent's model, instructions, tools, context, deciders and settings. What belongs to the question stays: its context,
    /// tools and limits, its deciders, and its instructions and options, which precede the other agent's. The memory and run
    /// store of this agent stay, too. The tools of [`only_tools`](crate::agent::Ask::only_tools) are in place of this agent's, and go
    /// with them. The [layers](Self::layer) of this agent hold in addition to the other agent's.
    ///
    /// ```
    /// use tool_core::Agent;
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().expects(|request| request.messages()[0].text() == "You do billing.").says("It is paid.");
    /// let billing = Agent::builder(model).instructions("You do billing.").build()?;
    /// let desk = Agent::builder(ScriptedModel::new().calls("billing", "{}"))
    ///     .instructions("You are the first contact.")
    ///     .handoff_to("billing", "Takes over questions about invoices", &billing)
    ///     .build()?;
    /// let answer = desk.ask("Is invoice 7 paid?").await?;
    /// assert_eq!((answer.text(), answer.handoffs()[0].agent()), ("It is paid.", "billing"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The run is handed off at the end of the turn, by the first such call that was executed. This is part of its state: a run that
    /// is [resumed](Agent::resume) by this agent continues with the other one, which can hand it over further. Calls are undone
    /// by the tools of the agent that executed them.
    pub fn handoff_to(self, name: impl Into<String>, description: impl Into<String>, other: &Agent) -> Self {
        self.handoff_by(HandoffTool(ToolDefinition::new(name).with_description(description)), other)
    }

    /// Like [`handoff_to`](Self::handoff_to), by a tool of your own: its arguments can be the reason or the subject, and it can inject
    /// values, need approval and refuse. A call that succeeds hands the run over. The other agent's model reads the call and its output.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, FunctionTool};
    ///
    /// /// Passes a complaint on.
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Complaint {
    ///     reason: String,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let manager = Agent::builder(ScriptedModel::new().says("I am sorry.")).build()?;
    /// let complain = FunctionTool::new("complain", |complaint: Complaint| format!("noted: {}", complaint.reason));
    /// let desk = Agent::builder(ScriptedModel::new().calls("complain", r#"{"reason": "noise"}"#))
    ///     .handoff_by(complain, &manager)
    ///     .build()?;
    /// assert_eq!(desk.ask("My room is loud.").await?.text(), "I am sorry.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn handoff_by(mut self, tool: impl Tool + 'static, other: &Agent) -> Self {
        let definition = tool.definition().clone();
        let policy = definition.policy().clone().with_return_direct(ReturnDirect::Never);
        self.agent.handoffs.push((definition.name().to_owned(), other.clone()));
        self.tools(redefined(tool, definition.with_policy(policy).with_kind(ToolKind::Handoff)))
    }
}

struct HandoffTool(ToolDefinition);

impl Tool for HandoffTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Ok(ToolOutput::text("handed off")))
    }
}

impl RunDriver {
    /// Continues with the agents that the run was handed off to. Returns the events to emit.
    /// Fails if an agent does not hand off to one that the state of the run names.
    pub(super) fn follow_handoffs(&mut self) -> Result<Vec<Event>, RunErrorKind> {
        let mut events = Vec::new();
        while let Some(handoff) = self.run.handoffs().get(self.performer.earlier_tools.len()) {
            let (agent, is_entered) = (handoff.agent().to_owned(), handoff.is_entered);
            let before = self.performer.tools.agent.clone();
            let Some(next) = before.handed_to(&agent).map(|next| next.repeating_as(&before)) else {
                let context = format!("the run was handed off to `{agent}`");
                return Err(RunErrorKind::tools(context, "the agent has no `handoff_to` of this name"));
            };
            let question = self.run.question_settings();
            let had_instructions = before.0.instructions.is_some() || question.instructions.is_some();
            let settings = next.run_settings(question);
            self.run.enter_handoff(self.performer.earlier_tools.len(), had_instructions, settings);
            self.performer.hand_off(&agent, &next);
            self.offer = Default::default();
            self.sent = Default::default();
            if !is_entered {
                self.storage.has_unsaved_changes = true;
                events.push(Event::HandedOff { agent });
            }
        }
        Ok(events)
    }
}
