//! Layers of a set: they see the calls of its tools and their outputs, also without an agent.

use std::panic::Location;
use std::sync::Arc;

use super::set::{Layered, ToolRef, ToolSet};
use crate::layer::{
    CallVerdict, Layer, LayerFuture, OutputVerdict, Part, Place, await_verdict, refused_rewrite,
};
use crate::model::{ToolCall, ToolDefinition};
use crate::tool::{
    Injection, Outcome, Returned, Tool, ToolContext, ToolError, ToolExecution, ToolFuture, Undone,
    VerdictKind, VerdictRecord,
};

impl ToolSet {
    /// Adds a layer that sees the calls of these tools and their outputs, however they are called: by an agent, by
    /// [`execute`](Self::execute), by a server. Its other parts need an [agent](crate::agent::AgentBuilder::layer).
    ///
    /// - **Verdicts.** Nobody can be waited for here: a call that needs approval or is left to the caller is refused, and the end of a run is
    ///   a [fatal](ToolError::fatal) error of the call. If the layer fails or panics, so does the call, which is not executed again; its time
    ///   counts as time of the call. Decisions are [reported](Layer::decided) to all layers of the set, and are in the [record](ToolExecution::verdicts) of the call.
    /// - **Order.** The layers of a set are the innermost: the layers of an agent judge a call before, and a person approves it before. All
    ///   layers of a set rewrite before one judges, unless tools were renamed or got other parameters between two layers. A layer sees the
    ///   names that the tools had when it was added.
    /// - **Undo.** A call is undone by what it did before layers replaced that, with the arguments that they wrote; one that is interrupted, with
    ///   the model's arguments. So the arguments of calls that are undone are better rewritten by a layer of the agent.
    /// - **Not seen** are calls that the caller executes ([external](crate::tool::ExternalTool) tools), calls of `pure` tools whose earlier
    ///   output a run reuses, and, as by the layers of an agent, the arguments of a call by which a run undoes another.
    /// - **Place.** It has no agents, messages and executions, and the context of the call. Its [account](Place::account) charges the run that
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
}

impl Layered {
    fn that_see(&self, part: Part) -> impl Iterator<Item = &dyn Layer> {
        self.layers.iter().map(|layer| &**layer).filter(move |layer| layer.sees(part))
    }

    /// Executes a call between the layers.
    async fn execute(&self, call: ToolCall, context: &ToolContext) -> Returned {
        let mut execution = ToolExecution::new(call, Err(ToolError::interrupted()));
        // What a run undoes is not judged beforehand, as by the layers of an agent.
        let is_judged = context.get::<Undone>().is_none() && !context.is_passed();
        let given = match is_judged {
            true => self.review(&mut execution, context).await,
            false => Ok(None),
        };
        match given {
            Err(refused) => {
                execution.outcome = Err(refused);
                return execution.into_returned();
            }
            Ok(Some(outcome)) => {
                execution.outcome = outcome;
                execution = execution.without_execution();
            }
            Ok(None) => {
                let ToolExecution { call, history: earlier, .. } = execution;
                let context = match earlier.verdicts.is_empty() {
                    true => context.clone(),
                    false => context.clone().with_arguments(&call.arguments),
                };
                let (outcome, history) = self.tool.get().call(&call.arguments, &context).finish().await;
                execution = ToolExecution::new(call, outcome).with_history(history);
                execution.history = execution.history.preceded_by(earlier);
            }
        }
        self.review_output(execution, context).await.into_returned()
    }

    /// Rewrites and judges a call. Returns its outcome if it is not executed.
    async fn review(
        &self,
        execution: &mut ToolExecution,
        context: &ToolContext,
    ) -> Result<Option<Outcome>, ToolError> {
        let not_executed = |why: String| ToolError::not_executed(&why);
        let tool = self.tool.get();
        if let Err(error) = tool.check_arguments(&execution.call.arguments, context) {
            return Ok(Some(Err(error)));
        }
        for layer in self.that_see(Part::Rewrite) {
            let rewritten = ask(layer, context, &execution.call, |layer, it, at| layer.rewrite(it, at)).await;
            let rewritten = rewritten.map_err(not_executed)?;
            if let Some(arguments) = rewritten.filter(|rewritten| *rewritten != execution.call.arguments) {
                execution.call.arguments = arguments;
                let rewritten = self.record(layer, VerdictKind::Rewritten, None, execution, context).await;
                rewritten.map_err(not_executed)?;
                if let Err(error) = tool.check_arguments(&execution.call.arguments, context) {
                    return Ok(Some(Err(refused_rewrite(layer.name(), &error))));
                }
            }
        }
        for layer in self.that_see(Part::Judge) {
            let verdict = ask(layer, context, &execution.call, |layer, it, at| layer.judge(it, at)).await;
            let denied = |why: &str| Err(ToolError::denied(Some(why)));
            let (kind, why, ruling) = match verdict.map_err(not_executed)? {
                CallVerdict::Pass => continue,
                CallVerdict::Replace(outcome) => (VerdictKind::Replaced, None, Ok(Some(outcome))),
                CallVerdict::Deny(why) => (VerdictKind::Denied, Some(why.clone()), denied(&why)),
                CallVerdict::NeedsApproval => (
                    VerdictKind::NeedsApproval,
                    None,
                    denied("it needs approval, which nobody can give here"),
                ),
                CallVerdict::LeaveToCaller => {
                    let error = ToolError::not_executed("it is left to the caller");
                    (VerdictKind::LeftToCaller, None, Err(error))
                }
                CallVerdict::End(why) => (VerdictKind::Ended, Some(why.clone()), Err(ToolError::fatal(why))),
            };
            self.record(layer, kind, why, execution, context).await.map_err(not_executed)?;
            return ruling;
        }
        Ok(None)
    }

