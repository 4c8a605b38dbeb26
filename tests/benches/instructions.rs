//! Instructions of a run's turn, the client included: an agent with twenty tools calls one per turn, without a store. Those of one reply
//! with many calls are compared as well: they grow with the number of the calls.
//! `cargo bench -p tests --bench instructions` counts them with callgrind, which needs valgrind, and fails if a bound is exceeded.
//!
//! A run of 200 turns is compared with one of 10, and the endpoint is another process, so that nothing else is counted.

mod loops;

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use loops::{QUESTION, endpoint};
use tool_core::layer::{OutputVerdict, guard};
use tool_core::memory::InMemoryStore;
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolExecution;
use tool_core::{Agent, tool, tools};

const CALLS: [u32; 2] = [10, 200];

/// The numbers of calls of a wide reply.
const WIDE: [u32; 2] = [250, 1_000];

/// How many times as many instructions the larger reply takes at most. It has four times as many calls.
const WIDE_BOUND: f64 = 5.0;

/// What is special about a run with a wide reply.
const WORLDS: [&str; 4] = ["plain", "awaiting", "stored", "guarded"];

/// The bound on the instructions of a turn, of an optimized build with Rust 1.95 and glibc 2.36.
const BOUND: u64 = 240_500;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["endpoint", calls] => serve(calls.parse()?),
        ["run", calls, base_url] => run(calls.parse()?, base_url),
        ["wide", calls, world] => run_wide(calls.parse()?, world),
        _ => compare(),
    }
}

/// Serves the endpoint until the input ends.
fn serve(calls: u32) -> Result<(), Box<dyn Error>> {
    println!("{}", endpoint::start(calls)?);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn run(calls: u32, base_url: &str) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(loops::agent(base_url, calls)?.ask(QUESTION).into_future())?;
    assert_eq!((answer.text(), answer.tool_executions().len()), (endpoint::ANSWER, calls as usize));
    Ok(())
}

#[tool]
async fn count_up(number: u64) -> u64 {
    if number.is_multiple_of(2) {
        tokio::task::yield_now().await;
    }
    number + 1
}

#[tool]
fn increase(number: u64) -> u64 {
    number + 1
}

fn run_wide(calls: u32, world: &str) -> Result<(), Box<dyn Error>> {
    let name = if world == "awaiting" { "count_up" } else { "increase" };
    let calls = (0..calls).map(|number| (name, format!(r#"{{"number": {number}}}"#)));
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let mut agent = Agent::builder(model).tools(tools![count_up, increase]);
    agent = match world {
        "stored" => agent.run_store(InMemoryStore::new()),
        "guarded" => agent.layer(guard::output(|_: &ToolExecution| OutputVerdict::Pass)),
        _ => agent,
    };
    let agent = agent.build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    assert_eq!(runtime.block_on(agent.ask("Go").into_future())?.text(), "Done.");
    Ok(())
}

fn compare() -> Result<(), Box<dyn Error>> {
    let mut is_exceeded = false;
    for world in WORLDS {
        let [few, many] = WIDE.map(|calls| instructions(&["wide", &calls.to_string(), world]));
        let ratio = many? as f64 / few? as f64;
        println!("{} calls in place of {}, {world}: {ratio:.1} times the instructions", WIDE[1], WIDE[0]);
        is_exceeded |= ratio > WIDE_BOUND;
    }
    let [short, long] = CALLS.map(count);
    let per_turn = (long? - short?) / u64::from(CALLS[1] - CALLS[0]);
    println!("instructions per turn: {per_turn}, bound {BOUND}");
    is_exceeded |= per_turn > BOUND;
    if is_exceeded { Err("a bound is exceeded".into()) } else { Ok(()) }
}

/// Returns the instructions of a run with so many calls.
fn count(calls: u32) -> Result<u64, Box<dyn Error>> {
    let (program, calls) = (std::env::current_exe()?, calls.to_string());
    let mut endpoint = Command::new(program)
        .args(["endpoint", &calls])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut base_url = String::new();
    BufReader::new(endpoint.stdout.take().ok_or("the endpoint has no output")?).read_line(&mut base_url)?;
    let counted = instructions(&["run", &calls, base_url.trim()]);
    endpoint.kill()?;
    endpoint.wait()?;
    counted
}

/// Returns the instructions of this program with these arguments.
fn instructions(arguments: &[&str]) -> Result<u64, Box<dyn Error>> {
    let counted = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(arguments)
        .output();
    let counted = counted.map_err(|error| format!("valgrind cannot be started: {error}"))?;
    let report = String::from_utf8_lossy(&counted.stderr);
    let collected = report.lines().find_map(|line| line.split("Collected :").nth(1));
    let collected = collected.filter(|_| counted.status.success()).ok_or_else(|| report.to_string())?;
    Ok(collected.trim().parse()?)
}
