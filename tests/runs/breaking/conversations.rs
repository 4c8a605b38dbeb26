//! Concurrent asks: some fail, some are dropped, some stores refuse. Stored conversations stay whole.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tests::support::stores::run_ids;
use tool_core::memory::{InMemoryStore, RunFilter, RunSummary};
use tool_core::model::{AssistantMessage, ChatResponse, ConversationId, ModelError};
use tool_core::run::Run;
use tool_core::store::{ChatStore, RunChanges, RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture};
use tool_core::{Agent, ChatMemory, Message, RunErrorKind, SqliteStore, tool, tools};

use super::{Puppet, call, conversation, history, memories, reply};
use tests::support::ways::{assert_valid, restored};

#[tool]
async fn wait(milliseconds: u64) -> u64 {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    milliseconds
}

/// Calls a tool in two turns, then answers by repeating the question, or fails if the question requests it.
fn model() -> Puppet {
    Puppet::new(|turn, request| {
        let question = request.messages().iter().rfind(|one| matches!(one, Message::User(_))).unwrap();
        let question = question.text().into_owned();
        let milliseconds = question.split(' ').nth(1).unwrap();
        let arguments = format!(r#"{{"milliseconds": {milliseconds}}}"#);
        match turn {
            // The ids are the same in each run, as with some servers.
            0 => Ok(reply(vec![call("call_0", "wait", &arguments), call("call_1", "wait", &arguments)])),
            1 => Ok(reply(vec![call("call_2", "wait", &arguments)])),
            _ if question.starts_with("fail") => Err(ModelError::new("the line is dead")),
            _ => Ok(ChatResponse::new(AssistantMessage::text(question))),
        }
    })
}

/// The number of messages of one run: a question, two turns and the answer.
const BLOCK: usize = 7;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_asks_never_interleave() {
    let mut stored_orders = Vec::new();
    for memory in memories().await {
        let agent = Agent::builder(model()).tools(tools![wait]).memory(memory.clone()).build().unwrap();
        let answered = Arc::new(Mutex::new(Vec::new()));
        let asks = (0..40_u64).map(|number| {
            let (agent, answered) = (agent.clone(), Arc::clone(&answered));
            tokio::spawn(async move {
                let kind = ["answer", "fail", "drop", "answer"][number as usize % 4];
                let question = format!("{kind} {} {number}", number % 3);
                if number % 8 == 7 {
                    let mut events = agent.ask(&*question).conversation(conversation()).stream();
                    while let Some(event) = events.next().await {
                        event.unwrap();
                    }
                    answered.lock().unwrap().push(question);
                    return;
                }
                let ask = agent.ask(&*question).conversation(conversation()).into_future();
                if kind == "drop" {
                    // Some are dropped while they wait for the conversation, some halfway, and some have finished.
                    if let Ok(answer) = tokio::time::timeout(Duration::from_millis(number * 3), ask).await {
                        answered.lock().unwrap().push(answer.unwrap().text().to_owned());
                    }
                    return;
                }
                match ask.await {
                    Ok(answer) => answered.lock().unwrap().push(answer.text().to_owned()),
                    Err(error) => assert!(matches!(error.kind(), RunErrorKind::Model(_)) && kind == "fail"),
                }
            })
        });
        for asked in join_all(asks).await {
            asked.unwrap();
        }
        let stored = memory.messages(&conversation()).await.unwrap();
        assert_valid(&stored);
        let blocks: Vec<_> = stored[history().len()..].chunks(BLOCK).collect();
        let mut questions: Vec<_> = blocks.iter().map(|block| block[0].text().into_owned()).collect();
        for (block, question) in blocks.iter().zip(&questions) {
            assert!(matches!(block[0], Message::User(_)) && block.len() == BLOCK);
            assert_eq!(block[BLOCK - 1].text(), **question);
        }
        // An ask that was dropped just when its messages were passed to the store may be stored, as a whole.
        let mut answered = std::mem::take(&mut *answered.lock().unwrap());
        answered.extend(questions.iter().filter(|one| one.starts_with("drop")).cloned());
        answered.sort();
        answered.dedup();
        questions.sort();
        assert_eq!(questions, answered);
        assert!(questions.iter().filter(|one| one.starts_with("answer")).count() == 20);
        stored_orders.push(questions);
    }
    assert_eq!(stored_orders.len(), 2);
}

#[tokio::test]
async fn stores_a_repeated_question_and_answer_again() {
    let model = || Puppet::new(|_, _| Ok(ChatResponse::new(AssistantMessage::text("Good morning!"))));
    for memory in memories().await {
        let agent = Agent::builder(model()).memory(memory.clone()).build().unwrap();
        // The process ends before the commit: the run has its answer and is driven on elsewhere.
        let mut run = agent.ask("Hello").conversation(conversation()).start();
        while run.advance().await.unwrap() {}
        let state = restored(run.into_run());
        assert_eq!(memory.messages(&conversation()).await.unwrap(), history());
        agent.resume(state.clone()).await.unwrap();
        let twice = [history(), history()].concat();
        assert_eq!(memory.messages(&conversation()).await.unwrap(), twice);
        // The process ends after the commit, and another ask follows before the run is driven on.
        memory.commit(&conversation(), &[Message::user("More"), Message::assistant("Yes")]).await.unwrap();
        agent.resume(state).await.unwrap();
        assert_eq!(memory.messages(&conversation()).await.unwrap().len(), twice.len() + 2);
    }
}

/// A store that refuses to write while its flag is set.
#[derive(Clone, Default)]
struct Refusing {
    store: InMemoryStore,
    refuses: Arc<AtomicBool>,
}

impl Refusing {
    fn unless_refusing<'a, T: Send + 'a>(&'a self, work: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        if self.refuses.load(Ordering::SeqCst) {
            return Box::pin(async { Err("the disk is full".into()) });
        }
        work
    }
}

