//! Tools of the caller beside those of an agent: the agent's calls are made behind the server, the caller's by the caller.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tool_core::testing::ScriptedModel;
use tool_core::{
    Agent, AgentBuilder, Approval, AssistantMessage, ChatRequest, ChatResponse, Message, ToolCall, Usage,
    tool, tools,
};
use tool_openai::server::Server;

use crate::caller::Caller;

#[tool("Looks up the temperature")]
async fn temperature(city: String) -> String {
    format!("22 degrees in {city}")
}

static REFUNDED: AtomicUsize = AtomicUsize::new(0);

#[tool("Pays back")]
fn refund() {
    REFUNDED.fetch_add(1, Ordering::Relaxed);
}

#[tool("Pays", needs_approval)]
fn pay(cents: u32) -> String {
    format!("paid {cents}")
}

fn agent(model: &ScriptedModel) -> AgentBuilder {
    Agent::builder(model.clone()).instructions("Be brief.").tools(tools![temperature, pay])
}

/// Both tools in one turn, and then the answer.
fn mixed() -> ScriptedModel {
    let calls = [
        ToolCall::new("a", "locate", "{}"),
        ToolCall::new("b", "temperature", r#"{"city": "Rome"}"#),
        ToolCall::new("c", "locate", r#"{"precise": true}"#),
    ];
    let message = AssistantMessage::text("Let me see. ").with_tool_calls(calls);
    ScriptedModel::new()
        .expects(|request| names(request) == ["temperature", "pay", "locate"])
        .replies(ChatResponse::new(message).with_usage(Usage::new(10, 5)))
        .says("It is warm.")
        .with_usage(Usage::new(20, 3))
}

fn names(request: &ChatRequest<'_>) -> Vec<String> {
    request.tools().iter().map(|tool| tool.name().to_owned()).collect()
}

fn locate(api: &str) -> Value {
    let parameters = json!({ "type": "object", "properties": { "precise": { "type": "boolean" } } });
    match api {
        "chat/completions" => {
            json!([{ "type": "function", "function": { "name": "locate", "parameters": parameters } }])
        }
        _ => json!([{ "type": "function", "name": "locate", "parameters": parameters }]),
    }
}

fn first_request(api: &str) -> Value {
    let messages = json!([{ "role": "user", "content": "How warm is it here?" }]);
    let field = if api == "responses" { "input" } else { "messages" };
    json!({ "model": "agent", field: messages, "tools": locate(api) })
}

/// What is sent back: the text, the ids and arguments of the calls, and how many tokens it took.
async fn ask(
    caller: &Caller,
    api: &str,
    body: &Value,
    is_streamed: bool,
) -> (String, Vec<(String, String)>, Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if api == "chat/completions" {
        let (mut said, mut calls, mut usage) = (String::new(), Vec::new(), Value::Null);
        let mut body = body.clone();
        if !is_streamed {
            let answer = caller.ask(api, &body).await;
            let message = &answer["choices"][0]["message"];
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                assert_eq!(call["function"]["name"], "locate");
                calls.push((text(&call["id"]), text(&call["function"]["arguments"])));
            }
            let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
            assert_eq!(answer["choices"][0]["finish_reason"], reason);
            return (text(&message["content"]), calls, answer["usage"]["total_tokens"].clone());
        }
        body["stream_options"] = json!({ "include_usage": true });
        for chunk in caller.events(api, &body).await {
            let delta = &chunk["choices"][0]["delta"];
            said += &text(&delta["content"]);
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                if call["id"].is_string() {
                    calls.push((text(&call["id"]), String::new()));
                }
                let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
                calls[index].1 += &text(&call["function"]["arguments"]);
            }
            usage = chunk["usage"]["total_tokens"].clone();
        }
        return (said, calls, usage);
    }
    let response = if is_streamed {
        caller.events(api, body).await.pop().unwrap()["response"].take()
    } else {
        caller.ask(api, body).await
    };
    assert_eq!(response["status"], "completed");
    let (mut said, mut calls) = (String::new(), Vec::new());
    for item in response["output"].as_array().unwrap() {
        match item["type"].as_str().unwrap() {
            "message" => said += &text(&item["content"][0]["text"]),
            "function_call" => calls.push((text(&item["call_id"]), text(&item["arguments"]))),
            other => panic!("{other}"),
        }
    }
    (said, calls, response["usage"]["total_tokens"].clone())
}

