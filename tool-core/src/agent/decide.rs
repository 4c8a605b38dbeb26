//! Decisions about stored runs: the one way from a click to the run that goes on.
//!
//! A decision is posted before the lease is taken, because of two that take it, the one without would rely on the other. Only the one that
//! is first in the inbox takes it. The run that was loaded, the lease and the inbox go on to the driver, because each is a store operation
//! between a click and its call.
//!
//! New arguments are checked once per text. A posted decision states that they were checked against the definition to which the approval is
//! bound, because the driver revokes the approval if the definition is another one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::driver::HeldLease;
use super::run_setup::may_decide as ask_setup;
use super::waiting_tools::waiting_tools;
use crate::agent::{Agent, Ask, CommandError, CommandErrorKind, RunInfo};
use crate::memory::{LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunCommand, RunStore};
use crate::model::ToolCall;
use crate::run::{Decision, ResolveError, Run, RunId, UserMessage, Wait};
use crate::tool::{DecisionKind, DecisionRecord, Timestamp, Tool, ToolContext, WaitId};

/// How long a secret answer waits for a driver that works on the run, and the time between two attempts.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// A decision that is recorded, returned by [`Agent::decide`]. If nobody drives the run, this holds its lease until it is
/// [resumed](Self::resume) or dropped.
#[must_use = "nobody else may continue the run: call `resume`"]
pub struct DecisionReceipt {
    decisions: Vec<(Wait, DecisionRecord)>,
    run: Run,
    /// Nothing if another driver works on the run.
    resumed: Option<(Agent, Option<HeldLease>)>,
}

impl DecisionReceipt {
    /// Returns what was decided about, with the record of each decision.
    #[must_use]
    pub fn decisions(&self) -> &[(Wait, DecisionRecord)] {
        &self.decisions
    }

    /// Returns the run as it was loaded. It may not contain the decision yet.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Returns `true` if another driver works on the run, and takes the decision before its next step.
    #[must_use]
    pub fn is_driven_elsewhere(&self) -> bool {
        self.resumed.is_none()
    }

    /// Returns the question that continues the run, like [`Agent::resume`], or `None` if another driver
    /// [works](Self::is_driven_elsewhere) on the run.
    pub fn resume(self) -> Option<Ask> {
        let (agent, lease) = self.resumed?;
        Some(agent.resume(self.run).under_lease(lease))
    }
}

/// Omits the run, because conversations are private.
impl fmt::Debug for DecisionReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionReceipt").field("decisions", &self.decisions).finish_non_exhaustive()
    }
}

impl Agent {
    /// Decides about something that a stored run waits for, and returns the question that continues the run, unless another driver
    /// works on it. The decision is checked, also new arguments against the tool, and stored before this returns. The first decision about a
    /// wait holds, in all processes that use the store. An answer is checked against the choices; whether it has its type is known to the
    /// tool alone, which reads `"3"` as a number, too: it asks again, with a [problem](crate::tool::Question::problem).
    ///
    /// A secret answer is never stored: it is applied to the run, which is not stored before it is resumed. While another driver works on the
    /// run, this waits for up to ten seconds.
    ///
    /// ```
    /// use tool_core::memory::InMemoryStore;
    /// use tool_core::run::Decision;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Pays a bill", needs_approval)]
    /// fn pay(cents: u32) {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("pay", r#"{"cents": 700}"#).says("Paid.");
    /// let agent = Agent::builder(model).tools(tools![pay]).run_store(InMemoryStore::new()).build()?;
    /// let waiting = agent.ask("Pay the bill").await.unwrap_err().into_run();
    /// let (run, wait) = (waiting.id().to_string(), waiting.waits().remove(0).id);
    ///
    /// // A click on "approve", in any process:
    /// let decided = agent.decide(&run, &wait, Decision::approve().by("ada")).await?;
    /// if let Some(resumed) = decided.resume() {
    ///     assert_eq!(resumed.await?.text(), "Paid.");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if no run of the agent is stored under this id, if the run does not wait for this, if it was
    /// [decided before](CommandError::decided), if the decision does not fit, if the application does not
    /// [let](crate::agent::RunSetup::may_decide) this person decide, or if the store fails.
    pub async fn decide(
        &self,
        run: impl Into<RunId>,
        wait: impl Into<WaitId>,
        decision: Decision,
    ) -> Result<DecisionReceipt, CommandError> {
        self.decide_all(run, vec![(wait.into(), decision)]).await
    }

