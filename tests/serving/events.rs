//! The events of a streamed response, their order, and that they match the complete response.

use futures_util::stream;
use serde_json::{Value, json};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta, ModelError};
use tool_core::provider::ModelFuture;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, ToolCall, tool, tools};
use tool_openai::server::Server;

use crate::caller::Caller;

/// A model that streams these deltas, then an error if there is one.
struct StreamedDeltas(Vec<Delta>, Option<&'static str>);

impl ChatModel for StreamedDeltas {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async { Err(ModelError::new("supports streaming only")) })
    }

    fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let deltas = self.0.iter().cloned().map(Ok);
        ChatStream::new(stream::iter(deltas.chain(self.1.map(|why| Err(ModelError::new(why))))))
    }
}

async fn events(model: impl ChatModel + 'static) -> Vec<Value> {
    let caller = Caller::new(Server::new().model("m", model)).await;
    let events = caller.events("responses", &json!({ "model": "m", "input": "Hi" })).await;
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    events
}

/// Returns the types of the events with their positions.
fn summarize(events: &[Value]) -> Vec<String> {
    let one = |event: &Value| {
        let kind = event["type"].as_str().unwrap().trim_start_matches("response.");
        let positions = ["output_index", "content_index", "summary_index"].map(|field| &event[field]);
        positions
            .iter()
            .filter(|position| !position.is_null())
            .fold(kind.to_owned(), |summary, position| format!("{summary} {position}"))
    };
    events.iter().map(one).collect()
}

fn text(text: &str) -> Delta {
    Delta::Text(text.into())
}

fn call(index: usize, id: &str) -> Delta {
    Delta::ToolCall { index, id: id.into(), name: "f".into() }
}

fn arguments(index: usize, text: &str) -> Delta {
    Delta::Arguments { index, text: text.into() }
}

