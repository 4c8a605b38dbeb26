//! The tools that a run offers to the model in each turn.

use std::future::Future;
use std::pin::Pin;

use super::builder::check_tool_choice;
use super::builder::check_undo_tools;
use crate::agent::{Agent, BuildError};
use crate::run::{Run, RunErrorKind};
use crate::tool::ToolContext;
use crate::toolset::{ToolProvider, ToolProviderRequest, ToolSet, ToolSetError};

/// The tools of one run: the agent's own, those of the question, and those of the [providers](ToolProvider).
pub(super) struct RunTools {
    agent: Agent,
    context: ToolContext,
    /// The agent's tools and those of the question.
    own: Result<ToolSet, ToolSetError>,
    /// The same, with those of the providers that are asked once per run.
    with_static: Option<ToolSet>,
    /// The last result of each provider that is asked in every turn.
    dynamic: Vec<ToolSet>,
    /// All tools of this turn.
    resolved: Option<ToolSet>,
}

type Resolving<'a> = Pin<Box<dyn Future<Output = Result<ToolSet, RunErrorKind>> + Send + 'a>>;

/// Resolves the tools with those of the providers. Only `tool_provider` sets this pointer, so that programs without providers
/// are linked without the code behind it.
pub(super) type ResolveWithProviders = for<'a> fn(&'a mut RunTools, &'a Run) -> Resolving<'a>;

impl RunTools {
    pub(super) fn new(agent: Agent, context: ToolContext, own: Result<ToolSet, ToolSetError>) -> Self {
        Self { agent, context, own, with_static: None, dynamic: Vec::new(), resolved: None }
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(super) fn context(&self) -> &ToolContext {
        &self.context
    }

    /// Returns the tools for the next step: those to offer to the model if it is called, or those that it was offered if
    /// it has called some of them.
    pub(super) async fn resolve(&mut self, run: &Run) -> Result<ToolSet, RunErrorKind> {
        if run.is_done() {
            return Ok(self.resolved.clone().unwrap_or_default());
        }
        let is_current = !run.is_asking() || !self.agent.0.providers.iter().any(|one| one.is_dynamic());
        if let Some(resolved) = self.resolved.as_ref().filter(|_| is_current) {
            return Ok(resolved.clone());
        }
        let tools = match self.agent.0.resolve_with_providers {
            Some(resolve) => resolve(self, run).await?,
            None => self.own_tools()?,
        };
        if !self.resolved.as_ref().is_some_and(|resolved| resolved.is_shared_with(&tools)) {
            let missing = tools.missing_from(&self.context);
            if let Some(missing) = missing.or_else(|| self.agent.0.undo_tools.missing_from(&self.context)) {
                self.resolved = None;
                return Err(RunErrorKind::MissingContext(missing));
            }
            if let Err(error) = check_undo_tools(&tools, &self.agent.0.undo_tools) {
                self.resolved = None;
                return Err(invalid_tools(error));
            }
            self.resolved = Some(tools.clone());
        }
        Ok(tools)
    }

    /// Returns all tools of this turn, including those that a hook removed, once they are resolved.
    pub(super) fn resolved(&self) -> Option<&ToolSet> {
        self.resolved.as_ref()
    }

    fn own_tools(&self) -> Result<ToolSet, RunErrorKind> {
        self.own
            .clone()
            .map_err(|error| RunErrorKind::tools("the tools of the question cannot be offered".into(), error))
    }
}

/// Resolves the tools of this turn with those of the providers. Tools that stay the same come first, so that the provider's
/// prompt cache is hit.
pub(super) fn resolve_with_providers<'a>(tools: &'a mut RunTools, run: &'a Run) -> Resolving<'a> {
    Box::pin(async move {
        let agent = tools.agent.clone();
        let request = ToolProviderRequest::new(run.messages(), &tools.context);
        let (dynamic, fixed): (Vec<_>, Vec<_>) =
            agent.0.providers.iter().map(|one| &**one).partition(|one| one.is_dynamic());
        let with_static = match &tools.with_static {
            Some(with_static) => with_static.clone(),
            None => {
                let mut with_static = tools.own_tools()?;
                for provider in fixed {
                    with_static = add(with_static, provider, &request_tools(provider, &request).await?)?;
                }
                with_static
            }
        };
        let mut provided = Vec::with_capacity(dynamic.len());
        for provider in &dynamic {
            provided.push(request_tools(*provider, &request).await?);
        }
        let is_unchanged = |(now, before): (&ToolSet, &ToolSet)| now.is_shared_with(before);
        let all = match &tools.resolved {
            Some(resolved) if provided.iter().zip(&tools.dynamic).all(is_unchanged) => resolved.clone(),
            _ => {
                let mut all = with_static.clone();
                for (provider, more) in dynamic.iter().zip(&provided) {
                    all = add(all, *provider, more)?;
                }
                all
            }
        };
        check_tool_choice(run.current_tool_choice(), &all).map_err(invalid_tools)?;
        (tools.with_static, tools.dynamic) = (Some(with_static), provided);
        Ok(all)
    })
}

async fn request_tools(
    provider: &dyn ToolProvider,
    request: &ToolProviderRequest<'_>,
) -> Result<ToolSet, RunErrorKind> {
    provider.tools(request).await.map_err(|error| {
        RunErrorKind::tools(format!("the tool provider `{}` failed", provider.name()), error)
    })
}

fn add(tools: ToolSet, provider: &dyn ToolProvider, more: &ToolSet) -> Result<ToolSet, RunErrorKind> {
    tools.union(more).map_err(|error| {
        let context = format!("the tools of the tool provider `{}` cannot be offered", provider.name());
        RunErrorKind::tools(context, error)
    })
}

fn invalid_tools(error: BuildError) -> RunErrorKind {
    RunErrorKind::tools("the tools cannot be offered".into(), error)
}