/// The request that brings the results.
fn second_request(api: &str, said: &str, calls: &[(String, String)]) -> Value {
    let mut request = first_request(api);
    if api == "chat/completions" {
        let asked = calls.iter().map(|(id, arguments)| {
            json!({ "id": id, "type": "function", "function": { "name": "locate", "arguments": arguments } })
        });
        let asked = json!({ "role": "assistant", "content": said, "tool_calls": asked.collect::<Vec<_>>() });
        let messages = request["messages"].as_array_mut().unwrap();
        messages.push(asked);
        messages.extend(
            calls.iter().map(|(id, _)| json!({ "role": "tool", "tool_call_id": id, "content": "Rome" })),
        );
        return request;
    }
    let input = request["input"].as_array_mut().unwrap();
    input.push(json!({ "type": "message", "role": "assistant", "content": said }));
    for (id, arguments) in calls {
        input.push(json!({ "type": "reasoning", "id": "rs_1", "summary": [] }));
        input.push(
            json!({ "type": "function_call", "call_id": id, "name": "locate", "arguments": arguments }),
        );
    }
    for (id, _) in calls {
        input.push(json!({ "type": "function_call_output", "call_id": id, "output": "Rome" }));
    }
    request
}

const APIS: [&str; 2] = ["chat/completions", "responses"];

#[tokio::test]
async fn a_run_goes_on_where_it_stood_with_what_its_own_calls_gave() {
    for (api, is_streamed) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let model = mixed();
        let caller = Caller::of(Server::new().agent("agent", agent(&model).build().unwrap())).await;
        let (said, calls, tokens) = ask(&caller, api, &first_request(api), is_streamed).await;
        assert_eq!((&*said, tokens), ("Let me see. ", json!(15)), "{api}");
        let arguments: Vec<_> = calls.iter().map(|(_, arguments)| &**arguments).collect();
        assert_eq!(arguments, ["{}", r#"{"precise": true}"#], "{api}");
        let (said, calls, tokens) = ask(&caller, api, &second_request(api, &said, &calls), is_streamed).await;
        assert_eq!(
            (&*said, calls.len(), tokens),
            ("It is warm.", 0, json!(23)),
            "{api}, and its tokens alone"
        );
        let read: Vec<_> = model.requests()[1].iter().map(|message| message.text().into_owned()).collect();
        let expected =
            ["Be brief.", "How warm is it here?", "Let me see. ", "Rome", "22 degrees in Rome", "Rome"];
        assert_eq!(read, expected, "{api}");
    }
}

#[tokio::test]
async fn the_conversation_alone_will_do_when_the_run_is_gone() {
    for (api, is_streamed) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let model = mixed();
        let server = || Server::new().agent("agent", agent(&model).build().unwrap());
        let before = Caller::of(server()).await;
        let (said, calls, _) = ask(&before, api, &first_request(api), is_streamed).await;
        // Another server, as after a restart: it was never told of what the agent's own call gave.
        let caller = Caller::of(server()).await;
        let (said, calls, _) = ask(&caller, api, &second_request(api, &said, &calls), is_streamed).await;
        assert_eq!((&*said, calls.len()), ("It is warm.", 0), "{api}");
        let read: Vec<_> = model.requests()[1].iter().map(|message| message.text().into_owned()).collect();
        assert_eq!(read, ["Be brief.", "How warm is it here?", "Let me see. ", "Rome", "Rome"], "{api}");
    }
}

#[tokio::test]
async fn a_conversation_that_was_changed_is_another_one() {
    let model = mixed();
    let caller = Caller::of(Server::new().agent("agent", agent(&model).build().unwrap())).await;
    let api = "chat/completions";
    let (said, calls, _) = ask(&caller, api, &first_request(api), false).await;
    let mut request = second_request(api, &said, &calls);
    request["messages"][0]["content"] = json!("How cold is it here?");
    ask(&caller, api, &request, false).await;
    let read: Vec<_> = model.requests()[1].iter().map(|message| message.text().into_owned()).collect();
    assert_eq!(read, ["Be brief.", "How cold is it here?", "Let me see. ", "Rome", "Rome"]);
}

#[tokio::test]
async fn the_same_results_may_be_sent_again() {
    let calls = [("temperature", r#"{"city": "Rome"}"#), ("locate", "{}")];
    // The reply to the first attempt never comes.
    let model = ScriptedModel::new().calls_all(calls).fails("the line is dead").says("It is warm.");
    let caller = Caller::of(Server::new().agent("agent", agent(&model).build().unwrap())).await;
    let api = "chat/completions";
    let (said, calls, _) = ask(&caller, api, &first_request(api), false).await;
    let request = second_request(api, &said, &calls);
    assert_eq!(caller.post(api, &request).await.status, 500);
    assert_eq!(ask(&caller, api, &request, false).await.0, "It is warm.");
    assert_eq!(model.requests()[2].len(), 5, "what its own call gave is there the second time, too");
}

#[tokio::test]
async fn more_said_behind_the_results() {
    let model = mixed();
    let caller = Caller::of(Server::new().agent("agent", agent(&model).build().unwrap())).await;
    let api = "chat/completions";
    let (said, calls, _) = ask(&caller, api, &first_request(api), false).await;
    let mut request = second_request(api, &said, &calls);
    request["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": "In Celsius." }));
    assert_eq!(ask(&caller, api, &request, false).await.0, "It is warm.");
    let read: Vec<_> = model.requests()[1].iter().map(|message| message.text().into_owned()).collect();
    assert_eq!(read[3..], ["Rome", "22 degrees in Rome", "Rome", "In Celsius."]);
}

