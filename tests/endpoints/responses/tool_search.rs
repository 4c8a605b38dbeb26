//! The search of the provider for deferred tools: what is sent, and that its items are sent back as they came.

use serde_json::{Value, json};
use tests::support::RawServer;
use tests::support::deciding::{Decide, Waiting};
use tests::support::ways::restored;
use tool_core::agent::{AgentBuilder, ToolSearch};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ToolDefinition};
use tool_core::provider::ToolDefinitions;
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, FunctionTool, Message, RunErrorKind, ToolCall, ToolSet, tool, tools};
use tool_openai::{Endpoint, ErrorKind, OpenAi, Responses};

use super::endpoint::{bodies, event_stream, input, json_answer, model, model_of};
use super::runs::{WAYS, Way, call, reasoning, reply, sent, server, text_message};

/// Returns the time of high tide.
#[tool]
fn get_tide(port: String) -> String {
    format!("{port}: at six")
}

/// Books a berth.
#[tool(needs_approval)]
fn book(port: String) -> String {
    format!("booked at {port}")
}

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

fn agent(model: Responses) -> AgentBuilder {
    let search = ToolSearch::by_provider().min_tools(1).always_offer(tools![sum]);
    Agent::builder(model).tools(tools![sum, get_tide, book]).tool_search(search)
}

/// Returns the items of a search in the form of the API, with numbers that a parser can change.
fn search(id: &str, name: &str) -> [Value; 2] {
    let tool = json!({ "type": "function", "defer_loading": true, "description": null, "name": name, "strict": false,
        "parameters": { "type": "object", "properties": { "port": { "type": "string" } }, "maximum": 1.50 } });
    [
        json!({ "id": format!("tsc_{id}"), "type": "tool_search_call", "status": "completed",
            "arguments": { "paths": [name] }, "call_id": null, "execution": "server" }),
        json!({ "id": format!("tso_{id}"), "type": "tool_search_output", "status": "completed",
            "call_id": null, "execution": "server", "tools": [tool] }),
    ]
}

/// Returns a call of a tool that was found.
fn found_call(id: &str, name: &str, arguments: &str) -> Value {
    let mut call = call(id, name, arguments);
    call["namespace"] = json!(name);
    call
}

/// Returns two turns with searches, and an answer.
fn turns() -> [Vec<Value>; 3] {
    let ([call_1, output_1], [call_2, output_2]) = (search("1", "get_tide"), search("2", "book"));
    let port = r#"{"port":"Cork"}"#;
    [
        vec![reasoning("rs_1"), call_1, output_1, found_call("call_a", "get_tide", port)],
        vec![call_2, output_2, text_message("It fits.", "commentary"), found_call("call_b", "book", port)],
        vec![text_message("Booked.", "final_answer")],
    ]
}

fn tools_of(body: &str) -> Value {
    serde_json::from_str::<Value>(body).unwrap()["tools"].take()
}

/// Returns the names of the tools of a body, deferred ones in brackets.
fn offered(body: &str) -> Vec<String> {
    let tools = tools_of(body);
    let name = |tool: &Value| {
        let name = tool["name"].as_str().unwrap_or_else(|| tool["type"].as_str().unwrap());
        if tool["defer_loading"] == true { format!("({name})") } else { name.to_owned() }
    };
    tools.as_array().unwrap().iter().map(name).collect()
}

