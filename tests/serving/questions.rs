//! Questions of an agent's tools, which the caller answers as results of the function `ask_user`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tool_core::agent::{AgentBuilder, on_question};
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Asker, Question};
use tool_core::{Agent, ToolError, tool, tools};
use tool_openai::server::Server;

use crate::caller::{Answer, Caller};

const CHAT: &str = "chat/completions";
const RESPONSES: &str = "responses";
const NOBODY: &str = "the tool has to ask the user, and nobody can be asked here";

#[tool("Orders a drink")]
async fn order(#[inject] user: &Asker) -> Result<String, ToolError> {
    let size: String = user.ask("Which size?").choices(["small", "large"]).default("small").await?;
    Ok(format!("a {size} one"))
}

#[tool("Books seats")]
async fn book(#[inject] user: &Asker) -> Result<String, ToolError> {
    let count: u8 = user.ask("How many seats?").await?;
    Ok(format!("{count} seats"))
}

#[tool("Books a table")]
async fn reserve(#[inject] user: &Asker) -> Result<String, ToolError> {
    let (name, day) = tokio::join!(user.ask::<String>("Whose name?"), user.ask::<String>("Which day?"));
    Ok(format!("{} on {}", name?, day?))
}

#[tool("Logs in")]
async fn log_in(#[inject] user: &Asker) -> Result<String, ToolError> {
    Ok(user.ask::<String>("Password?").secret().await?)
}

#[tool("Asks for a moment")]
async fn hurry(millis: u64, #[inject] user: &Asker) -> Result<String, ToolError> {
    Ok(user.ask::<String>("Now?").expires(Duration::from_millis(millis)).await?)
}

#[tool("Pays", needs_approval)]
fn pay() {}

fn agent(model: &ScriptedModel) -> AgentBuilder {
    Agent::builder(model.clone()).tools(tools![order, book, reserve, log_in, hurry, pay])
}

async fn serve(agent: AgentBuilder) -> Caller {
    Caller::new(Server::new().agent("agent", agent.build().unwrap())).await
}

/// Returns a question of the user, from a caller that has the function.
fn request(api: &str) -> Value {
    let function = |name: &str| match api {
        CHAT => json!({ "type": "function", "function": { "name": name } }),
        _ => json!({ "type": "function", "name": name }),
    };
    let list = if api == CHAT { "messages" } else { "input" };
    let tools = [function("ask_user"), function("locate")];
    json!({ "model": "agent", list: [{ "role": "user", "content": "Go" }], "tools": tools })
}

/// A call of the function that the caller received.
#[derive(Clone, Debug)]
struct Call {
    id: String,
    name: String,
    arguments: Value,
}

fn call(id: &Value, function: &Value) -> Call {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let arguments = serde_json::from_str(&text(&function["arguments"])).unwrap();
    Call { id: text(id), name: text(&function["name"]), arguments }
}

/// Sends a request, and returns the text and the calls of the reply.
async fn ask(caller: &Caller, api: &str, body: &Value, is_streamed: bool) -> (String, Vec<Call>, Value) {
    if api == CHAT {
        let reply = if is_streamed {
            let (mut text, mut calls) = (String::new(), Vec::<Value>::new());
            for chunk in caller.events(api, body).await {
                let delta = &chunk["choices"][0]["delta"];
                text += delta["content"].as_str().unwrap_or_default();
                for call in delta["tool_calls"].as_array().into_iter().flatten() {
                    match call["id"].is_string() {
                        true => calls.push(call.clone()),
                        false => {
                            let function = &mut calls.last_mut().unwrap()["function"];
                            let more = call["function"]["arguments"].as_str().unwrap();
                            function["arguments"] =
                                json!(function["arguments"].as_str().unwrap().to_owned() + more);
                        }
                    }
                }
            }
            json!({ "content": text, "tool_calls": calls })
        } else {
            caller.ask(api, body).await["choices"][0]["message"].take()
        };
        let calls = reply["tool_calls"].as_array().into_iter().flatten();
        let calls = calls.map(|one| call(&one["id"], &one["function"])).collect();
        return (reply["content"].as_str().unwrap_or_default().to_owned(), calls, Value::Null);
    }
    let response = match is_streamed {
        true => caller.events(api, body).await.pop().unwrap()["response"].take(),
        false => caller.ask(api, body).await,
    };
    let (mut text, mut calls) = (String::new(), Vec::new());
    for item in response["output"].as_array().unwrap() {
        match item["type"].as_str().unwrap() {
            "message" => text += item["content"][0]["text"].as_str().unwrap(),
            _ => calls.push(call(&item["call_id"], item)),
        }
    }
    (text, calls, response["id"].clone())
}

