//! Calls that ask a person, or wait for a point in time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use tool_core::model::ToolDefinition;
use tool_core::run::{Decision, StopReason, Wait, WaitReason};
use tool_core::signatures::{DecisionKind, Timestamp};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{AskError, AskErrorKind, Asker, Attempt, ExternalTool, ToolErrorKind, WaitId};
use tool_core::{Agent, ToolError, ToolOutput, ToolSet, tool, tools};
use tool_restate::{ErrorKind, RemoteOutcome, RemoteRun, Worker};

use crate::support::{
    Mortal, Serving, agent, answer, failure, free_address, register_at, serve, unique, within,
};

async fn waits(run: &RemoteRun) -> Vec<Wait> {
    match run.wait().await.unwrap() {
        RemoteOutcome::Waiting(waits) => waits,
        other => panic!("{other:?}"),
    }
}

/// Returns the texts of the questions that a run asks, which it may learn about one after the other.
async fn questions(run: &RemoteRun, expected: &[&str]) -> Vec<Wait> {
    let all = async {
        loop {
            let waits = waits(run).await;
            if waits.len() == expected.len() {
                break waits;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waits = within("the questions", all).await;
    let mut texts: Vec<_> = waits.iter().map(|wait| wait.question().unwrap().text()).collect();
    texts.sort_unstable();
    assert_eq!(texts, expected);
    waits
}

fn of<'a>(waits: &'a [Wait], text: &str) -> &'a WaitId {
    &waits.iter().find(|wait| wait.question().unwrap().text() == text).unwrap().id
}

fn clerk(name: &str, model: ScriptedModel, tools: ToolSet) -> Agent {
    Agent::builder(model).name(name).tools(tools).build().unwrap()
}

async fn serving(model: ScriptedModel, tools: ToolSet, is_local: bool) -> (String, Serving) {
    let name = unique("clerk");
    let worker = Worker::new().agent(clerk(&name, model, tools));
    let worker = serve(if is_local { worker.local_calls() } else { worker }).await;
    (name, worker)
}

#[tool("Books a seat", at_most_once)]
async fn book(
    flight: String,
    #[inject] user: &Asker,
    #[inject] attempt: &Attempt,
) -> Result<String, AskError> {
    let seat: String = user.ask(format!("Which seat on {flight}?")).choices(["3A", "12C"]).await?;
    Ok(format!("{seat} on {flight}, attempt {}", attempt.number))
}

fn books(flights: &[&str]) -> ScriptedModel {
    let calls: Vec<_> =
        flights.iter().map(|flight| ("book", format!(r#"{{"flight": "{flight}"}}"#))).collect();
    ScriptedModel::new().calls_all(calls.iter().map(|(name, text)| (*name, &**text))).says("Booked.")
}

fn outputs(answer: &tool_core::Answer) -> Vec<String> {
    answer.tool_executions().iter().map(|one| one.output().unwrap().to_string()).collect()
}

/// The worker that asked is dead when somebody answers, and so is the one that published the question.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_question_waits_without_a_process() {
    for is_local in [false, true] {
        let (name, address) = (unique("clerk"), free_address());
        let clerk = clerk(&name, books(&["OS 87"]), tools![book]);
        let worker = || {
            let worker = Worker::new().agent(clerk.clone());
            if is_local { worker.local_calls() } else { worker }
        };
        let first = Mortal::start(worker(), address).await;
        register_at(address).await;
        let run = agent(&name).ask("Book OS 87").send().await.unwrap();
        let wait = questions(&run, &["Which seat on OS 87?"]).await.remove(0);
        assert_eq!((&*wait.path, &*wait.tool), ("call_1_0", "book"));
        drop(first);
        let second = Mortal::start(worker(), address).await;
        // Another process finds the run by its key.
        let found = agent(&name).run(run.key());
        let decision = Decision::answer("12C").by("ada").because("by the window");
        found.decide(&wait.id, decision).await.unwrap();
        drop(second);
        let _third = Mortal::start(worker(), address).await;
        let answer = answer(&run).await;
        assert_eq!(outputs(&answer), ["12C on OS 87, attempt 1"]);
        let record = &answer.tool_executions()[0].decisions()[0];
        assert_eq!((record.kind, &record.wait), (DecisionKind::Answered, &wait.id));
        assert_eq!((record.by.as_deref(), record.why.as_deref()), (Some("ada"), Some("by the window")));
        assert!(record.at.is_some_and(|at| at >= wait.since), "{record:?}");
        let again = run.decide(&wait.id, Decision::answer("3A").by("bob")).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyDecided);
        assert_eq!(again.to_string(), "this was decided before by ada");
        assert_eq!(again.decided().unwrap().by.as_deref(), Some("ada"));
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn each_answer_reaches_its_own_call() {
    for is_local in [false, true] {
        let (name, _worker) = serving(books(&["OS 87", "LH 1"]), tools![book], is_local).await;
        let run = agent(&name).ask("Book both").send().await.unwrap();
        let waits = questions(&run, &["Which seat on LH 1?", "Which seat on OS 87?"]).await;
        let resolve = |text, seat| run.decide(of(&waits, text), Decision::answer(seat));
        resolve("Which seat on LH 1?", "3A").await.unwrap();
        resolve("Which seat on OS 87?", "12C").await.unwrap();
        let answer = answer(&run).await;
        assert_eq!(outputs(&answer), ["12C on OS 87, attempt 1", "3A on LH 1, attempt 1"]);
    }
}

#[tool("Plans a trip")]
async fn plan(#[inject] user: &Asker) -> Result<String, ToolError> {
    let (from, to) = tokio::join!(user.ask::<String>("From?"), user.ask::<String>("To?"));
    let (from, to) = (from?, to?);
    let days: u8 = user.ask(format!("How many days in {to}?")).await?;
    Ok(format!("{from} to {to}, {days} days"))
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_call_asks_several_questions_and_again_after_an_answer_of_another_type() {
    let model = ScriptedModel::new().calls("plan", "{}").says("Planned.");
    let (name, _worker) = serving(model, tools![plan], false).await;
    let run = agent(&name).ask("Plan").send().await.unwrap();
    let both = questions(&run, &["From?", "To?"]).await;
    run.decide(of(&both, "To?"), Decision::answer("Rome")).await.unwrap();
    run.decide(of(&both, "From?"), Decision::answer("Graz")).await.unwrap();
    let first = questions(&run, &["How many days in Rome?"]).await.remove(0);
    run.decide(&first.id, Decision::answer("a few")).await.unwrap();
    let second = within("the question again", async {
        loop {
            let waits = waits(&run).await;
            if waits[0].id != first.id {
                break waits[0].clone();
            }
        }
    });
    let second = second.await;
    assert!(second.question().unwrap().problem().unwrap().contains("expected"), "{second:?}");
    run.decide(&second.id, Decision::answer(3)).await.unwrap();
    assert_eq!(outputs(&answer(&run).await), ["Graz to Rome, 3 days"]);
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_decision_that_does_not_fit_is_refused() {
    let (name, _worker) = serving(books(&["OS 87"]), tools![book], false).await;
    let run = agent(&name).ask("Book").send().await.unwrap();
    let wait = waits(&run).await.remove(0);
    let table = [
        (Decision::answer("99Z"), r#"the answer is not valid: not one of the choices: "3A", "12C""#),
        (
            Decision::approve(),
            "the decision is of another kind: the call asks the user; use `Decision::answer(…)` or `Decision::decline()`",
        ),
    ];
    for (decision, expected) in table {
        let error = run.decide(&wait.id, decision).await.unwrap_err();
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::InvalidInput, expected));
    }
    let unknown = run.decide("0123", Decision::decline()).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::UnknownWait);
    assert_eq!(unknown.to_string(), format!("the run `{}` does not wait for this", run.key()));
    run.decide(&wait.id, Decision::answer("3A")).await.unwrap();
    assert_eq!(outputs(&answer(&run).await), ["3A on OS 87, attempt 1"]);
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn declined_questions_reach_the_tool() {
    let (name, _worker) = serving(books(&["OS 87"]), tools![book], false).await;
    let run = agent(&name).ask("Book").send().await.unwrap();
    let wait = waits(&run).await.remove(0);
    run.decide(&wait.id, Decision::deny("too dear")).await.unwrap();
    let answer = answer(&run).await;
    let error = answer.tool_executions()[0].error().unwrap();
    assert_eq!(error.to_string(), "the user declined to answer: too dear");
    let late = run.decide(&wait.id, Decision::answer("3A")).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::AlreadyDecided);
    assert_eq!(late.decided().unwrap().kind, DecisionKind::Denied);
}

#[tool("Asks for a while")]
async fn hurry(#[inject] user: &Asker) -> Result<String, ToolError> {
    let soon = Duration::from_millis(300);
    let size: String = user.ask("Which size?").default("small").expires(soon).await?;
    match user.ask::<u8>("How many?").expires(soon).await {
        Err(error) if error.kind() == AskErrorKind::Expired => Ok(format!("a {size} one")),
        other => Err(ToolError::failed(format!("{other:?}"))),
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn questions_expire() {
    let model = ScriptedModel::new().calls("hurry", "{}").says("Done.");
    let (name, _worker) = serving(model, tools![hurry], false).await;
    let run = agent(&name).ask("Hurry").send().await.unwrap();
    let wait = questions(&run, &["Which size?"]).await.remove(0);
    assert_eq!(wait.deadline.unwrap().since(wait.since), Duration::from_millis(300));
    let ended = async {
        loop {
            if let RemoteOutcome::Answer(answer) = run.wait().await.unwrap() {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let answer = within("both questions expire", ended).await;
    assert_eq!(outputs(&answer), ["a small one"]);
    let kinds: Vec<_> = answer.tool_executions()[0].decisions().iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [DecisionKind::Expired, DecisionKind::Expired]);
    let late = run.decide(&wait.id, Decision::answer("large")).await.unwrap_err();
    assert_eq!((late.kind(), &*late.to_string()), (ErrorKind::AlreadyDecided, "the question has expired"));
}

static HOLDS: AtomicU32 = AtomicU32::new(0);

#[tool("Holds a room and books it", attempts = 2)]
async fn hold(#[inject] user: &Asker, #[inject] attempt: &Attempt) -> Result<String, ToolError> {
    let place = async { Ok::<_, AskError>(HOLDS.fetch_add(1, Ordering::SeqCst)) };
    let hold = user.once("hold", place).await?;
    let is_sure: bool = user.ask(format!("Hold {hold} is placed. Book it?")).await?;
    if attempt.number == 1 {
        return Err(ToolError::failed("busy"));
    }
    Ok(format!("{hold} {is_sure} {}", HOLDS.load(Ordering::SeqCst)))
}

/// Neither the wait nor the failed attempt computes the value again or asks again.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn recorded_values_and_answers_outlive_waits_and_attempts() {
    let model = ScriptedModel::new().calls("hold", "{}").says("Done.");
    let (name, _worker) = serving(model, tools![hold], false).await;
    let run = agent(&name).ask("Hold").send().await.unwrap();
    let wait = questions(&run, &["Hold 0 is placed. Book it?"]).await.remove(0);
    run.decide(&wait.id, Decision::answer(true)).await.unwrap();
    let answer = answer(&run).await;
    assert_eq!(outputs(&answer), ["0 true 1"]);
    assert_eq!(answer.tool_executions()[0].attempts(), 2);
}

#[tool("Prints a document")]
async fn print(#[inject] user: &Asker) -> Result<String, ToolError> {
    let polls = user.parked::<u32>()?.unwrap_or_default();
    if polls == 3 {
        return Ok(format!("printed after {polls} polls"));
    }
    let soon = Timestamp::now().after(Duration::from_millis(100));
    Err(user.park(&(polls + 1), soon).await.into())
}

/// Nobody decides about it: the run goes on at its time.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_parked_call_continues_at_its_time() {
    for is_local in [false, true] {
        let model = ScriptedModel::new().calls("print", "{}").says("Done.");
        let (name, _worker) = serving(model, tools![print], is_local).await;
        let run = agent(&name).ask("Print").send().await.unwrap();
        assert_eq!(outputs(&answer(&run).await), ["printed after 3 polls"]);
    }
}

#[tool("Parks for ever")]
async fn park(#[inject] user: &Asker) -> Result<String, ToolError> {
    Err(user.park(&0, Timestamp::now().after(Duration::from_secs(3600))).await.into())
}

/// Waiting for a machine counts for the limit of time, waiting for a person does not.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_time_of_a_parked_call_counts() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("park", "{}");
    let clerk = Agent::builder(model)
        .name(&*name)
        .tools(tools![park])
        .limits(|l| l.max_time(Duration::from_millis(300)));
    let _worker = serve(Worker::new().agent(clerk.build().unwrap())).await;
    let run = agent(&name).ask("Park").send().await.unwrap();
    let failure = within("the limit of time", failure(&run)).await;
    assert!(matches!(failure.reason, Some(StopReason::MaxTime(_))), "{failure:?}");
}

#[tool("Logs in")]
async fn log_in(#[inject] user: &Asker) -> Result<String, ToolError> {
    match user.ask::<String>("Password?").secret().await {
        Err(error) => Ok(error.to_string()),
        Ok(_) => Err(ToolError::failed("the engine has a password")),
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn secrets_are_not_asked_for() {
    let model = ScriptedModel::new().calls("log_in", "{}").says("Done.");
    let (name, _worker) = serving(model, tools![log_in], false).await;
    let run = agent(&name).ask("Log in").send().await.unwrap();
    let expected = "the tool has to ask the user, and nobody can be asked here: the engine would store the secret answer";
    assert_eq!(outputs(&answer(&run).await), [expected]);
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_cancelled_run_asks_nothing() {
    let (name, _worker) = serving(books(&["OS 87"]), tools![book], false).await;
    let run = agent(&name).ask("Book").send().await.unwrap();
    let wait = waits(&run).await.remove(0);
    run.cancel().await.unwrap();
    let failure = failure(&run).await;
    assert!(matches!(failure.reason, Some(StopReason::Cancelled)), "{failure:?}");
    let error = failure.tool_executions[0].error().unwrap();
    assert_eq!(error.kind(), ToolErrorKind::NotExecuted, "{error}");
    let late = run.decide(&wait.id, Decision::answer("3A")).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::UnknownWait);
}

/// Workers that have only tools ask as well.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_tool_on_another_worker_asks() {
    let (name, shop) = (unique("clerk"), unique("shop"));
    let worker =
        Worker::new().agent(clerk(&name, books(&["OS 87"]), tools![book])).tools_at(&*shop, ["book"]);
    let _worker = serve(worker).await;
    let _shop = serve(Worker::tools_only(&*shop, tools![book])).await;
    let run = agent(&name).ask("Book").send().await.unwrap();
    let wait = waits(&run).await.remove(0);
    run.decide(&wait.id, Decision::answer("3A")).await.unwrap();
    assert_eq!(outputs(&answer(&run).await), ["3A on OS 87, attempt 1"]);
}

/// Calls that the caller executes wait like the others.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_caller_supplies_the_result_of_its_tool() {
    let definition = ToolDefinition::new("locate").with_description("Returns where the user is");
    let locate = ExternalTool::new(definition);
    let model = ScriptedModel::new().calls("locate", "{}").says("Done.");
    let (name, _worker) = serving(model, ToolSet::default().with(locate).unwrap(), false).await;
    let run = agent(&name).ask("Where am I?").send().await.unwrap();
    let wait = waits(&run).await.remove(0);
    assert!(matches!(&wait.reason, WaitReason::CallerResult(call) if call.name == "locate"), "{wait:?}");
    run.decide(&wait.id, Decision::result(Ok(ToolOutput::text("Graz")))).await.unwrap();
    assert_eq!(outputs(&answer(&run).await), ["Graz"]);
}

static STARTED: AtomicU32 = AtomicU32::new(0);

#[tool("Pays after a question", at_most_once)]
async fn pay(#[inject] user: &Asker) -> Result<String, ToolError> {
    let is_sure: bool = user.ask("Sure?").await?;
    if STARTED.fetch_add(1, Ordering::SeqCst) == 0 {
        std::future::pending::<()>().await;
    }
    Ok(format!("paid: {is_sure}"))
}

/// A call that waits is not uncertain, but one that dies after the answer is.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_death_after_the_answer_leaves_the_outcome_unknown() {
    let (name, address) = (unique("clerk"), free_address());
    let clerk = clerk(&name, ScriptedModel::new().calls("pay", "{}").says("Unknown."), tools![pay]);
    let first = Mortal::start(Worker::new().agent(clerk.clone()), address).await;
    register_at(address).await;
    let run = agent(&name).ask("Pay").send().await.unwrap();
    let wait = waits(&run).await.remove(0);
    run.decide(&wait.id, Decision::answer(json!(true))).await.unwrap();
    crate::support::until("the payment begins", || STARTED.load(Ordering::SeqCst) == 1).await;
    drop(first);
    let _second = Mortal::start(Worker::new().agent(clerk), address).await;
    let answer = answer(&run).await;
    let error = answer.tool_executions()[0].error().unwrap();
    assert_eq!(error.kind(), ToolErrorKind::OutcomeUnknown);
    assert_eq!(STARTED.load(Ordering::SeqCst), 1);
}
