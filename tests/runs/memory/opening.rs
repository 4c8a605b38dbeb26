//! Exclusive access to conversations, and the errors of stores.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tests::support::stores::postgres;
use tool_core::memory::{InMemoryStore, MemoryError, MemoryErrorKind, Window};
use tool_core::model::{AssistantMessage, ConversationId};
use tool_core::signatures::OpenConversation;
use tool_core::store::{ChatStore, StoreFuture};
use tool_core::{ChatMemory, Message, SqliteStore, ToolCall};

fn id() -> ConversationId {
    ConversationId::new("user-7")
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| message.text().into_owned()).collect()
}

#[test]
fn a_memory_is_send_and_sync() {
    fn is_send_sync<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    fn is_send<T: Send>(_: T) {}
    let memory = is_send_sync(ChatMemory::in_memory());
    let id = id();
    is_send(memory.open(&id));
    is_send(memory.commit(&id, &[]));
    is_send(memory.messages(&id));
    is_send(memory.replace(&id, &[]));
    is_send(memory.clear(&id));
    is_send(memory.conversations());
    let open: Option<OpenConversation> = is_send_sync(None);
    is_send(open.map(|open| open.commit(&[])));
    is_send_sync(None::<MemoryError>);
}

#[tokio::test]
async fn committed_messages_are_in_the_next_open_conversation() {
    let memory = ChatMemory::in_memory();
    let open = memory.open(&id()).await.unwrap();
    assert_eq!((open.id(), open.messages()), (&id(), &[][..]));
    open.commit(&[Message::user("a"), Message::assistant("b")]).await.unwrap();
    memory.commit(&id(), &[Message::user("c")]).await.unwrap();
    memory.commit(&ConversationId::new("another"), &[Message::user("x")]).await.unwrap();
    // An empty commit creates no conversation.
    memory.commit(&ConversationId::new("empty"), &[]).await.unwrap();
    let open = memory.clone().open(&id()).await.unwrap();
    assert_eq!(texts(open.messages()), ["a", "b", "c"]);
    drop(open);
    assert_eq!(memory.conversations().await.unwrap(), [ConversationId::new("another"), id()]);
    memory.clear(&id()).await.unwrap();
    assert_eq!(memory.messages(&id()).await.unwrap(), []);
    assert_eq!(memory.conversations().await.unwrap(), [ConversationId::new("another")]);
}

#[tokio::test]
async fn replaces_the_messages_of_a_conversation() {
    // The faulty store has the default, which clears and appends.
    let sqlite = SqliteStore::open(":memory:").await.unwrap();
    let memories = [ChatMemory::in_memory(), ChatMemory::new(sqlite), ChatMemory::new(Faulty::default())];
    for memory in memories.into_iter().chain(postgres().await.map(ChatMemory::new)) {
        let other = ConversationId::new("another");
        memory.commit(&other, &[Message::user("x")]).await.unwrap();
        memory.commit(&id(), &["a", "b", "c"].map(Message::user)).await.unwrap();
        let messages = memory.messages(&id()).await.unwrap();
        memory.replace(&id(), &messages[..1]).await.unwrap();
        assert_eq!(texts(&memory.messages(&id()).await.unwrap()), ["a"]);
        let open = memory.open(&id()).await.unwrap();
        assert!(memory.replace(&id(), &[]).now_or_never().is_none(), "the conversation is open");
        drop(open);
        memory.replace(&id(), &[]).await.unwrap();
        assert_eq!(memory.conversations().await.unwrap(), [other]);
    }
}

/// A store that replaces all messages at once, and cannot do so in two steps.
#[derive(Default)]
struct Replacing(InMemoryStore);

impl ChatStore for Replacing {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        self.0.load(id)
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        self.0.append(id, messages)
    }

    fn replace<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        self.0.replace(id, messages)
    }

    fn clear<'a>(&'a self, _: &'a ConversationId) -> StoreFuture<'a, ()> {
        Box::pin(async { Err("cleared first".into()) })
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        self.0.conversations()
    }
}

