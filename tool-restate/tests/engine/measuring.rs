//! What a turn costs: `./run measuring -- --nocapture` prints it. No bounds, because machines differ.

use std::time::Instant;

use tool_core::testing::ScriptedModel;
use tool_core::{Agent, tool, tools};
use tool_restate::Worker;

use crate::support::{agent, answer, serve, sql, unique};

#[tool("Sums two numbers")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

fn clerk(name: &str, turns: u32) -> Agent {
    let model = (0..turns)
        .fold(ScriptedModel::new(), |model, turn| model.calls("sum", format!(r#"{{"a": {turn}, "b": 40}}"#)));
    let clerk = Agent::builder(model.says("Done.")).name(name).tools(tools![sum]).max_turns(turns + 1);
    clerk.build().unwrap()
}

/// Returns the milliseconds per turn, and the bytes and the entries of the run's journal.
async fn measure(turns: u32, is_local: bool) -> (f64, u64, u64) {
    let name = unique("clerk");
    let worker = Worker::new().agent(clerk(&name, turns));
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

/// The journal has what happened, and never the whole state.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_journal_grows_with_the_turns_and_not_with_their_square() {
    for is_local in [false, true] {
        let mut sizes = Vec::new();
        for turns in [10, 40] {
            let (time, bytes, entries) = measure(turns, is_local).await;
            println!("local {is_local}, {turns} turns: {time:.1} ms, {bytes} bytes, {entries} entries");
            sizes.push(entries);
            sizes.push(bytes);
        }
        // Four times the turns; the last entry contains all messages once.
        assert!(sizes[2] <= 4 * sizes[0] + 8 && sizes[3] <= 5 * sizes[1], "{sizes:?}");
    }
}
