//! The builder of an agent: its model, instructions and tools.
//!
//! An agent is named once, by its builder; the page, the frontends, spans and stored runs use that name. `as_tool` and `handoff_to` name a
//! tool, which the model reads beside the other tools of its set, and one agent can be several of them. `Server::agent` of `tool-openai`
//! names a model, as callers of the API write it.
//!
//! Tools that undo are given to the builder apart (`undo_tools`), and those in place of the agent's to the question (`only_tools`), because
//! nobody calls the first but the run, and the second say what the model may not do: neither is another way to offer tools.

use std::any::TypeId;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use futures_util::FutureExt;

use super::compaction::{LongOutputs, check_reader_name, compact_tool};
use super::shared::Shared;
use super::undo_tools::{Source, UndoTools};
use crate::agent::{Agent, BuildError, BuildErrorKind, ToolSearch};
use crate::arguments::nearest_name;
use crate::content::Content;
use crate::layer::LayerPhase;
use crate::memory::OutputStore;
use crate::model::{ChatModel, ModelOptions, RunUser, ToolChoice, ToolDefinition, ToolKind};
use crate::run::{ErrorPolicies, RunLimits};
use crate::tool::{Injectable, ToolContext};
use crate::toolset::{IntoToolSet, ToolProvider, ToolSet, ToolSetError};

const DEFAULT_MAX_CONCURRENT_CALLS: usize = 8;

/// Builds an [`Agent`]; created by [`Agent::builder`].
#[must_use = "no agent is created until `.build()?` is called"]
pub struct AgentBuilder {
    pub(super) agent: Shared,
    /// The tools, or the first error, which `build` returns.
    tools: Result<ToolSet, ToolSetError>,
    pub(super) undo_tools: Result<ToolSet, ToolSetError>,
    max_output_chars: Option<usize>,
    output_store: Option<Arc<dyn OutputStore>>,
    /// A value for tools is a user, which `build` refuses.
    has_user_in_context: bool,
}

impl Agent {
    /// Returns a builder for an agent with this model.
    pub fn builder(model: impl ChatModel + 'static) -> AgentBuilder {
        AgentBuilder::new(Arc::new(model))
    }
}

impl AgentBuilder {
    fn new(model: Arc<dyn ChatModel>) -> Self {
        let agent = Shared {
            name: None,
            model,
            instructions: None,
            tools: ToolSet::default(),
            providers: Vec::new(),
            context: ToolContext::new(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: None,
            limits: RunLimits::default(),
            error_policies: ErrorPolicies::default(),
            layers: Vec::new(),
            deciders: Vec::new(),
            undo_tools: ToolSet::default(),
            handoffs: Vec::new(),
            bound_undo_tools: UndoTools::default(),
            tool_search: None,
            hooks: Vec::new(),
            watchers: RwLock::default(),
            request_watchers: RwLock::default(),
            sends_earlier_turns: true,
            compaction: None,
            tracks_cache: false,
            outputs: None,
            options: ModelOptions::default(),
            memory: None,
            run_store: OnceLock::new(),
            stored_runs: Default::default(),
            call_timeout: None,
            max_concurrent_calls: DEFAULT_MAX_CONCURRENT_CALLS,
            trace: Default::default(),
            prices: None,
            budgets: Vec::new(),
            run_setup: None,
            has_warned: OnceLock::new(),
            model_infos: Default::default(),
            stand_in: None,
        };
        let (tools, undo_tools) = (Ok(ToolSet::default()), Ok(ToolSet::default()));
        Self {
            agent,
            tools,
            undo_tools,
            max_output_chars: None,
            output_store: None,
            has_user_in_context: false,
        }
    }
}

/// # Instructions and model
impl AgentBuilder {
    /// Sets the instructions that precede every conversation.
    pub fn instructions(mut self, instructions: impl Into<Content>) -> Self {
        self.agent.instructions = Some(instructions.into());
        self
    }

    /// Sets the name of the agent, which identifies it in traces and in its stored runs. It is not sent to the model.
    ///
    /// A run is [resumed](crate::Agent::resume) only by an agent of the name that was asked. Agents that share a
    /// [run store](Self::run_store) have different names, and keep them while runs are stored. An agent without a name leaves runs
    /// that anybody resumes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.agent.name = Some(name.into());
        self
    }

    /// Sets the options of the model, such as its temperature or the maximum length of a reply. A
    /// [`rewrite::request`](crate::layer::rewrite::request) can change them.
    pub fn options(mut self, options: ModelOptions) -> Self {
        self.agent.options = options;
        self
    }