/// Returns the request that sends results for the calls of a reply.
fn results(api: &str, request: &Value, calls: &[Call], results: &[&str]) -> Value {
    let mut next = request.clone();
    let sent = calls.iter().zip(results);
    if api == CHAT {
        let calls = calls.iter().map(|call| {
            let function = json!({ "name": call.name, "arguments": call.arguments.to_string() });
            json!({ "id": call.id, "type": "function", "function": function })
        });
        let reply = json!({ "role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>() });
        let messages = next["messages"].as_array_mut().unwrap();
        messages.push(reply);
        messages.extend(
            sent.map(|(call, text)| json!({ "role": "tool", "tool_call_id": call.id, "content": text })),
        );
        return next;
    }
    let outputs = sent
        .map(|(call, text)| json!({ "type": "function_call_output", "call_id": call.id, "output": text }));
    next["input"] = outputs.collect();
    next
}

fn error(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.body["error"]["code"].as_str().unwrap_or_default())
}

fn read(model: &ScriptedModel, number: usize) -> Vec<String> {
    model.requests()[number].iter().map(|message| message.text().into_owned()).collect()
}

#[tokio::test]
async fn the_caller_answers_a_question() {
    for (api, is_streamed) in [CHAT, RESPONSES].into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let model = ScriptedModel::new().calls("order", "{}").says("Here it is.");
        let caller = serve(agent(&model)).await;
        let request = request(api);
        let (text, calls, id) = ask(&caller, api, &request, is_streamed).await;
        assert_eq!((&*text, calls.len(), &*calls[0].name), ("", 1, "ask_user"), "{api}");
        let arguments = json!({
            "question": "Which size?",
            "schema": { "type": "string" },
            "choices": ["small", "large"],
            "default": "small",
        });
        assert_eq!(calls[0].arguments, arguments, "{api}");
        let mut next = results(api, &request, &calls, &["large"]);
        if api == RESPONSES {
            next["previous_response_id"] = id;
        }
        for _ in 0..2 {
            // A repeated request receives the same answer.
            assert_eq!(ask(&caller, api, &next, is_streamed).await.0, "Here it is.", "{api}");
        }
        assert_eq!(read(&model, 1), ["Go", "", "a large one"], "{api}: the model does not see the question");
        assert_eq!(model.requests().len(), 2, "{api}");
    }
}

/// A Responses API caller needs no declaration: a stored response can be continued. The form of its calls is documented.
#[tokio::test]
async fn only_a_caller_that_can_continue_is_asked() {
    let undeclared = |api: &str| {
        let mut request = request(api);
        request.as_object_mut().unwrap().remove("tools");
        request
    };
    let with = |mut request: Value, field: &str, value: Value| {
        request[field] = value;
        request
    };
    let table = [
        (CHAT, request(CHAT), true),
        (CHAT, undeclared(CHAT), false),
        (CHAT, with(request(CHAT), "tool_choice", json!("none")), false),
        (RESPONSES, undeclared(RESPONSES), true),
        (RESPONSES, with(undeclared(RESPONSES), "store", json!(false)), false),
        (RESPONSES, with(request(RESPONSES), "store", json!(false)), true),
        (RESPONSES, with(undeclared(RESPONSES), "tool_choice", json!("none")), false),
    ];
    for (api, request, is_asked) in table {
        let model = ScriptedModel::new().calls("book", "{}").says("Done.");
        let caller = serve(agent(&model)).await;
        let (text, calls, _) = ask(&caller, api, &request, false).await;
        let expected = if is_asked { ("", 1) } else { ("Done.", 0) };
        assert_eq!((&*text, calls.len()), expected, "{request}");
        assert_eq!(is_asked, model.requests().len() == 1, "{request}");
        assert!(is_asked || read(&model, 1).last().unwrap() == NOBODY, "{request}");
    }
}

