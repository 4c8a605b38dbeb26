//! The tools that a run offers to the model in each turn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::builder::check_tool_choice;
use super::tool_search::{Divided, LastDivided};
use super::undo_tools::{Source, UndoTools};
use crate::agent::{Agent, BuildError};
use crate::model::ToolDefinitions;
use crate::run::{Run, RunErrorKind};
use crate::tool::ToolContext;
use crate::toolset::{ToolProvider, ToolProviderRequest, ToolSet, ToolSetError};

/// The tools of one run: the agent's own, those of the question, and those of the [providers](ToolProvider).
pub(super) struct RunTools {
    agent: Agent,
    /// The context of the question.
    question_context: ToolContext,
    /// The same with the values of the agent.
    context: ToolContext,
    /// The tools of the question.
    question: Result<ToolSet, ToolSetError>,
    /// The tools of the question replace those of the agent and of its providers.
    replaces: bool,
    /// The tool that takes a typed answer, which is among those of the question.
    answer_tool: ToolSet,
    /// The agent's tools and those of the question, once they are joined.
    own: Option<ToolSet>,
    /// The same, with those of the providers that are asked once per run.
    with_static: Option<ToolSet>,
    /// The tools of each provider that is asked once per run.
    fixed: Vec<ToolSet>,
    /// The last result of each provider that is asked in every turn.
    dynamic: Vec<ToolSet>,
    /// All tools of this turn before a hook changed them.
    resolved: Option<ToolSet>,
    undo: UndoTools,
    divided: LastDivided,
    /// The definitions that were offered last, of these tools in addition to those that are always offered.
    offered: Option<(Arc<Divided>, Vec<String>, ToolDefinitions)>,
}

type Resolving<'a> = Pin<Box<dyn Future<Output = Result<ToolSet, RunErrorKind>> + Send + 'a>>;

/// Resolves the tools with those of the providers. Only `tool_provider` sets this pointer, so that programs without providers
/// are linked without the code behind it.
pub(super) type ResolveWithProviders = for<'a> fn(&'a mut RunTools, &'a Run) -> Resolving<'a>;

impl RunTools {
    pub(super) fn new(
        agent: Agent,
        question_context: ToolContext,
        question: Result<ToolSet, ToolSetError>,
        replaces: bool,
        answer_tool: ToolSet,
    ) -> Self {
        let undo = agent.0.bound_undo_tools.clone();
        let context = question_context.clone().with_defaults(&agent.0.context);
        Self {
            agent,
            question_context,
            context,
            question,
            replaces,
            answer_tool,
            own: None,
            with_static: None,
            fixed: Vec::new(),
            dynamic: Vec::new(),
            resolved: None,
            undo,
            divided: LastDivided::default(),
            offered: None,
        }
    }

    /// Returns the tools of a run that was handed over to this agent. Those that replace an agent's were for the agent before.
    pub(super) fn handed_over_to(&self, agent: &Agent) -> Self {
        let answer_tool = self.answer_tool.clone();
        let question = if self.replaces { Ok(answer_tool.clone()) } else { self.question.clone() };
        Self::new(agent.clone(), self.question_context.clone(), question, false, answer_tool)
    }

    /// Returns the tools of the last turn, or those of the agent if there was none.
    pub(super) fn last_resolved(&self) -> ToolSet {
        self.resolved.clone().unwrap_or_else(|| self.agent.0.tools.clone())
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
        let is_dynamic = !self.replaces && self.agent.0.providers.iter().any(|one| one.is_dynamic());
        let is_current = !run.is_asking() || !is_dynamic;
        if let Some(resolved) = self.resolved.as_ref().filter(|_| is_current) {
            return Ok(resolved.clone());
        }
        let tools = match self.agent.0.resolve_with_providers.filter(|_| !self.replaces) {
            Some(resolve) => resolve(self, run).await?,
            None => self.own_tools()?,
        };
        if self.replaces {
            check_tool_choice(run.current_tool_choice(), &tools).map_err(invalid_tools)?;
        }
        if !self.resolved.as_ref().is_some_and(|resolved| resolved.is_shared_with(&tools)) {
            let missing = tools.missing_from(&self.context);
            if let Some(missing) = missing.or_else(|| self.agent.0.undo_tools.missing_from(&self.context)) {
                self.resolved = None;
                return Err(RunErrorKind::MissingContext(missing));
            }
            self.resolved = Some(tools.clone());
        }
        Ok(tools)
    }

    /// Returns the tools that undo the calls of this run.
    pub(super) fn undo(&self) -> &UndoTools {
        &self.undo
    }

    /// Checks the tools of a turn after a hook changed them.
    pub(super) fn check_changed(&self, tools: &ToolSet) -> Result<(), RunErrorKind> {
        let is_unchanged = self.resolved.as_ref().is_some_and(|resolved| resolved.is_shared_with(tools));
        if is_unchanged {
            return Ok(());
        }
        let error = |error| RunErrorKind::tools("the tools of the turn cannot be offered".into(), error);
        self.undo.check(tools).map_err(error)
    }

