//! Cost of a run's turns: an agent with twenty tools calls one per turn, and its history grows to two hundred calls. It is
//! compared with a hand-written loop with reqwest and serde.
//! `cargo bench -p tests --bench turns` prints the ratios, and fails if one exceeds its bound.
//!
//! The endpoint is on this machine, answers immediately, and has its own thread. The CPU time of the client's thread is
//! measured, including the kernel. Both run alternately, and the median of the ratios is compared with the bound.

mod loops;

use std::time::Duration;

use loops::{QUESTION, by_hand, clock, endpoint};

const ROUNDS: usize = 41;
const CALLS: u32 = 200;

/// The bound on our time, as a ratio to the hand-written loop, and on its growth: the extra cost of a turn at the end, where
/// the whole history is sent, compared with the beginning.
const BOUND: f64 = 1.2;

/// The bound on the cost of a turn after two hundred others, as a multiple of one after ten: a turn should cost only its new
/// messages and a copy of the rest.
const LAST_TURN_BOUND: f64 = 1.25;

/// The duration of a turn in microseconds: averages over all turns, the first fifty, the last fifty, those around the tenth,
/// and the last ones.
struct Times {
    per_turn: f64,
    per_early_turn: f64,
    per_late_turn: f64,
    tenth_turn: f64,
    last_turn: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base_url = endpoint::start(CALLS)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let agent = loops::agent(&base_url, CALLS)?;
    let by_hand = by_hand::Agent::new(&base_url).map_err(|error| error.to_string())?;
    let ours = || {
        let answer = runtime.block_on(agent.ask(QUESTION).into_future()).expect("the endpoint answers");
        (answer.text().to_owned(), answer.tool_executions().len(), answer.usage().total_tokens)
    };
    let by_hand = || runtime.block_on(by_hand.ask()).expect("the endpoint answers");
    let expected = (endpoint::ANSWER.to_owned(), CALLS as usize, endpoint::TOKENS * u64::from(CALLS + 1));
    assert_eq!(ours(), expected);
    assert_eq!(by_hand(), expected);

    let rounds: Vec<_> = (0..ROUNDS).map(|_| [times(ours), times(by_hand)]).collect();
    println!("median of {ROUNDS} runs, microseconds per turn: ours, by hand, ratio, bound");
    let compare = |title: &str, micros: fn(&Times) -> f64, bound: f64| {
        let [ours, by_hand] = [0, 1].map(|side| median(rounds.iter().map(|round| micros(&round[side]))));
        let ratio = median(rounds.iter().map(|[ours, by_hand]| micros(ours) / micros(by_hand)));
        println!("{title:<16} {ours:>7.1} {by_hand:>7.1}  {ratio:.3}  {bound}");
        ratio <= bound
    };
    let is_within = [
        compare("all turns", |times| times.per_turn, BOUND),
        compare("the first fifty", |times| times.per_early_turn, BOUND),
        compare("the last fifty", |times| times.per_late_turn, BOUND),
        compare("about the 10th", |times| times.tenth_turn, BOUND),
        compare("about the 200th", |times| times.last_turn, BOUND),
        compare("growth", |times| times.per_late_turn - times.per_early_turn, BOUND),
    ];
    let growth =
        |side: usize| median(rounds.iter().map(|round| round[side].last_turn / round[side].tenth_turn));
    let [ours, by_hand] = [0, 1].map(growth);
    println!(
        "the 200th turn, as a multiple of the 10th: ours {ours:.2}, by hand {by_hand:.2}; bound {LAST_TURN_BOUND}"
    );
    let is_flat = ours <= LAST_TURN_BOUND;
    if is_flat && is_within.iter().all(|is| *is) { Ok(()) } else { Err("a figure exceeds its bound".into()) }
}

fn times<T>(run: impl Fn() -> T) -> Times {
    clock::start_recording();
    let start = clock::thread_cpu_time();
    drop(run());
    let end = clock::thread_cpu_time();
    let recorded = clock::recorded_times();
    let between = |from: usize, to: usize| {
        micros(recorded[to] - recorded[from], clock::RECORDED_CALLS[to] - clock::RECORDED_CALLS[from])
    };
    Times {
        per_turn: micros(end - start, CALLS + 1),
        per_early_turn: micros(recorded[2] - start, clock::RECORDED_CALLS[2]),
        per_late_turn: between(3, 5),
        tenth_turn: between(0, 1),
        last_turn: between(4, 5),
    }
}

fn micros(time: Duration, turns: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(turns)
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
