//! Agents over models without tools in their API.

use std::sync::{Arc, Mutex};

use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tests::support::ways::alike;
use tool_core::agent::AgentBuilder;
use tool_core::content::Image;
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta, FinishReason, ModelError, ToolChoice,
    ToolDefinition, Usage,
};
use tool_core::provider::{ModelFuture, ResponseFormat, ToolDefinitions};
use tool_core::signatures::{PromptedToolsError, PromptedToolsErrorKind};
use tool_core::testing::ScriptedModel;
use tool_core::{
    Agent, Answer, ChatModel, Message, ModelOptions, PromptedTools, RunError, ToolCall, ToolOutput, tool,
    tools,
};

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

/// Returns the weather.
#[tool]
fn get_current_weather(location: String) -> String {
    format!("sunny in {location}")
}

/// Draws a dot.
#[tool]
fn draw() -> ToolOutput {
    ToolOutput::text("a dot").with_part(Image::from_bytes("image/png", [0, 1, 2]))
}

/// Fails.
#[tool]
fn fail() -> Result<(), String> {
    Err("no such city".into())
}

const SUM: &str = r#"<tool_call>
{"name": "sum", "arguments": {"a": 2, "b": 40}}
</tool_call>"#;

/// A model that accepts only text and streams it in chunks of a fixed length. Requests with tools, calls or results
/// fail.
#[derive(Clone)]
struct TextModel {
    script: ScriptedModel,
    length: usize,
}

impl TextModel {
    fn new(script: ScriptedModel) -> Self {
        Self { script, length: 1 }
    }
}

impl ChatModel for TextModel {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let has_tools = request.messages().iter().any(|message| match message {
            Message::Tool(_) => true,
            Message::Assistant(reply) => !reply.tool_calls.is_empty(),
            _ => false,
        });
        let is_plain = request.tools().is_empty()
            && *request.tool_choice() == ToolChoice::Auto
            && request.parallel_tool_calls().is_none();
        if has_tools || !is_plain {
            return Box::pin(async { Err(ModelError::new("it knows no tools")) });
        }
        self.script.chat(request)
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let deltas = stream::once(self.chat(request)).flat_map(|response| {
            let deltas = match response {
                Ok(response) => response.into_deltas().into_iter().flat_map(|one| self.pieces(one)).collect(),
                Err(error) => vec![Err(error)],
            };
            stream::iter(deltas)
        });
        ChatStream::new(deltas)
    }

    fn supports_response_format(&self) -> bool {
        true
    }

    fn provider_name(&self) -> Option<&str> {
        Some("texts")
    }

    fn model_name(&self) -> Option<&str> {
        Some("parrot")
    }
}

impl TextModel {
    fn pieces(&self, delta: Delta) -> Vec<Result<Delta, ModelError>> {
        match delta {
            Delta::Text(text) => {
                let characters: Vec<_> = text.chars().collect();
                characters.chunks(self.length).map(|chunk| Ok(Delta::Text(chunk.iter().collect()))).collect()
            }
            other => vec![Ok(other)],
        }
    }
}

fn agent(script: ScriptedModel) -> AgentBuilder {
    Agent::builder(PromptedTools::new(TextModel::new(script))).tools(tools![
        sum,
        get_current_weather,
        draw,
        fail
    ])
}

/// Runs a case in all ways, and returns the requests that the model received.
async fn run(
    script: impl Fn() -> ScriptedModel,
    build: impl Fn(AgentBuilder) -> AgentBuilder,
) -> (Result<Answer, RunError>, Vec<Vec<Message>>) {
    let scripts = Mutex::new(Vec::new());
    let outcome = alike(|| {
        let script = script();
        scripts.lock().unwrap().push(script.clone());
        build(agent(script))
    })
    .await;
    let requests: Vec<_> =
        scripts.into_inner().unwrap().iter().map(|script| (script.requests(), script.remaining())).collect();
    for (other, remaining) in &requests {
        assert_eq!((other, *remaining), (&requests[0].0, 0), "every way sends the same requests");
    }
    (outcome, requests.into_iter().next().unwrap().0)
}

