//! Tools that panic, hang, fail or return huge outputs.

use std::panic::panic_any;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tests::support::pass;
use tests::support::sampling::is_exhaustive;
use tokio::sync::Barrier;
use tool_core::agent::AgentBuilder;
use tool_core::run::{ErrorPolicy, StopReason};
use tool_core::tool::ToolErrorKind;
use tool_core::{Agent, Answer, RunError, RunErrorKind, ToolSet, tool, tools};

use super::{Outcome, Puppet, call, in_all_ways};

#[tool]
fn panics() -> u32 {
    panic!("secret")
}

#[tool]
fn panics_with_a_number() -> u32 {
    panic_any(7)
}

#[tool]
async fn panics_later() -> u32 {
    tokio::task::yield_now().await;
    panic!("secret")
}

#[tool]
async fn hangs() {
    std::future::pending().await
}

#[tool(timeout = "10ms")]
async fn hangs_for_a_while() {
    std::future::pending().await
}

#[tool(attempts = 2)]
fn fails() -> Result<u32, String> {
    Err("no".into())
}

/// The length of a flood and the arguments that ask for it: a hundred megabytes, or ten in a sample.
fn flood() -> (usize, &'static str) {
    if is_exhaustive() {
        (100_000_000, r#"{"bytes": 100000000}"#)
    } else {
        (1_000_000, r#"{"bytes": 1000000}"#)
    }
}

#[tool]
fn floods(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[tool]
fn look() -> &'static str {
    "seen"
}

/// Returns an agent whose first turn calls this tool between two others.
fn agent(name: &'static str, arguments: &'static str) -> AgentBuilder {
    let model = Puppet::calling(move |turn| match turn {
        0 => vec![call("a", "look", "{}"), call("b", name, arguments), call("c", "look", "{}")],
        _ => vec![],
    });
    Agent::builder(model).tools(all_tools())
}

/// Returns an agent whose first turn calls only this tool. With several calls, those executed before one of them ends
/// the run depend on the way of driving it.
fn agent_of_one(name: &'static str, arguments: &'static str) -> AgentBuilder {
    let model = Puppet::calling(move |turn| match turn {
        0 => vec![call("b", name, arguments)],
        _ => vec![],
    });
    Agent::builder(model).tools(all_tools())
}

fn all_tools() -> ToolSet {
    tools![panics, panics_with_a_number, panics_later, hangs, hangs_for_a_while, fails, floods, look]
}

fn text_of_call(outcome: &Outcome) -> String {
    let answer = outcome.as_ref().unwrap();
    let results: Vec<_> = answer.new_messages()[2..5].iter().map(|one| one.text().into_owned()).collect();
    assert_eq!((&*results[0], &*results[2]), ("seen", "seen"));
    assert_eq!(answer.text(), "That was all.");
    results[1].clone()
}

#[tokio::test]
async fn a_tool_that_panics_hangs_or_fails_is_reported_or_ends_the_run() {
    let table = [
        ("panics", ToolErrorKind::Panicked, "the tool failed (reference b)"),
        ("panics_with_a_number", ToolErrorKind::Panicked, "the tool failed (reference b)"),
        ("panics_later", ToolErrorKind::Panicked, "the tool failed (reference b)"),
        ("hangs", ToolErrorKind::TimedOut, "the tool timed out after 15ms"),
        ("hangs_for_a_while", ToolErrorKind::TimedOut, "the tool timed out after 10ms"),
        ("fails", ToolErrorKind::Failed, "no"),
    ];
    for (name, kind, expected) in table {
        let limit = if name == "hangs" { Duration::from_millis(15) } else { Duration::from_secs(60) };
        let actual = text_of_call(&in_all_ways(|| agent(name, "{}").call_timeout(limit)).await);
        assert_eq!(actual, expected, "{name}");
        let build = || agent_of_one(name, "{}").call_timeout(limit).error_policy(kind, ErrorPolicy::EndRun);
        assert!(
            matches!(
                in_all_ways(build).await.unwrap_err().kind(),
                RunErrorKind::Stopped(StopReason::ToolFailed { .. })
            ),
            "{name}"
        );
    }
}

#[tokio::test]
async fn calls_a_failing_tool_up_to_its_limits() {
    // This tool is separate because tests run concurrently.
    static TRIED: AtomicU32 = AtomicU32::new(0);
    #[tool(attempts = 2)]
    fn fails_and_counts() -> Result<u32, String> {
        TRIED.fetch_add(1, Ordering::SeqCst);
        Err("no".into())
    }
    let for_ever = || {
        let model = Puppet::calling(|turn| vec![call(&format!("id-x{turn}y"), "fails_and_counts", "{}")]);
        Agent::builder(model).tools(tools![fails_and_counts])
    };
    let error = in_all_ways(for_ever).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::RepeatedCall(_))));
    // Three ways, two memories, and two attempts for each of three calls.
    assert_eq!(TRIED.load(Ordering::SeqCst), 6 * 3 * 2);
}

