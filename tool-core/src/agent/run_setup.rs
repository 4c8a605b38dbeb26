//! What follows from whose run it is, computed by the application wherever a run starts or goes on.
//!
//! The driver asks the application in each process what a user's run has, because a page, a worker and a recovery continue runs without
//! knowing their users. The context of a run inside has the user and the outermost conversation.

use std::error::Error;
use std::fmt;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::build_error::USER_IN_CONTEXT;
use super::interruption::run_until_interrupted;
use crate::content::Content;
use crate::layer::Layer;
use crate::memory::{IntoKeyedBudget, KeyedBudget};
use crate::model::{ConversationId, RunUser};
use crate::run::{Run, RunErrorKind, RunId, RunLimits, Wait};
use crate::tool::{Injectable, Panicked, ToolContext};
use crate::toolset::{IntoToolSet, ToolSet, ToolSetError};

type BoxError = Box<dyn Error + Send + Sync>;

/// The longest time that an application may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an application knows about the user of a run: the values that tools take, budgets, limits and layers. It is implemented by the state of
/// the application, and set with [`run_setup`](crate::agent::AgentBuilder::run_setup).
///
/// It is asked in each process that drives a run, before anything else is done: when the run starts and when it is resumed, by a question, a
/// page, a frontend, a served endpoint, a worker or a [recovery](crate::Agent::recover). So a run that was approved a week later
/// has the values and the budget of its user, without a word of the program that approved it.
///
/// ```
/// use std::collections::HashMap;
///
/// use tool_core::agent::{RunSetup, RunInfo, RunResources};
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
///
/// struct Customer {
///     name: String,
/// }
///
/// #[tool("Returns the name of the customer")]
/// fn name(#[inject] customer: &Customer) -> String {
///     customer.name.clone()
/// }
///
/// struct Desk {
///     names: HashMap<&'static str, &'static str>,
/// }
///
/// impl RunSetup for Desk {
///     async fn open(&self, run: &RunInfo) -> Result<RunResources, Box<dyn std::error::Error + Send + Sync>> {
///         let user = run.user().ok_or("log in first")?;
///         let name = self.names.get(user.as_str()).ok_or("there is no such customer")?;
///         Ok(RunResources::new().context(Customer { name: (*name).to_owned() }))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let desk = Desk { names: HashMap::from([("ada", "Ada Lovelace")]) };
/// let model = ScriptedModel::new().calls("name", "{}").says("You are Ada Lovelace.");
/// let agent = Agent::builder(model).tools(tools![name]).run_setup(desk).build()?;
/// let answer = agent.ask("Who am I?").user("ada").await?;
/// let output = answer.tool_executions()[0].output().map(ToString::to_string);
/// assert_eq!(output.as_deref(), Some("Ada Lovelace"));
/// assert!(agent.ask("Who am I?").await.is_err());
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not open runs",
    label = "not a `RunSetup`",
    note = "a closure cannot: write `impl RunSetup for Desk {{ async fn open(&self, run: &RunInfo) -> Result<RunResources, Box<dyn Error + Send + Sync>> {{ … }} }}` for a type of your own, and pass a value of it"
)]
pub trait RunSetup: Send + Sync {
    /// Returns what the run has while this process drives it. It must return within ten seconds.
    ///
    /// # Errors
    ///
    /// If it fails, nothing is executed, and the run fails with [`RunErrorKind::RunSetup`](crate::RunErrorKind::RunSetup); a stored run can be
    /// resumed.
    fn open(&self, run: &RunInfo) -> impl Future<Output = Result<RunResources, BoxError>> + Send;

    /// Returns whether somebody may decide about something that a run waits for, also a run inside. By default, everybody may whom the application
    /// lets call [`Agent::decide`](crate::Agent::decide). `by` is who decides, as the [decision](crate::run::Decision::by) states it, and who
    /// states it must know that it is true. A page states the name of its principal, and an endpoint with the protocol of OpenAI an id of the
    /// request, whose caller owns the run.
    ///
    /// It is asked before `decide` stores a decision, and again by the driver that takes a stored one, which another program can have stored
    /// under other rules. After a refusal the run goes on waiting, and layers that record receive it, such as [`Audit`](crate::layer::Audit). It must
    /// return within ten seconds; no answer until then, and a panic, are a refusal. Not asked about: decisions of a [`Decider`](crate::agent::Decider),
    /// and those that a program applies to a [`Run`](crate::run::Run) itself.
    fn may_decide(&self, run: &RunInfo, wait: &Wait, by: Option<&str>) -> impl Future<Output = bool> + Send {
        let _ = (run, wait, by);
        ready(true)
    }
}

