//! A fallback between the clients of both providers, with two servers; one dies in the middle of a run.

use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tests::support::{RawServer, whole_answer};
use tool_anthropic::{Anthropic, Messages};
use tool_core::agent::ToolSearch;
use tool_core::model::{Cost, Currency, Fallback, ModelPrices, Prices};
use tool_core::{Agent, ChatModel, FunctionTool, Message, RunErrorKind, ToolSet};
use tool_openai::{ChatCompletions, OpenAi, Responses};

use crate::responses::endpoint::json_answer;

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Tide {
    time: String,
}

fn openai(server: &RawServer) -> OpenAi {
    OpenAi::builder().base_url(server.base_url()).max_retries(0).build().unwrap()
}

fn chat(server: &RawServer) -> ChatCompletions {
    openai(server).chat_model("gpt")
}

fn responses(server: &RawServer) -> Responses {
    openai(server).responses_model("gpt")
}

fn claude(server: &RawServer) -> Messages {
    let client = Anthropic::builder().base_url(server.base_url()).max_retries(0);
    client.build().unwrap().chat_model("claude-sonnet-5-5")
}

fn chat_reply(message: Value, reason: &str) -> Value {
    json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "gpt-1",
        "choices": [{ "index": 0, "message": message, "finish_reason": reason }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 },
    })
}

fn claude_reply(content: Value, reason: &str) -> Value {
    json!({
        "id": "m", "type": "message", "role": "assistant", "model": "claude-1", "content": content,
        "stop_reason": reason, "stop_sequence": null, "usage": { "input_tokens": 200, "output_tokens": 20 },
    })
}

fn response_reply(output: Value) -> Value {
    json!({
        "id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-1", "output": output,
        "usage": { "input_tokens": 100, "output_tokens": 10, "total_tokens": 110 },
    })
}

fn prices() -> Prices {
    Prices::from_fn(Currency::USD, |model, _| {
        let prices = if model == "gpt" { ModelPrices::new(1.0, 10.0) } else { ModelPrices::new(2.0, 20.0) };
        Some(prices.with_max_output_tokens(1_000))
    })
}

/// Returns a tool that kills a server.
fn tide(server: &Arc<Mutex<Option<RawServer>>>) -> FunctionTool {
    let server = Arc::clone(server);
    FunctionTool::new("get_tide", move || {
        drop(server.lock().unwrap().take());
        "14:20"
    })
    .description("Returns the time of high tide")
}

/// Tools that the model finds by search.
fn others() -> ToolSet {
    (0..12).fold(ToolSet::default(), |tools, number| {
        let tool = FunctionTool::new(format!("other_{number}"), || "nothing").description("Does nothing");
        tools.with(tool).unwrap()
    })
}

/// Returns the body of the only request.
fn only_body(server: &RawServer) -> Value {
    let [request] = &server.requests()[..] else { panic!("one request: {:?}", server.requests()) };
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Asks for a typed answer. The first server dies while the tool is executed.
async fn ask(model: Fallback, dying: RawServer) -> (Tide, Vec<Option<String>>, u64) {
    let dying = Arc::new(Mutex::new(Some(dying)));
    let agent = Agent::builder(model)
        .tools(others().with(tide(&dying)).unwrap())
        .tool_search(ToolSearch::bm25().min_tools(3).always_offer(["get_tide"]))
        .prices(prices())
        .build()
        .unwrap();
    let (tide, answer) = agent.ask("When is high tide?").answer_as::<Tide>().with_answer().await.unwrap();
    let replies = answer.new_messages().iter().filter_map(Message::as_assistant);
    (tide, replies.map(|reply| reply.model.clone()).collect(), answer.cost().unwrap().micros())
}

const TYPED: &str = r#"{"time": "14:20"}"#;

/// A reply with reasoning and a call, and one with the answer, of one API.
struct Replies {
    call: Value,
    answer: Value,
    /// Where the results of calls and the names of tools are in a request.
    call_and_result: fn(&Value) -> [Value; 2],
    tools: fn(&Value) -> usize,
}

fn of_chat() -> Replies {
    let call =
        json!({ "id": "call_a", "type": "function", "function": { "name": "get_tide", "arguments": "{}" } });
    let calls = json!({ "role": "assistant", "content": null, "tool_calls": [call], "reasoning_content": "Hm.", "refusal": null });
    Replies {
        call: chat_reply(calls, "tool_calls"),
        answer: chat_reply(json!({ "role": "assistant", "content": TYPED, "refusal": null }), "stop"),
        call_and_result: |body| [body["messages"][1].clone(), body["messages"][2].clone()],
        tools: |body| body["tools"].as_array().unwrap().len(),
    }
}

fn of_responses() -> Replies {
    let reasoning = json!({ "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "Hm." }], "encrypted_content": "c2ln" });
    let call = json!({ "type": "function_call", "id": "fc_1", "call_id": "call_a", "name": "get_tide", "arguments": "{}", "status": "completed" });
    let text = json!({ "type": "output_text", "text": TYPED, "annotations": [] });
    let message = json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text] });
    Replies {
        call: response_reply(json!([reasoning, call])),
        answer: response_reply(json!([message])),
        call_and_result: |body| [body["input"][1].clone(), body["input"][2].clone()],
        tools: |body| body["tools"].as_array().unwrap().len(),
    }
}