    /// Judges the outcome of a call after its last attempt.
    async fn review_output(&self, mut execution: ToolExecution, context: &ToolContext) -> ToolExecution {
        if context.is_suspended() {
            return execution;
        }
        if let Err(error) = &execution.outcome
            && context.will_retry(self.definition().policy(), error)
        {
            if self.that_see(Part::Output).next().is_some() {
                execution.outcome = Err(error.with_text("the attempt failed".to_owned()));
            }
            return execution;
        }
        if let Err(error) = self.judge_output(&mut execution, context).await {
            execution = execution.with_outcome(Err(error));
        }
        // To execute the call again would not satisfy a layer.
        execution.outcome = execution.outcome.map_err(ToolError::without_retry);
        execution
    }

    /// Judges an outcome. Returns the error that takes its place if a layer fails or ends the run.
    async fn judge_output(
        &self,
        execution: &mut ToolExecution,
        context: &ToolContext,
    ) -> Result<(), ToolError> {
        for layer in self.that_see(Part::Output) {
            let verdict = ask(layer, context, &*execution, |layer, it, at| layer.output(it, at)).await;
            let (kind, why, outcome) = match verdict.map_err(ToolError::failed)? {
                OutputVerdict::Pass => continue,
                OutputVerdict::Replace(outcome) => (VerdictKind::Replaced, None, Ok(outcome)),
                OutputVerdict::End(why) => {
                    (VerdictKind::Ended, Some(why.clone()), Err(ToolError::fatal(why)))
                }
            };
            self.record(layer, kind, why, execution, context).await.map_err(ToolError::failed)?;
            execution.replace_outcome(outcome?);
        }
        Ok(())
    }

    /// Reports a decision to all layers of the set, and records it.
    async fn record(
        &self,
        by: &dyn Layer,
        kind: VerdictKind,
        why: Option<String>,
        execution: &mut ToolExecution,
        context: &ToolContext,
    ) -> Result<(), String> {
        let record = VerdictRecord { why, ..VerdictRecord::new(by.name(), 0, kind) };
        for layer in &self.layers {
            let decision = (&record, &execution.call);
            ask(&**layer, context, &decision, |layer, (it, call), at| layer.decided(it, Some(call), at))
                .await?;
        }
        execution.history.verdicts.push(record);
        Ok(())
    }
}

/// Awaits what a layer decides. Its error is for the application, so what the model reads has only its name.
async fn ask<T, V>(
    layer: &dyn Layer,
    context: &ToolContext,
    subject: &T,
    ask: impl for<'a> FnOnce(&'a dyn Layer, &'a T, &'a Place<'a>) -> LayerFuture<'a, V>,
) -> Result<V, String> {
    let name = layer.name();
    let place = Place { accounts: Some((name, context)), ..Place::new(context) };
    await_verdict(layer, |layer| ask(layer, subject, &place))
        .await
        .map_err(|_| format!("the layer `{name}` failed"))
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

    fn check_arguments(&self, arguments: &str, context: &ToolContext) -> Result<(), ToolError> {
        self.tool.get().check_arguments(arguments, context)
    }

    fn inner_tool(&self, name: &str) -> Option<&dyn Tool> {
        self.tool.get().inner_tool(name)
    }

    #[cfg(feature = "unstable-internals")]
    fn as_agent(&self) -> Option<&dyn std::any::Any> {
        self.tool.get().as_agent()
    }

    fn injections(&self) -> Option<&[Injection]> {
        // An empty list would state that the tool needs no context at all, but layers see the call.
        self.tool.get().injections().filter(|injections| !injections.is_empty())
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        self.tool.get().declared_at()
    }

    fn origin(&self) -> Option<&str> {
        self.tool.get().origin()
    }
}
