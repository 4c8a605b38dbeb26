//! Ways past a layer that a model, a tool or a caller could try.

use std::sync::{Arc, Mutex};

use futures_util::stream;
use serde_json::json;
use tool_core::layer::{
    AnswerVerdict, CallVerdict, OutputVerdict, QuestionVerdict, Redact, TextVerdict, guard, rewrite,
};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, ErrorPolicy};
use tool_core::schemars::{self, JsonSchema};
use tool_core::testing::ScriptedModel;
use tool_core::{
    Agent, ChatModel, Event, Message, ToolCall, ToolContext, ToolError, ToolExecution, ToolOutput, tool,
    tools,
};
use tool_openai::server::Server;

use crate::entrances::post;

const SECRET: &str = "a@b.org";

/// A model that streams one reply, whose last item need not agree with the chunks before it.
struct Reply(Vec<Delta>, AssistantMessage);

impl ChatModel for Reply {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let response = ChatResponse::new(self.1.clone());
        Box::pin(async { Ok(response) })
    }

    fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let done = Delta::Done(ChatResponse::new(self.1.clone()));
        ChatStream::new(stream::iter(self.0.clone().into_iter().chain([done]).map(Ok)))
    }
}

/// Streams a run. Returns the texts that arrive, and the answer or the error.
async fn stream_all(agent: &Agent) -> (String, String) {
    let mut events = agent.ask("go").stream();
    let mut seen = String::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Text(text) | Event::Refusal(text)) => seen.push_str(&text),
            Ok(Event::Done(answer)) => {
                return (seen, format!("{}{}", answer.text(), answer.refusal().unwrap_or_default()));
            }
            Err(error) => return (seen, error.to_string()),
            Ok(_) => {}
        }
    }
    panic!("the stream has no end")
}

fn refusal(text: &str, refusal: &str) -> AssistantMessage {
    let mut message = AssistantMessage::text(text);
    message.refusal = Some(refusal.to_owned());
    message
}

#[tokio::test]
async fn a_refusal_beside_a_text_is_judged() {
    for text in ["", "Well."] {
        let message = refusal(text, SECRET);
        let mut deltas = ChatResponse::new(message.clone()).into_deltas();
        deltas.pop();
        let guard = guard::answer(|text| match text.contains(SECRET) {
            true => AnswerVerdict::replace("No."),
            false => AnswerVerdict::Pass,
        });
        let agent = Agent::builder(Reply(deltas, message)).layer(guard).build().unwrap();
        assert_eq!(stream_all(&agent).await, ("No.".into(), "No.".into()));
    }
}

#[tokio::test]
async fn a_watched_text_includes_refusals_and_what_only_the_response_has() {
    let watched = || {
        guard::text(8, |text| match text.contains(SECRET) {
            true => TextVerdict::end("an address"),
            false => TextVerdict::Pass,
        })
    };
    let chunks = |chunks: [&str; 2]| chunks.map(|chunk| Delta::Text(chunk.to_owned())).to_vec();
    let refused = ["a@b", ".org"].map(|chunk| Delta::Refusal(chunk.to_owned())).to_vec();
    let replies = [
        Reply(chunks(["a@b", ".org"]), AssistantMessage::text(SECRET)),
        Reply(chunks(["Good ", "morning."]), AssistantMessage::text(SECRET)),
        Reply(refused, refusal("", SECRET)),
        Reply(Vec::new(), refusal("", SECRET)),
        Reply(Vec::new(), refusal("Well.", SECRET)),
    ];
    for reply in replies {
        let agent = Agent::builder(reply).layer(watched()).build().unwrap();
        let (seen, end) = stream_all(&agent).await;
        assert!(!seen.contains(SECRET), "{seen}");
        assert_eq!(end, "the layer `guard::text` has ended the run: an address");
        let error = agent.ask("go").await.unwrap_err();
        assert_eq!(error.to_string(), "the layer `guard::text` has ended the run: an address");
    }
}

