//! The tools that a run offers to the model in each turn.
//!
//! - All tools of a run come from sources: the agent, the question, its providers. What they supply is joined, then offered at once or by a
//!   search; the result of each step is stored with the sets that it was made of, because a further turn with the same sets should cost
//!   nothing per tool.
//! - Layers choose the tools of a turn before a search divides them and before calls are looked up, because a tool that was not offered
//!   must not be executed. They only leave tools out, because the source of a tool decides what undoes its calls.
//! - An untrusted server names its tools (`ToolProvider::has_untrusted_names`). A taken name leaves out the tool, and of two servers both
//!   tools, because a server must neither end a run nor take the place of another's tool.
//! - Behind open calls of a resumed run, such a provider asks the user only if it has failed and one of the calls may be of its tools, because
//!   a login must not keep turns waiting that have no call of its tools. Behind calls that are undone, it asks nothing.

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;

use super::compaction::READ_OUTPUT;
use super::lock::lock;
use super::tool_search::{Divided, RESERVED_NAMES};
use super::trace::warn_of_taken_name;
use super::undo_tools::{Source, UndoTools};
use crate::agent::{Agent, BuildError};
use crate::content::printable;
use crate::model::{ToolDefinition, ToolDefinitions, ToolPolicy};
use crate::run::{Run, RunErrorKind, RunView};
use crate::tool::{AskError, Asker, Asking, CallNotes, ProviderNotes, ToolContext};
use crate::toolset::{ToolProvider, ToolProviderRequest, ToolSet, ToolSetError};

type ToolsError = Box<dyn Error + Send + Sync>;

/// The tools of a question, and the values that it passes to tools.
#[derive(Clone)]
pub(super) struct QuestionTools {
    pub(super) context: ToolContext,
    /// Offered in addition to the agent's or in place of them.
    pub(super) offered: Result<ToolSet, ToolSetError>,
    /// The tools replace the tools of the agent and of its providers.
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

/// The tools of one run: the agent's own, the question's, and the tools of the [providers](ToolProvider).
///
/// Sources supply tools, which are joined, and offered all at once or by a search. The last result of each of these steps is stored
/// and remains valid while the sets are the same that it was made of.
#[derive(Clone)]
pub(super) struct RunTools {
    pub(super) agent: Agent,
    question: QuestionTools,
    /// What the application gives the run.
    given: ToolSet,
    /// The context of the question, with the values of the agent.
    pub(super) context: ToolContext,
    /// What each source supplied, in the order in which the tools are offered.
    supplies: Vec<Supply>,
    /// All tools of this turn.
    joined: Option<ToolSet>,
    /// Those that the layers chose.
    chosen: Option<Chosen>,
    /// What a model that searches for tools was offered.
    offered: Option<Offered>,
    /// The tools that undo the calls of the run.
    pub(super) undo: UndoTools,
}

/// The tools of one source.
#[derive(Clone)]
struct Supply {
    source: Source,
    tools: ToolSet,
    /// The same without those that were left out.
    offered: ToolSet,
}

/// What the providers supply for a step, or which of them asks the user first, and what was supplied before.
pub(super) type Provided = Result<Vec<(Source, ToolSet)>, (AskingProvider, Vec<(Source, ToolSet)>)>;

/// What providers are asked for a step of a run.
pub(super) struct ProvidersRequest {
    view: RunView,
    notes: Vec<ProviderNotes>,
    is_asking: bool,
    is_undoing: bool,
    /// The names of the tools of open calls.
    calls: Vec<String>,
    /// The tool of the next undo call, and whether another agent than the present one has it.
    undo: Option<(String, bool)>,
}

impl ProvidersRequest {
    pub(super) fn of(run: &Run) -> Self {
        let is_of_other = run.handoffs_before_undone() != Some(run.handoffs().len());
        Self {
            view: run.view(),
            notes: run.provider_notes().cloned().collect(),
            is_asking: run.is_asking(),
            is_undoing: run.is_undoing(),
            calls: run.open_calls().iter().map(|call| call.name.clone()).collect(),
            undo: run.next_undo_call().map(|undo| (undo.name.clone(), is_of_other)),
        }
    }
}

/// What a provider replies without a new question.
pub(super) struct ProviderReply {
    pub(super) tools: Result<ToolSet, ToolsError>,
    /// It would have asked one.
    was_refused: bool,
}

/// A provider that asks the user, with its position among those of its name.
pub(super) struct AskingProvider {
    pub(super) name: String,
    pub(super) number: usize,
    pub(super) notes: CallNotes,
}

/// The tools of a turn that layers chose among all.
#[derive(Clone)]
struct Chosen {
    all: ToolSet,
    names: HashSet<String>,
    tools: ToolSet,
}

/// The definitions of divided tools that are offered, with some that the model has found.
#[derive(Clone)]
struct Offered {
    divided: Arc<Divided>,
    found: Vec<String>,
    definitions: ToolDefinitions,
}

impl RunTools {
    pub(super) fn new(agent: Agent, question: QuestionTools) -> Self {
        let undo = agent.0.bound_undo_tools.clone();
        let context = question.context.clone().with_defaults(&agent.0.context);
        Self {
            agent,
            question,
            given: ToolSet::default(),
            context,
            supplies: Vec::new(),
            joined: None,
            chosen: None,
            offered: None,
            undo,
        }
    }

