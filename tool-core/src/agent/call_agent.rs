//! Calls of agents as tools.

use std::any::Any;
use std::sync::Arc;

use super::driver::AskedAgent;
use super::layers::Layers;
use crate::agent::AgentTool;
use crate::model::ToolDefinition;
use crate::run::may_be_undo;
use crate::tool::{CallToUndo, Injection, Tool, ToolContext, ToolError, ToolFuture, ToolOutput};

// Messages about types that are no tools name those that programs create most.
#[diagnostic::do_not_recommend]
impl Tool for AgentTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        match self.form.question(arguments, context.read_mode()) {
            Ok((question, repairs)) => ToolFuture::boxed(ask(self, question, context)).with_repairs(repairs),
            Err(error) => ToolFuture::ready(Err(error)),
        }
    }

    fn check_arguments(&self, arguments: &str, context: &ToolContext) -> Result<(), ToolError> {
        self.form.question(arguments, context.read_mode()).map(drop)
    }

    fn injections(&self) -> Option<&[Injection]> {
        // An empty list would state that the tool needs no context at all.
        Some(&*self.injections).filter(|injections| !injections.is_empty())
    }

    fn origin(&self) -> Option<&str> {
        Some("an agent as a tool")
    }
}

/// Asks the agent: by the world of the run that the call belongs to, or with a driver of its own if it belongs to none.
async fn ask(tool: &AgentTool, question: String, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    if let Some(asking) = context.asking_agent() {
        return asking.ask(question).await;
    }
    // The call that undoes one of an agent has the name of the undone call, and only the driver has the run to undo.
    let undoes_itself =
        |undone: &CallToUndo| context.call().is_some_and(|call| call.name == undone.call.name);
    match context.get::<CallToUndo>() {
        Some(undone) if undoes_itself(undone) => {
            return Err(ToolError::not_executed("only a driver of its run undoes the calls of an agent"));
        }
        // Only a run knows which call it undoes.
        None if !context.has_attempt() && context.call().is_some_and(|call| may_be_undo(&call.id)) => {
            return Err(ToolError::not_executed(
                "this call undoes another one; drive its run with `RunDriver`, or request it with `Run::request_call`",
            ));
        }
        _ => {}
    }
    let layers =
        context.rules().and_then(|rules| (rules as Arc<dyn Any + Send + Sync>).downcast::<Layers>().ok());
    let called_as = context.call().map_or(tool.definition.name(), |call| &call.name);
    AskedAgent::alone(tool, question, context, layers.as_deref(), called_as).drive_alone().await
}