    /// Decides about several things that a stored run waits for, at once. After the first of several calls of [`decide`](Self::decide), the
    /// run can be continued elsewhere, and a later one can be refused; if one of these decisions is refused, none is recorded, unless another
    /// process decides in the same moment.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`decide`](Self::decide).
    pub async fn decide_all(
        &self,
        run: impl Into<RunId>,
        decisions: Vec<(WaitId, Decision)>,
    ) -> Result<DecisionReceipt, CommandError> {
        let run = run.into();
        match self.0.run_store.get() {
            Some(store) => Decider { store, id: &run, agent: Some(self) }.decide(decisions).await,
            None => Err(CommandErrorKind::UnknownRun.into()),
        }
    }
}

impl Agent {
    /// Says something to a stored run while it works: the message is stored, and the driver of the run adds it before its next step, after
    /// the results of the calls in flight. What the run waits for stays open, and the message is added once the run works again. It passes the
    /// layers like each question. Two messages keep their order. A [`UserMessage`] states who sends it.
    ///
    /// ```
    /// use tool_core::memory::InMemoryStore;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Books a trip", needs_approval)]
    /// fn book(city: String) {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("book", r#"{"city": "Rome"}"#).says("By train, then.");
    /// let agent = Agent::builder(model).tools(tools![book]).run_store(InMemoryStore::new()).build()?;
    /// let mut run = agent.ask("Book a trip").await.unwrap_err().into_run();
    /// agent.say(run.id(), "By train, please").await?;
    /// run.resolve_all(|_| tool_core::run::Decision::approve())?;
    /// let answer = agent.resume(run).await?;
    /// assert_eq!(answer.new_messages()[3].text(), "By train, please");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if no run of the agent is stored under this id, if the run has ended or has an answer in its last turn, or if the store fails.
    /// Also fails if the message is too long, or if the run has [too many](crate::store::MessageVolume); decisions and cancellations are taken
    /// then, too.
    /// A message that arrives while the run ends can fail to be read: ask a new question if the answer does not take it into account.
    pub async fn say(
        &self,
        run: impl Into<RunId>,
        message: impl Into<UserMessage>,
    ) -> Result<(), CommandError> {
        self.post(run.into(), RunCommand::Say(message.into()), Run::takes_messages).await
    }

    /// Cancels a stored run, whether another process drives it or nobody does: a driver that works on it is interrupted within a tenth of its
    /// [lease](crate::agent::AgentBuilder::run_lease), undoes what its calls have done, as far as their tools support it, and returns
    /// [`Stopped`](crate::RunErrorKind::Stopped). If nobody drives the run, the next one that [continues](Agent::resume) or
    /// [recovers](Agent::recover) it does so; [`undo_and_end`](Agent::undo_and_end) does it now.
    ///
    /// ```
    /// use tool_core::Agent;
    /// use tool_core::memory::{InMemoryStore, RunStatus};
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().fails("the line is dead");
    /// let agent = Agent::builder(model).run_store(InMemoryStore::new()).build()?;
    /// let failed = agent.ask("Hello").await.unwrap_err().into_run();
    /// agent.cancel(failed.id()).await?;
    /// assert_eq!(agent.stored_run(failed.id()).await?.unwrap().status, RunStatus::Cancelled);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if no run of the agent is stored under this id, if the run has ended, or if the store fails.
    pub async fn cancel(&self, run: impl Into<RunId>) -> Result<(), CommandError> {
        self.post(run.into(), RunCommand::Cancel, |run| !run.is_done()).await
    }

    async fn post(
        &self,
        run: RunId,
        command: RunCommand,
        takes: impl Fn(&Run) -> bool,
    ) -> Result<(), CommandError> {
        let store = self.0.run_store.get().ok_or(CommandErrorKind::UnknownRun)?;
        let decider = Decider { store, id: &run, agent: Some(self) };
        match decider.load().await {
            Ok(run) if !takes(&run) => return Err(CommandErrorKind::Ended.into()),
            // A driver of another version may read it.
            Err(error)
                if !matches!((error.kind(), &command), (CommandErrorKind::Store(_), RunCommand::Cancel)) =>
            {
                return Err(error);
            }
            _ => {}
        }
        match store.post(&run, &PostedCommand::new(command)).await.map_err(CommandErrorKind::Store)? {
            PostOutcome::Posted => Ok(()),
            PostOutcome::Full => Err(CommandErrorKind::Full.into()),
            PostOutcome::UnknownRun => Err(CommandErrorKind::UnknownRun.into()),
            PostOutcome::Unsupported => Err(CommandErrorKind::NoInbox.into()),
        }
    }
}

