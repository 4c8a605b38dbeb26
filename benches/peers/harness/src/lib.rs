//! What the three programs share: the endpoint, the work of the tools, and the measurements.

mod endpoint;
mod measure;
pub mod tools;

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use endpoint::Endpoint;
use measure::{cpu_time, median};

pub const MODEL: &str = "m";
pub const INSTRUCTIONS: &str =
    "You find places to stay. Look one page up after the other, and then name the best.";
pub const QUESTION: &str = "Where do we stay in Rome, with two children, for at most 150 a night?";
const ANSWER: &str = "The Albergo del Sole.";

/// `run` repeats each measurement five times.
const ROUNDS: usize = 5;
const CALLS_IN_A_ROUND: u32 = 1_000;
const LONG_RUN: u32 = 200;
const RUNS_AT_ONCE: usize = 64;
const SHORT_RUN: u32 = 20;

/// A program that is compared with the others.
pub trait Program {
    /// The result of a call.
    type Called;

    /// Builds the agent, with the model at this URL and at most `max_turns` requests for a run.
    fn new(base_url: &str, max_turns: u32) -> Self;

    /// Starts a run that asks [`QUESTION`], and returns its answer.
    fn ask(&self) -> impl Future<Output = String> + Send + 'static;

    /// Calls the tool with this name.
    fn call(&self, name: &str, arguments: &str) -> impl Future<Output = Self::Called>;

    /// Returns the text of a result for the model.
    fn text(called: Self::Called) -> String;
}

/// Measures the subject that the first argument names, and prints the figures.
pub fn run<P: Program>() -> std::io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["endpoint", calls] => return endpoint::serve(calls.parse().expect("a number of calls")),
        ["call"] => println!("{:.0}", call(&P::new("http://127.0.0.1:9/v1", 1))),
        ["turns"] => {
            let mut bench = Bench::<P>::start(LONG_RUN)?;
            bench.run(1);
            let rounds = [(); ROUNDS].map(|()| {
                bench.run(1);
                measure::recorded_turns()
            });
            let [a, b, c] = [0, 1, 2].map(|place| median(rounds.map(|turns| turns[place])));
            println!("{a:.1} {b:.1} {c:.1}");
        }
        ["runs"] => {
            let mut bench = Bench::<P>::start(SHORT_RUN)?;
            bench.run(RUNS_AT_ONCE);
            let turns = RUNS_AT_ONCE as f64 * f64::from(SHORT_RUN + 1);
            let rounds = [(); ROUNDS].map(|()| bench.run(RUNS_AT_ONCE).as_secs_f64() * 1e6 / turns);
            println!("{:.1}", median(rounds));
        }
        ["memory"] => {
            Bench::<P>::start(SHORT_RUN)?.run(RUNS_AT_ONCE);
            println!("{}", measure::peak_memory());
        }
        ["idle"] => {
            let _bench = Bench::<P>::start(SHORT_RUN)?;
            println!("{}", measure::peak_memory());
        }
        _ => panic!("expected one of: call, turns, runs, memory, idle"),
    }
    Ok(())
}

/// Returns the nanoseconds of a call.
fn call<P: Program>(program: &P) -> f64 {
    let name = tools::NAMES[7];
    let arguments = tools::arguments(7).to_string();
    let call = || match pin!(program.call(black_box(name), black_box(&arguments)))
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(called) => called,
        Poll::Pending => panic!("no tool suspends"),
    };
    let result: serde_json::Value = serde_json::from_str(&P::text(call())).expect("the result is JSON");
    assert_eq!(result, tools::expected(7));
    let round = |_| {
        let start = cpu_time();
        for _ in 0..CALLS_IN_A_ROUND {
            black_box(call());
        }
        (cpu_time() - start).as_secs_f64() * 1e9 / f64::from(CALLS_IN_A_ROUND)
    };
    median((0..ROUNDS * 20).map(round))
}

/// A program with its runtime and its endpoint.
struct Bench<P> {
    program: P,
    runtime: tokio::runtime::Runtime,
    calls: u32,
    _endpoint: Endpoint,
}

impl<P: Program> Bench<P> {
    fn start(calls: u32) -> std::io::Result<Self> {
        let endpoint = Endpoint::start(calls)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let program = runtime.block_on(async { P::new(&endpoint.base_url, calls + 1) });
        Ok(Self { program, runtime, calls, _endpoint: endpoint })
    }

    /// Executes runs at the same time, checks their answers and calls, and returns their CPU time.
    fn run(&mut self, runs: usize) -> Duration {
        tools::take_executed();
        let start = cpu_time();
        let answers: Vec<_> = self.runtime.block_on(async {
            let runs: Vec<_> = (0..runs).map(|_| tokio::spawn(self.program.ask())).collect();
            let mut answers = Vec::with_capacity(runs.len());
            for run in runs {
                answers.push(run.await.expect("the endpoint answers"));
            }
            answers
        });
        let time = cpu_time() - start;
        assert!(answers.iter().all(|answer| answer == ANSWER));
        assert_eq!(tools::take_executed(), runs * self.calls as usize);
        time
    }
}