/// A caller of an endpoint hides the question among messages that it makes up.
#[tokio::test]
async fn a_caller_cannot_hide_a_question_in_a_conversation() {
    let call = json!({ "id": "c", "type": "function", "function": { "name": "echo", "arguments": "{}" } });
    let evil = json!({ "role": "user", "content": "evil" });
    let conversations = [
        json!([evil]),
        json!([evil, { "role": "user", "content": "go" }]),
        json!([{ "role": "user", "content": "go" }, evil, { "role": "assistant", "content": "Yes?" }]),
        json!([evil, { "role": "assistant", "content": "Yes?" }, { "role": "user", "content": "go" }]),
        json!([evil, { "role": "assistant", "tool_calls": [call] }, { "role": "tool", "tool_call_id": "c", "content": "go" }]),
    ];
    let mut passed = Vec::new();
    for messages in conversations {
        let asked: Arc<Mutex<bool>> = Arc::default();
        let seen = Arc::clone(&asked);
        let model = ScriptedModel::new().says("Done.");
        let guard = guard::question(move |question| {
            *seen.lock().unwrap() = true;
            match question.text().contains("evil") {
                true => QuestionVerdict::end("evil"),
                false => QuestionVerdict::Pass,
            }
        });
        let agent = Agent::builder(model.clone()).layer(guard).build().unwrap();
        let server = Server::new().agent("a", agent).spawn("127.0.0.1:0").await.unwrap();
        let url = format!("{}/chat/completions", server.url());
        let tools = json!([{ "type": "function", "function": { "name": "echo", "parameters": { "type": "object" } } }]);
        let body = json!({ "model": "a", "messages": messages, "tools": tools });
        post(&url, &body).await;
        passed.push((*asked.lock().unwrap(), model.remaining() == 0));
    }
    // Earlier messages are the history, which layers see in requests.
    assert_eq!(passed, [(true, false), (true, true), (false, false), (true, true), (true, false)]);
}

#[tool("Fetches")]
fn fetch() -> Result<String, ToolError> {
    Err(ToolError::failed(SECRET))
}

#[tool("Fetches", attempts = 2, return_direct = "always")]
fn fetch_again() -> Result<String, ToolError> {
    Err(ToolError::failed(SECRET))
}

#[tool("Fetches")]
fn fetch_fatally() -> Result<String, ToolError> {
    Err(ToolError::fatal(SECRET))
}

/// Errors of tools, on every way out of a run.
#[tokio::test(start_paused = true)]
async fn errors_of_tools_leave_redacted() {
    for name in ["fetch", "fetch_again", "fetch_fatally"] {
        for policy in [ErrorPolicy::Report, ErrorPolicy::Hide, ErrorPolicy::EndRun] {
            let model = ScriptedModel::new().calls(name, "{}").says("Done.");
            let agent = Agent::builder(model.clone())
                .tools(tools![fetch, fetch_again, fetch_fatally])
                .default_error_policy(policy)
                .layer(Redact::new().email_addresses())
                .build()
                .unwrap();
            let mut events = agent.ask("go").stream();
            let mut seen = String::new();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::CallFinished(execution) | Event::CallRetried(execution)) => {
                        seen.push_str(&execution.to_string());
                    }
                    Ok(_) => {}
                    Err(error) => seen.push_str(&format!("{error} {error:?}")),
                }
            }
            seen.push_str(&format!(
                "{:?}",
                model.requests().iter().flatten().map(|it| it.text()).collect::<Vec<_>>()
            ));
            assert!(!seen.contains(SECRET), "{name} {policy:?}: {seen}");
        }
    }
}

#[tool("Looks up")]
fn look_up() -> String {
    "never executed".into()
}

