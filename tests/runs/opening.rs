//! What an application gives a run that begins, and what of it stays.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::Notify;
use tool_core::agent::{CommandErrorKind, RunInfo, RunResources, RunSetup};
use tool_core::engine::AgentExt;
use tool_core::layer::{Audit, CallVerdict, QuestionVerdict, guard};
use tool_core::memory::{InMemoryStore, RunStatus};
use tool_core::run::{Decision, Wait};
use tool_core::signatures::{AuditEvent, AuditRecord, DecisionKind, Timestamp};
use tool_core::store::{PostOutcome, PostedCommand, RunCommand, RunStore};
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolErrorKind;
use tool_core::{Agent, Event, RunErrorKind, ToolCall, ToolSet, tool, tools};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tool("Pays money back", needs_approval)]
fn refund() -> &'static str {
    "refunded"
}

#[tool("Finds an order")]
fn order() -> &'static str {
    "order 7"
}

#[tool("Finds an invoice")]
fn invoice() -> &'static str {
    "invoice 8"
}

#[tool("Books a seat", undo = "leave")]
fn book() -> &'static str {
    "booked"
}

#[tool("Gives a seat back")]
fn leave() {}

/// An application that gives what it is told to give.
#[derive(Clone, Default)]
struct Desk(Arc<Mutex<Parts>>);

#[derive(Clone, Default)]
struct Parts {
    instructions: Option<&'static str>,
    tools: ToolSet,
    fails: bool,
    asked: usize,
}

impl Desk {
    fn set(&self, change: impl FnOnce(&mut Parts)) {
        change(&mut self.0.lock().unwrap());
    }
}

impl RunSetup for Desk {
    async fn open(&self, run: &RunInfo) -> Result<RunResources, BoxError> {
        self.set(|parts| parts.asked += 1);
        let Parts { instructions, tools, fails, .. } = self.0.lock().unwrap().clone();
        if fails {
            return Err("the database is down".into());
        }
        let parts =
            instructions.into_iter().fold(RunResources::new().tools(tools), RunResources::instructions);
        let key = run.user().zip(run.conversation()).map(|(user, chat)| format!("{user}/{chat}"));
        Ok(key.into_iter().fold(parts, RunResources::memory_key))
    }
}

/// The tools that a request offers.
#[derive(Clone, Default)]
struct Offered(Arc<Mutex<Vec<Vec<String>>>>);

impl Offered {
    fn watch(&self, model: ScriptedModel) -> ScriptedModel {
        let offered = self.clone();
        model.expects(move |request| {
            let names = request.tools().iter().map(|tool| tool.name().to_owned());
            offered.0.lock().unwrap().push(names.collect());
            true
        })
    }

    fn all(&self) -> Vec<Vec<String>> {
        self.0.lock().unwrap().clone()
    }
}

/// Caches of providers and signed reasoning depend on what was sent first. Rights do not stay.
#[tokio::test]
async fn what_the_model_sees_stays_and_what_may_be_called_does_not() {
    let store = InMemoryStore::new();
    let desk = Desk::default();
    desk.set(|parts| (parts.instructions, parts.tools) = (Some("You serve Ada."), tools![refund, order]));
    let offered = Offered::default();
    let model = offered.watch(ScriptedModel::new()).calls_all([("refund", "{}"), ("order", "{}")]);
    let model = offered.watch(offered.watch(model).calls("invoice", "{}")).says("Done.");
    let agent = || {
        let agent = Agent::builder(model.clone()).instructions("Be kind.").run_store(store.clone());
        agent.run_setup(desk.clone()).build().unwrap()
    };
    let run = agent().ask("Help").instructions("Be brief.").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    desk.set(|parts| (parts.instructions, parts.tools) = (Some("You serve Eve."), tools![order, invoice]));
    let decided = agent().decide(run.id().as_str(), &wait, Decision::approve()).await.unwrap();
    let answer = decided.resume().unwrap().await.unwrap();
    let error = |position: usize| answer.tool_executions()[position].error().map(|error| error.kind());
    assert_eq!((error(0), error(1)), (Some(ToolErrorKind::Denied), None));
    assert_eq!(error(2), Some(ToolErrorKind::UnknownTool), "a tool that was not given when the run began");
    for request in model.requests() {
        assert_eq!(request[0].text(), "Be brief.\n\nYou serve Ada.\n\nBe kind.");
    }
    assert_eq!(offered.all(), [["refund", "order"]; 3]);
    // The next run has the others.
    drop(offered.watch(model.clone()).says("Hello."));
    agent().ask("Help").await.unwrap();
    assert_eq!(model.requests()[3][0].text(), "You serve Eve.\n\nBe kind.");
    assert_eq!(offered.all()[3], ["order", "invoice"]);
}