#[tokio::test]
async fn a_shared_store_replaces_messages_at_once() {
    let memory = ChatMemory::new(Arc::new(Replacing::default()));
    memory.commit(&id(), &["a", "b"].map(Message::user)).await.unwrap();
    memory.replace(&id(), &[Message::user("c")]).await.unwrap();
    assert_eq!(texts(&memory.messages(&id()).await.unwrap()), ["c"]);
}

#[tokio::test]
async fn dropping_an_open_conversation_changes_nothing() {
    let memory = ChatMemory::in_memory();
    drop(memory.open(&id()).await.unwrap());
    drop(memory.open(&id()).await.unwrap().commit(&[Message::user("a")]));
    assert_eq!(memory.messages(&id()).await.unwrap(), []);
    memory.open(&id()).now_or_never().expect("the conversation is free").unwrap();
}

#[tokio::test]
async fn an_open_conversation_blocks_writers_but_not_readers() {
    let memory = ChatMemory::in_memory();
    memory.commit(&id(), &[Message::user("a")]).await.unwrap();
    let open = memory.open(&id()).await.unwrap();
    let other = memory.clone().window(Window::messages(9));
    assert!(other.open(&id()).now_or_never().is_none());
    assert!(other.commit(&id(), &[Message::user("x")]).now_or_never().is_none());
    assert!(other.clear(&id()).now_or_never().is_none());
    assert_eq!(other.messages(&id()).now_or_never().unwrap().unwrap().len(), 1);
    assert!(other.open(&ConversationId::new("another")).now_or_never().is_some());
    open.commit(&[Message::user("b")]).await.unwrap();
    let open = other.open(&id()).now_or_never().expect("the conversation is free").unwrap();
    assert_eq!(texts(open.messages()), ["a", "b"], "cancelled operations have no effect");
}

#[tokio::test]
async fn a_history_is_repaired_before_the_window_applies_and_stored_unchanged() {
    let (store, memory) = {
        let store = InMemoryStore::new();
        (store.clone(), ChatMemory::new(store).window(Window::messages(2)))
    };
    let calls = AssistantMessage::default().with_tool_calls([ToolCall::new("1", "sum", "{}")]);
    let broken = [Message::system("s"), Message::user("a"), Message::Assistant(calls)];
    memory.commit(&id(), &broken).await.unwrap();
    // The call and its inserted result form one group, which does not fit beside the system message.
    assert_eq!(texts(memory.open(&id()).await.unwrap().messages()), ["s"]);
    let all = memory.messages(&id()).await.unwrap();
    assert_eq!(texts(&all), ["s", "a", "", "the call was interrupted before a result was produced"]);
    assert_eq!(store.load(&id()).await.unwrap(), broken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_turns_never_interleave() {
    let mut stores: Vec<(&str, Arc<dyn ChatStore>)> = vec![
        ("in memory", Arc::new(InMemoryStore::new())),
        ("sqlite", Arc::new(tool_core::SqliteStore::in_memory().await.unwrap())),
    ];
    stores.extend(postgres().await.map(|store| ("postgres", Arc::new(store) as _)));
    for (name, store) in stores {
        let memory = ChatMemory::new(store);
        let inside = Arc::new(AtomicUsize::new(0));
        let tasks = (0..100_usize).map(|task| {
            let (memory, inside) = (memory.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                let open = memory.open(&id()).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                let seen = open.messages().len();
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                match task % 3 {
                    0 => drop(open),
                    _ => {
                        let text = format!("{task} saw {seen}");
                        open.commit(&[Message::user(&*text), Message::assistant(text)]).await.unwrap();
                    }
                }
            })
        });
        for task in join_all(tasks).await {
            task.unwrap();
        }
        let messages = memory.messages(&id()).await.unwrap();
        assert_eq!(messages.len(), 2 * 66, "{name}");
        for (index, turn) in messages.chunks(2).enumerate() {
            assert_eq!(turn[0].text(), turn[1].text(), "{name}");
            assert!(turn[0].text().ends_with(&format!(" saw {}", 2 * index)), "{name}: {}", turn[0].text());
        }
    }
}

/// A store in memory whose configured operation fails, or in which all operations hang.
#[derive(Clone, Default)]
struct Faulty {
    store: InMemoryStore,
    fault: Arc<Mutex<Option<&'static str>>>,
}

impl Faulty {
    async fn check(&self, operation: &'static str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let fault = *self.fault.lock().unwrap();
        match fault {
            Some("hang") => pending().await,
            Some(fault) if fault == operation => Err(std::io::Error::other("the disk is gone").into()),
            _ => Ok(()),
        }
    }
}

impl ChatStore for Faulty {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        Box::pin(async move {
            self.check("load").await?;
            self.store.load(id).await
        })
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.check("append").await?;
            self.store.append(id, messages).await
        })
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.check("clear").await?;
            self.store.clear(id).await
        })
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        Box::pin(async move {
            self.check("conversations").await?;
            self.store.conversations().await
        })
    }
}

