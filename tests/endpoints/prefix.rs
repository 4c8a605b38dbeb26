//! Each request of a run starts with the bytes of the previous one, so that the provider's prompt cache hits.

use serde_json::{Value, json};
use tests::support::{RawServer, whole_answer};
use tool_core::agent::ToolSearch;
use tool_core::content::Image;
use tool_core::model::{ChatRequest, ModelFuture, ResponseFormat, ToolChoice};
use tool_core::{Agent, ChatModel, ModelOptions, ToolOutput, tool, tools};
use tool_openai::{ChatCompletions, OpenAi};

/// The number of replies.
const TURNS: usize = 20;

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

/// Reads a text, “quoted”.
#[tool]
fn read() -> String {
    "22 °C\n\"quoted\" \u{2028} \\ </script>".into()
}

/// Draws a dot.
#[tool]
fn draw() -> ToolOutput {
    ToolOutput::text("a dot").with_part(Image::from_bytes("image/png", [0, 1, 2]))
}

/// Does nothing.
#[tool]
fn rest() {}

/// Lists all entries.
#[tool]
fn list(names: Option<Vec<String>>) -> Vec<Option<String>> {
    names.unwrap_or_default().into_iter().map(Some).chain([None]).collect()
}

/// Fails.
#[tool]
fn fail() -> Result<(), String> {
    Err("no such city".into())
}

