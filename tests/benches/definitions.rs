//! Cost of a set's definitions in a further turn: no allocation per tool, and no schema is built again.
//! `cargo bench -p tests --bench definitions` prints the allocations, and fails if many tools need more than none.
//!
//! `tool-openai` sends the requests to an endpoint that refuses connections, so the counts include the allocations of the
//! client and the runtime. The minimum of several requests is compared.

use std::hint::black_box;

use allocation_counter::AllocationInfo;
use schemars::JsonSchema;
use serde::Deserialize;
use tool_core::model::ChatRequest;
use tool_core::provider::ToolDefinitions;
use tool_core::{ChatModel, Message, ToolSet, tool, tools};
use tool_openai::{ChatCompletions, OpenAi};

const REQUESTS: usize = 25;

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Stop {
    /// The place to stay.
    city: String,
    /// The length of the stay.
    nights: Option<u8>,
}

/// Books a trip.
#[tool]
fn book(#[param("who travels")] traveller: String, #[param("where to, in order")] stops: Vec<Stop>) {
    drop((traveller, stops));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let model = OpenAi::builder().base_url("http://127.0.0.1:9/v1").build()?.chat_model("m");
    let messages: Vec<_> = (0..20).map(|number| Message::user(format!("Message {number}"))).collect();
    let further = |definitions: &ToolDefinitions| {
        let request = ChatRequest::borrowing(&messages).with_tools(definitions.clone());
        let counts = (0..REQUESTS).map(|_| count(|| ask(&runtime, &model, &request)));
        counts.min_by_key(|count| count.count_total).unwrap_or_default()
    };
    further(&ToolDefinitions::default());

    println!("tools, definitions cloned: allocations; first request, and one more: allocations, bytes");
    let mut without_tools = None;
    let mut is_within = true;
    for number in [0, 10, 100] {
        let set = set_with_tools(number);
        let cloned = count(|| drop(black_box(set.definitions().clone())));
        let request = ChatRequest::borrowing(&messages).with_tools(set.definitions().clone());
        let first = count(|| ask(&runtime, &model, &request));
        let further = further(set.definitions());
        println!(
            "{number:>5} {:>5} {:>8} {:>8} {:>8} {:>8}",
            cloned.count_total,
            first.count_total,
            first.bytes_total,
            further.count_total,
            further.bytes_total
        );
        let least = *without_tools.get_or_insert(further.count_total);
        is_within &= cloned.count_total == 0 && further.count_total <= least;
    }
    if is_within { Ok(()) } else { Err("one more turn costs more with many tools than with none".into()) }
}

/// Returns a set of `number` tools with different names.
fn set_with_tools(number: usize) -> ToolSet {
    let tools = (0..number).map(|number| tools![book].prefix(&format!("agency_{number}_")));
    tools.fold(ToolSet::default(), |set, tool| {
        set.union(tool.expect("the name is valid")).expect("the names differ")
    })
}

fn ask(runtime: &tokio::runtime::Runtime, model: &ChatCompletions, request: &ChatRequest<'_>) {
    let outcome = runtime.block_on(model.chat(black_box(request)));
    assert!(outcome.is_err(), "the connection is refused");
}

fn count(act: impl FnOnce()) -> AllocationInfo {
    allocation_counter::measure(act)
}
