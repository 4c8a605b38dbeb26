//! Rules of a run that hold however it is driven: no order of method calls gets around them.

use serde_json::{Value, json};
use tests::support::deciding::{Decide, Waiting};
use tool_core::model::{AssistantMessage, ChatResponse, ToolDefinition, ToolPolicy};
use tool_core::provider::{ToolDefinitions, ToolKind};
use tool_core::run::{Decision, ErrorPolicy, Run, Step};
use tool_core::signatures::ResolveErrorKind;
use tool_core::tool::{OutcomeOrigin, ToolErrorKind, ToolExecution};
use tool_core::{Message, ToolCall, ToolError, ToolOutput};

use crate::refusal;

/// Returns the tool `work` with this policy.
fn tools(change: fn(&mut ToolPolicy)) -> ToolDefinitions {
    let mut policy = ToolPolicy::default();
    change(&mut policy);
    ToolDefinitions::from_iter([ToolDefinition::new("work").with_description("Works").with_policy(policy)])
}

fn calls(id: &str, arguments: &str) -> ChatResponse {
    let call = ToolCall::new(id, "work", arguments);
    ChatResponse::new(AssistantMessage::default().with_tool_calls([call]))
}

/// Returns a run whose model has called `work` once, with the id `a`.
fn calling() -> Run {
    let mut run = Run::new([Message::user("Go")]);
    run.record_response(calls("a", "{}")).unwrap();
    run
}

fn failed(error: ToolError) -> ToolExecution {
    ToolExecution::new(ToolCall::new("a", "work", "{}"), Err(error))
}

/// Returns the error of a call that timed out, deserialized because no clock is available here.
fn timed_out() -> ToolError {
    serde_json::from_value(json!({ "kind": ToolErrorKind::TimedOut, "message": "too long" })).unwrap()
}

#[test]
fn a_pure_tool_respects_its_other_options() {
    let mut waiting = calling();
    let tools_that_wait = tools(|policy| (policy.pure, policy.needs_approval) = (true, true));
    assert!(matches!(waiting.next(&tools_that_wait), Step::Waiting(waits) if waits.len() == 1));

    let mut interrupted = calling();
    let tools_of_once = tools(|policy| (policy.pure, policy.at_most_once) = (true, true));
    assert!(matches!(interrupted.next(&tools_of_once), Step::CallTools(_)));
    interrupted.begin_call("a").unwrap();
    assert!(matches!(interrupted.next(&tools_of_once), Step::CallModel(_)));
}

