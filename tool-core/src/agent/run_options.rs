//! Options for the runs of an agent: limits, errors, layers, memory, money and hooks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::agent::{AgentBuilder, Compaction, Decider, Event, OnDrop, RunSetup, WhileWaiting};
use crate::layer::Layer;
#[cfg(doc)]
use crate::layer::LayerContext;
use crate::memory::{ChatMemory, IntoKeyedBudget, RunStore};
use crate::model::Prices;
use crate::run::{ErrorPolicy, RunLimits};
use crate::tool::ToolErrorKind;

/// # Limits and errors
impl AgentBuilder {
    /// Changes the [limits](RunLimits) of each run. A run that would exceed one of them stops with an error that carries all the work done so
    /// far. A question, an agent that is a tool, and the application [for each run](crate::agent::RunResources::limits) change them further.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tool_core::Agent;
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # fn main() -> Result<(), tool_core::BuildError> {
    /// let agent = Agent::builder(ScriptedModel::new())
    ///     .limits(|l| l.max_turns(5).max_calls(20).max_time(Duration::from_secs(60)))
    ///     .build()?;
    /// let run = agent.ask("Hello").limits(|l| l.max_turns(3)).start().into_run();
    /// assert_eq!((run.limits().max_turns, run.limits().max_calls), (3, Some(20)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn limits(mut self, change: impl FnOnce(RunLimits) -> RunLimits) -> Self {
        self.agent.limits = change(self.agent.limits);
        self
    }

    /// Hides from the model what it need not read again of long runs. By default, nothing is hidden, and each request has the whole
    /// conversation.
    pub fn compaction(mut self, compaction: Compaction) -> Self {
        self.agent.compaction = Some(compaction);
        self
    }

    /// Records for each request what it has read from the provider's prompt cache and what it could have read, which
    /// [`Answer::cache`](crate::Answer::cache) returns. By default, nothing is recorded.
    ///
    /// ```
    /// use tool_core::{Agent, ChatModel};
    ///
    /// # async fn ask(model: impl ChatModel + 'static) -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(model).track_cache().build()?;
    /// let answer = agent.ask("Which of the pages differ?").await?;
    /// for turn in answer.cache().iter().filter(|turn| turn.lost_tokens() > 1_024) {
    ///     eprintln!("turn {}: {} tokens were paid for twice", turn.turn, turn.lost_tokens());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn track_cache(mut self) -> Self {
        self.agent.tracks_cache = true;
        self
    }

    /// Limits the time of each call, in addition to the tool's own `timeout`. Requires tokio's timers, and cannot interrupt a
    /// tool that never awaits.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.agent.call_timeout = Some(timeout);
        self
    }

    /// Limits the number of calls of one turn that run at the same time; 8 by default, and at least 1. A call that waits or is parked does
    /// not count, nor does an agent in whose run all calls do.
    pub fn max_concurrent_calls(mut self, calls: usize) -> Self {
        self.agent.max_concurrent_calls = calls.max(1);
        self
    }

    /// Sets the policy for failed calls of one kind. Overrides the [default](Self::default_error_policy). Calls that were
    /// [not executed](ToolErrorKind::NotExecuted) are always reported to the model.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::run::ErrorPolicy;
    /// use tool_core::tool::ToolErrorKind;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Looks up an order")]
    /// fn order(id: u32) -> Result<String, String> {
    ///     Err(format!("no row {id} in shop.orders at 10.0.0.7"))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("order", r#"{"id": 7}"#).says("That did not work.");
    /// let agent = Agent::builder(model)
    ///     .tools(tools![order])
    ///     .error_policy(ToolErrorKind::Failed, ErrorPolicy::Hide)
    ///     .default_error_policy(ErrorPolicy::EndRun)
    ///     .build()?;
    /// let answer = agent.ask("Where is order 7?").await?;
    /// let error = answer.tool_executions()[0].outcome().unwrap_err();
    /// assert_eq!(error.to_string(), "the tool failed (reference call_1_0)"); // what the model reads
    /// assert_eq!(error.failure().unwrap().to_string(), "no row 7 in shop.orders at 10.0.0.7");
    /// # Ok(())
    /// # }
    /// ```
    pub fn error_policy(mut self, kind: ToolErrorKind, policy: ErrorPolicy) -> Self {
        self.agent.error_policies.set(kind, policy);
        self
    }

    /// Sets the policy for failed calls of every kind without an [`error_policy`](Self::error_policy) of its own;
    /// [`ErrorPolicy::Report`] by default.
    pub fn default_error_policy(mut self, policy: ErrorPolicy) -> Self {
        self.agent.error_policies.set_default(policy);
        self
    }
}