/// Decides about a run whose agent is in another program, which takes the decisions.
///
/// # Errors
///
/// Fails like [`Agent::decide`]. Secret answers are refused.
pub async fn decide_in_store(
    store: &Arc<dyn RunStore>,
    run: &str,
    decisions: Vec<(WaitId, Decision)>,
) -> Result<DecisionReceipt, CommandError> {
    Decider { store, id: run, agent: None }.decide(decisions).await
}

/// Asks the application whether somebody may decide about something that a run of the agent waits for, as [`Agent::decide`] does:
/// [`RunSetup::may_decide`](crate::agent::RunSetup::may_decide). Layers record a refusal. For worlds that have no messages of the run: its id,
/// its user and its conversation suffice.
///
/// # Errors
///
/// Fails if the person or system may not.
pub async fn may_decide(
    agent: &Agent,
    run: &Run,
    wait: &Wait,
    decision: &Decision,
) -> Result<(), CommandError> {
    let Some(record) = decision.record(&wait.id) else { return Ok(()) };
    let Some(run_setup) = &agent.0.run_setup else { return Ok(()) };
    if ask_setup(&**run_setup, &RunInfo::of(run), wait, record.by.as_deref()).await {
        return Ok(());
    }
    let by = record.by.clone();
    // It is refused also if a layer cannot write it down.
    let _ = agent.resume(run.clone()).start().record_refusal(wait, record).await;
    Err(CommandErrorKind::NotAllowed { by }.into())
}

struct Decider<'a> {
    store: &'a Arc<dyn RunStore>,
    id: &'a str,
    agent: Option<&'a Agent>,
}