/// Returns the calls of a turn: all kinds of outputs, errors, repaired and broken arguments, an unknown tool, and names
/// with garbage.
fn calls(turn: usize) -> &'static [(&'static str, &'static str)] {
    const CALLS: [&[(&str, &str)]; 9] = [
        &[("sum", r#"{"a": 1, "b": 2.5}"#)],
        &[("read", ""), ("draw", "{}")],
        &[("sum", r#"{"a": "1", "b": 2}"#)],
        &[("draw", "{}"), ("rest", "null")],
        &[("list", r#"{"names": ["é", "\u00e9", "😀"]}"#), ("fail", "{}")],
        &[("nothing", "{}")],
        &[("sum", "{broken"), ("sum", r#"{"a": 1}"#)],
        &[("read\" />", r#"{  }"#)],
        &[("list", r#"{"names": "one"}"#)],
    ];
    CALLS[turn % CALLS.len()]
}

/// Returns the answer of a turn. Some ids are missing or repeated.
fn reply(turn: usize, is_called_through: bool) -> Vec<u8> {
    let message = if turn + 1 == TURNS {
        json!({ "role": "assistant", "content": "{}" })
    } else {
        let call = |(index, (name, arguments)): (usize, &(&str, &str))| {
            let id = if turn.is_multiple_of(3) { Value::Null } else { json!(format!("call_{index}")) };
            let (name, arguments) = match is_called_through {
                true => ("call_tool", json!({ "name": name, "arguments": arguments }).to_string()),
                false => (*name, (*arguments).to_owned()),
            };
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
        };
        let mut calls: Vec<_> = calls(turn).iter().enumerate().map(call).collect();
        if is_called_through && turn.is_multiple_of(4) {
            let query = json!({ "query": "sum, read, draw, list" }).to_string();
            let function = json!({ "name": "search_tools", "arguments": query });
            calls.push(json!({ "id": format!("search_{turn}"), "type": "function", "function": function }));
        }
        let text = turn.is_multiple_of(2).then_some("Let me see.");
        json!({ "role": "assistant", "content": text, "tool_calls": calls })
    };
    let body = json!({ "choices": [{ "message": message }], "usage": { "prompt_tokens": turn } }).to_string();
    whole_answer("200 OK", &[("content-type", "application/json")], body.as_bytes())
}

/// Sends each request with the same options and answer format.
struct WithOptions(ChatCompletions, ModelOptions, Option<ResponseFormat>);

impl ChatModel for WithOptions {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async {
            let request = request.clone().with_options(self.1.clone()).with_response_format(self.2.clone());
            self.0.chat(&request).await
        })
    }
}

/// Returns the bodies that a run sends.
async fn bodies(
    choice: ToolChoice,
    is_streamed: bool,
    search: Option<ToolSearch>,
    model: impl FnOnce(ChatCompletions) -> Box<dyn ChatModel>,
) -> Vec<String> {
    let server =
        RawServer::answering_in_turn((0..TURNS).map(|turn| reply(turn, search.is_some())).collect()).await;
    let openai = OpenAi::builder().base_url(server.base_url()).build().unwrap();
    let builder = Agent::builder(model(openai.chat_model("m")));
    let builder = match search {
        Some(search) => builder.tool_search(search).limits(|l| l.max_repeated_calls(100)),
        None => builder,
    };
    let agent = builder
        .instructions("Use the tools.")
        .tools(tools![sum, read, draw, rest, list, fail])
        .tool_choice(choice)
        .limits(|l| l.max_turns(u32::try_from(TURNS).unwrap()))
        .build()
        .unwrap();
    let ask = agent.ask("What is there?");
    if is_streamed {
        let mut events = ask.stream();
        while let Some(event) = events.next().await {
            event.unwrap();
        }
    } else {
        assert_eq!(ask.await.unwrap().turns() as usize, TURNS);
    }
    let body = |request: String| request.split_once("\r\n\r\n").unwrap().1.to_owned();
    server.requests().into_iter().map(body).collect()
}

/// Returns the part of a body up to its last message.
fn up_to_the_messages(body: &str) -> &str {
    let read: Value = serde_json::from_str(body).unwrap();
    let messages = &read["messages"];
    let keys = read.as_object().unwrap().keys().map(String::as_str);
    let following: Vec<_> = keys.skip_while(|key| *key != "messages").collect();
    let end = match following[..] {
        [_] => "]}".to_owned(),
        [_, "tool_choice"] => format!(r#"],"tool_choice":{}}}"#, read["tool_choice"]),
        ref other => panic!("unexpected fields after the messages: {other:?}"),
    };
    assert!(!messages.as_array().unwrap().is_empty());
    body.strip_suffix(&end).unwrap()
}

#[tokio::test]
async fn a_turn_starts_with_the_bytes_of_the_previous_one() {
    let plain = |model| Box::new(model) as Box<dyn ChatModel>;
    let with_options = |model| {
        let options = ModelOptions::default().with_temperature(0.1).with_stop(["END"]).with_seed(7);
        let format = ResponseFormat::json_schema("nothing", json!({ "type": "object", "properties": {} }));
        Box::new(WithOptions(model, options, Some(format))) as Box<dyn ChatModel>
    };
    let search = Some(ToolSearch::bm25().min_tools(1).call_through());
    let runs = [
        ("awaited", bodies(ToolChoice::Auto, false, None, plain).await),
        ("streamed", bodies(ToolChoice::Auto, true, None, plain).await),
        ("with options", bodies(ToolChoice::Auto, false, None, with_options).await),
        ("called through", bodies(ToolChoice::Auto, false, search.clone(), plain).await),
        ("called through and streamed", bodies(ToolChoice::Auto, true, search, plain).await),
        ("with a call that is required", bodies(ToolChoice::Required, false, None, plain).await),
        (
            "with a tool that is required",
            bodies(ToolChoice::Tool("sum".into()), false, None, with_options).await,
        ),
    ];
    for (name, bodies) in runs {
        assert_eq!(bodies.len(), TURNS, "{name}");
        for (turn, pair) in bodies.windows(2).enumerate() {
            let before = up_to_the_messages(&pair[0]);
            assert!(
                pair[1].starts_with(before) && pair[1].len() > pair[0].len(),
                "{name}, turn {turn}:\n{}\n{}",
                pair[0],
                pair[1]
            );
        }
        if name.starts_with("called through") {
            let last = bodies.last().unwrap();
            assert!(
                last.contains(r#""name":"call_tool""#) && !last.contains(r#""function":{"name":"draw""#),
                "{last}"
            );
            assert!(last.contains("the best match first"), "{last}");
        }
        // Options of the request are present in every turn.
        let last = bodies.last().unwrap();
        let words = [r#""tools":["#, r#""temperature":0.1"#, r#""response_format":{"#];
        let has = words.map(|word| last.contains(word));
        let has_options = name.starts_with("with options") || name.starts_with("with a tool");
        assert_eq!(has, [true, has_options, has_options], "{name}: {last}");
        assert!(last.contains(r#""image_url""#) && last.contains("no such city"), "{name}: {last}");
    }
}