impl ChatStore for Refusing {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        self.store.load(id)
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        self.unless_refusing(self.store.append(id, messages))
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        self.store.clear(id)
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        self.store.conversations()
    }
}

impl RunStore for Refusing {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        self.unless_refusing(self.store.append_run(id, expected, changes))
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        self.store.load_run(id)
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        self.store.entries(id, after, limit)
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        self.unless_refusing(self.store.remove_run(id))
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        self.store.list_runs(filter)
    }
}

#[tokio::test(start_paused = true)]
async fn stores_an_answer_once_after_a_refused_commit() {
    let store = Refusing::default();
    let memory = ChatMemory::new(store.clone());
    let agent = Agent::builder(model()).tools(tools![wait]).memory(memory.clone()).build().unwrap();
    store.refuses.store(true, Ordering::SeqCst);
    let error = agent.ask("answer 0 0").conversation(conversation()).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Store(_)), "{error}");
    assert!(memory.messages(&conversation()).await.unwrap().is_empty());
    // The conversation is free again.
    let next = agent.ask("fail 0 1").conversation(conversation()).into_future();
    assert!(matches!(
        tokio::time::timeout(Duration::from_secs(5), next).await.unwrap().unwrap_err().kind(),
        RunErrorKind::Model(_)
    ));
    store.refuses.store(false, Ordering::SeqCst);
    let state = restored(error.into_run());
    for _ in 0..2 {
        assert_eq!(agent.resume(state.clone()).await.unwrap().text(), "answer 0 0");
        assert_eq!(memory.messages(&conversation()).await.unwrap().len(), BLOCK);
    }
}

/// A call is not executed unless its start was stored.
#[tokio::test]
async fn executes_no_calls_of_a_run_that_cannot_be_stored() {
    #[tool]
    fn refuse(#[inject] store: &Refusing) {
        store.refuses.store(true, Ordering::SeqCst);
    }
    #[tool]
    fn never() {
        unreachable!("its start could not be stored")
    }
    let store = Refusing::default();
    let model = Puppet::calling(|turn| match turn {
        0 => vec![call("a", "refuse", "{}")],
        1 => vec![call("b", "never", "{}")],
        _ => vec![],
    });
    let agent = Agent::builder(model).tools(tools![refuse, never]);
    let agent = agent.context(store.clone()).run_store(store.clone()).build().unwrap();
    let error = agent.ask("What now?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Store(_)) && error.is_resumable());
    assert_eq!(error.tool_executions().len(), 1);
    // The stored state is the last one that was accepted: the one before the outcome.
    let ids = run_ids(&store).await;
    let stored = store.load_run(&ids[0]).await.unwrap().unwrap();
    assert_eq!(stored.turns(), 1);
    assert_valid(error.new_messages());
    // The run of the error continues that state, also if it was serialized meanwhile.
    store.refuses.store(false, Ordering::SeqCst);
    let agent = Agent::builder(Puppet::calling(|_| vec![])).tools(tools![refuse, never]);
    let agent = agent.context(store.clone()).run_store(store.clone()).build().unwrap();
    agent.resume(restored(error.into_run())).await.unwrap();
    assert!(run_ids(&store).await.is_empty());
}

#[tokio::test]
async fn two_stores_on_one_file_never_interleave() {
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = place.join(format!("breaking_{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    let file = place.join("store.db");
    let mut agents = Vec::new();
    for _ in 0..2 {
        let memory = ChatMemory::new(SqliteStore::open(&file).await.unwrap());
        agents.push(Agent::builder(model()).tools(tools![wait]).memory(memory).build().unwrap());
    }
    let asks = (0..8).map(|number| {
        let question = format!("answer {} {number}", number % 3);
        agents[number % 2].ask(question).conversation(conversation()).into_future()
    });
    for asked in join_all(asks).await {
        asked.unwrap();
    }
    let memory = ChatMemory::new(SqliteStore::open(&file).await.unwrap());
    let stored = memory.messages(&conversation()).await.unwrap();
    assert_valid(&stored);
    assert_eq!(stored.len(), 8 * BLOCK);
    for block in stored.chunks(BLOCK) {
        assert_eq!(block[0].text(), block[BLOCK - 1].text());
    }
    std::fs::remove_dir_all(&place).unwrap();
}
