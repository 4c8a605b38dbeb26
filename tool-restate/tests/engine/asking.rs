//! Questions and answers, retries and limits.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tool_core::agent::{RunInfo, RunResources, RunSetup};
use tool_core::layer::{Audit, CallVerdict, guard};
use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse, ModelError, RunUser};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, StopReason, Wait};
use tool_core::signatures::AuditEvent;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Attempt, IdempotencyKey};
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{Agent, ToolCall, ToolSet, tool, tools};
use tool_restate::{ErrorKind, RemoteOutcome, RemoteRun, Worker};

use crate::support::{Serving, agent, answer, end_by_engine, failure, serve, unique, waiting_calls, within};

#[tool("Sums two numbers")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_question_with_a_call_is_answered() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("sum", r#"{"a": 2, "b": 40}"#).says("It is 42.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![sum]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let run = agent(&name).ask("What is 2 + 40?").send().await.unwrap();
    assert!(run.is_new());
    let answer = answer(&run).await;
    assert_eq!(answer.text(), "It is 42.");
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "42.0");
}

/// Has a tool once the user has agreed. Asks for a secret first, which nobody is asked for here.
struct Files;

impl ToolProvider for Files {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async {
            request.asker().ask::<String>("Which password?").secret().await.unwrap_err();
            let has_agreed = request.asker().ask::<bool>("May I?").await.unwrap_or(false);
            Ok(if has_agreed { tools![sum] } else { ToolSet::default() })
        })
    }

    fn is_dynamic(&self) -> bool {
        true
    }
}

/// A provider of tools asks before a turn, of an agent inside as well, while other calls go on.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_provider_of_tools_asks_before_a_turn() {
    for is_inside in [false, true] {
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("sum", r#"{"a": 2, "b": 40}"#).says("It is 42.");
        let mut clerk = Agent::builder(model).tool_provider(Files);
        if is_inside {
            let inside = clerk.build().unwrap().as_tool("inner", "Sums");
            let calls = [("sum", r#"{"a": 1, "b": 1}"#), ("inner", r#"{"question": "2 + 40?"}"#)];
            let model = ScriptedModel::new().calls_all(calls).says("It is 42.");
            clerk = Agent::builder(model).tools(tools![sum]).tools(inside);
        }
        let _worker = serve(Worker::new().agent(clerk.name(&*name).build().unwrap())).await;
        let run = agent(&name).ask("What is 2 + 40?").send().await.unwrap();
        let waits = waiting_calls(&run).await;
        let path = if is_inside { "call_1_1" } else { "" };
        assert_eq!((waits.len(), &*waits[0].path), (1, path));
        assert_eq!(waits[0].question().unwrap().text(), "May I?");
        run.decide(&waits[0].id, Decision::answer(true).by("ada")).await.unwrap();
        let answer = answer(&run).await;
        assert_eq!(answer.text(), "It is 42.");
        let called =
            if is_inside { answer.inner_runs()[0].run().tool_executions() } else { answer.tool_executions() };
        assert_eq!(called[0].output().unwrap().to_string(), "42.0");
    }
}

/// A server whose tools are there while its user is logged in.
struct Tickets(Arc<AtomicBool>);

#[tool("Writes a ticket", needs_approval)]
fn write(text: String) -> String {
    format!("wrote {text}")
}

impl ToolProvider for Tickets {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async move {
            if !self.0.load(Ordering::SeqCst) {
                let _ = request.asker().ask::<bool>("Have you logged in?").await;
                return Err("log in first".into());
            }
            Ok(tools![write])
        })
    }

    fn is_dynamic(&self) -> bool {
        true
    }

    fn has_untrusted_names(&self) -> bool {
        true
    }
}

