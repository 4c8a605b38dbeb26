//! Decisions about stored runs, by `Agent::decide`.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tests::support::stores::{Counting, run_ids, run_stores};
use tokio::sync::Notify;
use tool_core::agent::{CommandErrorKind, Decider, DeciderFuture};
use tool_core::memory::{InMemoryStore, RunStatus};
use tool_core::model::{ToolDefinition, ToolPolicy};
use tool_core::run::{Decision, Run, Wait};
use tool_core::signatures::{DecisionKind, ResolveErrorKind};
use tool_core::store::{PostOutcome, PostedCommand, RunCommand, RunStore};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{ToolFuture, WaitId};
use tool_core::{Agent, FunctionTool, RunErrorKind, Tool, ToolContext, ToolError, ToolOutput, tool, tools};

const ASKED: &str = r#"{"cents": 10}"#;
const EDITED: &str = r#"{"cents": 5}"#;

/// A tool that counts how often its arguments are checked, and records the operations of the store before it is called.
struct Pay {
    definition: ToolDefinition,
    checks: Arc<AtomicUsize>,
    started: Arc<Mutex<Vec<String>>>,
    store: Counting,
}

impl Tool for Pay {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, _: &'a ToolContext) -> ToolFuture<'a> {
        *self.started.lock().unwrap() = self.store.operations();
        ToolFuture::ready(Ok(ToolOutput::text(format!("paid {arguments}"))))
    }

    fn check_arguments(&self, arguments: &str, _: &ToolContext) -> Result<(), ToolError> {
        self.checks.fetch_add(1, Ordering::SeqCst);
        let is_right = arguments.contains("cents");
        is_right.then_some(()).ok_or_else(|| ToolError::invalid_arguments("`cents` is missing"))
    }
}

async fn stores() -> impl Iterator<Item = Arc<dyn RunStore>> {
    run_stores().await.into_iter().map(|(_, store)| store)
}

fn paying(store: impl RunStore + 'static) -> Agent {
    #[tool("Pays", needs_approval)]
    fn pay(cents: u32) -> String {
        format!("paid {cents}")
    }
    let model = ScriptedModel::new().calls("pay", ASKED).says("Done.");
    Agent::builder(model).tools(tools![pay]).run_store(store).build().unwrap()
}

async fn waiting(agent: &Agent) -> Run {
    let error = agent.ask("Pay").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    error.into_run()
}