/// A run whose question names its tools has only these.
#[tokio::test]
async fn the_tools_of_a_question_can_be_in_place_of_them() {
    let desk = Desk::default();
    desk.set(|parts| parts.tools = tools![refund]);
    let offered = Offered::default();
    let model = offered.watch(ScriptedModel::new()).says("Done.");
    let agent = Agent::builder(model).tools(tools![invoice]).run_setup(desk).build().unwrap();
    agent.ask("Help").only_tools(tools![order]).await.unwrap();
    assert_eq!(offered.all(), [["order"]]);
}

#[tokio::test]
async fn further_instructions_and_tools_go_with_a_handoff() {
    let desk = Desk::default();
    desk.set(|parts| (parts.instructions, parts.tools) = (Some("You serve Ada."), tools![order]));
    let offered = Offered::default();
    let other_model = offered.watch(ScriptedModel::new()).calls("order", "{}").says("It is order 7.");
    let other = Agent::builder(other_model.clone()).instructions("You do billing.").build().unwrap();
    let model = ScriptedModel::new().calls("billing", "{}");
    let agent =
        Agent::builder(model).handoff_to("billing", "Takes over", &other).run_setup(desk).build().unwrap();
    assert_eq!(agent.ask("Help").await.unwrap().text(), "It is order 7.");
    assert_eq!(other_model.requests()[0][0].text(), "You serve Ada.\n\nYou do billing.");
    assert_eq!(offered.all(), [["order"]]);
}

/// Another user's conversation of the same id is another one.
#[tokio::test]
async fn the_memory_has_a_key_of_the_application() {
    let model = ScriptedModel::new().says("Hello Ada.").says("Hello Eve.").says("Ada again.");
    let agent = Agent::builder(model.clone())
        .memory(InMemoryStore::new())
        .run_setup(Desk::default())
        .build()
        .unwrap();
    agent.ask("I am Ada").user("ada").conversation("1").await.unwrap();
    agent.ask("I am Eve").user("eve").conversation("1").await.unwrap();
    agent.ask("Who am I?").user("ada").conversation("1").await.unwrap();
    let texts = |request: usize| -> Vec<_> {
        model.requests()[request].iter().map(|message| message.text().into_owned()).collect()
    };
    assert_eq!(texts(1), ["I am Eve"]);
    assert_eq!(texts(2), ["I am Ada", "Hello Ada.", "Who am I?"]);
}

/// A run that has to undo its calls, and is not told with which values.
#[tokio::test]
async fn a_cancelled_run_that_cannot_undo_its_calls_says_so() {
    let desk = Desk::default();
    let model = ScriptedModel::new().calls("book", "{}").fails("down");
    let agent =
        Agent::builder(model).tools(tools![book]).undo_tools(tools![leave]).run_store(InMemoryStore::new());
    let agent = agent.run_setup(desk.clone()).build().unwrap();
    let run = agent.ask("Book").await.unwrap_err().into_run();
    let id = run.id().to_string();
    desk.set(|parts| parts.fails = true);
    let error = agent.undo_and_end(run).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::RunSetup(_)), "{error}");
    let stored = agent.stored_run(&id).await.unwrap().unwrap();
    assert_eq!(stored.status, RunStatus::NotUndone);
    let listed =
        agent.list_runs(&tool_core::memory::RunFilter::new().status(RunStatus::NotUndone)).await.unwrap();
    assert_eq!(listed.len(), 1);
    desk.set(|parts| parts.fails = false);
    agent.recover().once().await.unwrap();
    assert!(agent.stored_run(&id).await.unwrap().is_none());
}