    /// Adds values to the context of the tools: values of the question take precedence over them, and they take precedence over values of
    /// the agent.
    pub(super) fn add_context(&mut self, values: &ToolContext) {
        self.question.context = self.question.context.clone().with_defaults(values);
        self.context = self.question.context.clone().with_defaults(&self.agent.0.context);
    }

    /// Sets the tools that the application gives the run. The question's own can be in place of them.
    pub(super) fn give(&mut self, tools: ToolSet) {
        if !self.question.replaces {
            self.given = tools;
        }
    }

    /// Returns `true` if the model gives its answer by calling a tool.
    pub(super) fn has_answer_tool(&self) -> bool {
        !self.question.answer_tool.is_empty()
    }

    /// Returns the tool of a typed answer, or the tools that the application gives the run, if they contain this name.
    pub(super) fn further_with(&self, name: &str) -> Option<&ToolSet> {
        [&self.question.answer_tool, &self.given].into_iter().find(|tools| tools.get(name).is_some())
    }

    /// Returns the tools of the same question for another run. Nothing is resolved yet.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.agent.clone(), self.question.clone())
    }

    /// Returns the tools of a run that was handed off to this agent. Those that replace an agent's were for the agent before.
    pub(super) fn handed_off_to(&self, agent: &Agent) -> Self {
        let mut question = self.question.clone();
        if question.replaces {
            (question.offered, question.replaces) = (Ok(ToolSet::default()), false);
        }
        Self { given: self.given.clone(), ..Self::new(agent.clone(), question) }
    }

    /// Returns `true` if the tools of the provider with this name, and this number among those of the name, are offered to the run.
    pub(super) fn has_provider(&self, name: &str, number: usize) -> bool {
        !self.question.replaces && self.agent.has_provider(name, number)
    }

    /// Returns the tools of the last turn, or the agent's tools if there was none.
    pub(super) fn last_resolved(&self) -> ToolSet {
        self.joined.clone().unwrap_or_else(|| self.agent.0.tools.clone())
    }

    /// Returns the tools for the next step, if no provider has to be asked: those to offer to the model if it is called, or those that it was
    /// offered if it has called some of them.
    pub(super) fn resolve(&mut self, run: &Run) -> Result<Option<ToolSet>, RunErrorKind> {
        if run.is_done() {
            return Ok(Some(self.joined.clone().unwrap_or_default()));
        }
        let providers = self.providers();
        let is_current = !run.is_asking() || !providers.iter().any(|one| one.is_dynamic());
        if let Some(joined) = self.joined.as_ref().filter(|_| is_current) {
            return Ok(Some(joined.clone()));
        }
        match providers {
            [] => self.offer_all(Vec::new()).map(Some),
            _ => Ok(None),
        }
    }

    fn providers(&self) -> &[Box<dyn ToolProvider>] {
        if self.question.replaces { &[] } else { &self.agent.0.providers }
    }

    /// Joins what the providers supply with the other tools.
    pub(super) fn offer_all(&mut self, provided: Vec<(Source, ToolSet)>) -> Result<ToolSet, RunErrorKind> {
        let is_unchanged = |(source, tools): &(Source, ToolSet)| {
            self.supplied_by(*source).is_some_and(|last| last.is_shared_with(tools))
        };
        let tools = match &self.joined {
            Some(joined) if provided.iter().all(is_unchanged) => joined.clone(),
            _ => self.join(provided)?,
        };
        if !self.are_joined(&tools) {
            let of_undo = || self.agent.0.undo_tools.missing_from(&self.context);
            let missing = || tools.missing_from(&self.context).or_else(of_undo);
            // Nothing is executed that could take a value.
            if let Some(missing) = self.agent.0.stand_in.is_none().then(missing).flatten() {
                self.joined = None;
                return Err(RunErrorKind::MissingContext(missing));
            }
            self.joined = Some(tools.clone());
        }
        Ok(tools)
    }

