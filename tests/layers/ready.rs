//! Ready-made layers.

use std::sync::{Arc, Mutex};

use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tool_core::content::{Content, File, Part};
use tool_core::engine::EmittedCalls;
use tool_core::layer::{AnswerVerdict, Audit, CallVerdict, QuestionVerdict, Redact, guard, rewrite};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta};
use tool_core::provider::{Citation, ModelFuture, ProviderData, TokenLogprob};
use tool_core::run::{Decision, Run};
use tool_core::signatures::AuditRecord;
use tool_core::testing::ScriptedModel;
use tool_core::{
    Agent, ChatModel, Event, FunctionTool, Message, ToolCall, ToolContext, ToolError, ToolOutput, tool, tools,
};

/// A model that streams these chunks one by one, and says `End.` to the results of calls.
struct Chunks(Vec<Delta>, ChatResponse);

impl Chunks {
    fn text(chunks: &[&str]) -> Self {
        let deltas = chunks.iter().map(|chunk| Delta::Text((*chunk).to_owned()));
        Self(deltas.collect(), ChatResponse::new(AssistantMessage::text(chunks.concat())))
    }
}

impl ChatModel for Chunks {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let is_first = !request.messages().iter().any(|message| matches!(message, Message::Tool(_)));
        let end = ChatResponse::new(AssistantMessage::text("End."));
        let response = if is_first { self.1.clone() } else { end };
        Box::pin(async { Ok(response) })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let deltas = self.0.clone().into_iter().map(Ok);
        let done = stream::once(async { self.chat(request).await.map(Delta::Done) });
        ChatStream::new(futures_util::StreamExt::chain(stream::iter(deltas), done))
    }
}

fn redact() -> Redact {
    Redact::new().card_numbers().email_addresses().keys()
}

/// Returns the text of a message that is redacted on its way to the model.
async fn redacted(redact: Redact, text: &str) -> String {
    let model = ScriptedModel::new().says("");
    let agent = Agent::builder(model.clone()).layer(redact).build().unwrap();
    agent.ask(text).await.unwrap();
    model.requests()[0][0].text().into_owned()
}

#[tokio::test]
async fn redacts_what_has_the_form_of_a_secret() {
    let cases = [
        ("pay with 4111111111111111.", "pay with [card number]."),
        ("4111 1111 1111 1111", "[card number]"),
        ("4111-1111-1111-1111", "[card number]"),
        ("4111\u{a0}1111\u{202f}1111 1111", "[card number]"),
        ("3782 822463 10005", "[card number]"),
        ("no. 12 4111 1111 1111 1111 12/27 123", "no. 12 [card number] 12/27 123"),
        ("4111 1111 1111 1111 5555 5555 5555 4444", "[card number] [card number]"),
        // Another check digit, another issuer, a longer number.
        ("4111111111111112", "4111111111111112"),
        ("1111111111111117", "1111111111111117"),
        ("40041111111111111111", "40041111111111111111"),
        ("2026-11-24 10:18:47.123456 1732443527123456789", "2026-11-24 10:18:47.123456 1732443527123456789"),
        ("write to <ada.l+x@mail.example.org>, or not", "write to <[e-mail address]>, or not"),
        ("Ä@bücher.example.", "[e-mail address]."),
        ("@ada a@b", "@ada a@b"),
        ("key=sk-proj-abcdefghijklmnop1234", "key=[key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[key]"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[key]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "[key]"),
        ("task-skilled risk-assessment", "task-skilled risk-assessment"),
    ];
    for (text, expected) in cases {
        assert_eq!(redacted(redact(), text).await, expected);
    }
}

#[tokio::test]
async fn redacts_patterns_of_the_user_within_lines() {
    let pattern = || Redact::new().pattern("Project [A-Z][a-z]+").pattern(r"(?s)from.*to");
    let cases = [
        ("about Project Falcon and\nProject Hawk", "about [redacted] and\n[redacted]"),
        ("from a\nto b", "from a\nto b"),
        ("from a to b", "[redacted] b"),
        // Matches overlap.
        ("from Project Falcon to", "[redacted]"),
    ];
    for (text, expected) in cases {
        assert_eq!(redacted(pattern(), text).await, expected);
    }
}

