//! Memory of a run that waits for the model, awaited and streamed.
//! `cargo bench -p tests --bench waiting` prints the bytes per run for ten thousand runs of one agent, and fails if they
//! exceed the bound.
//!
//! The model never answers and holds nothing for a request, so only the memory of `tool-core` is counted. It includes the
//! instructions and the question, as every run has its own messages.

use std::future::{IntoFuture, pending};
use std::hint::black_box;
use std::task::{Context, Poll, Waker};

use futures_util::{FutureExt, StreamExt, stream};
use tool_core::model::{ChatRequest, ChatStream};
use tool_core::provider::ModelFuture;
use tool_core::{Agent, ChatModel, tool, tools};

const RUNS: usize = 10_000;

const INSTRUCTIONS: &str = "You find places to stay.";
const QUESTION: &str = "Where do we stay in Rome?";

/// The bounds on the bytes of one run. They are slightly above the measured values, so that growth is noticed. The feature
/// `tracing`, which is enabled here, takes some 500 of them.
const BOUND: u64 = 10_900;
const BOUND_STREAMED: u64 = 12_200;

/// A model that never answers.
struct Silent;

impl ChatModel for Silent {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(pending())
    }

    fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
        ChatStream::new(stream::pending())
    }
}

/// Finds a place to stay.
#[tool]
fn find(city: String) -> String {
    city
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::builder(Silent).instructions(INSTRUCTIONS).tools(tools![find]).build()?;
    let mut context = Context::from_waker(Waker::noop());
    let awaited = held(|| {
        let mut run = agent.ask(QUESTION).into_future();
        assert!(run.poll_unpin(&mut context).is_pending(), "the model never answers");
        run
    });
    let streamed = held(|| {
        let mut events = agent.ask(QUESTION).stream();
        // The stream wakes itself when it yields an event, so it is polled once more after the event.
        let yielded =
            [(); 3].map(|()| matches!(events.poll_next_unpin(&mut context), Poll::Ready(Some(Ok(_)))));
        assert_eq!(yielded, [false, true, false], "only the start of the turn is reported");
        events
    });
    println!("{RUNS} runs that wait, bytes of each, bound; allocations of each");
    let mut is_within = true;
    for (title, (bytes, allocations), bound) in
        [("awaited", awaited, BOUND), ("streamed", streamed, BOUND_STREAMED)]
    {
        println!("{title:<9} {bytes:>6} {bound:>6}  {allocations}");
        is_within &= bytes <= bound;
    }
    if is_within { Ok(()) } else { Err("a waiting run holds more memory than its bound".into()) }
}

/// Returns the bytes and the allocations that each of many runs holds.
fn held<T>(start: impl FnMut() -> T) -> (u64, u64) {
    let mut runs = Vec::with_capacity(RUNS);
    let mut start = start;
    drop(start());
    let counts = allocation_counter::measure(|| runs.extend((0..RUNS).map(|_| start())));
    drop(black_box(runs));
    let each = |count: i64| u64::try_from(count).unwrap_or(0).div_ceil(RUNS as u64);
    (each(counts.bytes_current), each(counts.count_current))
}
