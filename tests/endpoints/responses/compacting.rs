//! Conversations that the provider compacts: <https://developers.openai.com/api/docs/guides/compaction>. The shape of the answers is that of
//! `types/responses/compacted_response.py` in the Python package `openai`.

use serde_json::{Value, json};
use tests::support::{RawServer, whole_answer};
use tool_anthropic::Anthropic;
use tool_core::agent::{AgentBuilder, Compaction};
use tool_core::model::{ChatRequest, Fallback, FinishReason};
use tool_core::run::Run;
use tool_core::signatures::CompactionRecord;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Answer, ChatModel, Message, ModelOptions, SqliteStore, tool, tools};
use tool_openai::{Endpoint, OpenAi};

use super::endpoint::{input, json_answer, model, model_of, streamed};
use super::runs::{call, reasoning, reply, text_message};

const SECRET: &str = "gAAAAABo";

#[tool(keep_output, at_most_once)]
fn read_table(year: u32) -> String {
    format!("table {year} ").repeat(500)
}

fn read(year: u32) -> Vec<u8> {
    let call = call(&format!("call_{year}"), "read_table", &json!({ "year": year }).to_string());
    reply(&[reasoning(&format!("rs_{year}")), call], false)
}

fn done() -> Vec<u8> {
    reply(&[text_message("Done.", "final_answer")], false)
}

fn said(role: &str, text: &str) -> Value {
    json!({ "type": "message", "role": role, "content": [{ "type": "input_text", "text": text }] })
}

fn item(number: u32) -> Value {
    json!({ "id": format!("cmp_{number}"), "type": "compaction", "encrypted_content": format!("{SECRET}{number}") })
}

fn compaction_of(output: &[Value]) -> Vec<u8> {
    let usage = json!({
        "input_tokens": 1_000, "input_tokens_details": { "cached_tokens": 900 }, "output_tokens": 300,
        "output_tokens_details": { "reasoning_tokens": 100 }, "total_tokens": 1_300,
    });
    json_answer(&json!({
        "id": "resp_c", "object": "response.compaction", "created_at": 1_764_967_971, "output": output, "usage": usage,
    }))
}

fn compaction() -> Compaction {
    Compaction::when_it_pays().at_tokens(1).keep_recent_tokens(1_000)
}

fn agent(model: impl ChatModel + 'static) -> AgentBuilder {
    Agent::builder(model).instructions("You read.").tools(tools![read_table]).compaction(compaction())
}

/// Asks, with the run stored and restored between its steps. Returns its compactions, too.
async fn asked(agent: &Agent) -> (Answer, Vec<CompactionRecord>) {
    let mut run: Run = agent.ask("Read all tables").start().into_run();
    loop {
        let mut driver = agent.resume(run).start();
        if !driver.advance().await.unwrap() {
            let compactions = driver.run().compactions().to_vec();
            return (driver.finish().await.unwrap(), compactions);
        }
        run = serde_json::from_str(&serde_json::to_string(&driver.into_run()).unwrap()).unwrap();
    }
}

/// Returns the paths and bodies of the requests.
fn sent(server: &RawServer) -> Vec<(String, String)> {
    let requests = server.requests().into_iter().map(|request| {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
    });
    requests.collect()
}

/// Returns the number of each request that compacts.
fn compacting(server: &RawServer) -> Vec<usize> {
    let sent = sent(server).into_iter().enumerate();
    sent.filter(|(_, (path, _))| path == "/v1/responses/compact").map(|(at, _)| at).collect()
}

