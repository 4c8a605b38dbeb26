//! What the model is offered, turn by turn.

use std::future::Future;
use std::pin::Pin;

use super::builder::{refuse_choice, refuse_missing_undo};
use crate::agent::Agent;
use crate::run::{Kind, Run};
use crate::tool::ToolContext;
use crate::toolset::{ToolProvider, ToolProviderRequest, ToolSet, ToolSetError};

/// The tools of one run: the agent's own, those of the question, and those of the
/// [providers](ToolProvider).
pub(super) struct RunTools {
    agent: Agent,
    context: ToolContext,
    /// The agent's and those of the question.
    own: Result<ToolSet, ToolSetError>,
    /// The same, and those of the providers that are asked once.
    lasting: Option<ToolSet>,
    /// What the other providers gave last.
    passing: Vec<ToolSet>,
    /// All tools of this turn.
    offered: Option<ToolSet>,
}

type Resolving<'a> = Pin<Box<dyn Future<Output = Result<ToolSet, Kind>> + Send + 'a>>;

/// Asks the providers. It is reached through a pointer that only `tool_provider` sets, so that a program
/// without providers holds none of it.
pub(super) type AskProviders = for<'a> fn(&'a mut RunTools, &'a Run) -> Resolving<'a>;

impl RunTools {
    pub(super) fn new(agent: Agent, context: ToolContext, own: Result<ToolSet, ToolSetError>) -> Self {
        Self { agent, context, own, lasting: None, passing: Vec::new(), offered: None }
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(super) fn context(&self) -> &ToolContext {
        &self.context
    }

    /// The tools for what the run does next: those to offer to the model if that is to be asked, and those that it was
    /// offered if it has called some.
    pub(super) async fn resolve(&mut self, run: &Run) -> Result<ToolSet, Kind> {
        if run.is_done() {
            return Ok(self.offered.clone().unwrap_or_default());
        }
        let stays = !run.is_asking() || !self.agent.0.providers.iter().any(|one| one.is_dynamic());
        if let Some(offered) = self.offered.as_ref().filter(|_| stays) {
            return Ok(offered.clone());
        }
        let tools = match self.agent.0.ask_providers {
            Some(ask) => ask(self, run).await?,
            None => self.own()?,
        };
        if !self.offered.as_ref().is_some_and(|offered| offered.is_shared_with(&tools)) {
            let missing = tools.missing_from(&self.context);
            if let Some(missing) = missing.or_else(|| self.agent.0.undo_tools.missing_from(&self.context)) {
                self.offered = None;
                return Err(Kind::MissingContext(missing));
            }
            if let Err(error) = refuse_missing_undo(&tools, &self.agent.0.undo_tools) {
                self.offered = None;
                return Err(Kind::tools("the model cannot be asked".into(), error));
            }
            self.offered = Some(tools.clone());
        }
        Ok(tools)
    }

    /// All tools of this turn, whatever a hook left of them; none before they were put together.
    pub(super) fn resolved(&self) -> Option<&ToolSet> {
        self.offered.as_ref()
    }

    fn own(&self) -> Result<ToolSet, Kind> {
        self.own
            .clone()
            .map_err(|error| Kind::tools("the tools of the question cannot be offered".into(), error))
    }
}

/// The tools of this turn, with those of the providers: first what stays the same, so that a provider's
/// prompt cache hits.
pub(super) fn ask_providers<'a>(tools: &'a mut RunTools, run: &'a Run) -> Resolving<'a> {
    Box::pin(async move {
        let agent = tools.agent.clone();
        let request = ToolProviderRequest::new(run.messages(), &tools.context);
        let (dynamic, fixed): (Vec<_>, Vec<_>) =
            agent.0.providers.iter().map(|one| &**one).partition(|one| one.is_dynamic());
        let lasting = match &tools.lasting {
            Some(lasting) => lasting.clone(),
            None => {
                let mut lasting = tools.own()?;
                for provider in fixed {
                    lasting = add(lasting, provider, &ask(provider, &request).await?)?;
                }
                lasting
            }
        };
        let mut passing = Vec::with_capacity(dynamic.len());
        for provider in &dynamic {
            passing.push(ask(*provider, &request).await?);
        }
        let is_as_before = |(now, before): (&ToolSet, &ToolSet)| now.is_shared_with(before);
        let all = match &tools.offered {
            Some(offered) if passing.iter().zip(&tools.passing).all(is_as_before) => offered.clone(),
            _ => {
                let mut all = lasting.clone();
                for (provider, more) in dynamic.iter().zip(&passing) {
                    all = add(all, *provider, more)?;
                }
                all
            }
        };
        refuse_choice(run.choice_of_this_turn(), &all)
            .map_err(|error| Kind::tools("the model cannot be asked".into(), error))?;
        (tools.lasting, tools.passing) = (Some(lasting), passing);
        Ok(all)
    })
}

async fn ask(provider: &dyn ToolProvider, request: &ToolProviderRequest<'_>) -> Result<ToolSet, Kind> {
    provider
        .tools(request)
        .await
        .map_err(|error| Kind::tools(format!("the tool provider `{}` gave no tools", provider.name()), error))
}

fn add(tools: ToolSet, provider: &dyn ToolProvider, more: &ToolSet) -> Result<ToolSet, Kind> {
    tools.union(more).map_err(|error| {
        Kind::tools(format!("the tools of the tool provider `{}` cannot be offered", provider.name()), error)
    })
}