    /// Sets whether each request contains the earlier turns of its run; `true` by default. With `false`, the model is sent the
    /// conversation up to the question, and of the turns after it only the last reply with the results of its calls. The run and its
    /// [memory](Self::memory) have all turns nevertheless. [`rewrite::request`](crate::layer::rewrite::request) chooses more finely.
    ///
    /// It keeps requests small if each call depends only on the results before it. A model that needs earlier results repeats their
    /// calls.
    pub fn send_earlier_turns(mut self, send: bool) -> Self {
        self.agent.sends_earlier_turns = send;
        self
    }

    /// Sets whether the model may, must or must not call tools. A required call is required only until the run has executed
    /// one.
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.agent.tool_choice = choice;
        self
    }

    /// Sets whether the model may call several tools in one turn; by default the provider decides.
    pub fn parallel_tool_calls(mut self, parallel: bool) -> Self {
        self.agent.parallel_tool_calls = Some(parallel);
        self
    }

    /// Builds the agent.
    ///
    /// # Errors
    ///
    /// Fails if two tools have the same name, if a tool is invalid or cannot be undone as declared, or if the
    /// [tool choice](Self::tool_choice) requires a tool that does not exist; also if a tool has the name of one of those that
    /// [search](Self::tool_search) or read what a [compaction](Self::compaction) or an [output store](Self::output_store) keeps from the model, if one that is always offered does not exist, if two [layers](Self::layer) have the same name or
    /// one is invalid, or if an option lacks another one that it needs: a limit of [cost](crate::run::RunLimits#structfield.max_cost)
    /// [prices](Self::prices), an [output store](Self::output_store) a [limit](Self::max_output_chars) of outputs, and
    /// [`keep_finished`](Self::keep_finished) a [run store](Self::run_store).
    pub fn build(mut self) -> Result<Agent, BuildError> {
        self.agent.tools = self.tools?;
        if self.has_user_in_context {
            return Err(BuildErrorKind::UserInContext.into());
        }
        self.agent.undo_tools = self.undo_tools?;
        match (self.max_output_chars, self.output_store) {
            // Layers see the whole output before.
            (Some(limit), Some(store)) => self.agent.outputs = Some(LongOutputs { store, limit }),
            (Some(limit), None) => self.agent.tools = self.agent.tools.max_output_chars(limit),
            (None, Some(_)) => return Err(BuildErrorKind::NoOutputLimit.into()),
            (None, None) => {}
        }
        if self.agent.stored_runs.keep_finished.get().is_some() && self.agent.run_store.get().is_none() {
            return Err(BuildErrorKind::NoRunStore.into());
        }
        if self.agent.compaction.as_ref().is_some_and(|compaction| compaction.offers_tool) {
            self.agent.tools = self.agent.tools.with(compact_tool())?;
        }
        if self.agent.reads_back() {
            check_reader_name(&self.agent.tools)?;
        }
        check_layers(&self.agent)?;
        if self.agent.limits.max_cost.is_some() && self.agent.prices.is_none() {
            return Err(BuildErrorKind::NoPrices.into());
        }
        check_answer_length(&self.agent)?;
        self.agent.bound_undo_tools = UndoTools::new(&self.agent.undo_tools);
        self.agent.bound_undo_tools.bind(Source::Agent, &self.agent.tools)?;
        if let Some((search, _)) = &self.agent.tool_search {
            search.check_names(&self.agent.tools)?;
            search.check_names(&self.agent.undo_tools)?;
        }
        // The tools of providers are known only once a question is asked.
        if self.agent.providers.is_empty() {
            if let Some((search, _)) = &self.agent.tool_search {
                search.check_always(&self.agent.tools)?;
            }
            check_tool_choice(&self.agent.tool_choice, &self.agent.tools)?;
            check_tools_of_layers(&self.agent, &self.agent.tools)?;
        }
        Ok(Agent(Arc::new(self.agent)))
    }
}

