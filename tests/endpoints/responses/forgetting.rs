//! Runs that are compacted without the provider: reasoning that does not go back.

use serde_json::{Value, json};
use tests::support::RawServer;
use tool_core::agent::Compaction;
use tool_core::memory::InMemoryStore;
use tool_core::{Agent, tool, tools};
use tool_openai::Endpoint;

use super::endpoint::{bodies, input, json_answer, model_of};
use super::runs::{call, text_message};

/// Reads a page.
#[tool(pure)]
fn read(page: u32) -> String {
    format!("page {page}")
}

/// Reasoning that is longer than a request may be, and an item with an id that needs it.
fn reply(number: u32, item: Value) -> Vec<u8> {
    let reasoning = json!({
        "id": format!("rs_{number}"), "type": "reasoning", "summary": [], "encrypted_content": "c2ln".repeat(3_000),
    });
    // Not credible, so that the run estimates how long it is.
    let usage = json!({ "input_tokens": 0, "output_tokens": 0, "total_tokens": 0 });
    json_answer(
        &json!({ "id": "resp_1", "status": "completed", "output": [reasoning, item], "usage": usage }),
    )
}

/// The reasoning of earlier questions does not go back if that is enough, nor do the ids that need it. That of the current one stays.
#[tokio::test]
async fn reasoning_of_earlier_questions_goes() {
    let answer = |number| reply(number, text_message(&format!("Answer {number}."), "final_answer"));
    let table = [(None, [0, 1, 2, 3]), (Some(1), [0, 0, 0, 1])];
    for (mark, expected) in table {
        let read_page = reply(3, call("call_a", "read", r#"{"page": 1}"#));
        let server = RawServer::answering_in_turn(vec![answer(1), answer(2), read_page, answer(4)]).await;
        let mut endpoint = Endpoint::openai();
        endpoint.supports_compaction = false;
        let agent =
            Agent::builder(model_of(endpoint, &server)).tools(tools![read]).memory(InMemoryStore::new());
        let compaction =
            mark.map(|tokens| Compaction::when_it_pays().at_tokens(tokens).keep_recent_tokens(1_000));
        let agent = compaction.into_iter().fold(agent, tool_core::agent::AgentBuilder::compaction);
        let agent = agent.build().unwrap();
        for question in ["One?", "Two?", "Three?"] {
            agent.ask(question).conversation("c").await.unwrap();
        }
        let bodies = bodies(&server);
        let inputs: Vec<_> = bodies.iter().map(|body| input(body)).collect();
        let reasoning = |items: &Vec<Value>| items.iter().filter(|item| item["type"] == "reasoning").count();
        assert_eq!(inputs.iter().map(reasoning).collect::<Vec<_>>(), expected, "{mark:?}");
        let last = inputs.last().unwrap();
        // Items with an id are behind the reasoning that they need.
        for (position, item) in last.iter().enumerate().filter(|(_, item)| item.get("id").is_some()) {
            let is_reasoning = item["type"] == "reasoning";
            assert!(is_reasoning || last[position - 1]["type"] == "reasoning", "{mark:?}: {item}");
        }
        let text = bodies.last().unwrap();
        for said in ["One?", "Answer 1.", "Two?", "Answer 2.", "Three?", "page 1"] {
            assert!(text.contains(said), "{mark:?}: {said}");
        }
        assert!(last.starts_with(&inputs[2]), "{mark:?}");
    }
}