    /// Divides the tools of a turn into those that are offered and those that are found, if the agent has a search and there are
    /// tools to be found.
    pub(super) fn divide(
        &mut self,
        tools: &ToolSet,
        required: Option<&str>,
    ) -> Result<Option<Arc<Divided>>, RunErrorKind> {
        let agent = self.agent.clone();
        let Some((search, last)) = &agent.0.tool_search else { return Ok(None) };
        search.check_names(tools).map_err(invalid_tools)?;
        // Each source has an index, so that those that stay the same are indexed once. A hook can add tools of any source.
        let is_unchanged = self.resolved.as_ref().is_some_and(|resolved| resolved.is_shared_with(tools));
        let sources: Vec<_> = match is_unchanged {
            true => self.own.iter().chain(&self.fixed).chain(&self.dynamic).cloned().collect(),
            false => vec![tools.clone()],
        };
        // Runs with the same tools share what is prepared for them; others keep it for themselves.
        let last = if sources.len() == 1 { last } else { &self.divided };
        let answer_tool = self.answer_tool.definitions().iter().map(|tool| tool.name());
        let always: Vec<_> = required.into_iter().chain(answer_tool).collect();
        let divided = last.get_or_divide(search, agent.model(), tools, &sources, &always);
        divided.map_err(|error| RunErrorKind::tools("the tools cannot be offered".into(), error))
    }

    /// Returns the definitions to offer, of which those of these tools need not be found.
    pub(super) fn offered(&mut self, divided: &Arc<Divided>, names: Vec<String>) -> ToolDefinitions {
        if names.is_empty() {
            return divided.offered.clone();
        }
        match &self.offered {
            Some((of, before, offered)) if Arc::ptr_eq(of, divided) && *before == names => offered.clone(),
            _ => {
                let offered = divided.offered_with(&names);
                self.offered = Some((Arc::clone(divided), names, offered.clone()));
                offered
            }
        }
    }

    fn own_tools(&mut self) -> Result<ToolSet, RunErrorKind> {
        if let Some(own) = &self.own {
            return Ok(own.clone());
        }
        let context = || "the tools of the question cannot be offered".to_owned();
        let question =
            self.question.as_ref().map_err(|error| RunErrorKind::tools(context(), error.clone()))?;
        let agents = self.agent.0.tools.clone();
        // The settings of the agent's set remain.
        let (agents, source) = match self.replaces {
            true => (agents.filter(|_| false), Source::Agent),
            false => (agents, Source::Question),
        };
        let own = if question.is_empty() {
            agents
        } else {
            let bound = self.undo.bind(source, question);
            bound.map_err(|error| RunErrorKind::tools(context(), error))?;
            agents.union(question).map_err(|error| RunErrorKind::tools(context(), error))?
        };
        self.own = Some(own.clone());
        Ok(own)
    }

    /// Adds the tools of the provider with this index.
    fn add(&mut self, tools: ToolSet, index: usize, more: &ToolSet) -> Result<ToolSet, RunErrorKind> {
        let provider = &self.agent.0.providers[index];
        let context = || format!("the tools of the tool provider `{}` cannot be offered", provider.name());
        let bound = self.undo.bind(Source::Provider(index), more);
        bound.map_err(|error| RunErrorKind::tools(context(), error))?;
        tools.union(more).map_err(|error| RunErrorKind::tools(context(), error))
    }
}

/// Resolves the tools of this turn with those of the providers. Tools that stay the same come first, so that the provider's
/// prompt cache is hit.
pub(super) fn resolve_with_providers<'a>(tools: &'a mut RunTools, run: &'a Run) -> Resolving<'a> {
    Box::pin(async move {
        let agent = tools.agent.clone();
        let context = tools.context.clone();
        let request = ToolProviderRequest::new(run.messages(), &context);
        let (dynamic, fixed): (Vec<_>, Vec<_>) =
            agent.0.providers.iter().map(|one| &**one).enumerate().partition(|(_, one)| one.is_dynamic());
        let with_static = match &tools.with_static {
            Some(with_static) => with_static.clone(),
            None => {
                let mut with_static = tools.own_tools()?;
                let mut provided = Vec::with_capacity(fixed.len());
                for (index, provider) in fixed {
                    let more = request_tools(provider, &request).await?;
                    with_static = tools.add(with_static, index, &more)?;
                    provided.push(more);
                }
                tools.fixed = provided;
                with_static
            }
        };
        let mut provided = Vec::with_capacity(dynamic.len());
        for (_, provider) in &dynamic {
            provided.push(request_tools(*provider, &request).await?);
        }
        let is_unchanged = |(now, before): (&ToolSet, &ToolSet)| now.is_shared_with(before);
        let all = match &tools.resolved {
            Some(resolved) if provided.iter().zip(&tools.dynamic).all(is_unchanged) => resolved.clone(),
            _ => {
                let mut all = with_static.clone();
                for ((index, _), more) in dynamic.iter().zip(&provided) {
                    all = tools.add(all, *index, more)?;
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

fn invalid_tools(error: BuildError) -> RunErrorKind {
    RunErrorKind::tools("the tools cannot be offered".into(), error)
}
