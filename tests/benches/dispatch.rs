//! What a call costs from the argument text to the result text: through `ToolSet::call`, against a `match` on the name
//! written by hand, with serde's derives for the arguments, `serde_json::from_str` and `serde_json::to_string`.
//! `cargo bench -p tests --bench dispatch` prints the ratios, and fails when one is over its bound.
//!
//! Both are `async` functions that are polled once, where they stand. By hand a synchronous function is called as it is, and
//! the future of an asynchronous one is boxed, as it is in a tool. Both are timed in turn, in many short rounds, and the medians
//! are what counts. Allocations are counted by the allocator that serves both.

use std::fmt::Display;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tool_core::{ToolCall, ToolContext, ToolSet, tool, tools};

const ROUNDS: usize = 301;
const CALLS: u32 = 1_000;

/// The bounds on the time of ours, as a share of the time of what is written by hand.
///
/// To look a tool up that is known at run time only, and to keep its panics from the caller, takes some 25 ns. Beside that of
/// a call which does next to nothing, it is a share that counts.
const BOUND: f64 = 1.15;
const BOUND_OF_NOTHING: f64 = 1.8;

/// How many allocations ours may make beside those of what is written by hand.
const MORE_ALLOCATIONS: u64 = 2;

/// Sums two integers.
#[tool]
fn sum(a: i64, b: i64) -> i64 {
    a + b
}

/// Sums two integers elsewhere.
#[tool]
async fn sum_elsewhere(a: i64, b: i64) -> i64 {
    std::future::ready(a + b).await
}

/// Books a trip.
#[tool]
fn book(trip: Trip) -> Booking {
    trip.book()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Trip {
    traveller: String,
    stops: Vec<Stop>,
    class: Class,
    budget: Option<f64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Stop {
    city: String,
    nights: u8,
}

#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
enum Class {
    First,
    Second,
}

#[derive(Serialize)]
struct Booking {
    traveller: String,
    cities: Vec<String>,
    nights: u32,
    class: Class,
    is_within_budget: Option<bool>,
}

impl Trip {
    fn book(self) -> Booking {
        let nights = self.stops.iter().map(|stop| u32::from(stop.nights)).sum();
        Booking {
            traveller: self.traveller,
            cities: self.stops.into_iter().map(|stop| stop.city).collect(),
            nights,
            class: self.class,
            is_within_budget: self.budget.map(|budget| f64::from(nights) * 80.0 <= budget),
        }
    }
}

/// The arguments of each function, and what is called by which name.
mod by_hand {
    use futures_util::future::BoxFuture;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SumArguments {
        a: i64,
        b: i64,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct BookArguments {
        trip: Trip,
    }

    pub(super) async fn call(call: &ToolCall) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        match &*call.name {
            "sum" => {
                let SumArguments { a, b } = serde_json::from_str(&call.arguments)?;
                Ok(serde_json::to_string(&super::sum(a, b))?)
            }
            "sum_elsewhere" => {
                let SumArguments { a, b } = serde_json::from_str(&call.arguments)?;
                let future: BoxFuture<'_, i64> = Box::pin(super::sum_elsewhere(a, b));
                Ok(serde_json::to_string(&future.await)?)
            }
            "book" => {
                let BookArguments { trip } = serde_json::from_str(&call.arguments)?;
                Ok(serde_json::to_string(&super::book(trip))?)
            }
            other => Err(format!("there is no tool {other}").into()),
        }
    }
}

fn main() -> Result<(), String> {
    let (set, context) = (tools![sum, sum_elsewhere, book], ToolContext::new());
    let trip = r#"{"trip": {"traveller": "Ada Lovelace", "class": "Second", "budget": 1250.5, "stops": [{"city": "Rome", "nights": 3}, {"city": "Florence", "nights": 2}, {"city": "Reggio nell'Emilia", "nights": 1}]}}"#;
    let table = [
        ("two integers", "sum", r#"{"a": 1234, "b": 5678}"#, BOUND_OF_NOTHING),
        ("two integers, async", "sum_elsewhere", r#"{"a": 1234, "b": 5678}"#, BOUND_OF_NOTHING),
        ("nested", "book", trip, BOUND),
    ];
    println!("median of {ROUNDS} rounds: ToolSet::call, by hand, ratio, bound; allocations of each, bound");
    let mut is_within = true;
    for (title, name, arguments, bound) in table {
        is_within &= compare(title, &ToolCall::new("1", name, arguments), &set, &context, bound);
    }
    if is_within { Ok(()) } else { Err("a figure is over its bound".into()) }
}

/// Makes the call both ways in turn; says whether ours is within its bounds.
fn compare(title: &str, call: &ToolCall, set: &ToolSet, context: &ToolContext, bound: f64) -> bool {
    let ours = || poll(pin!(set.call(black_box(call), black_box(context))));
    let by_hand = || poll(pin!(by_hand::call(black_box(call))));
    assert_eq!(text_of(ours()), text_of(by_hand()), "both do the same");

    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(time(|| drop(black_box(ours()))));
        times[1].push(time(|| drop(black_box(by_hand()))));
    }
    let [our_time, hand_time] = times.map(median);
    let ratio = our_time.as_secs_f64() / hand_time.as_secs_f64();
    let count = |call: &dyn Fn()| allocation_counter::measure(call).count_total;
    let (our_count, hand_count) = (count(&|| drop(ours())), count(&|| drop(by_hand())));
    let most = hand_count + MORE_ALLOCATIONS;
    let (our_time, hand_time) = (our_time / CALLS, hand_time / CALLS);
    println!(
        "{title:<22} {our_time:>7.0?} {hand_time:>7.0?}  {ratio:.3}  {bound}    {our_count} {hand_count}  {most}"
    );
    ratio <= bound && our_count <= most
}

/// What a future gives that is over when it is polled, where it stands.
fn poll<F: Future>(future: Pin<&mut F>) -> F::Output {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("no tool here waits for anything"),
    }
}

/// The text that the model gets to read.
fn text_of<T: Display, E: Display>(outcome: Result<T, E>) -> String {
    match outcome {
        Ok(output) => output.to_string(),
        Err(error) => error.to_string(),
    }
}

/// How long a round of calls takes.
fn time(mut call: impl FnMut()) -> Duration {
    let clock = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    clock.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
