//! Any history, however broken, becomes one that a provider accepts.

use std::borrow::Cow;

use futures_util::FutureExt;
use proptest::prelude::*;
use tests::support::sampling::cases;
use tool_core::testing::ScriptedModel;
use tool_core::{
    AssistantMessage, ChatMemory, ChatModel, ChatRequest, ConversationId, Message, ToolCall, ToolMessage,
    Window, repair_history,
};

/// Few ids, so that calls and results meet, and some meet twice.
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
        (0..40_usize).prop_map(|room| Window::tokens(room).counted_by(|message| message.text().len())),
    ]
}

/// By the rule of the scripted model, which is the one of the API.
fn is_acceptable(messages: &[Message]) -> Result<(), String> {
    let request = ChatRequest::new(messages.to_vec());
    let model = ScriptedModel::new().says("");
    let replied = model.chat(&request).now_or_never().ok_or("it waits")?;
    replied.map(drop).map_err(|error| error.to_string())
}

fn others(messages: &[Message]) -> Vec<String> {
    let is_other = |message: &&Message| !matches!(message, Message::Tool(_));
    messages.iter().filter(is_other).map(|message| message.text().into_owned()).collect()
}

proptest! {
    #![proptest_config(cases(200, 2_000))]

    #[test]
    fn a_repaired_history_is_acceptable(history in history()) {
        let repaired = repair_history(&history);
        prop_assert_eq!(is_acceptable(&repaired), Ok(()));
        prop_assert!(matches!(repair_history(&repaired), Cow::Borrowed(_)), "it is repaired once more");
        prop_assert_eq!(others(&history), others(&repaired), "more than results was touched");
        if is_acceptable(&history).is_ok() {
            prop_assert!(matches!(repaired, Cow::Borrowed(_)), "a valid history was touched");
        }
        // Whatever stands there as a result was one, or stands for one that is missing.
        for message in repaired.iter() {
            if let Message::Tool(result) = message && !result.is_error {
                prop_assert!(history.iter().any(|message| matches!(message, Message::Tool(kept) if kept.content == result.content)));
            }
        }
    }

    #[test]
    fn what_a_window_leaves_is_acceptable_and_the_end(history in history(), window in window()) {
        let (memory, id) = (ChatMemory::in_memory(), ConversationId::new("a"));
        memory.commit(&id, &history).now_or_never().expect("nobody has it open").unwrap();
        let all = memory.messages(&id).now_or_never().expect("it is in memory").unwrap();
        let open = memory.clone().with_window(window.clone()).open(&id).now_or_never();
        let open = open.expect("nobody has it open").unwrap();
        prop_assert_eq!(is_acceptable(open.messages()), Ok(()));
        let is_system = |message: &&Message| matches!(message, Message::System(_));
        let evicted = all.len() - open.messages().len();
        // The system messages among the first ones stay, so look for where the end begins.
        let is_cut_at = |first: usize| {
            let left: Vec<_> = all[..first].iter().filter(is_system).chain(&all[first..]).collect();
            left.iter().copied().eq(open.messages())
        };
        prop_assert!((evicted..=all.len()).any(is_cut_at), "{window:?} left no end");
        drop(open);
        prop_assert_eq!(all, memory.messages(&id).now_or_never().unwrap().unwrap(), "what is kept was cut");
    }
}