impl Decider<'_> {
    async fn decide(&self, decisions: Vec<(WaitId, Decision)>) -> Result<DecisionReceipt, CommandError> {
        let now = Timestamp::now();
        let decisions = decisions.into_iter().map(|(wait, decision)| (wait, decision.or_at(now))).collect();
        let mut run = self.load().await?;
        let checked = self.check(&mut run, decisions)?;
        for (wait, decision) in &checked {
            self.ask_leave(&run, wait, decision).await?;
        }
        if checked.iter().any(is_secret) {
            return self.apply(checked).await;
        }
        let mut commands = Vec::new();
        for (wait, decision) in &checked {
            let command = PostedCommand::new(RunCommand::resolve(&wait.id, decision.clone()));
            match self.store.post(self.id, &command).await.map_err(CommandErrorKind::Store)? {
                PostOutcome::Posted => commands.push(command),
                // Decisions always fit.
                PostOutcome::Full => return Err(CommandErrorKind::Full.into()),
                PostOutcome::UnknownRun => return Err(CommandErrorKind::UnknownRun.into()),
                PostOutcome::Unsupported => return self.apply(checked).await,
            }
        }
        let posted = self.store.posted(self.id).await.map_err(CommandErrorKind::Store)?;
        let mut is_taken = false;
        for ((wait, _), command) in checked.iter().zip(&commands) {
            // Drivers take commands in the order of the inbox, and acknowledge what they have stored.
            match posted.iter().find_map(|posted| Some((&posted.id, posted.command.record_about(&wait.id)?)))
            {
                Some((id, _)) if *id == command.id => {}
                Some((_, first)) => return Err(ResolveError::already_decided(first).into()),
                None => is_taken = true,
            }
        }
        if is_taken {
            run = self.refuse_later(&checked).await?;
        }
        let resumed = match (is_taken, self.agent) {
            (false, Some(agent)) => match self.take_lease(agent).await? {
                (LeaseState::HeldElsewhere, _) => {
                    // Its driver can have taken another decision since the run was loaded.
                    run = self.refuse_later(&checked).await?;
                    None
                }
                (state, lease) => {
                    if agent.0.run_setup.is_some() {
                        // One can have gone on while the application was asked.
                        run = self.refuse_later(&checked).await?;
                    }
                    let lease = (state != LeaseState::Unsupported).then(|| lease.hand_over(posted));
                    Some((agent.clone(), lease))
                }
            },
            _ => None,
        };
        Ok(DecisionReceipt { decisions: records(&checked), run, resumed })
    }

    async fn load(&self) -> Result<Run, CommandError> {
        let loaded = self.store.load_run(self.id).await.map_err(CommandErrorKind::Store)?;
        let is_its = |run: &Run| self.agent.is_none_or(|agent| run.is_driven_by(agent.name()));
        let mut run = loaded.filter(is_its).ok_or(CommandErrorKind::UnknownRun)?;
        // Expiry precedes decisions.
        run.tick(Timestamp::now());
        Ok(run)
    }

    /// Checks decisions, and finds what each is about.
    fn check(
        &self,
        run: &mut Run,
        decisions: Vec<(WaitId, Decision)>,
    ) -> Result<Vec<(Wait, Decision)>, CommandError> {
        let waits = run.waits();
        let mut checked = Vec::new();
        for (id, decision) in decisions {
            let wait = waits.iter().find(|wait| wait.id == id).ok_or_else(|| run.not_waiting(&id))?;
            let mut decision = decision.about(wait);
            wait.check(&decision)?;
            if let Some(arguments) = decision.edited_arguments() {
                decision.has_checked_arguments = self.check_arguments(run, wait, arguments)?;
            }
            checked.push((wait.clone(), decision));
        }
        Ok(checked)
    }

    /// Asks the application whether this may be decided.
    async fn ask_leave(&self, run: &Run, wait: &Wait, decision: &Decision) -> Result<(), CommandError> {
        match self.agent {
            Some(agent) => may_decide(agent, run, wait, decision).await,
            None => Ok(()),
        }
    }

    /// Checks new arguments against the tool. Returns `true` if it has the definition to which the approval is bound: the driver then
    /// needs no check of its own.
    fn check_arguments(&self, run: &mut Run, wait: &Wait, arguments: &str) -> Result<bool, ResolveError> {
        let place = waiting_tools(run, self.agent).remove(&wait.id);
        let Some((agents, tool, agent)) =
            place.zip(self.agent).and_then(|((agents, tool), agent)| Some((agents, tool?, agent)))
        else {
            return Ok(false);
        };
        let checked = match &*agents {
            [] => agent.tools().check_arguments(&ToolCall::new(&*wait.path, &wait.tool, arguments)),
            _ => Tool::check_arguments(tool, arguments, &ToolContext::new()),
        };
        checked.map_err(|error| ResolveError::invalid_arguments(error.to_string()))?;
        Ok(run.definition_to_approve(&wait.path) == Some(tool.definition().hash()))
    }

    async fn take_lease(&self, agent: &Agent) -> Result<(LeaseState, HeldLease), CommandError> {
        let lease = HeldLease::new(Arc::clone(self.store), self.id.to_owned());
        let taken = LeaseRequest::Take(agent.0.stored_runs.lease);
        let state = lease.request(taken).await.map_err(CommandErrorKind::Store)?;
        Ok((state, lease))
    }

    /// Applies decisions to the run without storing them first.
    async fn apply(&self, checked: Vec<(Wait, Decision)>) -> Result<DecisionReceipt, CommandError> {
        let agent = self.agent.ok_or(CommandErrorKind::RunningElsewhere)?;
        let started = Instant::now();
        let lease = loop {
            match self.take_lease(agent).await? {
                (LeaseState::HeldElsewhere, _)
                    if started.elapsed() < PATIENCE && Handle::try_current().is_ok() =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                (LeaseState::HeldElsewhere, _) => return Err(CommandErrorKind::RunningElsewhere.into()),
                (LeaseState::Unsupported, _) => break None,
                (_, lease) => break Some(lease),
            }
        };
        // What another driver has stored meanwhile.
        let mut run = self.load().await?;
        let posted = self.store.posted(self.id).await.map_err(CommandErrorKind::Store)?;
        for (wait, decision) in &checked {
            if let Some(first) = posted.iter().find_map(|posted| posted.command.record_about(&wait.id)) {
                return Err(ResolveError::already_decided(first).into());
            }
            run.resolve(&wait.id, decision.clone())?;
        }
        let decisions = records(&checked);
        let lease = lease.map(|lease| lease.hand_over(posted));
        Ok(DecisionReceipt { decisions, run, resumed: Some((agent.clone(), lease)) })
    }

    /// Returns the run as it is now. Fails if a driver has taken another decision in place of one of these.
    async fn refuse_later(&self, checked: &[(Wait, Decision)]) -> Result<Run, CommandError> {
        let run = self.load().await?;
        for (wait, decision) in checked {
            let taken = run.decision_about(&wait.id).cloned();
            if let Some(first) = taken.filter(|taken| Some(taken) != decision.record(&wait.id).as_ref()) {
                return Err(ResolveError::already_decided(first).into());
            }
        }
        Ok(run)
    }
}

/// Returns `true` for an answer that must not be stored.
fn is_secret((wait, decision): &(Wait, Decision)) -> bool {
    let is_answer = decision.kind() == Some(DecisionKind::Answered);
    is_answer && wait.question().is_some_and(|question| question.is_secret())
}

/// Returns what was decided about, with the record of each decision. One that is deferred has none.
fn records(checked: &[(Wait, Decision)]) -> Vec<(Wait, DecisionRecord)> {
    let recorded = |(wait, decision): &(Wait, Decision)| Some((wait.clone(), decision.record(&wait.id)?));
    checked.iter().filter_map(recorded).collect()
}
