//! Cost of the loop's state machine alone: a `Run` without a model, tools or a runtime, over two hundred turns with one call
//! each. `cargo bench -p tests --bench state_machine` prints the turns per second, the bytes that a turn allocates and those
//! of the serialized state. It fails if a late turn allocates more than an early one, or the state is too long.
//!
//! Replies and outputs are built outside of the measurement. The median of the turns is used, which excludes occasional
//! reallocations of the list of messages.

use std::hint::black_box;
use std::time::Instant;

use allocation_counter::AllocationInfo;
use tool_core::model::{AssistantMessage, ChatResponse, ToolDefinition};
use tool_core::provider::ToolDefinitions;
use tool_core::run::{Run, RunLimits, Step};
use tool_core::tool::ToolExecution;
use tool_core::{Message, ToolCall, ToolOutput};

const TURNS: u32 = 200;
const ROUNDS: usize = 101;

/// The number of turns compared at the beginning and at the end.
const SAMPLE: usize = 50;

/// The bounds on the bytes that a turn allocates, and on those that it adds to the serialized state. They are slightly above
/// the measured values, so that growth is noticed.
const BOUND: u64 = 1_200;
const STATE_BOUND: usize = 450;

const OUTPUT: &str =
    r#"{"page":7,"places":[{"name":"Albergo del Sole","street":"Via del Biscione 76","price":122.0}]}"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let definitions = (0..20)
        .map(|number| ToolDefinition::new(format!("find_{number}")).with_description("Finds places to stay"));
    let definitions = ToolDefinitions::from_iter(definitions);
    let replies: Vec<_> = (0..TURNS).map(reply).collect();

    let mut allocated = Vec::new();
    let mut sizes = Vec::new();
    let mut run = start();
    for reply in &replies {
        let (reply, output) = (reply.clone(), ToolOutput::text(OUTPUT));
        allocated.push(allocation_counter::measure(|| turn(&mut run, &definitions, reply, output)));
        sizes.push(serde_json::to_vec(&run)?.len());
    }
    let [early, late] = [&allocated[..SAMPLE], &allocated[allocated.len() - SAMPLE..]].map(median);
    let state = (sizes[sizes.len() - 1] - sizes[0]).div_ceil(sizes.len() - 1);
    println!("one turn: bytes allocated, early and late, bound; allocations; bytes of the state, bound");
    println!(
        "{:>5} {:>5} {BOUND:>5}   {:>3} {:>3}   {state:>5} {STATE_BOUND:>5}",
        early.bytes_total, late.bytes_total, early.count_total, late.count_total
    );

    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let mut run = start();
        let mut clocks = Vec::with_capacity(replies.len());
        let given: Vec<_> = replies.iter().map(|reply| (reply.clone(), ToolOutput::text(OUTPUT))).collect();
        clocks.push(Instant::now());
        for (reply, output) in given {
            turn(&mut run, &definitions, reply, output);
            clocks.push(Instant::now());
        }
        let last = clocks.len() - 1;
        times[0].push(clocks[SAMPLE] - clocks[0]);
        times[1].push(clocks[last] - clocks[last - SAMPLE]);
        drop(black_box(run));
    }
    let [first, last] = times.map(|mut times| {
        times.sort();
        SAMPLE as f64 / times[times.len() / 2].as_secs_f64()
    });
    println!("turns per second, the first {SAMPLE} and the last: {first:.0} {last:.0}");

    let is_within = late.bytes_total <= early.bytes_total.min(BOUND)
        && late.count_total <= early.count_total
        && state <= STATE_BOUND;
    if is_within { Ok(()) } else { Err("a figure exceeds its bound".into()) }
}

fn start() -> Run {
    Run::new([Message::system("You find places to stay."), Message::user("Where do we stay in Rome?")])
        .with_limits(RunLimits::new().max_turns(TURNS + 1))
}

fn reply(turn: u32) -> ChatResponse {
    let call = ToolCall::new(format!("call_{turn:03}"), format!("find_{}", turn % 20), arguments(turn));
    ChatResponse::new(AssistantMessage::default().with_tool_calls([call]))
}

/// Runs one turn: a request to the model, a tool call, and the record of its output.
fn turn(run: &mut Run, definitions: &ToolDefinitions, reply: ChatResponse, output: ToolOutput) {
    assert!(matches!(run.next(definitions), Step::CallModel(_)), "the run calls the model");
    run.record_response(reply).expect("a reply is expected");
    let Step::CallTools(calls) = run.next(definitions) else { unreachable!("the model called a tool") };
    for (call, output) in calls.into_iter().zip([output]) {
        run.record_result(ToolExecution::new(call, Ok(output))).expect("a result is expected");
    }
}

fn median(turns: &[AllocationInfo]) -> AllocationInfo {
    let mut turns = turns.to_vec();
    turns.sort_by_key(|turn| turn.bytes_total);
    turns.swap_remove(turns.len() / 2)
}

/// Returns different arguments for each turn, because repeated identical calls are refused.
fn arguments(turn: u32) -> String {
    format!(
        r#"{{"filter":{{"city":"Rome","guests":4,"comforts":["breakfast","garden"]}},"page":{}}}"#,
        1000 + turn
    )
}
