//! The entrances of the matrix: each asks an agent whose boundary has one layer.

use std::io::Cursor;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tests::support::ways::restored;
use tool_core::agent::{AgentBuilder, Ask, ToolSearch};
use tool_core::layer::LayerPhase;
use tool_core::memory::{Budget, InMemoryStore};
use tool_core::model::{Cost, Currency, Fallback, ModelErrorKind, ModelPrices, Prices, RunUser};
use tool_core::run::{Decision, Run, Step, WaitReason};
use tool_core::store::RunReader;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Answer, ChatModel, Event, Message, RunError, RunErrorKind, ToolOutput, ToolSet};
use tool_openai::server::Server;

use crate::rules::{Act, Rule};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    Ask,
    Stream,
    Steps,
    Resume,
    AgentAsTool,
    Handoff,
    SearchAppend,
    SearchCallThrough,
    SearchByProvider,
    ToolSetAlone,
    Chat,
    ChatStreamed,
    Responses,
    ResponsesStreamed,
    McpServer,
    Cli,
    /// The run as the page shows it that finds it in a store.
    Web,
    /// In the tests of `tool-restate`, which is a workspace of its own.
    Restate,
}

impl Entrance {
    pub(crate) const ALL: [Self; 18] = [
        Self::Ask,
        Self::Stream,
        Self::Steps,
        Self::Resume,
        Self::AgentAsTool,
        Self::Handoff,
        Self::SearchAppend,
        Self::SearchCallThrough,
        Self::SearchByProvider,
        Self::ToolSetAlone,
        Self::Chat,
        Self::ChatStreamed,
        Self::Responses,
        Self::ResponsesStreamed,
        Self::McpServer,
        Self::Cli,
        Self::Web,
        Self::Restate,
    ];

