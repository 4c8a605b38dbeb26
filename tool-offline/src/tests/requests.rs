//! The settings of a request, its history, and streaming.

use futures_util::{FutureExt, StreamExt};
use tool_core::model::{AssistantMessage, ChatRequest, Delta, ToolChoice, ToolDefinitions};
use tool_core::{ChatModel, Message, ToolCall, ToolOutput};

use super::{Question, sample_tools, tools};
use crate::OfflineModel;
use crate::reply::respond;

#[test]
fn respects_parallel_tool_calls() {
    let question = Question::new("What is the weather in Paris and in Rome?", &sample_tools());
    let (calls, _) = Question { parallel: Some(false), ..question }.run(&[]);
    assert_eq!(calls, r#"get_weather {"city":"Paris"} > get_weather {"city":"Rome"}"#);
}

#[tokio::test]
async fn streams_text_word_by_word() {
    let messages = [Message::user("What is 1 + 2?")];
    let request = ChatRequest::borrowing(&messages);
    let deltas: Vec<_> = OfflineModel::new().stream(&request).map(Result::unwrap).collect().await;
    let texts = deltas.iter().filter_map(|delta| match delta {
        Delta::Text(text) => Some(&**text),
        _ => None,
    });
    let Some(Delta::Done(response)) = deltas.last() else { panic!("{deltas:?}") };
    assert_eq!(texts.collect::<String>(), response.message.text);
    assert!(deltas.len() > 10);
    assert_eq!(OfflineModel::new().chat(&request).now_or_never().unwrap().unwrap(), *response);
}

#[test]
fn uses_an_earlier_result_for_a_missing_value() {
    let earlier = ToolCall::new("call_7", "sum", r#"{"a": 9, "b": 16}"#);
    let history = vec![
        Message::user("What is 9 plus 16?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([earlier.clone()])),
        Message::tool(&earlier, &Ok(ToolOutput::text("25.0"))),
        Message::assistant("9 plus 16 is 25.0."),
    ];
    let question =
        Question { history: history.clone(), ..Question::new("And its square root?", &sample_tools()) };
    assert_eq!(question.run(&[]).0, r#"squareRoot {"x":25.0}"#);

    let messages: Vec<_> = history.into_iter().chain([Message::user("And the square root of 4?")]).collect();
    let response = respond(
        &ChatRequest::new(messages).with_tools(sample_tools().into_iter().collect::<ToolDefinitions>()),
    );
    assert_eq!(response.message.tool_calls[0].id, "call_8");
    assert_eq!(response.model.as_deref(), Some("offline"));
    assert!(response.usage.is_some_and(|usage| usage.input_tokens > 1 && usage.output_tokens > 0));
}

#[test]
fn calls_a_forced_tool_if_it_can_be_filled() {
    let tools = tools("sum | | {\"a\": \"number\", \"b\": \"number\"}\nnow | | {}");
    let forced = |choice, text| Question { choice, ..Question::new(text, &tools) }.run(&[]).0;
    let named = |name: &str| ToolChoice::Tool(name.to_owned());
    assert_eq!(forced(ToolChoice::Required, "Hello"), "now {}");
    assert_eq!(forced(named("now"), "1 + 2"), r#"now {} > sum {"a":1,"b":2}"#);
    assert_eq!(forced(named("sum"), "Here: 1 and 2"), r#"sum {"a":1,"b":2}"#);
    assert_eq!(forced(named("sum"), "Hello"), "");
    assert_eq!(forced(named("gone"), "Hello"), "");
}

#[test]
fn does_not_repeat_a_call_with_changed_arguments() {
    let changed = ToolCall::new("call_1", "get_weather", r#"{"city": "Paris, Texas"}"#);
    let messages = vec![
        Message::user("What is the weather in Paris?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([changed.clone()])),
        Message::tool(&changed, &Ok(ToolOutput::text("hot"))),
    ];
    let response = respond(
        &ChatRequest::new(messages).with_tools(sample_tools().into_iter().collect::<ToolDefinitions>()),
    );
    assert_eq!(response.message.text, "The weather in Paris is hot.");
}
