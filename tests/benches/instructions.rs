//! Instructions of a run's turn, the client included: an agent with twenty tools calls one per turn, without a store.
//! `cargo bench -p tests --bench instructions` counts them with callgrind, which needs valgrind, and fails if a turn exceeds its bound.
//!
//! A run of 200 turns is compared with one of 10, and the endpoint is another process, so that nothing else is counted.

mod loops;

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use loops::{QUESTION, endpoint};

const CALLS: [u32; 2] = [10, 200];

/// The bound on the instructions of a turn.
const BOUND: u64 = 174_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["endpoint", calls] => serve(calls.parse()?),
        ["run", calls, base_url] => run(calls.parse()?, base_url),
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

fn compare() -> Result<(), Box<dyn Error>> {
    let [short, long] = CALLS.map(count);
    let per_turn = (long? - short?) / u64::from(CALLS[1] - CALLS[0]);
    println!("instructions per turn: {per_turn}, bound {BOUND}");
    if per_turn <= BOUND { Ok(()) } else { Err("a turn exceeds its bound".into()) }
}

/// Returns the instructions of a run with so many calls.
fn count(calls: u32) -> Result<u64, Box<dyn Error>> {
    let (program, calls) = (std::env::current_exe()?, calls.to_string());
    let mut endpoint = Command::new(&program)
        .args(["endpoint", &calls])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut base_url = String::new();
    BufReader::new(endpoint.stdout.take().ok_or("the endpoint has no output")?).read_line(&mut base_url)?;
    let counted = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(&program)
        .args(["run", &calls, base_url.trim()])
        .output();
    endpoint.kill()?;
    endpoint.wait()?;
    let counted = counted.map_err(|error| format!("valgrind cannot be started: {error}"))?;
    let report = String::from_utf8_lossy(&counted.stderr);
    let collected = report.lines().find_map(|line| line.split("Collected :").nth(1));
    let collected = collected.filter(|_| counted.status.success()).ok_or_else(|| report.to_string())?;
    Ok(collected.trim().parse()?)
}
