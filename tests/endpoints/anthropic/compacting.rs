//! Conversations that the provider summarizes: <https://platform.claude.com/docs/en/build-with-claude/compaction-on-demand>.

use serde_json::{Value, json};
use tests::support::{RawServer, whole_answer};
use tool_anthropic::{Anthropic, Endpoint};
use tool_core::agent::Compaction;
use tool_core::layer::rewrite;
use tool_core::memory::InMemoryStore;
use tool_core::model::{ChatRequest, Fallback, FinishReason};
use tool_core::run::{Run, RunErrorKind};
use tool_core::{Agent, Answer, ChatModel, Message, ModelOptions, SqliteStore, tool, tools};

use super::runs::{reply, text, thinking};
use super::{MODEL, bodies, builder, model};
use crate::responses::endpoint::json_answer;

const BETA: &str = "compact-2026-09-04";

#[tool(keep_output)]
fn read_table(year: u32) -> String {
    format!("table {year} ").repeat(500)
}

fn call(year: u32) -> Vec<u8> {
    let id = format!("toolu_{year}");
    let call = json!({ "type": "tool_use", "id": id, "name": "read_table", "input": { "year": year } });
    json_answer(&reply(json!([thinking(), call]), "tool_use"))
}

fn block(number: u32) -> Value {
    let content = format!("Table {number} was read.");
    json!({ "type": "compaction", "content": content, "signature": format!("s{number}"), "encrypted_content": null })
}

fn summary(number: u32) -> Vec<u8> {
    let mut response = reply(json!([block(number)]), "compaction");
    let iteration = json!({
        "type": "compaction", "input_tokens": 100, "output_tokens": 30, "cache_read_input_tokens": 900,
        "cache_creation_input_tokens": 0, "cache_creation": null,
    });
    response["usage"] = json!({ "input_tokens": 0, "output_tokens": 0, "iterations": [iteration] });
    json_answer(&response)
}

fn done() -> Vec<u8> {
    json_answer(&reply(json!([text("Done.")]), "end_turn"))
}

fn refused() -> Vec<u8> {
    let error = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "no summaries here" } });
    whole_answer("400 Bad Request", &[("content-type", "application/json")], error.to_string().as_bytes())
}

fn compaction() -> Compaction {
    Compaction::when_it_pays().at_tokens(1).keep_recent_tokens(1_000)
}

fn agent(model: impl ChatModel + 'static) -> tool_core::agent::AgentBuilder {
    Agent::builder(model).instructions("You read.").tools(tools![read_table]).compaction(compaction())
}

/// Asks, with the run stored and restored between its steps. Returns the summaries, too.
async fn ask(agent: &Agent) -> (Answer, Vec<String>) {
    let mut run: Run = agent.ask("Read all tables").start().into_run();
    loop {
        let mut driver = agent.resume(run).start();
        match driver.advance().await.unwrap() {
            true => run = serde_json::from_str(&serde_json::to_string(&driver.into_run()).unwrap()).unwrap(),
            false => {
                let summaries =
                    driver.run().compactions().iter().filter_map(|one| one.summary().map(str::to_owned));
                let summaries = summaries.collect();
                return (driver.finish().await.unwrap(), summaries);
            }
        }
    }
}

fn sent(server: &RawServer) -> Vec<Value> {
    bodies(server).iter().map(|body| serde_json::from_str(body).unwrap()).collect()
}

fn messages(body: &Value) -> &[Value] {
    body["messages"].as_array().unwrap()
}

/// Returns the beginning of the messages without cache points, which move.
fn prefix(body: &Value) -> String {
    let point = r#""cache_control":{"type":"ephemeral"}"#;
    let json = body["messages"].to_string();
    let json = json.replace(&format!("{point},"), "").replace(&format!(",{point}"), "");
    json.trim_end_matches(['}', ']']).to_owned()
}