/// # Tools
impl AgentBuilder {
    /// Offers tools to the model: a [`ToolSet`], a [toolbox](macro@crate::toolbox), or one [`Tool`](crate::Tool) such as a closure or an
    /// [agent](Agent::as_tool). Further calls add more.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, FunctionTool, tool, tools};
    ///
    /// #[tool("Sums two numbers")]
    /// fn sum(a: f64, b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// # fn main() -> Result<(), tool_core::BuildError> {
    /// let now = FunctionTool::new("now", || "12:30").description("Returns the time");
    /// let agent = Agent::builder(ScriptedModel::new()).tools(tools![sum]).tools(now).build()?;
    /// assert_eq!(agent.tools().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tools<K: ?Sized>(mut self, tools: impl IntoToolSet<K>) -> Self {
        let tools = tools.into_tool_set();
        self.tools = self.tools.and_then(|earlier| earlier.union(tools?));
        self
    }

    /// Offers the tools that a [`ToolProvider`] returns for each question, after the agent's own. Further calls add more providers.
    pub fn tool_provider(mut self, provider: impl ToolProvider + 'static) -> Self {
        self.agent.providers.push(Box::new(provider));
        self
    }

    /// Passes a value to the tools of every run, through their [`ToolContext`]: the value itself, not a context. A [`RunUser`] is refused:
    /// [`Ask::user`](crate::agent::Ask::user) says whose run it is.
    pub fn context<T: Injectable>(mut self, value: T) -> Self {
        self.has_user_in_context |= TypeId::of::<T>() == TypeId::of::<RunUser>();
        self.agent.context = self.agent.context.with(value);
        self
    }

    /// Passes the values of a context to the tools of every run, unless the agent has others of their types: for servers whose tools and
    /// agents have one context. Whose run it is takes precedence over a [`RunUser`] in it.
    pub fn inherit_context(mut self, context: &ToolContext) -> Self {
        self.agent.context = self.agent.context.with_defaults(context);
        self
    }

    /// Offers only some of the tools to the model, which finds the others with a tool named `search_tools`, or by the [search of its
    /// provider](ToolSearch::by_provider). They can be the agent's own, the question's, and tools of providers such as MCP servers.
    ///
    /// Everything else is as without search: calls of tools that were not found yet are executed, and rules for tools hold
    /// for all of them. See the [guide](crate::guide::tool_search).
    ///
    /// ```
    /// use tool_core::agent::ToolSearch;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Sums two numbers")]
    /// fn sum(a: f64, b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// #[tool("Returns the weather forecast of a city", deferred)]
    /// fn forecast(city: String) -> String {
    ///     format!("rain in {city}")
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new()
    ///     .expects(|request| request.tools().iter().map(|tool| tool.name()).eq(["sum", "search_tools"]))
    ///     .calls("search_tools", r#"{"query": "weather"}"#)
    ///     .expects(|request| request.tools().iter().map(|tool| tool.name()).eq(["sum", "search_tools", "forecast"]))
    ///     .calls("forecast", r#"{"city": "Rome"}"#)
    ///     .says("It rains.");
    /// let agent = Agent::builder(model).tools(tools![sum, forecast]).tool_search(ToolSearch::bm25()).build()?;
    /// assert_eq!(agent.ask("Do I need an umbrella in Rome?").await?.text(), "It rains.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn tool_search(mut self, search: ToolSearch) -> Self {
        self.agent.tool_search = Some((search, Mutex::default()));
        self
    }

    /// Limits the number of characters that the model reads of the output of one call; unlimited by default. See
    /// [`ToolSet::max_output_chars`].
    pub fn max_output_chars(mut self, characters: usize) -> Self {
        self.max_output_chars = Some(characters);
        self
    }

    /// Stores whole outputs that are longer than [`max_output_chars`](Self::max_output_chars), and offers the model a tool, `read_output`, that
    /// reads and searches them: 8,000 characters at once, or as many as the limit, and the first 40 places of a search. Without this limit, the agent
    /// is not built. The own limit of a tool or set can be smaller: what it cuts is stored as well, but not what a server of MCP tools cuts.
    ///
    /// What is stored is what all layers have left of an output, under the run and its call. Only that run can read it, a piece at a time, and
    /// its layers see each piece as the output of a call. The outputs are removed once the run has an answer, so a later question of the
    /// conversation reads what the model has read of them. Pass the [run store](Self::run_store), or a clone of it, so that outputs of
    /// runs that are removed from it are removed as well. Those of agents inside a run that the application removes from the store by itself,
    /// and those from before a handoff to an agent with another store, remain. Forks of a run cannot read its outputs. Workers of `tool-restate` refuse agents with an output store.
    ///
    /// ```
    /// use tool_core::memory::InMemoryStore;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Reads the log")]
    /// fn log() -> String {
    ///     format!("{}error: disk full\n{}", "ok\n".repeat(5_000), "ok\n".repeat(5_000))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new()
    ///     .calls("log", "{}")
    ///     .calls("read_output", r#"{"id": "call_1_0", "search": "error"}"#)
    ///     .expects(|request| request.messages().last().is_some_and(|last| last.text().contains("disk full")))
    ///     .says("The disk is full.");
    /// let agent = Agent::builder(model).tools(tools![log]).max_output_chars(2_000).output_store(InMemoryStore::new()).build()?;
    /// assert_eq!(agent.ask("What is wrong?").await?.text(), "The disk is full.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn output_store(mut self, store: impl OutputStore + 'static) -> Self {
        self.output_store = Some(Arc::new(store));
        self
    }

    /// Adds tools that undo the effects of others and are not offered to the model. Offered tools can undo others, too.
    ///
    /// A tool is undone by one of these tools, of the agent's [`tools`](Self::tools), or of the provider or question that offers it.
    /// No other provider and no question can offer a tool with the name of one that undoes others: the run then returns with
    /// [`RunErrorKind::Tools`](crate::RunErrorKind::Tools).
    pub fn undo_tools<K: ?Sized>(mut self, tools: impl IntoToolSet<K>) -> Self {
        let tools = tools.into_tool_set();
        self.undo_tools = self.undo_tools.and_then(|earlier| earlier.union(tools?));
        self
    }
}