/// # Layers and approval
impl AgentBuilder {
    /// Adds a layer of the boundary around the agent: it sees the question, every request to the model, every call, its output, and the
    /// answer, in every run of this agent, however it is driven. Layers are asked in the order in which they were added.
    ///
    /// They also see requests, calls and outputs in runs of [agents](crate::Agent::as_tool) that the calls ask, at any depth and before
    /// the layers of those agents, and after a [handoff](Self::handoff_to), in addition to the other agent's. [`LayerContext::agents`] names the
    /// agents that lead there.
    ///
    /// ```
    /// use tool_core::layer::{AnswerVerdict, CallVerdict, guard, rewrite};
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, ToolCall, tool, tools};
    ///
    /// #[tool("Searches the web")]
    /// fn search(query: String) -> String {
    ///     format!("secret: {query}")
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("search", r#"{"query": "rust"}"#).says("It is a secret.").says("Done.");
    /// let agent = Agent::builder(model)
    ///     .tools(tools![search])
    ///     .layer(guard::call(|call: &ToolCall| match &*call.name {
    ///         "search" => CallVerdict::Pass,
    ///         _ => CallVerdict::NeedsApproval,
    ///     }))
    ///     .layer(rewrite::output(|_, output| output.to_string().replace("secret", "…")))
    ///     .layer(guard::answer(|answer| match answer.contains("secret") {
    ///         true => AnswerVerdict::retry("leave out secrets"),
    ///         false => AnswerVerdict::Pass,
    ///     }))
    ///     .build()?;
    /// let answer = agent.ask("What is Rust?").await?;
    /// assert_eq!((&*answer.new_messages()[2].text(), answer.text()), ("…: rust", "Done."));
    /// # Ok(())
    /// # }
    /// ```
    pub fn layer(mut self, layer: impl Layer + 'static) -> Self {
        self.agent.layers.push(Arc::new(layer));
        self
    }

    /// Adds a decider, which approves calls and answers questions of tools while a run waits. Those of the [question](crate::agent::Ask::decider)
    /// are asked first, then the agent's in their order, until one does not defer.
    pub fn decider(mut self, decider: impl Decider + 'static) -> Self {
        self.agent.deciders.push(Arc::new(decider));
        self
    }
}

/// # Memory and stored runs
impl AgentBuilder {
    /// Stores conversations: the earlier messages of a question's [conversation](crate::agent::Ask::conversation) are sent before
    /// it, and the messages of the run are stored atomically once it has an answer. Two questions in the same conversation
    /// run one after the other. Takes a [`ChatMemory`] or a [store](crate::store::ChatStore); agents that share conversations
    /// share a clone of one memory.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::Agent;
    /// use tool_core::memory::InMemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new()
    ///     .says("Nice to meet you, Ada.")
    ///     .expects(|request| request.messages().len() == 3)
    ///     .says("You are Ada.");
    /// let agent = Agent::builder(model).memory(InMemoryStore::new()).build()?;
    /// agent.ask("I am Ada.").conversation("user-7").await?;
    /// agent.ask("Who am I?").conversation("user-7").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory(mut self, memory: impl Into<ChatMemory>) -> Self {
        self.agent.memory = Some(memory.into());
        self
    }

    /// Stores each run under its [id](crate::run::RunId) while it is in progress: before each call and after each result. A run
    /// that was interrupted with its process, or awaits approval, can be [loaded](crate::Agent::stored_run) and
    /// [resumed](crate::Agent::resume); calls with a stored outcome are not executed again. Finished runs are removed.
    ///
    /// Only the copy of a run that continues the stored state executes calls, because decisions about a call and its start are
    /// stored before it is executed. Any other copy, such as one made by a second click on "approve", fails with
    /// [`RunErrorKind::RunningElsewhere`](crate::RunErrorKind::RunningElsewhere) or
    /// [`RunErrorKind::Conflict`](crate::RunErrorKind::Conflict).
    ///
    /// Give agents that share a store a [name](Self::name), so that none of them takes the runs of another.
    pub fn run_store(mut self, store: impl RunStore + 'static) -> Self {
        let store: Arc<dyn RunStore> = Arc::new(store);
        self.agent.run_store = store.into();
        self
    }

    /// Computes what each run has from whose run it is, wherever it starts or goes on: see [`RunSetup`].
    pub fn run_setup(mut self, run_setup: impl RunSetup + 'static) -> Self {
        self.agent.run_setup = Some(Arc::new(run_setup));
        self
    }

    /// Keeps finished runs in the [store](Self::run_store) for this time, with their messages and calls. By default, a run is removed when it
    /// has ended. [`list_runs`](crate::Agent::list_runs) shows them as [finished](crate::memory::RunStatus::Finished), and
    /// [`stored_run`](crate::Agent::stored_run) loads one. They are removed after this time, when a further run of the agent ends or when its
    /// runs are listed, so no task is needed for it. Without a run store, the agent is not built.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tool_core::memory::{InMemoryStore, RunFilter, RunStatus};
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::Agent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().says("Good morning!")).run_store(InMemoryStore::new());
    /// let agent = agent.keep_finished(Duration::from_secs(30 * 24 * 3_600)).build()?;
    /// agent.ask("Hello").await?;
    /// let finished = agent.list_runs(&RunFilter::new().status(RunStatus::Finished)).await?;
    /// let stored = agent.stored_run(&finished[0].id).await?.ok_or("unknown run")?;
    /// assert_eq!(stored.run.messages()[1].text(), "Good morning!");
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_finished(mut self, time: Duration) -> Self {
        self.agent.stored_runs.keep_finished = OnceLock::from(time);
        self
    }

    /// Sets the age at which a stored run [expires](crate::memory::RunStatus::Expired), by default never. Resuming a run that nobody has
    /// continued for this time ends it, unless its calls may have had effects: then it fails with
    /// [`RunErrorKind::Expired`](crate::RunErrorKind::Expired), and a person decides whether it goes on
    /// ([`ignore_expiry`](crate::agent::Ask::ignore_expiry)), is undone ([`undo_and_end`](crate::Agent::undo_and_end)) or ends as it is
    /// ([`end`](crate::Agent::end)). Nothing is undone because of its age alone.
    pub fn max_run_age(mut self, age: Duration) -> Self {
        self.agent.stored_runs.max_age = Some(age);
        self
    }

    /// Sets what happens to a question in a conversation in which another run waits; [`WhileWaiting::Refuse`] by default. It
    /// takes a [memory](Self::memory) and a [run store](Self::run_store).
    ///
    /// ```
    /// use tool_core::agent::WhileWaiting;
    /// use tool_core::memory::InMemoryStore;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, RunErrorKind, tool, tools};
    ///
    /// #[tool("Pays money back", needs_approval)]
    /// fn refund(cents: u32) {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (store, model) = (InMemoryStore::new(), ScriptedModel::new().calls("refund", r#"{"cents": 700}"#));
    /// let agent = Agent::builder(model.says("What refund?")).tools(tools![refund]).memory(store.clone()).run_store(store);
    /// let agent = agent.while_waiting(WhileWaiting::Refuse).build()?;
    /// agent.ask("I want my money back").conversation("user-7").await.unwrap_err();
    /// let error = agent.ask("What about my refund?").conversation("user-7").await.unwrap_err();
    /// assert!(matches!(error.kind(), RunErrorKind::ConversationWaits { .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn while_waiting(mut self, while_waiting: WhileWaiting) -> Self {
        self.agent.stored_runs.while_waiting = while_waiting;
        self
    }

    /// Sets what dropping the future, the stream or the driver of a stored run means; [`OnDrop::Keep`] by default.
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.agent.stored_runs.on_drop = on_drop;
        self
    }

    /// Sets the duration of the lease that a driver has of its stored run, 30 seconds by default, for stores that
    /// [support leases](RunStore::lease). It is renewed ten times before it expires. After a crash, other processes
    /// resume the run when the lease has expired. The duration is at least 10 milliseconds and at most a day.
    pub fn run_lease(mut self, duration: Duration) -> Self {
        self.agent.stored_runs.lease =
            duration.clamp(Duration::from_millis(10), Duration::from_secs(24 * 3_600));
        self
    }
}

