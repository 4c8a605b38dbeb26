//! Stored states of earlier formats stay readable. The files of a format never change: an incompatible change of the
//! form raises the format number and adds files.

use std::path::PathBuf;

use serde_json::Value;
use tool_core::layer::{CallVerdict, QuestionVerdict, guard, rewrite};
use tool_core::model::{
    AssistantMessage, ChatResponse, Cost, Currency, FinishReason, ToolChoice, ToolDefinition, ToolKind, Usage,
};
use tool_core::run::{Decision, ErrorPolicy, Run, RunLimits, Step};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{ToolErrorKind, ToolExecution, ToolFuture};
use tool_core::{Agent, Message, Tool, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet, tool, tools};

#[tool("Sums two numbers")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tool(return_direct)]
fn ticket(number: u32) -> Result<ToolOutput, String> {
    match number {
        0 => Err("there is no ticket 0".into()),
        _ => Ok(ToolOutput::text(format!("Ticket {number}"))),
    }
}

#[tool(needs_approval)]
fn erase() {}

#[tool(undo = "unbook")]
fn book() {}

#[tool]
fn unbook() {}

/// A tool that the caller executes.
struct Locate(ToolDefinition);

impl Tool for Locate {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::ready(Err(ToolError::failed("the caller executes this call")))
    }
}

fn all_tools() -> ToolSet {
    let locate = Locate(ToolDefinition::new("locate").with_kind(ToolKind::Caller));
    tools![sum, ticket, erase, book, unbook, pick].with(locate).unwrap()
}

fn folder(format: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("states/format_{format}"))
}