    /// Returns the last tools of a source.
    fn supplied_by(&self, source: Source) -> Option<&ToolSet> {
        self.supplies.iter().find(|supply| supply.source == source).map(|supply| &supply.tools)
    }

    /// Returns the tools of the providers: first those that stay the same, so that the prompt cache is hit. A server that is not available stops
    /// no open calls and no undoing by the application's own tools, and leaves its own calls open.
    pub(super) async fn ask_providers(&self, run: &ProvidersRequest) -> Result<Provided, RunErrorKind> {
        let providers = self.providers();
        let (mut fixed, mut dynamic, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (index, provider) in providers.iter().enumerate() {
            let source = Source::Provider(index);
            let supplied = self.supplied_by(source).filter(|_| !provider.is_dynamic()).cloned();
            let reply = match supplied {
                Some(tools) => Ok(ProviderReply { tools: Ok(tools), was_refused: false }),
                None => self.ask_provider(index, run, run.is_asking).await,
            };
            let ProviderReply { tools, was_refused } = match reply {
                Ok(reply) => reply,
                Err(asking) => return Ok(Err((asking, fixed))),
            };
            let is_optional = !run.is_asking && provider.is_dynamic() && provider.has_untrusted_names();
            let may_ask = was_refused && !run.is_undoing;
            let tools = match tools {
                // Asked again before the next request to the model.
                Err(error) if is_optional && (may_ask || !error.is::<AskError>()) => {
                    failed.push((index, may_ask, error));
                    continue;
                }
                // Nobody can be asked, and the run must not stop for that.
                Err(error) if !run.is_asking && error.is::<AskError>() => ToolSet::default(),
                tools => tools.map_err(|error| provider_failed(&**provider, error))?,
            };
            if provider.is_dynamic() { &mut dynamic } else { &mut fixed }.push((source, tools));
        }
        if !failed.is_empty() && !self.has_tools_of_calls(run, &fixed, &dynamic) {
            let mut missing = None;
            for (index, may_ask, error) in failed {
                // A call needs the tools, for which the user can do something.
                let asked = match may_ask {
                    true => self.ask_provider(index, run, true).await.map(|reply| reply.tools),
                    false => Ok(Err(error)),
                };
                match asked {
                    Ok(Ok(tools)) => dynamic.push((Source::Provider(index), tools)),
                    Ok(Err(error)) => _ = missing.get_or_insert((index, error)),
                    Err(asking) => return Ok(Err((asking, fixed))),
                }
            }
            if let Some((index, error)) = missing
                && !self.has_tools_of_calls(run, &fixed, &dynamic)
            {
                return Err(provider_failed(&*providers[index], error));
            }
        }
        fixed.append(&mut dynamic);
        Ok(Ok(fixed))
    }

    async fn ask_provider(
        &self,
        index: usize,
        run: &ProvidersRequest,
        may_ask: bool,
    ) -> Result<ProviderReply, AskingProvider> {
        let request = ToolProviderRequest::new(run.view.messages(), &self.context);
        self.agent.ask_provider(index, request, run.notes.iter(), may_ask).await
    }

    /// Returns `true` if the open calls, or the call that undoes another, have their tools without those of the untrusted providers that have
    /// failed: another server must not take the name of a tool that is missing now, even with the same definition.
    fn has_tools_of_calls(
        &self,
        run: &ProvidersRequest,
        fixed: &[(Source, ToolSet)],
        dynamic: &[(Source, ToolSet)],
    ) -> bool {
        let own = [&self.agent.0.tools, &self.given, &self.question.answer_tool];
        let own = || own.into_iter().chain(&self.question.offered);
        let is_trusted = |source: Source| match source {
            Source::Provider(index) => !self.agent.0.providers[index].has_untrusted_names(),
            _ => true,
        };
        let has_tool = |name: &str| {
            let supplied = fixed.iter().chain(dynamic).filter(|(source, _)| is_trusted(*source));
            let mut sets = own().chain(supplied.map(|(_, tools)| tools));
            self.is_reserved(name) || sets.any(|tools| tools.get(name).is_some())
        };
        match &run.undo {
            Some((undo, is_of_other)) => {
                // The agent before a handoff undoes its own calls.
                *is_of_other || self.undo.set_with(undo).is_some() || has_tool(undo)
            }
            None => run.calls.iter().all(|name| has_tool(name)),
        }
    }

    /// Returns `true` if the agent adds a tool with this name by itself.
    fn is_reserved(&self, name: &str) -> bool {
        self.agent.0.tool_search.is_some() && RESERVED_NAMES.contains(&name)
            || self.agent.0.reads_back() && name == READ_OUTPUT
    }

    /// Records what fixed providers have supplied, which are asked once.
    pub(super) fn remember(&mut self, fixed: Vec<(Source, ToolSet)>) {
        let new = fixed.into_iter().filter(|(source, _)| self.supplied_by(*source).is_none());
        let new: Vec<_> =
            new.map(|(source, tools)| Supply { source, offered: tools.clone(), tools }).collect();
        self.supplies.extend(new);
    }

    /// Joins the tools of all sources. `provided` are the providers' tools.
    fn join(&mut self, provided: Vec<(Source, ToolSet)>) -> Result<ToolSet, RunErrorKind> {
        let question = self.question.offered.clone();
        let question = question.and_then(|tools| tools.union(&self.given)?.union(&self.question.answer_tool));
        let question = question.map_err(|error| self.cannot_offer(Source::Question, error.into()))?;
        let agents = &self.agent.0.tools;
        // The settings of the agent's set remain also if its tools are replaced.
        let mut all = match self.question.replaces {
            true => vec![(Source::Agent, agents.filter(|_| false)), (Source::Agent, question)],
            false => vec![(Source::Agent, agents.clone()), (Source::Question, question)],
        };
        all.extend(provided);
        let mut joined = ToolSet::default();
        let mut supplies = Vec::with_capacity(all.len());
        for (source, tools) in &all {
            let (source, tools) = (*source, tools.clone());
            let offered = self.without_taken_names(source, &tools, &all);
            let bound = self.undo.bind(source, &offered).map_err(ToolsError::from);
            let union = bound.and_then(|()| Ok(joined.union(&offered)?));
            joined = union.map_err(|error| self.cannot_offer(source, error))?;
            supplies.push(Supply { source, tools, offered });
        }
        self.supplies = supplies;
        Ok(joined)
    }

    /// Leaves out the tools of an untrusted provider whose names are taken. `all` has the tools of all sources.
    fn without_taken_names(&self, source: Source, tools: &ToolSet, all: &[(Source, ToolSet)]) -> ToolSet {
        let Source::Provider(index) = source else { return tools.clone() };
        let provider = &self.agent.0.providers[index];
        if !provider.has_untrusted_names() {
            return tools.clone();
        }
        let is_taken = |name: &str| {
            all.iter().any(|(other, tools)| *other != source && tools.get(name).is_some())
                || self.undo.is_reserved(name, source)
                || self.is_reserved(name)
        };
        tools.filter(|tool| {
            let is_taken = is_taken(tool.name());
            if is_taken {
                warn_of_taken_name(&printable(tool.name()), provider.name());
            }
            !is_taken
        })
    }

    fn cannot_offer(&self, source: Source, error: ToolsError) -> RunErrorKind {
        let whose = match source {
            Source::Agent | Source::Question => "question".to_owned(),
            Source::Provider(index) => format!("tool provider `{}`", self.agent.0.providers[index].name()),
        };
        RunErrorKind::tools(format!("the tools of the {whose} cannot be offered"), error)
    }

    fn are_joined(&self, tools: &ToolSet) -> bool {
        self.joined.as_ref().is_some_and(|joined| joined.is_shared_with(tools))
    }

    /// Returns the tools that are offered, with the tool of a typed answer. The set is the same as before while the same tools are chosen,
    /// so that their definitions are serialized once.
    pub(super) fn choose(
        &mut self,
        all: ToolSet,
        mut offers: impl FnMut(&ToolDefinition) -> Result<bool, RunErrorKind>,
    ) -> Result<ToolSet, RunErrorKind> {
        let mut names = HashSet::new();
        for definition in all.definitions().iter() {
            if self.question.answer_tool.get(definition.name()).is_some() || offers(definition)? {
                names.insert(definition.name().to_owned());
            }
        }
        if names.len() == all.len() {
            return Ok(all);
        }
        match &self.chosen {
            Some(last) if last.names == names && last.all.is_shared_with(&all) => Ok(last.tools.clone()),
            _ => {
                let tools = all.filter(|tool| names.contains(tool.name()));
                self.chosen = Some(Chosen { all, names, tools: tools.clone() });
                Ok(tools)
            }
        }
    }

    /// Divides the tools of a turn into those that are offered and those that are found, if the agent has a search and there are
    /// tools to be found.
    pub(super) fn divide<'a>(
        &mut self,
        tools: &ToolSet,
        always: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<Arc<Divided>>, RunErrorKind> {
        let agent = self.agent.clone();
        let Some((search, shared)) = &agent.0.tool_search else { return Ok(None) };
        search.check_names(tools).map_err(invalid_tools)?;
        let answer_tool = self.question.answer_tool.definitions().names();
        let is_there = |name: &&str| tools.get(name).is_some();
        let mut all: Vec<&str> = always.into_iter().filter(is_there).collect();
        all.extend(answer_tool);
        let always = all;
        // Runs with only the agent's tools share what is prepared for them.
        let is_of_agent = tools.is_shared_with(&agent.0.tools);
        let of_other_runs = lock(shared).clone().filter(|_| is_of_agent);
        let mut last = self.offered.iter().map(|last| Arc::clone(&last.divided)).chain(of_other_runs);
        if let Some(last) = last.find(|last| last.is_of(tools, &always)) {
            return Ok(Some(last));
        }
        // Each source has an index, so that those that stay the same are indexed once.
        let sources: Vec<_> = match self.are_joined(tools) {
            true => self.supplies.iter().map(|supply| supply.offered.clone()).collect(),
            false => vec![tools.clone()],
        };
        let divided = Divided::new(search, agent.model(), tools, &sources, &always)
            .map_err(|error| RunErrorKind::tools("the tools cannot be offered".into(), error))?
            .map(Arc::new);
        if is_of_agent && divided.is_some() {
            lock(shared).clone_from(&divided);
        }
        Ok(divided)
    }

    /// Returns the definitions to offer: the `found` tools need not be found again.
    pub(super) fn offered(&mut self, divided: &Arc<Divided>, found: Vec<String>) -> ToolDefinitions {
        match &self.offered {
            Some(last) if Arc::ptr_eq(&last.divided, divided) && last.found == found => {
                last.definitions.clone()
            }
            _ => {
                let definitions = divided.offered_with(&found);
                let divided = Arc::clone(divided);
                self.offered = Some(Offered { divided, found, definitions: definitions.clone() });
                definitions
            }
        }
    }
}

impl Agent {
    /// Returns `true` if there is a provider with this name, and this number among those of the name.
    pub(super) fn has_provider(&self, name: &str, number: usize) -> bool {
        self.0.providers.iter().filter(|provider| provider.name() == name).nth(number).is_some()
    }