/// Another process that executes calls of a run knows its tools by what the application gives there.
#[tokio::test]
async fn calls_in_another_process_take_no_tool_for_another() {
    #[tool("Leaves the company", name = "leave")]
    fn quit() -> &'static str {
        "quit"
    }
    struct Twice;
    impl RunSetup for Twice {
        async fn open(&self, _: &RunInfo) -> Result<RunResources, BoxError> {
            Ok(RunResources::new().tools(tools![order]).tools(tools![order]))
        }
    }
    let (desk, never) = (Desk::default(), tool_core::CancellationToken::new());
    let model = ScriptedModel::new().calls("book", "{}").fails("down");
    let agent = Agent::builder(model).tools(tools![book]).undo_tools(tools![leave]).run_setup(desk.clone());
    let agent = agent.build().unwrap();
    let mut run = agent.ask("Book").await.unwrap_err().into_run();
    run.cancel();
    assert!(matches!(run.next(&Default::default()), tool_core::run::Step::CallTools(_)));
    let request = run.request_call("undo_call_1_0").unwrap();
    desk.set(|parts| parts.tools = tools![quit]);
    let context = tool_core::ToolContext::new();
    let execution = agent.execute_request(&[], request, &context, &never, Default::default()).await;
    assert_eq!(execution.outcome().unwrap().to_string(), "Success");

    let asking =
        Agent::builder(ScriptedModel::new().calls("order", "{}")).tools(tools![order]).build().unwrap();
    let mut run = asking.ask("Which?").start();
    run.advance().await.unwrap();
    let mut request = run.into_run().request_call("call_1_0").unwrap();
    request.definition = Some(tools![order].definitions()[0].hash());
    let agent = Agent::builder(ScriptedModel::new()).run_setup(desk).build().unwrap();
    let execution = agent.execute_request(&[], request.clone(), &context, &never, Default::default()).await;
    assert_eq!(execution.error().unwrap().kind(), ToolErrorKind::Denied);
    let agent = Agent::builder(ScriptedModel::new()).run_setup(Twice).build().unwrap();
    let execution = agent.execute_request(&[], request, &context, &never, Default::default()).await;
    let expected = "the call was not executed: the run cannot be opened: ";
    let error = execution.error().unwrap().to_string();
    assert!(error.starts_with(expected) && error.contains("`order`"), "{error}");
}

/// Wherever a decision was made: by an approver, in the inbox of a run that nobody drives, and by time.
#[tokio::test]
async fn every_decision_and_every_call_is_in_one_stream_of_records() {
    let records = Arc::<Mutex<Vec<AuditRecord>>>::default();
    let (sink, seen) = (Arc::clone(&records), Arc::<Mutex<Vec<String>>>::default());
    let model = ScriptedModel::new().calls_all([("refund", "{}"), ("order", "{}")]).says("Done.");
    let agent = Agent::builder(model).tools(tools![refund, order]).run_store(InMemoryStore::new());
    let agent = agent.layer(Audit::new(move |record| sink.lock().unwrap().push(record))).build().unwrap();
    let run = agent.ask("Refund").user("ada").await.unwrap_err().into_run();
    let decision = Decision::deny("too late\nfor that").by("eve");
    let decided = agent.decide(run.id().as_str(), &run.waits().remove(0).id, decision).await.unwrap();
    let events = Arc::clone(&seen);
    decided
        .resume()
        .unwrap()
        .on_event(move |event| {
            if let Event::CallDecided(decision) = event {
                events.lock().unwrap().push(format!("{} {:?}", decision.tool, decision.record.kind));
            }
        })
        .await
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), ["refund Denied"]);
    let records = records.lock().unwrap();
    let lines: Vec<_> = records.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "ada: the call `order` (call_1_1) succeeded",
            r"ada: eve denied the call `refund` (call_1_0): too late\nfor that",
            "ada: the call `refund` (call_1_0) failed: denied",
        ]
    );
    let AuditEvent::Decision(decision) = &records[1].event else { panic!("{:?}", records[1]) };
    assert_eq!((decision.kind, decision.by.as_deref()), (DecisionKind::Denied, Some("eve")));
    let json = serde_json::to_string(&records[1]).unwrap();
    assert_eq!(serde_json::from_str::<AuditRecord>(&json).unwrap(), records[1]);
}

/// An application whose users decide about their own runs alone.
struct Owners;

impl RunSetup for Owners {
    async fn open(&self, _: &RunInfo) -> Result<RunResources, BoxError> {
        Ok(RunResources::new())
    }