fn signatures(body: &Value) -> usize {
    body["messages"].to_string().matches(r#""c2ln""#).count()
}

#[tokio::test]
async fn the_provider_summarizes_and_thinking_stays() {
    let answers = vec![call(1), call(2), summary(1), call(3), summary(2), done()];
    let server = RawServer::replying_in_turn(answers).await;
    let (answer, summaries) = ask(&agent(model(&server)).build().unwrap()).await;
    assert_eq!(answer.text(), "Done.");
    let (heads, sent) = (server.requests(), sent(&server));
    let asks = |body: &Value| body["compaction"] == json!({ "type": "summarize" });
    assert_eq!(sent.iter().map(asks).collect::<Vec<_>>(), [false, false, true, false, true, false]);
    let has_beta: Vec<_> =
        heads.iter().map(|head| head.contains(&format!("anthropic-beta: {BETA}\r\n"))).collect();
    assert_eq!(has_beta, [false, false, true, true, true, true]);
    // The same system prompt and tools throughout, as the thinking needs it, and what was summarized is what was sent before.
    for body in &sent {
        assert_eq!((&body["system"], &body["tools"]), (&sent[0]["system"], &sent[0]["tools"]));
        assert!(body["tools"].to_string().contains(r#""name":"read_output""#));
    }
    assert_eq!(prefix(&sent[2]), prefix(&sent[1]));
    assert_eq!(prefix(&sent[4]), prefix(&sent[3]));
    // The block goes back first and as it came, and the kept turn follows with its thinking.
    for (at, number) in [(3, 1), (5, 2)] {
        let messages = messages(&sent[at]);
        assert_eq!(messages[0], json!({ "role": "assistant", "content": [block(number)] }));
        assert_eq!((&messages[1]["role"], &messages[1]["content"][0]), (&json!("assistant"), &thinking()));
        assert_eq!(messages[1]["content"][1]["input"]["year"], number + 1);
        assert_eq!(messages.len(), 3);
        let note = messages[2]["content"][1]["text"].as_str().unwrap();
        assert!(note.ends_with("The question was:\n\nRead all tables"), "{note}");
    }
    assert_eq!(sent.iter().map(signatures).collect::<Vec<_>>(), [0, 1, 1, 1, 1, 1]);
    // The run has all, knows the summary, and what it took.
    assert_eq!(answer.new_messages().len(), 8);
    assert_eq!(summaries.len(), 2);
    assert!(summaries[1].contains("Table 2 was read."), "{summaries:?}");
    let usage = answer.usage();
    assert_eq!((usage.input_tokens, usage.cached_tokens), (2 * 1_000 + 4 * 10, Some(1_800)));
}

/// Another model of the provider reads its summary, any other one the text of it, behind the question.
#[tokio::test]
async fn only_models_of_the_provider_read_its_summary() {
    let first = RawServer::replying_in_turn(vec![
        call(1),
        call(2),
        summary(1),
        call(3),
        done(),
        done(),
        done(),
        done(),
    ])
    .await;
    let other = RawServer::replying_in_turn(vec![done()]).await;
    let gateway = || Anthropic::builder().base_url(other.base_url()).build().unwrap().chat_model(MODEL);
    let claude = |name: &str| builder(&first).build().unwrap().chat_model(name);
    let both = || Fallback::new(claude("claude-opus-5-5")).or(model(&first));
    let mut driver = agent(both()).build().unwrap().ask("Read all tables").start();
    while driver.run().compactions().is_empty() {
        driver.advance().await.unwrap();
    }
    let run = serde_json::to_string(&driver.into_run()).unwrap();
    let models: [(Box<dyn ChatModel>, _, _); 5] = [
        (Box::new(model(&first)), &first, true),
        (Box::new(claude("claude-opus-5-5")), &first, true),
        (Box::new(Fallback::new(model(&first)).or(claude("claude-opus-5-5"))), &first, true),
        (Box::new(gateway()), &other, false),
        (Box::new(Fallback::new(model(&first)).or(gateway())), &first, false),
    ];
    for (at, (model, server, reads)) in models.into_iter().enumerate() {
        let run: Run = serde_json::from_str(&run).unwrap();
        Agent::builder(model).tools(tools![read_table]).build().unwrap().resume(run).await.unwrap();
        let body = sent(server).pop().unwrap();
        let summary = json!({ "role": "assistant", "content": [block(1)] });
        assert_eq!(messages(&body)[0] == summary, reads, "{at}: {body}");
        if !reads {
            let question = &messages(&body)[0];
            assert_eq!(
                (&question["role"], &question["content"][0]["text"]),
                (&json!("user"), &json!("Read all tables"))
            );
            assert!(
                question["content"][1]["text"].as_str().unwrap().ends_with("Table 1 was read."),
                "{body}"
            );
            assert!(!body.to_string().contains(r#""compaction""#), "{body}");
        }
    }
}

/// The options of a request can name a model that neither summarizes nor reads a summary in the form of the API.
#[tokio::test]
async fn another_model_of_the_options_reads_the_text() {
    let server = RawServer::replying_in_turn(vec![summary(1), done()]).await;
    let model = model(&server);
    let mut options = ModelOptions::default();
    options.model = Some("claude-3-7-sonnet-20250219".into());
    let request = ChatRequest::new([Message::user("Read all")]).with_compaction(true);
    let refused = model.chat(&request.clone().with_options(options.clone())).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the model `claude-3-7-sonnet-20250219` does not summarize conversations"
    );
    let summarized = model.chat(&request).await.unwrap().message;
    let request = ChatRequest::new([Message::Assistant(summarized), Message::user("And now?")]);
    model.chat(&request.with_options(options)).await.unwrap();
    let body = sent(&server).pop().unwrap();
    let texts = json!([text("Table 1 was read."), text("And now?")]);
    assert_eq!(messages(&body)[0], json!({ "role": "user", "content": texts }));
    assert!(!server.requests()[1].contains(BETA));
}

/// A typed answer uses up limits of strict schemas. The request for a summary has no format, but the same tools, and the prompt of the author.
#[tokio::test]
async fn a_summary_has_the_tools_of_a_typed_answer() {
    type Number = Option<u32>;
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Wide {
        a: Number,
        _b: Number,
        _c: Number,
        _d: Number,
        _e: Number,
        _f: Number,
        _g: Number,
        _h: Number,
        _i: Number,
    }
    #[tool("Stores numbers", strict)]
    fn store(wide: Wide) -> Number {
        wide.a
    }
    let members =
        ["a", "_b", "_c", "_d", "_e", "_f", "_g", "_h", "_i"].map(|name| (name.to_owned(), json!(1)));
    let typed = Value::Object(members.into_iter().collect()).to_string();
    let typed = json_answer(&reply(json!([text(&typed)]), "end_turn"));
    let server = RawServer::replying_in_turn(vec![call(1), call(2), summary(1), typed]).await;
    let compaction = compaction().summary_prompt("Name all tables.");
    let agent = agent(model(&server)).tools(tools![store]).compaction(compaction).build().unwrap();
    agent.ask("Read all tables").answer_as::<Wide>().await.unwrap();
    let sent = sent(&server);
    assert_eq!(sent[2]["compaction"], json!({ "type": "summarize", "instructions": "Name all tables." }));
    let has_format = |body: &Value| body["output_config"]["format"].is_object();
    assert_eq!(sent[..4].iter().map(has_format).collect::<Vec<_>>(), [true, true, false, true]);
    for body in &sent {
        assert_eq!((&body["tools"], &body["system"]), (&sent[0]["tools"], &sent[0]["system"]));
    }
}

/// The question is replaced, too, and can be read.
#[tokio::test]
async fn the_question_can_be_read_again() {
    let search = json!({ "type": "tool_use", "id": "toolu_s", "name": "read_output", "input": { "search": "ALL TABLES" } });
    let search = json_answer(&reply(json!([thinking(), search]), "tool_use"));
    let server = RawServer::replying_in_turn(vec![call(1), call(2), summary(1), search, done()]).await;
    let compaction = Compaction::when_it_pays().at_tokens(900).keep_recent_tokens(1_000);
    let (answer, _) = ask(&agent(model(&server)).compaction(compaction).build().unwrap()).await;
    let found = answer.tool_executions()[2].to_string();
    assert!(found.contains("user message-1, character 5: Read all tables"), "{found}");
}

/// The next question of a conversation goes on behind the summary as it was, with its thinking; another model reads the text of it.
#[tokio::test]
async fn the_next_question_reads_the_summary() {
    for is_resumed in [false, true] {
        let answers = vec![call(1), call(2), summary(1), done(), done()];
        let server = RawServer::replying_in_turn(answers).await;
        let other = RawServer::replying_in_turn(vec![done()]).await;
        let compaction = Compaction::when_it_pays().at_tokens(900).keep_recent_tokens(1_000);
        let store = SqliteStore::in_memory().await.unwrap();
        let gateway = Anthropic::builder().base_url(other.base_url()).build().unwrap().chat_model(MODEL);
        let built =
            |model, compaction| agent(model).compaction(compaction).memory(store.clone()).build().unwrap();
        let agent = built(model(&server), compaction);
        let mut driver = agent.ask("Read all tables").conversation("c").start();
        while driver.advance().await.unwrap() {
            if is_resumed {
                driver = agent.resume(driver.into_run()).start();
            }
        }
        driver.finish().await.unwrap();
        for model in [model(&server), gateway] {
            let agent = built(model, Compaction::when_it_pays());
            agent.ask("And now?").conversation("c").await.unwrap();
        }
        let [before, last] = <[Value; 2]>::try_from(sent(&server)[3..].to_vec()).unwrap();
        assert_eq!(messages(&last)[0], json!({ "role": "assistant", "content": [block(1)] }));
        assert!(prefix(&last).starts_with(&prefix(&before)), "{before}\n{last}");
        assert_eq!((signatures(&before), signatures(&last)), (1, 1));
        assert!(prefix(&last).ends_with("And now?\""), "{last}");
        let text = sent(&other).pop().unwrap();
        let texts: Vec<_> = messages(&text).iter().map(|message| message["content"].to_string()).collect();
        assert!(texts[0].contains("Read all tables") && texts[0].contains("Table 1 was read."), "{texts:?}");
        assert!(texts.last().unwrap().contains("And now?"), "{texts:?}");
        assert!(!text.to_string().contains("table 1 table 1") && !text.to_string().contains("compaction"));
        assert!(text.to_string().contains("table 2 table 2"));
    }
}

/// A beta feature of the application stays named, and a conversation that begins with a summary can be counted.
#[tokio::test]
async fn requests_name_the_beta_feature() {
    let count = json_answer(&json!({ "input_tokens": 7 }));
    let server = RawServer::replying_in_turn(vec![summary(1), count]).await;
    let model = builder(&server).beta("files-2026").build().unwrap().chat_model(MODEL);
    let request = ChatRequest::new([Message::user("Read all")]);
    let summarized = model.chat(&request.with_compaction(true)).await.unwrap().message;
    let request = ChatRequest::new([Message::Assistant(summarized), Message::user("And now?")]);
    assert_eq!(model.count_tokens(&request).await.unwrap(), Some(7));
    for head in server.requests() {
        assert!(head.contains(&format!("anthropic-beta: files-2026,{BETA}\r\n")), "{head}");
    }
}

/// Whatever becomes of it, the run goes on, and its thinking stays. A provider that refuses, or answers instead, is not asked again.
#[tokio::test]
async fn a_provider_that_fails_changes_nothing() {
    let empty = |reason: &str| json_answer(&reply(json!([]), reason));
    let failures = [
        refused(),
        empty("max_tokens"),
        empty("end_turn"),
        empty("refusal"),
        json_answer(&reply(json!([text("The tables")]), "end_turn")),
        json_answer(&reply(json!([{ "type": "compaction", "content": null }]), "compaction")),
        json_answer(&reply(
            json!([{ "type": "compaction", "content": "x".repeat(20_000), "signature": "s" }]),
            "compaction",
        )),
        call(7),
    ];
    for failure in failures {
        let shown = String::from_utf8_lossy(&failure).into_owned();
        let mut answers = vec![call(1), call(2), failure.clone(), call(3), failure, done()];
        let mut thoughts = vec![0, 1, 1, 2, 2, 3];
        if shown.starts_with("HTTP/1.1 400") || shown.contains("The tables") {
            answers.remove(4);
            thoughts.remove(4);
        }
        let server = RawServer::replying_in_turn(answers).await;
        let (answer, summaries) = ask(&agent(model(&server)).build().unwrap()).await;
        assert_eq!((answer.text(), answer.new_messages().len(), summaries.len()), ("Done.", 8, 0), "{shown}");
        assert_eq!(sent(&server).iter().map(signatures).collect::<Vec<_>>(), thoughts, "{shown}");
    }
    // A layer that changes the text makes it useless, and the next one, too.
    let answers = vec![call(1), call(2), summary(1), call(3), done()];
    let server = RawServer::replying_in_turn(answers).await;
    let hides = rewrite::output(|_, output| output.to_string().replace("Table", "[word]"));
    ask(&agent(model(&server)).layer(hides).build().unwrap()).await;
    assert_eq!(sent(&server).iter().map(signatures).collect::<Vec<_>>(), [0, 1, 1, 2, 3]);
}

/// Without thinking, the next step follows a failure.
#[tokio::test]
async fn the_model_summarizes_if_the_provider_fails() {
    let call = |year: u32| {
        let id = format!("toolu_{year}");
        let call = json!({ "type": "tool_use", "id": id, "name": "read_table", "input": { "year": year } });
        json_answer(&reply(json!([call]), "tool_use"))
    };
    let own = json_answer(&reply(json!([text("Table 1 was read.")]), "end_turn"));
    let server = RawServer::replying_in_turn(vec![call(1), call(2), refused(), own, done()]).await;
    ask(&agent(model(&server)).build().unwrap()).await;
    let sent = sent(&server);
    assert!(messages(&sent[3]).last().unwrap().to_string().contains("Summarize this conversation"));
    assert!(messages(&sent[4])[0].to_string().contains("Table 1 was read."));
}

/// The API accepts kept thinking only behind the same system prompt. The summary is accepted anyway, and only as the first message.
#[tokio::test]
async fn thinking_behind_another_start_is_left_out() {
    let answers = vec![call(1), call(2), summary(1), done(), done(), done()];
    let server = RawServer::replying_in_turn(answers).await;
    let model = model(&server);
    let mut all = vec![Message::system("You read."), Message::user("Read all")];
    for _ in 0..2 {
        let response = model.chat(&ChatRequest::new(all.clone())).await.unwrap();
        let call = response.message.tool_calls[0].clone();
        all.extend([Message::Assistant(response.message), Message::tool_text(&call, "1 2 3")]);
    }
    let request = ChatRequest::new(all[..4].to_vec()).with_compaction(true);
    let options = ModelOptions::default().with_stop(["END"]);
    let response = model.chat(&request.with_options(options)).await.unwrap();
    assert_eq!(response.finish_reason, FinishReason::Compaction);
    assert_eq!(response.message.text, "Table 1 was read.");
    let after =
        |start: &[Message]| [start, &[Message::Assistant(response.message.clone())], &all[4..]].concat();
    let table = [
        (after(&all[..1]), 1, block(1)),
        (after(&[Message::system("You write.")]), 0, block(1)),
        (after(&all[..2]), 0, text("Table 1 was read.")),
    ];
    for (messages, thoughts, first) in table {
        model.chat(&ChatRequest::new(messages)).await.unwrap();
        let body = sent(&server).pop().unwrap();
        assert_eq!(signatures(&body), thoughts);
        let reply = body["messages"].as_array().unwrap().iter().find(|one| one["role"] == "assistant");
        assert_eq!(reply.unwrap()["content"][0], first);
    }
}

/// The error says why a run with thinking cannot be compacted now.
#[tokio::test]
async fn an_order_that_cannot_be_followed_fails() {
    let overloaded = whole_answer("503 Service Unavailable", &[], b"");
    for (supports, expected) in [(true, 1), (false, 0)] {
        let answers = vec![call(1), call(2), overloaded.clone(), summary(1), done()];
        let answers = if supports { answers } else { vec![call(1), call(2), overloaded.clone(), done()] };
        let server = RawServer::replying_in_turn(answers).await;
        let mut endpoint = Endpoint::anthropic();
        endpoint.supports_compaction = supports;
        endpoint.base_url = Some(server.base_url().into());
        let model = builder(&server).endpoint(endpoint).build().unwrap().chat_model(MODEL);
        assert_eq!(model.supports_compaction(), supports);
        let compaction = Compaction::when_it_pays().keep_recent_tokens(1_000);
        let agent = agent(model).compaction(compaction).build().unwrap();
        let failed = agent.ask("Read all tables").await.unwrap_err();
        let run = match agent.compact(failed.into_run()).await {
            Ok(run) => run,
            Err(error) => {
                assert!(matches!(error.kind(), RunErrorKind::Step(_)), "{error}");
                error.into_run()
            }
        };
        assert_eq!(run.compactions().len(), expected);
        assert_eq!(agent.resume(run).await.unwrap().text(), "Done.");
    }
}

/// The thinking of earlier questions is removed, unless the provider removes it anyway; the thinking of the current question stays.
#[tokio::test]
async fn thinking_of_earlier_questions_goes() {
    let thought = || json!({ "type": "thinking", "thinking": "", "signature": "c2ln".repeat(2_000) });
    let answered =
        |number: u32| json_answer(&reply(json!([thought(), text(&format!("Answer {number}."))]), "end_turn"));
    for (name, expected) in [("claude-opus-4-5", [0, 0, 0, 1]), ("claude-haiku-4-5", [0, 1, 2, 3])] {
        let server = RawServer::replying_in_turn(vec![answered(1), answered(2), call(3), done()]).await;
        let model = builder(&server).build().unwrap().chat_model(name);
        assert!(!model.supports_compaction());
        let agent = agent(model).memory(InMemoryStore::new()).build().unwrap();
        for question in ["One?", "Two?", "Three?"] {
            agent.ask(question).conversation("c").await.unwrap();
        }
        let sent = sent(&server);
        let thoughts = |body: &Value| body["messages"].to_string().matches(r#""type":"thinking""#).count();
        assert_eq!(sent.iter().map(thoughts).collect::<Vec<_>>(), expected, "{name}");
        for text in ["One?", "Answer 1.", "Two?", "Answer 2.", "Three?"] {
            assert!(sent[3]["messages"].to_string().contains(text), "{text}");
        }
        assert!(prefix(&sent[3]).starts_with(&prefix(&sent[2])), "{name}");
    }
}