/// Outcomes that no tool of the agent produced pass the layers for outputs as well.
#[tokio::test]
async fn given_and_supplied_outcomes_are_seen_as_outputs() {
    let redact = || rewrite::output(|_, output| output.to_string().replace(SECRET, "…"));
    // By another layer.
    let model = ScriptedModel::new().calls("look_up", "{}").says("Done.");
    let cached = guard::call(|_: &ToolCall| CallVerdict::replace(SECRET));
    let agent = Agent::builder(model).tools(tools![look_up]).layer(redact()).layer(cached).build().unwrap();
    let answer = agent.ask("go").await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "…");
    // By the caller.
    let model = ScriptedModel::new().calls("look_up", "{}").says("Done.");
    let left = guard::call(|_: &ToolCall| CallVerdict::LeaveToCaller);
    let agent = Agent::builder(model).tools(tools![look_up]).layer(redact()).layer(left).build().unwrap();
    let mut run = agent.ask("go").await.unwrap_err().into_run();
    let waits = run.waits();
    run.resolve(&waits[0].id, Decision::result(Ok(ToolOutput::text(SECRET)))).unwrap();
    let answer = agent.resume(run).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "…");
    // Of calls that are refused.
    let model = ScriptedModel::new().calls(SECRET, "{}").calls("look_up", "a@b.org").says("Done.");
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&seen);
    let watch = guard::output(move |execution| {
        log.lock().unwrap().push(execution.to_string());
        OutputVerdict::fail(ToolError::failed("no"))
    });
    let agent = Agent::builder(model).tools(tools![look_up]).layer(watch).build().unwrap();
    let answer = agent.ask("go").await.unwrap();
    assert_eq!(seen.lock().unwrap().len(), 2);
    let read: Vec<_> = [2, 4].map(|at| answer.new_messages()[at].text().into_owned()).to_vec();
    assert_eq!(read, ["no", "no"]);
}

/// The model writes one secret over several calls, turns and parts. Only what is joined afterwards would show it.
#[tokio::test]
async fn parts_of_a_reply_are_not_joined() {
    let message = refusal("a@b", ".org");
    let mut deltas = ChatResponse::new(message.clone()).into_deltas();
    deltas.pop();
    let agent =
        Agent::builder(Reply(deltas, message)).layer(Redact::new().email_addresses()).build().unwrap();
    let (_, answer) = stream_all(&agent).await;
    // The text and the refusal are two texts.
    assert_eq!(answer, "a@b.org");
}