#[tokio::test]
async fn streams_reasoning_text_and_calls_as_items() {
    let calls = [ToolCall::new("a", "f", "{}"), ToolCall::new("b", "f", r#"{"x":1}"#)];
    let done = ChatResponse::new(AssistantMessage::text("Let me see.").with_tool_calls(calls));
    let deltas = vec![
        Delta::Reasoning("Hm".into()),
        Delta::Reasoning(".".into()),
        text("Let me "),
        text("see."),
        call(0, "a"),
        call(1, "b"),
        arguments(1, r#"{"x""#),
        arguments(0, "{}"),
        arguments(1, ":1}"),
        Delta::Done(done),
    ];
    let events = events(StreamedDeltas(deltas, None)).await;
    let expected = [
        "created",
        "in_progress",
        "output_item.added 0",
        "reasoning_summary_part.added 0 0",
        "reasoning_summary_text.delta 0 0",
        "reasoning_summary_text.delta 0 0",
        "reasoning_summary_text.done 0 0",
        "reasoning_summary_part.done 0 0",
        "output_item.done 0",
        "output_item.added 1",
        "content_part.added 1 0",
        "output_text.delta 1 0",
        "output_text.delta 1 0",
        "output_text.done 1 0",
        "content_part.done 1 0",
        "output_item.done 1",
        "output_item.added 2",
        "output_item.added 3",
        "function_call_arguments.delta 3",
        "function_call_arguments.delta 2",
        "function_call_arguments.delta 3",
        "function_call_arguments.done 2",
        "output_item.done 2",
        "function_call_arguments.done 3",
        "output_item.done 3",
        "completed",
    ];
    assert_eq!(summarize(&events), expected);
    let response = &events.last().unwrap()["response"];
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    let done: Vec<_> = done.map(|event| event["item"].clone()).collect();
    assert_eq!(response["output"], json!(done), "the response has the items of the events");
    assert_eq!(
        (&done[1]["content"][0]["text"], &done[3]["arguments"]),
        (&json!("Let me see."), &json!(r#"{"x":1}"#))
    );
    // Every event of an item has the id of the item.
    for event in events.iter().filter(|event| event["item_id"].is_string()) {
        let position = usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
        assert_eq!(event["item_id"], done[position]["id"]);
    }
    assert_eq!(events[0]["response"]["status"], "in_progress");
    assert_eq!(events[0]["response"]["output"], json!([]));
}

#[tokio::test]
async fn a_refusal_follows_the_text() {
    let refusal = |text: &str| {
        let mut message = AssistantMessage::refusal("I may not.");
        message.text = text.into();
        Delta::Done(ChatResponse::new(message))
    };
    let alone = events(StreamedDeltas(vec![refusal("")], None)).await;
    let expected = [
        "created",
        "in_progress",
        "output_item.added 0",
        "content_part.added 0 0",
        "refusal.delta 0 0",
        "refusal.done 0 0",
        "content_part.done 0 0",
        "output_item.done 0",
        "completed",
    ];
    assert_eq!(summarize(&alone), expected);
    let deltas = vec![Delta::Refusal("I may ".into()), Delta::Refusal("not.".into()), refusal("")];
    let streamed = events(StreamedDeltas(deltas, None)).await;
    let deltas: Vec<_> = streamed.iter().filter(|event| event["type"] == "response.refusal.delta").collect();
    assert_eq!((&deltas[0]["delta"], &deltas[1]["delta"]), (&json!("I may "), &json!("not.")));
    assert_eq!(streamed[streamed.len() - 4]["refusal"], "I may not.");
    let after_text = events(StreamedDeltas(vec![text("Well."), refusal("Well.")], None)).await;
    let parts = &after_text.last().unwrap()["response"]["output"][0]["content"];
    assert_eq!((&parts[0]["text"], &parts[1]["refusal"]), (&json!("Well."), &json!("I may not.")));
    assert_eq!(summarize(&after_text)[7], "content_part.added 0 1");
}

#[tokio::test]
async fn streams_parts_that_the_model_sends_only_at_the_end() {
    let message = AssistantMessage::text("It is.").with_tool_calls([ToolCall::new("a", "f", "{}")]);
    let events = events(StreamedDeltas(vec![Delta::Done(ChatResponse::new(message))], None)).await;
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!((&output[0]["content"][0]["text"], &output[1]["arguments"]), (&json!("It is."), &json!("{}")));
}

#[tokio::test]
async fn reports_a_broken_stream_in_the_form_of_each_api() {
    for why in [Some("sk-secret is out of money"), None] {
        let model = || StreamedDeltas(vec![text("It "), call(0, "a"), arguments(0, "{")], why);
        let events = events(model()).await;
        let last = events.last().unwrap();
        assert_eq!(
            (&last["type"], &last["response"]["status"]),
            (&json!("response.failed"), &json!("failed"))
        );
        assert_eq!(last["response"]["error"]["code"], "server_error");
        assert_eq!(last["response"]["output"][0]["content"][0]["text"], "It ");
        assert!(!format!("{events:?}").contains("secret"));

        let caller = Caller::new(Server::new().model("m", model())).await;
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] });
        let chunks = caller.events("chat/completions", &body).await;
        assert_eq!(chunks.last().unwrap()["error"]["type"], "server_error");
        assert!(!format!("{chunks:?}").contains("secret"));
    }
}

#[tool("Sums")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tokio::test]
async fn merges_an_agents_turns_into_one_answer() {
    let thinking = |thought: &str, message: AssistantMessage| {
        let mut message = message;
        message.reasoning = Some(thought.into());
        ChatResponse::new(message)
    };
    let call = ToolCall::new("a", "sum", r#"{"a": 1, "b": 2}"#);
    let model = || {
        ScriptedModel::new()
            .replies(thinking(
                "A sum.",
                AssistantMessage::text("Let me see. ").with_tool_calls([call.clone()]),
            ))
            .replies(thinking("Easy.", AssistantMessage::text("It is ")))
    };
    let agent = |model| Agent::builder(model).tools(tools![sum]).build().unwrap();
    let server = Server::new().agent("a", agent(model())).agent("b", agent(model()));
    let caller = Caller::new(server).await;
    let events = caller.events("responses", &json!({ "model": "a", "input": "1 + 2?" })).await;
    let whole = caller.ask("responses", &json!({ "model": "b", "input": "1 + 2?" })).await;
    let kinds = |response: &Value| -> Vec<(Value, Value)> {
        let items = response["output"].as_array().unwrap().iter();
        items.map(|item| (item["type"].clone(), item["content"].clone())).collect()
    };
    assert_eq!(
        kinds(&whole),
        kinds(&events.last().unwrap()["response"]),
        "streamed and complete responses agree"
    );
    let order: Vec<_> = kinds(&whole).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(order, ["reasoning", "message", "reasoning", "message"]);
}