/// # Money
impl AgentBuilder {
    /// Sets what the models of the agent cost. Answers, errors, traces and events then have the cost of each run. Agents that the calls of
    /// this one [ask](crate::Agent::as_tool) have the same prices, unless they have prices of their own. See the
    /// [guide](crate::guide::costs).
    ///
    /// ```
    /// use tool_core::Agent;
    /// use tool_core::model::{Cost, Currency, ModelPrices, Prices, Usage};
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let prices = Prices::from_fn(Currency::USD, |_model, _| Some(ModelPrices::new(0.4, 1.6)));
    /// let model = ScriptedModel::new().says("Good morning!").with_usage(Usage::new(1_000, 100));
    /// let agent = Agent::builder(model).prices(prices).build()?;
    /// assert_eq!(agent.ask("Hello").await?.cost(), Some(Cost::usd(0.000_56)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn prices(mut self, prices: Prices) -> Self {
        self.agent.prices = Some(prices);
        self
    }

    /// Charges all runs of the agent to a [budget](crate::memory::Budget), in addition to earlier ones and to the budgets of
    /// [questions](crate::agent::Ask::budget); also the rest of a run that is [handed off](Self::handoff_to) to it. A clone of the budget
    /// that the outer agent has, too, is charged once.
    pub fn budget(mut self, budget: impl IntoKeyedBudget) -> Self {
        self.agent.budgets.push(budget.into());
        self
    }
}

/// # Events and traces
impl AgentBuilder {
    /// Registers a hook that receives every event of every run. It is called immediately, on the thread of the run, so it
    /// must not block. The deltas of a reply are emitted only if the run is streamed.
    pub fn on_event(mut self, hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.agent.hooks.push(Arc::new(hook));
        self
    }

    /// Includes content in traces: arguments, outputs, messages and the texts of errors.
    ///
    #[cfg_attr(not(doctest), doc = include_str!("../../docs/links.md"))]
    #[doc = include_str!("../../docs/tracing.md")]
    #[cfg(feature = "tracing")]
    pub fn trace_content(mut self, content: bool) -> Self {
        self.agent.trace.content = content;
        self
    }

    /// Includes [whose run it is](crate::agent::Ask::user) in the spans of runs, as the field `user.id`. By default, traces do not say it.
    #[cfg(feature = "tracing")]
    pub fn trace_user(mut self, user: bool) -> Self {
        self.agent.trace.user = user;
        self
    }
}