/// The run that is opened.
#[derive(Clone, Debug)]
pub struct RunInfo {
    id: Option<RunId>,
    user: Option<RunUser>,
    conversation: Option<ConversationId>,
}

type ChangeLimits = dyn Fn(RunLimits) -> RunLimits + Send + Sync;

/// What a run has while a process drives it. [`RunSetup::open`] returns it.
///
/// What the model sees of it, [instructions](Self::instructions) and [tools](Self::tools), is recorded when the run begins and stays for the run.
/// The rest is what was returned last.
#[derive(Clone)]
#[must_use]
pub struct RunResources {
    pub(super) context: ToolContext,
    pub(super) instructions: Option<Content>,
    pub(super) tools: Result<ToolSet, ToolSetError>,
    pub(super) memory_key: Option<ConversationId>,
    pub(super) budgets: Vec<KeyedBudget>,
    pub(super) limits: Option<Arc<ChangeLimits>>,
    pub(super) layers: Vec<Arc<dyn Layer>>,
}

/// A [`RunSetup`] of any type.
pub(super) trait OpenRun: Send + Sync {
    fn open_run<'a>(&'a self, run: &'a RunInfo) -> BoxFuture<'a, Result<RunResources, BoxError>>;

    fn may<'a>(&'a self, run: &'a RunInfo, wait: &'a Wait, by: Option<&'a str>) -> BoxFuture<'a, bool>;
}

impl<P: RunSetup> OpenRun for P {
    fn open_run<'a>(&'a self, run: &'a RunInfo) -> BoxFuture<'a, Result<RunResources, BoxError>> {
        self.open(run).boxed()
    }

    fn may<'a>(&'a self, run: &'a RunInfo, wait: &'a Wait, by: Option<&'a str>) -> BoxFuture<'a, bool> {
        self.may_decide(run, wait, by).boxed()
    }
}

impl RunInfo {
    pub(super) fn of(run: &Run) -> Self {
        let conversation = run.conversation().map(ConversationId::outermost);
        Self { id: Some(run.id().clone()), user: run.user().cloned(), conversation }
    }

    /// Returns what a worker knows that executes one call.
    pub(super) fn of_call(user: Option<RunUser>, conversation: Option<ConversationId>) -> Self {
        Self { id: None, user, conversation }
    }

    /// Returns the id of the run, or `None` in a worker that executes one of its calls.
    #[must_use]
    pub fn id(&self) -> Option<&RunId> {
        self.id.as_ref()
    }

    /// Returns [whose run it is](crate::agent::Ask::user).
    #[must_use]
    pub fn user(&self) -> Option<&RunUser> {
        self.user.as_ref()
    }

    /// Returns the conversation in which the outermost agent was asked.
    #[must_use]
    pub fn conversation(&self) -> Option<&ConversationId> {
        self.conversation.as_ref()
    }
}