fn calls(answer: &Answer) -> Vec<(&str, String)> {
    let summary = |one: &tool_core::tool::ToolExecution| {
        one.outcome().map_or_else(ToString::to_string, ToString::to_string)
    };
    answer.tool_executions().iter().map(|one| (&*one.call().name, summary(one))).collect()
}

#[tokio::test]
async fn executes_calls_that_the_model_writes_as_text() {
    let script = || {
        ScriptedModel::new()
            .says(format!("Let me see.\n{SUM}"))
            .says("{'tool': 'get_current_weather', 'parameters': {'location': 'Paris'}}\n```json\n{\"name\": \"draw\", \"arguments\": {}}\n```")
            .says("<tool_call>{\"name\": \"fail\"}</tool_call><tool_call>{\"name\": \"subtract\", \"arguments\": {}}</tool_call>")
            .says("It is 42.")
    };
    let (outcome, requests) = run(script, |agent| agent.instructions("Be brief.")).await;
    let answer = outcome.unwrap();
    assert_eq!(answer.text(), "It is 42.");
    let executed = calls(&answer);
    let names: Vec<_> = executed.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["sum", "get_current_weather", "draw", "fail", "subtract"]);
    let outcomes: Vec<_> = executed.iter().map(|(_, outcome)| &**outcome).collect();
    assert_eq!(outcomes[..3], ["42.0", "sunny in Paris", "a dot"]);
    assert!(outcomes[3].contains("no such city") && outcomes[4].contains("`sum`"), "{outcomes:?}");
    let replies = answer.new_messages().iter().filter_map(Message::as_assistant);
    let texts: Vec<_> = replies.map(|reply| &*reply.text).collect();
    assert_eq!(texts, ["Let me see.", "", "", "It is 42."]);

    // Each request begins with the messages of the previous one.
    assert_eq!(requests.len(), 4);
    for pair in requests.windows(2) {
        assert_eq!(pair[1][..pair[0].len()], pair[0]);
        assert_eq!(pair[1].len(), pair[0].len() + 2);
    }
    let last = requests.last().unwrap();
    let system = last[0].text();
    assert!(system.starts_with("Be brief.\n\n# Tools"), "{system}");
    for word in [
        "<tool_call>",
        "<tool_response>",
        r#""name":"get_current_weather","description":"Returns the weather.","parameters":{"type":"object""#,
    ] {
        assert!(system.contains(word), "{word}: {system}");
    }
    assert_eq!(last[2].text(), format!("Let me see.\n{}", SUM));
    assert_eq!(
        last[3].text(),
        "<tool_response>\n{\"name\": \"sum\", \"content\": \"42.0\"}\n</tool_response>"
    );
    let Message::User(results) = &last[5] else { panic!("{last:?}") };
    assert_eq!(results.images().count(), 1);
    assert!(last[7].text().contains(r#"{"name": "fail", "error": "#), "{}", last[7].text());
}

#[tokio::test]
async fn requests_an_unreadable_call_again() {
    let broken =
        "Let me see.\n<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\": 2 \"b\": 40}}\n</tool_call>";
    let script = || {
        ScriptedModel::new()
            .says(format!("{SUM}{broken}"))
            .with_usage(Usage::new(10, 1))
            .says("{\"tool\": \"sum\", \"parameters\": {\"a\": 2")
            .with_usage(Usage::new(20, 2))
            .says(format!("Again.\n{SUM}"))
            .with_usage(Usage::new(30, 3))
            .says("It is 42.")
    };
    let (outcome, requests) = run(script, |agent| agent).await;
    let answer = outcome.unwrap();
    assert_eq!(calls(&answer), [("sum", "42.0".to_owned())]);
    assert_eq!(answer.usage(), Usage::new(60, 6));
    assert_eq!(answer.turns(), 2);
    let first = answer.new_messages().iter().find_map(Message::as_assistant).unwrap();
    assert_eq!(first.text, "Let me see.\nAgain.");
    // The model reads its own reply, and what is wrong with it.
    let [system, question, reply, complaint] = &requests[1][..] else { panic!("{:?}", requests[1]) };
    assert_eq!((system, question), (&requests[0][0], &requests[0][1]));
    assert_eq!(reply.text(), format!("{SUM}{broken}"));
    let text = complaint.text();
    assert!(
        matches!(complaint, Message::User(_)) && text.contains("expected `,` or `}` at line 1, column 38"),
        "{text}"
    );
    assert_eq!(requests[2].len(), 6);
    // The repair is not part of the run.
    assert_eq!(requests[3].len(), 4);
    assert_eq!(requests[3][..2], requests[0]);
}

#[tokio::test]
async fn fails_when_corrections_do_not_help() {
    let broken = "<tool_call>{secret</tool_call>";
    let unreadable =
        "the model wrote a call that cannot be parsed: expected a name in quotes or `}` at line 1, column 2";
    let table = [
        (ToolChoice::Auto, broken, None, 3, unreadable),
        (ToolChoice::Auto, broken, Some(0), 1, unreadable),
        (
            ToolChoice::Required,
            "secret",
            None,
            3,
            "the model wrote no call, although one is required (gave up after 3 requests)",
        ),
        (
            ToolChoice::Tool("fail".into()),
            SUM,
            Some(1),
            2,
            "the model wrote no call to `fail`, although one is required",
        ),
    ];
    for (choice, reply, corrections, times, expected) in table {
        for is_streamed in [false, true] {
            let script = (0..times).fold(ScriptedModel::new(), |script, _| script.says(reply));
            let mut model = PromptedTools::new(TextModel::new(script.clone()));
            if let Some(corrections) = corrections {
                model = model.max_corrections(corrections);
            }
            let request = ChatRequest::new([Message::user("What now?")])
                .with_tools(definitions(&["sum", "fail"]))
                .with_tool_choice(choice.clone());
            let error = match is_streamed {
                true => streamed(&model, &request).await.1.unwrap_err(),
                false => model.chat(&request).await.unwrap_err(),
            };
            assert!(error.to_string().starts_with(expected), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
            let error = error.downcast::<PromptedToolsError>().unwrap();
            assert_eq!(error.reply(), reply);
            let kind = match choice {
                ToolChoice::Auto => PromptedToolsErrorKind::MalformedCall,
                _ => PromptedToolsErrorKind::MissingCall,
            };
            assert_eq!(error.kind(), kind);
            assert_eq!((script.remaining(), script.requests().len()), (0, times));
        }
    }
}

#[tokio::test]
async fn requests_a_required_call() {
    let script = || ScriptedModel::new().says("It is 41.").says(SUM).says("It is 42.");
    for choice in [ToolChoice::Required, ToolChoice::Tool("sum".into())] {
        let (outcome, requests) = run(script, |agent| agent.tool_choice(choice.clone())).await;
        let answer = outcome.unwrap();
        assert_eq!(calls(&answer), [("sum", "42.0".to_owned())]);
        let said = |request: usize| requests[request].last().unwrap().text().into_owned();
        assert!(said(0).starts_with("What now?\n\nReply with a "), "{}", said(0));
        assert!(said(1).starts_with("Your reply does not contain the required call"), "{}", said(1));
        // The reminder is sent only while it applies, and never in the system message, which stays the same.
        assert_eq!(requests[2][0], requests[0][0]);
        assert_eq!(requests[2][1].text(), "What now?");
    }
}

fn definitions(names: &[&str]) -> ToolDefinitions {
    names.iter().map(|name| ToolDefinition::new(*name)).collect()
}

/// Returns the deltas before the last, and the response in the last.
async fn streamed(
    model: &dyn ChatModel,
    request: &ChatRequest<'_>,
) -> (Vec<Delta>, Result<ChatResponse, ModelError>) {
    let mut all = Vec::new();
    let mut deltas = model.stream(request);
    while let Some(delta) = deltas.next().await {
        match delta {
            Ok(Delta::Done(response)) => {
                assert!(deltas.next().await.is_none(), "the stream continues after its end");
                return (all, Ok(response));
            }
            Ok(delta) => all.push(delta),
            Err(error) => return (all, Err(error)),
        }
    }
    panic!("the stream ended without a final event");
}

/// Returns the parts that the deltas add up to.
fn assembled(deltas: &[Delta]) -> (String, String, Vec<ToolCall>) {
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for delta in deltas {
        match delta {
            Delta::Text(more) => text.push_str(more),
            Delta::Reasoning(more) => reasoning.push_str(more),
            Delta::ToolCall { index, id, name } => {
                assert_eq!(*index, calls.len());
                calls.push(ToolCall::new(id, name, ""));
            }
            Delta::Arguments { index, text } => calls[*index].arguments.push_str(text),
            other => panic!("{other:?}"),
        }
    }
    (text, reasoning, calls)
}

#[tokio::test]
async fn a_stream_equals_the_whole_reply() {
    let thinking = |text: &str| {
        let mut message = AssistantMessage::text(text);
        message.reasoning = Some(format!("Hm. {SUM}"));
        ChatResponse::new(message)
    };
    let scripts = [
        vec![thinking("It is 42.\n")],
        vec![thinking(&format!(" Let me see.\n{SUM}\n{SUM}\n"))],
        vec![thinking("a\n<tool_call>{</tool_call>"), thinking(&format!("b\n{SUM}\nc"))],
        vec![thinking(&format!("a\n{SUM}\n<tool_call>{{")).with_finish_reason(FinishReason::Length)],
        vec![thinking("{\"answer\": 42}")],
        vec![thinking(&format!("<think>{SUM}</think>\nIt is 42."))],
    ];
    for replies in scripts {
        let script = || replies.iter().cloned().fold(ScriptedModel::new(), ScriptedModel::replies);
        let request = ChatRequest::new([Message::user("What now?")]).with_tools(definitions(&["sum"]));
        let whole = PromptedTools::new(TextModel::new(script())).chat(&request).await.unwrap();
        for length in [1, 2, 3, 5, 7, 11, 1000] {
            let model = PromptedTools::new(TextModel { script: script(), length });
            let (deltas, done) = streamed(&model, &request).await;
            assert_eq!(done.unwrap(), whole);
            let (text, reasoning, calls) = assembled(&deltas);
            assert_eq!(text, whole.message.text);
            assert_eq!(Some(reasoning), whole.message.reasoning);
            assert_eq!(calls, whole.message.tool_calls);
        }
        let is_cut = whole.finish_reason == FinishReason::Length;
        let has_calls = !whole.message.tool_calls.is_empty();
        assert_eq!(has_calls && !is_cut, whole.finish_reason == FinishReason::ToolCalls);
        // A call that was cut off is text.
        assert_eq!(whole.message.text.contains("<tool_call>{"), is_cut, "{}", whole.message.text);
    }
}

#[tokio::test]
async fn forwards_text_immediately() {
    // A model whose stream never gets beyond its first chunk.
    struct Endless;

    impl ChatModel for Endless {
        fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            Box::pin(std::future::pending())
        }

        fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
            let said = [
                Delta::Reasoning("Hm.".into()),
                Delta::Text("It is".into()),
                Delta::Text(" 42 <tool".into()),
            ];
            ChatStream::new(stream::iter(said.map(Ok)).chain(stream::pending()))
        }
    }

    let model = PromptedTools::new(Endless);
    let request = ChatRequest::new([Message::user("What now?")]).with_tools(definitions(&["sum"]));
    let mut deltas = model.stream(&request);
    for expected in [Delta::Reasoning("Hm.".into()), Delta::Text("It is".into()), Delta::Text(" 42".into())] {
        assert_eq!(deltas.next().await.unwrap().unwrap(), expected);
    }
}

