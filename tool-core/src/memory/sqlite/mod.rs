//! A store in an SQLite file.

mod database;
mod worker;

use std::error::Error;
use std::fmt;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, TransactionBehavior, params};
use serde::de::DeserializeOwned;

use self::worker::Worker;
use super::error::Operation;
use crate::memory::{ChatStore, MemoryError, RunStore, StoreFuture};
use crate::model::{ConversationId, Message};
use crate::run::Run;

/// A store for conversations and runs in an SQLite file. Clones share it.
///
/// Several processes can use one file. Each append is one transaction, which is on disk when the future completes; a process
/// that is killed leaves all of it or nothing. A dedicated thread performs all operations, so the store needs no runtime and
/// blocks no thread of one.
///
/// The file must not be used for other data. SQLite creates two files next to it, ending in `-wal` and `-shm`; copying the
/// file while it is in use requires SQLite's own tools. Each message is a row of the table `messages`, as JSON. The state of
/// each run is a row of `runs`, with the Unix time in seconds at which it was stored.
///
/// This requires the feature `sqlite`, which compiles SQLite and needs a C compiler.
///
/// ```no_run
/// use tool_core::memory::Window;
/// use tool_core::{ChatMemory, SqliteStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = SqliteStore::open("conversations.db").await?;
/// let memory = ChatMemory::new(store).with_window(Window::tokens(8_000));
/// # let _ = memory;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteStore(Worker);

impl SqliteStore {
    /// Opens the file at a path, and creates it if it does not exist. The directory must exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or written, is not a file of this store, or was created by a newer version.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, MemoryError> {
        let path = path.as_ref().to_owned();
        let opened_path = path.clone();
        let worker = Worker::start(move || database::open(&opened_path)).await;
        worker.map(Self).map_err(|error| MemoryError::new(Operation::Open(path), error))
    }

    /// Creates a store without a file. Its contents last as long as the store or a clone of it.
    ///
    /// ```
    /// use tool_core::{ChatMemory, Message, SqliteStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let memory = ChatMemory::new(SqliteStore::in_memory().await?);
    /// memory.commit(&"user-7".into(), &[Message::user("Hello"), Message::assistant("Good morning!")]).await?;
    /// assert_eq!(memory.messages(&"user-7".into()).await?.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the memory or the thread cannot be allocated.
    pub async fn in_memory() -> Result<Self, MemoryError> {
        let worker = Worker::start(database::open_in_memory).await;
        worker.map(Self).map_err(|error| MemoryError::new(Operation::Open(":memory:".into()), error))
    }
}

impl ChatStore for SqliteStore {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        let id = id.clone();
        self.0.run(move |connection| {
            let sql = "SELECT id, message FROM messages WHERE conversation = ?1 ORDER BY id";
            let mut statement = connection.prepare(sql)?;
            let mut rows = statement.query([id.as_str()])?;
            let mut messages = Vec::new();
            while let Some(row) = rows.next()? {
                let number: i64 = row.get(0)?;
                messages.push(parse_column(row.get_ref(1)?).map_err(|location| {
                    format!(
                        "row {number} of the table `messages` is corrupt or was written by a newer version \
                         ({location}); delete the row or clear the conversation"
                    )
                })?);
            }
            Ok(messages)
        })
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let id = id.clone();
            let rows: Vec<_> = messages.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
            let append = self.0.run(move |connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let sql = "INSERT INTO messages (conversation, message) VALUES (?1, ?2)";
                let mut insert = transaction.prepare(sql)?;
                for message in rows {
                    insert.execute(params![id.as_str(), message])?;
                }
                drop(insert);
                Ok(transaction.commit()?)
            });
            append.await
        })
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        let id = id.clone();
        self.0.run(move |connection| {
            connection.execute("DELETE FROM messages WHERE conversation = ?1", [id.as_str()])?;
            Ok(())
        })
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        self.0.run(|connection| {
            let mut ids =
                connection.prepare("SELECT DISTINCT conversation FROM messages ORDER BY conversation")?;
            let ids = ids.query_map([], |row| Ok(ConversationId::from(row.get::<_, String>(0)?)))?;
            Ok(ids.collect::<Result<_, _>>()?)
        })
    }
}

impl RunStore for SqliteStore {
    fn save_run<'a>(&'a self, id: &'a str, run: &'a Run) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let (id, state) = (id.to_owned(), serde_json::to_string(run)?);
            let save = self.0.run(move |connection| {
                let sql = "INSERT INTO runs (id, state, updated) VALUES (?1, ?2, unixepoch()) \
                           ON CONFLICT (id) DO UPDATE SET state = excluded.state, updated = excluded.updated";
                connection.execute(sql, params![id, state])?;
                Ok(())
            });
            save.await
        })
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        let id = id.to_owned();
        self.0.run(move |connection| {
            let mut statement = connection.prepare("SELECT state FROM runs WHERE id = ?1")?;
            let state = statement.query_row([&id], |row| Ok(parse_column(row.get_ref(0)?))).optional()?;
            let run = state.transpose().map_err(|location| {
                let id = id.escape_debug();
                format!(
                    "the state of the run `{id}` is corrupt or was written by another version ({location}); \
                     remove the run"
                )
            })?;
            Ok(run)
        })
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        let id = id.to_owned();
        self.0.run(move |connection| {
            connection.execute("DELETE FROM runs WHERE id = ?1", [id])?;
            Ok(())
        })
    }

    fn runs(&self) -> StoreFuture<'_, Vec<String>> {
        self.0.run(|connection| {
            let mut ids = connection.prepare("SELECT id FROM runs ORDER BY id")?;
            let ids = ids.query_map([], |row| row.get(0))?;
            Ok(ids.collect::<Result<_, _>>()?)
        })
    }
}

/// Parses the JSON in a column.
///
/// # Errors
///
/// Returns the location of the error. It does not include the content, which may be a secret.
fn parse_column<T: DeserializeOwned>(value: ValueRef<'_>) -> Result<T, String> {
    let text = value.as_str().map_err(|_| "it is not text".to_owned())?;
    serde_json::from_str(text).map_err(|error| format!("line {}, column {}", error.line(), error.column()))
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

type BoxError = Box<dyn Error + Send + Sync>;