#[tokio::test]
async fn searches_are_sent_back_as_they_came() {
    let [first, second, _] = turns();
    let texts = |items: &[Value]| items.iter().map(Value::to_string).collect::<Vec<_>>();
    for way in WAYS {
        // The call that was found awaits approval, for which the run is stored and resumed. The approver changes the arguments.
        let (answer, bodies) = sent(&turns(), way, agent).await;
        assert_eq!(answer.text(), "Booked.", "{way:?}");
        let outputs: Vec<_> =
            answer.tool_executions().iter().map(|one| one.output().unwrap().to_string()).collect();
        assert_eq!(outputs, ["Cork: at six", "booked at Kinsale"], "{way:?}");
        let items = input(&bodies[2]);
        let mut approved = second[3].clone();
        approved["arguments"] = json!(r#"{"port": "Kinsale"}"#);
        assert_eq!(texts(&items[1..5]), texts(&first), "{way:?}");
        assert_eq!(items[5]["output"], "Cork: at six", "{way:?}");
        assert_eq!(texts(&items[6..9]), texts(&second[..3]), "{way:?}");
        assert_eq!(items[9].to_string(), approved.to_string(), "{way:?}");
        for pair in bodies.windows(2) {
            let end = pair[0].rfind(']').unwrap();
            assert!(pair[1].starts_with(&pair[0][..end]), "{way:?}: {}\n{}", pair[0], pair[1]);
        }
    }
}

#[tokio::test]
async fn deferred_tools_are_sent_with_a_search() {
    let (_, bodies) = sent(&turns()[2..], Way::Awaited, agent).await;
    let parameters = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let port = parameters(json!({ "port": { "type": "string" } }), json!(["port"]));
    let numbers =
        parameters(json!({ "a": { "type": "number" }, "b": { "type": "number" } }), json!(["a", "b"]));
    let expected = json!([
        { "type": "function", "name": "sum", "description": "Sums two numbers.", "parameters": numbers, "strict": false },
        { "type": "function", "name": "get_tide", "description": "Returns the time of high tide.", "parameters": port,
            "strict": false, "defer_loading": true },
        { "type": "function", "name": "book", "description": "Books a berth.", "parameters": port, "strict": false,
            "defer_loading": true },
        { "type": "tool_search" },
    ]);
    assert_eq!(tools_of(&bodies[0]), expected);
    // Without a search of the agent, deferred tools are offered like all others, and no search without deferred ones.
    let deferred = |model| Agent::builder(model).tools(tools![sum, get_tide].deferred());
    let all = |model| {
        let search = ToolSearch::by_provider().always_offer(tools![sum, get_tide]);
        Agent::builder(model).tools(tools![sum, get_tide]).tool_search(search)
    };
    for build in [deferred, all] {
        let (_, bodies) = sent(&turns()[2..], Way::Awaited, build).await;
        assert_eq!(offered(&bodies[0]), ["sum", "get_tide"]);
    }
}

/// As the API streams it: the items start as unfinished ones.
#[tokio::test]
async fn reads_streamed_searches() {
    let [items, ..] = turns();
    let mut events = Vec::new();
    let mut push = |event: Value| events.extend_from_slice(format!("data: {event}\n\n").as_bytes());
    for (index, item) in items.iter().enumerate() {
        let mut started = item.clone();
        started["status"] = json!("in_progress");
        let arguments = if item["type"] == "function_call" { json!("") } else { json!({}) };
        started["arguments"] = arguments;
        push(json!({ "type": "response.output_item.added", "output_index": index, "item": started }));
        push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
    }
    push(
        json!({ "type": "response.completed", "response": { "id": "r", "status": "completed", "output": items } }),
    );
    let last = reply(&turns()[2], true);
    let server = RawServer::answering_in_turn(vec![event_stream(&events), last]).await;
    let agent = agent(model(&server)).build().unwrap();
    let mut stream = agent.ask("When?").stream();
    let mut announced = Vec::new();
    while let Some(event) = stream.next().await {
        if let tool_core::Event::CallAnnounced { name, .. } = event.unwrap() {
            announced.push(name);
        }
    }
    // The provider's search is no call of the run.
    assert_eq!(announced, ["get_tide"]);
    let sent = input(&bodies(&server)[1]);
    assert_eq!(json!(sent[1..5]).to_string(), json!(items).to_string());
}

#[tokio::test]
async fn a_stored_run_has_the_items_of_its_searches() {
    let turns = turns();
    let first = server(&turns[..2], false).await;
    let error = agent(model(&first)).build().unwrap().ask("When?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    let mut run = restored(error.into_run());
    let waiting: Vec<_> = run.approvals().map(|call| call.id).collect();
    run.decide_call(&waiting[0], Decision::approve()).unwrap();
    // Another process.
    let second = server(&turns[2..], false).await;
    let answer = agent(model(&second)).build().unwrap().resume(restored(run)).await.unwrap();
    let items = input(&bodies(&second)[0]);
    let of_searches: Vec<_> =
        items.iter().filter(|item| item["type"].as_str().unwrap().starts_with("tool_search_")).collect();
    let expected = [&turns[0][1], &turns[0][2], &turns[1][0], &turns[1][1]];
    assert_eq!(json!(of_searches).to_string(), json!(expected).to_string());
    // The next question of the conversation has them, too.
    let third = server(&turns[2..], false).await;
    agent(model(&third)).build().unwrap().ask("Sure?").history(answer.new_messages().to_vec()).await.unwrap();
    assert_eq!(json!(input(&bodies(&third)[0])[..10]), json!(items[..10]));
}

/// The provider rejects a call without a namespace of a tool that it has found in one.
#[tokio::test]
async fn tools_that_were_called_without_a_namespace_are_not_deferred() {
    let [found, ..] = turns();
    let before = call("call_x", "get_tide", r#"{"port":"Brest"}"#);
    let message = AssistantMessage::default().with_tool_calls([ToolCall::new("x", "get_tide", "{}")]);
    let of_other_model = {
        let model = ScriptedModel::new().replies(ChatResponse::new(message)).says("Six.");
        let agent = Agent::builder(model).tools(tools![get_tide]).build().unwrap();
        agent.ask("When?").await.unwrap().new_messages().to_vec()
    };
    let of_this_model = {
        let all = |model| Agent::builder(model).tools(tools![get_tide]);
        let turns = [vec![before], turns()[2].clone()];
        sent(&turns, Way::Awaited, all).await.0.new_messages().to_vec()
    };
    for history in [of_other_model, of_this_model] {
        let server = server(&[found.clone(), turns()[2].clone()], false).await;
        let agent = agent(model(&server)).build().unwrap();
        agent.ask("When?").history(history.clone()).await.unwrap();
        let bodies = bodies(&server);
        let expected = ["sum", "get_tide", "(book)", "tool_search"];
        assert_eq!([offered(&bodies[0]), offered(&bodies[1])], [expected, expected]);
        assert!(bodies[1].starts_with(&bodies[0][..bodies[0].rfind(']').unwrap()]));
        // A search needs a deferred tool.
        let server = self::server(&turns()[2..], false).await;
        let search = ToolSearch::by_provider().min_tools(1);
        let agent = Agent::builder(model(&server)).tools(tools![get_tide]).tool_search(search).build();
        agent.unwrap().ask("When?").history(history).await.unwrap();
        assert_eq!(offered(&self::bodies(&server)[0]), ["get_tide"]);
    }
}

fn many(count: usize) -> ToolSet {
    let tools = (0..count).map(|number| FunctionTool::new(format!("tool_{number}"), || "done"));
    tools.fold(ToolSet::default(), |set, tool| set.with(tool.description("Does it")).unwrap())
}

#[tokio::test]
async fn endpoints_without_a_search_leave_it_to_the_agent() {
    let mut switched_off = Endpoint::openai();
    switched_off.supports_tool_search = false;
    let table = [
        (Endpoint::openai(), 127, true),
        // The search counts as a tool.
        (Endpoint::openai(), 128, false),
        (Endpoint::azure("mine"), 3, true),
        (Endpoint::azure_deployments("mine", "2025-04-01-preview"), 3, false),
        (Endpoint::compatible(), 3, false),
        (Endpoint::vllm(), 3, false),
        (switched_off, 3, false),
    ];
    for (endpoint, count, is_searched) in table {
        let name = format!("{:?} with {count} tools", endpoint.name);
        let model = OpenAi::builder().endpoint(endpoint).api_key("k").base_url("http://127.0.0.1:1/v1");
        assert_eq!(
            model.build().unwrap().responses_model("m").supports_tool_search(count),
            is_searched,
            "{name}"
        );
    }
    let openai = OpenAi::builder().api_key("k").build().unwrap();
    assert!(!openai.responses_model("gpt-4.1").supports_tool_search(3));
    assert!(!openai.chat_model("gpt-5.4").supports_tool_search(3));

    let server = server(&turns()[2..], false).await;
    let model = model_of(Endpoint::compatible(), &server);
    let search = ToolSearch::by_provider().min_tools(41).always_offer(["tool_7"]);
    let agent = Agent::builder(model).tools(many(50)).tool_search(search).build().unwrap();
    agent.ask("When?").await.unwrap();
    assert_eq!(offered(&bodies(&server)[0]), ["tool_7", "search_tools"]);
}

/// A caller that does not use an agent gets an error, because it does not expect all tools to be offered.
#[tokio::test]
async fn requests_with_a_search_fail_where_there_is_none() {
    let deferred = ToolDefinition::new("now").with_deferred(true);
    let request = |tool: ToolDefinition| {
        let tools = ToolDefinitions::from_iter([tool]);
        ChatRequest::new([Message::user("When?")]).with_tools(tools).with_tool_search(true)
    };
    let server = RawServer::answering_in_turn(vec![json_answer(&json!({ "output": [] }))]).await;
    let openai =
        OpenAi::builder().endpoint(Endpoint::compatible()).base_url(server.base_url()).build().unwrap();
    let models: [(Box<dyn ChatModel>, &str); 2] = [
        (
            Box::new(openai.chat_model("m")),
            "the Chat Completions API has no search for tools; use `OpenAi::responses_model`",
        ),
        (
            Box::new(openai.responses_model("m")),
            "the endpoint has no search for tools; set `Endpoint::supports_tool_search`",
        ),
    ];
    for (model, expected) in &models {
        let error = model.chat(&request(deferred.clone())).await.unwrap_err();
        let error = error.downcast_ref::<tool_openai::Error>().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    // Without deferred tools, there is nothing to search.
    models[1].0.chat(&request(ToolDefinition::new("now"))).await.unwrap();
    assert_eq!(offered(&bodies(&server)[0]), ["now"]);
}
