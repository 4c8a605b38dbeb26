//! Throughput of many concurrent runs with one agent, one endpoint and a runtime with two worker threads, compared with a
//! hand-written loop. `cargo bench -p tests --bench throughput` prints the turns per second, and fails if ours are too few.
//!
//! The endpoint has its own thread and does the same work for both. Both run alternately, and the median of the ratios
//! is compared with the bound.

mod loops;

use std::time::Instant;

use futures_util::future::try_join_all;
use loops::{QUESTION, by_hand, endpoint};

const ROUNDS: usize = 61;
const RUNS: u32 = 64;

/// The number of calls of each run, one per turn.
const CALLS: u32 = 20;

/// The bound on our turns per second, relative to the hand-written loop.
const BOUND: f64 = 0.9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base_url = endpoint::start(CALLS)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let agent = loops::agent(&base_url, CALLS)?;
    let by_hand = by_hand::Agent::new(&base_url).map_err(|error| error.to_string())?;
    let ours = || {
        let runs = (0..RUNS).map(|_| runtime.spawn(agent.ask(QUESTION).into_future()));
        let answers = runtime.block_on(try_join_all(runs)).expect("no run panics");
        answers.into_iter().map(|answer| answer.expect("the endpoint answers").tool_executions().len()).sum()
    };
    let by_hand = || {
        let runs = (0..RUNS).map(|_| {
            let agent = by_hand.clone();
            runtime.spawn(async move { agent.ask().await })
        });
        let answers = runtime.block_on(try_join_all(runs)).expect("no run panics");
        answers.into_iter().map(|answer| answer.expect("the endpoint answers").1).sum()
    };
    // The first round opens the connections.
    time(ours);
    time(by_hand);

    let turns = f64::from(RUNS * (CALLS + 1));
    let rounds: Vec<_> = (0..ROUNDS).map(|_| [time(ours), time(by_hand)].map(|time| turns / time)).collect();
    let [ours, by_hand] = [0, 1].map(|side| median(rounds.iter().map(|round| round[side])));
    // The ratio is taken per round, because the load of the machine changes between rounds.
    let ratio = median(rounds.iter().map(|[ours, by_hand]| ours / by_hand));
    println!("{RUNS} runs at once, median of {ROUNDS} rounds, turns per second: ours, by hand, ratio, bound");
    println!("{ours:>7.0} {by_hand:>7.0}  {ratio:.3}  {BOUND}");
    if ratio >= BOUND { Ok(()) } else { Err("the turns per second are below the bound".into()) }
}

/// Returns the duration of a round in seconds, and checks that the runs executed all calls.
fn time(round: impl Fn() -> usize) -> f64 {
    let clock = Instant::now();
    let calls = round();
    let time = clock.elapsed();
    assert_eq!(calls, (RUNS * CALLS) as usize);
    time.as_secs_f64()
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
