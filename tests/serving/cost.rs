//! The work that one request, or one reply of the model, can cause, counted in allocated bytes, so that the load of the machine does not
//! matter.

use serde_json::{Value, json};
use tokio::runtime::Builder;
use tool_core::agent::AgentBuilder;
use tool_core::layer::{AnswerVerdict, OutputVerdict, guard, rewrite};
use tool_core::memory::InMemoryStore;
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolExecution;
use tool_core::{Agent, tool, tools};
use tool_openai::server::Server;

use crate::caller::Caller;
use crate::callers_tools::APIS;

fn user() -> Value {
    json!({ "role": "user", "content": "Hi" })
}

/// Returns a message with calls that have these ids, and one result for each of `answered`, in the form of the API.
fn turn(api: &str, ids: &[&str], answered: &[&str], number: usize) -> Vec<Value> {
    let arguments = format!(r#"{{"number": {number}}}"#);
    if api == "responses" {
        let call =
            |id| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": arguments });
        let result = |id| json!({ "type": "function_call_output", "call_id": id, "output": "" });
        return ids.iter().map(call).chain(answered.iter().map(result)).collect();
    }
    let call =
        |id| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": arguments } });
    let calls: Vec<_> = ids.iter().map(call).collect();
    let result = |id| json!({ "role": "tool", "tool_call_id": id, "content": "" });
    let message = json!({ "role": "assistant", "content": "", "tool_calls": calls });
    [message].into_iter().chain(answered.iter().map(result)).collect()
}

/// Returns the messages of a request of this size.
type Shape = fn(api: &str, size: usize) -> Vec<Value>;

const SHAPES: [(&str, Shape); 6] = [
    ("turns with distinct ids", |api, size| {
        let turns = (0..size).flat_map(|number| {
            let id = format!("call_of_turn_{number}");
            turn(api, &[&id], &[&id], number)
        });
        [user()].into_iter().chain(turns).collect()
    }),
    ("turns that share an id", |api, size| {
        let turns = (0..size).flat_map(|number| turn(api, &["abc"], &["abc"], number));
        [user()].into_iter().chain(turns).collect()
    }),
    ("earlier turns that share an id", |api, size| {
        let turns = (0..size).flat_map(|number| turn(api, &["abc"], &["abc"], number));
        turns.chain([user()]).collect()
    }),
    ("turns whose calls share an id", |api, size| {
        let turns = (0..size).flat_map(|number| turn(api, &["abc", "abc"], &["abc"], number));
        [user()].into_iter().chain(turns).collect()
    }),
    ("earlier turns whose calls share an id", |api, size| {
        let turns = (0..size).flat_map(|number| turn(api, &["abc", "abc"], &["abc"], number));
        turns.chain([user()]).collect()
    }),
    ("questions", |_, size| vec![user(); size]),
];

fn request(api: &str, messages: Vec<Value>) -> Value {
    let field = if api == "responses" { "input" } else { "messages" };
    json!({ "model": "m", field: messages })
}

/// Returns the number of bytes that are allocated for a request, in the order of their allocation and freed or not.
fn allocated_bytes(api: &str, body: &Value, is_streamed: bool) -> u64 {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let caller = runtime.block_on(async {
        // The layer lets the agent repair the messages.
        let agent =
            Agent::builder(ScriptedModel::new().says("Hi.")).layer(rewrite::request(|mut request| {
                request.messages_mut().pop_if(|_| false);
                request
            }));
        Caller::new(Server::new().agent("m", agent.build().unwrap())).await
    });
    let mut body = body.clone();
    body["stream"] = json!(is_streamed);
    let request = caller.request(api, &body);
    let measured = allocation_counter::measure(|| {
        let response = runtime.block_on(async { request.send().await.unwrap().bytes().await.unwrap() });
        assert!(response.len() > 100);
    });
    measured.bytes_total
}

#[test]
fn the_work_for_a_request_grows_no_faster_than_the_request() {
    for (shape, messages) in SHAPES {
        for (api, is_streamed) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
            let [small, medium, large] = [60, 120, 240]
                .map(|size| allocated_bytes(api, &request(api, messages(api, size)), is_streamed));
            // A linear function grows twice as much in the second step, a quadratic one four times.
            let growth = (large - medium) as f64 / (medium - small) as f64;
            assert!(growth < 3.0, "{api}, {shape}: {small}, {medium} and {large} bytes");
        }
    }
}

#[tool]
fn increase(number: u64) -> u64 {
    number + 1
}

/// The first ones finish last.
#[tool]
async fn increase_later(number: u64) -> u64 {
    let yields = if number < 3 { 2_000 } else { number % 3 };
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
    number + 1
}

/// Changes what is around a run.
type Build = fn(AgentBuilder) -> AgentBuilder;

/// Returns the number of bytes that are allocated for a reply with so many calls.
fn allocated_for_calls(tool: &str, size: usize, build: Build) -> u64 {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let calls = (0..size).map(|number| (tool, format!(r#"{{"number": {number}}}"#)));
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let agent = build(Agent::builder(model).tools(tools![increase, increase_later])).build().unwrap();
    let measured = allocation_counter::measure(|| {
        let answer = runtime.block_on(agent.ask("Go").into_future()).unwrap();
        assert_eq!(answer.tool_executions().len(), size);
    });
    measured.bytes_total
}

#[test]
fn the_work_for_a_reply_grows_no_faster_than_its_calls() {
    let worlds: [(&str, Build); 4] = [
        ("alone", |agent| agent),
        ("stored", |agent| agent.run_store(InMemoryStore::new())),
        ("listened to", |agent| agent.on_event(|_| ())),
        ("judged", |agent| {
            let judges = guard::output(|_: &ToolExecution| OutputVerdict::Pass);
            agent.layer(judges).layer(guard::answer(|_: &str| AnswerVerdict::Pass)).on_event(|_| ())
        }),
    ];
    for tool in ["increase", "increase_later"] {
        for (world, build) in worlds {
            let [small, medium, large] = [200, 400, 800].map(|size| allocated_for_calls(tool, size, build));
            let growth = (large - medium) as f64 / (medium - small) as f64;
            assert!(growth < 3.0, "{tool}, {world}: {small}, {medium} and {large} bytes");
        }
    }
}