/// Layers see the approved call once somebody has logged in, and nothing is done meanwhile.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_provider_of_tools_asks_before_layers_judge_its_open_calls() {
    let (name, is_logged_in) = (unique("clerk"), Arc::new(AtomicBool::new(true)));
    let model = ScriptedModel::new().calls("write", r#"{"text": "b"}"#).says("Done.");
    let clerk = Agent::builder(model).name(&*name).tool_provider(Tickets(Arc::clone(&is_logged_in)));
    let clerk = clerk.layer(guard::call(|_: &ToolCall| CallVerdict::Pass)).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let approval = waiting_calls(&run).await.remove(0);
    is_logged_in.store(false, Ordering::SeqCst);
    run.decide(&approval.id, Decision::approve().by("ada")).await.unwrap();
    let login = within("the login is asked for", async {
        loop {
            let wait = waiting_calls(&run).await.remove(0);
            if wait.question().is_some() {
                break wait;
            }
        }
    });
    let login = login.await;
    is_logged_in.store(true, Ordering::SeqCst);
    run.decide(&login.id, Decision::answer(true).by("ada")).await.unwrap();
    let answer = answer(&run).await;
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "wrote b");
}

struct Member(String);

#[tool]
fn whose(#[inject] user: &RunUser, #[inject] member: &Member) -> String {
    format!("{user}: {}", member.0)
}

struct Desk;

impl RunSetup for Desk {
    async fn open(&self, run: &RunInfo) -> Result<RunResources, Box<dyn std::error::Error + Send + Sync>> {
        let user = run.user().ok_or("log in first")?;
        Ok(RunResources::new().context(Member(user.to_uppercase())))
    }

    /// Everybody but whose run it is.
    async fn may_decide(&self, run: &RunInfo, _: &Wait, by: Option<&str>) -> bool {
        run.id().is_some() && run.conversation().is_some() && by != run.user().map(RunUser::as_str)
    }
}

