//! Cost of a call from the argument text to the result text: `ToolSet::call` compared with a hand-written `match` on the
//! name, with serde's derives for the arguments, `serde_json::from_str` and `serde_json::to_string`.
//! `cargo bench -p tests --bench dispatch` prints the ratios, and fails if one exceeds its bound.
//!
//! Both are `async` functions that are polled once in place. The hand-written code calls synchronous functions directly and
//! boxes the futures of asynchronous ones, as tools do. Both are timed alternately in many short rounds, and the medians are
//! compared. A counting allocator serves both.

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

/// The bounds on our time, as ratios to the hand-written code.
///
/// An object is split into its arguments before each of them is read by its type, and checked for duplicate members. Looking up a tool
/// at run time and catching its panics takes some 25 ns. Both are a considerable part of a call that does almost nothing.
const BOUND: f64 = 2.5;
const BOUND_OF_TRIVIAL_CALLS: f64 = 3.5;

/// The bound on the time to explain a call with three wrong arguments.
const EXPLANATION: Duration = Duration::from_micros(20);

/// The allocations that a tool may need beyond the hand-written code: the list of its arguments, and the names of
/// nested objects.
const EXTRA_ALLOCATIONS: u64 = 4;

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

// Without `deny_unknown_fields`, as users write types.
#[derive(Deserialize, JsonSchema)]
struct Trip {
    traveller: String,
    stops: Vec<Stop>,
    class: Class,
    budget: Option<f64>,
}

#[derive(Deserialize, JsonSchema)]
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

/// The hand-written dispatch: the arguments of each function and a `match` on its name.
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
        ("two integers", "sum", r#"{"a": 1234, "b": 5678}"#, BOUND_OF_TRIVIAL_CALLS),
        ("two integers, async", "sum_elsewhere", r#"{"a": 1234, "b": 5678}"#, BOUND_OF_TRIVIAL_CALLS),
        ("nested", "book", trip, BOUND),
    ];
    println!("median of {ROUNDS} rounds: ToolSet::call, by hand, ratio, bound; allocations of each, bound");
    let mut is_within = true;
    for (title, name, arguments, bound) in table {
        is_within &= compare(title, &ToolCall::new("1", name, arguments), &set, &context, bound);
    }
    is_within &= explain(&set, &context);
    if is_within { Ok(()) } else { Err("a figure exceeds its bound".into()) }
}

/// Executes the call both ways alternately and returns `true` if ours is within its bounds.
fn compare(title: &str, call: &ToolCall, set: &ToolSet, context: &ToolContext, bound: f64) -> bool {
    let ours = || poll(pin!(set.call(black_box(call), black_box(context))));
    let by_hand = || poll(pin!(by_hand::call(black_box(call))));
    assert_eq!(text_for_model(ours()), text_for_model(by_hand()), "both return the same");

    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(time(|| drop(black_box(ours()))));
        times[1].push(time(|| drop(black_box(by_hand()))));
    }
    let [our_time, hand_time] = times.map(median);
    let ratio = our_time.as_secs_f64() / hand_time.as_secs_f64();
    let count = |call: &dyn Fn()| allocation_counter::measure(call).count_total;
    let (our_count, hand_count) = (count(&|| drop(ours())), count(&|| drop(by_hand())));
    let most = hand_count + EXTRA_ALLOCATIONS;
    let (our_time, hand_time) = (our_time / CALLS, hand_time / CALLS);
    println!(
        "{title:<22} {our_time:>7.0?} {hand_time:>7.0?}  {ratio:.3}  {bound}    {our_count} {hand_count}  {most}"
    );
    ratio <= bound && our_count <= most
}

/// Explains a call with three wrong arguments, and returns `true` if that takes no longer than its bound.
fn explain(set: &ToolSet, context: &ToolContext) -> bool {
    let trip = r#"{"trip": {"traveller": {}, "class": "Third", "stops": [{"city": "Rome", "nights": 300}]}}"#;
    let call = ToolCall::new("1", "book", trip);
    let refused = || poll(pin!(set.call(black_box(&call), black_box(context)))).expect_err("it is wrong");
    assert_eq!(refused().to_string().matches("expected").count(), 3, "{}", refused());
    let times = (0..ROUNDS).map(|_| time(|| drop(black_box(refused())))).collect();
    let time = median(times) / CALLS;
    println!("three wrong arguments explained in {time:.1?}, bound {EXPLANATION:.0?}");
    time <= EXPLANATION
}

/// Returns the output of a future that is ready when it is first polled.
fn poll<F: Future>(future: Pin<&mut F>) -> F::Output {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("no tool here suspends"),
    }
}

/// Returns the text that the model reads.
fn text_for_model<T: Display, E: Display>(outcome: Result<T, E>) -> String {
    match outcome {
        Ok(output) => output.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Returns the duration of a round of calls.
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
