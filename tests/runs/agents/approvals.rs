//! Calls of an inner run that wait for a decision or a result, and the paths and ids that name them.

use tool_core::run::Decision;

use super::*;

#[tokio::test]
async fn a_nested_call_that_needs_approval_pauses_the_outer_run() {
    let decide = |call: &ToolCall| {
        assert_eq!((&*call.name, &*call.id), ("refund", "call_1_0/call_2_0"));
        Decision::approve()
    };
    let answer = in_all_ways(|| desk(asks(), billing(refunds())), decide).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "Refunded.");
    assert_eq!(answer.inner_runs()[0].run().messages()[5].text(), "refunded 7");
    let answer =
        in_all_ways(|| desk(asks(), billing(refunds())), |_| Decision::deny("not today")).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().messages()[5].text(), "the call was denied: not today");
    assert_eq!(answer.new_messages()[2].text(), "Refunded.");
}

#[tokio::test]
async fn a_nested_call_is_resolved_by_its_path_in_another_process() {
    let (outer, inner) = (asks(), refunds());
    let error =
        desk(outer.clone(), billing(inner.clone())).build().unwrap().ask("Refund it").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    assert!(error.to_string().contains("`refund`"), "{error}");
    let state = serde_json::to_string(error.run()).unwrap();

    let mut run: Run = serde_json::from_str(&state).unwrap();
    for path in ["call_1_0/call_9", "call_9/call_2_0", "billing/call_2_0", "call_2_0", "/", ""] {
        run.decide_call(path, Decision::approve()).expect_err(path);
    }
    run.decide_call("call_1_0/call_2_0", Decision::approve()).unwrap();
    assert_eq!(run.approvals().count(), 0);
    let answer = desk(outer, billing(inner)).build().unwrap().resume(restored(run)).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().messages()[5].text(), "refunded 7");
}