    /// Asks a provider for its tools, with the replies to what it has asked. Fails with its questions if it asks, and may.
    pub(super) async fn ask_provider<'n>(
        &self,
        index: usize,
        request: ToolProviderRequest<'_>,
        mut asked: impl Iterator<Item = &'n ProviderNotes>,
        may_ask: bool,
    ) -> Result<ProviderReply, AskingProvider> {
        let providers = &self.0.providers;
        let (provider, name) = (&providers[index], providers[index].name());
        let number = providers[..index].iter().filter(|earlier| earlier.name() == name).count();
        let notes = asked.find(|asked| asked.is_of(name, number)).map(|asked| asked.notes.clone());
        let asking = Arc::new(Asking::for_provider(notes.unwrap_or_default(), !may_ask));
        let asker = Asker::new(&asking, false, &ToolPolicy::default());
        let tools = asking.execute(provider.tools(&request.with_asker(&asker))).await;
        let tools = tools.map_err(|notes| AskingProvider { name: name.to_owned(), number, notes })?;
        Ok(ProviderReply { tools, was_refused: asking.was_refused() })
    }
}

fn provider_failed(provider: &dyn ToolProvider, error: ToolsError) -> RunErrorKind {
    RunErrorKind::tools(format!("the tool provider `{}` failed", provider.name()), error)
}

pub(super) fn invalid_tools(error: BuildError) -> RunErrorKind {
    RunErrorKind::tools("the tools cannot be offered".into(), error)
}
