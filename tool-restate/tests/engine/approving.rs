//! Calls that wait for a person.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tool_core::layer::guard;
use tool_core::model::{ChatModel, ChatRequest};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, UserMessage};
use tool_core::signatures::DecisionKind;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{FunctionTool, ToolErrorKind};
use tool_core::toolset::ToolProviderRequest;
use tool_core::{Agent, Message, ToolSet, tool, tools};
use tool_restate::{ErrorKind, RemoteOutcome, Worker};

use crate::support::{Serving, agent, answer, paths, serve, sql, unique, waiting_calls, within};

#[tool("Pays somebody", needs_approval)]
fn pay(to: String, euros: u32) -> String {
    format!("paid {euros} to {to}")
}

#[tool("Reads the balance")]
fn balance() -> u32 {
    500
}

async fn clerk(model: ScriptedModel) -> (String, Serving) {
    let name = unique("clerk");
    let clerk = Agent::builder(model).name(&*name).tools(tools![pay, balance]).build().unwrap();
    let worker = serve(Worker::new().agent(clerk)).await;
    (name, worker)
}

fn pays_ada() -> ScriptedModel {
    ScriptedModel::new().calls("pay", r#"{"to": "Ada", "euros": 20}"#)
}

/// Returns the texts of the results that the model reads.
fn results(request: &ChatRequest<'_>) -> Vec<String> {
    let messages = request.messages().iter();
    messages
        .filter(|one| matches!(one, tool_core::Message::Tool(_)))
        .map(|one| one.text().into_owned())
        .collect()
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_person_approves_changes_or_denies() {
    let table = [
        (Decision::approve(), "paid 20 to Ada"),
        (Decision::approve_with(r#"{"to": "Ada", "euros": 5}"#), "paid 5 to Ada"),
        (Decision::deny("not on a Sunday"), "the call was denied: not on a Sunday"),
    ];
    for (approval, expected) in table {
        let (name, _worker) =
            clerk(pays_ada().expects(move |request| results(request) == [expected]).says("Settled.")).await;
        let run = agent(&name).ask("Pay Ada").send().await.unwrap();
        let calls = waiting_calls(&run).await;
        assert_eq!(paths(&calls), ["call_1_0"]);
        // Another process finds the run by its key.
        agent(&name).run(run.key()).decide(&calls[0].id, approval).await.unwrap();
        assert_eq!(answer(&run).await.text(), "Settled.");
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn other_calls_are_executed_while_one_waits_and_each_is_decided_once() {
    let calls =
        [("pay", r#"{"to": "Ada", "euros": 1}"#), ("balance", "{}"), ("pay", r#"{"to": "Bob", "euros": 2}"#)];
    let expected = ["paid 1 to Ada", "500", "the call was denied"];
    let model = ScriptedModel::new().calls_all(calls);
    let (name, _worker) =
        clerk(model.expects(move |request| results(request) == expected).says("Done.")).await;
    let run = agent(&name).ask("Pay both").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    assert_eq!(paths(&calls), ["call_1_0", "call_1_2"]);
    run.decide(&calls[0].id, Decision::approve()).await.unwrap();
    assert_eq!(paths(&waiting_calls(&run).await), ["call_1_2"]);
    let again = run.decide(&calls[0].id, Decision::approve()).await.unwrap_err();
    assert_eq!((again.kind(), &*again.to_string()), (ErrorKind::AlreadyDecided, "this was decided before"));
    let invalid = run.decide(&calls[1].id, Decision::approve_with("[]")).await.unwrap_err();
    let expected =
        "the call cannot be approved with these arguments: the new arguments are not a JSON object";
    assert_eq!(invalid.to_string(), expected);
    run.decide(&calls[1].id, Decision::decline()).await.unwrap();
    assert_eq!(answer(&run).await.text(), "Done.");
    let late = run.decide(&calls[1].id, Decision::approve()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::AlreadyDecided);
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn several_decisions_are_recorded_together_or_not_at_all() {
    let calls = [("pay", r#"{"to": "Ada", "euros": 1}"#), ("pay", r#"{"to": "Bob", "euros": 2}"#)];
    let model = ScriptedModel::new().calls_all(calls);
    let expected = ["paid 1 to Ada", "the call was denied: not him"];
    let (name, _worker) =
        clerk(model.expects(move |request| results(request) == expected).says("Done.")).await;
    let run = agent(&name).ask("Pay both").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    let decide = |second: Decision| {
        let first = Decision::approve().by("ada");
        run.decide_all(vec![(calls[0].id.clone(), first), (calls[1].id.clone(), second)])
    };
    let error = decide(Decision::answer("no")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let deferred = run.decide(&calls[1].id, Decision::defer()).await.unwrap();
    assert!(deferred.decisions().is_empty());
    assert_eq!(paths(&waiting_calls(&run).await), ["call_1_0", "call_1_1"]);
    let decided = decide(Decision::deny("not him")).await.unwrap();
    let [(first, record), (_, second)] = decided.decisions() else { panic!("{decided:?}") };
    assert_eq!((first, record.by.as_deref()), (&calls[0], Some("ada")));
    assert_eq!((record.kind, second.kind), (DecisionKind::Approved, DecisionKind::Denied));
    assert_eq!(answer(&run).await.text(), "Done.");
}

/// The arguments of a person are checked before they are accepted, also for tools that were converted or come from a provider.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn edited_arguments_that_do_not_match_the_tool_are_refused() {
    let mistake = r#"the call cannot be approved with these arguments: invalid arguments: `euros`: expected an integer from 0 to 4294967295, got "x""#;
    for kind in ["own", "strict", "provided"] {
        let name = unique("clerk");
        let builder = Agent::builder(pays_ada().says("Settled.")).name(&*name);
        let clerk = match kind {
            "own" => builder.tools(tools![pay]),
            "strict" => builder.tools(tools![pay].strict().unwrap()),
            _ => builder.tool_provider(|_: &ToolProviderRequest<'_>| tools![pay]),
        };
        let _worker = serve(Worker::new().agent(clerk.build().unwrap())).await;
        let run = agent(&name).ask("Pay Ada").send().await.unwrap();
        let calls = waiting_calls(&run).await;
        let approve = |euros| {
            let arguments = format!(r#"{{"to": "Ada", "euros": {euros}}}"#);
            run.decide(&calls[0].id, Decision::approve_with(arguments))
        };
        let error = approve(r#""x""#).await.unwrap_err();
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::InvalidInput, mistake), "{kind}");
        approve("5").await.unwrap();
        let answer = answer(&run).await;
        assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "paid 5 to Ada", "{kind}");
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn of_two_decisions_at_once_one_counts() {
    let (name, _worker) = clerk(pays_ada().says("Settled.")).await;
    let run = agent(&name).ask("Pay Ada").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    let decide = || run.decide(&calls[0].id, Decision::approve());
    let (a, b, c) = tokio::join!(decide(), decide(), decide());
    let decided = [a, b, c];
    assert_eq!(decided.iter().filter(|one| one.is_ok()).count(), 1, "{decided:?}");
    for error in decided.iter().filter_map(|one| one.as_ref().err()) {
        assert_eq!(error.kind(), ErrorKind::AlreadyDecided);
    }
    assert_eq!(answer(&run).await.tool_executions().len(), 1);
}

/// What waits stays open, and the message follows the results.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_message_to_a_run_that_waits_is_read_after_the_results() {
    let model = pays_ada().expects(|request| {
        let texts: Vec<_> = request.messages().iter().map(|one| one.text().into_owned()).collect();
        texts[texts.len() - 3..] == ["paid 20 to Ada", "Thank her", "In German"]
    });
    let (name, _worker) = clerk(model.says("Danke.")).await;
    let run = agent(&name).ask("Pay Ada").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    run.say("Thank her").await.unwrap();
    run.say("In German").await.unwrap();
    assert_eq!(waiting_calls(&run).await, calls);
    run.decide(&calls[0].id, Decision::approve()).await.unwrap();
    assert_eq!(answer(&run).await.text(), "Danke.");
    let late = run.say("Bye").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Ended);
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_predicate_of_the_agent_requires_approval() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("balance", "{}").says("500.");
    let clerk =
        Agent::builder(model).name(&*name).tools(tools![balance]).layer(guard::needs_approval(|_| true));
    let _worker = serve(Worker::new().agent(clerk.build().unwrap())).await;
    let run = agent(&name).ask("How much?").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    run.decide(&calls[0].id, Decision::approve()).await.unwrap();
    assert_eq!(answer(&run).await.text(), "500.");
}

/// The rules of a tool are those with which it was offered: without an offer, there are none.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_tool_that_was_not_offered_is_not_executed() {
    for is_local in [false, true] {
        let name = unique("clerk");
        let model = pays_ada()
            .expects(|request| results(request) == ["there is no tool `pay`; the tools are `balance`"])
            .says("Not paid.");
        let clerk = Agent::builder(model).name(&*name).tools(tools![pay, balance]);
        let clerk = clerk.layer(guard::offer(|tool| tool.name() != "pay"));
        let worker = Worker::new().agent(clerk.build().unwrap());
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let answer = answer(&agent(&name).ask("Pay Ada").send().await.unwrap()).await;
        assert_eq!(answer.tool_executions()[0].outcome().unwrap_err().kind(), ToolErrorKind::UnknownTool);
    }
}

/// An earlier turn called the tool, whose definition is known therefore.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_tool_that_is_no_longer_offered_is_not_executed() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("balance", "{}").calls("balance", "{}").says("Done.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![pay, balance]);
    let clerk = clerk.layer(guard::offer_with_context(|tool, at| at.turn == 1 || tool.name() != "balance"));
    let _worker = serve(Worker::new().agent(clerk.build().unwrap())).await;
    let answer = answer(&agent(&name).ask("Balance").send().await.unwrap()).await;
    let executions = answer.tool_executions();
    assert_eq!(executions[0].output().unwrap().to_string(), "500");
    assert_eq!(executions[1].outcome().unwrap_err().kind(), ToolErrorKind::UnknownTool);
}

/// Returns an agent whose only tool comes from a provider, after which another provider comes.
fn provided(name: &str, is_changed: Arc<AtomicBool>, fails: bool) -> Agent {
    let tool = |text: &'static str| {
        let tool = FunctionTool::new("clean", move || text).description(text).needs_approval();
        ToolSet::default().with(tool).unwrap()
    };
    let changed = Arc::clone(&is_changed);
    let first = move |_: &ToolProviderRequest<'_>| match changed.load(Ordering::SeqCst) {
        false => Ok(tool("cleans")),
        true if fails => Err(std::io::Error::other("the server is gone")),
        true => Ok(tool("deletes")),
    };
    let second = move |_: &ToolProviderRequest<'_>| match is_changed.load(Ordering::SeqCst) && fails {
        true => tool("cleans"),
        false => ToolSet::default(),
    };
    let model = ScriptedModel::new().calls("clean", "{}").says("Done.");
    Agent::builder(model).name(name).tool_provider(first).tool_provider(second).build().unwrap()
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_approval_is_for_the_tool_that_was_offered_also_if_a_provider_has_it() {
    let table = [
        (false, false, Ok("cleans")),
        (true, false, Err("the tool was changed since it was offered; call it again")),
        (true, true, Err("a provider of tools failed; call the tool again later")),
    ];
    for (changes, fails, expected) in table {
        let name = unique("clerk");
        let is_changed = Arc::new(AtomicBool::new(false));
        let clerk = provided(&name, Arc::clone(&is_changed), fails);
        let _worker = serve(Worker::new().agent(clerk)).await;
        let run = agent(&name).ask("Clean").send().await.unwrap();
        let calls = waiting_calls(&run).await;
        is_changed.store(changes, Ordering::SeqCst);
        run.decide(&calls[0].id, Decision::approve()).await.unwrap();
        match run.wait().await.unwrap() {
            RemoteOutcome::Answer(answer) => {
                let outcome = answer.tool_executions()[0].outcome();
                match expected {
                    Ok(text) => assert_eq!(outcome.unwrap().to_string(), text),
                    Err(text) => {
                        let error = outcome.unwrap_err();
                        assert_eq!(error.kind(), ToolErrorKind::NotExecuted);
                        assert_eq!(error.to_string(), format!("the call was not executed: {text}"));
                    }
                }
            }
            // The turn after the call asks the provider again.
            RemoteOutcome::Failed(failure) if fails => {
                assert_eq!(
                    failure.tool_executions[0].outcome().unwrap_err().kind(),
                    ToolErrorKind::NotExecuted
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

static STARTED: Notify = Notify::const_new();
static GO_ON: Notify = Notify::const_new();

#[tool("Waits for the test")]
async fn hold() {
    STARTED.notify_one();
    GO_ON.notified().await;
}

/// A model that does not answer its last request before the test has said something.
struct Patient(ScriptedModel);

impl ChatModel for Patient {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'a>) -> ModelFuture<'a> {
        Box::pin(async move {
            if request.messages().last().is_some_and(|one| one.text() == "Pay Bob, too") {
                STARTED.notify_one();
                GO_ON.notified().await;
            }
            self.0.chat(request).await
        })
    }
}

/// Returns the number of messages that have arrived at a run.
async fn messages_of(name: &str, key: &str) -> u64 {
    let query = format!(
        "SELECT value_utf8 AS waiting FROM state WHERE service_name = '{name}' AND service_key = '{key}' AND key = 'waiting'"
    );
    let row = sql(&query).await;
    let waiting = row["waiting"].as_str().and_then(|waiting| serde_json::from_str(waiting).ok());
    waiting.and_then(|waiting: serde_json::Value| waiting["messages"].as_u64()).unwrap_or_default()
}

static RELEASED: Notify = Notify::const_new();

/// A model that answers once the test releases it.
struct Hanging(ScriptedModel);

impl ChatModel for Hanging {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'a>) -> ModelFuture<'a> {
        Box::pin(async move {
            RELEASED.notified().await;
            self.0.chat(request).await
        })
    }
}

const FULL: &str = "the message was not sent: a run takes messages of up to 256 KiB, 100 messages or 4 MiB that it has not read, and \
                    16 MiB in all; send a shorter one, or wait until the run has read the others";

/// Those that have reached the run, and those that have not.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn too_many_and_too_long_messages_are_refused_and_decisions_and_cancellations_are_not() {
    let (waiting, _worker) = clerk(pays_ada().says("Done.")).await;
    let waiting = agent(&waiting).ask("Pay Ada").send().await.unwrap();
    let calls = waiting_calls(&waiting).await;
    let name = unique("hanging");
    let hanging = Agent::builder(Hanging(ScriptedModel::new().says("Late."))).name(&*name).build().unwrap();
    let _hanging = serve(Worker::new().agent(hanging)).await;
    let working = agent(&name).ask("Go").send().await.unwrap();
    for run in [&waiting, &working] {
        let long = run.say("x".repeat(300 << 10)).await.unwrap_err();
        assert_eq!((long.kind(), long.to_string()), (ErrorKind::Full, FULL.to_owned()));
        for number in 0..100 {
            run.say(UserMessage::new(format!("Hurry {number}")).by("ada")).await.unwrap();
        }
        let more = run.say("Hurry").await.unwrap_err();
        assert_eq!((more.kind(), more.to_string()), (ErrorKind::Full, FULL.to_owned()));
    }
    // Each handler looks for the number of its message; passing each of the others would take 200 entries.
    let query = format!(
        "SELECT CAST(max(journal_size) AS BIGINT) AS longest FROM sys_invocation \
         WHERE target_service_name = '{name}' AND target_handler_name = 'say'"
    );
    let longest = sql(&query).await["longest"].as_u64().unwrap();
    assert!((1..60).contains(&longest), "{longest} entries");
    waiting.decide(&calls[0].id, Decision::approve()).await.unwrap();
    let answer = answer(&waiting).await;
    let said: Vec<_> = answer.new_messages()[3..].iter().map(|one| one.text().into_owned()).collect();
    let hurry = (0..100).map(|number| format!("Hurry {number}"));
    assert_eq!(said, hurry.chain(["Done.".to_owned()]).collect::<Vec<_>>());
    working.cancel().await.unwrap();
    RELEASED.notify_one();
    assert!(matches!(working.wait().await.unwrap(), RemoteOutcome::Failed(_)));
}

/// A message is read in the next turn, also if the run has just got its answer.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_message_to_a_run_that_works_is_read_in_its_next_turn() {
    for is_local in [false, true] {
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("hold", "{}").says("Done.").says("Done.").says("Done.");
        let (model, requests) = (model.clone(), model);
        let clerk = Agent::builder(Patient(model)).name(&*name).tools(tools![hold]).build().unwrap();
        let worker = Worker::new().agent(clerk);
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let run = agent(&name).ask("Wait").send().await.unwrap();
        for message in ["Pay Bob, too", "Pay Cem, too"] {
            within("the call or the model", STARTED.notified()).await;
            run.say(message).await.unwrap();
            // Otherwise, the outcome of the call can arrive before the message.
            while !is_local && message == "Pay Bob, too" && messages_of(&name, run.key()).await != 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            GO_ON.notify_one();
        }
        assert_eq!(answer(&run).await.text(), "Done.", "{is_local}");
        let requests = requests.requests();
        let last = requests.iter().map(|one| one.last().unwrap());
        // With local calls, the first message can miss the turn after the call.
        let last: Vec<_> = last.filter(|one| !is_local || matches!(one, Message::User(_))).collect();
        let last: Vec<_> = last.iter().map(|one| one.text()).collect();
        assert_eq!(last, ["Wait", "Pay Bob, too", "Pay Cem, too"], "{is_local}");
    }
}