/// What the provider returns goes back unchanged as the beginning of the next request, behind the instructions. What it does not know follows, once.
#[tokio::test]
async fn the_provider_compacts() {
    let question = said("user", "Read all tables");
    let (first, kept) = (item(1), said("user", "The note"));
    let answers = vec![
        read(1),
        read(2),
        compaction_of(&[said("developer", "You read."), question.clone(), first.clone()]),
        read(3),
        compaction_of(&[question.clone(), kept.clone(), item(2)]),
        done(),
    ];
    let server = RawServer::answering_in_turn(answers).await;
    let (answer, compactions) = asked(&agent(model(&server)).build().unwrap()).await;
    let sent = sent(&server);
    assert_eq!(compacting(&server), [2, 4]);
    let inputs: Vec<_> = sent.iter().map(|(_, body)| input(body)).collect();
    for at in [2, 4] {
        let body: Value = serde_json::from_str(&sent[at].1).unwrap();
        assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["model", "input"]);
        assert_eq!(inputs[at], inputs[at - 1]);
    }
    for (at, window, year) in
        [(3, vec![question.clone(), first], 1), (5, vec![question.clone(), kept, item(2)], 2)]
    {
        let (begin, rest) = inputs[at].split_at(window.len() + 2);
        assert_eq!(begin[0]["role"], "system");
        assert_eq!(begin[1..=window.len()], window);
        let note = &begin[window.len() + 1];
        assert_eq!(note["role"], "user");
        let facts = note["content"].as_str().unwrap().strip_prefix(
            "The beginning of this conversation was replaced by its summary; `read_output` searches it.\n\n\
             These calls were made, and what they did must not be repeated:\n- ",
        );
        let fact = format!("read_table {{\"year\":{year}}}: \"table {year} table {year}");
        assert!(facts.unwrap().starts_with(&fact) && !facts.unwrap().contains('\n'), "{note}");
        let kinds: Vec<_> = rest.iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["reasoning", "function_call", "function_call_output"]);
        assert_eq!(rest[1]["call_id"], format!("call_{}", year + 1));
    }
    let usage = answer.usage_by_layer().into_iter().find(|(name, _)| name == "compaction").unwrap().1;
    assert_eq!((usage.input_tokens, usage.cached_tokens, usage.output_tokens), (2_000, Some(1_800), 600));
    // People see what the run did, and nothing of what is encrypted.
    assert_eq!((answer.new_messages().len(), compactions.len()), (8, 2));
    let summary = compactions[1].summary().unwrap();
    let shown = format!("{answer:?} {compactions:?} {summary} {}", answer.transcript());
    assert!(!shown.contains(SECRET) && shown.contains("Done."), "{shown}");
}

/// Another model reads the question, what must not be repeated, and that the rest can be read.
#[tokio::test]
async fn only_the_provider_reads_its_compaction() {
    let server =
        RawServer::answering_in_turn(vec![read(1), read(2), compaction_of(&[item(1)]), done(), done()]).await;
    let mut driver = agent(model(&server)).build().unwrap().ask("Read all tables").start();
    while driver.run().compactions().is_empty() {
        driver.advance().await.unwrap();
    }
    let run = serde_json::to_string(&driver.into_run()).unwrap();
    let other = ScriptedModel::new()
        .expects(|request| {
            let texts: Vec<_> = request.messages().iter().map(Message::text).collect();
            texts.len() == 5
                && (&*texts[0], &*texts[1]) == ("You read.", "Read all tables")
                && texts[2].starts_with("Earlier messages of this conversation were removed to save room.")
                && texts[2].contains("must not be repeated:\n- read_table {\"year\":1}: \"table 1")
                && texts[4].starts_with("table 2")
        })
        .says("Done.");
    let built = agent(other).compaction(Compaction::when_it_pays()).build().unwrap();
    assert_eq!(built.resume(serde_json::from_str(&run).unwrap()).await.unwrap().text(), "Done.");
    // Two models of the provider read it.
    let both = Fallback::new(model(&server)).or(model(&server));
    let built = agent(both).compaction(Compaction::when_it_pays()).build().unwrap();
    built.resume(serde_json::from_str(&run).unwrap()).await.unwrap();
    assert_eq!(input(&sent(&server).pop().unwrap().1)[1], item(1));
    // One of another provider does not, so nobody is asked.
    let claude = || Anthropic::builder().api_key("k").build().unwrap().chat_model("claude-opus-5-5");
    assert!(claude().supports_compaction());
    assert!(!Fallback::new(model(&server)).or(claude()).supports_compaction());
    assert!(Fallback::new(claude()).or(claude()).supports_compaction());
}