    /// Returns the answer, what the tool was executed with, and what the model read as its result.
    pub(crate) async fn observe(self, rule: Rule) -> Option<String> {
        let script = match self {
            Self::SearchCallThrough => {
                rule.script(("call_tool", r#"{"name": "act", "arguments": {"text":"a"}}"#))
            }
            _ => rule.script(("act", r#"{"text":"a"}"#)),
        };
        let act = Act::new();
        let outer = ScriptedModel::new().calls("inner", r#"{"question": "act"}"#).says("Done.");
        let plain = || Agent::builder(model(rule, &script)).tools(act.clone());
        let search = |search: ToolSearch| plain().tool_search(search.min_tools(0));
        let answer = match self {
            Self::Ask => ask(&limited(rule, plain())).await,
            Self::Stream => stream(&limited(rule, plain())).await,
            Self::Steps => steps(&limited(rule, plain())).await,
            Self::Resume => resume(&limited(rule, plain())).await,
            Self::AgentAsTool => {
                let inner = plain().build().unwrap();
                let again =
                    if rule == Rule::AnswerRetry { outer.clone().says("Better.") } else { outer.clone() };
                ask(&limited(rule, Agent::builder(again).tools(inner.as_tool("inner", "Acts")))).await
            }
            Self::Handoff => {
                let billing = plain().build().unwrap();
                let desk = Agent::builder(ScriptedModel::new().calls("billing", "{}"));
                ask(&limited(rule, desk.handoff_to("billing", "Takes over", &billing))).await
            }
            Self::SearchAppend => stream(&limited(rule, search(ToolSearch::bm25()))).await,
            Self::SearchCallThrough => {
                stream(&limited(rule, search(ToolSearch::bm25().call_through()))).await
            }
            Self::SearchByProvider => stream(&limited(rule, search(ToolSearch::by_provider()))).await,
            Self::ToolSetAlone => {
                let tools = layered(rule, &act)?;
                let context = tool_core::ToolContext::new();
                let call = tool_core::ToolCall::new("call_1", "act", r#"{"text":"a"}"#);
                let read = Message::from(&tools.execute(call, &context).await).text().into_owned();
                return Some(observed("Done.", &act, &[read]));
            }
            Self::McpServer => {
                let read = mcp(layered(rule, &act)?).await;
                return Some(observed("Done.", &act, &[read]));
            }
            Self::Chat | Self::ChatStreamed => chat(limited(rule, plain()), self == Self::ChatStreamed).await,
            Self::Responses | Self::ResponsesStreamed => {
                responses(limited(rule, plain()), self == Self::ResponsesStreamed).await
            }
            Self::Cli => cli(limited(rule, plain()), rule).await,
            Self::Web => web(limited(rule, plain().run_store(InMemoryStore::new())), rule).await,
            Self::Restate => return None,
        };
        if rule == Rule::QuestionRewrite {
            let asked = if self == Self::AgentAsTool { outer.requests() } else { script.requests() };
            let texts =
                |request: &Vec<Message>| request.iter().map(|it| it.text().into_owned()).collect::<Vec<_>>();
            let is_rewritten =
                |texts: Vec<String>| texts.contains(&"gently".into()) && !texts.contains(&"go".into());
            assert!(!asked.is_empty() && asked.iter().map(texts).all(is_rewritten), "{self:?}");
        }
        let requests = script.requests();
        let read: Vec<_> = requests.last().into_iter().flatten().collect();
        let is_brief = requests.iter().all(|messages| messages.last().unwrap().text() == "briefly");
        let mut results: Vec<String> = read
            .iter()
            .filter(|message| matches!(message, Message::Tool(_)))
            .filter(|message| message.text() != "handed off")
            .map(|message| message.text().into_owned())
            .collect();
        if is_brief && !requests.is_empty() {
            results.iter_mut().for_each(|text| text.push_str(", briefly"));
        }
        Some(observed(&answer, &act, &results))
    }
}

/// The script, behind a model that is down if that is the rule.
fn model(rule: Rule, script: &ScriptedModel) -> Box<dyn ChatModel> {
    let down = ScriptedModel::new().fails("it is down");
    match rule {
        Rule::Fallback => Box::new(Fallback::new(down).or(script.clone()).on([ModelErrorKind::Other])),
        _ => Box::new(script.clone()),
    }
}

fn observed(answer: &str, act: &Act, read: &[String]) -> String {
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let executed = act.executed.lock().unwrap().join("+");
    let read = read.join("+").replace("the call was ", "").replace("act`", "`");
    // Served runs have conversations of their own.
    let read = match read.split_once(" in conversation_") {
        Some((read, _)) => format!("{read} in chat"),
        None => read,
    };
    let beginning = ["not executed", "there is no tool"].into_iter().find(|text| read.starts_with(text));
    let read = beginning.map_or(read, str::to_owned);
    format!("{answer} | {} | {}", or_none(executed), or_none(read))
}

fn limited(rule: Rule, builder: AgentBuilder) -> Agent {
    let prices =
        || Prices::from_fn(Currency::USD, |_, _| Some(ModelPrices::new(1.0, 1.0).with_max_output_tokens(10)));
    let builder = match rule {
        Rule::Limit => builder.limits(|l| l.max_calls(0)),
        Rule::MaxCost => builder.prices(prices()).limits(|l| l.max_cost(Cost::usd(0.000_01))),
        Rule::Budget => {
            let budget = Budget::tokens(InMemoryStore::new(), 50, Duration::from_secs(3_600));
            builder.prices(prices()).budget(budget.key("all"))
        }
        Rule::OpenBudget => builder.prices(prices()).run_setup(rule),
        Rule::OpenDeny | Rule::OpenFail => builder.run_setup(rule),
        _ => builder,
    };
    builder.layer(rule).build().unwrap()
}

/// A set has no question, no model and no answer.
fn layered(rule: Rule, act: &Act) -> Option<ToolSet> {
    match rule.phase() {
        Some(LayerPhase::Question | LayerPhase::Model | LayerPhase::Answer) => return None,
        None if rule != Rule::Pass => return None,
        _ => {}
    }
    Some(ToolSet::default().with(act.clone()).unwrap().layer(rule))
}

/// Decides about what the run waits for, and notes it.
fn decide(run: &mut Run, waits: &mut String) {
    for wait in run.waits() {
        let (note, decision) = match &wait.reason {
            WaitReason::Approval(call) => ("asked", decision(&call.arguments)),
            WaitReason::CallerResult(_) => ("left", Decision::result(Ok(ToolOutput::text("by the caller")))),
            other => panic!("unexpected: {other:?}"),
        };
        waits.push_str(note);
        waits.push_str(" a, ");
        run.resolve(&wait.id, decision).unwrap();
    }
}

thread_local! {
    /// The rule of the case that runs on this thread.
    static RULE: std::cell::Cell<Rule> = const { std::cell::Cell::new(Rule::Pass) };
}

pub(crate) fn set_rule(rule: Rule) {
    RULE.with(|cell| cell.set(rule));
}

fn decision(arguments: &str) -> Decision {
    assert_eq!(arguments, r#"{"text":"a"}"#);
    match RULE.with(std::cell::Cell::get) {
        Rule::DenyApproval => Decision::deny("by a person"),
        Rule::EditApproval => Decision::approve_with(r#"{"text":"c"}"#),
        _ => Decision::approve(),
    }
}

fn outcome(waits: &str, outcome: Result<Answer, RunError>) -> String {
    match outcome {
        Ok(answer) => format!("{waits}{}", answer.text()),
        Err(error) => {
            let is_expected = match RULE.with(std::cell::Cell::get) {
                Rule::MaxCost => matches!(error.kind(), RunErrorKind::MaxCost { .. }),
                Rule::Budget | Rule::OpenBudget => matches!(error.kind(), RunErrorKind::Budget { .. }),
                Rule::OpenFail => matches!(error.kind(), RunErrorKind::RunSetup(_)),
                _ => matches!(error.kind(), RunErrorKind::Stopped(_) | RunErrorKind::Layer { .. }),
            };
            assert!(is_expected, "{error}");
            format!("{waits}error")
        }
    }
}

/// The question of all entrances but those of other programs.
fn question(agent: &Agent) -> Ask {
    let ask = agent.ask("go");
    match RULE.with(std::cell::Cell::get) {
        Rule::Whose => ask.user("ada").conversation("chat"),
        _ => ask,
    }
}

async fn ask(agent: &Agent) -> String {
    let (mut waits, mut answer) = (String::new(), question(agent).await);
    loop {
        match answer {
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
                let mut run = restored(error.into_run());
                decide(&mut run, &mut waits);
                answer = agent.resume(run).await;
            }
            answer => return outcome(&waits, answer),
        }
    }
}

/// The streamed text equals the answer, so no text was sent before it was judged.
async fn stream(agent: &Agent) -> String {
    let (mut waits, mut shown) = (String::new(), String::new());
    let mut events = question(agent).stream();
    loop {
        match events.next().await.unwrap() {
            Ok(Event::Text(text)) => shown.push_str(&text),
            Ok(Event::Arguments { text, .. }) => {
                let is_rewritten = RULE.with(std::cell::Cell::get) == Rule::Rewrite;
                assert!(!is_rewritten || !text.contains("\"a\""), "{text}");
            }
            Ok(Event::Done(answer)) => {
                assert_eq!(shown, answer.text());
                return outcome(&waits, Ok(answer));
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
                let mut run = restored(error.into_run());
                decide(&mut run, &mut waits);
                events = agent.resume(run).stream();
            }
            Err(error) => {
                assert_eq!(shown, "");
                return outcome(&waits, Err(error));
            }
        }
    }
}

async fn steps(agent: &Agent) -> String {
    let mut waits = String::new();
    let mut run = question(agent).start();
    let driven = async {
        loop {
            match run.next().await?.kind() {
                Kind::Model => match run.call_model().await {
                    Ok(response) => run.record_response(response).await?,
                    // The step that follows shows what ended the request.
                    Err(error) if matches!(error.kind(), RunErrorKind::Step(_)) => {}
                    Err(error) => return Err(error),
                },
                Kind::Calls(calls) => {
                    for call in calls {
                        let execution = run.execute(call).await?;
                        run.record_result(execution).await?;
                    }
                }
                Kind::Waits(reasons) => {
                    for (id, reason) in reasons {
                        let (note, decision) = match reason {
                            WaitReason::Approval(call) => ("asked a, ", decision(&call.arguments)),
                            _ => ("left a, ", Decision::result(Ok(ToolOutput::text("by the caller")))),
                        };
                        waits.push_str(note);
                        run.resolve(&id, decision).unwrap();
                    }
                }
                Kind::Done => return run.finish().await,
            }
        }
    };
    let finished = driven.await;
    outcome(&waits, finished)
}

enum Kind {
    Model,
    Calls(Vec<tool_core::ToolCall>),
    Waits(Vec<(tool_core::tool::WaitId, WaitReason)>),
    Done,
}

trait StepKind {
    fn kind(self) -> Kind;
}

impl StepKind for Step<'_> {
    fn kind(self) -> Kind {
        match self {
            Step::CallModel(_) => Kind::Model,
            Step::CallTools(calls) => Kind::Calls(calls),
            Step::Waiting(waits) => Kind::Waits(waits.into_iter().map(|one| (one.id, one.reason)).collect()),
            _ => Kind::Done,
        }
    }
}

/// Restores the run after each step, as in another process.
async fn resume(agent: &Agent) -> String {
    let mut waits = String::new();
    let mut driver = question(agent).start();
    loop {
        match driver.advance().await {
            Ok(true) => driver = agent.resume(restored(driver.into_run())).start(),
            Ok(false) => return outcome(&waits, driver.finish().await),
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
                let mut run = restored(error.into_run());
                decide(&mut run, &mut waits);
                driver = agent.resume(run).start();
            }
            Err(error) => return outcome(&waits, Err(error)),
        }
    }
}

async fn cli(agent: Agent, rule: Rule) -> String {
    let keys = match rule {
        Rule::Approve => "y\n",
        Rule::DenyApproval => "n\nby a person\n",
        Rule::EditApproval => "e\n{\"text\":\"c\"}\n",
        _ => "",
    };
    let mut output = Vec::new();
    let input = Cursor::new(format!("go\n{keys}"));
    let chat = tool_cli::Chat::new(agent).conversation("chat");
    let chat = if rule == Rule::Whose { chat.user("ada") } else { chat };
    chat.run_with(input, &mut output).await.unwrap();
    let shown = String::from_utf8(output).unwrap();
    let asked = if shown.contains("Execute act {\"text\":\"a\"}?") { "asked a, " } else { "" };
    let answers = ["Done.", "No.", "Replaced.", "Better."];
    let answers: Vec<_> = answers.into_iter().filter(|answer| shown.contains(answer)).collect();
    match &*answers {
        [] => format!("{asked}error"),
        [answer] => format!("{asked}{answer}"),
        several => panic!("{several:?} were shown: {shown}"),
    }
}

/// Drives the run, and reads the answer from the stream of the page.
async fn web(agent: Agent, rule: Rule) -> String {
    let mut waits = String::new();
    let mut driver = question(&agent).start();
    let ended = loop {
        match driver.advance().await {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
                let mut run = error.into_run();
                decide(&mut run, &mut waits);
                driver = agent.resume(run).start();
            }
            Err(error) => break Some(error),
        }
    };
    let store = std::sync::Arc::clone(agent.run_store().unwrap());
    let server = tool_web::Web::new().store("store", store).spawn("127.0.0.1:0").await.unwrap();
    let (run, url) = (driver.run(), format!("http://localhost:{}", server.address().port()));
    let page = http().get(format!("{url}/plain/{}", run.id())).send().await.unwrap();
    let page = page.error_for_status().unwrap().text().await.unwrap();
    let read = RunReader::new(run.id().as_str()).read(&**agent.run_store().unwrap()).await.unwrap();
    let entries: Vec<_> = read.unwrap().events.iter().map(|record| json!(record)).collect();
    let shown = json!(entries).to_string();
    let hidden = match rule {
        Rule::Rewrite => Some("text\\\":\\\"a"),
        Rule::OutputReplace | Rule::OutputFail => Some("did a"),
        _ if rule.phase() == Some(LayerPhase::Answer) || rule.phase() == Some(LayerPhase::Question) => {
            Some("Done.")
        }
        _ => None,
    };
    if let Some(hidden) = hidden.filter(|_| !matches!(rule, Rule::BesidePass | Rule::QuestionRewrite)) {
        assert!(!shown.contains(hidden), "{shown}");
        assert!(!page.contains(&hidden.replace('\\', "").replace('"', "&quot;")), "{page}");
    }
    let finished = match ended {
        Some(error) => Err(error),
        None => driver.finish().await,
    };
    if let Ok(answer) = &finished {
        // What a layer answers is no reply.
        let last = entries.iter().rfind(|entry| entry["type"] == "turn_finished");
        let text = |entry: &Value| entry["response"]["message"]["text"].as_str().map(str::to_owned);
        assert!(last.and_then(text).is_none_or(|text| text == answer.text()), "{shown}");
    }
    outcome(&waits, finished)
}

async fn mcp(tools: ToolSet) -> String {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(theirs);
    let server = tool_mcp::server::Server::new(tools);
    tokio::spawn(async move { server.serve_streams(input, output).await.unwrap() });
    let client = ().serve(ours).await.unwrap();
    let Value::Object(arguments) = json!({ "text": "a" }) else { unreachable!() };
    let params = CallToolRequestParams::new("act").with_arguments(arguments);
    let result = client.call_tool(params).await.unwrap();
    result.content.iter().filter_map(|block| Some(block.as_text()?.text.clone())).collect()
}

fn http() -> reqwest::Client {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).build().unwrap()
}

/// Posts a body, and returns the events of its response, or the response as the only one.
pub(crate) async fn post(url: &str, body: &Value) -> Vec<Value> {
    let request = http().post(url).header("content-type", "application/json").body(body.to_string());
    let text = request.send().await.unwrap().text().await.unwrap();
    match serde_json::from_str(&text) {
        Ok(whole) => vec![whole],
        Err(_) => {
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
        }
    }
}

fn server(agent: Agent) -> Server {
    let server = Server::new().agent("a", agent);
    match RULE.with(std::cell::Cell::get) {
        Rule::Whose => server.user(|_| Some(RunUser::new("ada"))),
        _ => server,
    }
}

async fn chat(agent: Agent, is_streamed: bool) -> String {
    let server = server(agent).spawn("127.0.0.1:0").await.unwrap();
    let url = format!("{}/chat/completions", server.url());
    let mut body = json!({
        "model": "a", "stream": is_streamed, "messages": [{ "role": "user", "content": "go" }]
    });
    let mut waits = String::new();
    loop {
        let (mut shown, mut calls) = (String::new(), Vec::<Value>::new());
        for event in post(&url, &body).await {
            if !event["error"].is_null() {
                assert_eq!(shown, "");
                return format!("{waits}error");
            }
            let message = &event["choices"][0][if is_streamed { "delta" } else { "message" }];
            shown.push_str(message["content"].as_str().unwrap_or_default());
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                match calls.last_mut().filter(|_| call["id"].is_null()) {
                    Some(last) => {
                        let text = last["function"]["arguments"].as_str().unwrap_or_default().to_owned();
                        let more = call["function"]["arguments"].as_str().unwrap_or_default();
                        last["function"]["arguments"] = json!(text + more);
                    }
                    None => calls.push(call.clone()),
                }
            }
        }
        if calls.is_empty() {
            return format!("{waits}{shown}");
        }
        let messages = body["messages"].as_array_mut().unwrap();
        let id = calls[0]["id"].clone();
        assert_eq!(calls[0]["function"]["arguments"], r#"{"text":"a"}"#);
        calls.iter_mut().for_each(|call| drop(call.as_object_mut().unwrap().remove("index")));
        messages.push(json!({ "role": "assistant", "content": shown, "tool_calls": calls }));
        messages.push(json!({ "role": "tool", "tool_call_id": id, "content": "by the caller" }));
        waits.push_str("left a, ");
    }
}

async fn responses(agent: Agent, is_streamed: bool) -> String {
    let server = server(agent).spawn("127.0.0.1:0").await.unwrap();
    let url = format!("{}/responses", server.url());
    let mut body = json!({ "model": "a", "stream": is_streamed, "input": "go" });
    let mut waits = String::new();
    loop {
        let mut events = post(&url, &body).await;
        let shown: String = events
            .iter()
            .filter(|event| event["type"] == "response.output_text.delta")
            .filter_map(|event| event["delta"].as_str())
            .collect();
        let mut last = events.pop().unwrap();
        if is_streamed && !last["response"].is_null() {
            last = last["response"].take();
        }
        if !last["error"].is_null() || last["type"] == "error" {
            assert_eq!(shown, "");
            return format!("{waits}error");
        }
        let (mut text, mut results) = (String::new(), Vec::new());
        for item in last["output"].as_array().unwrap() {
            match item["type"].as_str().unwrap() {
                "message" => text.push_str(item["content"][0]["text"].as_str().unwrap()),
                "function_call" => {
                    assert_eq!(item["arguments"], r#"{"text":"a"}"#);
                    let id = &item["call_id"];
                    results.push(
                        json!({ "type": "function_call_output", "call_id": id, "output": "by the caller" }),
                    );
                }
                other => panic!("{other}"),
            }
        }
        if results.is_empty() {
            assert!(!is_streamed || shown == text, "{shown}");
            return format!("{waits}{text}");
        }
        body["previous_response_id"] = last["id"].clone();
        body["input"] = json!(results);
        waits.push_str("left a, ");
    }
}
