//! Arguments that a person writes in place of the model's: they are checked before the call is executed, and the model never reads a
//! mistake of the person.

use tests::support::deciding::Waiting;
use tests::support::stores::{post_command, stored_runs};
use tests::support::ways::restored;
use tool_core::agent::on_approval;
use tool_core::memory::{InMemoryStore, RunStatus};
use tool_core::run::{Decision, Run};
use tool_core::signatures::{DecisionKind, ResolveErrorKind};
use tool_core::store::RunCommand;
use tool_core::testing::ScriptedModel;
use tool_core::toolset::ExtraParameters;
use tool_core::{Agent, FunctionTool, RunErrorKind, ToolCall, ToolSet, tool, toolbox, tools};

#[tool("Refunds an order", needs_approval)]
fn refund(order: u32, euros: u32) -> String {
    format!("refunded {euros} euros for order {order}")
}

const ASKED: &str = r#"{"order": 7, "euros": 10}"#;
const WRONG: &str = r#"{"order": "x"}"#;
const MISTAKE: &str = r#"invalid arguments: `euros` is missing, expected an integer from 0 to 4294967295; `order`: expected an integer from 0 to 4294967295, got "x""#;
const RIGHT: &str = r#"{"order": 7, "euros": 5}"#;

fn agent() -> Agent {
    let model = ScriptedModel::new().calls("refund", ASKED).says("Done.");
    Agent::builder(model).tools(tools![refund]).run_store(InMemoryStore::new()).build().unwrap()
}

/// Asserts that the call awaits approval with the arguments of the model, and approves it with others.
async fn approve_at_last(agent: &Agent, mut run: Run) {
    let arguments: Vec<_> = run.approvals().map(|call| call.arguments).collect();
    assert_eq!(arguments, [ASKED]);
    let wait = run.waits().remove(0).id;
    run.resolve(&wait, Decision::approve_with(RIGHT).by("ada")).unwrap();
    let answer = agent.resume(run).await.unwrap();
    let execution = &answer.tool_executions()[0];
    assert_eq!(execution.output().unwrap().to_string(), "refunded 5 euros for order 7");
    assert_eq!((execution.original_arguments(), &*execution.call().arguments), (ASKED, RIGHT));
    assert_eq!(answer.turns(), 2);
}

#[tokio::test]
async fn a_resumed_run_waits_again_for_a_call_that_was_approved_with_wrong_arguments() {
    let agent = agent();
    let mut run = agent.ask("Refund 7").await.unwrap_err().into_run();
    let first = run.waits().remove(0).id;
    run.resolve(&first, Decision::approve_with(WRONG).by("ada")).unwrap();
    let error = agent.resume(restored(run)).await.unwrap_err();
    let RunErrorKind::Decision(refused) = error.kind() else { panic!("{error}") };
    assert_eq!(refused.kind(), ResolveErrorKind::InvalidArguments);
    let text = format!("the call cannot be approved with these arguments: {MISTAKE}");
    assert_eq!((error.to_string(), error.is_resumable()), (text, true));
    // What is stored waits, too. The first decision is not forgotten.
    let mut stored = stored_runs(&agent).await.remove(0);
    assert_eq!(stored.status, RunStatus::Waiting);
    let again = stored.run.resolve(&first, Decision::approve()).unwrap_err();
    let before = again.decided().map(|record| (record.kind, record.by.as_deref()));
    assert_eq!(before, Some((DecisionKind::ApprovedWithChanges, Some("ada"))));
    let error = agent.resume(stored.run).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    approve_at_last(&agent, error.into_run()).await;
}

#[tokio::test]
async fn a_posted_approval_with_wrong_arguments_executes_nothing() {
    let agent = agent();
    let run = agent.ask("Refund 7").await.unwrap_err().into_run();
    let command = RunCommand::resolve(&run.waits()[0].id, Decision::approve_with(WRONG));
    let _ = post_command(&agent, run.id().as_str(), command).await;
    let error = agent.resume(run).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Decision(_)), "{error}");
    approve_at_last(&agent, error.into_run()).await;
}

#[tokio::test]
async fn an_approver_that_edits_wrongly_ends_the_attempt_and_the_call_waits() {
    let agent = agent();
    let ask = agent.ask("Refund 7").decider(on_approval(|_| Decision::approve_with(WRONG)));
    let error = ask.await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Decision(_)), "{error}");
    assert!(error.run().tool_executions().is_empty());
    approve_at_last(&agent, error.into_run()).await;
}

#[tokio::test]
async fn a_driver_refuses_wrong_arguments_at_once() {
    let agent = agent();
    let run = agent.ask("Refund 7").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    let mut driver = agent.resume(run).start();
    let _ = driver.next().await.unwrap();
    let refused = driver.resolve(&wait, Decision::approve_with(WRONG)).unwrap_err();
    assert_eq!(refused.kind(), ResolveErrorKind::InvalidArguments);
    let refused = driver.resolve(&wait, Decision::approve_with("[1]")).unwrap_err();
    let list = "invalid arguments: expected a JSON object, got a list";
    assert_eq!(refused.to_string(), format!("the call cannot be approved with these arguments: {list}"));
    assert_eq!(driver.run().waits()[0].id, wait);
    approve_at_last(&agent, driver.into_run()).await;
}

