//! Layers of a set: they see the calls of its tools and their outputs, also without an agent.

use std::any::Any;
use std::panic::Location;
use std::sync::Arc;

use super::set::{Layered, ToolRef, ToolSet};
use crate::layer::{CallVerdict, Layer, LayerError, OutputVerdict, Part, Place, refused_rewrite};
use crate::model::{ToolCall, ToolDefinition};
use crate::tool::{Injection, Outcome, Tool, ToolContext, ToolError, ToolExecution, ToolFuture};

impl ToolSet {
    /// Adds a layer that sees the calls of these tools and their outputs, however they are called: by an agent, by
    /// [`execute`](Self::execute), by a server. Its other parts need an [agent](crate::agent::AgentBuilder::layer).
    ///
    /// Nobody can be waited for here: a call that needs approval or is left to the caller is refused, and the end of a run is a
    /// [fatal](ToolError::fatal) error of the call.
    ///
    /// ```
    /// use tool_core::layer::{CallVerdict, guard, rewrite};
    /// use tool_core::{ToolCall, ToolContext, tool, tools};
    ///
    /// #[tool("Reads a file")]
    /// fn read(path: String) -> String {
    ///     format!("{path}: secret")
    /// }
    ///
    /// # let outcome = futures_util::FutureExt::now_or_never(async {
    /// let tools = tools![read]
    ///     .layer(guard::call(|call: &ToolCall| match call.arguments.contains("..") {
    ///         true => CallVerdict::deny("stay in the folder"),
    ///         false => CallVerdict::Pass,
    ///     }))
    ///     .layer(rewrite::output(|_, output| output.to_string().replace("secret", "…")));
    /// let read = |path: &str| ToolCall::new("call_1", "read", format!(r#"{{"path": "{path}"}}"#));
    /// assert_eq!(tools.call(&read("a"), &ToolContext::new()).await?.to_string(), "a: …");
    /// let error = tools.call(&read("../a"), &ToolContext::new()).await.unwrap_err();
    /// assert_eq!(error.to_string(), "the call was denied: stay in the folder");
    /// # Ok::<_, tool_core::ToolError>(())
    /// # });
    /// # outcome.unwrap().unwrap();
    /// ```
    #[must_use]
    pub fn layer(self, layer: impl Layer + 'static) -> Self {
        let layer: Arc<dyn Layer> = Arc::new(layer);
        let tools = self.0.tools.iter().map(|tool| {
            // One list for all layers, because all rewrite before any judges.
            let (tool, mut layers) = match tool {
                ToolRef::Layered(layered) => (layered.tool.clone(), layered.layers.clone()),
                tool => (tool.clone(), Vec::new()),
            };
            layers.push(Arc::clone(&layer));
            ToolRef::Layered(Arc::new(Layered { tool, layers }))
        });
        Self::from_unique(tools.collect()).with_settings(self.0.settings)
    }
}

impl Layered {
    fn that_see(&self, part: Part) -> impl Iterator<Item = &Arc<dyn Layer>> {
        self.layers.iter().filter(move |layer| layer.sees(part))
    }

    /// Rewrites and judges a call. Returns its outcome if it is not executed.
    async fn review(&self, call: &mut ToolCall, context: &ToolContext) -> Result<Option<Outcome>, ToolError> {
        let (tool, place) = (self.tool.get(), Place::new(context));
        if let Err(error) = tool.check_arguments(&call.arguments, context) {
            return Ok(Some(Err(error)));
        }
        for layer in self.that_see(Part::Rewrite) {
            let rewritten = layer.rewrite(call, &place).await.map_err(|error| failed(layer, &error))?;
            if let Some(arguments) = rewritten {
                call.arguments = arguments;
                if let Err(error) = tool.check_arguments(&call.arguments, context) {
                    return Ok(Some(Err(refused_rewrite(layer.name(), &error))));
                }
            }
        }
        for layer in self.that_see(Part::Judge) {
            let refused = match layer.judge(call, &place).await.map_err(|error| failed(layer, &error))? {
                CallVerdict::Pass => continue,
                CallVerdict::Replace(outcome) => return Ok(Some(outcome)),
                CallVerdict::Deny(why) => ToolError::denied(Some(&why)),
                CallVerdict::NeedsApproval => {
                    ToolError::denied(Some("it needs approval, which nobody can give here"))
                }
                CallVerdict::LeaveToCaller => ToolError::not_executed("it is left to the caller"),
                CallVerdict::End(why) => ToolError::fatal(why),
            };
            return Err(refused);
        }
        Ok(None)
    }

    /// Judges the outcome of a call after its last attempt. To execute the call again would not satisfy a layer.
    async fn review_output(&self, call: ToolCall, outcome: Outcome, context: &ToolContext) -> Outcome {
        if let Err(error) = &outcome
            && context.will_retry(self.definition().policy(), error)
        {
            let is_judged = self.that_see(Part::Output).next().is_some();
            return if is_judged { Err(error.with_text("the attempt failed".to_owned())) } else { outcome };
        }
        self.judge_output(call, outcome, context).await.map_err(ToolError::without_retry)
    }

    async fn judge_output(&self, call: ToolCall, outcome: Outcome, context: &ToolContext) -> Outcome {
        let mut execution = ToolExecution::new(call, outcome);
        for layer in self.that_see(Part::Output) {
            match layer.output(&execution, &Place::new(context)).await {
                Ok(OutputVerdict::Pass) => {}
                Ok(OutputVerdict::Replace(outcome)) => execution.outcome = outcome,
                Ok(OutputVerdict::End(why)) => return Err(ToolError::fatal(why)),
                Err(_) => return Err(ToolError::failed(format!("the layer `{}` failed", layer.name()))),
            }
        }
        execution.outcome
    }
}

/// The error itself is for the application, not for the model.
fn failed(layer: &Arc<dyn Layer>, _: &LayerError) -> ToolError {
    ToolError::not_executed(&format!("the layer `{}` failed", layer.name()))
}

impl Tool for Layered {
    fn definition(&self) -> &ToolDefinition {
        self.tool.get().definition()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let id = context.call().map_or("", |call| &call.id);
        let mut call = ToolCall::new(id, self.definition().name(), arguments);
        ToolFuture::wrapping(async move {
            match self.review(&mut call, context).await {
                Ok(None) => {}
                Ok(Some(outcome)) => return (self.review_output(call, outcome, context).await, Vec::new()),
                Err(error) => return (Err(error), Vec::new()),
            }
            let (outcome, repairs) = self.tool.get().call(&call.arguments, context).finish().await;
            (self.review_output(call, outcome, context).await, repairs)
        })
    }

    fn check_arguments(&self, arguments: &str, context: &ToolContext) -> Result<(), ToolError> {
        self.tool.get().check_arguments(arguments, context)
    }

    fn inner_tool(&self, name: &str) -> Option<&dyn Tool> {
        self.tool.get().inner_tool(name)
    }

    fn as_agent(&self) -> Option<&dyn Any> {
        self.tool.get().as_agent()
    }

    fn injections(&self) -> Option<&[Injection]> {
        self.tool.get().injections()
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        self.tool.get().declared_at()
    }

    fn origin(&self) -> Option<&str> {
        self.tool.get().origin()
    }
}
