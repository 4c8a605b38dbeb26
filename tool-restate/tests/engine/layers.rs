//! Layers around durable runs.

#[path = "../../../tests/layers/rules.rs"]
mod rules;

use std::future::ready;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tool_core::agent::ToolSearch;
use tool_core::layer::{AnswerVerdict, CallVerdict, OutputVerdict, guard};
use tool_core::memory::{Budget, InMemoryStore};
use tool_core::model::{Cost, Currency, ModelPrices, Prices};
use tool_core::run::{Decision, StopReason, WaitReason};
use tool_core::signatures::VerdictKind;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{AskError, Asker};
use tool_core::{Agent, Event, Message, ToolCall, ToolOutput, tool, tools};
use tool_restate::{RemoteOutcome, Worker};

use self::rules::{Act, Rule};
use crate::support::{
    Mortal, agent, answer, client, failure, free_address, register_at, serve, unique, within,
};

/// How the run that is observed comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Remote,
    Local,
    Inside,
    HandedOff,
    Searching,
}

/// A rule and the run in which it is observed.
struct Case {
    rule: Rule,
    form: Form,
    agent: Agent,
    script: ScriptedModel,
    act: Act,
}

fn case(rule: Rule, form: Form) -> Case {
    let act = Act::new();
    let script = rule.script(("act", r#"{"text":"a"}"#));
    let builder = Agent::builder(script.clone()).tools(act.clone());
    let builder = match form {
        Form::Inside => {
            let inner = builder.build().unwrap().as_tool("inner", "Acts");
            let outer = ScriptedModel::new().calls("inner", r#"{"question": "act"}"#).says("Done.");
            let outer = if rule == Rule::AnswerRetry { outer.says("Better.") } else { outer };
            Agent::builder(outer).tools(inner)
        }
        Form::HandedOff => {
            let other = builder.build().unwrap();
            let desk = Agent::builder(ScriptedModel::new().calls("other", "{}"));
            desk.handoff_to("other", "Takes over", &other)
        }
        Form::Searching => builder.tool_search(ToolSearch::bm25().min_tools(0)),
        Form::Remote | Form::Local => builder,
    };
    let builder = builder.name(unique("clerk")).layer(rule);
    let prices =
        || Prices::from_fn(Currency::USD, |_, _| Some(ModelPrices::new(1.0, 1.0).with_max_output_tokens(10)));
    let builder = match rule {
        Rule::Limit => builder.limits(|l| l.max_calls(0)),
        Rule::MaxCost => builder.prices(prices()).limits(|l| l.max_cost(Cost::usd(0.000_01))),
        Rule::Budget => {
            let budget = Budget::tokens(InMemoryStore::new(), 50, Duration::from_secs(3_600));
            builder.prices(prices()).budget(budget.key("all"))
        }
        Rule::OpenBudget => builder.prices(prices()).run_setup(rule),
        Rule::OpenDeny | Rule::OpenFail => builder.run_setup(rule),
        _ => builder,
    };
    Case { rule, form, agent: builder.build().unwrap(), script, act }
}

/// Returns what the rule does.
async fn observe(Case { rule, agent, script, act, .. }: &Case) -> String {
    let name = agent.name().unwrap();
    let ask = client().agent(name).ask("go");
    // Two runs of one conversation would wait for each other.
    let ask = if *rule == Rule::Whose { ask.user("ada").conversation(name) } else { ask };
    let run = ask.send().await.unwrap();
    let mut text = String::new();
    loop {
        match run.wait().await.unwrap() {
            RemoteOutcome::Answer(answer) => break text.push_str(answer.text()),
            RemoteOutcome::Failed(_) => break text.push_str("error"),
            // A layer that fails is asked again, until an operator is needed, who can also find money.
            RemoteOutcome::Paused(reason) => {
                let is_unpaid = matches!(rule, Rule::MaxCost | Rule::Budget | Rule::OpenBudget);
                let has_failed = reason.contains("layer `rule`") || reason.ends_with("opened: broken");
                assert!(is_unpaid || has_failed, "{reason}");
                text.push_str("error");
                run.cancel().await.unwrap();
                let _ = run.wait().await.unwrap();
                break;
            }
            RemoteOutcome::Waiting(waits) => {
                let decision = match &waits[0].reason {
                    WaitReason::Approval(call) => {
                        assert_eq!(call.arguments, r#"{"text":"a"}"#);
                        text.push_str("asked a, ");
                        match rule {
                            Rule::DenyApproval => Decision::deny("by a person"),
                            Rule::EditApproval => Decision::approve_with(r#"{"text":"c"}"#),
                            _ => Decision::approve(),
                        }
                    }
                    WaitReason::CallerResult(_) => {
                        text.push_str("left a, ");
                        Decision::result(Ok(ToolOutput::text("by the caller")))
                    }
                    other => panic!("unexpected: {other:?}"),
                };
                run.decide(&waits[0].id, decision).await.unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    let requests = script.requests();
    let read = requests.last().into_iter().flatten();
    let read = read.filter(|one| matches!(one, Message::Tool(_)) && one.text() != "handed off");
    let is_brief = !requests.is_empty() && requests.iter().all(|one| one.last().unwrap().text() == "briefly");
    let brief = if is_brief { ", briefly" } else { "" };
    let read: Vec<_> =
        read.map(|one| format!("{}{brief}", one.text().replace("the call was ", ""))).collect();
    let read = read.join("+").replace(&format!("in {name}"), "in chat");
    let beginning = ["not executed", "there is no tool"].into_iter().find(|text| read.starts_with(text));
    let read = beginning.map_or(read, str::to_owned);
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let executed = act.executed.lock().unwrap().join("+");
    format!("{text} | {} | {}", or_none(executed), or_none(read))
}

/// The column of durable runs in the matrix of `tests/layers`: what a rule does is the same wherever a run comes from.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn each_rule_of_layers_holds() {
    let forms = [Form::Remote, Form::Local, Form::Inside, Form::HandedOff, Form::Searching];
    let cases: Vec<_> = Rule::ALL.into_iter().flat_map(|rule| forms.map(|form| case(rule, form))).collect();
    // Two workers for all: a registration takes the server longer than a run.
    let worker = |is_local: bool| {
        let cases = cases.iter().filter(|case| (case.form == Form::Local) == is_local);
        let patient = Worker::new().model_patience(Duration::from_millis(300));
        cases.fold(patient, |worker, case| worker.agent(case.agent.clone()))
    };
    let _workers = (serve(worker(false)).await, serve(worker(true).local_calls()).await);
    let observed = stream::iter(&cases).map(|case| async move {
        let observed = within(&format!("{:?}, {:?}", case.rule, case.form), observe(case)).await;
        let expected = case.rule.expected();
        (observed != expected)
            .then(|| format!("{:?}, {:?}: {observed}, expected {expected}", case.rule, case.form))
    });
    let wrong: Vec<_> = observed.buffered(10).filter_map(ready).collect().await;
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tool("Pays", needs_approval)]
fn pay(euros: u32) -> String {
    format!("paid {euros}")
}

#[tool("Asks")]
async fn ask(#[inject] user: &Asker) -> Result<String, AskError> {
    user.ask("Which?").await
}

/// Verdicts are in the journal: a worker that replays it asks no guard again, but one that executes a call that has waited does.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn guards_are_asked_again_after_a_wait_and_not_by_a_replay() {
    let (name, address, judged) = (unique("clerk"), free_address(), Arc::new(Mutex::new(Vec::new())));
    let questions = Arc::new(AtomicU32::new(0));
    let calls = [("pay", r#"{"euros": 5}"#), ("ask", "{}")];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let (log, asked) = (Arc::clone(&judged), Arc::clone(&questions));
    let clerk = Agent::builder(model).name(&*name).tools(tools![pay, ask]);
    let clerk = clerk
        .layer(guard::question(move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            tool_core::layer::QuestionVerdict::Pass
        }))
        .layer(guard::call(move |call: &ToolCall| {
            log.lock().unwrap().push(call.name.clone());
            CallVerdict::Pass
        }))
        .build()
        .unwrap();
    let worker = || Worker::new().agent(clerk.clone());
    let first = Mortal::start(worker(), address).await;
    register_at(address).await;
    let run = agent(&name).ask("Pay").send().await.unwrap();
    let waits = async {
        loop {
            match run.wait().await.unwrap() {
                RemoteOutcome::Waiting(waits) if waits.len() == 2 => break waits,
                RemoteOutcome::Waiting(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                other => panic!("{other:?}"),
            }
        }
    };
    let waits = within("both wait", waits).await;
    assert_eq!(*judged.lock().unwrap(), ["pay", "ask"]);
    drop(first);
    let _second = Mortal::start(worker(), address).await;
    for wait in &waits {
        let decision = if wait.question().is_some() { Decision::answer("this") } else { Decision::approve() };
        run.decide(&wait.id, decision).await.unwrap();
    }
    let answer = answer(&run).await;
    assert_eq!(answer.text(), "Done.");
    // Both may have been decided about before the calls started.
    let judged: Vec<_> = std::mem::take(&mut *judged.lock().unwrap());
    let times = |name: &str| judged.iter().filter(|one| *one == name).count();
    assert!(times("pay") >= 2 && times("ask") >= 2 && judged.len() <= 6, "{judged:?}");
    assert_eq!(questions.load(Ordering::SeqCst), 1);
}

/// Readers get nothing of a reply that a guard replaces, nor arguments that are rewritten, and the record has both forms.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn events_contain_nothing_that_was_not_judged() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("pay", r#"{"euros": 5}"#).says("The secret is 7.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![pay]);
    let clerk = clerk
        .layer(tool_core::layer::rewrite::call(|_| Some(r#"{"euros": 4}"#.to_owned())))
        .layer(guard::answer(|_| AnswerVerdict::replace("No.")))
        .build()
        .unwrap();
    let worker = Worker::new().agent(clerk).publish_events(&client());
    let _worker = serve(worker).await;
    let run = agent(&name).ask("Pay").events().send().await.unwrap();
    let RemoteOutcome::Waiting(waits) = run.wait().await.unwrap() else { panic!("it waits") };
    assert!(matches!(&waits[0].reason, WaitReason::Approval(call) if call.arguments == r#"{"euros": 4}"#));
    run.decide(&waits[0].id, Decision::approve()).await.unwrap();
    let answer = answer(&run).await;
    assert_eq!(answer.text(), "No.");
    let execution = &answer.tool_executions()[0];
    assert_eq!(
        (execution.original_arguments(), &*execution.call().arguments),
        (r#"{"euros": 5}"#, r#"{"euros": 4}"#)
    );
    assert_eq!(execution.verdicts()[0].kind, VerdictKind::Rewritten);
    let (mut events, mut all) = (run.events(0), String::new());
    while let Some(record) = events.next().await.unwrap() {
        // The record of the finished call has both forms.
        if !matches!(record.event, Event::CallFinished(_)) {
            all.push_str(&serde_json::to_string(&record).unwrap());
        }
    }
    assert!(!all.contains("secret") && !all.contains("euros\\\": 5"), "{all}");
    assert!(all.contains("No."), "{all}");
}

/// A worker that has only tools has no layers, but the run has its agent's.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn layers_see_the_outputs_of_workers_that_have_only_tools() {
    for ends in [false, true] {
        let (name, shop) = (unique("clerk"), unique("shop"));
        let model = ScriptedModel::new().calls("balance", "{}").says("Done.");
        let clerk = Agent::builder(model).name(&*name).tools(tools![balance]);
        let clerk = clerk.layer(guard::output(move |_| match ends {
            true => OutputVerdict::end("never"),
            false => OutputVerdict::replace("hidden"),
        }));
        let _worker = serve(Worker::new().agent(clerk.build().unwrap()).tools_at(&*shop, ["balance"])).await;
        let _shop = serve(Worker::tools_only(&*shop, tools![balance])).await;
        let run = agent(&name).ask("Go").send().await.unwrap();
        if ends {
            let failure = failure(&run).await;
            let blocked =
                matches!(&failure.reason, Some(StopReason::Blocked { reason, .. }) if reason == "never");
            assert!(blocked, "{failure:?}");
        } else {
            let answer = answer(&run).await;
            assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "hidden");
            let original = answer.tool_executions()[0].original_outcome().unwrap();
            assert_eq!(original.to_string(), "500");
        }
    }
}

#[tool("Reads the balance")]
fn balance() -> u32 {
    500
}

#[tool("Reports", return_direct)]
fn report() -> &'static str {
    "report"
}

#[tool("Refunds", needs_approval)]
fn give_back() {}

/// An answer that no layer can judge ends its run, and a cancellation does, too.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_answer_that_cannot_be_judged_ends_its_run() {
    let name = unique("clerk");
    let clerk = Agent::builder(ScriptedModel::new().calls("report", "{}")).name(&*name).tools(tools![report]);
    let clerk = clerk.layer(guard::answer(|_: &str| -> AnswerVerdict { panic!("broken") })).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let failure = failure(&agent(&name).ask("Go").send().await.unwrap()).await;
    assert!(failure.message.contains("broken"), "{}", failure.message);
}

/// No person is asked about a call that layers have not judged.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn layers_judge_a_call_before_a_person_also_after_a_failure() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("give_back", "{}").says("Denied.");
    let asked = AtomicU32::new(0);
    let clerk = Agent::builder(model).name(&*name).tools(tools![give_back]);
    let clerk = clerk.layer(guard::call(move |_: &ToolCall| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Err("not now"),
        _ => Ok(CallVerdict::Deny("never".into())),
    }));
    let _worker = serve(Worker::new().agent(clerk.build().unwrap())).await;
    let answer = answer(&agent(&name).ask("Go").send().await.unwrap()).await;
    assert_eq!(answer.text(), "Denied.");
    assert_eq!(answer.tool_executions()[0].outcome().unwrap_err().to_string(), "the call was denied: never");
}