#[test]
fn reuses_a_pure_output_by_the_executed_arguments() {
    let tools = tools(|policy| policy.pure = true);
    let mut run = Run::new([Message::user("Go")]);
    run.record_response(calls("id-a", r#"{"at": 1}"#)).unwrap();
    run.require_approval("id-a").unwrap();
    run.decide_call("id-a", Decision::approve_with(r#"{"at": 2}"#)).unwrap();
    let Step::CallTools(changed) = run.next(&tools) else { panic!("it is approved") };
    run.record_result(ToolExecution::new(changed[0].clone(), Ok(ToolOutput::text("of 2")))).unwrap();
    run.record_response(calls("id-b", r#"{"at": 2}"#)).unwrap();
    assert!(matches!(run.next(&tools), Step::CallModel(_)), "it was executed with these arguments");
    run.record_response(calls("id-c", r#"{"at": 1}"#)).unwrap();
    assert!(matches!(run.next(&tools), Step::CallTools(_)), "it was only requested with these arguments");
}

#[test]
fn starts_at_most_once_calls_once() {
    let tools = tools(|policy| (policy.at_most_once, policy.attempts) = (true, 3));
    let mut run = calling();
    assert!(matches!(run.next(&tools), Step::CallTools(_)));
    run.begin_call("a").unwrap();
    assert_eq!(refusal(run.begin_call("a")), "the call was started before and its tool is `at_most_once`");
    run.record_result(failed(ToolError::failed("busy"))).unwrap();
    assert_eq!(run.begin_call("a").unwrap().number, 2, "it is known to have failed");
    // It is unknown whether a call that timed out had its effect.
    run.record_result(failed(timed_out())).unwrap();
    assert_eq!(refusal(run.begin_call("a")), "no call with this id is open");
    assert_eq!(run.tool_executions()[0].outcome().unwrap_err().kind(), ToolErrorKind::TimedOut);
}

#[test]
fn refuses_the_outcome_of_a_call_that_awaits_approval() {
    let mut run = calling();
    assert!(matches!(run.next(&tools(|policy| policy.needs_approval = true)), Step::Waiting(_)));
    assert_eq!(
        refusal(run.record_result(failed(ToolError::failed("no")))),
        "the call awaits approval and cannot have a result"
    );
    run.decide_call("a", Decision::approve()).unwrap();
    run.record_result(failed(ToolError::failed("no"))).unwrap();
}

#[test]
fn a_call_between_two_attempts_counts_as_executed() {
    let tools = tools(|policy| policy.attempts = 2);
    let mut run = calling();
    assert!(matches!(run.next(&tools), Step::CallTools(_)));
    run.begin_call("a").unwrap();
    run.record_result(failed(timed_out())).unwrap();
    run.cancel();
    let error = run.tool_executions()[0].outcome().unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::OutcomeUnknown, "{error}");
    assert!(!run.messages().last().unwrap().text().contains("not made"));
}

#[test]
fn edited_counters_do_not_overflow() {
    let edited = |change: fn(&mut Value)| {
        let mut run = calling();
        run.begin_call("a").unwrap();
        let mut state = serde_json::to_value(run).unwrap();
        change(&mut state);
        serde_json::from_value::<Run>(state).unwrap()
    };
    let mut run = edited(|state| state["head"]["turns"] = json!(u32::MAX));
    run.record_result(failed(ToolError::failed("no"))).unwrap();
    let _ = run.record_response(ChatResponse::new(AssistantMessage::text("Done.")));
    assert_eq!(run.turns(), u32::MAX);
    let mut run = edited(|state| {
        state["stage"]["calling"]["calls"][0]["state"]["running"]["attempt"] = json!(u32::MAX)
    });
    assert_eq!(run.begin_call("a").unwrap().number, u32::MAX);
    run.record_result(failed(ToolError::failed("no"))).unwrap();
}

#[test]
fn error_policies_apply_to_calls_without_an_execution() {
    let deny = |run: &mut Run| run.decide_call("a", Decision::deny("secret")).unwrap();
    let lose = |run: &mut Run| drop(run.begin_call("a").unwrap());
    let table = [
        (ToolErrorKind::Denied, tools(|policy| policy.needs_approval = true), deny as fn(&mut Run)),
        (ToolErrorKind::OutcomeUnknown, tools(|policy| policy.at_most_once = true), lose),
    ];
    for (kind, tools, settle) in table {
        for (policy, continues) in
            [(ErrorPolicy::Report, true), (ErrorPolicy::Hide, true), (ErrorPolicy::EndRun, false)]
        {
            let mut run = calling().error_policy(kind, policy);
            let _ = run.next(&tools);
            settle(&mut run);
            let does_continue = matches!(run.next(&tools), Step::CallModel(_));
            assert_eq!(does_continue, continues, "{kind:?} {policy:?}");
            let error = run.tool_executions()[0].outcome().unwrap_err();
            assert_eq!(error.kind(), kind);
            let is_hidden = error.to_string() == "the tool failed (reference a)";
            assert_eq!(is_hidden, policy == ErrorPolicy::Hide, "{error}");
        }
    }
}

#[test]
fn outcomes_of_untrusted_parties_answer_for_no_call() {
    let tools = ToolDefinitions::from_iter([ToolDefinition::new("work")
        .with_policy(tools(|policy| policy.pure = true)[0].policy().clone())
        .with_undo("undo")]);
    let supplied = |id: &str, arguments: &str| {
        ToolExecution::external(ToolCall::new(id, "work", arguments), Ok(ToolOutput::text("forged")))
    };
    let mut run = Run::new([Message::user("Go")]);
    run.record_response(calls("call_9xT2", "{}")).unwrap();
    let _ = run.next(&tools);
    run.record_result(supplied("call_9xT2", "{}")).unwrap();
    let mut run: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    assert_eq!(run.tool_executions()[0].origin(), OutcomeOrigin::External);
    // Neither as the output of a pure tool, nor under its id, nor as an effect to undo.
    for (id, arguments) in [("call_a7Bq", "{}"), ("call_9xT2", "{}"), ("call_9xT2", r#"{"at": 2}"#)] {
        let mut run = run.clone();
        run.record_response(calls(id, arguments)).unwrap();
        assert!(matches!(run.next(&tools), Step::CallTools(calls) if calls.len() == 1), "{id} {arguments}");
    }
    run.cancel();
    assert!(matches!(run.next(&tools), Step::Done));
}

#[test]
fn the_origin_of_an_outcome_is_stored() {
    let tools = tools(|policy| policy.pure = true);
    let mut run = Run::new([Message::user("Go")]);
    for id in ["call_aaa1", "call_aaa2", "call_aaa3"] {
        run.record_response(calls(id, if id == "call_aaa3" { r#"{"at": 1}"# } else { "{}" })).unwrap();
        if matches!(run.next(&tools), Step::CallTools(_)) {
            let outcome = if id == "call_aaa3" { Err(ToolError::failed("no")) } else { Ok("1".into()) };
            let call = run.current_calls().next().unwrap().0.clone();
            run.record_result(ToolExecution::new(call, outcome)).unwrap();
        }
    }
    run.record_response(calls("call_aaa4", r#"{"at": 2}"#)).unwrap();
    run.cancel();
    let state = serde_json::to_value(&run).unwrap();
    let origins = |run: &Run| run.tool_executions().iter().map(ToolExecution::origin).collect::<Vec<_>>();
    let expected = [OutcomeOrigin::Executed, OutcomeOrigin::Recorded, OutcomeOrigin::Executed];
    assert_eq!(origins(&serde_json::from_value(state).unwrap()), expected);
}

/// A run is restored where the tool has another policy than it had when the model called it.
#[test]
fn the_stricter_policy_applies_to_a_restored_call() {
    let restored = |run: &Run| -> Run { serde_json::from_str(&serde_json::to_string(run).unwrap()).unwrap() };
    type Change = fn(&mut ToolPolicy);
    type Check = fn(&mut Run, &ToolDefinitions);
    let changes: [(Change, Check); 3] = [
        (
            |policy| policy.needs_approval = true,
            |run, tools| assert!(matches!(run.next(tools), Step::Waiting(_))),
        ),
        (
            |policy| policy.at_most_once = true,
            |run, tools| {
                let _ = run.next(tools);
                run.begin_call("a").unwrap();
                let _ = run.next(tools);
                let error = run.tool_executions()[0].outcome().unwrap_err();
                assert_eq!(error.kind(), ToolErrorKind::OutcomeUnknown);
            },
        ),
        (
            |policy| policy.attempts = 1,
            |run, tools| {
                let _ = run.next(tools);
                run.record_result(failed(ToolError::failed("busy"))).unwrap();
                assert!(matches!(run.next(tools), Step::CallModel(_)));
            },
        ),
    ];
    let lenient = tools(|policy| policy.attempts = 3);
    for (change, check) in changes {
        let strict = tools(change);
        for (before, after) in [(&lenient, &strict), (&strict, &lenient)] {
            let mut run = calling();
            let _ = run.next(before);
            check(&mut restored(&run), after);
        }
    }
    // A call that has begun needs no approval any more, but is not repeated if it must not be.
    let mut begun = calling();
    let _ = begun.next(&lenient);
    begun.begin_call("a").unwrap();
    let mut asked = restored(&begun);
    assert!(matches!(asked.next(&tools(|policy| policy.needs_approval = true)), Step::CallTools(_)));
    let mut once = restored(&begun);
    assert!(matches!(once.next(&tools(|policy| policy.at_most_once = true)), Step::CallModel(_)));
}

#[test]
fn requires_approval_only_of_calls_that_have_not_begun() {
    let mut run = calling();
    let _ = run.next(&tools(|policy| policy.attempts = 2));
    run.begin_call("a").unwrap();
    run.record_result(failed(timed_out())).unwrap();
    let error = run.require_approval("a").unwrap_err();
    assert_eq!(error.to_string(), "the run does not expect this: the call has already been started");
}

/// A call that was recorded twice would be undone twice.
#[test]
fn refuses_a_state_with_a_call_that_is_recorded_twice() {
    let mut run = calling();
    run.record_result(ToolExecution::new(ToolCall::new("a", "work", "{}"), Ok(ToolOutput::text("1"))))
        .unwrap();
    let mut state = serde_json::to_value(&run).unwrap();
    let recorded = state["history"]["executions"][0].clone();
    state["history"]["executions"].as_array_mut().unwrap().push(recorded);
    let error = serde_json::from_value::<Run>(state).unwrap_err();
    let expected = "the state of the run is inconsistent: \
                    a finished call is missing from the messages, or recorded twice";
    assert_eq!(error.to_string(), expected);
}

/// The state after the turn could not be read: an id ties a result to its call.
#[test]
fn refuses_a_state_whose_open_call_has_the_id_of_a_finished_one() {
    let mut run = calling();
    run.record_result(ToolExecution::new(ToolCall::new("a", "work", "{}"), Ok(ToolOutput::text("1"))))
        .unwrap();
    run.record_response(calls("b", "{}")).unwrap();
    let state = serde_json::to_string(&run).unwrap();
    let error = serde_json::from_str::<Run>(&state.replace(r#""id":"b""#, r#""id":"a""#)).unwrap_err();
    let expected = "the state of the run is inconsistent: a call of the turn has the id of an earlier call";
    assert_eq!(error.to_string(), expected);
}

/// Servers choose how deep the data of their tools is.
#[test]
fn a_state_can_be_read_however_deep_the_data_of_an_output_is() {
    let data = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    for (levels, is_kept) in [(32, true), (33, false), (100, false), (200, false)] {
        let mut run = Run::new([Message::user("Go")]);
        let both = ["a", "b"].map(|id| ToolCall::new(id, "work", "{}"));
        run.record_response(ChatResponse::new(AssistantMessage::default().with_tool_calls(both.clone())))
            .unwrap();
        for call in both {
            let output = ToolOutput::text("1").with_data(data(levels));
            run.record_result(ToolExecution::new(call, Ok(output))).unwrap();
            // While a call of the turn is open, and after it.
            run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        }
        let kept = run.tool_executions().iter().map(|one| one.output().unwrap().data().is_some());
        assert_eq!(kept.collect::<Vec<_>>(), [is_kept; 2], "{levels}");
    }
}

/// A part that is missing from the state of a call is not replaced by a default, which could approve or repeat the call.
#[test]
fn refuses_calls_whose_state_is_incomplete() {
    let mut begun = calling();
    let _ = begun.next(&tools(|policy| policy.attempts = 2));
    begun.begin_call("a").unwrap();
    let mut failed_once = begun.clone();
    failed_once.record_result(failed(ToolError::failed("busy"))).unwrap();
    for (run, field, expected) in [
        (&begun, "", "missing field `state`"),
        (&begun, "running", "missing field `attempt`"),
        (&failed_once, "ready", "missing field `attempts`"),
    ] {
        let mut state = serde_json::to_value(run).unwrap();
        let call = &mut state["stage"]["calling"]["calls"][0];
        match field {
            "" => drop(call.as_object_mut().unwrap().remove("state").unwrap()),
            field => call["state"][field].as_object_mut().unwrap().clear(),
        }
        assert_eq!(serde_json::from_value::<Run>(state).unwrap_err().to_string(), expected);
    }
}

/// The present definition allows fewer attempts than the one under which the call failed.
#[test]
fn a_call_is_not_repeated_more_often_than_the_present_policy_allows() {
    let mut run = calling();
    let _ = run.next(&tools(|policy| policy.attempts = 2));
    run.begin_call("a").unwrap();
    run.record_result(failed(ToolError::failed("busy"))).unwrap();
    let mut restored: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    assert!(matches!(restored.next(&tools(|_| {})), Step::CallModel(_)));
    assert!(matches!(run.next(&tools(|policy| policy.attempts = 2)), Step::CallTools(_)));
}

fn external(change: fn(&mut ToolPolicy)) -> ToolDefinitions {
    let mut policy = ToolPolicy::default();
    change(&mut policy);
    let tool = ToolDefinition::new("work").with_kind(ToolKind::Caller).with_undo("undo");
    ToolDefinitions::from_iter([tool.with_policy(policy)])
}

fn restored(run: &Run) -> Run {
    serde_json::from_str(&serde_json::to_string(run).unwrap()).unwrap()
}

#[test]
fn a_call_of_an_external_tool_awaits_its_result() {
    let tools = external(|policy| (policy.pure, policy.attempts) = (true, 3));
    let mut run = calling();
    assert!(matches!(run.next(&tools), Step::Waiting(waits) if waits.len() == 1));
    let mut run = restored(&run);
    assert!(matches!(run.next(&tools), Step::Waiting(waits) if waits.len() == 1));
    let mut replaced = restored(&run);
    assert!(matches!(replaced.next(&self::tools(|_| {})), Step::CallModel(_)));
    let refused = replaced.messages().last().unwrap().text().into_owned();
    assert_eq!(refused, "the call was not executed: another kind of tool has its name now");
    assert_eq!(run.results().map(|call| call.id).collect::<Vec<_>>(), ["a"]);
    assert_eq!(run.approvals().count(), 0);
    assert_eq!(refusal(run.begin_call("a")), "the tool is external: the caller executes the call");
    let wait = run.waits().remove(0).id;
    let error = run.resolve(&wait, Decision::approve()).unwrap_err();
    assert_eq!(error.kind(), ResolveErrorKind::WrongDecision);

    let mut failing = run.clone();
    failing.record_result(failed(ToolError::failed("busy"))).unwrap();
    assert!(
        matches!(failing.next(&tools), Step::CallModel(_)),
        "the run does not retry what it does not execute"
    );

    run.record_result(ToolExecution::new(ToolCall::new("a", "work", "{}"), Ok("1".into()))).unwrap();
    assert_eq!(
        run.tool_executions()[0].origin(),
        OutcomeOrigin::External,
        "whatever the record of the caller says"
    );
    assert!(matches!(run.next(&tools), Step::CallModel(_)));
    // The output is not reused for equal calls, and nothing is undone.
    run.record_response(calls("b", "{}")).unwrap();
    assert!(matches!(run.next(&tools), Step::Waiting(waits) if waits.len() == 1));
    run.cancel();
    assert!(matches!(run.next(&tools), Step::Done));
    assert_eq!(run.messages().last().unwrap().text(), "the call was not executed: the run was cancelled");
}

#[test]
fn a_call_of_an_external_tool_can_need_approval_first() {
    let tools = external(|policy| policy.needs_approval = true);
    let mut run = calling();
    assert!(matches!(run.next(&tools), Step::Waiting(waits) if waits.len() == 1));
    let mut run = restored(&run);
    assert_eq!(
        refusal(run.record_result(failed(ToolError::failed("busy")))),
        "the call awaits approval and cannot have a result"
    );
    run.decide_call("a", Decision::approve_with(r#"{"at": 2}"#)).unwrap();
    assert!(matches!(run.next(&tools), Step::Waiting(_)));
    let approved: Vec<_> = run.results().collect();
    assert_eq!(approved[0].arguments, r#"{"at": 2}"#);
    run.record_result(ToolExecution::external(approved[0].clone(), Ok("1".into()))).unwrap();
    assert_eq!(run.tool_executions()[0].original_arguments(), "{}");
}

/// An approval that is asked for again because the tool has changed does not hide what the model requested.
#[test]
fn the_original_arguments_are_those_of_the_model() {
    let asking = |description: &str| {
        let mut policy = ToolPolicy::default();
        policy.needs_approval = true;
        let tool = ToolDefinition::new("work").with_description(description).with_policy(policy);
        ToolDefinitions::from_iter([tool])
    };
    let mut run = calling();
    for (description, arguments) in [("Works", r#"{"at": 1}"#), ("Works hard", r#"{"at": 2}"#)] {
        assert!(matches!(run.next(&asking(description)), Step::Waiting(_)), "{description}");
        run.decide_call("a", Decision::approve_with(arguments)).unwrap();
    }
    let Step::CallTools(approved) = run.next(&asking("Works hard")) else { panic!("it is approved") };
    run.record_result(ToolExecution::new(approved[0].clone(), Ok("1".into()))).unwrap();
    let execution = &run.tool_executions()[0];
    assert_eq!((&*execution.call().arguments, execution.original_arguments()), (r#"{"at": 2}"#, "{}"));
}

/// A call that undoes another waits for nobody.
#[test]
fn refuses_a_state_whose_undo_call_awaits_approval() {
    let tools = ToolDefinitions::from_iter([ToolDefinition::new("work").with_undo("undo")]);
    let mut run = calling();
    let _ = run.next(&tools);
    run.record_result(ToolExecution::new(ToolCall::new("a", "work", "{}"), Ok("1".into()))).unwrap();
    run.cancel();
    assert_eq!(refusal(run.require_approval("undo_a")), "a call that undoes another needs no approval");
    let state = serde_json::to_value(&run).unwrap();
    for waiting in [json!({ "awaiting_approval": "no_tool" }), json!("awaiting_result")] {
        let mut state = state.clone();
        state["stage"]["undoing"]["standing"]["state"] = waiting;
        let error = serde_json::from_value::<Run>(state).unwrap_err();
        let expected = "the state of the run is inconsistent: a call that undoes another waits";
        assert_eq!(error.to_string(), expected);
    }
}
