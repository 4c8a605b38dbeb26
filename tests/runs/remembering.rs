//! An agent with a memory: the history is sent, and answered runs are stored completely or not at all.

use std::time::Duration;

use tests::support::deciding::Decide;
use tests::support::ways::{assert_valid, restored};
use tool_core::memory::Window;
use tool_core::model::ConversationId;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatMemory, Message, tool, tools};

#[tool]
async fn look(milliseconds: u64, #[inject] id: &ConversationId) -> String {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    id.to_string()
}

const LOOK: (&str, &str) = ("look", r#"{"milliseconds": 1}"#);

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| message.text().into_owned()).collect()
}

#[tokio::test]
async fn the_history_follows_the_instructions() {
    let memory = ChatMemory::in_memory();
    let model = ScriptedModel::new().calls(LOOK.0, LOOK.1).says("One.").says("Two.").says("Other.");
    let agent = Agent::builder(model.clone())
        .instructions("Be brief.")
        .tools(tools![look])
        .memory(memory.clone())
        .build()
        .unwrap();
    agent.ask("First?").conversation("a").await.unwrap();
    let answer = agent.ask("Second?").conversation("a").await.unwrap();
    assert_eq!(texts(answer.new_messages()), ["Second?", "Two."]);
    assert_eq!(texts(&model.requests()[2]), ["Be brief.", "First?", "", "a", "One.", "Second?"]);
    let other = String::from("b");
    agent.ask("Third?").conversation(&other).await.unwrap();
    assert_eq!(model.requests()[3].len(), 2, "another conversation");
    let stored = memory.messages("a").await.unwrap();
    assert_eq!(texts(&stored), ["First?", "", "a", "One.", "Second?", "Two."]);
}

#[tokio::test]
async fn stores_nothing_of_a_run_without_an_answer() {
    let memory = ChatMemory::in_memory();
    let model =
        ScriptedModel::new().calls(LOOK.0, LOOK.1).fails("the line is dead").says("Later.").says("Next.");
    let agent = Agent::builder(model.clone()).tools(tools![look]).memory(memory.clone()).build().unwrap();
    let error = agent.ask("First?").conversation("a").await.unwrap_err();
    assert!(memory.messages("a").await.unwrap().is_empty());
    // A resumed run is stored once it has an answer, and only once, however often it is finished.
    let answer = agent.resume(restored(error.into_run())).await.unwrap();
    assert_eq!(answer.text(), "Later.");
    let stored = memory.messages("a").await.unwrap();
    assert_eq!(texts(&stored), ["First?", "", "a", "Later."]);
    assert_valid(&stored);
}

#[tokio::test]
async fn stores_a_run_once_that_is_finished_twice() {
    let memory = ChatMemory::in_memory();
    let agent = Agent::builder(ScriptedModel::new().says("One.")).memory(memory.clone()).build().unwrap();
    let mut run = agent.ask("First?").conversation("a").start();
    while run.advance().await.unwrap() {}
    let state = restored(run.run().clone());
    run.finish().await.unwrap();
    agent.resume(state).await.unwrap();
    assert_eq!(memory.messages("a").await.unwrap().len(), 2);
}

#[tokio::test]
async fn asks_in_one_conversation_run_in_sequence() {
    let memory = ChatMemory::in_memory();
    let slow = ("look", r#"{"milliseconds": 40}"#);
    let model = ScriptedModel::new().calls(slow.0, slow.1).says("One.").says("Two.");
    let agent = Agent::builder(model).tools(tools![look]).memory(memory.clone()).build().unwrap();
    let ask = |question: &str| agent.ask(question).conversation("a").into_future();
    let (first, second) = futures_util::future::join(ask("First?"), ask("Second?")).await;
    assert_eq!((first.unwrap().text(), second.unwrap().text()), ("One.", "Two."));
    let stored = memory.messages("a").await.unwrap();
    assert_eq!(texts(&stored), ["First?", "", "a", "One.", "Second?", "Two."]);
    // An ask that is dropped halfway stores nothing and lets the next one proceed.
    let agent = Agent::builder(ScriptedModel::new().calls(slow.0, slow.1).says("Three."))
        .tools(tools![look])
        .memory(memory.clone())
        .build()
        .unwrap();
    let ask = |question: &str| agent.ask(question).conversation("a").into_future();
    assert!(futures_util::FutureExt::now_or_never(ask("Dropped?")).is_none());
    assert_eq!(ask("Third?").await.unwrap().text(), "Three.");
    assert_eq!(memory.messages("a").await.unwrap().len(), 8);
}

#[tokio::test]
async fn a_window_limits_the_request_but_never_the_question() {
    let memory = ChatMemory::in_memory().window(Window::messages(1));
    let model = ScriptedModel::new().says("One.").says("Two.").says("Three.");
    let agent =
        Agent::builder(model.clone()).instructions("Be brief.").memory(memory.clone()).build().unwrap();
    for question in ["First?", "Second?", "Third?"] {
        agent.ask(question).conversation("a").await.unwrap();
    }
    assert_eq!(texts(&model.requests()[2]), ["Be brief.", "Two.", "Third?"]);
    assert_eq!(memory.messages("a").await.unwrap().len(), 6, "all messages are stored");
}

#[tokio::test]
async fn a_run_that_awaits_approval_blocks_no_other() {
    #[tool(needs_approval)]
    fn pay() {}
    let memory = ChatMemory::in_memory();
    let model = ScriptedModel::new().calls("pay", "{}").says("Meanwhile.").says("Paid.");
    let agent = Agent::builder(model).tools(tools![pay]).memory(memory.clone()).build().unwrap();
    let error = agent.ask("Pay").conversation("a").await.unwrap_err();
    assert_eq!(agent.ask("How are you?").conversation("a").await.unwrap().text(), "Meanwhile.");
    let mut run = restored(error.into_run());
    run.decide_calls(&tool_core::run::Decision::approve());
    agent.resume(run).await.unwrap();
    let stored = memory.messages("a").await.unwrap();
    assert_eq!(texts(&stored), ["How are you?", "Meanwhile.", "Pay", "", "Success", "Paid."]);
    assert_valid(&stored);
}