#[tokio::test]
async fn from_a_decision_to_the_started_call_are_five_store_operations_and_one_check() {
    for inner in stores().await {
        let store = Counting::new(inner);
        let (checks, started) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<_>>::default());
        let parameters = json!({ "type": "object", "properties": { "cents": { "type": "integer" } } });
        let mut policy = ToolPolicy::default();
        policy.needs_approval = true;
        let definition = ToolDefinition::new("pay").with_parameters(parameters).with_policy(policy);
        let pay = Pay { definition, checks: checks.clone(), started: started.clone(), store: store.clone() };
        let model = ScriptedModel::new().calls("pay", ASKED).says("Done.");
        let agent = Agent::builder(model).tools(pay).run_store(store.clone()).build().unwrap();
        let run = waiting(&agent).await;
        store.take();
        let (id, wait) = (run.id().to_string(), &run.waits()[0].id);
        let decided = agent.decide(&id, wait, Decision::approve_with(EDITED).by("ada")).await.unwrap();
        assert_eq!(decided.decisions()[0].1.by.as_deref(), Some("ada"));
        let answer = decided.resume().unwrap().await.unwrap();
        assert_eq!(*started.lock().unwrap(), ["load_run", "post", "posted", "lease", "append_run"]);
        assert_eq!(checks.load(Ordering::SeqCst), 1);
        let [execution] = answer.tool_executions() else { panic!("{answer:?}") };
        assert_eq!(execution.output().unwrap().to_string(), format!("paid {EDITED}"));
        assert_eq!(execution.decisions()[0].kind, DecisionKind::ApprovedWithChanges);
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_not_posted() {
    for store in stores().await {
        let agent = paying(store.clone());
        let run = waiting(&agent).await;
        let (id, wait) = (run.id().as_str(), run.waits().remove(0).id);
        let table = [
            (&*wait, Decision::approve_with(r#"{"cents": "x"}"#), ResolveErrorKind::InvalidArguments),
            (&*wait, Decision::approve_with("[1]"), ResolveErrorKind::InvalidArguments),
            (&*wait, Decision::answer(1), ResolveErrorKind::WrongDecision),
            ("0123", Decision::approve(), ResolveErrorKind::UnknownWait),
        ];
        for (wait, decision, kind) in table {
            let error = agent.decide(id, wait, decision).await.unwrap_err();
            let CommandErrorKind::Refused(refused) = error.kind() else { panic!("{error}") };
            assert_eq!(refused.kind(), kind);
        }
        let both = vec![(wait.clone(), Decision::approve()), ("0123".into(), Decision::approve())];
        assert!(matches!(agent.decide_all(id, both).await.unwrap_err().kind(), CommandErrorKind::Refused(_)));
        assert_eq!(store.posted(id).await.unwrap(), []);
        let error = agent.decide("order-17", &wait, Decision::approve()).await.unwrap_err();
        assert!(matches!(error.kind(), CommandErrorKind::UnknownRun), "{error}");
        let decided = agent.decide(id, &wait, Decision::approve()).await.unwrap();
        assert_eq!(decided.resume().unwrap().await.unwrap().text(), "Done.");
    }
}

/// A decision that a service reads from a request, and posts.
#[tokio::test]
async fn a_decision_cannot_claim_that_its_arguments_were_checked() {
    for store in stores().await {
        let agent = paying(store.clone());
        let run = waiting(&agent).await;
        let (id, wait) = (run.id().clone(), run.waits().remove(0).id);
        let mut forged = serde_json::to_value(Decision::approve_with(r#"{"cents": "x"}"#)).unwrap();
        forged["checked"] = true.into();
        let forged: Decision = serde_json::from_value(forged).unwrap();
        let command = PostedCommand::new(RunCommand::resolve(&wait, forged));
        assert_eq!(store.post(&id, &command).await.unwrap(), PostOutcome::Posted);
        let error = agent.resume(run).await.unwrap_err();
        assert!(error.to_string().starts_with("the call cannot be approved with these arguments"), "{error}");
        assert_eq!(error.tool_executions().len(), 0);
    }
}

#[tokio::test]
async fn the_first_decision_holds_and_is_named_to_the_second() {
    for store in stores().await {
        let agent = paying(store.clone());
        let run = waiting(&agent).await;
        let (id, wait) = (run.id().as_str(), &run.waits()[0].id);
        let first = agent.decide(id, wait, Decision::deny("too much").by("ada")).await.unwrap();
        // Nobody has taken it yet.
        let second = agent.decide(id, wait, Decision::approve().by("eve")).await.unwrap_err();
        assert_eq!(second.to_string(), "this was decided before by ada");
        assert_eq!(second.decided().unwrap(), &first.decisions()[0].1);
        assert_eq!(store.posted(id).await.unwrap().len(), 1);
        // The loser of a race does not keep the winner from continuing the run.
        let answer = first.resume().unwrap().await.unwrap();
        assert_eq!(answer.tool_executions()[0].decisions()[0].by.as_deref(), Some("ada"));
    }
}

/// A program that only shows the run, or whose process dies, leaves it to others.
#[tokio::test]
async fn a_decision_that_nobody_continues_stays_in_the_inbox() {
    for store in stores().await {
        let agent = paying(store.clone());
        let run = waiting(&agent).await;
        let (id, wait) = (run.id().as_str(), &run.waits()[0].id);
        drop(agent.decide(id, wait, Decision::approve()).await.unwrap());
        assert_eq!(store.posted(id).await.unwrap().len(), 1);
        let stored = agent.stored_run(id).await.unwrap().unwrap();
        assert_eq!(stored.status, RunStatus::Waiting, "the lease is free");
        assert_eq!(agent.resume(stored.run).await.unwrap().text(), "Done.");
    }
}

/// An agent whose first turn has a call that works until it is released, and one that asks for a secret.
fn secretive(store: InMemoryStore, working: Arc<Notify>, release: Arc<Notify>) -> Agent {
    let work = FunctionTool::new("work", move |_: ()| {
        let (working, release) = (working.clone(), release.clone());
        async move {
            working.notify_one();
            release.notified().await;
        }
    });
    let log_in = FunctionTool::new("log_in", |_: (), context: ToolContext| async move {
        let password: String = context.asker().ask("Password?").secret().await?;
        Ok::<_, ToolError>(format!("{} letters", password.len()))
    });
    let model = ScriptedModel::new().calls_all([("log_in", "{}"), ("work", "{}")]).says("Done.");
    Agent::builder(model).tools(log_in).tools(work).run_store(store).build().unwrap()
}

/// Returns the id of the only run, and of what it waits for, as soon as it does.
async fn first_wait(store: &InMemoryStore) -> (String, WaitId) {
    let id = run_ids(store).await.remove(0);
    loop {
        let waits = store.load_run(&id).await.unwrap().unwrap().waits();
        if let Some(wait) = waits.into_iter().next() {
            return (id, wait.id);
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_answer_is_not_stored_and_waits_for_the_driver_of_the_run() {
    let (store, working, release) =
        (InMemoryStore::new(), Arc::<Notify>::default(), Arc::<Notify>::default());
    let agent = secretive(store.clone(), working.clone(), release.clone());
    let driver = tokio::spawn(agent.ask("Go").into_future());
    working.notified().await;
    let (id, wait) = first_wait(&store).await;
    let error = agent.decide(&id, &wait, Decision::answer("hunter2")).await.unwrap_err();
    let text =
        "another driver works on the run, and a secret answer is not stored for it; answer again".to_owned();
    assert!(matches!(error.kind(), CommandErrorKind::RunningElsewhere), "{error}");
    assert_eq!(error.to_string(), text);
    let decide = agent.decide(&id, &wait, Decision::answer("hunter2").by("ada"));
    let (decided, ()) = tokio::join!(decide, async { release.notify_one() });
    assert!(matches!(driver.await.unwrap().unwrap_err().kind(), RunErrorKind::Waiting));
    let decided = decided.unwrap();
    assert_eq!(decided.decisions()[0].1.kind, DecisionKind::Answered);
    assert_eq!(store.posted(&id).await.unwrap(), []);
    let second = agent.stored_run(&id).await.unwrap().unwrap();
    assert_eq!(second.status, RunStatus::RunningElsewhere, "the decision holds the lease");
    assert!(!serde_json::to_string(&second.run).unwrap().contains("hunter2"));
    let answer = decided.resume().unwrap().await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "7 letters");
}

#[tokio::test]
async fn a_driver_elsewhere_takes_the_decision() {
    let (store, working, release) =
        (InMemoryStore::new(), Arc::<Notify>::default(), Arc::<Notify>::default());
    let agent = secretive(store.clone(), working.clone(), release.clone());
    let driver = tokio::spawn(agent.ask("Go").into_future());
    working.notified().await;
    let (id, wait) = first_wait(&store).await;
    // A refusal is no secret.
    let decided = agent.decide(&id, &wait, Decision::decline()).await.unwrap();
    assert!(decided.resume().is_none());
    release.notify_one();
    assert_eq!(driver.await.unwrap().unwrap().text(), "Done.");
}

/// The time of a person does not count, also if what the person decides is refused.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_refused_decision_does_not_count() {
    struct Slow(AtomicUsize);

    impl Decider for Slow {
        fn decide<'a>(&'a self, _: &'a Wait) -> DeciderFuture<'a> {
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(600)).await;
                let is_first = self.0.fetch_add(1, Ordering::SeqCst) == 0;
                Decision::approve_with(if is_first { r#"{"euros": 5}"# } else { EDITED })
            })
        }
    }

    let agent = paying(InMemoryStore::new());
    let asked =
        agent.ask("Go").decider(Slow(AtomicUsize::new(0))).limits(|l| l.max_time(Duration::from_secs(60)));
    let mut run = asked.start();
    assert!(run.advance().await.unwrap());
    let error = run.advance().await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Decision(_)), "{error}");
    // The future of a step can be dropped, too.
    let step = tokio::time::timeout(Duration::from_secs(300), run.advance()).await;
    assert!(step.is_err());
    while run.advance().await.unwrap() {}
    assert_eq!(run.finish().await.unwrap().text(), "Done.");
}
