//! Several agents on one run store: a run is resumed by the agent that was asked.

use tests::support::deciding::Decide;
use tests::support::stores::stored_runs;
use tool_core::memory::{InMemoryStore, RunStatus};
use tool_core::run::{Decision, Run};
use tool_core::testing::ScriptedModel;
use tool_core::tool::WaitId;
use tool_core::{Agent, Answer, RunErrorKind, tool, tools};

#[tool("Refunds an order", needs_approval)]
fn refund(order: u32) -> String {
    format!("refunded order {order}")
}

#[tool("Notes a text")]
fn note(text: String) -> String {
    text
}

/// An agent whose first question asks for a refund.
fn desk(store: &InMemoryStore, name: Option<&str>) -> Agent {
    let model = ScriptedModel::new().calls("refund", r#"{"order": 7}"#).says("It is refunded.");
    let desk = Agent::builder(model).tools(tools![refund]).run_store(store.clone());
    name.into_iter().fold(desk, |desk, name| desk.name(name)).build().unwrap()
}

fn notes(store: &InMemoryStore, name: Option<&str>) -> Agent {
    let notes =
        Agent::builder(ScriptedModel::new().says("Nothing.")).tools(tools![note]).run_store(store.clone());
    name.into_iter().fold(notes, |notes, name| notes.name(name)).build().unwrap()
}

/// Returns the ids of the stored runs of an agent.
async fn ids(agent: &Agent) -> Vec<String> {
    stored_runs(agent).await.iter().map(|stored| stored.run.id().to_string()).collect()
}

fn output(answer: &Answer) -> String {
    answer.tool_executions()[0].output().unwrap().to_string()
}

#[tokio::test]
async fn an_approved_call_is_executed_by_the_agent_that_was_asked_alone() {
    let store = InMemoryStore::new();
    let (desk, notes) = (desk(&store, Some("desk")), notes(&store, Some("notes")));
    let error = desk.ask("Refund 7").await.unwrap_err();
    let id = error.run().id().to_string();
    let what_next = format!(
        "calls await approval: `refund`; the run `{id}` is stored: call `resolve` for each of `waits()` and `resume` it, here or from \
         `stored_run`, or `decide`"
    );
    assert_eq!(error.to_string(), what_next);
    let mut run = error.into_run();
    assert_eq!(
        (run.agent_name(), ids(&desk).await, ids(&notes).await),
        (Some("desk"), vec![id.clone()], vec![])
    );
    assert!(notes.stored_run(&id).await.unwrap().is_none());
    run.decide_calls(&Decision::approve());
    let revision = run.revision().cloned();
    let error = notes.resume(run).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::OtherAgent { name: Some(name), .. } if name == "notes"),
        "{error}"
    );
    let expected =
        format!("the run `{id}` is of the agent `desk`, not of `notes`; resume it with the agent `desk`");
    assert_eq!((error.to_string(), error.is_resumable()), (expected, false));
    // The stored run is as before, and so is the copy.
    let stored = desk.stored_run(&id).await.unwrap().unwrap();
    assert_eq!((stored.status, stored.run.revision()), (RunStatus::Waiting, revision.as_ref()));
    assert_eq!(notes.undo_and_end(stored.run).await.unwrap_err().to_string(), error.to_string());
    assert_eq!(ids(&desk).await, [id]);
    assert_eq!(output(&desk.resume(error.into_run()).await.unwrap()), "refunded order 7");
}

/// Driven step by step, a run with an answer is neither committed nor removed by another agent.
#[tokio::test]
async fn another_agent_finishes_no_run() {
    let store = InMemoryStore::new();
    let (desk, notes) = (desk(&store, Some("desk")), notes(&store, Some("notes")));
    let mut run = desk.ask("Refund 7").await.unwrap_err().into_run();
    let wait = WaitId::from(run.waits()[0].id.as_str());
    run.resolve(&wait, Decision::approve()).unwrap();
    let mut driver = desk.resume(run).start();
    while driver.advance().await.unwrap() {}
    let run = driver.into_run();
    let error = notes.resume(run).start().finish().await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::OtherAgent { .. }), "{error}");
    assert_eq!(ids(&desk).await.len(), 1);
    assert_eq!(desk.resume(error.into_run()).start().finish().await.unwrap().text(), "It is refunded.");
    assert_eq!(ids(&desk).await.len(), 0);
}

#[tokio::test]
async fn runs_without_a_name_are_resumed_by_any_agent_and_others_by_their_name() {
    let store = InMemoryStore::new();
    let (unnamed, other) = (desk(&store, None), notes(&store, None));
    let mut run = unnamed.ask("Refund 7").await.unwrap_err().into_run();
    assert_eq!(run.agent_name(), None);
    let state = serde_json::to_value(&run).unwrap();
    assert!(state.get("agent").is_none(), "{state}");
    // An agent that gets a name later resumes its earlier runs.
    let named = Agent::builder(ScriptedModel::new().says("It is refunded.")).tools(tools![refund]);
    let named = named.name("desk").run_store(store.clone()).build().unwrap();
    assert_eq!((ids(&other).await.len(), ids(&named).await.len()), (1, 1));
    run.decide_calls(&Decision::approve());
    assert_eq!(output(&named.resume(run).await.unwrap()), "refunded order 7");
    // An agent without a name resumes no run of one with a name.
    let run = desk(&store, Some("desk")).ask("Refund 7").await.unwrap_err().into_run();
    let stored: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    assert_eq!(stored.agent_name(), Some("desk"));
    assert_eq!(ids(&other).await.len(), 0);
    let error = other.resume(stored).await.unwrap_err().to_string();
    let reason = "is of the agent `desk`, and this agent has no name; resume it with the agent `desk`";
    assert_eq!(error, format!("the run `{}` {reason}", run.id()));
}
