//! The tools that a run offers to the model in each turn.

use std::error::Error;
use std::sync::Arc;

use super::builder::check_tool_choice;
use super::tool_search::{Divided, LastDivided, RESERVED_NAMES};
use super::trace::warn_of_taken_name;
use super::undo_tools::{Source, UndoTools};
use crate::agent::{Agent, BuildError};
use crate::content::printable;
use crate::model::ToolDefinitions;
use crate::run::{Run, RunErrorKind};
use crate::tool::ToolContext;
use crate::toolset::{ToolProvider, ToolProviderRequest, ToolSet, ToolSetError};

type ToolsError = Box<dyn Error + Send + Sync>;

/// The tools of a question, and the values that it passes to tools.
#[derive(Clone)]
pub(super) struct QuestionTools {
    pub(super) context: ToolContext,
    /// Offered in addition to the agent's or in place of them.
    pub(super) offered: Result<ToolSet, ToolSetError>,
    /// The tools replace those of the agent and of its providers.
    pub(super) replaces: bool,
    /// The tool that takes a typed answer. No other tools replace it.
    pub(super) answer_tool: ToolSet,
}

impl Default for QuestionTools {
    fn default() -> Self {
        Self {
            context: ToolContext::new(),
            offered: Ok(ToolSet::default()),
            replaces: false,
            answer_tool: ToolSet::default(),
        }
    }
}

/// The tools of one run: the agent's own, those of the question, and those of the [providers](ToolProvider).
pub(super) struct RunTools {
    pub(super) agent: Agent,
    question: QuestionTools,
    /// The context of the question, with the values of the agent.
    pub(super) context: ToolContext,
    /// The agent's tools and those of the question, once they are joined.
    own: Option<ToolSet>,
    /// The last result of each provider.
    provided: Vec<ToolSet>,
    /// The same, without the tools that were left out, in the order in which they are offered.
    added: Vec<ToolSet>,
    /// All tools of this turn before a hook changed them.
    resolved: Option<ToolSet>,
    /// The tools that undo the calls of the run.
    pub(super) undo: UndoTools,
    divided: LastDivided,
    /// The definitions that were offered last, of these tools in addition to those that are always offered.
    offered: Option<(Arc<Divided>, Vec<String>, ToolDefinitions)>,
}

impl RunTools {
    pub(super) fn new(agent: Agent, question: QuestionTools) -> Self {
        let undo = agent.0.bound_undo_tools.clone();
        let context = question.context.clone().with_defaults(&agent.0.context);
        Self {
            agent,
            question,
            context,
            own: None,
            provided: Vec::new(),
            added: Vec::new(),
            resolved: None,
            undo,
            divided: LastDivided::default(),
            offered: None,
        }
    }

    /// Returns the tools of a run that was handed off to this agent. Those that replace an agent's were for the agent before.
    pub(super) fn handed_off_to(&self, agent: &Agent) -> Self {
        let mut question = self.question.clone();
        if question.replaces {
            (question.offered, question.replaces) = (Ok(ToolSet::default()), false);
        }
        Self::new(agent.clone(), question)
    }

    /// Returns the tools of the last turn, or those of the agent if there was none.
    pub(super) fn last_resolved(&self) -> ToolSet {
        self.resolved.clone().unwrap_or_else(|| self.agent.0.tools.clone())
    }

    /// Returns the tools for the next step: those to offer to the model if it is called, or those that it was offered if
    /// it has called some of them.
    pub(super) async fn resolve(&mut self, run: &Run) -> Result<ToolSet, RunErrorKind> {
        if run.is_done() {
            return Ok(self.resolved.clone().unwrap_or_default());
        }
        let is_dynamic = !self.question.replaces && self.agent.0.providers.iter().any(|one| one.is_dynamic());
        let is_current = !run.is_asking() || !is_dynamic;
        if let Some(resolved) = self.resolved.as_ref().filter(|_| is_current) {
            return Ok(resolved.clone());
        }
        let tools = if self.question.replaces || self.agent.0.providers.is_empty() {
            self.own_tools()?
        } else {
            // Boxed, because most runs wait without it.
            Box::pin(self.resolve_with_providers(run)).await?
        };
        if run.is_asking() {
            check_tool_choice(run.current_tool_choice(), &tools).map_err(invalid_tools)?;
        }
        if !self.are_unchanged(&tools) {
            let missing = tools.missing_from(&self.context);
            if let Some(missing) = missing.or_else(|| self.agent.0.undo_tools.missing_from(&self.context)) {
                self.resolved = None;
                return Err(RunErrorKind::MissingContext(missing));
            }
            self.resolved = Some(tools.clone());
        }
        Ok(tools)
    }

    /// Returns `true` if these are the tools of this turn, unchanged by a hook.
    fn are_unchanged(&self, tools: &ToolSet) -> bool {
        self.resolved.as_ref().is_some_and(|resolved| resolved.is_shared_with(tools))
    }