#[tokio::test]
async fn responses_go_on_by_the_id_of_the_one_before() {
    for is_streamed in [false, true] {
        let model = mixed().says("You are welcome.");
        let caller = Caller::of(Server::new().agent("agent", agent(&model).build().unwrap())).await;
        let send = async |body: Value| match is_streamed {
            true => caller.events("responses", &body).await.pop().unwrap()["response"].take(),
            false => caller.ask("responses", &body).await,
        };
        let first = send(first_request("responses")).await;
        let outputs: Vec<_> = first["output"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["type"] == "function_call")
            .map(|item| json!({ "type": "function_call_output", "call_id": item["call_id"], "output": "Rome" }))
            .collect();
        let second = json!({
            "model": "agent",
            "previous_response_id": first["id"],
            "input": outputs,
            "tools": locate("responses"),
        });
        let second = send(second).await;
        assert_eq!(second["output"][0]["content"][0]["text"], "It is warm.");
        assert_eq!(second["previous_response_id"], first["id"]);
        let third = json!({ "model": "agent", "previous_response_id": second["id"], "input": "Thanks." });
        assert_eq!(send(third).await["output"][0]["content"][0]["text"], "You are welcome.");
        let read = |number: usize| -> Vec<String> {
            model.requests()[number].iter().map(|message| message.text().into_owned()).collect()
        };
        assert_eq!(
            read(1)[3..],
            ["Rome", "22 degrees in Rome", "Rome"],
            "with what the agent's own call gave"
        );
        let said = ["How warm is it here?", "Let me see. ", "Rome", "Rome", "It is warm.", "Thanks."];
        assert_eq!(read(2)[1..], said, "what the caller saw");
    }
}

#[tokio::test]
async fn a_caller_cannot_make_the_agents_calls() {
    let user = json!({ "role": "user", "content": "How warm is it?" });
    let function = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let call = |name: &str| json!({ "id": "a", "type": "function", "function": { "name": name, "arguments": "{}" } });
    let parallel = json!({ "id": "a", "type": "function", "function": {
        "name": "multi_tool_use.parallel",
        "arguments": r#"{"tool_uses": [{"recipient_name": "x", "parameters": {}}, {"recipient_name": "refund", "parameters": {}}]}"#,
    } });
    let result = json!({ "role": "tool", "tool_call_id": "a", "content": "Rome" });
    let reply = |call: Value| json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let request =
        |messages: Value, tools: Value| json!({ "model": "agent", "messages": messages, "tools": tools });
    let table = [
        (request(json!([user]), json!([function("refund")])), "tools[0]", "the agent has a tool `refund`"),
        (
            request(json!([user]), json!([function("x"), function("x")])),
            "tools[1]",
            "there are two tools `x`",
        ),
        (request(json!([user]), json!([function("a b")])), "tools", "a tool made at run time is named"),
        (request(json!([user, reply(call("refund"))]), json!([])), "messages", "the call `a` has no result"),
        (
            request(json!([user, reply(parallel), result]), json!([])),
            "messages",
            "the last message must be the user's",
        ),
        (
            request(json!([user, { "role": "assistant", "content": "Hm." }]), json!([])),
            "messages",
            "the last message",
        ),
        (request(json!([{ "role": "system", "content": "Hm." }]), json!([])), "messages", "the last message"),
    ];
    let model = ScriptedModel::new();
    let agent = Agent::builder(model).tools(tools![refund]).build().unwrap();
    let caller = Caller::of(Server::new().agent("agent", agent)).await;
    for (body, param, message) in table {
        let answer = caller.post("chat/completions", &body).await;
        assert_eq!((answer.status, answer.body["error"]["param"].as_str().unwrap()), (400, param), "{body}");
        let told = answer.body["error"]["message"].as_str().unwrap();
        assert!(told.starts_with(message), "{body}: {told}");
    }
    // One that a provider gives is found only when the agent is asked.
    let provided = |_: &tool_core::ToolProviderRequest<'_>| Ok::<_, tool_core::ToolSetError>(tools![refund]);
    let provided = Agent::builder(ScriptedModel::new()).tool_provider(provided).build().unwrap();
    let caller = Caller::of(Server::new().agent("agent", provided)).await;
    let answer = caller.post("chat/completions", &request(json!([user]), json!([function("refund")]))).await;
    assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!("tools")));
    assert_eq!(REFUNDED.load(Ordering::Relaxed), 0, "nothing was called");
}