/// The parts of a model's request beside the messages.
type SentRequest = (Vec<Message>, ModelOptions, Option<ResponseFormat>, ToolChoice);

#[tokio::test]
async fn builds_the_request_for_the_model() {
    let asked: Arc<Mutex<Vec<SentRequest>>> = Arc::default();
    let format = ResponseFormat::json_schema("place", json!({ "type": "object", "properties": {} }));
    let options = ModelOptions::default().with_temperature(0.5);
    let call = ToolCall::new("call_1_0", "sum", "{}");
    let with_tools = vec![
        Message::user("What now?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([call.clone()])),
        Message::tool(&call, &Ok(ToolOutput::text("42"))),
    ];
    let plain = vec![Message::user("What now?")];
    // The messages, the tools and the choice, and whether there is a prompt and a response format.
    let table = [
        (&plain, &["sum"][..], ToolChoice::Auto, true, false),
        (&plain, &["sum"][..], ToolChoice::None, false, true),
        (&plain, &[][..], ToolChoice::Auto, false, true),
        (&with_tools, &["sum"][..], ToolChoice::Auto, true, false),
        (&with_tools, &["sum"][..], ToolChoice::None, false, true),
        (&with_tools, &[][..], ToolChoice::Auto, false, true),
    ];
    for (messages, tools, choice, has_prompt, is_constrained) in table {
        for is_streamed in [false, true] {
            let seen = Arc::clone(&asked);
            let script = ScriptedModel::new()
                .expects(move |request| {
                    let asked = (
                        request.messages().to_vec(),
                        request.options().clone(),
                        request.response_format().cloned(),
                        request.tool_choice().clone(),
                    );
                    seen.lock().unwrap().push(asked);
                    true
                })
                .says(SUM);
            let model = PromptedTools::new(TextModel::new(script));
            assert!(model.supports_response_format());
            assert_eq!((model.provider_name(), model.model_name()), (Some("texts"), Some("parrot")));
            let request = ChatRequest::borrowing(messages)
                .with_tools(definitions(tools))
                .with_tool_choice(choice.clone())
                .with_options(options.clone())
                .with_response_format(format.clone());
            let response = match is_streamed {
                true => streamed(&model, &request).await.1.unwrap(),
                false => model.chat(&request).await.unwrap(),
            };
            let (sent, sent_options, sent_format, sent_choice) = asked.lock().unwrap().pop().unwrap();
            assert_eq!(sent[0].text().contains("# Tools"), has_prompt);
            assert_eq!(sent[0].text().contains("JSON Schema:\n{"), has_prompt);
            assert_eq!(sent_format.as_ref(), is_constrained.then_some(&format));
            assert_eq!((sent_options, sent_choice), (options.clone(), ToolChoice::Auto));
            // Without tools, text is text.
            assert_eq!(response.message.tool_calls.is_empty(), !has_prompt);
            assert_eq!(response.message.text, if has_prompt { "" } else { SUM });
            if let [call] = &response.message.tool_calls[..] {
                assert!(messages.len() == 1 || call.id != "call_1_0", "an id is used twice");
            }
        }
    }
}

#[tokio::test]
async fn parses_one_call_unless_parallel_calls_are_allowed() {
    for (may, names) in [(None, 2), (Some(true), 2), (Some(false), 1)] {
        let model = PromptedTools::new(TextModel::new(ScriptedModel::new().says(format!("{SUM}\n{SUM}"))));
        let request = ChatRequest::new([Message::user("What now?")])
            .with_tools(definitions(&["sum"]))
            .with_parallel_tool_calls(may);
        let response = model.chat(&request).await.unwrap();
        assert_eq!(response.message.tool_calls.len(), names, "{may:?}");
        assert_eq!(response.finish_reason, FinishReason::ToolCalls);
    }
}

#[tokio::test]
async fn supports_typed_answers_beside_tools() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Total {
        total: f64,
    }

    let script = ScriptedModel::new().says(SUM).says("{\"total\": 42}");
    let agent = agent(script).build().unwrap();
    let total = agent.ask("What is 2 + 40?").answer_as::<Total>().await.unwrap();
    assert_eq!(total.total, 42.0);
}

