//! The cost of runs: `./run measuring --nocapture` prints it. No bounds, because machines differ.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::{StreamExt, stream};
use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse};
use tool_core::provider::ModelFuture;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ToolCall, tool, tools};
use tool_restate::Worker;

use crate::support::{agent, answer, serve, sql, unique, waiting_calls};

#[tool("Sums two numbers")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

fn clerk(name: &str, turns: u32, is_inside: bool) -> Agent {
    let model = (0..turns)
        .fold(ScriptedModel::new(), |model, turn| model.calls("sum", format!(r#"{{"a": {turn}, "b": 40}}"#)));
    let clerk = Agent::builder(model.says("Done.")).tools(tools![sum]).limits(|l| l.max_turns(turns + 1));
    if !is_inside {
        return clerk.name(name).build().unwrap();
    }
    let clerk = clerk.build().unwrap().as_tool("clerk", "Counts");
    let model = ScriptedModel::new().calls("clerk", r#"{"question": "Count"}"#).says("Done.");
    Agent::builder(model).name(name).tools(clerk).build().unwrap()
}

/// Returns the milliseconds per turn, and the bytes and the entries of the run's journal.
async fn measure(turns: u32, is_local: bool, is_inside: bool) -> (f64, u64, u64) {
    let name = unique("clerk");
    let worker = Worker::new().agent(clerk(&name, turns, is_inside));
    let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
    let started = Instant::now();
    let run = agent(&name).ask("Count").send().await.unwrap();
    assert_eq!(answer(&run).await.text(), "Done.");
    let time = started.elapsed().as_secs_f64() * 1000.0 / f64::from(turns + 1);
    let query = format!(
        "SELECT CAST(SUM(raw_length) AS BIGINT) AS bytes, CAST(COUNT(*) AS BIGINT) AS entries FROM sys_journal \
         WHERE id IN (SELECT id FROM sys_invocation WHERE target_service_name = '{name}' AND target_handler_name = 'run')"
    );
    let row = sql(&query).await;
    (time, row["bytes"].as_u64().unwrap_or_default(), row["entries"].as_u64().unwrap_or_default())
}

/// Returns the milliseconds per turn of the same run without the engine.
async fn measure_in_process(turns: u32) -> f64 {
    let clerk = clerk("clerk", turns, false);
    let started = Instant::now();
    assert_eq!(clerk.ask("Count").await.unwrap().text(), "Done.");
    started.elapsed().as_secs_f64() * 1000.0 / f64::from(turns + 1)
}

/// The journal has what happened, and never the whole state.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_journal_grows_with_the_turns_and_not_with_their_square() {
    println!("in one process, 40 turns: {:.3} ms", measure_in_process(40).await);
    for (is_local, is_inside) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut sizes = Vec::new();
        for turns in [10, 40] {
            let (time, bytes, entries) = measure(turns, is_local, is_inside).await;
            println!(
                "local {is_local}, inside {is_inside}, {turns} turns: {time:.1} ms, {bytes} bytes, {entries} entries"
            );
            sizes.push(entries);
            sizes.push(bytes);
        }
        // Four times the turns; the last entry contains all messages once.
        assert!(sizes[2] <= 4 * sizes[0] + 8 && sizes[3] <= 5 * sizes[1], "{sizes:?}");
    }
}

/// Calls the tool in each turn but the last, and notes when each turn begins.
struct Timed(Arc<Mutex<Vec<Instant>>>);

impl ChatModel for Timed {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let mut began = self.0.lock().unwrap();
        began.push(Instant::now());
        let call = ToolCall::new("", "echo", format!(r#"{{"text": "{:0400}"}}"#, began.len()));
        let reply = match began.len() {
            1..=210 => AssistantMessage::default().with_tool_calls([call]),
            _ => AssistantMessage::text("Done."),
        };
        Box::pin(ready(Ok(ChatResponse::new(reply))))
    }
}

#[tool("Repeats a text")]
fn echo(text: String) -> String {
    text
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_turn_costs_the_same_at_any_length() {
    for is_local in [false, true] {
        let (name, began) = (unique("clerk"), Arc::default());
        let clerk = Agent::builder(Timed(Arc::clone(&began))).name(&*name).tools(tools![echo]);
        let worker = Worker::new().agent(clerk.limits(|l| l.max_turns(211)).build().unwrap());
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        assert_eq!(answer(&agent(&name).ask("Go").send().await.unwrap()).await.text(), "Done.");
        let began = began.lock().unwrap();
        let median = |first: usize| {
            let mut took: Vec<_> = began[first..first + 20].windows(2).map(|two| two[1] - two[0]).collect();
            took.sort_unstable();
            took[took.len() / 2]
        };
        let (at_10, at_200) = (median(5), median(190));
        let ratio = at_200.as_secs_f64() / at_10.as_secs_f64();
        println!("local {is_local}: a turn at 10 {at_10:?}, at 200 {at_200:?}: {ratio:.2} times");
    }
}

#[tool("Needs a person", needs_approval)]
fn ask_person() {}

/// Calls the tool once, whatever the question.
struct Asking;

impl ChatModel for Asking {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let reply = AssistantMessage::default().with_tool_calls([ToolCall::new("", "ask_person", "{}")]);
        Box::pin(ready(Ok(ChatResponse::new(reply))))
    }
}

/// Returns the resident memory of a process in MiB.
fn memory(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

/// `WAITING_RUNS` is their number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a Restate server"]
async fn waiting_runs_need_no_worker() {
    let count: usize = std::env::var("WAITING_RUNS").map_or(50, |count| count.parse().unwrap());
    let server = std::env::var("RESTATE_PID").unwrap_or_default();
    let name = unique("clerk");
    let clerk = Agent::builder(Asking).name(&*name).tools(tools![ask_person]).build().unwrap();
    let worker = serve(Worker::new().agent(clerk)).await;
    let before = (memory("self"), memory(&server));
    let clerk = agent(&name);
    let start = |number: usize| {
        let question = clerk.ask("Go").key(number.to_string());
        async move {
            let run = question.send().await.unwrap();
            waiting_calls(&run).await;
            run
        }
    };
    let started = Instant::now();
    let runs: Vec<_> = stream::iter((0..count).map(start)).buffer_unordered(32).collect().await;
    let after = (memory("self"), memory(&server));
    println!(
        "{count} runs wait after {:?}; the process of worker and clients has {} MiB more, the server {} MiB more",
        started.elapsed(),
        after.0.saturating_sub(before.0),
        after.1.saturating_sub(before.1)
    );
    // They wait without their worker too.
    drop(worker);
    let query = format!(
        "SELECT CAST(COUNT(*) AS BIGINT) AS waiting FROM sys_invocation \
         WHERE target_service_name = '{name}' AND target_handler_name = 'run' AND status <> 'completed'"
    );
    assert_eq!(sql(&query).await["waiting"], runs.len());
}