fn golden(format: u32, name: &str) -> String {
    let path = folder(format).join(format!("{name}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the end of a stored run that is resumed with a model that replies once more.
async fn resumed(state: &str) -> String {
    let run: Run = serde_json::from_str(state).unwrap();
    let again: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    let mut outcomes = Vec::new();
    for run in [run, again] {
        let model = ScriptedModel::new().says("That is all.");
        let agent = Agent::builder(model).tools(all_tools()).build().unwrap();
        outcomes.push(match agent.resume(run).await {
            Ok(answer) => format!(
                "{} ({} calls, {} tokens)",
                answer.text(),
                answer.tool_executions().len(),
                answer.usage().total_tokens
            ),
            Err(error) => format!("error: {error} ({} calls)", error.tool_executions().len()),
        });
    }
    assert_eq!(outcomes[0], outcomes[1], "read, written and read again");
    outcomes.swap_remove(0)
}

#[tokio::test]
async fn resumes_runs_of_format_1() {
    let turns = "error: the model still called tools after 3 turns; raise `max_turns`, or check `tool_executions()` for what it attempts (4 calls)";
    let cut = "error: the model's reply was cut short in the middle of its calls, so none was executed; ask for less at once (3 calls)";
    let table = [
        ("asking", "That is all. (0 calls, 0 tokens)"),
        ("calling", "That is all. (3 calls, 110 tokens)"),
        ("asking_again", "That is all. (3 calls, 110 tokens)"),
        ("answered", "It is 3. (3 calls, 220 tokens)"),
        ("returned", "Ticket 7 (4 calls, 220 tokens)"),
        ("out_of_turns", turns),
        ("cut_short", cut),
    ];
    for (name, expected) in table {
        assert_eq!(resumed(&golden(1, name)).await, expected, "{name}");
    }
    // Everything that a state of format 1 contains is retained.
    let run: Run = serde_json::from_str(&golden(1, "calling")).unwrap();
    assert_eq!((run.limits().max_turns, run.turns()), (3, 1));
    assert_eq!(run.conversation().map(ToString::to_string).as_deref(), Some("user-7"));
    let run: Run = serde_json::from_str(&golden(1, "asking_again")).unwrap();
    let made = run.tool_executions();
    assert_eq!(made[0].repairs().len(), 1);
    assert!(made[0].started_at().is_some() && !made[0].duration().is_zero());
    assert_eq!(made[1].outcome().unwrap_err().kind(), ToolErrorKind::Failed);
    assert_eq!(made[2].output().unwrap().data(), Some(&serde_json::json!({ "n": 4 })));
}

fn reply(calls: &[(&str, &str, &str)]) -> ChatResponse {
    let calls = calls.iter().map(|(id, name, arguments)| ToolCall::new(*id, *name, *arguments));
    ChatResponse::new(AssistantMessage::text("Let me see.").with_tool_calls(calls))
        .with_usage(Usage::new(100, 10))
}

/// Returns a run at each stage.
fn runs() -> Vec<(&'static str, Run)> {
    let definitions = all_tools().definitions().clone();
    let limits = RunLimits::new().max_turns(4).max_calls(9).max_time(std::time::Duration::from_secs(60));
    let asking = Run::new([Message::system("Be brief."), Message::user("What is 1 + 2?")])
        .with_limits(limits)
        .with_tool_choice(ToolChoice::Required)
        .with_parallel_tool_calls(true)
        .with_conversation("user-7")
        .with_options(tool_core::ModelOptions::default().with_seed(7))
        .error_policy(ToolErrorKind::Panicked, ErrorPolicy::EndRun);
    let outcome = |run: &Run, position: usize, outcome: Result<ToolOutput, ToolError>| {
        let Some(Message::Assistant(message)) = run.messages().last() else { panic!() };
        ToolExecution::new(message.tool_calls[position].clone(), outcome)
    };

    let mut found_tools = serde_json::to_value(&asking).unwrap();
    found_tools["found"] = serde_json::json!(["sum", "ticket"]);
    let found_tools = serde_json::from_value(found_tools).unwrap();

    let cost = |micros: u64| serde_json::json!({ "micros": micros, "currency": "USD" });
    let mut charged = serde_json::to_value(&asking).unwrap();
    charged["usage"]["cost"] = cost(1_500);
    charged["may_cost"] = cost(10_085);
    charged["settings"]["limits"]["cost"] = cost(50_000);
    let charged = serde_json::from_value(charged).unwrap();

    let mut calling = asking.clone();
    let calls = [
        ("call_a", "sum", r#"{"a": 1, "b": 2}"#),
        ("call_b", "ticket", r#"{"number": 0}"#),
        ("call_c", "erase", "{}"),
    ];
    calling.record_response(reply(&calls)).unwrap();
    let _ = calling.next(&definitions);
    calling.begin_call("call_a").unwrap();
    let output = ToolOutput::text("3.0").with_data(serde_json::json!({ "exact": true }));
    let first = outcome(&calling, 0, Ok(output));
    calling.record_result(first).unwrap();
    calling.begin_call("call_b").unwrap();

    let mut waiting = calling.clone();
    let second = outcome(&waiting, 1, Err(ToolError::failed("there is no ticket 0")));
    waiting.record_result(second).unwrap();
    assert!(matches!(waiting.next(&definitions), Step::Waiting(waits) if waits.len() == 1));

    let mut approved = waiting.clone();
    approved.resolve_approval("call_c", tool_core::Approval::ApproveWith(r#"{"all": true}"#.into())).unwrap();
    let mut asking_again = waiting.clone();
    asking_again.resolve_approval("call_c", tool_core::Approval::deny("not today")).unwrap();
    let mut answered = asking_again.clone();
    answered.record_response(ChatResponse::new(AssistantMessage::text("It is 3."))).unwrap();
    let mut returned = asking_again.clone();
    returned.record_response(reply(&[("call_d", "ticket", r#"{"number": 7}"#)])).unwrap();
    let _ = returned.next(&definitions);
    let last = outcome(&returned, 0, Ok(ToolOutput::text("Ticket 7")));
    returned.record_result(last).unwrap();
    let mut undoing = asking_again.clone();
    undoing.record_response(reply(&[("call_d", "book", "{}")])).unwrap();
    let _ = undoing.next(&definitions);
    let last = outcome(&undoing, 0, Ok(ToolOutput::text("Success")));
    undoing.record_result(last).unwrap();
    undoing.cancel();
    let mut awaiting_result = asking_again.clone();
    awaiting_result.record_response(reply(&[("call_d", "locate", "{}")])).unwrap();
    assert!(matches!(awaiting_result.next(&definitions), Step::Waiting(waits) if waits.len() == 1));
    let mut ended = asking_again.clone();
    ended
        .record_response(reply(&[("call_d", "sum", "{\"a\": ")]).with_finish_reason(FinishReason::Length))
        .unwrap();
    vec![
        ("asking", asking),
        ("calling", calling),
        ("waiting", waiting),
        ("approved", approved),
        ("asking_again", asking_again),
        ("answered", answered),
        ("returned", returned),
        ("undoing", undoing),
        ("awaiting_result", awaiting_result),
        ("found_tools", found_tools),
        ("charged", charged),
        ("ended", ended),
    ]
}

const CUT: &str = "error: the model's reply was cut short in the middle of its calls, so none was executed; ask for less at once (3 calls)";
const WAITS: &str = "error: calls await approval: `erase`; store `into_run()`, call `resolve` for each of `waits()`, and `resume` the run (0 calls)";

#[tokio::test(start_paused = true)]
async fn resumes_runs_of_format_2() {
    let table = [
        ("asking", "That is all. (0 calls, 0 tokens)"),
        ("calling", WAITS),
        ("waiting", WAITS),
        ("waiting_with_hash", WAITS),
        ("asking_again", "That is all. (3 calls, 110 tokens)"),
        ("answered", "It is 3. (3 calls, 110 tokens)"),
        ("returned", "Ticket 7 (4 calls, 220 tokens)"),
        ("undoing", "error: the run was cancelled (4 calls)"),
        ("ended", CUT),
    ];
    for (name, expected) in table {
        assert_eq!(resumed(&golden(2, name)).await, expected, "{name}");
        // Written again, it is the state of format 3 in the current one.
        let same = match name {
            // The approval is bound to no definition yet.
            "calling" | "waiting" => continue,
            "waiting_with_hash" => "waiting",
            name => name,
        };
        let run: Run = serde_json::from_str(&golden(2, name)).unwrap();
        let mut expected: Value = serde_json::from_str(&golden(3, same)).unwrap();
        expected["format"] = 4.into();
        assert_eq!(serde_json::to_value(&run).unwrap(), expected, "{name}");
    }
    let run: Run = serde_json::from_str(&golden(2, "asking_again")).unwrap();
    assert_eq!(
        run.tool_executions()[0].output().unwrap().data(),
        Some(&serde_json::json!({ "exact": true }))
    );
    assert_eq!(run.tool_executions()[2].outcome().unwrap_err().kind(), ToolErrorKind::Denied);
}

#[tokio::test(start_paused = true)]
async fn resumes_runs_of_format_3() {
    let results = "error: calls await results of the caller: `locate`; store `into_run()`, call `resolve` for each of `waits()`, and `resume` the run (3 calls)";
    let table = [
        ("asking", "That is all. (0 calls, 0 tokens)"),
        ("calling", WAITS),
        ("waiting", WAITS),
        ("approved", "That is all. (3 calls, 110 tokens)"),
        ("asking_again", "That is all. (3 calls, 110 tokens)"),
        ("answered", "It is 3. (3 calls, 110 tokens)"),
        ("returned", "Ticket 7 (4 calls, 220 tokens)"),
        ("undoing", "error: the run was cancelled (4 calls)"),
        ("awaiting_result", results),
        ("found_tools", "That is all. (0 calls, 0 tokens)"),
        ("ended", CUT),
    ];
    for (name, expected) in table {
        assert_eq!(resumed(&golden(3, name)).await, expected, "{name}");
    }
}

/// `BLESS=1` in the environment writes missing files.
#[tokio::test]
async fn resumes_runs_of_format_4_and_writes_them_unchanged() {
    let mut all = runs();
    all.extend(asking_runs().await);
    all.push(("rewriters", layered_run().await));
    for (name, run) in all {
        let mut state = serde_json::to_value(&run).unwrap();
        state["id"] = ID.into();
        if state.get("time").is_some() {
            state["time"] = 1000.into();
        }
        let state: Value = serde_json::from_str(&with_fixed_values(state.to_string())).unwrap();
        let path = folder(4).join(format!("{name}.json"));
        if std::env::var_os("BLESS").is_some() && !path.exists() {
            std::fs::create_dir_all(folder(4)).unwrap();
            std::fs::write(&path, serde_json::to_string_pretty(&state).unwrap() + "\n").unwrap();
        }
        let stored: Value = serde_json::from_str(&golden(4, name)).unwrap();
        assert_eq!(state, stored, "{name}");
    }
    let refused = "error: the call cannot be approved with these arguments: invalid arguments: there is no argument `all`, the tool takes no arguments (0 calls)";
    let waits = "error: calls ask the user: `pick`; store `into_run()`, call `resolve` for each of `waits()`, and `resume` the run (0 calls)";
    for (name, expected) in [
        ("waiting", WAITS),
        ("approved", refused),
        ("undoing", "error: the run was cancelled (4 calls)"),
        ("asking_user", waits),
        ("answered_by_user", "That is all. (1 calls, 0 tokens)"),
        // Which layers were asked to rewrite the calls is unknown.
        ("layered", WAITS_FOR_ERASE),
        ("rewriters", WAITS_FOR_ERASE),
    ] {
        assert_eq!(resumed(&golden(4, name)).await, expected, "{name}");
    }
    let run: Run = serde_json::from_str(&golden(4, "layered")).unwrap();
    let stored: Value = serde_json::from_str(&golden(4, "layered")).unwrap();
    assert_eq!(serde_json::to_value(&run).unwrap(), stored);
    // Nobody knows the outcome of the request in flight.
    let run: Run = serde_json::from_str(&golden(4, "charged")).unwrap();
    assert_eq!(run.cost(), Some(Cost::new(11_585, Currency::USD)));
    assert_eq!(run.limits().max_cost, Some(Cost::usd(0.05)));
}

const ID: &str = "run_00000000000000000000000000000000";

/// Replaces the ids of waits and the times of decisions, which differ from run to run.
fn with_fixed_values(state: String) -> String {
    let mut state: Value = serde_json::from_str(&state).unwrap();
    fn fix(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, _| !matches!(&**name, "started_at" | "duration"));
                for (name, member) in members {
                    match &**name {
                        "wait" => *member = "00000000000000000000000000000000".into(),
                        "since" | "at" => *member = 1_700_000_000_000_u64.into(),
                        _ => fix(member),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(fix),
            _ => {}
        }
    }
    fix(&mut state);
    state.to_string()
}

#[tool]
async fn pick(#[inject] user: &tool_core::tool::Asker) -> Result<String, ToolError> {
    let held = user.once("hold", async { Ok::<_, ToolError>(17) }).await?;
    let color: String = user.ask("Which color?").choices(["red", "blue"]).expires(CENTURY).await?;
    Ok(format!("{color} {held}"))
}

const WAITS_FOR_ERASE: &str = "error: calls await approval: `erase`; store `into_run()`, call `resolve` for each of `waits()`, and `resume` the run (1 calls)";

/// Returns a run whose layers have passed the question, rewritten a call and its output, and required approval.
async fn layered_run() -> Run {
    let model = ScriptedModel::new()
        .calls("sum", r#"{"a": 1, "b": 2}"#)
        .calls_all([("erase", "{}"), ("unbook", "{}")]);
    let agent = Agent::builder(model)
        .tools(tools![sum, erase, unbook])
        .layer(guard::question(|_| QuestionVerdict::Pass))
        .layer(rewrite::call(|call| (call.name == "sum").then(|| r#"{"a":1,"b":3}"#.to_owned())))
        .layer(rewrite::output(|_, output| format!("{output} (rounded)")))
        .layer(guard::call(|call: &ToolCall| match &*call.name {
            "unbook" => CallVerdict::deny("not now"),
            _ => CallVerdict::Pass,
        }))
        .needs_approval(|call| call.name == "erase")
        .build()
        .unwrap();
    agent.ask("Go").conversation("user-7").await.unwrap_err().into_run()
}

const CENTURY: std::time::Duration = std::time::Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns a run whose call asks the user, and one that was answered.
async fn asking_runs() -> Vec<(&'static str, Run)> {
    let model = ScriptedModel::new().calls("pick", "{}");
    let agent = Agent::builder(model).tools(tools![pick]).build().unwrap();
    let asking = agent.ask("Pick a color").conversation("user-7").await.unwrap_err().into_run();
    let mut answered = asking.clone();
    let wait = answered.waits().remove(0).id;
    answered.resolve(&wait, Decision::answer("blue").by("ada").because("the sky")).unwrap();
    vec![("asking_user", asking), ("answered_by_user", answered)]
}

/// The state does not repeat the messages and does not contain the tools' descriptions.
#[test]
fn a_state_is_compact() {
    let mut run = Run::new([Message::user("Go")]).max_turns(100);
    let long = "x".repeat(1000);
    for turn in 0..20 {
        run.record_response(reply(&[(
            &format!("call_q{turn}"),
            "sum",
            &format!(r#"{{"a": {turn}, "b": "{long}"}}"#),
        )]))
        .unwrap();
        let definitions = tools![sum].definitions().clone();
        let Step::CallTools(calls) = run.next(&definitions) else { panic!() };
        run.record_result(ToolExecution::new(calls[0].clone(), Ok(ToolOutput::text(long.clone())))).unwrap();
    }
    let messages = serde_json::to_string(run.messages()).unwrap().len();
    let state = serde_json::to_string(&run).unwrap();
    assert!(state.len() - messages < 20 * 40 + 500, "{} beside {messages}", state.len() - messages);
    assert!(!state.contains("Sums two numbers"));
}