#[tokio::test]
async fn an_error_names_the_operation_and_frees_the_conversation() {
    let store = Faulty::default();
    let memory = ChatMemory::new(store.clone());
    let id = ConversationId::new("user\n7");
    let table = [
        ("load", "could not load the conversation `user\\n7`: the disk is gone", MemoryErrorKind::Load),
        (
            "append",
            "could not add messages to the conversation `user\\n7`: the disk is gone",
            MemoryErrorKind::Commit,
        ),
        (
            "replace",
            "could not replace the messages of the conversation `user\\n7`: the disk is gone",
            MemoryErrorKind::Replace,
        ),
        ("clear", "could not clear the conversation `user\\n7`: the disk is gone", MemoryErrorKind::Clear),
        ("conversations", "could not list the conversations: the disk is gone", MemoryErrorKind::List),
    ];
    for (operation, text, kind) in table {
        *store.fault.lock().unwrap() = Some(if operation == "replace" { "clear" } else { operation });
        let result = match operation {
            "load" => memory.open(&id).await.map(drop),
            "append" => memory.open(&id).await.unwrap().commit(&[Message::user("a")]).await,
            "replace" => memory.replace(&id, &[Message::user("a")]).await,
            "clear" => memory.clear(&id).await,
            _ => memory.conversations().await.map(drop),
        };
        let error = result.unwrap_err();
        assert_eq!((error.to_string(), format!("{error:?}")), (text.to_owned(), text.to_owned()));
        assert_eq!(error.kind(), kind);
        assert_eq!(error.conversation(), (operation != "conversations").then_some(&id));
        assert!(error.store_error().is::<std::io::Error>());
        *store.fault.lock().unwrap() = None;
        assert_eq!(
            memory.open(&id).now_or_never().expect("the conversation is free").unwrap().messages(),
            []
        );
    }
}

#[tokio::test]
async fn dropping_a_future_frees_the_conversation() {
    let store = Faulty::default();
    let memory = ChatMemory::new(store.clone());
    let added = [Message::user("a")];
    for is_commit in [false, true] {
        let open = if is_commit { Some(memory.open(&id()).await.unwrap()) } else { None };
        *store.fault.lock().unwrap() = Some("hang");
        let operation = async {
            match open {
                Some(open) => open.commit(&added).await,
                None => memory.open(&id()).await.map(drop),
            }
        };
        assert!(operation.now_or_never().is_none(), "the operation hangs");
        *store.fault.lock().unwrap() = None;
        let open = memory.open(&id()).now_or_never().expect("the conversation is free").unwrap();
        assert_eq!(open.messages(), []);
    }
}

#[tokio::test]
async fn debug_output_contains_no_text() {
    let store = InMemoryStore::new();
    let memory = ChatMemory::new(store.clone()).window(Window::messages(3));
    memory.commit(&id(), &[Message::user("secret")]).await.unwrap();
    let open = memory.open(&id()).await.unwrap();
    assert_eq!(format!("{store:?}"), "InMemoryStore { conversations: 1, runs: 0 }");
    assert_eq!(format!("{memory:?}"), "ChatMemory { window: Some(Window(3, messages)), .. }");
    assert_eq!(format!("{open:?}"), r#"OpenConversation { id: ConversationId("user-7"), messages: 1, .. }"#);
}
