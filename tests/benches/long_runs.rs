//! What long runs cost with and without compaction, by a simulated provider with a prompt cache: `cargo bench -p tests --bench long_runs`.

#[path = "../support/billing.rs"]
mod billing;

use billing::{Bill, LongRun};
use tool_core::agent::Compaction;
use tool_core::memory::Window;

/// The number of runs, of 20 to 300 turns.
const RUNS: usize = 40;

/// The tokens at which a window moves, and outputs are hidden at the limit.
const LIMIT: u32 = 50_000;

/// How a run is kept short.
#[derive(Clone, Copy)]
enum Choice {
    Nothing,
    Window,
    /// Hides outputs of `pure` tools.
    AtTheLimit,
    OutputsWhenItPays,
    /// The outputs must stay, so that only summaries help.
    SummariesWhenItPays,
}

const CHOICES: [(&str, Choice); 5] = [
    ("nothing", Choice::Nothing),
    ("window", Choice::Window),
    ("outputs at the limit", Choice::AtTheLimit),
    ("outputs when it pays", Choice::OutputsWhenItPays),
    ("summaries when it pays", Choice::SummariesWhenItPays),
];

impl Choice {
    async fn bill(self, run: LongRun) -> Bill {
        let (mut compaction, mut window) = (None, None);
        match self {
            Self::Nothing => {}
            Self::Window => window = Some(Window::tokens(LIMIT as usize)),
            Self::AtTheLimit => compaction = Some(Compaction::when_it_pays().at_tokens(LIMIT.into())),
            Self::OutputsWhenItPays | Self::SummariesWhenItPays => {
                compaction = Some(Compaction::when_it_pays());
            }
        }
        let tool = match (self, run.tool) {
            (Self::SummariesWhenItPays, "read") => "keep",
            (Self::SummariesWhenItPays, _) => "keep_any",
            (_, tool) => tool,
        };
        LongRun { tool, ..run }.bill(compaction, window).await
    }
}

fn sum(one: Bill, other: Bill) -> Bill {
    Bill {
        price: one.price + other.price,
        tokens: one.tokens + other.tokens,
        longest: one.longest.max(other.longest),
        cached: one.cached + other.cached,
        repeated: one.repeated + other.repeated,
        summaries: one.summaries + other.summaries,
        facts: [0, 1, 2].map(|at| one.facts[at] + other.facts[at]),
    }
}

/// Prints what runs of 20 to 300 turns cost together, by each choice.
async fn compare(turns_per_question: Option<usize>) {
    let mut none = Vec::new();
    for (name, choice) in CHOICES {
        // A window limits what precedes a question.
        if matches!(choice, Choice::Window) && turns_per_question.is_none() {
            continue;
        }
        let (mut all, mut worst) = (Bill::default(), 0.0_f64);
        for number in 0..RUNS {
            let turns = 20 + 280 * number / (RUNS - 1);
            let turns_per_question = turns_per_question.unwrap_or(turns);
            let run = LongRun { turns, turns_per_question, tool: "read_any", first: number };
            let bill = choice.bill(run).await;
            if let Choice::Nothing = choice {
                none.push(bill.price);
            }
            worst = worst.max(bill.price / none[number]);
            all = sum(all, bill);
        }
        let hits = 100.0 * all.cached as f64 / all.repeated as f64;
        let [visible, found, lost] = all.facts;
        println!(
            "| {name} | {:.1} | {:.1} | {:.2} | {hits:.0} % | {:.0} | {visible} / {found} / {lost} |",
            all.tokens as f64 / 1e6,
            all.price / 1e6,
            worst,
            all.longest as f64 / 1e3,
        );
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!(
        "a turn adds 1,000 tokens; prices in thousands of input tokens\n\n| turns | nothing | outputs at the limit | outputs when it pays | summaries when it pays |"
    );
    for turns in [20, 50, 100, 200, 300] {
        print!("| {turns} |");
        for (_, choice) in CHOICES {
            if let Choice::Window = choice {
                continue;
            }
            let run = LongRun { turns, turns_per_question: turns, tool: "read", first: 0 };
            print!(" {:.0} |", choice.bill(run).await.price / 1e3);
        }
        println!();
    }
    let head = "| | million tokens sent | bill | worst of a run | hits | longest request | early facts: visible / found / lost |";
    println!("\n{RUNS} runs of 20 to 300 turns with outputs of real sizes\n\n{head}");
    compare(None).await;
    println!("\nthe same as conversations of questions of 10 turns\n\n{head}");
    compare(Some(10)).await;
}
