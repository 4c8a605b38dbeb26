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

/// The bound on what a turn costs with two hundred behind it, as a multiple of one with ten: a turn should cost its new
/// messages, and a copy of the rest.
const BOUND_ON_THE_LAST: f64 = 1.25;

/// What a turn of a run takes, in microseconds: of all turns, of the first fifty, and of the last fifty; about the tenth,
/// and at the end.
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
        "the 200th turn, as a multiple of the 10th: ours {ours:.2}, by hand {by_hand:.2}; bound {BOUND_ON_THE_LAST}"
    );
    let is_flat = ours <= BOUND_ON_THE_LAST;
    if is_flat && is_within.iter().all(|is| *is) { Ok(()) } else { Err("a figure is over its bound".into()) }
}

fn times<T>(run: impl Fn() -> T) -> Times {
    let start = clock::of_this_thread();
    drop(run());
    let end = clock::of_this_thread();
    let notes = clock::notes();
    let between =
        |from: usize, to: usize| micros(notes[to] - notes[from], clock::NOTED[to] - clock::NOTED[from]);
    Times {
        per_turn: micros(end - start, CALLS + 1),
        per_early_turn: micros(notes[2] - start, clock::NOTED[2]),
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