/// The next question of a conversation goes on behind what was compacted; another model reads the messages.
#[tokio::test]
async fn the_next_question_reads_the_compaction() {
    let window = [said("user", "Read all tables"), item(1)];
    let answers = vec![read(1), read(2), compaction_of(&window), done(), done()];
    let server = RawServer::answering_in_turn(answers).await;
    let store = SqliteStore::in_memory().await.unwrap();
    let other = ScriptedModel::new()
        .expects(|request| {
            let texts: Vec<_> = request.messages().iter().map(Message::text).collect();
            texts.len() == 10 && texts[1] == "Read all tables" && texts[3].starts_with("table 1")
        })
        .says("Done.");
    let compaction = compaction().at_tokens(900);
    let first = agent(model(&server)).compaction(compaction).memory(store.clone()).build().unwrap();
    first.ask("Read all tables").conversation("c").await.unwrap();
    for model in [Box::new(model(&server)) as Box<dyn ChatModel>, Box::new(other)] {
        let next = agent(model).compaction(Compaction::when_it_pays()).memory(store.clone());
        next.build().unwrap().ask("And now?").conversation("c").await.unwrap();
    }
    let [before, last] = [3, 4].map(|at| input(&sent(&server)[at].1));
    assert_eq!(last[1..=2], window);
    assert_eq!((&last[..before.len()], last.len()), (&*before, before.len() + 2));
    assert_eq!(compacting(&server), [2]);
}

