//! Continues stored runs that nobody drives.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::question_rules::Uncounted;
use super::recovery_place::{RecoveryPlace, RecoveryPlaces};
use super::trace::warn_of_unreadable_runs;
use crate::agent::{Agent, AgentExt, Ask, OnDrop, Outcome};
use crate::memory::{DriverId, LeaseRequest, LeaseState, MemoryError, RunFilter, RunStatus, RunSummary};
use crate::run::{Handoff, RunErrorKind};
use crate::tool::Timestamp;

/// The time between two looks, unless it is set.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);

/// The number of runs that one process continues at once.
const MAX_CONCURRENT: usize = 8;

/// A run that fails again and again is continued at most this many doublings of the interval later.
const MAX_DOUBLINGS: u32 = 7;

type Hook = Arc<dyn Fn(&str, &Outcome) + Send + Sync>;

/// Drives a run, with its id, once it has loaded it.
type Drive =
    Arc<dyn Fn(String, BoxFuture<'static, Option<Ask>>) -> BoxFuture<'static, Option<Outcome>> + Send + Sync>;

/// Continues the stored runs of an agent that nobody drives. [`Agent::recover`] returns it.
#[derive(Clone)]
#[must_use = "nothing is continued until it is started"]
pub struct Recovery {
    agent: Agent,
    interval: Duration,
    hooks: Vec<Hook>,
    drive: Drive,
    places: RecoveryPlaces,
}

/// A task that continues runs until it is [stopped](Self::stop) or its runtime ends, also if this value is dropped. [`Recovery::start`] returns
/// it.
#[derive(Debug)]
pub struct RecoveryTask(JoinHandle<()>);

/// What has become of a run that was to be continued: nothing if it is left to others, an error after a panic.
type Resumed = thread::Result<Option<Outcome>>;

/// Why a run needs a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// It goes on by itself.
    Driver,
    /// It waits for a decision that the deciders of its agent can make.
    Decider,
}

/// What a recovery does and remembers.
#[derive(Default)]
struct Work {
    /// Those that wait for their turn take little memory.
    running: FuturesUnordered<BoxFuture<'static, (String, Resumed)>>,
    /// The ids of the runs that are due or being continued.
    ids: HashSet<String>,
    /// When runs are tried again that could not be continued, and how often that was so.
    delays: HashMap<String, (Instant, u32)>,
}

impl Agent {
    /// Returns the task that brings stored runs to their end, in any process: those that were interrupted with their process, those
    /// that somebody has decided or cancelled, those whose time to wait is over, and those that failed, at growing intervals. A run that
    /// another driver works on is left to that driver, and a run of an agent with another [name](crate::agent::AgentBuilder::name), or of one
    /// without a name, to that agent. The agent's [deciders](crate::agent::AgentBuilder::decider) are asked about what a run waits for, unless they
    /// were asked about all of it before and have left it to people. A run that only a decider of an
    /// [agent inside](crate::Agent::as_tool) could decide is left to people, also if its process died while that was asked. Runs that cannot be
    /// [read](crate::store::RunStore::unreadable_runs) are not continued; with the feature `tracing`, a warning names them at each look. A run that has [expired](RunStatus::Expired) is continued only if its calls had no
    /// effects, and a run with a [budget of its own](crate::agent::Ask::budget) only by its program. In a store without leases, runs that were
    /// interrupted are not continued, also while a decider was asked, because they look like those that are being driven.
    ///
    /// ```
    /// use tool_core::memory::InMemoryStore;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::Agent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().fails("the line is dead").says("Good morning!");
    /// let agent = Agent::builder(model).run_store(InMemoryStore::new()).build()?;
    /// // In a service, until the process ends:
    /// agent.recover().start();
    /// # agent.ask("Hello").await.unwrap_err();
    /// # let recovered = agent.recover().once().await?;
    /// # assert_eq!(recovered, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn recover(&self) -> Recovery {
        let drive: Drive = Arc::new(|_, ask| async { Some(ask.await?.outcome().await) }.boxed());
        let (hooks, places) = (Vec::new(), RecoveryPlaces::new(MAX_CONCURRENT));
        Recovery { agent: self.clone(), interval: DEFAULT_INTERVAL, hooks, drive, places }
    }
}

