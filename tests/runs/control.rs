//! Control over a run: policies for failed calls, attempts, limits and ways to end. Every case is awaited, streamed and
//! driven step by step, with the same outcome.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tests::support::ways::alike;
use tool_core::agent::AgentBuilder;
use tool_core::layer::{OutputVerdict, guard};
use tool_core::model::{AssistantMessage, ChatResponse, Usage};
use tool_core::run::{ErrorPolicy, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{OutcomeOrigin, ToolErrorKind};
use tool_core::{
    Agent, Message, RunError, RunErrorKind, ToolCall, ToolContext, ToolError, ToolOutput, tool, tools,
};

/// The names and arguments of the calls of one turn.
type Calls = &'static [(&'static str, &'static str)];

#[tool("Sums two numbers")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tool]
fn fails(why: String) -> Result<String, String> {
    Err(why)
}

#[tool]
fn panics() {
    panic!("secret")
}

#[tool(timeout = "5ms")]
async fn hangs() {
    std::future::pending::<()>().await;
}

#[tool]
fn revoked() -> Result<(), ToolError> {
    Err(ToolError::fatal("the key was revoked"))
}

#[tool(return_direct = "if_last")]
fn closing() -> &'static str {
    "closed"
}

#[tool(return_direct)]
fn direct() -> &'static str {
    "directly"
}

#[tool(return_direct = always)]
fn hand_over() -> &'static str {
    "a person takes over"
}

fn agent(model: ScriptedModel) -> AgentBuilder {
    Agent::builder(model).tools(tools![sum, fails, panics, hangs, revoked, closing, direct, hand_over])
}

