//! Several drivers on one store: leases, inboxes, statuses, what becomes of dropped runs, and conversations that wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, pending};
use tests::support::deciding::{Decide, Waiting};
use tests::support::pass;
use tests::support::stores::{post_command, run_ids, run_stores, stored_runs};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tool_core::agent::{AgentBuilder, Ask, Decider, DeciderFuture, OnDrop, Outcome, WhileWaiting};
use tool_core::memory::{InMemoryStore, RunFilter, RunStatus, RunSummary};
use tool_core::model::{ChatRequest, ChatResponse, ConversationId, ModelError};
use tool_core::run::{Decision, Run, StopReason, Wait};
use tool_core::store::{
    DriverId, LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunChanges, RunCommand, RunLog,
    RunRevision, RunStore, SaveOutcome, StoreFuture,
};
use tool_core::testing::{ScriptedModel, check_run_store};
use tool_core::{
    Agent, Answer, ChatMemory, ChatModel, Event, Message, RunError, RunErrorKind, SqliteStore, tool, tools,
};

/// Long enough for any machine; no test waits for so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A tenth of the default lease: after it, a driver renews its lease and looks into its inbox.
const RENEWAL: Duration = Duration::from_secs(3);

/// What the tools of a test do.
#[derive(Clone, Default)]
struct World(Arc<Inner>);

#[derive(Default)]
struct Inner {
    effects: Mutex<Vec<&'static str>>,
    holding: Notify,
    release: Notify,
}

impl World {
    fn effect(&self, effect: &'static str) {
        self.0.effects.lock().unwrap().push(effect);
    }

    fn effects(&self) -> Vec<&'static str> {
        self.0.effects.lock().unwrap().clone()
    }

    async fn is_holding(&self) {
        tokio::time::timeout(PATIENCE, self.0.holding.notified()).await.expect("the call is executed");
    }
}

/// Lasts until it is released.
#[tool(at_most_once)]
async fn hold(#[inject] world: &World) -> &'static str {
    world.effect("hold");
    world.0.holding.notify_one();
    world.0.release.notified().await;
    "held"
}

#[tool(needs_approval)]
fn pay(#[inject] world: &World) -> &'static str {
    world.effect("pay");
    "paid"
}

#[tool(undo = "cancel")]
fn book(#[inject] world: &World) -> &'static str {
    world.effect("book");
    "booked"
}

#[tool]
fn cancel(#[inject] world: &World) {
    world.effect("cancel");
}

/// A model that does not reply.
struct Silent(Arc<Notify>);

impl ChatModel for Silent {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> BoxFuture<'a, Result<ChatResponse, ModelError>> {
        self.0.notify_one();
        Box::pin(pending())
    }
}

/// A decider that does not decide.
struct Undecided(UnboundedSender<String>);

impl Decider for Undecided {
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
        self.0.send(wait.path.clone()).unwrap();
        Box::pin(pending())
    }
}

fn builder(model: impl ChatModel + 'static, store: &Arc<dyn RunStore>, world: &World) -> AgentBuilder {
    let builder = Agent::builder(model).tools(tools![hold, pay, book]).undo_tools(tools![cancel]);
    builder.context(world.clone()).run_store(Arc::clone(store))
}

fn agent(model: impl ChatModel + 'static, store: &Arc<dyn RunStore>, world: &World) -> Agent {
    builder(model, store, world).build().unwrap()
}

async fn stores() -> impl Iterator<Item = Arc<dyn RunStore>> {
    run_stores().await.into_iter().map(|(_, store)| store)
}

/// Returns the only stored run.
async fn only_run(agent: &Agent) -> (Run, RunStatus) {
    let mut stored = stored_runs(agent).await;
    assert_eq!(stored.len(), 1);
    let stored = stored.remove(0);
    (stored.run, stored.status)
}