#[tokio::test]
async fn other_calls_of_the_turn_finish_before_the_run_pauses() {
    let outer = || {
        ScriptedModel::new()
            .calls_all([("billing", QUESTION), ("find_invoice", r#"{"number": 8}"#), ("billing", QUESTION)])
            .says("Done.")
    };
    // Both inner runs take their replies from one script, in any order.
    let inner = || {
        ScriptedModel::new()
            .calls("refund", r#"{"number": 7}"#)
            .calls("refund", r#"{"number": 7}"#)
            .says("a")
            .says("a")
    };
    let build = || desk(outer(), billing(inner())).tools(tools![find_invoice]);
    let error = build().build().unwrap().ask("Go on").await.unwrap_err();
    let awaiting: Vec<_> = error.approvals().map(|call| call.id).collect();
    assert_eq!(awaiting.len(), 2, "{awaiting:?}");
    assert!(awaiting[0].starts_with("call_1_0/") && awaiting[1].starts_with("call_1_2/"), "{awaiting:?}");
    let finished: Vec<_> = error
        .run()
        .current_calls()
        .filter(|(_, execution)| execution.is_some())
        .map(|(call, _)| &*call.id)
        .collect();
    assert_eq!(finished, ["call_1_1"]);
    let answer = await_it(&build().build().unwrap(), "Go on", |_| Decision::approve()).await.unwrap();
    assert_eq!(answer.inner_runs().len(), 2);
}

#[tokio::test]
async fn an_approver_decides_about_nested_calls() {
    let decided = Arc::new(Mutex::new(Vec::new()));
    let approver = |name: &'static str| {
        let decided = Arc::clone(&decided);
        move |call: &ToolCall| {
            decided.lock().unwrap().push(format!("{name} {}", call.id));
            Decision::approve()
        }
    };
    alike(|| desk(asks(), billing(refunds())).decider(on_approval(approver("outer")))).await.unwrap();
    alike(|| {
        desk(asks(), billing(refunds()).decider(on_approval(approver("inner"))))
            .decider(on_approval(approver("outer")))
    })
    .await
    .unwrap();
    let expected = [["outer call_1_0/call_2_0"; 3], ["inner call_2_0"; 3]].concat();
    assert_eq!(*decided.lock().unwrap(), expected);
}

#[tokio::test]
async fn an_external_call_of_an_agent_awaits_its_result() {
    let locate = tool_core::FunctionTool::new("locate", || "never").external();
    let inner = Agent::builder(Replies(&[&[("locate", "{}")]], "There.")).tools(locate).build().unwrap();
    let outer = Agent::builder(Replies(&[&[("billing", QUESTION)]], "Found."))
        .tools(inner.as_tool("billing", "Answers"));
    let agent = outer.build().unwrap();
    let error = agent.ask("Where?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    let call = error.results().next().unwrap();
    assert_eq!(call.id, "call_0_0/call_0_0");
    let mut run = restored(error.into_run());
    run.record_result(ToolExecution::new(call, Ok("Rome".into()))).unwrap();
    let answer = agent.resume(restored(run)).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().messages()[2].text(), "Rome");
}

#[tokio::test]
async fn a_message_of_the_user_denies_nested_calls_that_wait() {
    let agent = desk(asks(), billing(refunds())).build().unwrap();
    let mut run = agent.ask("Refund it").await.unwrap_err().into_run();
    run.deny_and_say("Never mind").unwrap();
    let answer = agent.resume(restored(run)).await.unwrap();
    let denied = "the call was denied: the user sent another message instead";
    assert_eq!(answer.inner_runs()[0].run().messages()[5].text(), denied);
    assert_eq!(answer.new_messages()[3].text(), "Never mind");
}

/// Requests calls with these ids, names and arguments, and then answers.
#[derive(Clone)]
struct CallsWithIds(&'static [[&'static str; 3]]);

impl ChatModel for CallsWithIds {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let has_asked = request.messages().iter().any(|one| one.as_assistant().is_some());
        let calls = self.0.iter().map(|[id, name, arguments]| ToolCall::new(*id, *name, *arguments));
        let reply = match has_asked {
            true => AssistantMessage::text("Done."),
            false => AssistantMessage::default().with_tool_calls(calls),
        };
        Box::pin(async move { Ok(ChatResponse::new(reply)) })
    }
}

fn ids(run: &Run) -> Vec<String> {
    run.approvals().chain(run.results()).map(|call| format!("{} {}", call.name, call.id)).collect()
}

#[tokio::test]
async fn an_id_that_looks_like_a_path_approves_no_other_call() {
    const WIRE: &[[&str; 3]] = &[["x", "billing", QUESTION], ["x/call_1_0", "wire_money", "{}"]];
    let mut policy = tool_core::model::ToolPolicy::default();
    policy.needs_approval = true;
    let wire_money = tool_core::FunctionTool::new("wire_money", || "sent").policy(policy);
    let inner = billing(ScriptedModel::new().calls("refund", r#"{"number": 7}"#)).build().unwrap();
    let outer =
        Agent::builder(CallsWithIds(WIRE)).tools(inner.as_tool("billing", "Answers")).tools(wire_money);
    let run = outer.build().unwrap().ask("Go").await.unwrap_err().into_run();
    let expected = ["refund x/call_1_0", "wire_money call_1_1"];
    assert_eq!(ids(&run), expected);
    for (path, left) in [("x/call_1_0", expected[1]), ("call_1_1", expected[0])] {
        let mut run = restored(run.clone());
        run.decide_call(path, Decision::approve()).unwrap();
        assert_eq!(ids(&run), [left]);
    }
    // A state that was stored with both ids.
    let state = serde_json::to_string(&run).unwrap().replace("call_1_1", "x/call_1_0");
    let mut run: Run = serde_json::from_str(&state).unwrap();
    assert_eq!(ids(&run), ["refund x/call_1_0", "wire_money x/call_1_0"]);
    let wait = run.waits().remove(0).id;
    run.resolve(&wait, Decision::approve()).unwrap();
    assert_eq!(ids(&run), ["wire_money x/call_1_0"]);
    run.decide_call("x/call_1_0", Decision::approve()).unwrap();
    assert!(ids(&run).is_empty());
}

#[tokio::test]
async fn an_id_that_is_the_name_of_an_agent_approves_none_of_its_calls() {
    const BOTH: &[[&str; 3]] = &[["a", "billing", QUESTION], ["billing", "evil", QUESTION]];
    let inner = || billing(ScriptedModel::new().calls("refund", r#"{"number": 7}"#)).build().unwrap();
    let outer = Agent::builder(CallsWithIds(BOTH))
        .tools(inner().as_tool("billing", "Answers"))
        .tools(inner().as_tool("evil", "Answers"));
    let mut run = outer.build().unwrap().ask("Go").await.unwrap_err().into_run();
    run.decide_call("a/call_1_0", Decision::approve()).unwrap();
    assert_eq!(ids(&run), ["refund billing/call_1_0"]);
    run.decide_call("billing/call_1_0", Decision::approve()).unwrap();
    assert!(ids(&run).is_empty());
}

#[tokio::test]
async fn the_result_of_an_own_call_is_not_recorded_for_a_nested_one() {
    const LOCATE: &[[&str; 3]] = &[["x", "billing", QUESTION], ["own", "locate", "{}"]];
    let locate = || tool_core::FunctionTool::new("locate", || "never").external();
    let inner = Agent::builder(Replies(&[&[("locate", "{}")]], "There.")).tools(locate());
    let inner = inner.build().unwrap().as_tool("billing", "Answers");
    let outer = Agent::builder(CallsWithIds(LOCATE)).tools(inner).tools(locate()).build().unwrap();
    let run = outer.ask("Go").await.unwrap_err().into_run();
    let state = serde_json::to_string(&run).unwrap().replace("\"own\"", "\"x/call_0_0\"");
    let mut run: Run = serde_json::from_str(&state).unwrap();
    assert_eq!(ids(&run), ["locate x/call_0_0"; 2]);
    let call = ToolCall::new("x/call_0_0", "locate", "{}");
    run.record_result(ToolExecution::new(call.clone(), Ok("Rome".into()))).unwrap();
    let own = run.current_calls().find(|(call, _)| call.id == "x/call_0_0").unwrap();
    assert_eq!(own.1.unwrap().output().unwrap().to_string(), "Rome");
    run.record_result(ToolExecution::new(call, Ok("Oslo".into()))).unwrap();
    let answer = outer.resume(restored(run)).await.unwrap();
    assert_eq!(answer.inner_runs()[0].run().messages()[2].text(), "Oslo");
}