/// Also about a call of an agent inside, whose own application is not asked.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_application_says_who_may_decide() {
    let name = unique("desk");
    let inner = Agent::builder(ScriptedModel::new().calls("approved", "{}").says("Inside."));
    let inner = inner.tools(tools![approved]).build().unwrap().as_tool("inner", "Helps");
    let model = ScriptedModel::new().calls_all([("approved", "{}"), ("inner", r#"{"question": "Go"}"#)]);
    let refused = Arc::new(Mutex::new(Vec::new()));
    let audit = Arc::clone(&refused);
    let audit = Audit::new(move |record| {
        if let AuditEvent::Refused(_) = record.event {
            audit.lock().unwrap().push((record.user, record.run));
        }
    });
    let desk = Agent::builder(model.says("Done.")).name(&*name).tools(tools![approved]).tools(inner);
    let desk = desk.run_setup(Desk).layer(audit).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let run = agent(&name).ask("Go").user("ada").send().await.unwrap();
    let waits = loop {
        let waits = waiting_calls(&run).await;
        if waits.len() == 2 {
            break waits;
        }
    };
    for wait in &waits {
        let error = run.decide(&wait.id, Decision::approve().by("ada")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAllowed, "{error}");
        assert_eq!(error.to_string(), "ada may not decide about this");
        run.decide(&wait.id, Decision::approve().by("bob")).await.unwrap();
    }
    let answer = answer(&run).await;
    assert_eq!(answer.text(), "Done.");
    let refused = refused.lock().unwrap();
    assert!(refused.len() >= 2 && refused.iter().all(|one| one == &refused[0]), "{refused:?}");
    assert!(refused[0].0 == Some(RunUser::new("ada")) && refused[0].1.is_some());
}

#[tool("Needs approval", needs_approval)]
fn approved() {}

/// Each worker computes it, also for a call that another one executes and for an agent inside.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn what_follows_from_the_user_is_there_in_each_step() {
    let name = unique("desk");
    let inner = Agent::builder(ScriptedModel::new().calls("whose", "{}").says("Inside."));
    let inner = inner.tools(tools![whose]).run_setup(Desk).build().unwrap().as_tool("inner", "Helps");
    let model = ScriptedModel::new().calls_all([("whose", "{}"), ("inner", r#"{"question": "Whose?"}"#)]);
    let desk =
        Agent::builder(model.says("Done.")).name(&*name).tools(tools![whose]).tools(inner).run_setup(Desk);
    let _worker = serve(Worker::new().agent(desk.build().unwrap())).await;
    let run = agent(&name).ask("Whose is it?").user("ada").send().await.unwrap();
    let answer = answer(&run).await;
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "ada: ADA");
    let inside = answer.inner_runs()[0].run();
    assert_eq!(inside.tool_executions()[0].output().unwrap().to_string(), "ada: ADA");
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_key_starts_one_run() {
    let name = unique("clerk");
    let model = ScriptedModel::new().says("First.");
    let clerk = Agent::builder(model.clone()).name(&*name).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let first = agent(&name).ask("One").key("order 7/ä").send().await.unwrap();
    let second = agent(&name).ask("One").key("order 7/ä").send().await.unwrap();
    assert!(first.is_new() && !second.is_new());
    assert_eq!(answer(&second).await.text(), "First.");
    assert_eq!(answer(&agent(&name).run("order 7/ä")).await.text(), "First.");
    assert_eq!(model.requests().len(), 1);
    let others = [
        agent(&name).ask("Two"),
        agent(&name).ask("One").conversation("c"),
        agent(&name).ask("One").user("ada"),
        agent(&name).ask("One").context_json(&7_u32),
    ];
    for other in others {
        let error = other.key("order 7/ä").send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyInUse);
        assert_eq!(error.to_string(), "the run `order 7/ä` answers another question; choose another key");
    }
    end_by_engine("purge", &name, first.key()).await;
    assert!(agent(&name).ask("Two").key("order 7/ä").send().await.unwrap().is_new());
}

static ATTEMPTS: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());

#[tool("Is busy at first", attempts = 3)]
fn busy(#[inject] key: &IdempotencyKey, #[inject] attempt: &Attempt) -> Result<&'static str, &'static str> {
    ATTEMPTS.lock().unwrap().push((key.to_string(), attempt.number));
    if attempt.number < 3 { Err("busy") } else { Ok("done") }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_attempts_of_a_tool_do_not_multiply() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("busy", "{}").says("Done.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![busy]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    assert_eq!(answer(&run).await.tool_executions()[0].attempts(), 3);
    let attempts = std::mem::take(&mut *ATTEMPTS.lock().unwrap());
    assert_eq!(attempts.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(attempts.iter().all(|(key, _)| *key == attempts[0].0), "{attempts:?}");
}

/// How a model fails, after a call that is undone if the run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Temporary,
    Permanent,
    Panic,
}

struct Faulty {
    fault: Fault,
    failures: usize,
    requests: Arc<AtomicUsize>,
}

impl ChatModel for Faulty {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let reply = match number {
            0 => Ok(AssistantMessage::default().with_tool_calls([ToolCall::new("c", "reserve", "{}")])),
            _ if number > self.failures => Ok(AssistantMessage::text("Back again.")),
            _ => match self.fault {
                Fault::Temporary => Err(ModelError::new("the line is dead")),
                Fault::Permanent => Err(ModelError::new("the line is dead").permanent()),
                Fault::Panic => panic!("the line is dead"),
            },
        };
        Box::pin(std::future::ready(reply.map(ChatResponse::new)))
    }
}

#[tool("Reserves a table", undo = "release")]
fn reserve() {}

#[tool("Releases a table")]
fn release() {}

async fn serve_faulty(
    fault: Fault,
    failures: usize,
    set: impl Fn(Worker) -> Worker,
) -> (RemoteRun, Arc<AtomicUsize>, Serving) {
    let (name, requests) = (unique("clerk"), Arc::new(AtomicUsize::new(0)));
    let model = Faulty { fault, failures, requests: Arc::clone(&requests) };
    let clerk = Agent::builder(model).name(&*name).tools(tools![reserve]).undo_tools(tools![release]);
    let worker = serve(set(Worker::new().agent(clerk.build().unwrap()))).await;
    (agent(&name).ask("Hello").send().await.unwrap(), requests, worker)
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn only_an_error_that_cannot_get_better_ends_a_run() {
    let table = [
        (Fault::Temporary, 3, None, Ok("Back again.")),
        (Fault::Temporary, 2, Some(3), Ok("Back again.")),
        (Fault::Temporary, 3, Some(3), Err("the line is dead")),
        (Fault::Permanent, 1, None, Err("the line is dead")),
        (Fault::Permanent, 1, Some(3), Err("the line is dead")),
        (Fault::Panic, 1, None, Err("the agent panicked: the line is dead")),
        (Fault::Panic, 1, Some(3), Err("the agent panicked: the line is dead")),
    ];
    for (fault, failures, attempts, expected) in table {
        let set = |worker: Worker| attempts.into_iter().fold(worker, Worker::model_attempts);
        let (run, requests, _worker) = serve_faulty(fault, failures, set).await;
        let what = format!("{fault:?}, {failures} failures, {attempts:?}");
        match expected {
            Ok(text) => assert_eq!(within(&what, answer(&run)).await.text(), text, "{what}"),
            Err(message) => {
                let failure = within(&what, failure(&run)).await;
                assert!(failure.message.contains(message), "{what}: {}", failure.message);
                assert!(failure.reason.is_none(), "{what}");
                assert_eq!(failure.undo_executions.len(), 1, "{what}");
            }
        }
        let expected = if expected.is_ok() { failures + 2 } else { failures + 1 };
        assert_eq!(requests.load(Ordering::SeqCst), expected, "{what}");
    }
}

/// The engine counts the time of a step that fails from the last change of its invocation, and a client that begins to wait is one.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn clients_that_wait_do_not_prolong_the_patience_with_a_model() {
    let set = |worker: Worker| worker.model_patience(Duration::from_secs(1));
    let (run, _, _worker) = serve_faulty(Fault::Temporary, 1000, set).await;
    let is_paused = async {
        // A client that gives up waiting, and begins again.
        while tokio::time::timeout(Duration::from_millis(30), run.wait()).await.is_err() {}
    };
    within("the pause", is_paused).await;
    assert!(matches!(run.wait().await.unwrap(), RemoteOutcome::Paused(_)));
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_whose_model_fails_for_long_waits_for_an_operator() {
    for resumes in [true, false] {
        let set = |worker: Worker| worker.model_patience(Duration::from_secs(1));
        let (run, requests, _worker) = serve_faulty(Fault::Temporary, 1000, set).await;
        let paused = async |what| match within(what, run.wait()).await.unwrap() {
            RemoteOutcome::Paused(reason) => assert!(reason.contains("the line is dead"), "{reason}"),
            other => panic!("{other:?}"),
        };
        paused("the first pause").await;
        if resumes {
            // It fails again, and waits again.
            run.resume().await.unwrap();
            paused("the second pause").await;
            requests.store(2000, Ordering::SeqCst);
            run.resume().await.unwrap();
            assert_eq!(within("the answer", answer(&run)).await.text(), "Back again.");
        } else {
            run.cancel().await.unwrap();
            let failure = within("the end", failure(&run)).await;
            assert!(matches!(failure.reason, Some(StopReason::Cancelled)), "{failure:?}");
            assert_eq!(failure.undo_executions.len(), 1);
        }
        assert_eq!(run.resume().await.unwrap_err().kind(), ErrorKind::NotPaused);
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_time_limit_ends_a_run_whose_model_fails() {
    let name = unique("clerk");
    let model = Faulty { fault: Fault::Temporary, failures: 1000, requests: Arc::default() };
    let clerk = Agent::builder(model).name(&*name).tools(tools![reserve]).undo_tools(tools![release]);
    let clerk = clerk.limits(|l| l.max_time(Duration::from_secs(1))).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let run = agent(&name).ask("Hello").send().await.unwrap();
    let failure = within("the end", failure(&run)).await;
    assert!(matches!(failure.reason, Some(StopReason::MaxTime(_))), "{failure:?}");
}

#[derive(Serialize, Deserialize)]
struct Customer {
    name: String,
}

#[tool("Returns the name of the customer")]
fn customer_name(#[inject] customer: &Customer) -> String {
    customer.name.clone()
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_context_of_a_question_reaches_its_calls() {
    for is_local in [false, true] {
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("customer_name", "{}").says("Ada.");
        let clerk = Agent::builder(model).name(&*name).tools(tools![customer_name]).build().unwrap();
        let worker = Worker::new().agent(clerk).context_json::<Customer>();
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let customer = Customer { name: "Ada".into() };
        let run = agent(&name).ask("Who am I?").context_json(&customer).send().await.unwrap();
        let answer = answer(&run).await;
        assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "Ada");
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_whose_tools_lack_a_value_is_refused_before_the_model_is_asked() {
    let name = unique("clerk");
    let model = ScriptedModel::new().says("Never said.");
    let clerk = Agent::builder(model.clone()).name(&*name).tools(tools![customer_name]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let refused = failure(&agent(&name).ask("Who am I?").send().await.unwrap()).await;
    assert!(refused.message.contains("Customer"), "{}", refused.message);
    let customer = Customer { name: "Ada".into() };
    let unread = agent(&name).ask("Who am I?").context_json(&customer).send().await.unwrap();
    let expected = "the question has a context `Customer` that the worker does not read; \
                    add `.context_json::<Customer>()` to it";
    assert_eq!(failure(&unread).await.message, expected);
    assert_eq!(model.requests().len(), 0);
}

static SLOW_CANCELLED: AtomicU32 = AtomicU32::new(0);

struct Noted;

impl Drop for Noted {
    fn drop(&mut self) {
        SLOW_CANCELLED.fetch_add(1, Ordering::SeqCst);
    }
}

#[tool("Never returns")]
async fn stuck() -> String {
    let _noted = Noted;
    std::future::pending().await
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_time_limit_ends_a_run_whose_call_never_returns() {
    for (is_local, cancelled) in [(false, 1), (true, 2)] {
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("stuck", "{}").says("Never said.");
        let limit = Duration::from_secs(2);
        let clerk = Agent::builder(model)
            .name(&*name)
            .tools(tools![stuck])
            .limits(|l| l.max_time(limit))
            .build()
            .unwrap();
        let worker = Worker::new().agent(clerk);
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let failure = failure(&agent(&name).ask("Go").send().await.unwrap()).await;
        assert!(matches!(failure.reason, Some(StopReason::MaxTime(_))), "{failure:?}");
        // The call was cancelled, and its future dropped.
        while SLOW_CANCELLED.load(Ordering::SeqCst) < cancelled {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tool("Reads the balance")]
fn balance() -> u32 {
    500
}

#[tool("Takes half a second", needs_approval)]
async fn work() -> &'static str {
    tokio::time::sleep(Duration::from_millis(500)).await;
    "worked"
}

/// A timer that was set for the first call is not up in the middle of the second.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_time_of_a_person_does_not_count() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls_all([("balance", "{}"), ("work", "{}")]).says("Done.");
    let limit = Duration::from_secs(5);
    let clerk = Agent::builder(model).name(&*name).tools(tools![balance, work]).limits(|l| l.max_time(limit));
    let _worker = serve(Worker::new().agent(clerk.build().unwrap())).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    tokio::time::sleep(Duration::from_millis(4800)).await;
    run.decide(&calls[0].id, Decision::approve()).await.unwrap();
    assert_eq!(answer(&run).await.text(), "Done.");
}
