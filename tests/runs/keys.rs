//! Each call has one key across all attempts; interrupted calls are retried or reported as outcome unknown.

use std::collections::HashSet;
use std::sync::Mutex;

use tests::support::stores::run_ids;
use tool_core::memory::InMemoryStore;
use tool_core::model::{AssistantMessage, ChatResponse};
use tool_core::run::{Run, Step};
use tool_core::store::RunStore;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Attempt, IdempotencyKey, ToolErrorKind, ToolExecution};
use tool_core::{Agent, Message, ToolCall, ToolContext, tool, tools};

static SEEN: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());

#[tool(attempts = 3)]
fn charge(
    id: String,
    failures: u32,
    #[inject] key: &IdempotencyKey,
    #[inject] context: &ToolContext,
) -> Result<String, String> {
    SEEN.lock().unwrap().push((key.to_string(), context.attempt()));
    if context.attempt() <= failures { Err("busy".into()) } else { Ok(id) }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_unique_to_a_call_and_stable_across_attempts() {
    let calls = [("charge", r#"{"id": "a", "failures": 2}"#), ("charge", r#"{"id": "b", "failures": 0}"#)];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let agent = Agent::builder(model).tools(tools![charge]).build().unwrap();
    let run = agent.ask("Charge").start();
    let id = run.run().id().clone();
    agent.resume(run.into_run()).await.unwrap();
    let seen = std::mem::take(&mut *SEEN.lock().unwrap());
    let first = format!("{id}/call_1_0");
    let of_first: Vec<_> =
        seen.iter().filter(|(key, _)| *key == first).map(|(_, attempt)| *attempt).collect();
    assert_eq!(of_first, [1, 2, 3]);
    assert_eq!(seen.iter().map(|(key, _)| key).collect::<HashSet<_>>().len(), 2);
}

#[tool]
fn again(#[inject] attempt: &Attempt, #[inject] context: &ToolContext) -> String {
    assert_eq!(attempt.number, context.attempt());
    format!("{} {}", attempt.key, attempt.number)
}

#[tool(at_most_once)]
fn once() -> &'static str {
    "done"
}

/// The process ends after the calls have started; the stored state is resumed.
#[tokio::test(start_paused = true)]
async fn interrupted_calls_are_retried_or_reported_as_outcome_unknown() {
    let model = ScriptedModel::new().calls_all([("again", "{}"), ("once", "{}")]).says("Done.");
    let agent = Agent::builder(model).tools(tools![again, once]).build().unwrap();
    let mut run = agent.ask("Go").start();
    run.advance().await.unwrap();
    let mut state = run.into_run();
    let Step::CallTools(calls) = state.next(agent.tools().definitions()) else { panic!() };
    for call in calls {
        state.begin_call(&call.id).unwrap();
    }
    let stored = serde_json::to_string(&state).unwrap();
    let restored: Run = serde_json::from_str(&stored).unwrap();
    let answer = agent.resume(restored).await.unwrap();
    let made = answer.tool_executions();
    assert_eq!(made[0].output().unwrap().to_string(), format!("{}/call_1_0 2", state.id()));
    assert_eq!(made[0].attempts(), 2);
    let lost = made[1].outcome().unwrap_err();
    assert_eq!(lost.kind(), ToolErrorKind::OutcomeUnknown);
    assert!(lost.to_string().starts_with("the outcome of the call is unknown"), "{lost}");
}

/// The caller stores the state between the start of a call and its execution.
#[tokio::test]
async fn a_call_starts_before_it_is_executed_step_by_step() {
    let model = ScriptedModel::new().calls_all([("again", "{}"), ("once", "{}")]).says("Done.");
    let agent = Agent::builder(model.clone()).tools(tools![again, once]).build().unwrap();
    let mut run = agent.ask("Go").start();
    run.advance().await.unwrap();
    let Step::CallTools(calls) = run.next().await.unwrap() else { panic!() };
    let mut stored = Vec::new();
    for call in calls {
        // This also holds for a run that was just restored, before its tools were requested.
        run = agent.resume(run.into_run()).start();
        run.begin_call(&call).await.unwrap();
        assert!(run.begin_call(&call).await.is_ok(), "a started call can continue");
        stored.push(serde_json::to_string(run.run()).unwrap());
        let execution = run.execute(call).await.unwrap();
        assert_eq!(run.context().attempt(), 1);
        assert!(execution.outcome().is_ok());
        run.record_result(execution).await.unwrap();
    }
    // The process ended after the call and before its outcome was stored.
    let restored: Run = serde_json::from_str(&stored[1]).unwrap();
    let answer = agent.resume(restored).await.unwrap();
    assert!(answer.tool_executions()[0].output().unwrap().to_string().ends_with("/call_1_0 1"));
    assert_eq!(answer.tool_executions()[1].outcome().unwrap_err().kind(), ToolErrorKind::OutcomeUnknown);
}

/// A start that was recorded does not outlast the call.
#[tokio::test]
async fn a_finished_call_is_not_executed_again_step_by_step() {
    for is_interrupted in [true, false] {
        let model = ScriptedModel::new().calls("once", "{}").says("Done.");
        let agent = Agent::builder(model).tools(tools![once]).build().unwrap();
        let mut run = agent.ask("Go").start();
        run.advance().await.unwrap();
        let Step::CallTools(calls) = run.next().await.unwrap() else { panic!("a call is ready") };
        run.begin_call(&calls[0]).await.unwrap();
        if is_interrupted {
            assert!(matches!(run.next().await.unwrap(), Step::CallModel(_)), "its outcome is unknown");
        } else {
            let executed = ToolExecution::new(calls[0].clone(), Ok("done by the caller".into()));
            run.record_result(executed).await.unwrap();
        }
        let error = run.execute(calls[0].clone()).await.unwrap_err();
        assert_eq!(error.to_string(), "the run does not expect this: no call with this id is open");
    }
}

#[tokio::test]
async fn a_key_outside_a_run_is_unique_to_the_execution() {
    let call = tool_core::ToolCall::new("call_7", "again", "{}");
    let output = tools![again].call(&call, &ToolContext::new()).await.unwrap().to_string();
    let other = tools![again].call(&call, &ToolContext::new()).await.unwrap().to_string();
    assert!(output.ends_with("/call_7 1") && output != other, "{output} {other}");
}

#[tokio::test]
async fn a_run_is_stored_while_it_is_running() {
    #[tool]
    fn look() {}
    let store = InMemoryStore::new();
    let script = || ScriptedModel::new().calls("look", "{}").fails("the line is dead").says("Done.");
    let build = |model| Agent::builder(model).tools(tools![look]).run_store(store.clone()).build().unwrap();
    let agent = build(script());
    let error = agent.ask("Look").await.unwrap_err();
    let ids = run_ids(&store).await;
    assert_eq!(ids, [error.run().id().as_str()]);
    let stored = store.load_run(&ids[0]).await.unwrap().unwrap();
    assert_eq!(stored.messages(), error.run().messages());
    assert_eq!(stored.tool_executions().len(), 1);
    let answer = agent.resume(stored).await.unwrap();
    assert_eq!((answer.text(), answer.tool_executions().len()), ("Done.", 1));
    assert!(run_ids(&store).await.is_empty(), "a finished run is removed");

    // The start of a call is stored before the call is executed.
    let seen = store.clone();
    let agent = Agent::builder(ScriptedModel::new().calls("peek", "{}").says("Done."))
        .tools(
            tool_core::FunctionTool::new("peek", move || {
                let store = seen.clone();
                async move {
                    let id = run_ids(&store).await.remove(0);
                    let mut kept = store.load_run(&id).await.unwrap().unwrap();
                    kept.begin_call("call_1_0").unwrap().number
                }
            })
            .description("Looks at what is kept"),
        )
        .run_store(store.clone())
        .build()
        .unwrap();
    let answer = agent.ask("Peek").await.unwrap();
    assert_eq!(
        answer.tool_executions()[0].output().unwrap().to_string(),
        "2",
        "the first attempt is in the record"
    );
}

/// A model writes any id; services take keys in headers.
#[test]
fn a_key_is_bounded_and_printable_whatever_the_id_of_the_call_is() {
    let long = "x".repeat(100_000);
    let ids = ["call_1x", "a\r\nX-Admin: 1", "zwölf", " ", &long, &"y".repeat(65)];
    let mut keys = HashSet::new();
    for id in ids {
        let mut run = Run::new([Message::user("Go")]);
        let reply = AssistantMessage::default().with_tool_calls([ToolCall::new(id, "look", "{}")]);
        run.record_response(ChatResponse::new(reply)).unwrap();
        let id = run.current_calls().next().unwrap().0.id.clone();
        let restored: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        for mut run in [restored, run.clone()] {
            let key = run.begin_call(&id).unwrap().key;
            let key = key.as_str().strip_prefix(run.id().as_str()).unwrap();
            assert!(key.len() <= 72 && key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
            keys.insert(key.to_owned());
        }
    }
    assert_eq!(keys.len(), ids.len());
}