impl Recovery {
    /// Sets the time between two looks at the store, 30 seconds by default. A run that fails is continued after one, two, four and up to
    /// 128 of them, and is then left to people.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Calls this with the id and the outcome of each run that was continued.
    pub fn on_outcome(mut self, hook: impl Fn(&str, &Outcome) + Send + Sync + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Drives all runs at once by this function, which limits and stops them as it does others. It receives the id of a run, and a future that
    /// loads it, so that runs that wait for their turn take no memory. It returns `None` for a run that it leaves to others.
    pub fn drive_by(
        mut self,
        drive: impl Fn(String, BoxFuture<'static, Option<Ask>>) -> BoxFuture<'static, Option<Outcome>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        (self.drive, self.places) = (Arc::new(drive), RecoveryPlaces::new(usize::MAX));
        self
    }

    /// Continues, once, the runs that need it now, and returns their number: for programs with a timer of their own. Deciders that have not
    /// answered within the [interval](Self::interval) are not waited for: what they were asked about stays open, and the next time asks them
    /// again.
    ///
    /// # Errors
    ///
    /// Fails if the runs cannot be listed.
    pub async fn once(&self) -> Result<usize, MemoryError> {
        let (mut work, mut count) = (Work::default(), 0);
        self.find_due(&mut work, Some(self.interval)).await?;
        while let Some((id, outcome)) = work.running.next().await {
            count += usize::from(self.settle(&mut work, id, outcome));
        }
        Ok(count)
    }

    /// Looks at the store again and again, in a task of this runtime, until the returned value is [stopped](RecoveryTask::stop) or the runtime
    /// ends. Nobody needs to hold the value: dropping it stops nothing, and the task has a clone of the agent. At most 8 runs are driven at once. Those whose deciders are asked, which can wait for people, take
    /// none of these places; at most 1,000 are asked at once, and others wait.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn start(self) -> RecoveryTask {
        RecoveryTask(tokio::spawn(async move {
            let mut work = Work::default();
            loop {
                // A store that fails may work at the next look.
                let _ = self.find_due(&mut work, None).await;
                let next_look = Instant::now() + self.interval;
                while let Ok(Some((id, outcome))) = timeout_at(next_look, work.running.next()).await {
                    self.settle(&mut work, id, outcome);
                }
                sleep_until(next_look).await;
            }
        }))
    }

    /// Finds the runs that need a driver now, and lets them wait for their turn. Their deciders can have a time to answer.
    async fn find_due(&self, work: &mut Work, max_asking: Option<Duration>) -> Result<(), MemoryError> {
        let listed = self.agent.list_runs(&RunFilter::new()).await?;
        self.warn_of_unreadable_runs().await;
        let (now, started) = (Timestamp::now(), Instant::now());
        let mut delays = std::mem::take(&mut work.delays);
        for run in listed {
            // One that is no longer listed is forgotten.
            let delay = delays.remove(&run.id);
            let is_left = delay.is_some_and(|(until, failures)| until > started || failures > MAX_DOUBLINGS);
            let need = self.need_of(&run, now);
            if let Some(delay) = delay {
                work.delays.insert(run.id.clone(), delay);
            }
            if let Some(need) = need.filter(|_| !is_left)
                && work.ids.insert(run.id.clone())
            {
                work.running.push(self.continue_run(run.id, need, max_asking));
            }
        }
        Ok(())
    }

    /// Warns of the runs of the agent that the list leaves out.
    async fn warn_of_unreadable_runs(&self) {
        if let (true, Some(store)) = (cfg!(feature = "tracing"), self.agent.run_store()) {
            let unreadable = store.unreadable_runs().await.unwrap_or_default();
            let own = unreadable.iter().filter(|run| self.is_own(run.agent.as_deref()));
            warn_of_unreadable_runs(&own.map(|run| &*run.id).collect::<Vec<_>>());
        }
    }

    /// Returns `true` if the agent was asked. It may drive runs of agents without a name, but another one may have asked their questions.
    fn is_own(&self, asked: Option<&str>) -> bool {
        asked == self.agent.name()
    }

    /// Returns why a run needs this recovery, if it does.
    fn need_of(&self, run: &RunSummary, now: Timestamp) -> Option<Need> {
        if !self.is_own(run.agent.as_deref()) {
            return None;
        }
        match run.status {
            RunStatus::Interrupted
            | RunStatus::Failed
            | RunStatus::Cancelled
            | RunStatus::NotUndone
            | RunStatus::Expired => Some(Need::Driver),
            RunStatus::Waiting if run.is_command_posted || run.due.is_some_and(|due| due <= now) => {
                Some(Need::Driver)
            }
            RunStatus::Waiting if run.awaits_decider && has_decider(&self.agent) => Some(Need::Decider),
            RunStatus::Waiting | RunStatus::RunningElsewhere | RunStatus::Finished => None,
        }
    }

    /// Continues a run once it is its turn.
    fn continue_run(
        &self,
        id: String,
        need: Need,
        max_asking: Option<Duration>,
    ) -> BoxFuture<'static, (String, Resumed)> {
        let (agent, drive, places) = (self.agent.clone(), Arc::clone(&self.drive), self.places.clone());
        let driven = id.clone();
        let driving = async move {
            let place = places.take(max_asking).await;
            drive(driven.clone(), resume(agent, driven, need, place).boxed()).await
        };
        // A panic of a model or a hook must not end the recovery of others.
        AssertUnwindSafe(driving).catch_unwind().map(|resumed| (id, resumed)).boxed()
    }