/// Waits until no stored run is running elsewhere, and returns the statuses.
async fn statuses_at_rest(agent: &Agent) -> Vec<RunStatus> {
    let wait = async {
        loop {
            let stored = stored_runs(agent).await;
            let statuses: Vec<_> = stored.iter().map(|stored| stored.status).collect();
            if !statuses.contains(&RunStatus::RunningElsewhere) {
                return statuses;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the lease ends")
}

async fn stream(ask: Ask) -> Result<Answer, RunError> {
    let mut events = ask.stream();
    while let Some(event) = events.next().await {
        if let Event::Done(answer) = event? {
            return Ok(answer);
        }
    }
    panic!("the stream ended without a final event");
}

async fn waiting_run(agent: &Agent) -> Run {
    let error = agent.ask("Pay").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    error.into_run()
}

/// A command that approves the first call that waits.
fn approval(run: &Run) -> RunCommand {
    RunCommand::resolve(&run.waits()[0].id, Decision::approve())
}

/// A store with faults.
#[derive(Default)]
struct Faulty {
    store: InMemoryStore,
    fails_to_renew: AtomicBool,
    /// A lease that is renewed has expired again before the store answers.
    renews_too_late: bool,
    hangs_after_acknowledging: AtomicBool,
    ignores_expected_revisions: bool,
    /// Is posted when a lease is released, to the run with this id.
    posts_on_release: Mutex<Option<(String, PostedCommand)>>,
}

impl RunStore for Faulty {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async move {
            let outcome = self.store.append_run(id, expected, changes).await?;
            if self.hangs_after_acknowledging.load(Ordering::SeqCst) && !changes.acknowledged().is_empty() {
                return pending().await;
            }
            Ok(if self.ignores_expected_revisions { SaveOutcome::Saved } else { outcome })
        })
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        self.store.load_run(id)
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        self.store.entries(id, after, limit)
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        self.store.remove_run(id)
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        self.store.list_runs(filter)
    }

    fn lease<'a>(
        &'a self,
        id: &'a str,
        driver: &'a DriverId,
        request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        Box::pin(async move {
            match request {
                LeaseRequest::Renew(_) if self.fails_to_renew.load(Ordering::SeqCst) => {
                    return Err("the line is dead".into());
                }
                LeaseRequest::Renew(_) if self.renews_too_late => return Ok(LeaseState::Free),
                LeaseRequest::Release => {
                    let posted = self.posts_on_release.lock().unwrap().take();
                    if let Some((id, posted)) = posted {
                        assert_eq!(self.store.post(&id, &posted).await?, PostOutcome::Posted);
                    }
                }
                _ => {}
            }
            self.store.lease(id, driver, request).await
        })
    }

    fn post<'a>(&'a self, id: &'a str, command: &'a PostedCommand) -> StoreFuture<'a, PostOutcome> {
        self.store.post(id, command)
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        self.store.posted(id)
    }
}

#[tokio::test]
async fn stores_fulfil_their_contract() {
    for store in stores().await {
        for _ in 0..2 {
            check_run_store(&*store).await.unwrap();
        }
        assert_eq!(run_ids(&store).await, Vec::<String>::new());
    }
    let wrong = Faulty { ignores_expected_revisions: true, ..Faulty::default() };
    let error = check_run_store(&wrong).await.unwrap_err().to_string();
    assert_eq!(error, "the store violates a rule: without an expected revision, no state is replaced");
}

#[tokio::test]
async fn a_run_that_is_being_driven_cannot_be_resumed() {
    for store in stores().await {
        let world = World::default();
        let first = agent(ScriptedModel::new().calls("hold", "{}").says("Done."), &store, &world);
        let model = ScriptedModel::new();
        let second = agent(model.clone(), &store, &world);
        let driver = tokio::spawn(first.ask("Hold").into_future());
        world.is_holding().await;
        let (run, status) = only_run(&second).await;
        assert_eq!(status, RunStatus::RunningElsewhere);
        let (id, revision) = (run.id().to_string(), run.revision().cloned());
        let error = second.resume(run).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::RunningElsewhere) && !error.is_resumable(), "{error}");
        assert_eq!(
            error.to_string(),
            format!(
                "another driver works on the run `{id}`; `say`, `decide` or `cancel` reaches it, or resume its current state later"
            )
        );
        assert_eq!(store.load_run(&id).await.unwrap().unwrap().revision(), revision.as_ref());
        assert_eq!(model.requests().len(), 0);
        world.0.release.notify_one();
        assert_eq!(driver.await.unwrap().unwrap().text(), "Done.");
        assert_eq!(world.effects(), ["hold"]);
        assert_eq!(stored_runs(&second).await.len(), 0);
    }
}

