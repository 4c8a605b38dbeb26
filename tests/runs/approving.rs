//! Calls that await approval: the run stops, is stored, and continues with the user's decision.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tests::support::deciding::{Decide, Waiting};
use tests::support::ways::{alike, in_all_ways, restored};
use tool_core::agent::{AgentBuilder, on_approval};
use tool_core::layer::guard;
use tool_core::model::{ToolDefinition, ToolPolicy};
use tool_core::provider::ToolDefinitions;
use tool_core::run::{Decision, Run, Step};
use tool_core::signatures::{ResolveError, ResolveErrorKind};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{OutcomeOrigin, ToolErrorKind};
use tool_core::{Agent, Event, Message, RunErrorKind, Tool, ToolCall, ToolSet, tool, tools};

use crate::refusal;

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
        outcome.new_messages()[2..5].iter().map(|message| message.text().into_owned()).collect()
    };
    let paid = || std::mem::take(&mut *PAID.lock().unwrap());

    let answer = in_all_ways(|| agent(script()), |_| Decision::approve()).await.unwrap();
    assert_eq!(texts(&answer), ["paid 500", "70000", "paid 900"]);
    assert_eq!(paid().len(), 2 * 3, "each once, in three ways");

    let answer = in_all_ways(|| agent(script()), |_| Decision::decline()).await.unwrap();
    assert_eq!(texts(&answer), ["the call was denied", "70000", "the call was denied"]);
    assert!(paid().is_empty());

    let cheap = |call: &ToolCall| match call.arguments.contains("500") {
        true => Decision::approve_with(r#"{"cents": 499}"#),
        false => Decision::deny("too dear"),
    };
    let answer = in_all_ways(|| agent(script()), cheap).await.unwrap();
    assert_eq!(texts(&answer), ["paid 499", "70000", "the call was denied: too dear"]);
    assert_eq!(paid(), [499, 499, 499]);
    let changed = &answer.tool_executions()[0];
    assert_eq!((&*changed.call().arguments, changed.original_arguments()), (r#"{"cents": 499}"#, PAY.1));
    let denied = &answer.tool_executions()[2];
    assert!(
        denied.outcome().unwrap_err().kind() == ToolErrorKind::Denied
            && denied.origin() == OutcomeOrigin::NotExecuted
            && changed.origin() == OutcomeOrigin::Executed
    );
    // The model reads what was done, not what it had asked for.
    let Message::Assistant(asked) = &answer.new_messages()[1] else { panic!() };
    assert_eq!(asked.tool_calls[0].arguments, r#"{"cents": 499}"#);

    // An approver decides without stopping the run.
    let answer = alike(|| agent(script()).decider(on_approval(cheap))).await.unwrap();
    assert_eq!(texts(&answer), ["paid 499", "70000", "the call was denied: too dear"]);
    assert_eq!(paid(), [499, 499, 499]);
    // The approver of an ask takes precedence over the agent's.
    let denying = |_: &ToolCall| Decision::decline();
    let agent = agent(script()).decider(on_approval(cheap)).build().unwrap();
    let answer = agent.ask("Pay").decider(on_approval(denying)).await.unwrap();
    assert_eq!(texts(&answer)[0], "the call was denied");
    assert!(paid().is_empty());
}

#[tokio::test]
async fn an_approver_can_defer_to_the_caller() {
    let small_only = |call: &ToolCall| match call.arguments.contains("500") {
        true => Decision::decline(),
        false => Decision::defer(),
    };
    let agent = agent(script()).decider(on_approval(small_only)).build().unwrap();
    let error = agent.ask("Pay").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting));
    let waiting: Vec<_> = error.approvals().map(|call| call.arguments).collect();
    assert_eq!(waiting, [r#"{"cents": 900}"#]);
    let mut run = error.into_run();
    run.decide_calls(&Decision::defer());
    assert_eq!(run.approvals().count(), 1, "it still awaits approval");
    run.decide_calls(&Decision::decline());
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
            Ok(Event::Waiting(waits)) => reported.push(format!("waits for {}", waits[0].tool)),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(reported, ["look", "waits for erase"]);
    assert!(matches!(error.kind(), RunErrorKind::Waiting) && error.is_resumable());
    let expected = "calls await approval: `erase`; store `into_run()`, call `resolve` for each of `waits()`, and `resume` the run";
    assert_eq!(error.to_string(), expected);
    // Resuming without a decision has the same result and executes no call again.
    let error = agent.resume(restored(error.into_run())).await.unwrap_err();
    assert_eq!(error.approvals().count(), 1);
    let open: Vec<_> =
        error.run().current_calls().map(|(call, made)| (&*call.name, made.is_some())).collect();
    assert_eq!(open, [("erase", false), ("look", true)]);
    let mut run = restored(error.into_run());
    run.decide_calls(&Decision::approve());
    let answer = agent.resume(run).await.unwrap();
    assert_eq!(answer.tool_executions().len(), 2);
}

#[tokio::test]
async fn a_predicate_can_require_approval_for_any_call() {
    let script = || ScriptedModel::new().calls_all([("look", "{}"), ("erase", "{}")]).says("Done.");
    let build = || erasing(script()).layer(guard::needs_approval(|call| call.name == "look"));
    let answer = in_all_ways(build, |call| match &*call.name {
        "look" => Decision::deny("do not look"),
        _ => Decision::approve(),
    });
    assert_eq!(answer.await.unwrap().new_messages()[2].text(), "the call was denied: do not look");
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
    run.deny_and_say("Never mind.").unwrap();
    let answer = agent.resume(restored(run)).await.unwrap();
    let texts: Vec<_> = answer.new_messages()[2..].iter().map(Message::text).collect();
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
    let mut run = agent.ask("Look").start();
    run.advance().await.unwrap();
    run.deny_and_say("And hurry.").unwrap();
    while run.advance().await.unwrap() {}
    assert_eq!(refusal(run.deny_and_say("Too late.")), "the run has ended and takes no more messages");
    assert_eq!(run.finish().await.unwrap().new_messages().len(), 5);
}

#[test]
fn accepts_each_requested_decision_once() {
    let mut run = Run::new([Message::user("Go")]);
    let calls = ["a", "b"].map(|id| ToolCall::new(id, "erase", "{}"));
    let message = tool_core::model::AssistantMessage::default().with_tool_calls(calls);
    run.record_response(tool_core::model::ChatResponse::new(message)).unwrap();
    let kind = |refused: Result<(), ResolveError>| refused.unwrap_err().kind();
    assert_eq!(kind(run.decide_call("a", Decision::approve())), ResolveErrorKind::UnknownWait);
    run.require_approval("a").unwrap();
    assert_eq!(refusal(run.require_approval("c")), "the current turn has no call with this id");
    assert_eq!(refusal(run.begin_call("a")), "the call awaits approval and cannot be started");
    for wrong in ["", "[1]", "{broken", "7"] {
        let decision = Decision::approve_with(wrong);
        assert_eq!(kind(run.decide_call("a", decision)), ResolveErrorKind::InvalidArguments, "{wrong}");
    }
    let wait = run.waits().remove(0).id;
    run.resolve(&wait, Decision::approve()).unwrap();
    assert_eq!(kind(run.resolve(&wait, Decision::decline())), ResolveErrorKind::AlreadyDecided);
    run.require_approval("a").unwrap();
    assert!(run.approvals().next().is_none(), "an approved call does not await approval again");
    let tools = ToolDefinitions::default();
    assert!(matches!(run.next(&tools), Step::CallTools(calls) if calls.len() == 2));
    assert_eq!(run.begin_call("a").unwrap().number, 1);
    run.begin_call("b").unwrap();
    assert_eq!(refusal(run.require_approval("b")), "the call has already been started");
    assert!(!format!("{:?}", Decision::deny("secret")).contains("secret"));
}

/// A caller that drives the run step by step and takes the calls from the reply cannot execute a call that awaits
/// approval, nor one by tools that were not offered.
#[tokio::test]
async fn refuses_calls_before_tools_were_offered() {
    let agent = erasing(ScriptedModel::new().calls_all([("erase", "{}"), ("look", "{}")])).build().unwrap();
    let mut run = agent.ask("Erase").start();
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

#[tool]
fn restore() {}

/// A tool with any definition, which counts its calls.
struct Wipe(ToolDefinition, Arc<AtomicU32>);

impl Tool for Wipe {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(
        &'a self,
        _arguments: &'a str,
        _context: &'a tool_core::ToolContext,
    ) -> tool_core::tool::ToolFuture<'a> {
        self.1.fetch_add(1, Ordering::SeqCst);
        tool_core::tool::ToolFuture::boxed(async { Ok("wiped".into()) })
    }
}

fn wipe() -> ToolDefinition {
    let mut policy = ToolPolicy::default();
    policy.needs_approval = true;
    let schema = serde_json::json!({
        "type": "object",
        "properties": { "path": { "type": "string" }, "depth": { "type": "integer", "minimum": 1 } },
    });
    ToolDefinition::new("wipe")
        .with_description("Wipes the cache")
        .with_parameters(schema)
        .with_policy(policy)
}

/// Returns an agent whose tool `wipe` has this definition.
fn wiping(definition: ToolDefinition, calls: &Arc<AtomicU32>, model: ScriptedModel) -> Agent {
    let tools = ToolSet::default().with(Wipe(definition, Arc::clone(calls))).unwrap();
    Agent::builder(model).tools(tools).undo_tools(tools![restore]).build().unwrap()
}

/// Returns the stored run of an agent whose call was approved under the definition of [`wipe`].
async fn approved(calls: &Arc<AtomicU32>) -> Run {
    let model = ScriptedModel::new().calls("wipe", r#"{"path": "a"}"#);
    let error = wiping(wipe(), calls, model).ask("Wipe").await.unwrap_err();
    let mut run = restored(error.into_run());
    run.decide_calls(&Decision::approve());
    restored(run)
}

#[tokio::test]
async fn an_approval_is_bound_to_the_definition() {
    let changed_policy = |change: fn(&mut ToolPolicy)| {
        let mut policy = wipe().policy().clone();
        change(&mut policy);
        wipe().with_policy(policy)
    };
    let other_schema =
        serde_json::json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let same_schema = serde_json::json!({
        "properties": { "depth": { "minimum": 1, "type": "integer" }, "path": { "type": "string" } },
        "type": "object",
    });
    let table = [
        (wipe(), true),
        // The order of members has no meaning.
        (wipe().with_parameters(same_schema), true),
        (wipe().with_description("Wipes the disk"), false),
        (wipe().with_parameters(other_schema), false),
        (wipe().with_undo("restore"), false),
        (changed_policy(|policy| policy.at_most_once = true), false),
        (changed_policy(|policy| policy.needs_approval = false), false),
    ];
    for (definition, is_executed) in table {
        let calls = Arc::default();
        let done = ScriptedModel::new().says("Done.");
        let agent = wiping(definition.clone(), &calls, done);
        let run = approved(&calls).await;
        let outcome = agent.resume(run).await;
        assert_eq!(calls.load(Ordering::SeqCst), u32::from(is_executed), "{definition:?}");
        if is_executed {
            assert_eq!(outcome.unwrap().text(), "Done.");
            continue;
        }
        let error = outcome.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Waiting), "{definition:?} {error}");
        assert_eq!(error.approvals().count(), 1);
        // Asked again, the approval is for the present definition.
        let mut run = restored(error.into_run());
        run.decide_calls(&Decision::approve());
        assert_eq!(agent.resume(run).await.unwrap().text(), "Done.");
        assert_eq!(calls.load(Ordering::SeqCst), 1, "{definition:?}");
    }
}

#[tokio::test]
async fn an_approved_call_of_a_tool_that_is_gone_is_not_executed() {
    let calls = Arc::default();
    let run = approved(&calls).await;
    let agent = erasing(ScriptedModel::new().says("It is gone.")).build().unwrap();
    let answer = agent.resume(run).await.unwrap();
    let error = answer.tool_executions()[0].outcome().unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `wipe`; the tools are `erase`, `look`");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

/// The tool appeared only after somebody had approved the call.
#[tokio::test]
async fn an_approval_without_a_definition_holds_for_none() {
    let calls = Arc::default();
    let model = ScriptedModel::new().calls("wipe", r#"{"path": "a"}"#);
    let error =
        erasing(model).layer(guard::needs_approval(|_| true)).build().unwrap().ask("Wipe").await.unwrap_err();
    let mut run = restored(error.into_run());
    run.decide_calls(&Decision::approve());
    let agent = wiping(wipe(), &calls, ScriptedModel::new().says("Done."));
    let error = agent.resume(restored(run)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let mut run = restored(error.into_run());
    run.decide_calls(&Decision::approve());
    assert_eq!(agent.resume(run).await.unwrap().text(), "Done.");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// The caller still has the call as it was before the approval changed its arguments.
#[tokio::test]
async fn executes_a_call_only_with_the_approved_arguments() {
    #[tool(needs_approval)]
    fn give(cents: u32) -> u32 {
        cents
    }
    let model = ScriptedModel::new().calls("give", r#"{"cents": 1000}"#);
    let agent = Agent::builder(model).tools(tools![give]).build().unwrap();
    let mut run = agent.ask("Give").start();
    run.advance().await.unwrap();
    assert!(matches!(run.next().await.unwrap(), Step::Waiting(_)));
    let asked: Vec<_> = run.run().approvals().collect();
    run.decide_call(&asked[0].id, Decision::approve_with(r#"{"cents": 1}"#)).unwrap();
    let expected = "the run does not expect this: the run has this call with another name or other arguments";
    assert_eq!(run.begin_call(&asked[0]).await.unwrap_err().to_string(), expected);
    assert_eq!(run.execute(asked[0].clone()).await.unwrap_err().to_string(), expected);
    let Step::CallTools(approved) = run.next().await.unwrap() else { panic!("it is approved") };
    let execution = run.execute(approved[0].clone()).await.unwrap();
    assert_eq!(execution.output().unwrap().to_string(), "1");
}

/// A predicate requires approval after the policies were applied, and the run can be stored at once.
#[tokio::test]
async fn an_approval_that_a_predicate_requires_is_bound_to_the_definition() {
    let calls = Arc::default();
    let mut policy = wipe().policy().clone();
    policy.needs_approval = false;
    let agent = |definition: ToolDefinition, model| {
        let tools = ToolSet::default().with(Wipe(definition, Arc::clone(&calls))).unwrap();
        Agent::builder(model).tools(tools).layer(guard::needs_approval(|_| true)).build().unwrap()
    };
    let free = || wipe().with_policy(policy.clone());
    let mut run = called(&agent(free(), ScriptedModel::new().calls("wipe", r#"{"path": "a"}"#))).await;
    run.decide_calls(&Decision::approve());
    let changed = agent(free().with_description("Wipes the disk"), ScriptedModel::new().says("Done."));
    let error = changed.resume(restored(run)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

/// It is unknown whether the call had its effect, so it is neither executed nor asked again.
#[tokio::test]
async fn a_started_call_is_not_repeated_with_another_definition() {
    let calls = Arc::default();
    let mut run = approved(&calls).await;
    run.begin_call("call_1_0").unwrap();
    let agent = wiping(wipe().with_description("Wipes the disk"), &calls, ScriptedModel::new().says("Done."));
    let answer = agent.resume(restored(run)).await.unwrap();
    let error = answer.tool_executions()[0].outcome().unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

/// Returns a run whose model has called `look` and `erase`, and the response that contains the calls.
async fn called(agent: &Agent) -> Run {
    let mut run = agent.ask("Look").start();
    let Step::CallModel(request) = run.next().await.unwrap() else { panic!("the model was not called yet") };
    let response = agent.model().chat(&request).await.unwrap();
    run.record_response(response).await.unwrap();
    run.into_run()
}

fn looking() -> AgentBuilder {
    erasing(ScriptedModel::new().calls_all([("look", r#"{"at": 1}"#), ("look", r#"{"at": 2}"#)]))
}

fn ending() -> AgentBuilder {
    erasing(ScriptedModel::new().says("Done."))
}

fn waiting(run: &Run) -> Vec<String> {
    run.approvals().map(|call| call.arguments).collect()
}

#[tokio::test]
async fn no_call_is_executed_if_the_predicate_panics() {
    let fails_at = |wrong: &'static str| {
        move |call: &ToolCall| -> bool {
            assert!(!call.arguments.contains(wrong), "cannot decide");
            false
        }
    };
    for wrong in ["1", "2"] {
        let error = looking()
            .layer(guard::needs_approval(fails_at(wrong)))
            .build()
            .unwrap()
            .ask("Look")
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "the layer `needs_approval` failed: it panicked: cannot decide");
        assert!(error.run().current_calls().all(|(_, execution)| execution.is_none()));
        // The run can be resumed, and the predicate is asked again.
        let run = restored(error.into_run());
        let error = ending()
            .layer(guard::needs_approval(fails_at(wrong)))
            .build()
            .unwrap()
            .resume(run)
            .await
            .unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Layer { layer, .. } if layer == "needs_approval"));
        assert_eq!(ending().build().unwrap().resume(error.into_run()).await.unwrap().text(), "Done.");
    }
}

#[tokio::test]
async fn a_resumed_run_obeys_the_present_predicate() {
    let run = called(&looking().build().unwrap()).await;
    assert!(waiting(&run).is_empty());
    let strict = || ending().layer(guard::needs_approval(|call| call.arguments.contains('2')));
    for run in [run.clone(), restored(run.clone())] {
        let error = strict().build().unwrap().resume(run).await.unwrap_err();
        assert_eq!(waiting(error.run()), [r#"{"at": 2}"#]);
        // An approval stays given.
        let mut run = error.into_run();
        run.decide_calls(&Decision::approve());
        let answer =
            ending().layer(guard::needs_approval(|_| true)).build().unwrap().resume(restored(run)).await;
        assert_eq!(answer.unwrap().text(), "Done.");
    }
    // If a predicate panics, nothing is executed, and a call that has begun is not asked about again.
    let mut begun = run;
    let first = begun.current_calls().next().unwrap().0.id.clone();
    begun.begin_call(&first).unwrap();
    let mut driver = ending()
        .layer(guard::needs_approval(|_| panic!("cannot decide")))
        .build()
        .unwrap()
        .resume(begun)
        .start();
    let error = driver.next().await.map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "the layer `needs_approval` failed: it panicked: cannot decide");
    assert!(driver.run().current_calls().all(|(_, execution)| execution.is_none()));
}

#[tokio::test]
async fn a_resumed_run_obeys_the_present_policy() {
    let run = called(&looking().build().unwrap()).await;
    #[tool(needs_approval)]
    fn look() {}
    let agent = |tools| Agent::builder(ScriptedModel::new().says("Done.")).tools(tools).build().unwrap();
    let error = agent(tools![look]).resume(restored(run)).await.unwrap_err();
    assert_eq!(error.approvals().count(), 2);
    // A stored requirement stays, too.
    let lenient = tools![self::look];
    let error = agent(lenient).resume(restored(error.into_run())).await.unwrap_err();
    assert_eq!(error.approvals().count(), 2);
}