    async fn may_decide(&self, run: &RunInfo, wait: &Wait, by: Option<&str>) -> bool {
        match by {
            Some("hangs") => std::future::pending().await,
            Some("panics") => panic!("the directory of users is gone"),
            by => wait.tool == "refund" && run.user().is_some_and(|user| by == Some(user.as_str())),
        }
    }
}

/// Also if another program, under other rules, has stored the decision.
#[tokio::test(start_paused = true)]
async fn only_those_decide_whom_the_application_lets() {
    let (log, store) = (Arc::new(Mutex::new(Vec::new())), InMemoryStore::new());
    let seen = Arc::clone(&log);
    let audit = move || std::mem::take(&mut *seen.lock().unwrap());
    let model = ScriptedModel::new().calls("refund", "{}").says("Refunded.");
    let agent = Agent::builder(model)
        .tools(tools![refund])
        .run_setup(Owners)
        .run_store(store.clone())
        .layer(Audit::new(move |record: AuditRecord| log.lock().unwrap().push(record.to_string())))
        .build()
        .unwrap();
    let waiting = agent.ask("Refund").user("ada").await.unwrap_err().into_run();
    let (run, wait) = (waiting.id().as_str(), waiting.waits().remove(0).id);
    assert_eq!(audit(), [""; 0]);
    let approve = |by: &str| Decision::approve().by(by);
    for (decision, by) in [
        (approve("bob"), "bob"),
        (Decision::deny("no").by("bob"), "bob"),
        (Decision::approve(), "somebody"),
        (approve("hangs"), "hangs"),
        (approve("panics"), "panics"),
    ] {
        let refused = agent.decide(run, &wait, decision).await.unwrap_err();
        assert!(matches!(refused.kind(), CommandErrorKind::NotAllowed { .. }), "{refused}");
        assert_eq!(audit(), [format!("ada: {by} may not decide about the call `refund` (call_1_0)")]);
    }
    assert_eq!(store.posted(run).await.unwrap().len(), 0);
    // The driver asks again.
    let posted = PostedCommand::new(RunCommand::resolve(&wait, approve("bob")));
    assert_eq!(store.post(run, &posted).await.unwrap(), PostOutcome::Posted);
    let stored = store.load_run(run).await.unwrap().unwrap();
    let waiting = agent.resume(stored).await.unwrap_err();
    assert!(matches!(waiting.kind(), RunErrorKind::Waiting), "{waiting}");
    assert_eq!(audit(), ["ada: bob may not decide about the call `refund` (call_1_0)"]);
    assert_eq!(store.posted(run).await.unwrap().len(), 0);
    let decided = agent.decide(run, &wait, approve("ada")).await.unwrap();
    assert_eq!(decided.resume().unwrap().await.unwrap().text(), "Refunded.");
    let lines =
        ["ada: ada approved the call `refund` (call_1_0)", "ada: the call `refund` (call_1_0) succeeded"];
    assert_eq!(audit(), lines);
}

/// Lets Eve decide once it is released.
struct Slowly(Arc<Notify>);

impl RunSetup for Slowly {
    async fn open(&self, _: &RunInfo) -> Result<RunResources, BoxError> {
        Ok(RunResources::new())
    }

    async fn may_decide(&self, _: &RunInfo, _: &Wait, by: Option<&str>) -> bool {
        if by == Some("eve") {
            self.0.notified().await;
            // The driver asks again.
            self.0.notify_one();
        }
        true
    }
}

/// While the application is asked about one decision, another one is taken by a driver that goes on.
#[tokio::test]
async fn a_decision_that_comes_second_is_refused_also_if_the_application_was_asked_before() {
    #[tool("Pays", needs_approval)]
    async fn pay(#[inject] gate: &Arc<[Notify; 2]>) {
        gate[0].notify_one();
        gate[1].notified().await;
    }
    let (gate, leave) = (Arc::new([Notify::new(), Notify::new()]), Arc::new(Notify::new()));
    let agent = Agent::builder(ScriptedModel::new().calls("pay", "{}").says("Paid."))
        .tools(tools![pay])
        .context(Arc::clone(&gate))
        .run_setup(Slowly(Arc::clone(&leave)))
        .run_store(InMemoryStore::new())
        .build()
        .unwrap();
    let waiting = agent.ask("Pay").await.unwrap_err().into_run();
    let (run, wait) = (waiting.id().to_string(), waiting.waits().remove(0).id);
    let second = agent.decide(&run, &wait, Decision::deny("no").by("eve"));
    let mut second = std::pin::pin!(second);
    assert!(second.as_mut().now_or_never().is_none());
    let first = agent.decide(&run, &wait, Decision::approve().by("ada")).await.unwrap();
    let driver = tokio::spawn(first.resume().unwrap().into_future());
    gate[0].notified().await;
    leave.notify_one();
    let refused = second.await.unwrap_err();
    assert_eq!(refused.to_string(), "this was decided before by ada");
    gate[1].notify_one();
    assert_eq!(driver.await.unwrap().unwrap().text(), "Paid.");
}