impl RunResources {
    /// Creates the parts of a run that needs nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds instructions, which follow those of the question and precede the agent's. A run that has begun keeps those with which it began.
    ///
    /// They are stored with the run, and the model takes them for the application's word: nothing that a user chose belongs here.
    pub fn instructions(mut self, text: impl Into<Content>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// Offers the model more tools than the agent's, also after a handoff. A question with
    /// [`only_tools`](crate::agent::Ask::only_tools) does not have them.
    ///
    /// A run that has begun keeps the definitions with which it began: further tools are not offered to it, and a call of one that it is no
    /// longer given is denied.
    pub fn tools<K: ?Sized>(mut self, tools: impl IntoToolSet<K>) -> Self {
        self.tools = self.tools.and_then(|earlier| earlier.union(tools.into_tool_set()?));
        self
    }

    /// Sets the key under which the agent's [memory](crate::agent::AgentBuilder::memory) has the conversation, in place of the id of the
    /// conversation: with the user in it, a user who guesses the id of another one's conversation reads nothing of it.
    /// A run of another user keeps its conversation nevertheless: a question with its id is refused until that run has ended.
    ///
    /// ```
    /// use tool_core::agent::{RunInfo, RunResources};
    ///
    /// fn parts(run: &RunInfo) -> RunResources {
    ///     // The length separates the two, whatever characters they contain.
    ///     let key = run.user().zip(run.conversation());
    ///     let key = key.map(|(user, chat)| format!("{}:{user}/{chat}", user.as_str().len()));
    ///     key.map_or_else(RunResources::new, |key| RunResources::new().memory_key(key))
    /// }
    /// ```
    pub fn memory_key(mut self, key: impl Into<ConversationId>) -> Self {
        self.memory_key = Some(key.into());
        self
    }

    /// Adds a value for the tools, which takes precedence over the agent's. One that the [question](crate::agent::Ask::context) gives
    /// takes precedence over it. A [`RunUser`] is refused: the run has its own.
    pub fn context<T: Injectable>(mut self, value: T) -> Self {
        self.context = self.context.with(value);
        self
    }

    /// Charges the run to a [budget](crate::memory::Budget), in addition to the agent's.
    pub fn budget(mut self, budget: impl IntoKeyedBudget) -> Self {
        self.budgets.push(budget.into());
        self
    }

    /// Changes the limits that the run has.
    pub fn limits(mut self, change: impl Fn(RunLimits) -> RunLimits + Send + Sync + 'static) -> Self {
        self.limits = Some(Arc::new(change));
        self
    }

    /// Adds a layer inside of the agent's. Each has a name of its own among those of the run.
    pub fn layer(mut self, layer: impl Layer + 'static) -> Self {
        self.layers.push(Arc::new(layer));
        self
    }
}

impl RunResources {
    /// Fails if two layers have one name, because what they have judged is known by it, or if a user is given in place of the run's.
    fn checked(self) -> Result<Self, BoxError> {
        if self.context.provided::<RunUser>().is_some() {
            return Err(USER_IN_CONTEXT.into());
        }
        let mut names: Vec<_> = self.layers.iter().map(|layer| layer.name()).collect();
        names.sort_unstable();
        match names.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => {
                Err(format!("two layers have the name `{}`; name one of them otherwise", two[0]).into())
            }
            None => Ok(self),
        }
    }

    /// Returns the tools.
    pub(super) fn offered_tools(&self) -> Result<ToolSet, RunErrorKind> {
        self.tools.clone().map_err(|error| RunErrorKind::RunSetup(error.into()))
    }
}

impl Default for RunResources {
    fn default() -> Self {
        Self {
            context: ToolContext::new(),
            instructions: None,
            tools: Ok(ToolSet::default()),
            memory_key: None,
            budgets: Vec::new(),
            limits: None,
            layers: Vec::new(),
        }
    }
}

/// Omits the values, which can be secret.
impl fmt::Debug for RunResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunResources").field("context", &self.context).finish_non_exhaustive()
    }
}

/// Asks the application whether somebody may decide. Whatever is no answer is a refusal.
pub(super) async fn may_decide(
    run_setup: &dyn OpenRun,
    run: &RunInfo,
    wait: &Wait,
    by: Option<&str>,
) -> bool {
    let asked = AssertUnwindSafe(async { run_setup.may(run, wait, by).await }).catch_unwind();
    matches!(run_until_interrupted(asked, None, Some(PATIENCE)).await, Ok(Ok(true)))
}

/// Asks the application what a run has.
pub(super) async fn open_run(run_setup: &dyn OpenRun, run: &RunInfo) -> Result<RunResources, RunErrorKind> {
    let opened = AssertUnwindSafe(async { run_setup.open_run(run).await }).catch_unwind();
    // An interruption is the end of the time.
    match run_until_interrupted(opened, None, Some(PATIENCE)).await {
        Ok(Ok(opened)) => opened.and_then(RunResources::checked).map_err(RunErrorKind::RunSetup),
        Ok(Err(panic)) => Err(RunErrorKind::RunSetup(Panicked::new(&*panic).into())),
        Err(_) => Err(RunErrorKind::RunSetup(format!("it took longer than {PATIENCE:?}").into())),
    }
}