    /// Reports the outcome of a run. Returns `false` if it was left to others.
    fn settle(&self, work: &mut Work, id: String, resumed: Resumed) -> bool {
        work.ids.remove(&id);
        let (is_left, fails) = match &resumed {
            Ok(Some(Outcome::Failed(error))) => (is_left(error.kind()), error.is_resumable()),
            Ok(Some(_)) => (false, false),
            Ok(None) => (true, false),
            Err(_) => (false, true),
        };
        let failures = work.delays.remove(&id).map_or(0, |(_, failures)| failures);
        if is_left || fails {
            let delay = self.interval.saturating_mul(1 << failures.min(MAX_DOUBLINGS));
            let failures = failures + u32::from(!is_left);
            work.delays.insert(id.clone(), (Instant::now() + delay, failures));
        }
        if let Ok(Some(outcome)) = resumed
            && !is_left
        {
            let report = || self.hooks.iter().for_each(|hook| hook(&id, &outcome));
            let _ = catch_unwind(AssertUnwindSafe(report));
        }
        !is_left
    }
}

/// Loads a run to continue it. Returns `None` if only its program can do that, if another driver can be working on it, or if it is gone.
async fn resume(agent: Agent, id: String, need: Need, place: RecoveryPlace) -> Option<Ask> {
    let stored = agent.stored_run(&id).await.ok()??;
    let store = agent.run_store()?;
    let check = store.lease(&id, &DriverId::unique(), LeaseRequest::Check).await.ok()?;
    // Without leases, a run that is being driven looks like one that was interrupted, also while a decider is asked.
    let can_be_driven = stored.status == RunStatus::Interrupted || need == Need::Decider;
    let may_have_driver = can_be_driven && check == LeaseState::Unsupported;
    if stored.run.has_own_budget() || may_have_driver {
        return None;
    }
    let handoffs = stored.run.handoffs().iter().map(Handoff::agent);
    if need == Need::Decider && !agent.agent_at(handoffs).is_some_and(Agent::has_decider) {
        return None;
    }
    let mut ask = agent.resume(stored.run).on_drop(OnDrop::Keep);
    // Attempts that fail must not use up the time after which the run would be undone.
    ask.question.rules.uncounted = Uncounted::Time;
    ask.question.rules.recovery_place = Some(place);
    Some(ask)
}

/// Returns `true` if the agent has a decider, or one that its runs can be handed off to.
fn has_decider(agent: &Agent) -> bool {
    agent.has_decider() || agent.handoffs().any(|(_, next)| has_decider(next))
}

/// Returns `true` if another driver, or a person, has the run, or another run its budget.
fn is_left(kind: &RunErrorKind) -> bool {
    use RunErrorKind::{BudgetInUse, Conflict, Expired, RunningElsewhere};
    matches!(kind, RunningElsewhere | Conflict | Expired | BudgetInUse { .. })
}

impl RecoveryTask {
    /// Ends the recovery. Runs that it continues now are interrupted, and can be resumed from where they are.
    ///
    /// ```
    /// use tool_core::Agent;
    /// use tool_core::memory::InMemoryStore;
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new()).run_store(InMemoryStore::new()).build()?;
    /// let recovery = agent.recover().start();
    /// // … before the process stops:
    /// recovery.stop();
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop(self) {
        self.0.abort();
    }

    /// Returns `true` if it has ended, with its runtime.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery").field("interval", &self.interval).finish_non_exhaustive()
    }
}
