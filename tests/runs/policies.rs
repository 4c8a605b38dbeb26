//! The effect of tool policies on a run: `return_direct`, `needs_approval`, `exclusive`, `external`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tests::support::deciding::{Decide, Waiting};
use tool_core::agent::on_approval;
use tool_core::layer::{CallVerdict, guard};
use tool_core::model::ToolDefinition;
use tool_core::run::{Decision, Run, Step};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{ExternalTool, OutcomeOrigin, ToolExecution};
use tool_core::{Agent, Answer, Event, RunError, RunErrorKind, ToolOutput, ToolSet, tool, tools};

static AT_ONCE: AtomicU32 = AtomicU32::new(0);
static MOST_AT_ONCE: AtomicU32 = AtomicU32::new(0);

async fn work() -> u32 {
    let now = AT_ONCE.fetch_add(1, Ordering::SeqCst) + 1;
    MOST_AT_ONCE.fetch_max(now, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(5)).await;
    AT_ONCE.fetch_sub(1, Ordering::SeqCst);
    now
}

#[tool(exclusive)]
async fn alone() -> u32 {
    work().await
}

#[tool]
async fn together() -> u32 {
    work().await
}

#[tokio::test]
async fn an_exclusive_call_runs_alone() {
    let model = ScriptedModel::new()
        .calls_all(["alone", "together", "alone", "together"].map(|name| (name, "{}")))
        .says("done");
    let agent = Agent::builder(model).tools(tools![alone, together]).build().unwrap();
    let answer = agent.ask("go").await.unwrap();
    let outputs: Vec<_> =
        answer.tool_executions().iter().map(|execution| execution.output().unwrap().to_string()).collect();
    // Each output is the number of calls in flight when it started; results are in the order of the calls.
    assert_eq!((&*outputs[0], &*outputs[2]), ("1", "1"));
    assert_eq!(MOST_AT_ONCE.load(Ordering::SeqCst), 2);
}

#[tool(return_direct)]
fn ticket(number: u32) -> Result<String, String> {
    if number == 0 { Err("there is no ticket 0".into()) } else { Ok(format!("Ticket {number}")) }
}

#[tool]
fn look() -> &'static str {
    "seen"
}

async fn ask(model: ScriptedModel) -> Answer {
    let agent = Agent::builder(model).tools(tools![ticket, look]).build().unwrap();
    agent.ask("go").await.unwrap()
}

