//! Tools that panic, hang, flood and fail.

use std::panic::panic_any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tests::support::sampling::is_exhaustive;
use tool_core::{Agent, AgentBuilder, ErrorPolicy, RunError, ToolErrorKind, ToolSet, tool, tools};

use super::{Outcome, Puppet, broken, call};

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
        (10_000_000, r#"{"bytes": 10000000}"#)
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

/// A run in whose first turn this tool is called, between two others.
fn agent(name: &'static str, arguments: &'static str) -> AgentBuilder {
    let model = Puppet::calling(move |turn| match turn {
        0 => vec![call("a", "look", "{}"), call("b", name, arguments), call("c", "look", "{}")],
        _ => vec![],
    });
    Agent::builder(model).tools(all_tools())
}

/// A run in whose first turn this tool is called alone. Of several calls, those that are made before one ends the run
/// depend on who drives it.
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
    let results: Vec<_> = answer.messages()[2..5].iter().map(|one| one.text().into_owned()).collect();
    assert_eq!((&*results[0], &*results[2]), ("seen", "seen"));
    assert_eq!(answer.text(), "That was all.");
    results[1].clone()
}

const SOON: Duration = Duration::from_millis(15);

#[tokio::test]
async fn a_tool_that_panics_hangs_or_fails_is_told_of_or_ends_the_run() {
    let stopped = "the tool was stopped, as it took longer than";
    let table = [
        ("panics", ToolErrorKind::Panicked, "the tool failed (reference b)"),
        ("panics_with_a_number", ToolErrorKind::Panicked, "the tool failed (reference b)"),
        ("panics_later", ToolErrorKind::Panicked, "the tool failed (reference b)"),
        ("hangs", ToolErrorKind::TimedOut, stopped),
        ("hangs_for_a_while", ToolErrorKind::TimedOut, stopped),
        ("fails", ToolErrorKind::Failed, "no"),
    ];
    for (name, kind, expected) in table {
        let told = text_of_call(&broken(|| agent(name, "{}").call_timeout(SOON)).await);
        assert!(told.starts_with(expected), "{name}: {told}");
        let build = || agent_of_one(name, "{}").call_timeout(SOON).on_error(kind, ErrorPolicy::EndRun);
        assert!(broken(build).await.unwrap_err().is_tool(), "{name}");
    }
}

#[tokio::test]
async fn a_tool_that_fails_every_time_is_called_as_often_as_it_may_be() {
    // A tool of its own, as the tests run side by side.
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
    let error = broken(for_ever).await.unwrap_err();
    assert!(error.is_repeat_limit());
    // In three ways, with two memories: three calls of two attempts each.
    assert_eq!(TRIED.load(Ordering::SeqCst), 6 * 3 * 2);
}

#[tokio::test]
async fn a_run_that_hangs_ends_when_its_time_is_over() {
    let error =
        broken(|| agent_of_one("hangs", "{}").max_time(Duration::from_millis(200))).await.unwrap_err();
    assert!(error.is_time_limit() && !error.is_resumable());
    assert!(error.messages().iter().any(|message| message.text().contains("interrupted")));
}

#[tokio::test]
async fn a_hundred_megabytes_are_cut_before_anybody_reads_them() {
    let build = || agent("floods", flood().1).max_output(1000);
    let told = text_of_call(&broken(build).await);
    assert!(told.len() < 1200, "{}", told.len());
    assert!(told.contains("left out"), "{told}");
}

#[tokio::test]
async fn more_than_a_run_may_read_ends_it() {
    let build = || agent("floods", r#"{"bytes": 3000000}"#).max_run_output_chars(1_000_000);
    let error: RunError = broken(build).await.unwrap_err();
    assert!(error.is_output_limit());
    assert_eq!(error.tool_executions().len(), 3);
}

/// Nobody said that it is too much.
#[tokio::test]
async fn a_hundred_megabytes_without_a_limit_are_kept_whole() {
    for memory in super::memories().await {
        let agent = agent("floods", flood().1);
        let agent = agent.memory(memory.clone()).context(super::conversation()).build().unwrap();
        let outcome = agent.ask("What now?").await;
        assert_eq!(text_of_call(&outcome).len(), flood().0);
        super::assert_sound(&outcome, &memory).await;
    }
}