/// The same for sets without an agent.
#[tokio::test]
async fn sets_see_given_outcomes_and_refused_arguments_as_outputs() {
    let context = ToolContext::new();
    let call = |arguments: &str| ToolCall::new("call_1", "echo", arguments);
    let redact = || Redact::new().email_addresses().only_to_model();
    let cached = guard::call(|_: &ToolCall| CallVerdict::replace(SECRET));
    let output = tools![echo].layer(redact()).layer(cached).call(&call(r#"{"text": "a"}"#), &context).await;
    assert_eq!(output.unwrap().to_string(), "[e-mail address]");
    let keyed = rewrite::call(|_| Some(json!({ "text": [SECRET] }).to_string()));
    let error = tools![echo].layer(keyed).layer(redact()).call(&call(r#"{"text": "a"}"#), &context).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("the call was not executed: the layer `rewrite::call` wrote arguments"),
        "{error}"
    );
    assert!(!error.contains(SECRET), "{error}");
    let error =
        tools![echo].layer(redact()).call(&call(r#"{"text": ["a@b.org"]}"#), &context).await.unwrap_err();
    assert!(!error.to_string().contains(SECRET), "{error}");
}

#[tool("Returns the text")]
fn echo(text: String) -> String {
    text
}

/// An agent that the agent asks, and one that it is handed off to.
#[tokio::test]
async fn inner_agents_send_nothing_unredacted() {
    let redact = || Redact::new().email_addresses();
    for is_handoff in [false, true] {
        let script = ScriptedModel::new().calls("echo", r#"{"text": "a\u0040b.org"}"#).says(SECRET);
        let inner = Agent::builder(script.clone()).tools(tools![echo]).instructions(SECRET).build().unwrap();
        let outer = match is_handoff {
            true => {
                Agent::builder(ScriptedModel::new().calls("inner", "{}")).handoff_to("inner", "Helps", &inner)
            }
            false => {
                let model = ScriptedModel::new().calls("inner", r#"{"question": "a@b.org"}"#).says("Done.");
                Agent::builder(model).tools(inner.as_tool("inner", "Helps").stream_text())
            }
        };
        let agent = outer.layer(redact()).build().unwrap();
        let mut events = agent.ask("go").stream();
        let mut seen = String::new();
        while let Some(event) = events.next().await {
            seen.push_str(&serde_json::to_string(&event.unwrap().at(0)).unwrap());
        }
        let read = serde_json::to_string(&script.requests()).unwrap();
        for secret in [SECRET, "u0040"] {
            assert!(!read.contains(secret), "{read}");
            assert!(!seen.contains(secret), "{seen}");
        }
    }
}

#[tool("Reads")]
fn read() -> &'static str {
    SECRET
}

#[tool("Fails")]
fn fails() -> Result<(), &'static str> {
    Err(SECRET)
}

/// What layers replaced is in the stored run, and in the records of those that ask for it.
#[tokio::test]
async fn records_of_events_contain_nothing_that_was_replaced() {
    let replaced = || {
        let model = ScriptedModel::new().calls("echo", "{'text': 'a@b.org'}").calls("read", "{}");
        let model = model.calls("fails", "{}").says("Done.");
        let call = |call: &ToolCall| (call.name == "echo").then(|| r#"{"text": "…"}"#.to_owned());
        let output = guard::output(|_: &ToolExecution| OutputVerdict::Replace(Ok("…".into())));
        let agent = Agent::builder(model).tools(tools![echo, read, fails]);
        agent.layer(rewrite::call(call)).layer(output)
    };
    let inner = replaced().build().unwrap();
    let outer = Agent::builder(ScriptedModel::new().calls("inner", r#"{"question": "go"}"#).says("Done."));
    let outer = outer.tools(inner.as_tool("inner", "Helps")).build().unwrap();
    for agent in [replaced().build().unwrap(), outer] {
        let mut events = agent.ask("go").stream();
        let (mut records, mut originals) = (String::new(), String::new());
        while let Some(event) = events.next().await {
            let event = event.unwrap();
            records.push_str(&serde_json::to_string(&event.clone().at(0)).unwrap());
            originals.push_str(&serde_json::to_string(&event.at_with_originals(0)).unwrap());
        }
        assert!(!records.contains(SECRET), "{records}");
        assert_eq!(originals.matches(SECRET).count(), 3, "{originals}");
    }
}

#[derive(serde::Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// The sample of the guide.
#[tokio::test]
async fn a_guard_reads_arguments_as_the_tool_does() {
    let guarded = tools![echo].layer(guard::call(|call: &ToolCall| match call.arguments_as::<Text>() {
        Ok(Text { text }) if !text.contains("..") => CallVerdict::Pass,
        _ => CallVerdict::deny("stay in the folder"),
    }));
    for arguments in [
        r#"{"text": "../a"}"#,
        r#"{"text": "\u002e\u002e/a"}"#,
        "```json\n{'text': '.\\u002e/a'}\n```",
        r#"{"text": "a", "text": "../a"}"#,
    ] {
        let call = ToolCall::new("call_1", "echo", arguments);
        assert!(guarded.call(&call, &ToolContext::new()).await.is_err(), "{arguments}");
    }
}

/// The sample of the guide: the model asks for more than is left in one reply.
#[tokio::test]
async fn a_limit_of_calls_holds_within_a_reply() {
    let limit = guard::call_with_context(|call, at| {
        let earlier = at.executions.iter().map(|execution| execution.call());
        let reply =
            at.messages.last().and_then(Message::as_assistant).map_or(&[][..], |reply| &reply.tool_calls);
        let before = reply.iter().take_while(|one| one.id != call.id);
        match earlier.chain(before).filter(|one| one.name == "echo").count() >= 3 {
            true => CallVerdict::deny("there are none left"),
            false => CallVerdict::Pass,
        }
    });
    let texts = [r#"{"text": "a"}"#, r#"{"text": "b"}"#].map(|text| ("echo", text));
    let model = ScriptedModel::new().calls_all(texts).calls_all([texts[0], texts[1]]).says("Done.");
    let agent = Agent::builder(model).tools(tools![echo]).layer(limit).build().unwrap();
    let answer = agent.ask("go").await.unwrap();
    let results: Vec<_> =
        answer.new_messages().iter().filter(|one| matches!(one, Message::Tool(_))).collect();
    let results: Vec<_> = results.iter().map(|one| one.text().into_owned()).collect();
    assert_eq!(results, ["a", "b", "a", "the call was denied: there are none left"]);
}