/// Calls that fail, one for each kind of failure.
fn failures() -> [(ToolErrorKind, &'static str, &'static str); 5] {
    [
        (ToolErrorKind::UnknownTool, "google", "{}"),
        (ToolErrorKind::InvalidArguments, "sum", r#"{"a": "x"}"#),
        (ToolErrorKind::Failed, "fails", r#"{"why": "secret"}"#),
        (ToolErrorKind::Panicked, "panics", "{}"),
        (ToolErrorKind::TimedOut, "hangs", "{}"),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_failure_is_reported_hidden_or_ends_the_run() {
    for (kind, name, arguments) in failures() {
        let script = || ScriptedModel::new().calls(name, arguments).says("Sorry.");
        let actual = alike(|| agent(script())).await.unwrap();
        let error = actual.tool_executions()[0].outcome().unwrap_err();
        assert_eq!(error.kind(), kind);

        let hidden = alike(|| agent(script()).error_policy(kind, ErrorPolicy::Hide)).await.unwrap();
        let error = hidden.tool_executions()[0].outcome().unwrap_err();
        assert_eq!((error.kind(), &*error.to_string()), (kind, "the tool failed (reference call_1_0)"));
        assert!(error.failure().is_some(), "the application receives the failure");

        let ended = alike(|| agent(script()).error_policy(kind, ErrorPolicy::EndRun)).await.unwrap_err();
        let RunErrorKind::Stopped(StopReason::ToolFailed { tool, error }) = ended.kind() else {
            panic!("{ended}")
        };
        assert_eq!((&**tool, error.kind(), ended.is_resumable()), (name, kind, false));
        assert_eq!((ended.tool_executions().len(), ended.run().turns()), (1, 1));
        // A policy for another kind changes nothing.
        let other = ToolErrorKind::MissingContext;
        assert!(alike(|| agent(script()).error_policy(other, ErrorPolicy::EndRun)).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_replaces_the_result_of_a_failed_call() {
    for (kind, name, arguments) in failures() {
        let script = || ScriptedModel::new().calls(name, arguments).says("Fine.");
        let build = || {
            agent(script()).layer(guard::output(move |execution| {
                assert_eq!(execution.error().unwrap().kind(), kind);
                let text = format!("in place of {}", execution.call().name);
                OutputVerdict::Replace(Ok(ToolOutput::text(text)))
            }))
        };
        let answer = alike(build).await.unwrap();
        assert_eq!(answer.new_messages()[2].text(), format!("in place of {name}"));
        // A layer may replace the error, or pass it.
        let build =
            || agent(script()).layer(guard::output(|_| OutputVerdict::fail(ToolError::fatal("enough"))));
        let error = alike(build).await.unwrap_err();
        assert_eq!(error.to_string(), format!("the tool `{name}` ended the run: enough"));
        let answer = alike(|| agent(script()).layer(guard::output(|_| OutputVerdict::Pass))).await.unwrap();
        assert_eq!(answer.tool_executions()[0].outcome().unwrap_err().kind(), kind);
    }
}

#[tokio::test]
async fn a_fatal_error_ends_the_run_and_every_call_has_a_result() {
    let calls = [("revoked", "{}"), ("sum", r#"{"a": 1, "b": 2}"#)];
    let build = || agent(ScriptedModel::new().calls_all(calls)).max_concurrent_calls(1);
    let agent = build().build().unwrap();
    let error = agent.ask("What now?").await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::Stopped(StopReason::ToolFailed { error, .. }) if error.is_fatal())
    );
    assert_eq!(error.to_string(), "the tool `revoked` ended the run: the key was revoked");
    let results: Vec<_> = error.new_messages()[2..].iter().map(Message::text).collect();
    assert_eq!(results, ["the key was revoked", "the call was not executed: the run had ended"]);
    assert_eq!(error.tool_executions().len(), 1);
}

#[derive(Debug)]
struct Revoked;

impl std::fmt::Display for Revoked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the key of the bank was revoked")
    }
}

impl Error for Revoked {}

#[tool]
fn charge() -> Result<(), ToolError> {
    Err(ToolError::fatal(Revoked))
}

#[tokio::test]
async fn the_source_of_the_error_is_that_of_the_tool() {
    let build = || Agent::builder(ScriptedModel::new().calls("charge", "{}")).tools(tools![charge]);
    let error = build().build().unwrap().ask("What now?").await.unwrap_err();
    assert!(error.source().unwrap().is::<Revoked>());
    let text = "the tool `charge` ended the run: the key of the bank was revoked";
    assert_eq!((error.to_string(), format!("{error:?}")), (text.into(), text.into()));
    let error = build().error_policy(ToolErrorKind::Failed, ErrorPolicy::EndRun).build().unwrap();
    let error = error.ask("What now?").await.unwrap_err();
    assert!(error.source().unwrap().is::<Revoked>());
}

static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// A tool that fails as often as the test requests.
#[tool(attempts = 3)]
fn flaky(failures: u32, #[inject] context: &ToolContext) -> Result<u32, String> {
    ATTEMPTS.fetch_add(1, Ordering::SeqCst);
    if context.attempt() <= failures {
        Err(format!("attempt {}", context.attempt()))
    } else {
        Ok(context.attempt())
    }
}

#[tokio::test(start_paused = true)]
async fn retries_a_call_up_to_its_tools_attempts() {
    for (failures, expected, attempts) in [(0, "1", 1), (1, "2", 2), (2, "3", 3), (3, "attempt 3", 3)] {
        ATTEMPTS.store(0, Ordering::SeqCst);
        let model = || {
            let arguments = format!(r#"{{"failures": {failures}}}"#);
            ScriptedModel::new().calls("flaky", arguments).says("Done.")
        };
        let answer = alike(|| Agent::builder(model()).tools(tools![flaky])).await.unwrap();
        assert_eq!(answer.new_messages()[2].text(), expected);
        assert_eq!(answer.tool_executions()[0].attempts(), attempts);
        // In three ways.
        assert_eq!(ATTEMPTS.load(Ordering::SeqCst), attempts * 3);
    }
    // Invalid arguments stay invalid, so they are not retried.
    let model = || ScriptedModel::new().calls("flaky", r#"{"failures": -1}"#).says("Done.");
    let answer = alike(|| Agent::builder(model()).tools(tools![flaky])).await.unwrap();
    assert_eq!(answer.tool_executions()[0].attempts(), 1);
}

async fn limited(script: fn() -> ScriptedModel, limit: fn(AgentBuilder) -> AgentBuilder) -> RunError {
    alike(|| limit(agent(script()))).await.unwrap_err()
}

const ONE: (&str, &str) = ("sum", r#"{"a": 1, "b": 1}"#);
const TWO: (&str, &str) = ("sum", r#"{"a": 2, "b": 2}"#);

#[tokio::test]
async fn the_call_limit_executes_no_call_of_the_turn_that_exceeds_it() {
    let script = || ScriptedModel::new().calls_all([ONE, TWO]).calls_all([ONE, TWO]).says("Done.");
    assert!(alike(|| agent(script()).limits(|l| l.max_calls(4))).await.is_ok());
    let error = limited(script, |builder| builder.limits(|l| l.max_calls(3))).await;
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxCalls(3))));
    assert_eq!(error.tool_executions().len(), 2);
    let actual = error.new_messages().last().unwrap().text().into_owned();
    assert_eq!(actual, "the call was not executed: the run would have exceeded its limit of calls");
}

#[tokio::test]
async fn the_token_limit_ends_the_run_before_further_calls() {
    let script = || {
        let turn = |model: ScriptedModel, call: (&str, &str)| {
            model.calls(call.0, call.1).with_usage(Usage::new(90, 10))
        };
        turn(turn(ScriptedModel::new(), ONE), TWO).says("Done.").with_usage(Usage::new(500, 5))
    };
    // An existing answer is not discarded.
    assert!(alike(|| agent(script()).limits(|l| l.max_total_tokens(200))).await.is_ok());
    let error = limited(script, |builder| builder.limits(|l| l.max_total_tokens(199))).await;
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTotalTokens(_))));
    assert_eq!((error.tool_executions().len(), error.run().usage().total_tokens), (1, 200));
}

#[tokio::test]
async fn the_token_limit_counts_requests_of_unknown_usage_by_their_bytes() {
    let unknown = [None, Some(Usage::new(0, 0)), Some(Usage::new(0, 9)), Some(Usage::new(9, 0))];
    for usage in unknown {
        let turn = move |call: (&str, &str)| {
            let model = ScriptedModel::new().calls(call.0, call.1);
            let model = if let Some(usage) = usage { model.with_usage(usage) } else { model };
            model.says("Done.")
        };
        let long = "x".repeat(1_000);
        let inside = || {
            let inner = agent(turn(ONE)).build().unwrap();
            let asks =
                ScriptedModel::new().calls("inner", r#"{"question": "go"}"#).with_usage(Usage::new(1, 1));
            let asks = asks.calls("sum", ONE.1).with_usage(Usage::new(1, 1)).says("Done.");
            agent(asks).tools(inner.as_tool("inner", &*long))
        };
        for build in [&(|| agent(turn(ONE)).instructions(&*long)) as &dyn Fn() -> AgentBuilder, &inside] {
            assert!(alike(|| build().limits(|l| l.max_total_tokens(100_000))).await.is_ok());
            let error = alike(|| build().limits(|l| l.max_total_tokens(100))).await.unwrap_err();
            assert!(
                matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTotalTokens(100))),
                "{usage:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_output_limit_ends_the_run_and_keeps_its_results() {
    let script = || ScriptedModel::new().calls_all([ONE, TWO]).says("Done.");
    assert!(alike(|| agent(script()).limits(|l| l.max_total_output_chars(6))).await.is_ok());
    // Characters count, not bytes.
    let umlauts = || ScriptedModel::new().calls("fails", r#"{"why": "äöü"}"#).says("Done.");
    assert!(alike(|| agent(umlauts()).limits(|l| l.max_total_output_chars(3))).await.is_ok());
    let error = limited(umlauts, |builder| builder.limits(|l| l.max_total_output_chars(2))).await;
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTotalOutputChars(2))));
    let error = limited(script, |builder| builder.limits(|l| l.max_total_output_chars(2))).await;
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTotalOutputChars(_))));
    // The texts of errors count too.
    let script = || ScriptedModel::new().calls("fails", r#"{"why": "a long story"}"#).says("Done.");
    assert!(matches!(
        limited(script, |builder| builder.limits(|l| l.max_total_output_chars(2))).await.kind(),
        RunErrorKind::Stopped(StopReason::MaxTotalOutputChars(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_drops_running_calls() {
    #[tool]
    async fn sleeps(milliseconds: u64) -> u64 {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        milliseconds
    }
    let script = || {
        let calls = [("sleeps", r#"{"milliseconds": 1}"#), ("sleeps", r#"{"milliseconds": 60000}"#)];
        ScriptedModel::new().calls_all(calls).says("Done.")
    };
    let agent = |limit| {
        let builder = Agent::builder(script()).tools(tools![sleeps]);
        builder.limits(|l| l.max_time(Duration::from_millis(limit))).build().unwrap()
    };
    let clock = tokio::time::Instant::now();
    let error = agent(80).ask("Sleep").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))));
    let results: Vec<_> = error.new_messages()[2..].iter().map(Message::text).collect();
    assert_eq!(results, ["1", "the call was interrupted before a result was produced"]);
    assert_eq!(error.tool_executions()[1].outcome().unwrap_err().kind(), ToolErrorKind::OutcomeUnknown);
    assert!(error.run().elapsed() <= clock.elapsed(), "waiting time counts once");
    assert_eq!(error.to_string(), "the run took longer than 80ms; raise `max_time`");
    // Driven step by step, running calls are dropped as well.
    let agent = agent(80);
    let mut run = agent.ask("Sleep").start();
    while run.advance().await.unwrap() {}
    assert!(matches!(run.finish().await.unwrap_err().kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))));
}

#[tokio::test(start_paused = true)]
async fn the_call_timeout_applies_to_every_call() {
    #[tool]
    async fn for_ever() {
        std::future::pending::<()>().await;
    }
    let build = || {
        let model = ScriptedModel::new().calls("for_ever", "{}").says("Done.");
        Agent::builder(model).tools(tools![for_ever]).call_timeout(Duration::from_millis(10))
    };
    let answer = alike(build).await.unwrap();
    let error = answer.tool_executions()[0].outcome().unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::TimedOut);
    assert_eq!(error.to_string(), "the tool timed out after 10ms");
}

#[tokio::test]
async fn reports_a_repeated_call_and_then_ends_the_run() {
    let script = || (0..8).fold(ScriptedModel::new(), |model, _| model.calls(ONE.0, ONE.1)).says("Done.");
    let error = limited(script, |builder| builder.limits(|l| l.max_turns(20))).await;
    assert!(
        matches!(error.kind(), RunErrorKind::Stopped(reason @ StopReason::RepeatedCall(tool)) if tool == "sum" && reason.is_limit())
    );
    let outcomes: Vec<_> = error.tool_executions().iter().map(|one| one.outcome().is_ok()).collect();
    assert_eq!(outcomes, [true, true, true, false, false, false, false]);
    let actual = error.tool_executions()[3].outcome().unwrap_err().to_string();
    assert!(
        actual
            .starts_with("the call was not executed: it was requested 3 times with these arguments already"),
        "{actual}"
    );
    // A call with other arguments is a different call, and the limit can be changed.
    assert!(alike(|| agent(script()).limits(|l| l.max_turns(20).max_repeated_calls(8))).await.is_ok());
}

#[tokio::test]
async fn return_direct_depends_on_the_other_calls_of_the_turn() {
    let table: [(Calls, Option<&str>); 9] = [
        (&[("direct", "{}")], Some("directly")),
        (&[("direct", "{}"), ("closing", "{}")], Some("directly\nclosed")),
        (&[("direct", "{}"), ONE], None),
        (&[ONE, ("direct", "{}")], None),
        (&[ONE, ("closing", "{}")], Some("closed")),
        (&[("closing", "{}"), ONE], None),
        (&[("fails", r#"{"why": "no"}"#), ("closing", "{}")], None),
        (&[("hand_over", "{}"), ("fails", r#"{"why": "no"}"#)], Some("a person takes over")),
        (&[("direct", "{}"), ("panics", "{}")], None),
    ];
    for (calls, expected) in table {
        let script = || ScriptedModel::new().calls_all(calls.iter().copied()).says("The model goes on.");
        let answer = alike(|| agent(script())).await.unwrap();
        assert_eq!(answer.text(), expected.unwrap_or("The model goes on."), "{calls:?}");
    }
}

#[tokio::test]
async fn executes_calls_of_the_last_turn_that_may_be_the_answer() {
    const NO: (&str, &str) = ("fails", r#"{"why": "no"}"#);
    let table: [(Calls, Option<&str>, usize); 6] = [
        (&[("direct", "{}")], Some("directly"), 1),
        (&[ONE, ("closing", "{}")], Some("closed"), 2),
        (&[NO, ("hand_over", "{}")], Some("a person takes over"), 2),
        (&[ONE], None, 0),
        (&[ONE, ("direct", "{}")], None, 0),
        (&[NO, ("closing", "{}")], None, 2),
    ];
    for (calls, expected, made) in table {
        let script = || ScriptedModel::new().calls_all(calls.iter().copied());
        match (alike(|| agent(script()).limits(|l| l.max_turns(1))).await, expected) {
            (Ok(answer), Some(expected)) => {
                assert_eq!((answer.text(), answer.tool_executions().len()), (expected, made), "{calls:?}");
            }
            (Err(error), None) => {
                assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(_))), "{error}");
                assert_eq!(error.tool_executions().len(), made, "{calls:?}");
            }
            (outcome, _) => panic!("{calls:?}: {outcome:?}"),
        }
    }
}

fn reply(calls: &[(&str, &str, &str)]) -> ChatResponse {
    let calls = calls.iter().map(|(id, name, arguments)| ToolCall::new(*id, *name, *arguments));
    ChatResponse::new(AssistantMessage::default().with_tool_calls(calls))
}

#[tokio::test]
async fn an_id_that_is_a_tool_name_identifies_no_call() {
    let call = |a: u8| ("sum", "sum", if a == 1 { r#"{"a": 1, "b": 1}"# } else { r#"{"a": 2, "b": 1}"# });
    let script = || ScriptedModel::new().replies(reply(&[call(1)])).replies(reply(&[call(2)])).says("Done.");
    let answer = alike(|| agent(script())).await.unwrap();
    assert!(answer.tool_executions().iter().all(|one| one.output().is_some()));
}

#[tokio::test]
async fn a_repeated_id_refers_to_the_earlier_call() {
    let script = || {
        let first = ("call_9xT2", "sum", r#"{"a": 1, "b": 1}"#);
        ScriptedModel::new()
            .replies(reply(&[first]))
            .replies(reply(&[first, ("call_9xT2", "sum", r#"{"a": 5, "b": 5}"#)]))
            .replies(reply(&[("call_9xT2", "sum", r#"{"a": 5, "b": 5}"#)]))
            .says("Done.")
    };
    let answer = alike(|| agent(script())).await.unwrap();
    let actual: Vec<_> = answer
        .tool_executions()
        .iter()
        .map(|one| {
            (
                one.origin() == OutcomeOrigin::Recorded,
                one.outcome().map_or_else(ToString::to_string, ToString::to_string),
            )
        })
        .collect();
    let refused = "the call was not executed: an earlier call with other arguments has the same id; give each call a unique id";
    let expected = [(false, "2.0"), (true, "2.0"), (false, "10.0"), (false, refused)];
    assert_eq!(actual, expected.map(|(from_record, text)| (from_record, text.to_owned())));
}

static LOOKED: AtomicU32 = AtomicU32::new(0);

#[tool(pure)]
fn look(at: String) -> String {
    LOOKED.fetch_add(1, Ordering::SeqCst);
    at.to_uppercase()
}

#[tokio::test]
async fn reuses_the_output_of_a_pure_tool_for_an_equal_call() {
    let script = || {
        ScriptedModel::new()
            .calls("look", r#"{"at": "x"}"#)
            .calls("look", r#"{"at": "y"}"#)
            .calls("look", r#"{"at": "x"}"#)
            .says("Done.")
    };
    let answer = alike(|| Agent::builder(script()).tools(tools![look])).await.unwrap();
    let from_record: Vec<_> =
        answer.tool_executions().iter().map(|one| one.origin() == OutcomeOrigin::Recorded).collect();
    assert_eq!(from_record, [false, false, true]);
    assert_eq!(answer.tool_executions()[2].output().unwrap().to_string(), "X");
    assert_eq!(LOOKED.load(Ordering::SeqCst), 2 * 3);
}

#[tokio::test]
async fn whitespace_makes_no_other_arguments() {
    let script = || {
        ScriptedModel::new()
            .replies(reply(&[("call_9xT2", "sum", r#"{"a": 1, "b": 1}"#)]))
            .replies(reply(&[("call_9xT2", "sum", r#"{"a":1,"b":1}"#)]))
            .calls("sum", "{\"a\": 1,\n\"b\": 1}")
            .calls("sum", r#"{ "a": 1, "b": 1 }"#)
            .says("Done.")
    };
    let answer = alike(|| agent(script())).await.unwrap();
    let executions = answer.tool_executions().iter();
    let actual: Vec<_> = executions.map(|one| (one.origin(), one.outcome().is_ok())).collect();
    let expected = [
        (OutcomeOrigin::Executed, true),
        (OutcomeOrigin::Recorded, true),
        (OutcomeOrigin::Executed, true),
        (OutcomeOrigin::NotExecuted, false),
    ];
    assert_eq!(actual, expected);
}
