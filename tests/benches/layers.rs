//! Cost of layers that pass everything: an agent with a scripted model and one call per turn, with three layers that see every part
//! and without any. `cargo bench -p tests --bench layers` prints the time of a turn, and fails if three layers add more than the bound.

use std::time::Instant;

use tool_core::layer::Layer;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, tool, tools};

const TURNS: u32 = 50;
const ROUNDS: usize = 201;

/// The bound on the microseconds that three layers add to a turn.
const BOUND: f64 = 5.0;

#[tool("Adds one")]
fn next(n: u32) -> u32 {
    n + 1
}

struct Pass(&'static str);

impl Layer for Pass {
    fn name(&self) -> &str {
        self.0
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let micros_per_turn = |layers: usize| {
        let calls = (0..TURNS - 1).map(|n| format!(r#"{{"n": {n}}}"#));
        let script = calls.fold(ScriptedModel::new(), |script, arguments| script.calls("next", arguments));
        let agent = Agent::builder(script.says("Done.")).tools(tools![next]).limits(|l| l.max_turns(TURNS));
        let agent =
            ["one", "two", "three"][..layers].iter().fold(agent, |agent, name| agent.layer(Pass(name)));
        let agent = agent.build().expect("the names are unique");
        let start = Instant::now();
        let answer = runtime.block_on(agent.ask("Count").into_future()).expect("the script has an answer");
        let elapsed = start.elapsed();
        assert_eq!(answer.turns(), TURNS);
        elapsed.as_secs_f64() * 1e6 / f64::from(TURNS)
    };
    // Alternately, so that both meet the same machine.
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (micros_per_turn(0), micros_per_turn(3))).collect();
    let none = median(rounds.iter().map(|(none, _)| *none));
    let three = median(rounds.iter().map(|(_, three)| *three));
    let added = median(rounds.iter().map(|(none, three)| three - none));
    println!(
        "microseconds per turn: without layers {none:.2}, with three {three:.2}; added {added:.2}, bound {BOUND}"
    );
    if added <= BOUND { Ok(()) } else { Err("layers cost too much".into()) }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