/// Returns the recorded reply of a model that writes its calls as Python dictionaries.
#[tokio::test]
async fn the_recorded_calls() {
    let recorded: Value = serde_json::from_str(include_str!("../transcripts/hermes.json")).unwrap();
    let mut tools: Vec<_> = recorded["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            let schema =
                json!({ "type": "object", "properties": tool["parameters"], "required": tool["required"] });
            ToolDefinition::new(tool["name"].as_str().unwrap()).with_parameters(schema)
        })
        .collect();
    assert_eq!(tools.len(), 5);
    let expected: Vec<(String, Value)> = recorded["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["name"].as_str().unwrap().to_owned(), call["arguments"].clone()))
        .collect();
    let other = ("get_current_weather".to_owned(), json!({ "location": "Paris" }));
    tools.push(ToolDefinition::new(&*other.0));
    let cases = [(&recorded["reply"], expected), (&recorded["other_form"], vec![other])];
    for (reply, expected) in cases {
        let reply = reply.as_str().unwrap();
        for length in [1, 2, 3, 7, 40, 10_000] {
            let model = PromptedTools::new(TextModel { script: ScriptedModel::new().says(reply), length });
            let request = ChatRequest::new([Message::user("What is at the front door?")])
                .with_tools(tools.iter().cloned().collect::<ToolDefinitions>());
            let response = streamed(&model, &request).await.1.unwrap();
            let calls = response.message.tool_calls.iter();
            let calls: Vec<_> = calls
                .map(|call| (call.name.clone(), serde_json::from_str(&call.arguments).unwrap()))
                .collect();
            assert_eq!(calls, expected);
            assert_eq!(response.message.text, "");
            assert_eq!(response.finish_reason, FinishReason::ToolCalls);
        }
    }
    // Without the tools it is text.
    let other_form = recorded["other_form"].as_str().unwrap();
    let model = PromptedTools::new(TextModel::new(ScriptedModel::new().says(other_form)));
    let request = ChatRequest::new([Message::user("?")]).with_tools(definitions(&["sum"]));
    let response = model.chat(&request).await.unwrap();
    assert_eq!((&*response.message.text, response.message.tool_calls.len()), (other_form, 0));
}

