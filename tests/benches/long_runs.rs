//! What long runs cost with and without compaction, by a simulated provider with a prompt cache: `cargo bench -p tests --bench long_runs`.

#[path = "../support/billing.rs"]
mod billing;

use billing::{Bill, BillingModel};
use tool_core::agent::Compaction;
use tool_core::{Agent, tool, tools};

#[tool("Reads a page", pure)]
fn read(page: u32) -> String {
    format!("page {page}: {}", "lorem ipsum ".repeat(330))
}

#[tool("Reads a page that must stay", keep_output)]
fn keep(page: u32) -> String {
    format!("page {page}: {}", "lorem ipsum ".repeat(330))
}

async fn bill(turns: usize, compaction: Option<Compaction>, keeps: bool) -> Bill {
    let model = BillingModel::new(turns, if keeps { "keep" } else { "read" });
    let mut agent = Agent::builder(model.clone()).tools(tools![read, keep]).limits(|l| l.max_turns(1_000));
    if let Some(compaction) = compaction {
        agent = agent.compaction(compaction);
    }
    agent.build().unwrap().ask("Read all pages").await.unwrap();
    model.bill()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("a turn adds about 1,000 tokens; prices in thousands of input tokens");
    println!(
        "{:>6} {:>10} {:>14} {:>14} {:>14} {:>6} {:>6}",
        "turns", "none", "at 50k tokens", "outputs", "summaries", "ratio", "hits"
    );
    for turns in [5, 10, 20, 50, 100, 200, 300] {
        let none = bill(turns, None, false).await;
        let at = bill(turns, Some(Compaction::when_it_pays().at_tokens(50_000)), false).await;
        let outputs = bill(turns, Some(Compaction::when_it_pays()), false).await;
        let summaries = bill(turns, Some(Compaction::when_it_pays()), true).await;
        println!(
            "{turns:>6} {:>10.0} {:>14.0} {:>14.0} {:>14.0} {:>6.2} {:>6.2}",
            none.price / 1e3,
            at.price / 1e3,
            outputs.price / 1e3,
            summaries.price / 1e3,
            summaries.price / none.price,
            summaries.cached as f64 / summaries.repeated as f64,
        );
    }
}
