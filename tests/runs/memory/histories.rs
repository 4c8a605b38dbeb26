//! Property tests: any history can be repaired, and a window preserves validity.

use std::borrow::Cow;

use futures_util::FutureExt;
use proptest::prelude::*;
use tests::support::sampling::cases;
use tool_core::memory::Window;
use tool_core::model::{AssistantMessage, ChatRequest, ConversationId, ToolMessage};
use tool_core::provider::repair_history;
use tool_core::testing::ScriptedModel;
use tool_core::{ChatMemory, ChatModel, Message, ToolCall};

/// Few ids, so that calls and results match, some of them several times.
fn id() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "1", "1_1", "2", "3"]).prop_map(String::from)
}

fn message() -> impl Strategy<Value = Message> {
    let call = id().prop_map(|id| ToolCall::new(id, "sum", "{}"));
    prop_oneof![
        1 => "[a-z]{0,9}".prop_map(Message::system),
        2 => "[a-z]{0,9}".prop_map(Message::user),
        1 => "[a-z]{0,9}".prop_map(Message::assistant),
        3 => ("[a-z]{0,9}", prop::collection::vec(call, 1..4)).prop_map(|(text, calls)| {
            Message::Assistant(AssistantMessage::text(text).with_tool_calls(calls))
        }),
        5 => (id(), "[a-z]{0,9}").prop_map(|(id, text)| Message::Tool(ToolMessage::new(id, "sum", text))),
    ]
}

fn history() -> impl Strategy<Value = Vec<Message>> {
    prop::collection::vec(message(), 0..24)
}

fn window() -> impl Strategy<Value = Window> {
    prop_oneof![
        (0..12_usize).prop_map(Window::messages),
        (0..120_usize).prop_map(Window::tokens),
        (0..40_usize).prop_map(|limit| Window::tokens(limit).count_with(|message| message.text().len())),
    ]
}

/// Checks a history with the scripted model, which applies the rule of the API.
fn validate(messages: &[Message]) -> Result<(), String> {
    let request = ChatRequest::new(messages.to_vec());
    let model = ScriptedModel::new().says("");
    let response = model.chat(&request).now_or_never().ok_or("the model does not respond immediately")?;
    response.map(drop).map_err(|error| error.to_string())
}

fn texts_without_results(messages: &[Message]) -> Vec<String> {
    let is_not_result = |message: &&Message| !matches!(message, Message::Tool(_));
    messages.iter().filter(is_not_result).map(|message| message.text().into_owned()).collect()
}

proptest! {
    #![proptest_config(cases(100, 2_000))]

    #[test]
    fn a_repaired_history_is_valid(history in history()) {
        let repaired = repair_history(&history);
        prop_assert_eq!(validate(&repaired), Ok(()));
        prop_assert!(matches!(repair_history(&repaired), Cow::Borrowed(_)), "the repaired history was changed again");
        prop_assert_eq!(texts_without_results(&history), texts_without_results(&repaired), "other messages than results were changed");
        if validate(&history).is_ok() {
            prop_assert!(matches!(repaired, Cow::Borrowed(_)), "a valid history was copied");
        }
        // Every result without an error was in the original history.
        for message in repaired.iter() {
            if let Message::Tool(result) = message && !result.is_error {
                prop_assert!(history.iter().any(|message| matches!(message, Message::Tool(original) if original.content == result.content)));
            }
        }
    }

    #[test]
    fn a_window_selects_a_valid_end_of_the_history(history in history(), window in window()) {
        let (memory, id) = (ChatMemory::in_memory(), ConversationId::new("a"));
        memory.commit(&id, &history).now_or_never().expect("the conversation is free").unwrap();
        let all = memory.messages(&id).now_or_never().expect("the store does not wait").unwrap();
        let open = memory.clone().window(window.clone()).open(&id).now_or_never();
        let open = open.expect("the conversation is free").unwrap();
        prop_assert_eq!(validate(open.messages()), Ok(()));
        let is_system = |message: &&Message| matches!(message, Message::System(_));
        let evicted = all.len() - open.messages().len();
        // System messages before the selected end remain, so the start of the end is searched for.
        let starts_at = |first: usize| {
            let expected: Vec<_> = all[..first].iter().filter(is_system).chain(&all[first..]).collect();
            expected.iter().copied().eq(open.messages())
        };
        prop_assert!((evicted..=all.len()).any(starts_at), "{window:?} did not select an end of the history");
        drop(open);
        prop_assert_eq!(all, memory.messages(&id).now_or_never().unwrap().unwrap(), "stored messages were removed");
    }
}