#[tokio::test]
async fn does_not_retry_final_replies() {
    let text = |text: &str| ChatResponse::new(AssistantMessage::text(text));
    let broken = "<tool_call>{</tool_call>";
    let table = [
        text("It is").with_finish_reason(FinishReason::Length),
        text(broken).with_finish_reason(FinishReason::ContentFilter),
        ChatResponse::new(AssistantMessage::refusal("I may not")),
    ];
    for response in table {
        let model = PromptedTools::new(TextModel::new(ScriptedModel::new().replies(response.clone())));
        let request = ChatRequest::new([Message::user("What now?")])
            .with_tools(definitions(&["sum"]))
            .with_tool_choice(ToolChoice::Required);
        assert_eq!(model.chat(&request).await.unwrap(), response);
    }
}

#[tokio::test]
async fn separates_the_texts_of_several_replies() {
    let script = ScriptedModel::new().says("a<tool_call>{</tool_call>").says("b");
    let request = ChatRequest::new([Message::user("What now?")]).with_tools(definitions(&["sum"]));
    let response = PromptedTools::new(TextModel::new(script)).chat(&request).await.unwrap();
    assert_eq!(response.message.text, "a\nb");
}

#[tokio::test]
async fn accepts_calls_that_the_server_parsed() {
    let native = ToolCall::new("x", "sum", r#"{"a": 1, "b": 2}"#);
    let message = AssistantMessage::text(SUM).with_tool_calls([native.clone()]);
    for is_streamed in [false, true] {
        let script = ScriptedModel::new().replies(ChatResponse::new(message.clone()));
        let model = PromptedTools::new(TextModel::new(script));
        let request = ChatRequest::new([Message::user("What now?")]).with_tools(definitions(&["sum"]));
        let response = match is_streamed {
            true => {
                let (deltas, done) = streamed(&model, &request).await;
                let response = done.unwrap();
                assert_eq!(assembled(&deltas).2, response.message.tool_calls);
                response
            }
            false => model.chat(&request).await.unwrap(),
        };
        let calls = response.message.tool_calls;
        assert_eq!((calls.len(), &calls[0], &*calls[1].id), (2, &native, "call_0_1"));
    }
}
