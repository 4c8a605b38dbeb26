//! Calls that a model repeats: which of them are executed, what the model reads about the others, and when the run ends.

use std::sync::atomic::{AtomicBool, Ordering};

use tests::support::ways::{alike, in_all_ways, restored};
use tool_core::agent::{AgentBuilder, Compaction, on_approval};
use tool_core::layer::{CallVerdict, OutputVerdict, guard};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ModelError};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, RunLimits, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{ToolErrorKind, ToolExecution};
use tool_core::{Agent, Answer, ChatModel, RunError, RunErrorKind, ToolCall, ToolError, tool, tools};

#[tool("Edits a file")]
fn edit(n: u32) -> String {
    format!("edit {n}")
}

#[tool("Runs the tests")]
fn check(n: u32) -> String {
    format!("passed {n}{}", ".".repeat(900))
}

#[tool("Fails")]
fn fail(n: u32) -> Result<(), String> {
    Err(format!("failure {n}"))
}

#[tool("Reads a page", pure)]
fn read(n: u32) -> String {
    format!("page {n}\n{}", "lorem ipsum dolor\n".repeat(200))
}

#[tool("Pays an invoice", at_most_once)]
fn pay(n: u32) -> String {
    format!("paid {n}{}", ".".repeat(900))
}

/// Returns the calls of a script such as `e1 c0`: the first letter of a tool, and its argument.
fn calls(script: &str) -> Vec<(&'static str, String)> {
    let names = ["edit", "check", "fail", "read", "pay"];
    let name = |letter: &str| *names.iter().find(|name| name.starts_with(letter)).unwrap();
    let calls = script.split_whitespace().map(|call| call.split_at(1));
    calls.map(|(letter, n)| (name(letter), format!(r#"{{"n": {n}}}"#))).collect()
}

/// Requests each call in a turn of its own.
fn model(calls: &[(&'static str, String)]) -> ScriptedModel {
    let model = ScriptedModel::new();
    calls.iter().fold(model, |model, (name, arguments)| model.calls(*name, &**arguments)).says("Done.")
}

fn agent(model: impl ChatModel + 'static) -> AgentBuilder {
    Agent::builder(model).tools(tools![edit, check, fail, read, pay]).limits(|l| l.max_turns(200))
}

/// Returns a sign for each call: `-` if it was refused because it was repeated, `x` if it failed, otherwise `+`.
fn signs(executions: &[ToolExecution]) -> String {
    let sign = |one: &ToolExecution| match one.error() {
        Some(error) if error.to_string().starts_with("the call was not executed: it was requested ") => '-',
        Some(_) => 'x',
        None => '+',
    };
    executions.iter().map(sign).collect()
}

/// Returns the signs of the calls of a run, with a `!` at the end if it was stopped because of the last one.
fn outcome(outcome: &Result<Answer, RunError>) -> String {
    match outcome {
        Ok(answer) => signs(answer.tool_executions()),
        Err(error) => {
            let RunErrorKind::Stopped(StopReason::RepeatedCall(_)) = error.kind() else { panic!("{error}") };
            format!("{}!", signs(error.tool_executions()))
        }
    }
}

/// Edits and checks as often, each time with another edit.
fn edits_and_checks(times: usize) -> String {
    (1..=times).map(|n| format!("e{n} c0 ")).collect()
}

#[tokio::test]
async fn a_count_restarts_only_after_a_new_call_that_can_have_changed_something() {
    let table = [
        ("c0 c0 c0 c0 c0 c0 c0", "+++----!"),
        (&*edits_and_checks(25), &*"+".repeat(50)),
        // Two calls do not restart each other without end.
        ("e1 c0 e1 c0 e1 c0 e1 c0 e1 c0 e1 c0 e1 c0", "+++++++-------!"),
        ("e1 c0 e2 c0 e1 c0 e2 c0 e1 c0", "+++++++++-"),
        // Calls that fail or only read have changed nothing.
        ("c0 f1 c0 f2 c0 f3 c0 f4 c0 f5 c0 f6 c0", "+x+x+x-x-x-x-!"),
        ("c0 r1 c0 r2 c0 r3 c0 r4 c0", "++++++-+-"),
        // A call that must not happen twice is counted without restarts.
        ("p0 e1 p0 e2 p0 e3 p0 e4 p0 e5 p0 e6 p0", "++++++-+-+-+-!"),
        ("c0 p1 c0 p2 c0 p3 c0 p4 c0", "+++++++++"),
        ("r1 r1 r1 r1 e1 r1 r1 r1 r1", "+++-++++-"),
        // Refused calls are counted with the others, and forgotten with them.
        ("c0 c0 c0 c0 c0 e1 c0 c0 c0 c0 c0 c0 c0", "+++--++++----!"),
    ];
    for (script, expected) in table {
        let calls = calls(script);
        assert_eq!(outcome(&alike(|| agent(model(&calls))).await), expected, "{script}");
        // A fork goes on as the run did.
        let mut driver = agent(model(&calls)).build().unwrap().ask("Go").start();
        while driver.advance().await.unwrap() {}
        let run = driver.into_run();
        for done in (1..calls.len()).step_by(1 + calls.len() / 10) {
            let agent = agent(model(&calls[done..])).build().unwrap();
            let forked = agent.fork(&run, 1 + 2 * done).unwrap().await;
            assert_eq!(outcome(&forked), expected, "{script}, forked after {done} calls");
        }
    }
}

/// What a model did not get executed has changed nothing, and what was executed has, whatever layers make of the output.
#[tokio::test]
async fn a_restart_depends_on_what_was_executed() {
    let calls = calls("e1 c0 e2 c0 e3 c0 e4 c0 e5 c0");
    let build = || agent(model(&calls));
    let denied = || {
        build().layer(guard::call(|call: &ToolCall| match &*call.name {
            "edit" => CallVerdict::deny("not now"),
            _ => CallVerdict::Pass,
        }))
    };
    assert_eq!(outcome(&alike(denied).await), "x+x+x+x-x-");
    let given = || {
        build().layer(guard::call(|call: &ToolCall| match &*call.name {
            "edit" => CallVerdict::replace("edited"),
            _ => CallVerdict::Pass,
        }))
    };
    assert_eq!(outcome(&alike(given).await), "+++++++-+-");
    let hidden = || {
        build().layer(guard::output(|execution| match &*execution.call().name {
            "edit" => OutputVerdict::fail(ToolError::failed("secret")),
            _ => OutputVerdict::Pass,
        }))
    };
    assert_eq!(outcome(&alike(hidden).await), "x+x+x+x+x+");
    let approved = || build().layer(guard::needs_approval(|call| call.name == "edit"));
    assert_eq!(outcome(&in_all_ways(approved, |_| Decision::deny("no")).await), "x+x+x+x-x-");
    assert_eq!(outcome(&in_all_ways(approved, |_| Decision::approve()).await), "++++++++++");
    // One that was denied before is new when it is executed.
    let later = AtomicBool::new(false);
    let denies_first = on_approval(move |_| match later.swap(true, Ordering::SeqCst) {
        false => Decision::deny("not now"),
        true => Decision::approve(),
    });
    let calls = super::repeating::calls("e1 c0 c0 c0 e1 c0");
    let asks = guard::needs_approval(|call| call.name == "edit");
    let agent = agent(model(&calls)).layer(asks).decider(denies_first).build().unwrap();
    assert_eq!(outcome(&agent.ask("Go").await), "x+++++");
}

/// Calls of one turn are executed at once, so none of them restarts the count of another.
#[tokio::test]
async fn calls_of_one_turn_are_counted_before_any_of_them_is_executed() {
    let calls = calls("c0 e1 c0 e2 c0 e3 c0 e4");
    let script = || {
        let all = calls.iter().map(|(name, arguments)| (*name, &**arguments));
        ScriptedModel::new().calls_all(all).calls("check", r#"{"n": 0}"#).says("Done.")
    };
    assert_eq!(outcome(&alike(|| agent(script())).await), "++++++-++");
}

#[tokio::test]
async fn equal_calls_beyond_their_limit_are_refused_and_never_end_the_run() {
    let default = RunLimits::new();
    assert_eq!((default.max_repeated_calls, default.max_equal_calls), (3, 30));
    let script = edits_and_checks(40);
    let calls = calls(&script);
    let expected = |executed: usize| format!("{}{}", "++".repeat(executed), "+-".repeat(40 - executed));
    let limited = async |limit: fn(RunLimits) -> RunLimits| {
        outcome(&alike(|| agent(model(&calls)).limits(limit)).await)
    };
    assert_eq!(limited(|l| l).await, expected(30));
    assert_eq!(limited(|l| l.max_equal_calls(5)).await, expected(5));
    assert_eq!(limited(|l| l.max_equal_calls(0)).await, expected(3));
    assert_eq!(limited(|l| l.max_repeated_calls(35)).await, expected(35));
    // Without edits in between, the same count ends the run as ever.
    let ten = "c0 ".repeat(10);
    let ends = alike(|| agent(model(&super::repeating::calls(&ten))).limits(|l| l.max_equal_calls(2))).await;
    assert_eq!(outcome(&ends), "+++----!");
}

#[tokio::test]
async fn the_model_reads_why_a_call_is_not_executed_again() {
    let table = [
        (
            "c0 c0 c0 c0",
            "it was requested 3 times with these arguments already, and no new call has changed anything since; \
             continue with its earlier result, or use other arguments",
        ),
        (
            "p0 e1 p0 e2 p0 e3 p0",
            "it was requested 3 times with these arguments already, and its tool allows no more in one run; \
             continue with its earlier result, or use other arguments",
        ),
        (
            &*edits_and_checks(31),
            "it was requested 30 times with these arguments already, and no run executes it more often; \
             continue without it, or use other arguments",
        ),
    ];
    for (script, expected) in table {
        let answer = alike(|| agent(model(&calls(script)))).await.unwrap();
        let refused = answer.tool_executions().last().unwrap();
        assert_eq!(refused.error().unwrap().kind(), ToolErrorKind::NotExecuted);
        assert_eq!(refused.error().unwrap().to_string(), format!("the call was not executed: {expected}"));
    }
}

/// A model that summarizes, or fails to.
struct Summarizing(ScriptedModel, bool);

impl ChatModel for Summarizing {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        if !request.messages().last().unwrap().text().starts_with("Summarize this") {
            return self.0.chat(request);
        }
        let summary = ChatResponse::new(AssistantMessage::text("Pages were read."));
        let summary = if self.1 { Ok(summary) } else { Err(ModelError::new("down")) };
        Box::pin(std::future::ready(summary))
    }
}

#[tokio::test]
async fn a_compaction_forgets_only_pure_calls_whose_outputs_it_hides() {
    let before = "p0 p0 p0 p0 c0 c0 c0 c0 r1 r1 r1 r1 r2 r2 r2";
    let calls = calls(&format!("{before} r1 r2 c0 p0 r1 r1 r1"));
    for summarizes in [false, true] {
        let build = |model| {
            let compaction = Compaction::when_it_pays().keep_recent_tokens(3_500);
            agent(Summarizing(model, summarizes)).compaction(compaction).build().unwrap()
        };
        let agent = build(model(&calls));
        let mut driver = agent.ask("Go").start();
        while driver.run().tool_executions().len() < before.split(' ').count() {
            driver.advance().await.unwrap();
        }
        let whole = restored(driver.into_run());
        let run = agent.compact(whole).await.unwrap();
        let [compaction] = run.compactions() else { panic!("the run is compacted once") };
        let hidden = if summarizes { (0, true) } else { (3, false) };
        assert_eq!((compaction.cleared_outputs(), compaction.summary().is_some()), hidden);
        let answer = agent.resume(restored(run)).await;
        assert_eq!(outcome(&answer), "+++-+++-+++-++++---++-", "{summarizes}");
    }
}