/// The ways in which a driver takes a decision that is posted while it executes another call.
#[tokio::test]
async fn a_driver_takes_the_decisions_that_are_posted_to_it() {
    for store in stores().await {
        let ways: [fn(Ask) -> BoxFuture<'static, String>; 3] = [
            |ask| Box::pin(async { ask.await.unwrap().text().to_owned() }),
            |ask| Box::pin(async { stream(ask).await.unwrap().text().to_owned() }),
            |ask| {
                Box::pin(async {
                    let mut run = ask.start();
                    while run.advance().await.unwrap() {}
                    run.finish().await.unwrap().text().to_owned()
                })
            },
        ];
        for way in ways {
            let world = World::default();
            let model = ScriptedModel::new().calls_all([("hold", "{}"), ("pay", "{}")]).says("Done.");
            let first = agent(model, &store, &world);
            let driver = tokio::spawn(way(first.ask("Hold and pay")));
            world.is_holding().await;
            let (run, _) = only_run(&first).await;
            // From a process that does not hold the run, and more than once.
            for _ in 0..2 {
                let posted = post_command(&first, run.id().as_str(), approval(&run)).await;
                assert_eq!(posted, PostOutcome::Posted);
            }
            world.0.release.notify_one();
            assert_eq!(driver.await.unwrap(), "Done.");
            assert_eq!(world.effects(), ["hold", "pay"]);
            let unknown = first.cancel(run.id()).await.unwrap_err();
            assert!(matches!(unknown.kind(), tool_core::agent::CommandErrorKind::UnknownRun), "{unknown}");
        }
    }
}

