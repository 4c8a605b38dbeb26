//! Examples of stored states in each stage of a run. They are rewritten with each change of the form, and are frozen before the first
//! release.

use std::path::PathBuf;

use serde_json::Value;
use tests::support::deciding::Decide;
use tool_core::layer::{CallVerdict, QuestionVerdict, guard, rewrite};
use tool_core::model::{
    AssistantMessage, ChatResponse, Cost, Currency, FinishReason, ToolChoice, ToolDefinition, Usage,
};
use tool_core::provider::ToolKind;
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

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("states/current")
}

fn path(name: &str) -> PathBuf {
    folder().join(format!("{name}.json"))
}

fn golden(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// Returns the end of a stored run that is resumed with a model that replies once more.
async fn resumed(state: &str) -> String {
    let run: Run = serde_json::from_str(state).unwrap();
    let again: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    let mut outcomes = Vec::new();
    for run in [run, again] {
        let model = ScriptedModel::new().says("That is all.");
        let eraser = Agent::builder(ScriptedModel::new()).tools(tools![erase]).build().unwrap();
        let builder = Agent::builder(model).tools(all_tools()).tools(eraser.as_tool("eraser", "Erases"));
        let agent = builder.build().unwrap();
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
    found_tools["history"]["found_tools"] = serde_json::json!(["sum", "ticket"]);
    let found_tools = serde_json::from_value(found_tools).unwrap();

    let cost = |micros: u64| serde_json::json!({ "micros": micros, "currency": "USD" });
    let mut charged = serde_json::to_value(&asking).unwrap();
    charged["head"]["usage"]["cost"] = cost(1_500);
    charged["head"]["cost_in_flight"] = cost(10_085);
    charged["head"]["settings"]["limits"]["cost"] = cost(50_000);
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
    approved.decide_call("call_c", tool_core::run::Decision::approve_with(r#"{"all": true}"#)).unwrap();
    let mut asking_again = waiting.clone();
    asking_again.decide_call("call_c", tool_core::run::Decision::deny("not today")).unwrap();
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

const CUT: &str = "error: the model's reply was truncated inside its tool calls; none was executed; raise `max_output_tokens` (3 calls)";
const WAITS: &str = "error: calls await approval: `erase`; store `into_run()`, call `resolve` for each of `waits()`, and `resume` the run (0 calls)";

/// `BLESS=1` in the environment writes the files anew.
#[tokio::test(start_paused = true)]
async fn stored_runs_have_their_examples_and_resume() {
    let mut all = runs();
    all.extend(asking_runs().await);
    all.push(("layered", layered_run().await));
    all.push(("agent_waiting", run_of_agents().await));
    let mut names = Vec::new();
    for (name, run) in all {
        let mut state = serde_json::to_value(&run).unwrap();
        fix_values(&mut state);
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(path(name), serde_json::to_string_pretty(&state).unwrap() + "\n").unwrap();
        }
        let stored: Value = serde_json::from_str(&golden(name)).unwrap();
        assert_eq!(state, stored, "{name}");
        names.push(format!("{name}.json"));
    }
    names.sort();
    let files =
        std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = files.collect();
    files.sort();
    assert_eq!(files, names);
    let refused = "error: the call cannot be approved with these arguments: invalid arguments: there is no argument `all`, the tool takes no arguments (0 calls)";
    let results = "error: calls await results of the caller: `locate`; store `into_run()`, call `resolve` for each of `waits()`, and `resume` the run (3 calls)";
    let asks = "error: calls ask the user: `pick`; store `into_run()`, call `resolve` for each of `waits()`, and `resume` the run (0 calls)";
    for (name, expected) in [
        ("asking", "That is all. (0 calls, 0 tokens)"),
        ("calling", WAITS),
        ("waiting", WAITS),
        ("approved", refused),
        ("asking_again", "That is all. (3 calls, 110 tokens)"),
        ("answered", "It is 3. (3 calls, 110 tokens)"),
        ("returned", "Ticket 7 (4 calls, 220 tokens)"),
        ("undoing", "error: the run was cancelled (4 calls)"),
        ("awaiting_result", results),
        ("found_tools", "That is all. (0 calls, 0 tokens)"),
        ("ended", CUT),
        ("asking_user", asks),
        ("answered_by_user", "That is all. (1 calls, 0 tokens)"),
        ("layered", WAITS_FOR_ERASE),
        ("agent_waiting", WAITS),
    ] {
        assert_eq!(resumed(&golden(name)).await, expected, "{name}");
    }
    let run: Run = serde_json::from_str(&golden("asking_again")).unwrap();
    let executions = run.tool_executions();
    assert_eq!(executions[0].output().unwrap().data(), Some(&serde_json::json!({ "exact": true })));
    assert_eq!(executions[2].outcome().unwrap_err().kind(), ToolErrorKind::Denied);
    // The outcome of the request in flight is unknown.
    let run: Run = serde_json::from_str(&golden("charged")).unwrap();
    assert_eq!(run.cost(), Some(Cost::new(11_585, Currency::USD)));
    assert_eq!(run.limits().max_cost, Some(Cost::usd(0.05)));
}

/// Replaces the ids and times that differ from run to run.
fn fix_values(state: &mut Value) {
    match state {
        Value::Object(members) => {
            members.retain(|name, _| !matches!(&**name, "started_at" | "duration"));
            if members.contains_key("format") && members.contains_key("time") {
                members["time"] = 1000.into();
            }
            for (name, member) in members {
                match &**name {
                    "wait" => *member = "00000000000000000000000000000000".into(),
                    "since" | "at" => *member = 1_700_000_000_000_u64.into(),
                    "id" | "conversation" => {
                        let kind = member.as_str().and_then(|id| id.split_once('_'));
                        if let Some((kind @ ("run" | "conversation"), _)) = kind {
                            *member = format!("{kind}_0").into();
                        }
                    }
                    _ => fix_values(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(fix_values),
        _ => {}
    }
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
        .layer(guard::needs_approval(|call| call.name == "erase"))
        .build()
        .unwrap();
    agent.ask("Go").conversation("user-7").await.unwrap_err().into_run()
}

/// Returns a run whose call asked an agent, in whose run a call awaits approval.
async fn run_of_agents() -> Run {
    let eraser =
        Agent::builder(ScriptedModel::new().calls("erase", "{}")).tools(tools![erase]).build().unwrap();
    let model = ScriptedModel::new().calls("eraser", r#"{"question": "Erase it"}"#);
    let agent = Agent::builder(model).tools(eraser.as_tool("eraser", "Erases")).build().unwrap();
    agent.ask("Go").await.unwrap_err().into_run()
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
    let mut run = Run::new([Message::user("Go")]).with_limits(RunLimits::new().max_turns(100));
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
