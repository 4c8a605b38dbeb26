//! Layers of a set: they see the calls of its tools and their outputs, also without an agent.

use std::sync::Arc;

use super::set::{Layered, ToolRef, ToolSet};
use crate::layer::{Layer, LayerContext, Review, Seat};
use crate::model::{ToolCall, ToolDefinition};
use crate::tool::{
    CallToUndo, Injection, Passed, Returned, Tool, ToolContext, ToolExecution, ToolFuture, ToolOutput,
};

impl ToolSet {
    /// Adds a layer that sees the calls of these tools and their outputs, however they are called: by an agent, by
    /// [`execute`](Self::execute), by a server. Its other parts need an [agent](crate::agent::AgentBuilder::layer).
    ///
    /// - **Verdicts.** Nobody can be waited for here: a call that needs approval or is left to the caller is refused, and the end of a run is
    ///   a [fatal](crate::ToolError::fatal) error of the call. If the layer fails or panics, so does the call, which is not executed again; its time
    ///   counts as time of the call. Decisions are [reported](Layer::decided) to all layers of the set, and are in the [record](ToolExecution::verdicts) of the call.
    /// - **Order.** The layers of a set are the innermost: the layers of an agent judge a call before, and a person approves it before. All
    ///   layers of a set rewrite before one judges, unless tools were renamed or got other parameters between two layers. A layer sees the
    ///   names that the tools had when it was added.
    /// - **Undo.** A call is undone by what it did before layers replaced that, with the arguments that they wrote; one that is interrupted, with
    ///   the model's arguments. So the arguments of calls that are undone are better rewritten by a layer of the agent.
    /// - **Not seen** are calls that the caller executes ([external](crate::tool::ExternalTool) tools), calls of `pure` tools whose earlier
    ///   output a run reuses, and, as by the layers of an agent, the arguments of a call by which a run undoes another.
    /// - **Context.** It has no agents, messages and executions, and the context of the call. Its [reporter](LayerContext::usage_reporter) charges the run that
    ///   calls the tool, if one does.
    ///
    /// ```
    /// use serde::Deserialize;
    /// use tool_core::layer::{CallVerdict, guard, rewrite};
    /// use tool_core::schemars::JsonSchema;
    /// use tool_core::{ToolCall, ToolContext, tool, tools};
    ///
    /// #[tool("Reads a file")]
    /// fn read(path: String) -> String {
    ///     format!("{path}: secret")
    /// }
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Read {
    ///     path: String,
    /// }
    ///
    /// # let outcome = futures_util::FutureExt::now_or_never(async {
    /// let tools = tools![read]
    ///     .layer(guard::call(|call: &ToolCall| match call.arguments_as::<Read>() {
    ///         Ok(read) if !read.path.contains("..") => CallVerdict::Pass,
    ///         _ => CallVerdict::deny("stay in the folder"),
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

    /// Returns the layers of the tools. One that several tools have is returned for each.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &dyn Layer> {
        let layered = self.0.tools.iter().filter_map(|tool| match tool {
            ToolRef::Layered(layered) => Some(&layered.layers),
            _ => None,
        });
        layered.flatten().map(|layer| &**layer)
    }
}

impl Layered {
    fn review<'a>(&'a self, context: &'a ToolContext) -> Review<'a> {
        Review::new(self.layers.iter().map(|layer| {
            let place =
                LayerContext { accounts: Some((layer.name(), context)), ..LayerContext::new(context) };
            Seat { layer: &**layer, level: 0, agent: 0, place }
        }))
    }

    /// Executes a call between the layers.
    async fn execute(&self, mut call: ToolCall, context: &ToolContext) -> Returned {
        let (review, tool, mut verdicts) = (self.review(context), self.tool.get(), Vec::new());
        let check = |call: &ToolCall| tool.check_arguments(&call.arguments, context);
        let asking = context.asking_agent();
        let requested = asking.map(|_| call.arguments.clone());
        let given = match asking.and_then(|asking| asking.passed(&call)) {
            // The call passed before it asked its agent, which has answered now.
            Some(passed) => {
                call.arguments = passed.written.unwrap_or(call.arguments);
                verdicts = passed.verdicts;
                Ok(None)
            }
            // What a run undoes is not judged beforehand, as by the layers of an agent.
            None if context.get::<CallToUndo>().is_some() => Ok(None),
            None => review.call_alone(&mut call, context.has_checked_arguments(), &mut verdicts, check).await,
        };
        let is_refused = given.is_err();
        let mut execution = match given {
            Err(refused) => ToolExecution::new(call, Err(refused)),
            Ok(Some(given)) => given.without_execution(),
            Ok(None) => {
                if let (Some(asking), Some(given)) = (asking, requested) {
                    let written = (call.arguments != given).then(|| call.arguments.clone());
                    let (tool, verdicts) = (call.name.clone(), verdicts.clone());
                    asking.pass(Passed { tool, given, written, verdicts });
                }
                let context = match verdicts.is_empty() {
                    true => context.clone(),
                    false => context.clone().with_arguments(&call.arguments),
                };
                let (outcome, history) = tool.call(&call.arguments, &context).finish().await;
                ToolExecution::new(call, outcome).with_history(history)
            }
        };
        execution.history.verdicts.splice(0..0, verdicts);
        if is_refused {
            return execution.into_returned();
        }
        match &execution.outcome {
            Err(error) if context.will_retry(self.definition().policy(), error) => {
                if review.sees_output() {
                    execution.outcome = Err(error.with_text("the attempt failed".to_owned()));
                }
            }
            outcome => {
                // Layers return an output without the limit.
                let limit = outcome.as_ref().ok().and_then(ToolOutput::limit);
                execution = review.output_alone(execution).await;
                execution.outcome = match limit {
                    Some(limit) => execution.outcome.map(|output| output.limited(limit)),
                    None => execution.outcome,
                };
            }
        }
        execution.into_returned()
    }
}

impl Tool for Layered {
    fn definition(&self) -> &ToolDefinition {
        self.tool.get().definition()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let id = context.call().map_or("", |call| &call.id);
        let call = ToolCall::new(id, self.definition().name(), arguments);
        ToolFuture::wrapping(self.execute(call, context))
    }

    fn wrapped(&self) -> Option<&dyn Tool> {
        Some(self.tool.get())
    }

    fn injections(&self) -> Option<&[Injection]> {
        // An empty list would state that the tool needs no context at all, but layers see the call.
        self.tool.get().injections().filter(|injections| !injections.is_empty())
    }
}