#[tokio::test]
async fn the_time_limit_ends_a_hanging_run() {
    const LIMIT: Duration = Duration::from_secs(60);
    /// The runs of [`in_all_ways`].
    static HANGING: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(6));
    /// When it hangs in all runs, the time is up.
    #[tool]
    async fn hangs_everywhere() {
        if HANGING.wait().await.is_leader() {
            tokio::spawn(pass(LIMIT));
        }
        std::future::pending().await
    }
    let model = || Puppet::calling(|_| vec![call("b", "hangs_everywhere", "{}")]);
    let build = || Agent::builder(model()).tools(tools![hangs_everywhere]).limits(|l| l.max_time(LIMIT));
    let error = in_all_ways(build).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))) && !error.is_resumable());
    assert!(error.new_messages().iter().any(|message| message.text().contains("interrupted")));
}

#[tokio::test]
async fn truncates_a_huge_output() {
    let build = || agent("floods", flood().1).max_output_chars(1000);
    let actual = text_of_call(&in_all_ways(build).await);
    assert!(actual.len() < 1200, "{}", actual.len());
    assert!(actual.contains("left out"), "{actual}");
}

#[tokio::test]
async fn the_output_limit_of_a_run_ends_it() {
    let build = || agent("floods", r#"{"bytes": 300000}"#).limits(|l| l.max_total_output_chars(100_000));
    let error: RunError = in_all_ways(build).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTotalOutputChars(_))));
    assert_eq!(error.tool_executions().len(), 3);
}

/// No limit is set.
#[tokio::test]
async fn stores_a_huge_output_whole_without_a_limit() {
    for memory in super::memories().await {
        let agent = agent("floods", flood().1);
        let agent = agent.memory(memory.clone()).context(super::conversation()).build().unwrap();
        let outcome = agent.ask("What now?").await;
        assert_eq!(text_of_call(&outcome).len(), flood().0);
        super::assert_sound(&outcome, &memory).await;
    }
}

/// Panics when it is dropped, unless it is dropped because of a panic.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("secret")
        }
    }
}

#[tokio::test]
async fn a_panic_while_a_call_is_dropped_affects_nothing_else() {
    #[tool]
    async fn waits() {
        let _bomb = Bomb;
        std::future::pending().await
    }
    #[tool]
    fn panics_with_a_bomb() {
        panic_any(Bomb)
    }
    let agent = |name: &'static str| {
        let model = Puppet::calling(move |turn| if turn == 0 { vec![call("a", name, "{}")] } else { vec![] });
        Agent::builder(model).tools(tools![waits, panics_with_a_bomb])
    };
    let kind = |answer: &Answer| answer.tool_executions()[0].outcome().unwrap_err().kind();
    let late = agent("waits").call_timeout(Duration::from_millis(1)).build().unwrap();
    assert_eq!(kind(&late.ask("Go").await.unwrap()), ToolErrorKind::TimedOut);
    let panicking = agent("panics_with_a_bomb").build().unwrap();
    assert_eq!(kind(&panicking.ask("Go").await.unwrap()), ToolErrorKind::Panicked);
    let stopped = agent("waits").limits(|l| l.max_time(Duration::from_millis(1))).build().unwrap();
    let error = stopped.ask("Go").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTime(_))), "{error}");
}