const FIRST: (&str, &str) = ("ticket", r#"{"number": 1}"#);

#[tokio::test]
async fn return_direct_outputs_are_the_answer() {
    let answer = ask(ScriptedModel::new().calls("ticket", r#"{"number": 7}"#)).await;
    assert_eq!((answer.text(), answer.turns()), ("Ticket 7", 1));
    assert_eq!(answer.new_messages().len(), 3);

    let both = [FIRST, ("ticket", r#"{"number": 2}"#)];
    assert_eq!(ask(ScriptedModel::new().calls_all(both)).await.text(), "Ticket 1\nTicket 2");

    // Beside another tool, or after a failure, the model is asked again.
    let mixed = [FIRST, ("look", "{}")];
    assert_eq!(ask(ScriptedModel::new().calls_all(mixed).says("both")).await.text(), "both");
    let failed = [FIRST, ("ticket", r#"{"number": 0}"#)];
    assert_eq!(ask(ScriptedModel::new().calls_all(failed).says("one failed")).await.text(), "one failed");
}

/// Returns the texts that a stream shows, and the text of its answer.
async fn shown(model: ScriptedModel) -> (Vec<String>, String) {
    let agent = Agent::builder(model).tools(tools![ticket, look, quote]).build().unwrap();
    let mut events = agent.ask("go").stream();
    let mut texts = Vec::new();
    loop {
        match events.next().await.unwrap().unwrap() {
            Event::Text(text) => texts.push(text),
            Event::Done(answer) => return (texts, answer.text().to_owned()),
            _ => {}
        }
    }
}

#[tool(return_direct, pure)]
fn quote() -> &'static str {
    "To be"
}

/// A program that prints the texts shows the whole answer, also if no model wrote it.
#[tokio::test]
async fn return_direct_outputs_are_streamed_as_text() {
    let (texts, answer) = shown(ScriptedModel::new().calls("ticket", r#"{"number": 7}"#)).await;
    assert_eq!((texts.concat(), &*answer), ("Ticket 7".into(), "Ticket 7"));
    let both = [FIRST, ("ticket", r#"{"number": 2}"#)];
    let (texts, answer) = shown(ScriptedModel::new().calls_all(both)).await;
    assert_eq!((texts.concat(), &*answer), ("Ticket 1\nTicket 2".into(), "Ticket 1\nTicket 2"));
    // An output that is reused needs no further execution.
    let mixed = [("quote", "{}"), ("look", "{}")];
    let (texts, answer) = shown(ScriptedModel::new().calls_all(mixed).calls("quote", "{}")).await;
    assert_eq!((texts.concat(), &*answer), ("To be".into(), "To be"));
    // The model's own text arrives once.
    let mixed = [FIRST, ("look", "{}")];
    let (texts, answer) = shown(ScriptedModel::new().calls_all(mixed).says("both")).await;
    assert_eq!((texts.concat(), &*answer), ("both".into(), "both"));
}

#[tokio::test]
async fn a_run_that_ended_by_return_direct_can_be_stored() {
    let model = ScriptedModel::new().calls("ticket", r#"{"number": 7}"#);
    let agent = Agent::builder(model).tools(tools![ticket]).build().unwrap();
    let mut run = agent.ask("go").start();
    while run.advance().await.unwrap() {
        let state = serde_json::to_string(run.run()).unwrap();
        run = agent.resume(serde_json::from_str::<Run>(&state).unwrap()).start();
    }
    assert_eq!(run.finish().await.unwrap().text(), "Ticket 7");
}

static DELETED: AtomicU32 = AtomicU32::new(0);

#[tool(needs_approval)]
fn delete() {
    DELETED.fetch_add(1, Ordering::SeqCst);
}

#[tokio::test]
async fn does_not_execute_calls_without_their_approval() {
    let model = ScriptedModel::new().calls("delete", "{}").says("I may not.");
    let agent = Agent::builder(model).tools(tools![delete]).build().unwrap();
    let error = agent.ask("go").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting) && error.is_resumable());
    assert_eq!(error.approvals().map(|call| call.name).collect::<Vec<_>>(), ["delete"]);
    assert_eq!(DELETED.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn restores_mangled_calls_before_executing_them() {
    let several = r#"{"tool_uses": [
        {"recipient_name": "functions.look", "parameters": {}},
        {"recipient_name": "functions.ticket", "parameters": {"number": 3}}
    ]}"#;
    let model =
        ScriptedModel::new().calls("look\" />", "{}").calls("multi_tool_use.parallel", several).says("done");
    let answer = ask(model.clone()).await;
    let executed: Vec<_> = answer
        .tool_executions()
        .iter()
        .map(|execution| (&*execution.call().name, execution.output().map(ToString::to_string)))
        .collect();
    let seen = Some("seen".to_owned());
    assert_eq!(executed, [("look", seen.clone()), ("look", seen), ("ticket", Some("Ticket 3".into()))]);
    // The calls sent back to the provider are those that were executed.
    let last = model.requests().pop().unwrap();
    let names =
        last.iter().filter_map(tool_core::Message::as_assistant).flat_map(|message| &message.tool_calls);
    assert_eq!(names.map(|call| &*call.name).collect::<Vec<_>>(), ["look", "look", "ticket"]);
}

/// An agent whose model calls an external tool, a tool that needs approval, and another one.
fn locating() -> Agent {
    let locate = ExternalTool::new(ToolDefinition::new("locate"));
    let tools: ToolSet = tools![look, erase].with(locate).unwrap();
    let calls = [("locate", "{}"), ("look", "{}"), ("erase", "{}")];
    let model = ScriptedModel::new().calls_all(calls).says("You are in Berlin.");
    Agent::builder(model)
        .tools(tools)
        .decider(on_approval(|_| tool_core::run::Decision::decline()))
        .build()
        .unwrap()
}

#[tool(needs_approval)]
fn erase() {}

fn supply(run: &mut Run) {
    let call = run.results().next().expect("a call awaits its result");
    assert_eq!(call.name, "locate");
    run.record_result(ToolExecution::new(call, Ok("Berlin".into()))).unwrap();
}

fn assert_located(answer: &Answer) {
    assert_eq!(answer.text(), "You are in Berlin.");
    let texts: Vec<_> = answer.new_messages()[2..5].iter().map(tool_core::Message::text).collect();
    assert_eq!(texts, ["Berlin", "seen", "the call was denied"]);
    let origins: Vec<_> = answer.tool_executions().iter().map(ToolExecution::origin).collect();
    assert_eq!(origins, [OutcomeOrigin::External, OutcomeOrigin::Executed, OutcomeOrigin::NotExecuted]);
}

#[tokio::test]
async fn a_run_waits_for_the_results_of_external_tools() {
    let agent = locating();
    let error = agent.ask("Where am I?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting) && error.is_resumable(), "{error}");
    assert_eq!(error.results().map(|call| call.name).collect::<Vec<_>>(), ["locate"]);
    let mut run: Run = serde_json::from_str(&serde_json::to_string(error.run()).unwrap()).unwrap();
    supply(&mut run);
    assert_located(&agent.resume(run).await.unwrap());

    let agent = locating();
    let mut events = agent.ask("Where am I?").stream();
    let mut reported = Vec::new();
    let error = loop {
        match events.next().await.unwrap() {
            Ok(Event::CallStarted(call)) => reported.push(format!("started {}", call.name)),
            Ok(Event::Waiting(waits)) => reported.push(format!("needs {}", waits[0].tool)),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(reported, ["started look", "needs locate"]);
    let mut run = error.into_run();
    supply(&mut run);
    assert_located(&agent.resume(run).await.unwrap());

    let agent = locating();
    let mut driver = agent.ask("Where am I?").start();
    loop {
        match driver.next().await.unwrap() {
            Step::Waiting(_) => {
                let calls: Vec<_> = driver.run().results().collect();
                let refused = driver.execute(calls[0].clone()).await.unwrap_err().to_string();
                assert_eq!(
                    refused,
                    "the run does not expect this: the tool is external: the caller executes the call"
                );
                let mut run = driver.into_run();
                supply(&mut run);
                driver = agent.resume(run).start();
            }
            Step::Done => break,
            _ => drop(driver.advance().await.unwrap()),
        }
    }
    assert_located(&driver.finish().await.unwrap());
}

/// Returns the results of all calls that the run leaves to the caller, in all three ways of driving it.
#[tokio::test]
async fn a_layer_leaves_calls_to_the_caller() {
    #[tool]
    fn first() {}
    #[tool]
    fn second() {}
    #[tool(needs_approval)]
    fn guarded() {}
    let agent = || {
        let model = ScriptedModel::new()
            .calls_all([("first", "{}"), ("guarded", "{}"), ("unknown", "{}")])
            .calls("second", "{}")
            .says("Done.");
        Agent::builder(model)
            .tools(tools![first, second, guarded])
            .layer(guard::call_with_context(|_, at| match at.messages.len() {
                2 => CallVerdict::LeaveToCaller,
                _ => CallVerdict::Pass,
            }))
            .build()
            .unwrap()
    };
    let finish = async |agent: &Agent, error: RunError| {
        assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
        let state = serde_json::to_string(error.run()).unwrap();
        let mut run: Run = serde_json::from_str(&state).unwrap();
        run.decide_calls(&Decision::approve());
        let error = agent.resume(run).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
        let state = serde_json::to_string(error.run()).unwrap();
        let mut run: Run = serde_json::from_str(&state).unwrap();
        let calls: Vec<_> = run.results().collect();
        assert_eq!(calls.iter().map(|call| &*call.name).collect::<Vec<_>>(), ["first", "guarded", "unknown"]);
        for call in calls {
            run.record_result(ToolExecution::new(call, Ok(ToolOutput::text("by the caller")))).unwrap();
        }
        let answer = agent.resume(run).await.unwrap();
        let origins: Vec<_> = answer.tool_executions().iter().map(ToolExecution::origin).collect();
        assert_eq!(
            origins,
            [
                OutcomeOrigin::External,
                OutcomeOrigin::External,
                OutcomeOrigin::External,
                OutcomeOrigin::Executed
            ]
        );
        assert_eq!(answer.new_messages()[3].text(), "by the caller");
    };
    let awaited = agent();
    finish(&awaited, awaited.ask("Go").await.unwrap_err()).await;
    let streamed = agent();
    let mut events = streamed.ask("Go").stream();
    let error = loop {
        if let Err(error) = events.next().await.unwrap() {
            break error;
        }
    };
    finish(&streamed, error).await;
    let driven = agent();
    let mut run = driven.ask("Go").start();
    run.advance().await.unwrap();
    finish(&driven, run.advance().await.unwrap_err()).await;
}