/// The first driver has gone on and waits again, without the lease.
#[tokio::test]
async fn a_decision_that_comes_second_meets_the_run_as_it_is_now() {
    let calls = [("refund", "{}"), ("refund", r#"{ "all": true }"#)];
    for is_about_first in [true, false] {
        let leave = Arc::new(Notify::new());
        let agent = Agent::builder(ScriptedModel::new().calls_all(calls).says("Refunded."))
            .tools(tools![refund])
            .run_setup(Slowly(Arc::clone(&leave)))
            .run_store(InMemoryStore::new())
            .build()
            .unwrap();
        let waiting = agent.ask("Refund both").await.unwrap_err().into_run();
        let (run, mut waits) = (waiting.id().to_string(), waiting.waits());
        let (first, other) = (waits.remove(0).id, waits.remove(0).id);
        let about = if is_about_first { &first } else { &other };
        let mut second = std::pin::pin!(agent.decide(&run, about, Decision::deny("no").by("eve")));
        assert!(second.as_mut().now_or_never().is_none());
        let decided = agent.decide(&run, &first, Decision::approve().by("ada")).await.unwrap();
        assert!(matches!(decided.resume().unwrap().await.unwrap_err().kind(), RunErrorKind::Waiting));
        leave.notify_one();
        match (is_about_first, second.await) {
            (true, refused) => assert_eq!(refused.unwrap_err().to_string(), "this was decided before by ada"),
            (false, decided) => {
                assert_eq!(decided.unwrap().resume().unwrap().await.unwrap().text(), "Refunded.");
            }
        }
    }
}

/// However often the run is resumed, and by whomever.
#[tokio::test]
async fn an_audit_has_the_run_and_one_record_per_decision() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let model = ScriptedModel::new().calls("order", "{}").says("Found.");
    let agent = Agent::builder(model)
        .tools(tools![order])
        .layer(guard::call(|_: &ToolCall| CallVerdict::NeedsApproval).named("strict"))
        .layer(Audit::new(move |record: AuditRecord| log.lock().unwrap().push(record)))
        .build()
        .unwrap();
    let before = Timestamp::now();
    let mut run = agent.ask("Find it").user("ada").await.unwrap_err().into_run();
    run = agent.resume(run).await.unwrap_err().into_run();
    run.resolve_all(|_| Decision::approve().by("ada")).unwrap();
    let id = run.id().to_string();
    agent.resume(run).await.unwrap();
    let records = seen.lock().unwrap();
    let lines: Vec<_> = records.iter().map(ToString::to_string).collect();
    let call = "the call `order` (call_1_0)";
    let expected = [
        format!("ada: `strict` demanded approval of {call}"),
        format!("ada: ada approved {call}"),
        format!("ada: {call} succeeded"),
    ];
    assert_eq!(lines, expected);
    assert!(records.iter().all(|record| record.run.as_deref() == Some(&id) && record.at >= before));
}

/// Gives each run two layers of one name.
struct Twins;

impl RunSetup for Twins {
    async fn open(&self, _: &RunInfo) -> Result<RunResources, BoxError> {
        let layer = || guard::question(|_| QuestionVerdict::Pass).named("limits");
        Ok(RunResources::new().layer(layer()).layer(layer()))
    }
}

/// What a layer has judged is known by its name, so that one of two would be passed over.
#[tokio::test]
async fn layers_of_one_name_are_refused() {
    let agent = Agent::builder(ScriptedModel::new()).run_setup(Twins).build().unwrap();
    let error = agent.ask("Where is it?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::RunSetup(_)), "{error}");
    assert!(error.to_string().contains("two layers have the name `limits`"), "{error}");
}