#[tokio::test]
async fn refuses_patterns_that_are_no_regular_expressions() {
    let redact = || Redact::new().pattern("(");
    let error = Agent::builder(ScriptedModel::new()).layer(redact()).build().unwrap_err();
    let expected = "the layer `redact` is invalid: invalid pattern `(`: found open group without closing ')'";
    assert_eq!(error.to_string(), expected);
    let call = ToolCall::new("call_1", "echo", r#"{"text": "a"}"#);
    let error = tools![echo].layer(redact()).call(&call, &ToolContext::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "the call was not executed: the layer `redact` failed");
    let error = tools![echo].layer(redact().only_to_model()).call(&call, &ToolContext::new()).await;
    assert_eq!(error.unwrap_err().to_string(), "the layer `redact` failed");
}

#[tool("Returns the text")]
fn echo(text: String) -> String {
    text
}

/// Every chunk size: what is streamed equals what is not, and no secret is in the chunks.
#[tokio::test]
async fn redacts_secrets_that_arrive_in_pieces() {
    let text = "Pay 12 4111 1111 1111 1111 or 4111111111111111 \nat ada@example.com and b@c.org: C-1815 1 ";
    let expected =
        "Pay 12 [card number] or [card number] \nat [e-mail address] and [e-mail address]: C-1815 1 ";
    let chars: Vec<char> = text.chars().collect();
    for size in 1..chars.len() {
        let chunks: Vec<String> = chars.chunks(size).map(|chunk| chunk.iter().collect()).collect();
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        for (redact, expected) in [
            (redact(), expected.to_owned()),
            (redact().pattern(r"C-\d{4}"), expected.replace("C-1815", "[redacted]")),
        ] {
            let agent = Agent::builder(Chunks::text(&chunks)).layer(redact).build().unwrap();
            let (streamed, answer) = stream_text(&agent).await;
            assert_eq!(streamed, expected, "in chunks of {size}");
            assert_eq!(answer, expected, "in chunks of {size}");
        }
    }
}

async fn stream_text(agent: &Agent) -> (String, String) {
    let mut events = agent.ask("go").stream();
    let (mut streamed, mut answer) = (String::new(), String::new());
    while let Some(event) = events.next().await {
        match event.unwrap() {
            Event::Text(text) => streamed.push_str(&text),
            Event::Done(done) => answer = done.text().to_owned(),
            _ => {}
        }
    }
    (streamed, answer)
}

/// Words are streamed as soon as the next one begins.
#[tokio::test]
async fn streams_words_that_are_no_part_of_a_secret() {
    let agent = Agent::builder(Chunks::text(&["One ", "two 4", "2", " 7 three"])).layer(redact());
    let mut events = agent.build().unwrap().ask("go").stream();
    let mut chunks = Vec::new();
    while let Some(event) = events.next().await {
        if let Event::Text(text) = event.unwrap() {
            chunks.push(text);
        }
    }
    assert_eq!(chunks, ["One ", "two ", "42 7 ", "three"]);
}

/// All that a reply contains: no part of the run, of its events and of the next request has the secret.
#[tokio::test]
async fn redacts_every_part_of_a_reply() {
    const SECRET: &str = "ada@example.com";
    let call = |name: &str, arguments: &str| {
        let mut call = ToolCall::new("call_1", name, arguments);
        call.provider_data = Some(ProviderData::new("test", json!({ "raw": SECRET }).into()));
        call
    };
    let replies = [
        call("echo", r#"{"text": "ada@example.com"}"#),
        call("echo", r#"{"text": "ada\u0040example.com"}"#),
        call("echo", r#"{"text": "a", "ada@example.com": 1}"#),
        call("echo", r#"{"text": ada@example.com"#),
        call("ada@example.com", "{}"),
    ];
    for call in replies {
        let mut message = AssistantMessage::text(SECRET).with_tool_calls([call.clone()]);
        message.reasoning = Some(format!("so {SECRET}"));
        message.refusal = Some(format!("not {SECRET}"));
        let mut citation = Citation::new(0..3);
        citation.quote = Some(SECRET.into());
        message.citations = vec![citation];
        message.provider_data = Some(ProviderData::new("test", json!({ "raw": SECRET }).into()));
        let mut response = ChatResponse::new(message);
        response.logprobs = vec![TokenLogprob::new(SECRET, 0.0)];
        let mut deltas = response.clone().into_deltas();
        deltas.pop();
        let agent = Agent::builder(Chunks(deltas, response)).tools(tools![echo]).layer(redact());
        let agent = agent.build().unwrap();
        let mut events = agent.ask("go").stream();
        let mut seen = String::new();
        while let Some(event) = events.next().await {
            seen.push_str(&shown(&event.unwrap()));
        }
        assert!(seen.ends_with("End."), "{seen}");
        for secret in [SECRET, "u0040"] {
            assert!(!seen.contains(secret), "{call}: {seen}");
        }
        let answer = agent.ask("go").await.unwrap();
        let state = shown(&Event::Done(answer));
        for secret in [SECRET, "u0040"] {
            assert!(!state.contains(secret), "{call}: {state}");
        }
    }
}

/// Writes all that an event shows.
fn shown(event: &Event) -> String {
    let json = |value: &dyn erased::Json| value.json();
    match event {
        Event::Text(text) | Event::Reasoning(text) | Event::Refusal(text) => text.clone(),
        Event::CallAnnounced { name, .. } => name.clone(),
        Event::Arguments { text, .. } => text.clone(),
        Event::CallReady { call, .. } | Event::CallStarted(call) => json(call),
        Event::CallFinished(execution) => json(execution),
        Event::TurnFinished { response, .. } => json(response),
        Event::Done(answer) => {
            json(&answer.new_messages()) + &json(&answer.tool_executions()) + answer.text()
        }
        other => format!("{other:?}"),
    }
}

mod erased {
    pub(super) trait Json {
        fn json(&self) -> String;
    }

    impl<T: serde::Serialize> Json for T {
        fn json(&self) -> String {
            serde_json::to_string(self).unwrap()
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Customer {
    name: String,
    card: String,
}

#[tokio::test]
async fn redacts_typed_answers_decoded() {
    let model =
        ScriptedModel::new().says(r#"{"name": "Ada \"a\u0040b.org\"", "card": "4111 1111 1111 1111"}"#);
    let agent = Agent::builder(model).layer(redact()).build().unwrap();
    let answer = agent.ask("Who?").answer_as::<Customer>().await.unwrap();
    let expected = Customer { name: "Ada \"[e-mail address]\"".into(), card: "[card number]".into() };
    assert_eq!(answer, expected);
}

#[tool("Finds a customer")]
fn customer(is_known: bool) -> Result<ToolOutput, ToolError> {
    match is_known {
        true => Ok(ToolOutput::json(
            &json!({ "card": 4111111111111111_u64, "mail": "a@b.org", "id": 12345678901234567890_u64 }),
        )?
        .with_part("a@b.org")
        .with_part(File::from_bytes("text/plain", "a@b.org"))),
        false => Err(ToolError::failed("nobody has ada@example.com")),
    }
}

#[tokio::test]
async fn redacts_outputs_and_errors_everywhere() {
    let model = ScriptedModel::new()
        .calls("customer", r#"{"is_known": true}"#)
        .calls("customer", r#"{"is_known": false}"#)
        .says("Known.");
    let agent = Agent::builder(model.clone()).tools(tools![customer]).layer(redact()).build().unwrap();
    let answer = agent.ask("Who?").await.unwrap();
    let found = r#"{"card":"[card number]","mail":"[e-mail address]","id":12345678901234567890}"#;
    let outputs: Vec<_> =
        answer.tool_executions().iter().map(|one| Message::from(one).text().into_owned()).collect();
    assert_eq!(outputs, [&*format!("{found}\n[e-mail address]"), "nobody has [e-mail address]"]);
    assert_eq!(model.requests()[2][2].text(), outputs[0]);
    assert_eq!(answer.tool_executions()[0].output().unwrap().content().files().count(), 1);
    let original = answer.tool_executions()[0].original_outcome().unwrap().to_string();
    assert_eq!(
        original,
        "{\"card\":4111111111111111,\"mail\":\"a@b.org\",\"id\":12345678901234567890}\na@b.org"
    );
}

#[tokio::test]
async fn redacts_secrets_across_parts_and_in_ids() {
    let tool = FunctionTool::new("card", |_: ()| async {
        Ok::<_, ToolError>(ToolOutput::from(Content::from_iter([
            Part::from("4111 1111 "),
            "1111 1111!".into(),
        ])))
    });
    let model = ScriptedModel::new();
    let call = ToolCall::new("call a@b.org", "card", "{}");
    let reply = ChatResponse::new(AssistantMessage::default().with_tool_calls([call]));
    let model = model.replies(reply).says("Done.");
    let agent = Agent::builder(model.clone()).tools(tool).layer(redact()).build().unwrap();
    let events: Vec<_> = futures_util::StreamExt::collect(agent.ask("Pay").stream()).await;
    let Some(Ok(Event::Done(answer))) = events.last() else { panic!("{events:?}") };
    assert_eq!(answer.new_messages()[2].text(), "[card number]!");
    let announced = events.iter().find_map(|event| match event {
        Ok(Event::CallAnnounced { id, .. }) => Some(id.clone()),
        _ => None,
    });
    assert!(!announced.unwrap().contains("a@b.org"));
    assert!(!format!("{:?}", answer.tool_executions()[0].call().id).contains("a@b.org"));
    assert_eq!(redact().text("Pay with 4111111111111111"), "Pay with [card number]");
}

#[tokio::test]
async fn redacts_the_history_and_keeps_the_question() {
    let history =
        [Message::system("Help a@b.org."), Message::user("I am c@d.org."), Message::assistant("Hi c@d.org!")];
    let model = ScriptedModel::new().says("Yes.");
    let agent = Agent::builder(model.clone()).layer(redact()).build().unwrap();
    let question = Content::from("Is e@f.org free?").with_part("g@h.org");
    let answer = agent.ask(question).history(history).await.unwrap();
    let read: Vec<_> = model.requests()[0].iter().map(|message| message.text().into_owned()).collect();
    let it = "[e-mail address]";
    let expected =
        [format!("Help {it}."), format!("I am {it}."), format!("Hi {it}!"), format!("Is {it} free?{it}")];
    assert_eq!(read, expected);
    assert_eq!(answer.new_messages()[0].text(), "Is e@f.org free?g@h.org");
}

#[tokio::test]
async fn redacts_in_one_direction() {
    let echo_mail = |redact: Redact| async {
        let model = ScriptedModel::new().calls("echo", r#"{"text": "a@b.org"}"#).says("a@b.org");
        let agent = Agent::builder(model.clone()).tools(tools![echo]).layer(redact).build().unwrap();
        let answer = agent.ask("a@b.org").await.unwrap();
        let call = answer.tool_executions()[0].call().arguments.clone();
        let requests = model.requests();
        let read = [requests[0][0].text(), requests[1][2].text()].map(std::borrow::Cow::into_owned);
        (read, call, answer.text().to_owned())
    };
    let (hidden, plain) = ("[e-mail address]".to_owned(), "a@b.org".to_owned());
    let arguments = |text: &str| format!(r#"{{"text": "{text}"}}"#);
    assert_eq!(
        echo_mail(redact().only_to_model()).await,
        ([hidden.clone(), hidden.clone()], arguments(&plain), plain.clone())
    );
    assert_eq!(
        echo_mail(redact().only_from_model()).await,
        ([plain, hidden.clone()], arguments(&hidden), hidden)
    );
}

#[tokio::test]
async fn redacts_for_sets_without_an_agent() {
    let tools = tools![echo, customer].layer(redact());
    let call = ToolCall::new("call_1", "echo", r#"{"text": "a\u0040b.org"}"#);
    assert_eq!(tools.call(&call, &ToolContext::new()).await.unwrap().to_string(), "[e-mail address]");
    let call = ToolCall::new("call_1", "customer", r#"{"is_known": false}"#);
    let error = tools.call(&call, &ToolContext::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "nobody has [e-mail address]");
    assert!(error.failure().is_none());
}

/// Every decision of layers of two levels, with the path of agents from the level of the audit.
#[tokio::test]
async fn audits_one_record_per_decision() {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let audit = |name: &'static str| {
        let log = Arc::clone(&log);
        Audit::new(move |record| log.lock().unwrap().push(format!("{name}: {record}"))).named(name)
    };
    let model = ScriptedModel::new()
        .calls("echo", r#"{"text": "a@b.org"}"#)
        .calls("echo", r#"{"text": "secret"}"#)
        .says("rude")
        .says("Nice.");
    let inner = Agent::builder(model)
        .tools(tools![echo])
        .layer(guard::call(|call| match call.arguments.contains("secret") {
            true => CallVerdict::deny("no secrets"),
            false => CallVerdict::Pass,
        }))
        .layer(rewrite::output(|_, output| output.to_string().to_uppercase()))
        .layer(guard::answer(|text| match text == "rude" {
            true => AnswerVerdict::retry("be polite"),
            false => AnswerVerdict::Pass,
        }))
        .layer(guard::question(|_| QuestionVerdict::Pass))
        .layer(audit("inner"))
        .build()
        .unwrap();
    let model = ScriptedModel::new().calls("helper", r#"{"question": "go"}"#).says("Done.");
    let outer = Agent::builder(model)
        .tools(inner.as_tool("helper", "Helps"))
        .layer(rewrite::call(|call| (call.name == "echo").then(|| call.arguments.replace("a@b.org", "a"))))
        .layer(audit("outer").with_arguments())
        .build()
        .unwrap();
    let answer = outer.ask("go").await.unwrap();
    assert_eq!(answer.text(), "Done.");
    let records = std::mem::take(&mut *log.lock().unwrap());
    let expected = [
        "`guard::question` passed the question",
        "`rewrite::call` rewrote the call `echo` (call_1_0)",
        "`rewrite::output` replaced the call `echo` (call_1_0)",
        "the call `echo` (call_1_0) succeeded",
        "`guard::call` denied the call `echo` (call_2_0): no secrets",
        "the call `echo` (call_2_0) failed: denied",
        "`guard::answer` sent back a text",
    ];
    let inside =
        expected.iter().flat_map(|record| [format!("outer: helper: {record}"), format!("inner: {record}")]);
    let expected: Vec<_> =
        inside.chain(["outer: the call `helper` (call_1_0) succeeded".to_owned()]).collect();
    assert_eq!(records, expected);
}

/// Somebody decides while nobody drives the run: in the middle of a turn, and about its last call.
#[tokio::test]
async fn an_audit_has_the_outcomes_of_calls_that_decisions_have_finished() {
    #[tool("Pays", needs_approval)]
    fn pay() {}

    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&log);
    let locate = FunctionTool::new("locate", || "never").external();
    let model = ScriptedModel::new().calls_all([("pay", "{}"), ("locate", "{}")]).says("Done.");
    let agent = Agent::builder(model).tools(tools![pay]).tools(locate);
    let agent = agent.layer(Audit::new(move |record| seen.lock().unwrap().push(record.to_string())));
    let agent = agent.build().unwrap();
    let mut run = agent.ask("go").await.unwrap_err().into_run();
    run.resolve(&run.waits()[0].id, Decision::deny("no")).unwrap();
    let mut run = agent.resume(run).await.unwrap_err().into_run();
    run.resolve(&run.waits()[0].id, Decision::result(Ok(ToolOutput::text("there")))).unwrap();
    agent.resume(run).await.unwrap();
    let expected = [
        "somebody denied the call `pay` (call_1_0): no",
        "the call `pay` (call_1_0) failed: denied",
        "somebody supplied the result of the call `locate` (call_1_1)",
        "the call `locate` (call_1_1) succeeded",
    ];
    assert_eq!(*log.lock().unwrap(), expected);
}

/// A result that layers have not judged holds back no other outcome, also at the end of the run.
#[tokio::test]
async fn only_what_is_not_judged_is_reported_later() {
    #[tool("Pays", needs_approval)]
    fn pay() {}

    #[tool("Looks")]
    fn look() {}

    let model = ScriptedModel::new().calls("look", "{}");
    let model = model.calls_all([("locate", "{}"), ("pay", "{}"), ("pay", "{ }")]);
    let agent = Agent::builder(model).tools(tools![look, pay]);
    let agent = agent.tools(FunctionTool::new("locate", || "never").external()).build().unwrap();
    let mut run = agent.ask("Go").await.unwrap_err().into_run();
    let [supplied, denied] = [Decision::result(Ok(ToolOutput::text("there"))), Decision::deny("no")];
    let mut reported = EmittedCalls::all_of(&run);
    let mut take = |run: &Run, sees_outputs| {
        let shown = reported.take_shown(run, false, sees_outputs);
        shown.iter().map(|one| one.call().id.clone()).collect::<Vec<_>>()
    };
    let waits: Vec<_> = run.waits().into_iter().map(|wait| wait.id).collect();
    run.resolve(&waits[0], supplied).unwrap();
    assert!(take(&run, true).is_empty());
    run.resolve(&waits[1], denied).unwrap();
    assert_eq!(take(&run, true), ["call_2_1"]);
    run.cancel();
    assert!(take(&run, true).is_empty());
    assert_eq!(take(&run, false), ["call_2_0"]);
}

#[tokio::test]
async fn audits_arguments_only_if_they_are_asked_for() {
    for (with_arguments, expected) in [(false, None), (true, Some(r#"{"text": "a"}"#))] {
        let log: Arc<Mutex<Vec<AuditRecord>>> = Arc::default();
        let seen = Arc::clone(&log);
        let audit = Audit::new(move |record| seen.lock().unwrap().push(record));
        let audit = if with_arguments { audit.with_arguments() } else { audit };
        let model = ScriptedModel::new().calls("echo", r#"{"text": "a"}"#);
        let end = guard::call(|_: &ToolCall| CallVerdict::end("the reason"));
        let agent = Agent::builder(model).tools(tools![echo]).layer(audit).layer(end).build().unwrap();
        let error = agent.ask("go").await.unwrap_err();
        assert_eq!(error.to_string(), "the layer `guard::call` has ended the run: the reason");
        let records = log.lock().unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].arguments.as_deref(), expected);
        assert_eq!(
            records[0].to_string(),
            "`guard::call` ended the run at the call `echo` (call_1_0): the reason"
        );
        let debug = format!("{:?}", records[0]);
        assert!(!debug.contains("reason") && !debug.contains("text"), "{debug}");
        let json = serde_json::to_value(&records[0]).unwrap();
        assert_eq!(json["verdict"]["kind"], "ended");
    }
}

#[tokio::test]
async fn a_record_is_one_line_that_shows_every_character() {
    let log: Arc<Mutex<Vec<AuditRecord>>> = Arc::default();
    let seen = Arc::clone(&log);
    let audit = Audit::new(move |record| seen.lock().unwrap().push(record));
    let model = ScriptedModel::new().calls("echo\n`mail` passed", r#"{"text": "a"}"#).says("Done.");
    let deny = guard::call(|call: &ToolCall| CallVerdict::deny(format!("no {}\u{1b}[2J\u{202e}", call.name)));
    let agent = Agent::builder(model).tools(tools![echo]).layer(audit).layer(deny).build().unwrap();
    agent.ask("go").await.unwrap();
    let lines: Vec<_> = log.lock().unwrap().iter().map(ToString::to_string).collect();
    let expected = [
        r"`guard::call` denied the call `echo\n`mail` passed` (call_1_0): no echo\n`mail` passed\u{1b}[2J\u{202e}",
        r"the call `echo\n`mail` passed` (call_1_0) failed: denied",
    ];
    assert_eq!(lines, expected);
}

/// What cannot be recorded does not happen.
#[tokio::test]
async fn nothing_passes_if_the_audit_panics() {
    let model = ScriptedModel::new().calls("echo", r#"{"text": "a"}"#);
    let deny = guard::call(|_: &ToolCall| CallVerdict::deny("no"));
    let audit = Audit::new(|_| panic!("the disk is full"));
    let agent = Agent::builder(model).tools(tools![echo]).layer(deny).layer(audit).build().unwrap();
    let error = agent.ask("go").await.unwrap_err();
    assert_eq!(error.to_string(), "the layer `audit` failed: it panicked: the disk is full");
}
