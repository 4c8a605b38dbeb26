//! The events of a streamed response: which, in which order, and that they come to what the whole says.

use futures_util::stream;
use serde_json::{Value, json};
use tool_core::testing::ScriptedModel;
use tool_core::{
    Agent, AssistantMessage, ChatModel, ChatRequest, ChatResponse, ChatStream, Delta, ModelError,
    ModelFuture, ToolCall, tool, tools,
};
use tool_openai::server::Server;

use crate::caller::Caller;

/// A model that streams these pieces.
struct Pieces(Vec<Delta>, Option<&'static str>);

impl ChatModel for Pieces {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async { Err(ModelError::new("it only streams")) })
    }

    fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let pieces = self.0.iter().cloned().map(Ok);
        Box::pin(stream::iter(pieces.chain(self.1.map(|why| Err(ModelError::new(why))))))
    }
}

async fn events(model: impl ChatModel + 'static) -> Vec<Value> {
    let caller = Caller::of(Server::new().model("m", model)).await;
    let events = caller.events("responses", &json!({ "model": "m", "input": "Hi" })).await;
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    events
}

/// The types, each with its place.
fn told(events: &[Value]) -> Vec<String> {
    let one = |event: &Value| {
        let kind = event["type"].as_str().unwrap().trim_start_matches("response.");
        let places = ["output_index", "content_index", "summary_index"].map(|place| &event[place]);
        places
            .iter()
            .filter(|place| !place.is_null())
            .fold(kind.to_owned(), |told, place| format!("{told} {place}"))
    };
    events.iter().map(one).collect()
}

fn text(piece: &str) -> Delta {
    Delta::Text(piece.into())
}

fn call(index: usize, id: &str) -> Delta {
    Delta::ToolCall { index, id: id.into(), name: "f".into() }
}

fn arguments(index: usize, text: &str) -> Delta {
    Delta::Arguments { index, text: text.into() }
}

#[tokio::test]
async fn reasoning_text_and_calls() {
    let calls = [ToolCall::new("a", "f", "{}"), ToolCall::new("b", "f", r#"{"x":1}"#)];
    let done = ChatResponse::new(AssistantMessage::text("Let me see.").with_tool_calls(calls));
    let pieces = vec![
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
    let events = events(Pieces(pieces, None)).await;
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
    assert_eq!(told(&events), expected);
    let response = &events.last().unwrap()["response"];
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    let done: Vec<_> = done.map(|event| event["item"].clone()).collect();
    assert_eq!(response["output"], json!(done), "the items are those that were told of");
    assert_eq!(
        (&done[1]["content"][0]["text"], &done[3]["arguments"]),
        (&json!("Let me see."), &json!(r#"{"x":1}"#))
    );
    // Each event of an item names that.
    for event in events.iter().filter(|event| event["item_id"].is_string()) {
        let position = usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
        assert_eq!(event["item_id"], done[position]["id"]);
    }
    assert_eq!(events[0]["response"]["status"], "in_progress");
    assert_eq!(events[0]["response"]["output"], json!([]));
}

#[tokio::test]
async fn a_refusal_stands_behind_what_was_said() {
    let refusal = |said: &str| {
        let mut message = AssistantMessage::refusal("I may not.");
        message.text = said.into();
        Delta::Done(ChatResponse::new(message))
    };
    let alone = events(Pieces(vec![refusal("")], None)).await;
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
    assert_eq!(told(&alone), expected);
    let pieces = vec![Delta::Refusal("I may ".into()), Delta::Refusal("not.".into()), refusal("")];
    let pieces = events(Pieces(pieces, None)).await;
    let deltas: Vec<_> = pieces.iter().filter(|event| event["type"] == "response.refusal.delta").collect();
    assert_eq!((&deltas[0]["delta"], &deltas[1]["delta"]), (&json!("I may "), &json!("not.")));
    assert_eq!(pieces[pieces.len() - 4]["refusal"], "I may not.");
    let behind = events(Pieces(vec![text("Well."), refusal("Well.")], None)).await;
    let parts = &behind.last().unwrap()["response"]["output"][0]["content"];
    assert_eq!((&parts[0]["text"], &parts[1]["refusal"]), (&json!("Well."), &json!("I may not.")));
    assert_eq!(told(&behind)[7], "content_part.added 0 1");
}

#[tokio::test]
async fn what_a_model_tells_only_at_the_end_is_streamed_too() {
    let message = AssistantMessage::text("It is.").with_tool_calls([ToolCall::new("a", "f", "{}")]);
    let events = events(Pieces(vec![Delta::Done(ChatResponse::new(message))], None)).await;
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!((&output[0]["content"][0]["text"], &output[1]["arguments"]), (&json!("It is."), &json!("{}")));
}

#[tokio::test]
async fn a_stream_that_breaks_off_fails_in_the_way_of_each_api() {
    for why in [Some("sk-secret is out of money"), None] {
        let pieces = || Pieces(vec![text("It "), call(0, "a"), arguments(0, "{")], why);
        let events = events(pieces()).await;
        let last = events.last().unwrap();
        assert_eq!(
            (&last["type"], &last["response"]["status"]),
            (&json!("response.failed"), &json!("failed"))
        );
        assert_eq!(last["response"]["error"]["code"], "server_error");
        assert_eq!(last["response"]["output"][0]["content"][0]["text"], "It ");
        assert!(!format!("{events:?}").contains("secret"));

        let caller = Caller::of(Server::new().model("m", pieces())).await;
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
async fn an_agents_turns_are_one_answer() {
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
    let caller = Caller::of(server).await;
    let events = caller.events("responses", &json!({ "model": "a", "input": "1 + 2?" })).await;
    let whole = caller.ask("responses", &json!({ "model": "b", "input": "1 + 2?" })).await;
    let kinds = |response: &Value| -> Vec<(Value, Value)> {
        let items = response["output"].as_array().unwrap().iter();
        items.map(|item| (item["type"].clone(), item["content"].clone())).collect()
    };
    assert_eq!(kinds(&whole), kinds(&events.last().unwrap()["response"]), "streamed as whole");
    let order: Vec<_> = kinds(&whole).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(order, ["reasoning", "message", "reasoning", "message"]);
}
