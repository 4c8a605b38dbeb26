//! Calls that await approval: the run stops, is stored, and continues with the user's decision.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;

use futures_util::FutureExt;

use tests::support::ways::{alike, in_all_ways, restored};
use tool_core::agent::AgentBuilder;
use tool_core::model::ToolDefinitions;
use tool_core::run::{Run, Step};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Origin, ToolErrorKind};
use tool_core::{Agent, Approval, Event, Message, RunErrorKind, ToolCall, tool, tools};

static PAID: Mutex<Vec<u32>> = Mutex::new(Vec::new());

#[tool("Pays a bill", needs_approval)]
fn pay(cents: u32) -> String {
    PAID.lock().unwrap().push(cents);
    format!("paid {cents}")
}

#[tool]
fn balance() -> u32 {
    70_000
}

fn agent(model: ScriptedModel) -> AgentBuilder {
    Agent::builder(model).tools(tools![pay, balance])
}

const PAY: (&str, &str) = ("pay", r#"{"cents": 500}"#);

fn script() -> ScriptedModel {
    ScriptedModel::new().calls_all([PAY, ("balance", "{}"), ("pay", r#"{"cents": 900}"#)]).says("Done.")
}

/// Runs its cases one after another, because they share `PAID`.
#[tokio::test]
async fn applies_decisions_in_all_ways() {
    let texts = |outcome: &tool_core::Answer| -> Vec<String> {
        outcome.messages()[2..5].iter().map(|message| message.text().into_owned()).collect()
    };
    let paid = || std::mem::take(&mut *PAID.lock().unwrap());

    let answer = in_all_ways(|| agent(script()), |_| Approval::Approve).await.unwrap();
    assert_eq!(texts(&answer), ["paid 500", "70000", "paid 900"]);
    assert_eq!(paid().len(), 2 * 3, "each once, in three ways");

    let answer = in_all_ways(|| agent(script()), |_| Approval::Deny(None)).await.unwrap();
    assert_eq!(texts(&answer), ["the call was denied", "70000", "the call was denied"]);
    assert!(paid().is_empty());

    let cheap = |call: &ToolCall| match call.arguments.contains("500") {
        true => Approval::ApproveWith(r#"{"cents": 499}"#.into()),
        false => Approval::deny("too dear"),
    };
    let answer = in_all_ways(|| agent(script()), cheap).await.unwrap();
    assert_eq!(texts(&answer), ["paid 499", "70000", "the call was denied: too dear"]);
    assert_eq!(paid(), [499, 499, 499]);
    let changed = &answer.tool_executions()[0];
    assert_eq!((&*changed.call().arguments, changed.original_arguments()), (r#"{"cents": 499}"#, PAY.1));
    let denied = &answer.tool_executions()[2];
    assert!(
        denied.outcome().unwrap_err().kind() == ToolErrorKind::Denied
            && denied.origin() == Origin::NotExecuted
            && changed.origin() == Origin::Executed
    );
    // The model reads what was done, not what it had asked for.
    let Message::Assistant(asked) = &answer.messages()[1] else { panic!() };
    assert_eq!(asked.tool_calls[0].arguments, r#"{"cents": 499}"#);

    // An approver decides without stopping the run.
    let answer = alike(|| agent(script()).approver(cheap)).await.unwrap();
    assert_eq!(texts(&answer), ["paid 499", "70000", "the call was denied: too dear"]);
    assert_eq!(paid(), [499, 499, 499]);
    // The approver of an ask takes precedence over the agent's.
    let denying = |_: &ToolCall| Approval::Deny(None);
    let agent = agent(script()).approver(cheap).build().unwrap();
    let answer = agent.ask("Pay").approver(denying).await.unwrap();
    assert_eq!(texts(&answer)[0], "the call was denied");
    assert!(paid().is_empty());
}

#[tokio::test]
async fn an_approver_can_defer_to_the_caller() {
    let small_only = |call: &ToolCall| match call.arguments.contains("500") {
        true => Approval::Deny(None),
        false => Approval::Defer,
    };
    let agent = agent(script()).approver(small_only).build().unwrap();
    let error = agent.ask("Pay").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::ApprovalNeeded));
    let waiting: Vec<_> = error.awaiting_approval().map(|call| call.arguments.clone()).collect();
    assert_eq!(waiting, [r#"{"cents": 900}"#]);
    let mut run = error.into_run();
    run.resolve_all_approvals(&Approval::Defer);
    assert_eq!(run.awaiting_approval().count(), 1, "it still awaits approval");
    run.resolve_all_approvals(&Approval::Deny(None));
    assert_eq!(agent.resume(run).await.unwrap().text(), "Done.");
}

#[tool(needs_approval)]
fn erase() {}

#[tool]
fn look(#[param(default = 0)] at: u32) -> &'static str {
    if at == 0 { "seen" } else { "seen there" }
}

fn erasing(model: ScriptedModel) -> AgentBuilder {
    Agent::builder(model).tools(tools![erase, look])
}

#[tokio::test]
async fn executes_other_calls_while_one_awaits_approval() {
    let model = ScriptedModel::new().calls_all([("erase", "{}"), ("look", "{}")]).says("Done.");
    let agent = erasing(model).build().unwrap();
    let mut events = agent.ask("Erase").stream();
    let mut reported = Vec::new();
    let error = loop {
        match events.next().await.unwrap() {
            Ok(Event::CallFinished(execution)) => reported.push(execution.call().name.clone()),
            Ok(Event::ApprovalNeeded(calls)) => reported.push(format!("waits for {}", calls[0].name)),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(reported, ["look", "waits for erase"]);
    assert!(matches!(error.kind(), RunErrorKind::ApprovalNeeded) && error.is_resumable());
    let expected = "calls await approval: `erase`; store `into_run()`, call `resolve_approval` for each of `awaiting_approval()`, and `resume` the run";
    assert_eq!(error.to_string(), expected);
    // Resuming without a decision has the same result and executes no call again.
    let error = agent.resume(restored(error.into_run())).await.unwrap_err();
    assert_eq!(error.awaiting_approval().count(), 1);
    let open: Vec<_> =
        error.run().current_calls().map(|(call, made)| (&*call.name, made.is_some())).collect();
    assert_eq!(open, [("erase", false), ("look", true)]);
    let mut run = restored(error.into_run());
    run.resolve_all_approvals(&Approval::Approve);
    let answer = agent.resume(run).await.unwrap();
    assert_eq!(answer.tool_executions().len(), 2);
}

#[tokio::test]
async fn a_predicate_can_require_approval_for_any_call() {
    let script = || ScriptedModel::new().calls_all([("look", "{}"), ("erase", "{}")]).says("Done.");
    let build = || erasing(script()).needs_approval(|call| call.name == "look");
    let answer = in_all_ways(build, |call| match &*call.name {
        "look" => Approval::deny("do not look"),
        _ => Approval::Approve,
    });
    assert_eq!(answer.await.unwrap().messages()[2].text(), "the call was denied: do not look");
}

#[tokio::test]
async fn a_user_message_denies_pending_calls() {
    let model = ScriptedModel::new()
        .calls_all([("erase", "{}"), ("look", "{}")])
        .expects(|request| request.messages().last() == Some(&Message::user("Never mind.")))
        .says("As you like.");
    let agent = erasing(model).build().unwrap();
    let error = agent.ask("Erase").await.unwrap_err();
    let mut run = restored(error.into_run());
    run.push_user_message("Never mind.").unwrap();
    let answer = agent.resume(restored(run)).await.unwrap();
    let texts: Vec<_> = answer.messages()[2..].iter().map(Message::text).collect();
    let denied = "the call was denied: the user sent another message instead";
    assert_eq!(texts, [denied, "seen", "Never mind.", "As you like."]);
}

#[tokio::test]
async fn a_user_message_follows_running_calls() {
    let model = ScriptedModel::new()
        .calls("look", "{}")
        .expects(|request| request.messages().last() == Some(&Message::user("And hurry.")))
        .says("Done.");
    let agent = erasing(model).build().unwrap();
    let mut run = agent.start("Look");
    run.advance().await.unwrap();
    run.push_user_message("And hurry.").unwrap();
    while run.advance().await.unwrap() {}
    assert!(run.push_user_message("Too late.").is_err());
    assert_eq!(run.finish().await.unwrap().messages().len(), 5);
}

#[test]
fn accepts_each_requested_decision_once() {
    let mut run = Run::new([Message::user("Go")]);
    let calls = ["a", "b"].map(|id| ToolCall::new(id, "erase", "{}"));
    let message = tool_core::model::AssistantMessage::default().with_tool_calls(calls);
    run.record_response(tool_core::model::ChatResponse::new(message)).unwrap();
    assert!(run.resolve_approval("a", Approval::Approve).is_err(), "approval was not requested yet");
    run.require_approval("a").unwrap();
    assert!(run.require_approval("c").is_err());
    assert!(run.begin_call("a").is_err(), "it awaits approval");
    for wrong in ["", "[1]", "{broken", "7"] {
        assert!(run.resolve_approval("a", Approval::ApproveWith(wrong.into())).is_err(), "{wrong}");
    }
    run.resolve_approval("a", Approval::Approve).unwrap();
    assert!(run.resolve_approval("a", Approval::Deny(None)).is_err());
    run.require_approval("a").unwrap();
    assert!(run.awaiting_approval().next().is_none(), "an approved call does not await approval again");
    let tools = ToolDefinitions::default();
    assert!(matches!(run.next(&tools), Step::CallTools(calls) if calls.len() == 2));
    assert_eq!(run.begin_call("a").unwrap().number, 1);
    run.begin_call("b").unwrap();
    assert!(run.require_approval("b").is_err(), "it may have had its effect");
    assert!(!format!("{:?}", Approval::deny("secret")).contains("secret"));
}

/// A caller that drives the run step by step and takes the calls from the reply cannot execute a call that awaits
/// approval, nor one by tools that were not offered.
#[tokio::test]
async fn refuses_calls_before_tools_were_offered() {
    let agent = erasing(ScriptedModel::new().calls_all([("erase", "{}"), ("look", "{}")])).build().unwrap();
    let mut run = agent.start("Erase");
    let Step::CallModel(request) = run.next().await.unwrap() else { panic!("the model was not called yet") };
    let response = agent.model().chat(&request).await.unwrap();
    run.record_response(response).await.unwrap();
    let calls: Vec<_> = run.run().current_calls().map(|(call, _)| call.clone()).collect();
    assert!(
        matches!(run.execute(calls[0].clone()).await.unwrap_err().kind(), RunErrorKind::Step(_)),
        "it awaits approval"
    );

    let mut resumed = agent.resume(restored(run.into_run())).start();
    assert!(
        matches!(resumed.execute(calls[0].clone()).await.unwrap_err().kind(), RunErrorKind::Step(_)),
        "it awaits approval"
    );
    assert!(resumed.execute(calls[1].clone()).await.unwrap().outcome().is_ok());
}

/// Returns a run whose model has called `look` and `erase`, and the response that contains the calls.
async fn called(agent: &Agent) -> Run {
    let mut run = agent.start("Look");
    let Step::CallModel(request) = run.next().await.unwrap() else { panic!("the model was not called yet") };
    let response = agent.model().chat(&request).await.unwrap();
    let _ = AssertUnwindSafe(run.record_response(response)).catch_unwind().await;
    run.into_run()
}

fn looking() -> AgentBuilder {
    erasing(ScriptedModel::new().calls_all([("look", r#"{"at": 1}"#), ("look", r#"{"at": 2}"#)]))
}

fn ending() -> AgentBuilder {
    erasing(ScriptedModel::new().says("Done."))
}

fn waiting(run: &Run) -> Vec<&str> {
    run.awaiting_approval().map(|call| &*call.arguments).collect()
}

#[tokio::test]
async fn a_call_awaits_approval_if_the_predicate_panics() {
    let fails_at = |wrong: &'static str| {
        move |call: &ToolCall| -> bool {
            assert!(!call.arguments.contains(wrong), "cannot decide");
            false
        }
    };
    let run = called(&looking().needs_approval(fails_at("1")).build().unwrap()).await;
    assert_eq!(waiting(&run), [r#"{"at": 1}"#, r#"{"at": 2}"#], "none was released");
    let run = called(&looking().needs_approval(fails_at("2")).build().unwrap()).await;
    assert_eq!(waiting(&run), [r#"{"at": 2}"#], "the first was released");
    // It still awaits approval if the run is resumed, whatever the predicate is then.
    let error = ending().build().unwrap().resume(restored(run)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::ApprovalNeeded));
    assert_eq!(waiting(error.run()), [r#"{"at": 2}"#]);
}

#[tokio::test]
async fn a_resumed_run_obeys_the_present_predicate() {
    let run = called(&looking().build().unwrap()).await;
    assert!(waiting(&run).is_empty());
    let strict = || ending().needs_approval(|call| call.arguments.contains('2'));
    for run in [run.clone(), restored(run.clone())] {
        let error = strict().build().unwrap().resume(run).await.unwrap_err();
        assert_eq!(waiting(error.run()), [r#"{"at": 2}"#]);
        // An approval stays given.
        let mut run = error.into_run();
        run.resolve_all_approvals(&Approval::Approve);
        let answer = ending().needs_approval(|_| true).build().unwrap().resume(restored(run)).await;
        assert_eq!(answer.unwrap().text(), "Done.");
    }
    // A predicate that panics releases nothing, and a call that has begun is not asked about again.
    let mut begun = run;
    let first = begun.current_calls().next().unwrap().0.id.clone();
    begun.begin_call(&first).unwrap();
    let mut driver =
        ending().needs_approval(|_| panic!("cannot decide")).build().unwrap().resume(begun).start();
    let caught = AssertUnwindSafe(driver.next()).catch_unwind().await.map(|_| ());
    assert!(caught.unwrap_err().is::<&str>());
    assert_eq!(waiting(driver.run()), [r#"{"at": 2}"#]);
}

#[tokio::test]
async fn a_resumed_run_obeys_the_present_policy() {
    let run = called(&looking().build().unwrap()).await;
    #[tool(needs_approval)]
    fn look() {}
    let agent = |tools| Agent::builder(ScriptedModel::new().says("Done.")).tools(tools).build().unwrap();
    let error = agent(tools![look]).resume(restored(run)).await.unwrap_err();
    assert_eq!(error.awaiting_approval().count(), 2);
    // A stored requirement stays, too.
    let lenient = tools![self::look];
    let error = agent(lenient).resume(restored(error.into_run())).await.unwrap_err();
    assert_eq!(error.awaiting_approval().count(), 2);
}