#[tokio::test]
async fn a_posted_cancellation_interrupts_a_model_request() {
    for store in stores().await {
        let asked = Arc::new(Notify::new());
        let agent = agent(Silent(Arc::clone(&asked)), &store, &World::default());
        let driver = tokio::spawn(agent.ask("Hello").into_future());
        asked.notified().await;
        let (run, status) = only_run(&agent).await;
        assert_eq!(status, RunStatus::RunningElsewhere);
        agent.cancel(run.id()).await.unwrap();
        pass(RENEWAL).await;
        let error = tokio::time::timeout(PATIENCE, driver).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
        assert_eq!(run_ids(&store).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_posted_decision_makes_a_waiting_approver_unnecessary() {
    for store in stores().await {
        let (world, (asked, mut calls)) = (World::default(), unbounded_channel());
        let model = ScriptedModel::new().calls("pay", "{}").says("Done.");
        let agent = builder(model, &store, &world);
        let agent = agent.decider(Undecided(asked)).build().unwrap();
        let driver = tokio::spawn(agent.ask("Pay").into_future());
        calls.recv().await.unwrap();
        let id = run_ids(&store).await.remove(0);
        let command = approval(&store.load_run(&id).await.unwrap().unwrap());
        assert_eq!(post_command(&agent, &id, command).await, PostOutcome::Posted);
        pass(RENEWAL).await;
        let answer = tokio::time::timeout(PATIENCE, driver).await.unwrap().unwrap().unwrap();
        assert_eq!((answer.text(), world.effects()), ("Done.", vec!["pay"]));
    }
}

/// As long as no other driver has taken the lease over.
#[tokio::test]
async fn a_driver_whose_lease_has_expired_still_takes_what_is_posted() {
    let store: Arc<dyn RunStore> = Arc::new(Faulty { renews_too_late: true, ..Faulty::default() });
    let asked = Arc::new(Notify::new());
    let agent = agent(Silent(Arc::clone(&asked)), &store, &World::default());
    let driver = tokio::spawn(agent.ask("Hello").into_future());
    asked.notified().await;
    pass(RENEWAL).await;
    let id = run_ids(&store).await.remove(0);
    agent.cancel(&id).await.unwrap();
    pass(RENEWAL).await;
    let error = tokio::time::timeout(PATIENCE, driver).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
}

#[tokio::test]
async fn a_posted_decision_about_another_call_does_not_interrupt_an_approver() {
    for store in stores().await {
        let (world, (asked, mut calls)) = (World::default(), unbounded_channel());
        let model = ScriptedModel::new().calls_all([("pay", "{}"), ("pay", "{}")]).says("Done.");
        let agent = builder(model, &store, &world);
        let agent = agent.decider(Undecided(asked)).build().unwrap();
        let driver = tokio::spawn(agent.ask("Pay twice").into_future());
        calls.recv().await.unwrap();
        let id = run_ids(&store).await.remove(0);
        let waits = store.load_run(&id).await.unwrap().unwrap().waits();
        for wait in [&waits[1], &waits[0]] {
            let command = RunCommand::resolve(&wait.id, Decision::approve());
            assert_eq!(post_command(&agent, &id, command).await, PostOutcome::Posted);
            while !store.posted(&id).await.unwrap().is_empty() {
                pass(RENEWAL).await;
            }
        }
        let answer = tokio::time::timeout(PATIENCE, driver).await.unwrap().unwrap().unwrap();
        assert_eq!((answer.text(), world.effects()), ("Done.", vec!["pay", "pay"]));
        drop(agent);
        assert_eq!(calls.recv().await, None, "each call is shown once");
    }
}

/// The driver has looked into the inbox for the last time when the command is posted.
#[tokio::test]
async fn a_decision_that_is_posted_when_the_driver_stops_waiting_is_not_lost() {
    let faulty = Arc::new(Faulty::default());
    let (store, world): (Arc<dyn RunStore>, _) = (Arc::clone(&faulty) as _, World::default());
    let model = ScriptedModel::new().calls_all([("hold", "{}"), ("pay", "{}")]).says("Done.");
    let agent = agent(model, &store, &world);
    let driver = tokio::spawn(agent.ask("Hold and pay").into_future());
    world.is_holding().await;
    let (run, _) = only_run(&agent).await;
    let late = (run.id().to_string(), PostedCommand::new(approval(&run)));
    *faulty.posts_on_release.lock().unwrap() = Some(late);
    world.0.release.notify_one();
    assert_eq!(driver.await.unwrap().unwrap().text(), "Done.");
    assert_eq!(world.effects(), ["hold", "pay"]);
}

/// The driver dies after the save that has the decision. It does not approve what nobody has seen.
#[tokio::test]
async fn the_save_that_has_a_decision_removes_its_command() {
    let faulty = Arc::new(Faulty::default());
    let (store, world): (Arc<dyn RunStore>, _) = (Arc::clone(&faulty) as _, World::default());
    let first = agent(ScriptedModel::new().calls("pay", "{}"), &store, &world);
    let run = waiting_run(&first).await;
    let id = run.id().to_string();
    assert_eq!(post_command(&first, &id, approval(&run)).await, PostOutcome::Posted);
    faulty.hangs_after_acknowledging.store(true, Ordering::SeqCst);
    let (dying, saved) = (first.clone(), store.load_run(&id).await.unwrap().unwrap());
    let before = saved.revision().cloned();
    let driver = tokio::spawn(async move { dying.resume(saved).await });
    // One save takes the run over, the next one has the decision.
    let is_approved = async {
        while store.load_run(&id).await.unwrap().unwrap().approvals().count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_approved).await.unwrap();
    driver.abort();
    assert!(driver.await.unwrap_err().is_cancelled());
    faulty.hangs_after_acknowledging.store(false, Ordering::SeqCst);
    assert_eq!(store.posted(&id).await.unwrap(), []);

    /// Another program has another tool under the name.
    #[tool(name = "pay", needs_approval)]
    fn pay_all(#[inject] world: &World) {
        world.effect("pay all");
    }
    let changed = Agent::builder(ScriptedModel::new()).tools(tools![pay_all]).context(world.clone());
    let changed = changed.run_store(Arc::clone(&store)).build().unwrap();
    for _ in 0..2 {
        let (run, _) = only_run(&changed).await;
        assert_ne!(run.revision(), before.as_ref());
        let error = changed.resume(run).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    }
    assert_eq!(world.effects(), Vec::<&str>::new());
}

/// The first driver is as one of a process that was suspended: it does not renew its lease.
#[tokio::test]
async fn a_driver_that_was_taken_over_has_a_conflict_before_its_next_effect() {
    let faulty = Arc::new(Faulty::default());
    let (store, world): (Arc<dyn RunStore>, _) = (Arc::clone(&faulty) as _, World::default());
    let model = ScriptedModel::new().calls("hold", "{}").calls("book", "{}");
    let first = builder(model, &store, &world).run_lease(Duration::from_millis(50)).build().unwrap();
    faulty.fails_to_renew.store(true, Ordering::SeqCst);
    let driver = tokio::spawn(first.ask("Hold, then book").into_future());
    world.is_holding().await;
    let second = agent(ScriptedModel::new().says("The outcome is unknown."), &store, &world);
    assert_eq!(statuses_at_rest(&second).await, [RunStatus::Interrupted]);
    let (run, _) = only_run(&second).await;
    assert_eq!(second.resume(run).await.unwrap().text(), "The outcome is unknown.");
    world.0.release.notify_one();
    let error = driver.await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Conflict), "{error}");
    assert_eq!(world.effects(), ["hold"]);
}

/// What becomes of a run whose future or stream is dropped during a call.
#[tokio::test]
async fn dropping_a_run_is_a_cancellation_that_the_store_sees() {
    for store in stores().await {
        for is_streamed in [false, true] {
            for (first_call, on_drop, expected) in [
                (None, OnDrop::Cancel, vec![]),
                (Some("book"), OnDrop::Cancel, vec![RunStatus::Cancelled]),
                (None, OnDrop::Keep, vec![RunStatus::Interrupted]),
            ] {
                let world = World::default();
                let mut model = ScriptedModel::new();
                if let Some(call) = first_call {
                    model = model.calls(call, "{}");
                }
                let asking =
                    builder(model.calls("hold", "{}"), &store, &world).on_drop(on_drop).build().unwrap();
                let ask = asking.ask("Go");
                let driver =
                    tokio::spawn(async move { if is_streamed { stream(ask).await } else { ask.await } });
                world.is_holding().await;
                driver.abort();
                assert!(driver.await.unwrap_err().is_cancelled());
                let model = ScriptedModel::new().says("Continued.");
                let resuming = agent(model.clone(), &store, &world);
                assert_eq!(statuses_at_rest(&resuming).await, expected, "{on_drop:?}");
                for stored in stored_runs(&resuming).await {
                    match (resuming.resume(stored.run).await, on_drop) {
                        (Ok(answer), OnDrop::Keep) => assert_eq!(answer.text(), "Continued."),
                        (Err(error), OnDrop::Cancel) => {
                            assert!(
                                matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)),
                                "{error}"
                            );
                            assert_eq!(world.effects(), ["book", "hold", "cancel"]);
                            assert_eq!(model.requests().len(), 0);
                        }
                        (outcome, _) => panic!("{on_drop:?}: {outcome:?}"),
                    }
                }
                assert_eq!(run_ids(&store).await, Vec::<String>::new());
            }
        }
    }
}