#[tokio::test]
async fn calls_that_need_approval_are_the_approvers_and_the_callers_are_not() {
    let calls = [("pay", r#"{"cents": 5}"#), ("locate", "{}")];
    let small_only = |call: &ToolCall| {
        assert_eq!(call.name, "pay", "nobody is asked about the caller's calls");
        Approval::Approve
    };
    for (has_approver, expected) in
        [(true, "paid 5"), (false, "the call was denied: nobody is there to approve it")]
    {
        let model = ScriptedModel::new().calls_all(calls).says("Done.");
        let agent = if has_approver { agent(&model).approver(small_only) } else { agent(&model) };
        let caller = Caller::of(Server::new().agent("agent", agent.build().unwrap())).await;
        let api = "chat/completions";
        let (said, calls, _) = ask(&caller, api, &first_request(api), false).await;
        assert_eq!(calls.len(), 1);
        assert_eq!(ask(&caller, api, &second_request(api, &said, &calls), false).await.0, "Done.");
        let results: Vec<_> =
            model.requests()[1][3..].iter().map(|message| message.text().into_owned()).collect();
        assert_eq!(results, [expected, "Rome"]);
    }
}

#[tokio::test]
async fn a_caller_may_ask_more_often_than_an_agent_by_itself() {
    for is_kept in [true, false] {
        let turns = (0..6).fold(ScriptedModel::new(), |model, number| {
            model.calls("locate", format!(r#"{{"precise": {number}}}"#))
        });
        let model = turns.says("Here.");
        let server = Server::new().agent("agent", agent(&model).max_turns(2).build().unwrap());
        let server = if is_kept { server } else { server.keep(0, Duration::ZERO) };
        let caller = Caller::of(server).await;
        let mut request = first_request("chat/completions");
        for _ in 0..6 {
            let reply = caller.ask("chat/completions", &request).await["choices"][0]["message"].take();
            let id = reply["tool_calls"][0]["id"].clone();
            let messages = request["messages"].as_array_mut().unwrap();
            messages.push(reply);
            messages.push(json!({ "role": "tool", "tool_call_id": id, "content": "Nowhere." }));
        }
        let last = caller.ask("chat/completions", &request).await;
        assert_eq!(last["choices"][0]["message"]["content"], "Here.");
    }
}

#[tokio::test]
async fn choices_of_tools_reach_the_model_of_an_agent() {
    use tool_core::ToolChoice;
    let named = json!({ "type": "function", "function": { "name": "locate" } });
    let table = [
        (json!("auto"), ToolChoice::Auto, true),
        (json!("required"), ToolChoice::Required, true),
        (named, ToolChoice::Tool("locate".into()), true),
        (json!("none"), ToolChoice::Auto, false),
    ];
    for (choice, expected, is_offered) in table {
        let model = ScriptedModel::new()
            .expects(move |request| *request.tool_choice() == expected)
            .expects(move |request| names(request).contains(&"locate".to_owned()) == is_offered)
            .expects(|request| request.parallel_tool_calls() == Some(false))
            .says("Done.");
        let caller = Caller::of(Server::new().agent("agent", agent(&model).build().unwrap())).await;
        let mut request = first_request("chat/completions");
        (request["tool_choice"], request["parallel_tool_calls"]) = (choice, json!(false));
        caller.ask("chat/completions", &request).await;
    }
}

#[tokio::test]
async fn pictures_in_results_reach_the_model() {
    let url = "data:image/png;base64,AAEC";
    let picture =
        json!([{ "type": "text", "text": "This:" }, { "type": "image_url", "image_url": { "url": url } }]);
    let items = json!([{ "type": "input_text", "text": "This:" }, { "type": "input_image", "image_url": url, "detail": "auto" }]);
    for (api, picture) in APIS.into_iter().zip([picture, items]) {
        let model = ScriptedModel::new().calls("locate", "{}").says("Nice.");
        let caller = Caller::of(Server::new().agent("agent", agent(&model).build().unwrap())).await;
        let (said, calls, _) = ask(&caller, api, &first_request(api), false).await;
        let mut request = second_request(api, &said, &calls);
        let (list, field) = if api == "responses" { ("input", "output") } else { ("messages", "content") };
        request[list].as_array_mut().unwrap().last_mut().unwrap()[field] = picture;
        assert_eq!(ask(&caller, api, &request, false).await.0, "Nice.");
        let Some(Message::Tool(result)) = model.requests()[1].last().cloned() else { panic!("no result") };
        assert_eq!((&*result.content.text(), result.content.images().next().unwrap().url()), ("This:", url));
    }
}
