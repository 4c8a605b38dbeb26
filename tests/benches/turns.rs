//! What the turns of a run cost: an agent with twenty tools that calls one per turn, its history growing to two hundred
//! calls, against the loop written by hand with reqwest and serde.
//! `cargo bench -p tests --bench turns` prints the ratios, and fails when one is over its bound.
//!
//! The endpoint is on this machine, answers at once, and has a thread of its own. What counts is the processor's time of
//! the thread that asks, the kernel's work for it included. Both run in turn, and the
//! median of the ratios is what counts.

mod loops;

use std::time::Duration;

use loops::{QUESTION, by_hand, clock, endpoint};

const ROUNDS: usize = 41;
const CALLS: u32 = 200;

/// The bound on our time, as a share of the time of what is written by hand; and on its growth: what a turn costs more at
/// the end, where all that was said is sent again, than at the beginning.
const BOUND: f64 = 1.2;

/// What a turn of a run takes, in microseconds: of all turns, of the first fifty, and of the last fifty.
struct Times {
    per_turn: f64,
    per_early_turn: f64,
    per_late_turn: f64,
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
        compare("growth", |times| times.per_late_turn - times.per_early_turn, BOUND),
    ];
    if is_within.iter().all(|is| *is) { Ok(()) } else { Err("a figure is over its bound".into()) }
}

fn times<T>(run: impl Fn() -> T) -> Times {
    let start = clock::of_this_thread();
    drop(run());
    let end = clock::of_this_thread();
    let [first, second, last] = clock::NOTED;
    let [at_first, at_second, at_last] = clock::notes();
    let micros = |time: Duration, turns: u32| time.as_secs_f64() * 1e6 / f64::from(turns);
    Times {
        per_turn: micros(end - start, CALLS + 1),
        per_early_turn: micros(at_first - start, first),
        per_late_turn: micros(at_last - at_second, last - second),
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
