//! One ask at a time: who has a conversation open, and what becomes of it.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tool_core::{
    AssistantMessage, ChatMemory, ChatStore, ConversationId, InMemoryStore, MemoryError, Message,
    OpenConversation, Run, RunStore, StoreFuture, ToolCall, Window,
};

fn id() -> ConversationId {
    ConversationId::new("user-7")
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| message.text().into_owned()).collect()
}

#[test]
fn a_memory_is_send_and_sync() {
    fn is<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    fn is_send<T: Send>(_: T) {}
    let memory = is(ChatMemory::in_memory());
    let (id, id_of_clear) = (id(), id());
    is_send(memory.open(&id));
    is_send(memory.commit(&id, &[]));
    is_send(memory.messages(&id));
    is_send(memory.clear(&id_of_clear));
    is_send(memory.conversations());
    let open: Option<OpenConversation> = is(None);
    is_send(open.map(|open| open.commit(&[])));
    is(None::<MemoryError>);
}

#[tokio::test]
async fn what_is_committed_is_there_for_the_next() {
    let memory = ChatMemory::in_memory();
    let open = memory.open(&id()).await.unwrap();
    assert_eq!((open.id(), open.messages()), (&id(), &[][..]));
    open.commit(&[Message::user("a"), Message::assistant("b")]).await.unwrap();
    memory.commit(&id(), &[Message::user("c")]).await.unwrap();
    memory.commit(&ConversationId::new("another"), &[Message::user("x")]).await.unwrap();
    // Nothing to add is no conversation.
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
async fn dropping_an_open_conversation_changes_nothing() {
    let memory = ChatMemory::in_memory();
    drop(memory.open(&id()).await.unwrap());
    drop(memory.open(&id()).await.unwrap().commit(&[Message::user("a")]));
    assert_eq!(memory.messages(&id()).await.unwrap(), []);
    memory.open(&id()).now_or_never().expect("it is free").unwrap();
}

#[tokio::test]
async fn who_changes_a_conversation_waits_until_it_is_closed_and_who_reads_does_not() {
    let memory = ChatMemory::in_memory();
    memory.commit(&id(), &[Message::user("a")]).await.unwrap();
    let open = memory.open(&id()).await.unwrap();
    let other = memory.clone().with_window(Window::messages(9));
    assert!(other.open(&id()).now_or_never().is_none());
    assert!(other.commit(&id(), &[Message::user("x")]).now_or_never().is_none());
    assert!(other.clear(&id()).now_or_never().is_none());
    assert_eq!(other.messages(&id()).now_or_never().unwrap().unwrap().len(), 1);
    assert!(other.open(&ConversationId::new("another")).now_or_never().is_some());
    open.commit(&[Message::user("b")]).await.unwrap();
    let open = other.open(&id()).now_or_never().expect("it is free").unwrap();
    assert_eq!(texts(open.messages()), ["a", "b"], "who gave up has changed nothing");
}

#[tokio::test]
async fn a_history_is_repaired_before_it_is_cut_and_kept_as_it_was() {
    let (store, memory) = {
        let store = InMemoryStore::new();
        (store.clone(), ChatMemory::new(store).with_window(Window::messages(2)))
    };
    let calls = AssistantMessage::default().with_tool_calls([ToolCall::new("1", "sum", "{}")]);
    let broken = [Message::system("s"), Message::user("a"), Message::Assistant(calls)];
    memory.commit(&id(), &broken).await.unwrap();
    // The call and what stands for its result are one, for which there is no room beside the system message.
    assert_eq!(texts(memory.open(&id()).await.unwrap().messages()), ["s"]);
    let all = memory.messages(&id()).await.unwrap();
    assert_eq!(texts(&all), ["s", "a", "", "the call was interrupted before a result was produced"]);
    assert_eq!(store.load(&id()).await.unwrap(), broken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn asks_at_once_never_interleave() {
    let stores: [(&str, Arc<dyn ChatStore>); 2] = [
        ("in memory", Arc::new(InMemoryStore::new())),
        ("sqlite", Arc::new(tool_core::SqliteStore::in_memory().await.unwrap())),
    ];
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
                        let said = format!("{task} saw {seen}");
                        open.commit(&[Message::user(&*said), Message::assistant(said)]).await.unwrap();
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

/// Fails or hangs where it is told to, and keeps the rest.
#[derive(Clone, Default)]
struct Faulty {
    store: InMemoryStore,
    fault: Arc<Mutex<Option<&'static str>>>,
}

impl Faulty {
    async fn at(&self, place: &'static str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let fault = *self.fault.lock().unwrap();
        match fault {
            Some("hang") => pending().await,
            Some(fault) if fault == place => Err(std::io::Error::other("the disk is gone").into()),
            _ => Ok(()),
        }
    }
}

impl ChatStore for Faulty {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        Box::pin(async move {
            self.at("load").await?;
            self.store.load(id).await
        })
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.at("append").await?;
            self.store.append(id, messages).await
        })
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.at("clear").await?;
            self.store.clear(id).await
        })
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        Box::pin(async move {
            self.at("conversations").await?;
            self.store.conversations().await
        })
    }
}