fn of_claude() -> Replies {
    let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" });
    let call = json!({ "type": "tool_use", "id": "call_a", "name": "get_tide", "input": {} });
    Replies {
        call: claude_reply(json!([thinking, call]), "tool_use"),
        answer: claude_reply(json!([{ "type": "text", "text": TYPED }]), "end_turn"),
        call_and_result: |body| {
            [body["messages"][1]["content"][0].clone(), body["messages"][2]["content"][0].clone()]
        },
        tools: |body| body["tools"].as_array().unwrap().len(),
    }
}

async fn server(reply: &Value) -> RawServer {
    RawServer::answering_in_turn(vec![json_answer(reply)]).await
}

fn has_reasoning(body: &Value) -> bool {
    let text = body.to_string();
    text.contains("Hm.") || text.contains("c2ln")
}

#[tokio::test]
async fn claude_continues_a_run_of_openai() {
    let claude_replies = of_claude();
    for (is_chat, first) in [(true, of_chat()), (false, of_responses())] {
        let (dying, living) = (server(&first.call).await, server(&claude_replies.answer).await);
        let model = match is_chat {
            true => Fallback::new(chat(&dying)),
            false => Fallback::new(responses(&dying)),
        };
        let (tide, models, cost) = ask(model.or(claude(&living)), dying).await;
        assert_eq!(tide, Tide { time: "14:20".into() });
        assert_eq!(models, [Some("gpt".into()), Some("claude-sonnet-5-5".into())]);
        // The refused connection costs nothing.
        assert_eq!(cost, 100 + 10 * 10 + 200 * 2 + 20 * 20);
        let body = only_body(&living);
        let [call, result] = (claude_replies.call_and_result)(&body);
        assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("get_tide")));
        assert_eq!(result["tool_use_id"], call["id"]);
        assert!(!has_reasoning(&body), "{body}");
        assert_eq!((claude_replies.tools)(&body), 2);
    }
}

#[tokio::test]
async fn openai_continues_a_run_of_claude() {
    let claude_replies = of_claude();
    for (is_chat, second) in [(true, of_chat()), (false, of_responses())] {
        let (dying, living) = (server(&claude_replies.call).await, server(&second.answer).await);
        let model = Fallback::new(claude(&dying));
        let model = match is_chat {
            true => model.or(chat(&living)),
            false => model.or(responses(&living)),
        };
        let (tide, models, cost) = ask(model, dying).await;
        assert_eq!(tide, Tide { time: "14:20".into() });
        assert_eq!(models, [Some("claude-sonnet-5-5".into()), Some("gpt".into())]);
        assert_eq!(cost, 200 * 2 + 20 * 20 + 100 + 10 * 10);
        let body = only_body(&living);
        let [call, result] = (second.call_and_result)(&body);
        let ids = match is_chat {
            true => [&call["tool_calls"][0]["id"], &result["tool_call_id"]],
            false => [&call["call_id"], &result["call_id"]],
        };
        assert_eq!((ids[0], ids[0].is_string()), (ids[1], true));
        assert!(!has_reasoning(&body), "{body}");
        assert_eq!((second.tools)(&body), 2);
    }
}

/// A server that fails once with this status, and a model of each provider that asks again.
async fn failing_once(status: &str, reply: &Value) -> RawServer {
    let headers = [("content-type", "application/json"), ("retry-after-ms", "1")];
    let failure = whole_answer(status, &headers, br#"{"error":{"message":"no"}}"#);
    RawServer::answering_in_turn(vec![failure, json_answer(reply)]).await
}

#[tokio::test]
async fn providers_count_what_repeated_requests_may_have_cost() {
    for is_claude in [false, true] {
        let reply = if is_claude { of_claude().answer } else { of_chat().answer };
        let agent = |server: &RawServer| {
            let model: Box<dyn ChatModel> = match is_claude {
                false => {
                    let client = OpenAi::builder().base_url(server.base_url()).max_retries(1);
                    Box::new(client.build().unwrap().chat_model("gpt"))
                }
                true => {
                    let client = Anthropic::builder().base_url(server.base_url()).max_retries(1);
                    Box::new(client.build().unwrap().chat_model("claude-sonnet-5-5"))
                }
            };
            Agent::builder(model).prices(prices()).build().unwrap()
        };
        let (actual, factor) = if is_claude { (800, 2) } else { (200, 1) };
        let worst = (64 + 16 + 5 + 10 * 1_000) * factor;
        // A rejected request costs nothing; nobody knows it of one that failed.
        for (status, earlier) in [("429 Busy", 0), ("503 Down", 0), ("500 Broken", worst)] {
            let server = failing_once(status, &reply).await;
            let answer = agent(&server).ask("Hello").await.unwrap();
            assert_eq!(answer.cost().unwrap().micros(), earlier + actual, "{status}");
        }
        // It is not repeated if it cannot be paid.
        let server = failing_once("500 Broken", &reply).await;
        let limit = Cost::new(worst + 100, Currency::USD);
        let error = agent(&server).ask("Hello").limits(|l| l.max_cost(limit)).await.unwrap_err();
        assert!(
            matches!(error.kind(), RunErrorKind::MaxCost { spent, .. } if spent.micros() == worst),
            "{error}"
        );
        assert_eq!(server.requests().len(), 1);
        let answer =
            agent(&server).resume(error.into_run()).limits(|l| l.max_cost(Cost::usd(1.0))).await.unwrap();
        assert_eq!(answer.cost().unwrap().micros(), worst + actual);
    }
}