#[tokio::test]
async fn a_wrong_answer_is_refused_or_asked_for_again() {
    for api in [CHAT, RESPONSES] {
        let model = ScriptedModel::new().calls("order", "{}").calls("book", "{}").says("Done.");
        let caller = serve(agent(&model)).await;
        let first = request(api);
        let (_, calls, mut id) = ask(&caller, api, &first, false).await;
        let answer = |request: &Value, calls: &[Call], id: &Value, text: &str| {
            let mut next = results(api, request, calls, &[text]);
            if api == RESPONSES {
                next["previous_response_id"] = id.clone();
            }
            next
        };
        // Not one of the choices: the run still waits.
        for text in ["huge", "3", "\"huge\""] {
            let refused = caller.post(api, &answer(&first, &calls, &id, text)).await;
            assert_eq!(error(&refused), (400, "invalid_answer"), "{api}: {text}");
            let expected = "the answer is not valid: not one of the choices: \"small\", \"large\"";
            assert_eq!(refused.body["error"]["message"], expected, "{api}");
        }
        // Of another type: the tool asks again.
        let mut request = answer(&first, &calls, &id, "\"large\"");
        let mut calls;
        (_, calls, id) = ask(&caller, api, &request, false).await;
        for text in ["many", "-1", "{}"] {
            assert!(calls[0].arguments["question"] == "How many seats?", "{calls:?}");
            request = answer(&request, &calls, &id, text);
            (_, calls, id) = ask(&caller, api, &request, false).await;
            assert!(calls[0].arguments["problem"].is_string(), "{calls:?}");
        }
        request = answer(&request, &calls, &id, "3");
        assert_eq!(ask(&caller, api, &request, false).await.0, "Done.");
        assert_eq!(read(&model, 2), ["Go", "", "a large one", "", "3 seats"]);
    }
}