    /// Checks the tools of a turn after a hook changed them.
    pub(super) fn check_changed(&self, tools: &ToolSet) -> Result<(), RunErrorKind> {
        if self.are_unchanged(tools) {
            return Ok(());
        }
        let error = |error| RunErrorKind::tools("the tools of the turn cannot be offered".into(), error);
        self.undo.check(tools, None).map_err(error)
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
        let sources: Vec<_> = if self.are_unchanged(tools) {
            self.own.iter().chain(&self.added).cloned().collect()
        } else {
            vec![tools.clone()]
        };
        // Runs with the same tools share what is prepared for them; others keep it for themselves.
        let last = if sources.len() == 1 { last } else { &self.divided };
        let answer_tool = self.question.answer_tool.definitions().names();
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

    /// Resolves the tools of this turn with those of the providers. Tools that stay the same come first, so that the provider's
    /// prompt cache is hit.
    async fn resolve_with_providers(&mut self, run: &Run) -> Result<ToolSet, RunErrorKind> {
        let agent = self.agent.clone();
        let context = self.context.clone();
        let request = ToolProviderRequest::new(run.messages(), &context);
        let providers = &agent.0.providers;
        let mut provided = Vec::with_capacity(providers.len());
        for (index, provider) in providers.iter().enumerate() {
            provided.push(match self.provided.get(index) {
                Some(tools) if !provider.is_dynamic() => tools.clone(),
                _ => request_tools(&**provider, &request).await?,
            });
        }
        let is_unchanged = |(now, before): (&ToolSet, &ToolSet)| now.is_shared_with(before);
        if let Some(resolved) = &self.resolved
            && provided.iter().zip(&self.provided).all(is_unchanged)
        {
            return Ok(resolved.clone());
        }
        let mut all = self.own_tools()?;
        let (dynamic, fixed): (Vec<_>, Vec<_>) =
            (0..providers.len()).partition(|index| providers[*index].is_dynamic());
        let mut added = Vec::with_capacity(providers.len());
        for index in fixed.into_iter().chain(dynamic) {
            let more = self.without_taken_names(index, &provided);
            all = self.add(all, index, &more)?;
            added.push(more);
        }
        (self.provided, self.added) = (provided, added);
        Ok(all)
    }

    /// Leaves out the tools of an untrusted provider whose names are taken.
    fn without_taken_names(&self, index: usize, provided: &[ToolSet]) -> ToolSet {
        let (tools, provider) = (&provided[index], &self.agent.0.providers[index]);
        if !provider.has_untrusted_names() {
            return tools.clone();
        }
        let others = provided.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, tools)| tools);
        let others: Vec<_> = self.own.iter().chain(others).collect();
        let is_taken = |name: &str| {
            others.iter().any(|tools| tools.get(name).is_some())
                || self.undo.is_reserved(name, Source::Provider(index))
                || self.agent.0.tool_search.is_some() && RESERVED_NAMES.contains(&name)
        };
        tools.filter(|tool| {
            let is_taken = is_taken(tool.name());
            if is_taken {
                warn_of_taken_name(&printable(tool.name()), provider.name());
            }
            !is_taken
        })
    }

    fn own_tools(&mut self) -> Result<ToolSet, RunErrorKind> {
        if let Some(own) = &self.own {
            return Ok(own.clone());
        }
        let own = self.join_own().map_err(|error| {
            RunErrorKind::tools("the tools of the question cannot be offered".into(), error)
        })?;
        self.own = Some(own.clone());
        Ok(own)
    }

    fn join_own(&mut self) -> Result<ToolSet, ToolsError> {
        let question = self.question.offered.clone()?.union(&self.question.answer_tool)?;
        let agents = self.agent.0.tools.clone();
        // The settings of the agent's set remain.
        let (agents, source) = if self.question.replaces {
            (agents.filter(|_| false), Source::Agent)
        } else {
            (agents, Source::Question)
        };
        if question.is_empty() { Ok(agents) } else { self.join(agents, source, &question) }
    }

    /// Adds the tools of a source.
    fn join(&mut self, tools: ToolSet, source: Source, more: &ToolSet) -> Result<ToolSet, ToolsError> {
        self.undo.bind(source, more)?;
        Ok(tools.union(more)?)
    }

    /// Adds the tools of the provider with this index.
    fn add(&mut self, tools: ToolSet, index: usize, more: &ToolSet) -> Result<ToolSet, RunErrorKind> {
        self.join(tools, Source::Provider(index), more).map_err(|error| {
            let provider = self.agent.0.providers[index].name();
            RunErrorKind::tools(
                format!("the tools of the tool provider `{provider}` cannot be offered"),
                error,
            )
        })
    }
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