#[tokio::test]
async fn an_error_says_what_failed_on_which_conversation_and_frees_it() {
    let store = Faulty::default();
    let memory = ChatMemory::new(store.clone());
    let id = ConversationId::new("user\n7");
    type Is = fn(&MemoryError) -> bool;
    let table: [(&str, &str, Is); 4] = [
        ("load", "the conversation `user\\n7` could not be loaded: the disk is gone", MemoryError::is_load),
        (
            "append",
            "the conversation `user\\n7` could not be added to: the disk is gone",
            MemoryError::is_commit,
        ),
        (
            "clear",
            "the conversation `user\\n7` could not be cleared: the disk is gone",
            MemoryError::is_clear,
        ),
        ("conversations", "the conversations could not be listed: the disk is gone", MemoryError::is_list),
    ];
    for (place, text, is) in table {
        *store.fault.lock().unwrap() = Some(place);
        let failed = match place {
            "load" => memory.open(&id).await.map(drop),
            "append" => memory.open(&id).await.unwrap().commit(&[Message::user("a")]).await,
            "clear" => memory.clear(&id).await,
            _ => memory.conversations().await.map(drop),
        };
        let error = failed.unwrap_err();
        assert_eq!((error.to_string(), format!("{error:?}")), (text.to_owned(), text.to_owned()));
        assert_eq!(table.map(|(_, _, is)| is(&error)).iter().filter(|is| **is).count(), 1);
        assert!(is(&error) && !error.is_open());
        assert_eq!(error.conversation(), (place != "conversations").then_some(&id));
        assert!(error.store_error().is::<std::io::Error>());
        *store.fault.lock().unwrap() = None;
        assert_eq!(memory.open(&id).now_or_never().expect("it is free").unwrap().messages(), []);
    }
}

#[tokio::test]
async fn a_future_that_is_dropped_frees_the_conversation() {
    let store = Faulty::default();
    let memory = ChatMemory::new(store.clone());
    let added = [Message::user("a")];
    for is_commit in [false, true] {
        let open = if is_commit { Some(memory.open(&id()).await.unwrap()) } else { None };
        *store.fault.lock().unwrap() = Some("hang");
        let under_way = async {
            match open {
                Some(open) => open.commit(&added).await,
                None => memory.open(&id()).await.map(drop),
            }
        };
        assert!(under_way.now_or_never().is_none(), "it hangs");
        *store.fault.lock().unwrap() = None;
        let open = memory.open(&id()).now_or_never().expect("it is free").unwrap();
        assert_eq!(open.messages(), []);
    }
}

#[tokio::test]
async fn runs_are_kept_under_ids() {
    let stores: [(&str, Arc<dyn RunStore>); 2] = [
        ("in memory", Arc::new(InMemoryStore::new())),
        ("sqlite", Arc::new(tool_core::SqliteStore::in_memory().await.unwrap())),
    ];
    for (name, store) in stores {
        let run = Run::new([Message::user("a")]).with_conversation("user-7");
        assert!(store.load_run("b").await.unwrap().is_none(), "{name}");
        for id in ["b", "", "a'; DROP TABLE runs; --\0x"] {
            store.save_run(id, &run).await.unwrap();
        }
        store.save_run("b", &Run::new([Message::user("b")])).await.unwrap();
        assert_eq!(store.runs().await.unwrap(), ["", "a'; DROP TABLE runs; --\0x", "b"], "{name}");
        let kept = store.load_run("b").await.unwrap().unwrap();
        assert_eq!((kept.messages()[0].text(), kept.conversation()), ("b".into(), None), "{name}");
        let kept = store.load_run("").await.unwrap().unwrap();
        assert_eq!((kept.messages()[0].text(), kept.conversation()), ("a".into(), Some(&id())), "{name}");
        store.remove_run("b").await.unwrap();
        store.remove_run("b").await.unwrap();
        assert!(store.load_run("b").await.unwrap().is_none(), "{name}");
        assert_eq!(store.runs().await.unwrap().len(), 2, "{name}");
    }
}

#[tokio::test]
async fn debug_tells_no_text() {
    let store = InMemoryStore::new();
    let memory = ChatMemory::new(store.clone()).with_window(Window::messages(3));
    memory.commit(&id(), &[Message::user("secret")]).await.unwrap();
    let open = memory.open(&id()).await.unwrap();
    assert_eq!(format!("{store:?}"), "InMemoryStore { conversations: 1, runs: 0 }");
    assert_eq!(format!("{memory:?}"), "ChatMemory { window: Some(Window(3, messages)), .. }");
    assert_eq!(format!("{open:?}"), r#"OpenConversation { id: ConversationId("user-7"), messages: 1, .. }"#);
}