#[tokio::test]
async fn an_empty_answer_declines() {
    let model = ScriptedModel::new().calls("book", "{}").says("Done.");
    let caller = serve(agent(&model)).await;
    let (_, calls, _) = ask(&caller, CHAT, &request(CHAT), false).await;
    ask(&caller, CHAT, &results(CHAT, &request(CHAT), &calls, &[""]), false).await;
    assert_eq!(read(&model, 1).last().unwrap(), "the user declined to answer");
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_ignored() {
    // On a slow machine, a question can expire before the caller receives it.
    let mut has_reached_the_caller = false;
    for millis in [20, 200, 2000, 20_000] {
        let model = ScriptedModel::new().calls("hurry", format!(r#"{{"millis": {millis}}}"#)).says("Done.");
        let caller = serve(agent(&model)).await;
        let (_, calls, _) = ask(&caller, CHAT, &request(CHAT), false).await;
        if !calls.is_empty() {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            ask(&caller, CHAT, &results(CHAT, &request(CHAT), &calls, &["yes"]), false).await;
        }
        assert_eq!(read(&model, 1).last().unwrap(), "the question to the user expired without an answer");
        has_reached_the_caller = !calls.is_empty();
        if has_reached_the_caller {
            break;
        }
    }
    assert!(has_reached_the_caller);
}

#[tokio::test]
async fn a_question_is_answered_once() {
    let model = ScriptedModel::new().calls("order", "{}").says("Done.").says("Next.");
    let caller = serve(agent(&model)).await;
    let (_, calls, _) = ask(&caller, CHAT, &request(CHAT), false).await;
    let answered = results(CHAT, &request(CHAT), &calls, &["large"]);
    assert_eq!(ask(&caller, CHAT, &answered, false).await.0, "Done.");
    let other = caller.post(CHAT, &results(CHAT, &request(CHAT), &calls, &["small"])).await;
    assert_eq!(error(&other), (409, "question_closed"));
    let expected = format!(
        "the question `{}` is not open: it was answered before, has expired, or the conversation was changed; add a user message to \
         continue",
        calls[0].id
    );
    assert_eq!(other.body["error"]["message"], expected);
    // The conversation goes on without the question.
    let mut next = answered;
    let messages = next["messages"].as_array_mut().unwrap();
    messages.extend([
        json!({ "role": "assistant", "content": "Done." }),
        json!({ "role": "user", "content": "Thanks" }),
    ]);
    assert_eq!(ask(&caller, CHAT, &next, false).await.0, "Next.");
    assert_eq!(read(&model, 2), ["Go", "Done.", "Thanks"]);
}

#[tokio::test]
async fn nobody_else_answers_a_question() {
    let server = |model: &ScriptedModel| {
        let server = Server::new().agent("agent", agent(model).build().unwrap());
        server.api_key("sk-owner").api_key("sk-other")
    };
    let post = async |caller: &Caller, key: &str, api: &str, body: &Value| {
        caller.send(caller.request(api, body).bearer_auth(key), api).await
    };
    for api in [CHAT, RESPONSES] {
        let model = ScriptedModel::new().calls("order", "{}").says("Done.");
        let caller = Caller::new(server(&model)).await;
        let first = post(&caller, "sk-owner", api, &request(api)).await.body;
        let calls = match api {
            CHAT => {
                let one = &first["choices"][0]["message"]["tool_calls"][0];
                vec![call(&one["id"], &one["function"])]
            }
            _ => vec![call(&first["output"][0]["call_id"], &first["output"][0])],
        };
        let mut answer = results(api, &request(api), &calls, &["large"]);
        answer["previous_response_id"] = first["id"].clone();
        let foreign = post(&caller, "sk-other", api, &answer).await;
        let expected = if api == CHAT { (409, "question_closed") } else { (404, "response_not_found") };
        assert_eq!(error(&foreign), expected, "{api}");
        let forged = [Call { id: "ask_1".into(), ..calls[0].clone() }];
        let mut forged = results(api, &request(api), &forged, &["large"]);
        forged["previous_response_id"] = first["id"].clone();
        let refused = post(&caller, "sk-owner", api, &forged).await;
        assert_eq!(error(&refused), if api == CHAT { (409, "question_closed") } else { (400, "") }, "{api}");
        // Another question before it is another conversation.
        if api == CHAT {
            let mut changed = answer.clone();
            changed["messages"][0]["content"] = json!("Stop");
            assert_eq!(error(&post(&caller, "sk-owner", api, &changed).await), (409, "question_closed"));
        }
        assert_eq!(model.requests().len(), 1, "{api}");
        assert_eq!(post(&caller, "sk-owner", api, &answer).await.status, 200, "{api}");
        assert_eq!(read(&model, 1).last().unwrap(), "a large one", "{api}");
    }
}

#[tokio::test]
async fn waiting_runs_are_bounded() {
    let model = (0..3).fold(ScriptedModel::new(), |model, _| model.calls("order", "{}")).says("Done.");
    let server = Server::new().agent("agent", agent(&model).build().unwrap()).max_stored_entries(2);
    let caller = Caller::new(server).await;
    let mut answers = Vec::new();
    for _ in 0..3 {
        let (_, calls, _) = ask(&caller, CHAT, &request(CHAT), false).await;
        answers.push(results(CHAT, &request(CHAT), &calls, &["large"]));
    }
    assert_eq!(error(&caller.post(CHAT, &answers[0]).await), (409, "question_closed"));
    assert_eq!(ask(&caller, CHAT, &answers[2], false).await.0, "Done.");
}

/// Secrets would be part of the caller's conversation, and approvals are the author's.
#[tokio::test]
async fn callers_are_asked_for_no_secrets_and_no_approvals() {
    for api in [CHAT, RESPONSES] {
        let model = ScriptedModel::new().calls_all([("log_in", "{}"), ("pay", "{}")]).says("Done.");
        let caller = serve(agent(&model)).await;
        assert_eq!(ask(&caller, api, &request(api), false).await.0, "Done.");
        let denied = "the call was denied: no one is available to approve it";
        assert_eq!(read(&model, 1)[2..], [NOBODY, denied], "{api}");
    }
}

#[tokio::test]
async fn several_questions_and_calls_of_the_caller_are_in_one_reply() {
    for (api, is_streamed) in [(CHAT, false), (RESPONSES, true)] {
        let model = ScriptedModel::new()
            .calls_all([("reserve", "{}"), ("locate", "{}"), ("book", "{}")])
            .says("Done.");
        let caller = serve(agent(&model)).await;
        let request = request(api);
        let (_, calls, id) = ask(&caller, api, &request, is_streamed).await;
        let asked: Vec<_> =
            calls.iter().map(|call| (&*call.name, call.arguments["question"].as_str())).collect();
        let questions = ["Whose name?", "Which day?", "How many seats?"].map(|text| ("ask_user", Some(text)));
        assert_eq!(asked, [&[("locate", None)], &questions[..]].concat(), "{api}");
        let mut next = results(api, &request, &calls, &["Rome", "Ada", "Monday", "4"]);
        if api == RESPONSES {
            next["previous_response_id"] = id;
        }
        assert_eq!(ask(&caller, api, &next, is_streamed).await.0, "Done.", "{api}");
        assert_eq!(read(&model, 1)[2..], ["Ada on Monday", "Rome", "4 seats"], "{api}");
    }
}

#[tokio::test]
async fn the_agents_answerer_comes_first_and_agents_inside_ask_too() {
    let inner = ScriptedModel::new().calls("order", "{}").calls("book", "{}").says("Large, and 2 seats.");
    let clerk = agent(&inner).build().unwrap().as_tool("clerk", "Orders");
    let model = ScriptedModel::new().calls("clerk", r#"{"question": "Order"}"#).says("Done.");
    let answers = |question: &Question| match question.text() {
        "Which size?" => Decision::answer("large"),
        _ => Decision::defer(),
    };
    let caller = serve(Agent::builder(model.clone()).tools(clerk).decider(on_question(answers))).await;
    let (_, calls, _) = ask(&caller, CHAT, &request(CHAT), false).await;
    assert_eq!((calls.len(), &calls[0].arguments["question"]), (1, &json!("How many seats?")));
    let next = results(CHAT, &request(CHAT), &calls, &["2"]);
    assert_eq!(ask(&caller, CHAT, &next, false).await.0, "Done.");
    assert_eq!(read(&inner, 2)[2..], ["a large one", "", "2 seats"]);
}

#[derive(Clone, Default)]
struct Payments {
    count: Arc<AtomicUsize>,
    started: Arc<Notify>,
}

#[tool("Pays what the user says", at_most_once)]
async fn pay_amount(#[inject] user: &Asker, #[inject] payments: &Payments) -> Result<(), ToolError> {
    let _: u32 = user.ask("How much?").await?;
    payments.count.fetch_add(1, Ordering::SeqCst);
    payments.started.notify_one();
    std::future::pending().await
}

/// The attempt that asked continues with the answer, so a repeated request must not execute it again.
#[tokio::test]
async fn a_call_that_continues_with_an_answer_is_not_repeated_after_a_disconnect() {
    let payments = Payments::default();
    let model = ScriptedModel::new().calls("pay_amount", "{}").says("Let us see.");
    let caller = serve(Agent::builder(model).tools(tools![pay_amount]).context(payments.clone())).await;
    let (_, calls, _) = ask(&caller, CHAT, &request(CHAT), false).await;
    let next = results(CHAT, &request(CHAT), &calls, &["5"]);
    let sent = caller.request(CHAT, &next).send();
    let started = tokio::time::timeout(Duration::from_secs(120), payments.started.notified());
    tokio::select! {
        _ = sent => panic!("the payment does not end"),
        started = started => started.unwrap(),
    }
    // The server drops the request once it notices.
    let repeated = loop {
        let repeated = tokio::time::timeout(Duration::from_millis(200), caller.post(CHAT, &next)).await;
        if let Ok(repeated) = repeated {
            break repeated;
        }
    };
    assert_eq!(error(&repeated), (409, "outcome_unknown"));
    assert_eq!(payments.count.load(Ordering::SeqCst), 1);
}
