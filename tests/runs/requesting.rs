//! Calls that other processes execute: what a run hands out, and how it goes on while they are in flight.

use futures_util::FutureExt;
use tests::support::deciding::Decide;
use tool_core::engine::{AgentExt, CallRequest, ToolSetExt};
use tool_core::layer::{OutputVerdict, guard};
use tool_core::model::{AssistantMessage, ChatResponse, ToolDefinition, ToolPolicy};
use tool_core::provider::ToolDefinitions;
use tool_core::run::{Decision, Run, Step, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{CallToUndo, IdempotencyKey, Progress, ToolErrorKind, ToolExecution};
use tool_core::{Agent, CancellationToken, Message, RunErrorKind, ToolCall, ToolContext, tool, tools};

fn policy(change: fn(&mut ToolPolicy)) -> ToolPolicy {
    let mut policy = ToolPolicy::default();
    change(&mut policy);
    policy
}

fn run_with_calls(calls: &[(&str, &str)]) -> Run {
    let mut run = Run::new([Message::user("Go")]);
    let calls = calls.iter().map(|(id, name)| ToolCall::new(*id, *name, "{}"));
    let message = AssistantMessage::default().with_tool_calls(calls);
    run.record_response(ChatResponse::new(message)).unwrap();
    run
}

fn ready(step: &Step<'_>) -> Vec<String> {
    match step {
        Step::CallTools(calls) => calls.iter().map(|call| call.id.clone()).collect(),
        other => panic!("{other:?}"),
    }
}

/// What was in flight when a run is restored, or when its driver asks for the next step, counts as interrupted.
#[test]
fn what_a_driver_had_in_flight_is_lost_without_it() {
    let once = ToolDefinition::new("once").with_policy(policy(|policy| policy.at_most_once = true));
    let tools = ToolDefinitions::from_iter([once]);
    let restored = |run: &Run| serde_json::from_str(&serde_json::to_string(run).unwrap()).unwrap();
    let mut lost = run_with_calls(&[("a", "once")]);
    assert_eq!(ready(&lost.next(&tools)), ["a"]);
    lost.begin_call("a").unwrap();
    let mut of_store: Run = restored(&lost);
    assert!(matches!(lost.next(&tools), Step::CallModel(_)));
    assert!(matches!(of_store.next(&tools), Step::CallModel(_)));
    for run in [lost, of_store] {
        assert_eq!(run.tool_executions()[0].outcome().unwrap_err().kind(), ToolErrorKind::OutcomeUnknown);
    }
}

/// A call that was started is executed once: a second execution, also after one that was dropped, fails if the tool is `at_most_once`.
#[tokio::test]
async fn a_call_that_was_started_is_executed_once() {
    #[tool("Works", at_most_once)]
    async fn once() {
        std::future::pending().await
    }

    let agent = Agent::builder(ScriptedModel::new().calls("once", "{}")).tools(tools![once]).build().unwrap();
    let mut driver = agent.ask("Go").start();
    let response = driver.call_model().await.unwrap();
    driver.record_response(response).await.unwrap();
    let Step::CallTools(calls) = driver.next().await.unwrap() else { panic!() };
    let call = calls[0].clone();
    let first = driver.begin_call(&call).await.unwrap();
    assert_eq!(driver.begin_call(&call).await.unwrap(), first);
    assert!(driver.execute(call.clone()).now_or_never().is_none());
    let error = driver.execute(call).await.unwrap_err();
    assert!(
        error.to_string().contains("the call was started before and its tool is `at_most_once`"),
        "{error}"
    );
}

#[tool(undo = "unbook")]
fn book(room: u32, #[inject] key: &IdempotencyKey) -> String {
    format!("{room} under {key}")
}

#[tool]
fn unbook(#[inject] undone: &CallToUndo, #[inject] currency: &&'static str) -> Result<String, String> {
    let output = undone.output.as_ref().ok_or("unknown")?;
    Ok(format!("{} {output} in {currency}", undone.call.name))
}

/// Serializes the request, as it goes to another process.
async fn execute(agent: &Agent, run: &mut Run, call_id: &str) -> ToolExecution {
    let request = serde_json::to_string(&run.request_call(call_id).unwrap()).unwrap();
    let request: CallRequest = serde_json::from_str(&request).unwrap();
    let context = ToolContext::new().with("euros");
    agent.execute_request(&[], request, &context, &CancellationToken::new(), Progress::default()).await
}

#[tokio::test]
async fn a_requested_call_is_executed_and_undone_by_another_process() {
    let model = ScriptedModel::new().calls("book", r#"{"room": 7}"#);
    let agent = Agent::builder(model).tools(tools![book]).undo_tools(tools![unbook]).context("cents");
    let agent = agent.build().unwrap();
    let mut driver = agent.ask("Book room 7").start();
    driver.advance().await.unwrap();
    let mut run = driver.into_run();
    let key = format!("{}/call_1_0", run.id());
    let booked = execute(&agent, &mut run, "call_1_0").await;
    assert_eq!(booked.output().unwrap().to_string(), format!("7 under {key}"));
    run.record_result(booked).unwrap();
    run.cancel();
    let undone = execute(&agent, &mut run, "undo_call_1_0").await;
    assert_eq!(undone.output().unwrap().to_string(), format!("book 7 under {key} in euros"));
    run.record_result(undone).unwrap();
    let error = run.finish().unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_error_handler_sees_the_last_attempt_of_a_requested_call() {
    #[tool("Fails", attempts = 2)]
    fn flaky() -> Result<(), &'static str> {
        Err("busy")
    }
    let model = ScriptedModel::new().calls("flaky", "{}");
    let handler = |execution: &ToolExecution| match execution.error() {
        Some(error) => OutputVerdict::replace(format!("handled: {error}")),
        None => OutputVerdict::Pass,
    };
    let agent = Agent::builder(model).tools(tools![flaky]).layer(guard::output(handler)).build().unwrap();
    let mut driver = agent.ask("Go").start();
    driver.advance().await.unwrap();
    let mut run = driver.into_run();
    for _ in 0..2 {
        assert!(run.tool_executions().is_empty());
        let execution = execute(&agent, &mut run, "call_1_0").await;
        assert_eq!(execution.outcome().unwrap_err().to_string(), "busy");
        // The driver that records it asks the layers.
        let mut driver = agent.resume(run).start();
        driver.record_result(execution).await.unwrap();
        run = driver.into_run();
    }
    let execution = &run.tool_executions()[0];
    assert_eq!(execution.output().unwrap().to_string(), "handled: busy");
    assert_eq!(execution.attempts(), 2);
}

#[test]
fn a_decision_survives_serialization() {
    for decision in [Decision::approve(), Decision::approve_with("{}"), Decision::deny("no")] {
        let text = serde_json::to_string(&decision).unwrap();
        assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision, "{text}");
    }
}

/// A person approved the definition, and not whatever has its name later.
#[tokio::test]
async fn a_request_is_executed_only_by_the_tool_with_its_definition() {
    #[tool("Reads the balance")]
    fn balance() -> u32 {
        500
    }
    let model = ScriptedModel::new().calls("balance", "{}");
    let agent = Agent::builder(model).tools(tools![balance]).build().unwrap();
    let mut driver = agent.ask("Balance").start();
    driver.advance().await.unwrap();
    let request = driver.into_run().request_call("call_1_0").unwrap();
    let own = agent.tools().get("balance").unwrap().definition().hash();
    for (definition, expected) in [(None, Ok("500")), (Some(own), Ok("500")), (Some("other".into()), Err(()))]
    {
        let mut request = request.clone();
        request.definition = definition;
        let (context, never) = (ToolContext::new(), CancellationToken::new());
        let by_agent =
            agent.execute_request(&[], request.clone(), &context, &never, Progress::default()).await;
        let by_set = agent.tools().execute_request(request, &context, &never, Progress::default()).await;
        for execution in [by_agent, by_set] {
            match expected {
                Ok(text) => assert_eq!(execution.output().unwrap().to_string(), text),
                Err(()) => {
                    let expected =
                        "the call was not executed: the tool was changed since it was offered; call it again";
                    assert_eq!(execution.outcome().unwrap_err().to_string(), expected);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_request_of_an_approved_call_has_the_approved_definition() {
    #[tool("Erases everything", needs_approval)]
    fn erase() {}
    let agent =
        Agent::builder(ScriptedModel::new().calls("erase", "{}")).tools(tools![erase]).build().unwrap();
    let mut run = agent.ask("Erase").await.unwrap_err().into_run();
    run.decide_call("call_1_0", Decision::approve()).unwrap();
    let definition = run.request_call("call_1_0").unwrap().definition;
    assert_eq!(definition, Some(agent.tools().get("erase").unwrap().definition().hash()));
}

#[tool("Works", attempts = 2, needs_approval)]
fn work(step: u32, #[inject] attempt: &tool_core::tool::Attempt) -> Result<String, String> {
    if attempt.number == 1 {
        Err("busy".into())
    } else {
        Ok(format!("step {step}: {}", "worked".repeat(100)))
    }
}

/// A replay of the changes of each step has the same states, and the changes grow with the step alone.
#[tokio::test(start_paused = true)]
async fn changes_of_steps_replay_a_run() {
    let model = (10..30)
        .fold(ScriptedModel::new(), |model, step| model.calls("work", format!(r#"{{"step": {step}}}"#)))
        .says("Done.");
    let agent = Agent::builder(model).tools(tools![work]).limits(|l| l.max_turns(30)).build().unwrap();
    let state = |run: &Run| {
        let mut state = serde_json::to_value(run).unwrap();
        state.as_object_mut().unwrap().remove("time");
        state
    };
    let mut run = agent.ask("Go").start().into_run();
    let (mut replayed, mut sizes) = (run.clone(), Vec::new());
    while !run.is_done() {
        run = run.engine_view().recording_copy();
        run.decide_calls(&Decision::approve());
        let mut driver = agent.resume(run).start();
        let _ = driver.advance().await;
        run = driver.into_run();
        let changes = serde_json::to_string(&run.changes().without_time()).unwrap();
        sizes.push(changes.len());
        replayed.apply_changes(&serde_json::from_str(&changes).unwrap()).unwrap();
        assert_eq!(state(&replayed), state(&run));
        assert!(run.engine_view().recording_copy().changes().is_empty());
    }
    assert_eq!(replayed.finish().unwrap().text(), "Done.");
    let (first, last) = (sizes[..8].iter().max().unwrap(), sizes.iter().max().unwrap());
    assert!(*last <= first + 100, "{sizes:?}");
}
