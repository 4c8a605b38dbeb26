//! What becomes of runs that fail, are interrupted or grow old: questions go on with them, a task brings them to their end, and nothing
//! is undone because of its age.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tests::support::stores::{postgres, run_ids, stored_runs};
use tokio::sync::Notify;
use tool_core::agent::{AgentBuilder, Decider, DeciderFuture, Outcome, on_approval};
use tool_core::memory::{Budget, InMemoryStore, RunFilter, RunStatus, RunSummary};
use tool_core::model::{ChatRequest, ModelOptions};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, Run, StopReason, Wait, WaitReason};
use tool_core::store::{ChatStore, RunChanges, RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture};
use tool_core::testing::ScriptedModel;
use tool_core::tool::Asker;
use tool_core::{Agent, ChatMemory, ChatModel, RunErrorKind, SqliteStore, ToolError, tool, tools};

/// What the tools of a test do.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<&'static str>>>);

impl Effects {
    fn add(&self, effect: &'static str) {
        self.0.lock().unwrap().push(effect);
    }

    fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

#[tool(undo = "take_back")]
fn refund(#[inject] effects: &Effects) -> &'static str {
    effects.add("refund");
    "refunded"
}

#[tool]
fn take_back(#[inject] effects: &Effects) {
    effects.add("take_back");
}

#[tool(needs_approval)]
fn pay(#[inject] effects: &Effects) -> &'static str {
    effects.add("pay");
    "paid"
}

#[tool(needs_approval)]
fn pay_at(when: Option<String>, #[inject] effects: &Effects) -> &'static str {
    drop(when);
    effects.add("pay");
    "paid"
}

/// Its question expires after an hour.
#[tool]
async fn pick(#[inject] user: &Asker) -> Result<String, ToolError> {
    Ok(user
        .ask::<String>("Which color?")
        .expires(Duration::from_secs(3_600))
        .default("red".to_owned())
        .await?)
}

#[derive(Default)]
struct Gate {
    begun: Notify,
    release: Notify,
}

#[tool]
async fn wait(#[inject] gate: &Arc<Gate>) {
    gate.begun.notify_one();
    gate.release.notified().await;
}

/// A store, and the memory of one process on it.
struct Stores {
    run_store: Arc<dyn RunStore>,
    memory: Box<dyn Fn() -> ChatMemory>,
}

async fn stores() -> Vec<Stores> {
    let mut stores =
        vec![Stores::of(InMemoryStore::new()), Stores::of(SqliteStore::in_memory().await.unwrap())];
    stores.extend(postgres().await.map(Stores::of));
    stores
}

impl Stores {
    fn of(store: impl ChatStore + RunStore + Clone + 'static) -> Self {
        Self { run_store: Arc::new(store.clone()), memory: Box::new(move || ChatMemory::new(store.clone())) }
    }

    fn builder(&self, model: &ScriptedModel, effects: &Effects) -> AgentBuilder {
        Agent::builder(model.clone())
            .tools(tools![refund, take_back, pay, pick])
            .context(effects.clone())
            .memory((self.memory)())
            .run_store(Arc::clone(&self.run_store))
    }
}

async fn texts(memory: &ChatMemory, conversation: &str) -> Vec<String> {
    let messages = memory.messages(conversation).await.unwrap();
    messages.iter().map(|message| message.text().into_owned()).collect()
}

/// The refund is made, the model is down, the customer asks again, the model is still down, and nobody does anything for too long.
#[tokio::test]
async fn a_refund_stands_until_a_person_decides_otherwise() {
    for stores in stores().await {
        let (model, effects) = (ScriptedModel::new(), Effects::default());
        let model = model.calls("refund", "{}").fails("down").fails("down").says("It was refunded.");
        let agent = stores.builder(&model, &effects).build().unwrap();
        let failed = agent.ask("Refund my order").conversation("ada").await.unwrap_err();
        assert!(matches!(failed.kind(), RunErrorKind::Model(_)), "{failed}");
        let id = failed.run().id().to_string();
        let again = agent.ask("What about my refund?").conversation("ada").await.unwrap_err();
        assert!(matches!(again.kind(), RunErrorKind::Model(_)), "{again}");
        assert_eq!(again.run().id().as_str(), id, "the question goes on with the run that has failed");
        assert_eq!(run_ids(&stores.run_store).await, [&*id]);

        let later = stores.builder(&model, &effects).max_run_age(Duration::ZERO).build().unwrap();
        assert_eq!(later.recover().once().await.unwrap(), 0);
        let refused = later.ask("Hello?").conversation("ada").await.unwrap_err();
        assert!(
            matches!(refused.kind(), RunErrorKind::ConversationWaits { run, .. } if *run == id),
            "{refused}"
        );
        let expired = later.stored_run(&id).await.unwrap().unwrap();
        assert_eq!(expired.status, RunStatus::Expired);
        let error = later.resume(expired.run).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Expired), "{error}");
        assert!(!error.is_resumable());
        assert_eq!(effects.all(), ["refund"]);