/// A run that waits is not in progress.
#[tokio::test]
async fn dropping_the_driver_of_a_run_that_waits_or_has_failed_cancels_nothing() {
    for store in stores().await {
        let agent = agent(ScriptedModel::new().fails("dead").calls("pay", "{}"), &store, &World::default());
        let mut driver = agent.ask("Pay").start();
        assert!(matches!(driver.advance().await.unwrap_err().kind(), RunErrorKind::Model(_)));
        drop(driver);
        let (run, status) = only_run(&agent).await;
        assert_eq!(status, RunStatus::Failed);
        let mut driver = agent.resume(run).start();
        assert!(driver.advance().await.unwrap());
        assert!(matches!(driver.advance().await.unwrap_err().kind(), RunErrorKind::Waiting));
        drop(driver);
        assert_eq!(only_run(&agent).await.1, RunStatus::Waiting);
    }
}

#[tokio::test]
async fn the_status_of_a_run_says_what_to_do_about_it() {
    for store in stores().await {
        let world = World::default();
        let model = ScriptedModel::new().calls("book", "{}").fails("dead").calls("pay", "{}");
        let first = agent(model, &store, &world);
        let error = first.ask("Book and pay").await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Model(_)), "{error}");
        let (run, status) = only_run(&first).await;
        assert_eq!(status, RunStatus::Failed);
        let Outcome::Waiting(run) = first.resume(run).outcome().await else { panic!("the call waits") };
        assert_eq!(only_run(&first).await.1, RunStatus::Waiting);
        let old = builder(ScriptedModel::new(), &store, &world).max_run_age(Duration::ZERO).build().unwrap();
        let (expired, status) = only_run(&old).await;
        assert_eq!(status, RunStatus::Expired);
        first.cancel(run.id()).await.unwrap();
        assert_eq!(only_run(&first).await.1, RunStatus::Cancelled);
        // A cancelled run ends, also if it was approved meanwhile and is old.
        assert_eq!(post_command(&first, run.id().as_str(), approval(&run)).await, PostOutcome::Posted);
        let Outcome::Failed(error) = old.resume(expired).outcome().await else { panic!("it was cancelled") };
        assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
        assert_eq!(world.effects(), ["book", "cancel"]);
        assert_eq!(run_ids(&store).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_discarded_run_is_undone_and_removed() {
    for store in stores().await {
        let world = World::default();
        let model = ScriptedModel::new().calls("book", "{}").calls("pay", "{}");
        let agent = agent(model, &store, &world);
        let run = waiting_run(&agent).await;
        agent.undo_and_end(run).await.unwrap();
        assert_eq!(world.effects(), ["book", "cancel"]);
        assert_eq!(run_ids(&store).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_conversation_with_a_waiting_run_refuses_questions() {
    let sqlite = SqliteStore::in_memory().await.unwrap();
    let in_memory = InMemoryStore::new();
    let stores: [(ChatMemory, Arc<dyn RunStore>); 2] =
        [(in_memory.clone().into(), Arc::new(in_memory)), (sqlite.clone().into(), Arc::new(sqlite))];
    for (memory, store) in stores {
        let user = ConversationId::new("user-7");
        let build = |model: &ScriptedModel, while_waiting| {
            let agent = builder(model.clone(), &store, &World::default()).memory(memory.clone());
            agent.while_waiting(while_waiting).build().unwrap()
        };
        let model = ScriptedModel::new().calls("pay", "{}").says("Other.").says("Paid.").says("Later.");
        let agent = build(&model, WhileWaiting::Refuse);
        let error = agent.ask("Refund?").conversation(user.clone()).await.unwrap_err();
        let run = error.into_run();
        let refused = agent.ask("What about it?").conversation(user.clone()).await.unwrap_err();
        assert!(
            matches!(refused.kind(), RunErrorKind::ConversationWaits { run: waiting, .. } if waiting == run.id().as_str())
        );
        assert!(!refused.is_resumable());
        assert_eq!(run_ids(&store).await, [run.id().as_str()], "the question is not stored");
        assert_eq!(model.requests().len(), 1);
        assert_eq!(agent.ask("Another user").conversation("user-8").await.unwrap().text(), "Other.");
        let adding = build(&ScriptedModel::new(), WhileWaiting::GoOn);
        let waiting = adding.ask("What about it?").conversation(user.clone()).await.unwrap_err();
        assert!(matches!(waiting.kind(), RunErrorKind::Waiting), "{waiting}");
        assert_eq!(waiting.run().id(), run.id(), "the question is added to the run that waits");
        let mut run = waiting.into_run();
        run.decide_calls(&Decision::approve());
        assert_eq!(agent.resume(run).await.unwrap().text(), "Paid.");
        assert_eq!(agent.ask("And now?").conversation(user.clone()).await.unwrap().text(), "Later.");
        let texts: Vec<_> =
            memory.messages(&user).await.unwrap().iter().map(Message::text).map(String::from).collect();
        let expected = ["Refund?", "", "paid", "What about it?", "Paid.", "And now?", "Later."];
        assert_eq!(texts, expected);
    }
}