/// Fails if two layers have the same name, or if one is wrong by itself.
fn check_layers(agent: &Shared) -> Result<(), BuildError> {
    for (position, layer) in agent.layers.iter().enumerate() {
        let name = layer.name();
        if agent.layers[..position].iter().any(|other| other.name() == name) {
            return Err(BuildErrorKind::SameLayerName(name.to_owned()).into());
        }
        let mistake = layer.mistake().or_else(|| {
            let is_endless = layer.sees(LayerPhase::Answer) && agent.limits.max_wrong_answers == u32::MAX;
            is_endless.then(|| "it can send back answers without end; lower `max_wrong_answers`".to_owned())
        });
        if let Some(reason) = mistake {
            return Err(BuildErrorKind::InvalidLayer { name: name.to_owned(), reason }.into());
        }
    }
    Ok(())
}

/// Fails if a layer refers to a tool that does not exist. Agents among the tools have tools of their own.
pub(super) fn check_tools_of_layers(agent: &Shared, tools: &ToolSet) -> Result<(), BuildError> {
    let leads_to_agent = |tool: &ToolDefinition| matches!(tool.kind(), ToolKind::Agent | ToolKind::Handoff);
    if tools.definitions().iter().any(leads_to_agent) {
        return Ok(());
    }
    for layer in agent.layers.iter().map(|layer| &**layer).chain(tools.layers()) {
        let names = layer.tools();
        let is_unknown = |name: &&&str| tools.get(name).or(agent.undo_tools.get(name)).is_none();
        let Some(unknown) = names.iter().find(is_unknown) else { continue };
        let known = tools.definitions().iter().map(ToolDefinition::name);
        let nearest = nearest_name(unknown, known).map(|name| format!("; did you mean `{name}`?"));
        let reason = format!("there is no tool `{unknown}`{}", nearest.unwrap_or_default());
        return Err(BuildErrorKind::InvalidLayer { name: layer.name().to_owned(), reason }.into());
    }
    Ok(())
}

/// Fails if runs have a limit of money or a budget and the longest answer of the model cannot be known. A model with a name is asked
/// before the first request, because it may ask its provider; one without has no provider, and is asked now.
fn check_answer_length(agent: &Shared) -> Result<(), BuildError> {
    let is_limited = agent.limits.max_cost.is_some() || !agent.budgets.is_empty();
    if !is_limited || agent.options.max_output_tokens.is_some() || agent.model.passes_requests_on() {
        return Ok(());
    }
    let name = agent.options.model.as_deref().or(agent.model.model_name()).unwrap_or_default();
    if !name.is_empty() {
        return Ok(());
    }
    // A price that is not known is reported first.
    let is_priced = agent.prices.as_ref().is_none_or(|prices| prices.worst_cost(name, 1, 1).is_ok());
    let Some(Ok(stated)) = agent.model.model_info().now_or_never().filter(|_| is_priced) else {
        return Ok(());
    };
    let stated = stated.unwrap_or_default();
    let known = agent.prices.as_ref().map_or(stated.clone(), |prices| prices.model_info(name, stated));
    match known.max_output_tokens {
        Some(_) => Ok(()),
        None => Err(BuildErrorKind::UnknownAnswerLength { model: name.to_owned() }.into()),
    }
}

/// Fails if the choice requires a tool that does not exist.
pub(super) fn check_tool_choice(choice: &ToolChoice, tools: &ToolSet) -> Result<(), BuildError> {
    match choice {
        ToolChoice::Required if tools.is_empty() => Err(BuildErrorKind::NoToolToCall.into()),
        ToolChoice::Tool(name) if tools.get(name).is_none() => {
            Err(BuildErrorKind::UnknownToolChoice(name.clone()).into())
        }
        _ => Ok(()),
    }
}

impl fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentBuilder").field("tools", &self.tools).finish_non_exhaustive()
    }
}