/// Whatever becomes of it, the run goes on: by a summary of the model, or as it is. A provider that has no compaction is not asked again.
#[tokio::test]
async fn a_provider_that_fails_changes_nothing() {
    let json = [("content-type", "application/json")];
    let error = |status: &str| whole_answer(status, &json, br#"{"error":{"message":"no such path"}}"#);
    let broken = json!({ "id": "cmp_1", "type": "compaction", "encrypted_content": null });
    let long = json!({ "id": "cmp_1", "type": "compaction", "encrypted_content": SECRET });
    let usage = json!({ "input_tokens": 1_000, "output_tokens": 90_000, "total_tokens": 91_000 });
    let failures = [
        (error("404 Not Found"), 1),
        (error("405 Method Not Allowed"), 1),
        (error("503 Service Unavailable"), 2),
        (whole_answer("404 Not Found", &[], b"<html>"), 1),
        (whole_answer("200 OK", &json, b"{}"), 2),
        (whole_answer("200 OK", &json, b"[1"), 2),
        (compaction_of(&[]), 2),
        (compaction_of(&[said("user", "Read all tables")]), 2),
        (compaction_of(&[broken]), 2),
        (json_answer(&json!({ "output": [long], "usage": usage })), 2),
        // An ordinary reply.
        (done(), 1),
        (read(7), 2),
    ];
    for (failure, expected) in failures {
        let shown = String::from_utf8_lossy(&failure).into_owned();
        let summary = || reply(&[text_message("Tables were read.", "final_answer")], false);
        let mut answers =
            vec![read(1), read(2), failure.clone(), summary(), read(3), failure, summary(), done()];
        if expected == 1 {
            answers.remove(5);
        }
        let server = RawServer::answering_in_turn(answers).await;
        let (answer, compactions) = asked(&agent(model(&server)).build().unwrap()).await;
        assert_eq!((answer.text(), compactions.len()), ("Done.", 2), "{shown}");
        assert_eq!(compacting(&server).len(), expected, "{shown}");
        assert!(compactions[1].summary().unwrap().contains("Tables were read."), "{shown}");
        assert!(!sent(&server).pop().unwrap().1.contains(SECRET), "{shown}");
    }
}

/// A body that is too large for a server in between is no word of the provider's: it leads to one compaction and the same request again.
#[tokio::test]
async fn a_body_that_is_too_large_leads_to_a_compaction() {
    let too_large = || whole_answer("413 Too Large", &[("content-type", "text/html")], b"<h1>413</h1>");
    let answers = vec![
        read(1),
        read(2),
        too_large(),
        too_large(),
        too_large(),
        read(3),
        compaction_of(&[item(1)]),
        done(),
    ];
    let server = RawServer::answering_in_turn(answers).await;
    let (answer, compactions) = asked(&agent(model(&server)).build().unwrap()).await;
    // The compaction failed, and so did the summary of the model, so the outputs were removed without one.
    assert_eq!((answer.text(), compacting(&server)), ("Done.", vec![2, 6]));
    let hidden: Vec<_> = compactions.iter().map(CompactionRecord::summarized_messages).collect();
    assert_eq!(hidden, [4, 6]);
    let second = input(&sent(&server)[5].1);
    assert_eq!((second.len(), &second[3]["type"]), (6, &json!("reasoning")), "{second:?}");
}

/// The API has no prompt of the author, so the model writes the summary by it.
#[tokio::test]
async fn a_prompt_of_the_author_is_followed() {
    let summary = reply(&[text_message("Table 1 was read.", "final_answer")], false);
    let server = RawServer::answering_in_turn(vec![read(1), read(2), summary, done()]).await;
    let compaction = compaction().summary_prompt("Name all tables.");
    asked(&agent(model(&server)).compaction(compaction).build().unwrap()).await;
    assert_eq!(compacting(&server), [] as [usize; 0]);
    assert_eq!(input(&sent(&server)[2].1).last().unwrap()["content"], "Name all tables.");
}

/// The request has what its API accepts of the options, and its answer is one event.
#[tokio::test]
async fn a_compaction_has_its_own_options() {
    let server = RawServer::answering_in_turn(vec![compaction_of(&[item(1)]); 2]).await;
    let options = ModelOptions::default()
        .with_temperature(0.5)
        .with_max_output_tokens(99)
        .with_reasoning_effort("low")
        .with_service_tier("flex")
        .with_extra("prompt_cache_key", "c1")
        .with_extra("previous_response_id", "resp_0")
        .with_extra("tools", json!([{ "type": "web_search" }]));
    let request = ChatRequest::new([Message::user("Hello")]).with_options(options).with_compaction(true);
    let model = model(&server);
    let response = model.chat(&request).await.unwrap();
    assert_eq!((&response.finish_reason, &*response.message.text), (&FinishReason::Compaction, ""));
    let (deltas, streamed) = streamed(&model, &request).await;
    assert_eq!((deltas.len(), streamed.unwrap().finish_reason), (0, FinishReason::Compaction));
    for (path, body) in sent(&server) {
        let body: Value = serde_json::from_str(&body).unwrap();
        let hello = json!([{ "type": "message", "role": "user", "content": "Hello" }]);
        let expected =
            json!({ "model": "m", "service_tier": "flex", "prompt_cache_key": "c1", "input": hello });
        assert_eq!((&*path, body), ("/v1/responses/compact", expected));
    }
}

/// The events of a run say that it was compacted, and nothing of what is encrypted.
#[tokio::test]
async fn a_streamed_run_is_compacted() {
    let calls = |year: u32| {
        let call = call(&format!("call_{year}"), "read_table", &json!({ "year": year }).to_string());
        reply(&[call], true)
    };
    let done = reply(&[text_message("Done.", "final_answer")], true);
    let server =
        RawServer::answering_in_turn(vec![calls(1), calls(2), compaction_of(&[item(1)]), done]).await;
    let agent = agent(model(&server)).build().unwrap();
    let mut events = agent.ask("Read all tables").stream();
    let mut shown = Vec::new();
    while let Some(event) = events.next().await {
        shown.push(format!("{:?}", event.unwrap()));
    }
    let compacted: Vec<_> = shown.iter().filter(|event| event.contains("Compacted")).collect();
    assert_eq!((compacted.len(), compacting(&server)), (1, vec![2]), "{shown:?}");
    assert!(!shown.concat().contains(SECRET), "{shown:?}");
}

/// Other servers are not asked, unless their users say that they compact.
#[tokio::test]
async fn only_known_endpoints_compact() {
    let server = RawServer::answering_in_turn(Vec::new()).await;
    let table = [
        (Endpoint::openai(), true),
        (Endpoint::azure("mine"), true),
        (Endpoint::azure_deployments("mine", "2024-10-21"), false),
        (Endpoint::vllm(), false),
        (Endpoint::llama_cpp(), false),
        (Endpoint::compatible(), false),
    ];
    for (endpoint, expected) in table {
        assert_eq!(model_of(endpoint.clone(), &server).supports_compaction(), expected, "{endpoint:?}");
    }
    let own = OpenAi::builder().base_url(server.base_url()).build().unwrap();
    assert!(!own.responses_model("m").supports_compaction());
    assert!(!own.chat_model("m").supports_compaction());
}