/// The calls of an agent inside are checked by that agent.
#[tokio::test]
async fn the_arguments_of_a_call_inside_are_checked() {
    let inner = ScriptedModel::new().calls("refund", ASKED).says("Refunded.");
    let inner = Agent::builder(inner).tools(tools![refund]).build().unwrap();
    let outer = ScriptedModel::new().calls("billing", r#"{"question": "Refund 7"}"#).says("Done.");
    let outer = Agent::builder(outer).tools(inner.as_tool("billing", "Refunds")).build().unwrap();
    let mut run = outer.ask("Refund 7").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    run.resolve(&wait, Decision::approve_with(WRONG)).unwrap();
    let error = outer.resume(run).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Decision(_)), "{error}");
    let mut run = error.into_run();
    let wait = run.waits().remove(0).id;
    run.resolve(&wait, Decision::approve_with(RIGHT)).unwrap();
    let answer = outer.resume(run).await.unwrap();
    let execution = &answer.inner_runs()[0].run().tool_executions()[0];
    assert_eq!(execution.output().unwrap().to_string(), "refunded 5 euros for order 7");
}

struct Desk;

#[toolbox]
impl Desk {
    #[tool("Closes an order")]
    fn close(&self, order: u32) {
        panic!("a check of {order} calls nothing");
    }
}

/// Every kind of tool checks arguments as a call does, without being called.
#[test]
fn every_kind_of_tool_checks_arguments_without_a_call() {
    let function = |name: &str| {
        FunctionTool::new(name, |order: Order| -> String {
            panic!("a check of {} calls nothing", order.order)
        })
    };
    let schema = serde_json::json!({
        "type": "object",
        "properties": { "order": { "type": "integer", "minimum": 0, "maximum": 4_294_967_295_u32 } },
        "required": ["order"],
        "additionalProperties": false
    });
    let dynamic = tool_core::tool::DynamicTool::new("dynamic", schema, |_: serde_json::Value| -> String {
        panic!("a check calls nothing")
    });
    let tools = ToolSet::from(Desk)
        .union(tools![reopen])
        .and_then(|tools| tools.with(function("function")))
        .and_then(|tools| tools.with(function("strictly").strict().blocking()))
        .and_then(|tools| tools.with(dynamic.unwrap()))
        .unwrap()
        .rename("close", "close_order")
        .unwrap();
    assert_eq!(tools.len(), 5);
    let check = |name: &str, arguments: &str| {
        let checked = tools.check_arguments(&ToolCall::new("call_1", name, arguments));
        checked.map_err(|error| error.to_string())
    };
    for name in tools.iter().map(|tool| tool.definition().name().to_owned()) {
        assert_eq!(check(&name, r#"{"order": 7}"#), Ok(()), "{name}");
        assert_eq!(check(&name, r#"{"order": "7"}"#), Ok(()), "{name}: repaired, as in a call");
        let mistake = r#"invalid arguments: `order`: expected an integer from 0 to 4294967295, got "x""#;
        assert_eq!(check(&name, r#"{"order": "x"}"#), Err(mistake.into()), "{name}");
    }
    assert_eq!(check("unknown", "{}"), Ok(()));
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Thought {
    reason: String,
}

/// The tool has its own arguments, and the function of the extra ones is not called.
#[test]
fn converted_tools_check_arguments_as_the_model_writes_them() {
    let extra =
        ExtraParameters::new(|_, thought: Thought| panic!("a check of {} calls nothing", thought.reason));
    let strict = tools![reopen, remark].strict().unwrap();
    let reasoned = tools![reopen].extra_parameters(extra).unwrap().strict().unwrap();
    let mistake = r#"invalid arguments: `order`: expected an integer from 0 to 4294967295, got "x""#;
    let table = [
        (&strict, "reopen", r#"{"order": 7}"#, Ok(())),
        (&strict, "reopen", r#"{"order": "x"}"#, Err(mistake)),
        // The form of a strict tool for an argument that is left out.
        (&strict, "remark", r#"{"text": null}"#, Ok(())),
        (&reasoned, "reopen", r#"{"order": 7, "reason": "late"}"#, Ok(())),
        (&reasoned, "reopen", r#"{"order": "x", "reason": "late"}"#, Err(mistake)),
        (
            &reasoned,
            "reopen",
            r#"{"order": 7}"#,
            Err("invalid arguments: `reason` is missing, expected a string"),
        ),
    ];
    for (tools, name, arguments, expected) in table {
        let checked = tools.check_arguments(&ToolCall::new("call_1", name, arguments));
        let checked = checked.map_err(|error| error.to_string());
        assert_eq!(checked, expected.map_err(str::to_owned), "{name}({arguments})");
    }
}

#[tool("Adds a remark")]
fn remark(text: Option<String>) {
    panic!("a check of {text:?} calls nothing");
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Order {
    order: u32,
}

#[tool("Reopens an order")]
async fn reopen(order: u32) {
    panic!("a check of {order} calls nothing");
}
