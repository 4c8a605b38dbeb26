//! Checks of calls: what they accept, and what they say.

use tool_core::layer::{CallVerdict, guard};
use tool_core::run::{Decision, Run};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Answer, ToolCall, ToolError, call, tool, tools};
use tool_testing::{CheckCalls, Checks};

/// Finds an order.
#[tool]
fn find_order(id: u32) -> Result<String, ToolError> {
    if id == 7 { Ok("50 EUR".into()) } else { Err(ToolError::failed("there is no such order")) }
}

#[allow(unused_variables)]
#[tool("Pays back a part of an order", needs_approval)]
fn refund(order: u32, cents: u32) {}

/// Does something else.
#[tool]
fn other() {}

async fn answered() -> Answer {
    let model = ScriptedModel::new()
        .calls_all([("find_order", r#"{"id": 6}"#), ("find_order", r#"{"id": "7"}"#)])
        .calls("refund", r#"{"order": 7, "cents": 4000}"#)
        .calls("refund", r#"{"order": 7, "cents": 9000}"#)
        .calls("refund", r#"{"order": 7}"#)
        .says("Done.");
    let agent = Agent::builder(model).tools(tools![find_order, refund, other]).build().unwrap();
    let mut run = agent.ask("Refund").await.unwrap_err().into_run();
    for decision in [Decision::approve(), Decision::deny("too much"), Decision::approve()] {
        let wait = run.waits().remove(0);
        run.resolve(&wait.id, decision).unwrap();
        match agent.resume(run).await {
            Ok(answer) => return answer,
            Err(error) => run = error.into_run(),
        }
    }
    panic!("the run waits");
}

/// Returns the first line of what a check says that fails, without its beginning.
fn failure(check: CheckCalls) -> String {
    let text = check.check().unwrap_err().to_string();
    text.lines().next().unwrap().replace("the calls are not as expected: ", "")
}

#[tokio::test]
async fn expectations_about_calls_hold_or_say_why_not() {
    let answer = answered().await;
    let check = || answer.check_calls();
    let hold = [
        check(),
        check().first(call!(find_order { id: 6 }).failed()).next(call!(find_order { id: 7 }).ok()),
        check().then(call!(find_order { id: 7 })).then(call!(refund { cents: 9_000, .. }).denied()),
        check().then(call!(refund).ok()).then(call!(refund).denied()).then(call!(refund).failed()),
        check().any_order([call!(find_order), call!(find_order { id: 6 })]).next(call!(refund).ok()),
        check().times(call!(refund), 3..=3).times(call!(find_order), 1..=2).times(call!(find_order), 2..),
        check().never(call!(other)).never(call!("send_mail")).never(call!(refund { cents: 10_000.., .. })),
        check().only([call!(find_order), call!(refund)]),
        check()
            .any_order([call!(find_order { id: 6 | 7 }), call!(find_order { id: 6 })])
            .next(call!(refund { cents: 4_000, .. })),
        check()
            .any_order([call!("refund" { cents: 4_000 | 9_000, .. }), call!(find_order { id: 7 })])
            .next(call!(refund { cents: 9_000, .. })),
        check().never(call!(refund).waiting()).never(call!(refund).not_executed()),
    ];
    for check in hold {
        check.check().unwrap();
    }
    let fail = [
        (check().first(call!(refund)), "call 1 is not `refund`: it calls `find_order`"),
        (
            check().first(call!(find_order { id: 6 })).next(call!(find_order { id: ..7 })),
            "call 2 is not `find_order { id: ..7 }`: `id` is 7, expected `..7`",
        ),
        (
            check().then(call!(find_order { id: 7 }).failed()),
            "no call is `find_order { id: 7 }, failed`: `id` is 6, expected `7` in call 1",
        ),
        (
            check().then(call!(refund { cents: 4_000, .. }).denied()),
            "no call is `refund { cents: 4_000, .. }, denied`: the call is ok, expected denied in call 3",
        ),
        (
            check().then(call!(refund)).then(call!(find_order)),
            "no call behind call 3 is `find_order`, but one before is",
        ),
        (check().then(call!(other)), "no call is `other`"),
        (check().never(call!(find_order)), "`find_order` matches 2 of them, expected 0 times"),
        (check().times(call!(refund), ..2), "`refund` matches 3 of them, expected 0 to 1 times"),
        (check().times(call!(refund), 4..), "`refund` matches 3 of them, expected at least 4 times"),
        (
            check().any_order([call!(find_order), call!(find_order), call!(find_order)]),
            "no further call is `find_order`",
        ),
        (check().only([call!(find_order)]), "call 3 matches none of the patterns: no pattern is of its tool"),
        (
            check().only([call!(find_order), call!(refund { cents: 4_000, .. })]),
            "call 4 matches none of the patterns: `cents` is 9000, expected `4_000`",
        ),
        (
            check().any_order([
                call!(refund { order: 7, cents: _ }),
                call!(refund),
                call!(refund),
                call!(refund),
            ]),
            "no further call is `refund`",
        ),
    ];
    for (check, expected) in fail {
        assert_eq!(failure(check), expected);
    }
}

#[tokio::test]
async fn a_failure_shows_what_was_expected_beside_what_was_called() {
    let answer = answered().await;
    let check = answer
        .check_calls()
        .first(call!(find_order { id: 6 }))
        .then(call!(refund { cents: ..=500, .. }).ok());
    let error = check.never(call!(other)).check().unwrap_err();
    let expected = "\
the calls are not as expected: no call behind call 1 is `refund { cents: ..=500, .. }, ok`: `cents` is 4000, expected `..=500` in call 3

  expected                                | called
    first find_order { id: 6 }            |   find_order {\"id\": 6} fails: there is no such order
  > then refund { cents: ..=500, .. }, ok |   find_order {\"id\": \"7\"} returns: 50 EUR
    never other                           | > refund {\"order\": 7, \"cents\": 4000} returns: Success
                                          |   refund {\"order\": 7, \"cents\": 9000} fails: the call was denied: too much
                                          |   refund {\"order\": 7} fails: invalid arguments: `cents` is missing, expected an integer from 0 to 4294967295
";
    assert_eq!(error.to_string(), expected);
    // As the standard library prints it.
    let failed: tool_testing::Result = (|| Ok(answer.check_calls().never(call!(refund)).check()?))();
    assert!(format!("{:?}", failed.unwrap_err()).contains("| called\n"));
}

#[tokio::test]
async fn calls_of_agents_inside_are_reached_by_their_tools() {
    let clerk = |question: &str| {
        let model = ScriptedModel::new()
            .calls("find_order", r#"{"id": 7}"#)
            .calls("refund", r#"{"order": 7, "cents": 5}"#);
        let clerk = Agent::builder(model).tools(tools![find_order, refund]).build().unwrap();
        let shop = Agent::builder(ScriptedModel::new().calls("clerk", question));
        shop.tools(clerk.as_tool("clerk", "Refunds")).build().unwrap()
    };
    let model = ScriptedModel::new().calls("other", "{}").calls("shop", r#"{"question": "Refund"}"#);
    let desk = Agent::builder(model)
        .tools(tools![other])
        .tools(clerk(r#"{"question": "7"}"#).as_tool("shop", "Sells"));
    let error = desk.build().unwrap().ask("Refund").await.unwrap_err();
    let check = || error.check_calls();
    let inside = || check().inside("shop").inside("clerk");
    check().first(call!(other)).next(call!("shop" { question: "Refund" }).waiting()).check().unwrap();
    check().never(call!(find_order)).check().unwrap();
    inside().first(call!(find_order).ok()).next(call!(refund).waiting()).check().unwrap();
    inside().then(call!(refund)).outside().then(call!("clerk")).outside().then(call!(other)).check().unwrap();
    let text = inside().first(call!(refund)).check().unwrap_err().to_string();
    assert!(
        text.starts_with("the calls of `shop/clerk` are not as expected: call 1 is not `refund`"),
        "{text}"
    );
    assert!(text.contains("> shop/clerk: first refund | > find_order {\"id\": 7} returns: 50 EUR"), "{text}");
    let text = check().inside("shop").inside("nobody").never(call!(other)).check().unwrap_err().to_string();
    assert!(text.contains("no call asked `nobody`"), "{text}");
    // Each agent has an order of its own, which goes on.
    let back = check().then(call!("shop")).inside("shop").then(call!("clerk")).outside().then(call!(other));
    back.check().unwrap_err();
    let run: Run = serde_json::from_str(&serde_json::to_string(error.run()).unwrap()).unwrap();
    run.check_calls().inside("shop").inside("clerk").times(call!(refund).waiting(), 1..=1).check().unwrap();
}

#[tokio::test]
async fn what_a_run_has_cost_is_compared() {
    let answer = answered().await;
    answer.check_cost().turns(5..=5).tokens(..1_000).check().unwrap();
    let error = answer.check_cost().turns(..5).tokens(1_000_000..).check().unwrap_err().to_string();
    assert!(error.starts_with("the run has 5 turns, expected ..5\nthe run has "), "{error}");
    let limit = tool_core::model::Cost::new(1, tool_core::model::Currency::USD);
    let error = answer.check_cost().at_most(limit).check().unwrap_err();
    assert_eq!(error.to_string(), "what the run has cost is not known, because its agent has no prices");
}

/// A layer answers a call in place of its tool.
#[tokio::test]
async fn an_output_of_a_layer_is_no_output_of_the_tool() {
    let model = ScriptedModel::new().calls("find_order", r#"{"id": 7}"#).says("Done.");
    let agent = Agent::builder(model).tools(tools![find_order]);
    let answers = guard::call(|_: &ToolCall| CallVerdict::replace("cached"));
    let answer = agent.layer(answers).build().unwrap().ask("Find").await.unwrap();
    answer.check_calls().first(call!(find_order { id: 7 }).not_executed()).check().unwrap();
}