        let expired = later.stored_run(&id).await.unwrap().unwrap();
        assert_eq!(expired.status, RunStatus::Expired, "the attempt changes nothing");
        let answer = later.resume(expired.run).ignore_expiry().await.unwrap();
        assert_eq!(answer.text(), "It was refunded.");
        assert_eq!(effects.all(), ["refund"]);
        assert_eq!(
            texts(&(stores.memory)(), "ada").await,
            ["Refund my order", "", "refunded", "What about my refund?", "It was refunded."]
        );
        assert!(run_ids(&stores.run_store).await.is_empty());
    }
}

#[tokio::test]
async fn a_person_undoes_or_ends_an_expired_run() {
    for stores in stores().await {
        for undoes in [true, false] {
            let effects = Effects::default();
            let model = ScriptedModel::new().calls("refund", "{}").fails("down");
            let builder = stores.builder(&model, &effects).max_run_age(Duration::ZERO);
            let agent = builder.keep_finished(Duration::from_secs(60)).build().unwrap();
            let run = agent.ask("Refund my order").await.unwrap_err().into_run();
            let id = run.id().to_string();
            match undoes {
                true => agent.undo_and_end(run).await.unwrap(),
                false => agent.end(run).await.unwrap(),
            }
            assert_eq!(effects.all(), if undoes { vec!["refund", "take_back"] } else { vec!["refund"] });
            let kept = agent.stored_run(&id).await.unwrap().unwrap();
            assert_eq!(kept.status, RunStatus::Finished);
            assert!(agent.resume(kept.run).await.is_err(), "it has no answer");
            assert_eq!(effects.all().len(), if undoes { 2 } else { 1 });
            stores.run_store.remove_run(&id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_expired_run_without_effects_ends() {
    for stores in stores().await {
        let model = ScriptedModel::new().fails("down").says("Another answer.");
        let builder = stores.builder(&model, &Effects::default()).max_run_age(Duration::ZERO);
        let agent = builder.build().unwrap();
        let run = agent.ask("Hello").conversation("ada").await.unwrap_err().into_run();
        assert_eq!(agent.ask("Hello?").conversation("ada").await.unwrap().text(), "Another answer.");
        let error = agent.resume(run).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
        assert!(run_ids(&stores.run_store).await.is_empty());
    }
}

/// What made the first question fail does not stop the conversation.
#[tokio::test]
async fn a_failed_run_that_changed_nothing_is_forgotten_by_the_next_question() {
    for stores in stores().await {
        let model = ScriptedModel::new().fails("this image cannot be read");
        let model = model.expects(|request| request.messages().len() == 1).says("Good morning!");
        let agent = stores.builder(&model, &Effects::default()).build().unwrap();
        agent.ask("What is in the image?").conversation("ada").await.unwrap_err();
        assert_eq!(agent.ask("Hello").conversation("ada").await.unwrap().text(), "Good morning!");
        assert!(run_ids(&stores.run_store).await.is_empty());
    }
}

#[tokio::test]
async fn a_question_goes_on_with_an_interrupted_run_in_the_form_that_it_demands() {
    for stores in stores().await {
        let effects = Effects::default();
        let model = ScriptedModel::new()
            .calls("refund", "{}")
            .expects(|request| request.messages().last().unwrap().text() == "How many?")
            .says("3");
        let agent = stores.builder(&model, &effects).build().unwrap();
        let mut interrupted = agent.ask("Refund all").conversation("ada").start();
        assert!(interrupted.advance().await.unwrap());
        assert!(interrupted.advance().await.unwrap());
        let id = interrupted.run().id().clone();
        drop(interrupted);
        let status = agent.stored_run(id.as_str()).await.unwrap().unwrap().status;
        assert_eq!(status, RunStatus::Interrupted, "dropping it keeps the run");
        let count: u32 = agent.ask("How many?").conversation("ada").answer_as().await.unwrap();
        assert_eq!((count, effects.all()), (3, vec!["refund"]));
        assert!(run_ids(&stores.run_store).await.is_empty());
    }
}

/// Two processes ask in one conversation at the same moment: one of them may answer, and never both.
#[tokio::test]
async fn two_processes_do_not_answer_in_one_conversation_at_once() {
    for stores in stores().await {
        for round in 0..10 {
            let effects = Effects::default();
            let models = [0, 1].map(|_| ScriptedModel::new().calls("refund", "{}").says("Done."));
            let [first, second] =
                [0, 1].map(|number| stores.builder(&models[number], &effects).build().unwrap());
            let conversation = format!("round-{round}");
            let ask = |agent: &Agent| agent.ask("Refund my order").conversation(&*conversation);
            let (first, second) = tokio::join!(ask(&first), ask(&second));
            let is_refused = |error: &RunErrorKind| matches!(error, RunErrorKind::ConversationWaits { .. });
            let refused: Vec<_> = [first, second].into_iter().filter_map(Result::err).collect();
            assert!(refused.iter().all(|error| is_refused(error.kind())), "{refused:?}");
            // The second can also begin after the first has ended.
            assert!(effects.all().len() + refused.len() >= 2, "{refused:?}");
            assert!(run_ids(&stores.run_store).await.is_empty());
        }
    }
}

#[tokio::test]
async fn a_question_beside_a_run_in_another_process_is_refused() {
    for stores in stores().await {
        let (effects, gate) = (Effects::default(), Arc::new(Gate::default()));
        let working = stores.builder(&ScriptedModel::new().calls("wait", "{}").says("Done."), &effects);
        let working = working.tools(tools![wait]).context(Arc::clone(&gate)).build().unwrap();
        let driven = tokio::spawn(async move {
            working.ask("Go").conversation("ada").await.map(|answer| answer.text().to_owned())
        });
        gate.begun.notified().await;
        let other = stores.builder(&ScriptedModel::new().says("Later."), &effects).build().unwrap();
        let refused = other.ask("And?").conversation("ada").await.unwrap_err();
        assert!(matches!(refused.kind(), RunErrorKind::ConversationWaits { .. }), "{refused}");
        gate.release.notify_one();
        assert_eq!(driven.await.unwrap().unwrap(), "Done.");
        assert_eq!(other.ask("And?").conversation("ada").await.unwrap().text(), "Later.");
    }
}

/// Each run that somebody has to drive, and one that waits for a person.
#[tokio::test]
async fn recovery_brings_runs_to_their_end() {
    for stores in stores().await {
        let effects = Effects::default();
        let agent_with = |model: ScriptedModel| stores.builder(&model, &effects).build().unwrap();

        let mut interrupted = agent_with(ScriptedModel::new().calls("refund", "{}")).ask("Go").start();
        assert!(interrupted.advance().await.unwrap());
        assert!(interrupted.advance().await.unwrap());
        let interrupted_id = interrupted.run().id().to_string();
        drop(interrupted);
        let waiting = agent_with(ScriptedModel::new().calls("pay", "{}")).ask("Pay").await.unwrap_err();
        let decided = agent_with(ScriptedModel::new().calls("pay", "{}")).ask("Pay, too").await.unwrap_err();
        let decided_id = decided.run().id().to_string();
        let wait = decided.run().waits().remove(0).id;
        let due = agent_with(ScriptedModel::new().calls("pick", "{}")).ask("Pick").await.unwrap_err();
        assert!(matches!(due.kind(), RunErrorKind::Waiting), "{due}");
        let state = serde_json::to_string(due.run()).unwrap();
        let (before, since) = state.split_once(r#""since":"#).unwrap();
        let long_ago = since.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let mut asked_long_ago: Run =
            serde_json::from_str(&format!(r#"{before}"since":0{long_ago}"#)).unwrap();
        stores.run_store.save_run(due.run().id().as_str(), &mut asked_long_ago).await.unwrap();
        let cancelled = agent_with(ScriptedModel::new().calls("refund", "{}").fails("down"));
        let cancelled_run = cancelled.ask("Refund").await.unwrap_err().into_run();
        let cancelled_id = cancelled_run.id().to_string();
        assert_eq!(effects.all(), ["refund", "refund"]);
        cancelled.cancel(&cancelled_id).await.unwrap();
        // Nobody continues it here.
        drop(cancelled.decide(&decided_id, &wait, Decision::approve()).await.unwrap());

        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&outcomes);
        let model = ScriptedModel::new().says("End.").says("End.").says("End.");
        let recovery = agent_with(model).recover().on_outcome(move |id: &str, outcome: &Outcome| {
            seen.lock().unwrap().push((id.to_owned(), matches!(outcome, Outcome::Answer(_))));
        });
        assert_eq!(recovery.once().await.unwrap(), 4);
        let mut outcomes = outcomes.lock().unwrap().clone();
        outcomes.sort();
        let mut expected = vec![
            (interrupted_id, true),
            (decided_id, true),
            (due.run().id().to_string(), true),
            (cancelled_id, false),
        ];
        expected.sort();
        assert_eq!(outcomes, expected);
        let mut effects = effects.all();
        effects.sort_unstable();
        assert_eq!(effects, ["pay", "refund", "refund", "take_back"]);
        let left = agent_with(ScriptedModel::new()).list_runs(&RunFilter::new()).await.unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!((&*left[0].id, left[0].status), (waiting.run().id().as_str(), RunStatus::Waiting));
        assert_eq!(recovery.once().await.unwrap(), 0);
        stores.run_store.remove_run(&left[0].id).await.unwrap();
    }
}

/// Asks somebody, and does not decide before it is released.
struct Slow {
    asked: Arc<AtomicU32>,
    decision: Option<Decision>,
}

impl Decider for Slow {
    fn decide<'a>(&'a self, _: &'a Wait) -> DeciderFuture<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.decision.clone() {
            Some(decision) => Box::pin(async { decision }),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// A process dies while a decider is asked: the next one asks it again.
#[tokio::test]
async fn recovery_asks_deciders_again_unless_they_have_left_it_to_people() {
    for stores in stores().await {
        let (effects, asked) = (Effects::default(), Arc::new(AtomicU32::new(0)));
        let agent_with = |model: ScriptedModel, decision: Option<Decision>| {
            let decider = Slow { asked: Arc::clone(&asked), decision };
            stores.builder(&model, &effects).decider(decider).build().unwrap()
        };
        let first = agent_with(ScriptedModel::new().calls("pay", "{}"), None);
        let mut dying = Box::pin(first.ask("Pay").conversation("ada").into_future());
        while asked.load(Ordering::SeqCst) == 0 {
            let _ = tokio::time::timeout(Duration::from_millis(1), &mut dying).await;
        }
        drop(dying);
        let waits = RunFilter::new().status(RunStatus::Waiting);
        while stores.run_store.list_runs(&waits).await.unwrap().iter().all(|run| run.is_leased) {
            tokio::task::yield_now().await;
        }

        let without = stores.builder(&ScriptedModel::new(), &effects).build().unwrap();
        assert_eq!(without.recover().once().await.unwrap(), 0, "it has nobody to ask");
        let deferring = agent_with(ScriptedModel::new(), Some(Decision::defer()));
        assert_eq!(deferring.recover().once().await.unwrap(), 1);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let approving = agent_with(ScriptedModel::new().says("Paid."), Some(Decision::approve()));
        assert_eq!(approving.recover().once().await.unwrap(), 0, "it was left to people");
        let run = stored_runs(&without).await.remove(0).run;
        let waiting = without.resume(run).await.unwrap_err();
        assert!(matches!(waiting.kind(), RunErrorKind::Waiting), "{waiting}");
        let left = "a driver without deciders has asked nobody, and nothing new is open";
        assert_eq!(approving.recover().once().await.unwrap(), 0, "{left}");

        // A driver that dies while it asks leaves nothing to people.
        let run = stored_runs(&first).await.remove(0).run;
        let mut dying = Box::pin(first.resume(run).into_future());
        while asked.load(Ordering::SeqCst) == 2 {
            let _ = tokio::time::timeout(Duration::from_millis(1), &mut dying).await;
        }
        drop(dying);
        while stores.run_store.list_runs(&waits).await.unwrap().iter().all(|run| run.is_leased) {
            tokio::task::yield_now().await;
        }
        assert_eq!(approving.recover().once().await.unwrap(), 1);
        assert_eq!((asked.load(Ordering::SeqCst), effects.all()), (4, vec!["pay"]));
        assert_eq!(texts(&(stores.memory)(), "ada").await, ["Pay", "", "paid", "Paid."]);
        assert_eq!(run_ids(&stores.run_store).await, [""; 0]);
    }
}

/// Supports no leases.
struct WithoutLeases(InMemoryStore);

impl RunStore for WithoutLeases {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        self.0.append_run(id, expected, changes)
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        self.0.load_run(id)
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        self.0.entries(id, after, limit)
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        self.0.remove_run(id)
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        self.0.list_runs(filter)
    }
}

/// Another process can be asking them: it holds no lease that shows it.
#[tokio::test]
async fn recovery_in_a_store_without_leases_asks_no_deciders() {
    let store = Arc::new(WithoutLeases(InMemoryStore::new()));
    let asked = Arc::new(AtomicU32::new(0));
    let builder = |model| {
        Agent::builder(model).tools(tools![pay]).context(Effects::default()).run_store(Arc::clone(&store))
    };
    let agent = builder(ScriptedModel::new().calls("pay", "{}")).build().unwrap();
    let run = agent.ask("Pay").await.unwrap_err().into_run();
    let decider = Slow { asked: Arc::clone(&asked), decision: Some(Decision::approve()) };
    let deciding = builder(ScriptedModel::new().says("Paid.")).decider(decider).build().unwrap();
    assert_eq!(deciding.recover().once().await.unwrap(), 0);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(deciding.resume(run).await.unwrap().text(), "Paid.");
}

/// A run that was stored before there was a decider.
#[tokio::test]
async fn recovery_asks_the_deciders_of_the_agent_that_a_run_was_handed_off_to() {
    for stores in stores().await {
        let effects = Effects::default();
        let agent_with = |model: ScriptedModel, decides: bool| {
            let billing = stores.builder(&model, &effects).name("billing");
            let billing = match decides {
                true => billing.decider(on_approval(|_| Decision::approve())),
                false => billing,
            };
            let desk = Agent::builder(model).tools(tools![pay]).context(effects.clone());
            let desk = desk.handoff_to("billing", "Bills", &billing.build().unwrap());
            desk.run_store(Arc::clone(&stores.run_store)).build().unwrap()
        };
        let model = ScriptedModel::new().calls("billing", "{}").calls("pay", "{}");
        let waiting = agent_with(model, false).ask("Pay").await.unwrap_err();
        assert!(matches!(waiting.kind(), RunErrorKind::Waiting), "{waiting}");
        let later = agent_with(ScriptedModel::new().says("Paid."), true);
        assert_eq!(later.recover().once().await.unwrap(), 1);
        assert_eq!(effects.all(), ["pay"]);
        assert_eq!(run_ids(&stores.run_store).await, [""; 0]);

        // Others do not decide for the agent that was asked.
        let waiting = agent_with(ScriptedModel::new().calls("pay", "{}"), true).ask("Pay").await.unwrap_err();
        assert!(matches!(waiting.kind(), RunErrorKind::Waiting), "{waiting}");
        assert_eq!(agent_with(ScriptedModel::new(), true).recover().once().await.unwrap(), 0);
        assert_eq!(effects.all(), ["pay"]);
    }
}

/// Waits for people, or approves at once if the call has an argument.
struct Approves(Arc<AtomicU32>);

impl Decider for Approves {
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
        self.0.fetch_add(1, Ordering::SeqCst);
        match &wait.reason {
            WaitReason::Approval(call) if call.arguments.contains("now") => {
                Box::pin(async { Decision::approve() })
            }
            _ => Box::pin(std::future::pending()),
        }
    }
}

/// Ten runs whose deciders wait for people do not keep others from being decided and continued.
#[tokio::test]
async fn runs_whose_deciders_are_asked_take_no_places_of_others() {
    let stores = Stores::of(InMemoryStore::new());
    let (effects, asked) = (Effects::default(), Arc::new(AtomicU32::new(0)));
    for arguments in ["{}"; 10].into_iter().chain([r#"{"when":"now"}"#]) {
        let model = ScriptedModel::new().calls("pay_at", arguments);
        stores.builder(&model, &effects).tools(tools![pay_at]).build().unwrap().ask("Pay").await.unwrap_err();
    }
    let failing = stores.builder(&ScriptedModel::new().fails("down"), &effects).build().unwrap();
    failing.ask("Hello").await.unwrap_err();
    let agent = stores.builder(&ScriptedModel::new().says("Hello.").says("Paid."), &effects);
    let agent = agent.tools(tools![pay_at]).decider(Approves(Arc::clone(&asked))).build().unwrap();
    agent.recover().start();
    while run_ids(&stores.run_store).await.len() > 10 || asked.load(Ordering::SeqCst) < 11 {
        tokio::task::yield_now().await;
    }
    assert_eq!(effects.all(), ["pay"]);
}

#[tokio::test(start_paused = true)]
async fn one_look_does_not_wait_for_deciders_that_wait_for_people() {
    let stores = Stores::of(InMemoryStore::new());
    let (effects, asked) = (Effects::default(), Arc::new(AtomicU32::new(0)));
    for _ in 0..10 {
        let agent = stores.builder(&ScriptedModel::new().calls("pay", "{}"), &effects).build().unwrap();
        agent.ask("Pay").await.unwrap_err();
    }
    // It begins to wait while it is continued.
    stores
        .builder(&ScriptedModel::new().fails("down"), &effects)
        .build()
        .unwrap()
        .ask("Go")
        .await
        .unwrap_err();
    let agent = stores.builder(&ScriptedModel::new().calls("pay", "{}"), &effects);
    let agent = agent.decider(Approves(Arc::clone(&asked))).build().unwrap();
    let begun = tokio::time::Instant::now();
    assert_eq!(agent.recover().interval(Duration::from_secs(10)).once().await.unwrap(), 11);
    assert_eq!((begun.elapsed().as_secs(), asked.load(Ordering::SeqCst)), (10, 11));
    let waits = RunFilter::new().status(RunStatus::Waiting);
    let listed = stores.run_store.list_runs(&waits).await.unwrap();
    let open = listed.iter().filter(|run| run.awaits_decider && !run.is_leased);
    assert_eq!(open.count(), 11, "nobody has left them to people");
}

/// What the deciders of many runs have decided at once is not executed at once.
#[tokio::test(start_paused = true)]
async fn decided_runs_are_driven_in_the_places_of_a_recovery() {
    #[tool(needs_approval)]
    async fn count(#[inject] running: &Arc<AtomicU32>) {
        running.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
    }

    let stores = Stores::of(InMemoryStore::new());
    let (effects, running) = (Effects::default(), Arc::new(AtomicU32::new(0)));
    let builder = |model: ScriptedModel| {
        stores.builder(&model, &effects).tools(tools![count]).context(Arc::clone(&running))
    };
    for _ in 0..20 {
        builder(ScriptedModel::new().calls("count", "{}")).build().unwrap().ask("Go").await.unwrap_err();
    }
    let agent = builder(ScriptedModel::new()).decider(on_approval(|_| Decision::approve()));
    let agent = agent.build().unwrap();
    agent.recover().start();
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    assert_eq!(running.load(Ordering::SeqCst), 8);
}

/// Only its program knows the budget.
#[tokio::test]
async fn recovery_leaves_a_run_with_a_budget_of_its_own_to_its_program() {
    let store = InMemoryStore::new();
    let key = Budget::tokens(store.clone(), 100_000, Duration::from_secs(3_600)).key("ada");
    let model = ScriptedModel::new().fails("down").says("Hello.");
    let options = ModelOptions::default().with_max_output_tokens(100);
    let agent = Agent::builder(model).options(options).run_store(store).build().unwrap();
    let run = agent.ask("Hello").budget(key.clone()).await.unwrap_err().into_run();
    assert_eq!(agent.recover().once().await.unwrap(), 0);
    assert_eq!(agent.resume(run).budget(key).await.unwrap().text(), "Hello.");
}

/// Other agents may drive a run of an agent without a name, but do not take it by themselves.
#[tokio::test]
async fn a_recovery_takes_only_runs_of_agents_with_its_own_name() {
    for stores in stores().await {
        let names = [Some("desk"), Some("billing"), None];
        let agent_with = |model: ScriptedModel, name: Option<&str>| {
            let builder = stores.builder(&model, &Effects::default());
            name.into_iter().fold(builder, AgentBuilder::name).build().unwrap()
        };
        for name in names {
            agent_with(ScriptedModel::new().fails("down"), name).ask("Hello").await.unwrap_err();
        }
        for (name, left) in names.into_iter().zip([2, 1, 0]) {
            let agent = agent_with(ScriptedModel::new().says("Hello."), name);
            assert_eq!(agent.recover().once().await.unwrap(), 1, "{name:?}");
            assert_eq!(run_ids(&stores.run_store).await.len(), left, "{name:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_again_is_continued_at_growing_intervals() {
    let stores = Stores::of(InMemoryStore::new());
    let model = (0..20).fold(ScriptedModel::new(), |model, _| model.fails("down"));
    let agent = stores.builder(&model, &Effects::default()).build().unwrap();
    agent.ask("Hello").await.unwrap_err();
    let recovery = agent.recover().interval(Duration::from_secs(10)).start();
    // At 0, 10, 30 and 70 seconds.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(model.requests().len(), 1 + 4);
    recovery.stop();
    tokio::time::sleep(Duration::from_secs(10_000)).await;
    assert_eq!(model.requests().len(), 1 + 4);
}

#[tokio::test(start_paused = true)]
async fn a_recovery_that_nobody_holds_goes_on_until_it_is_stopped() {
    let stores = Stores::of(InMemoryStore::new());
    let model = ScriptedModel::new().fails("down").says("Hello.").fails("down").says("Hello.");
    let agent = stores.builder(&model, &Effects::default()).build().unwrap();
    let _ = agent.recover().interval(Duration::from_secs(10)).start();
    for left in [2, 0] {
        agent.ask("Hello").await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(model.remaining(), left);
    }
    assert!(run_ids(&stores.run_store).await.is_empty());
}

/// Like one that fails: its lease is free, and the next driver would panic, too.
#[tokio::test(start_paused = true)]
async fn a_run_whose_driver_panics_is_continued_at_growing_intervals() {
    #[derive(Clone, Default)]
    struct Panics(Arc<AtomicU32>);

    impl ChatModel for Panics {
        fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("on purpose")
        }
    }

    let stores = Stores::of(InMemoryStore::new());
    let model = ScriptedModel::new().fails("down");
    stores.builder(&model, &Effects::default()).build().unwrap().ask("Hello").await.unwrap_err();
    let model = Panics::default();
    let agent =
        Agent::builder(model.clone()).memory((stores.memory)()).run_store(Arc::clone(&stores.run_store));
    let agent = agent.build().unwrap();
    agent.recover().interval(Duration::from_secs(10)).start();
    // At 0, 10, 30 and 70 seconds.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(model.0.load(Ordering::SeqCst), 4);
}

/// What the run has used before does not count for the question.
#[tokio::test]
async fn a_question_that_goes_on_with_a_run_has_limits_of_its_own() {
    for stores in stores().await {
        let effects = Effects::default();
        let model = ScriptedModel::new().calls("refund", "{}").fails("down").calls("pick_color", "{}");
        let agent = stores
            .builder(&model.says("Red."), &effects)
            .tools(tools![pick_color])
            .limits(|l| l.max_turns(2));
        let agent = agent.build().unwrap();
        agent.ask("Refund my order").conversation("ada").await.unwrap_err();
        let answer = agent.ask("Which color?").conversation("ada").await.unwrap();
        assert_eq!((answer.text(), effects.all()), ("Red.", vec!["refund"]));
    }
}

#[tool]
fn pick_color() -> &'static str {
    "red"
}
