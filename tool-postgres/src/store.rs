//! The store, and how its operations are performed.

use std::collections::HashMap;
use std::fmt;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, join_all};
use tokio::sync::OwnedMutexGuard;
use tokio::task::unconstrained;
use tokio_postgres::Client;
use tool_core::store::StoreFuture;

use crate::clients::Clients;
use crate::error::{PostgresError, PostgresErrorKind};
use crate::tables::Schema;

/// The longest time of an operation that has a connection.
const LIMIT: Duration = Duration::from_secs(30);

/// How long an operation is repeated that met a deadlock or a connection that broke, so that a server can restart.
const PATIENCE: Duration = Duration::from_secs(10);

/// The greatest length of an id. Two of them fit into a row of an index.
const MAX_ID_BYTES: usize = 1_000;

/// The number of connections of a store by default.
const MAX_CONNECTIONS: usize = 16;

#[cfg_attr(not(doctest), doc = include_str!("../docs/store.md"))]
///
/// ```no_run
/// use tool_core::{Agent, ChatMemory, ChatModel};
/// use tool_postgres::PostgresStore;
///
/// async fn agent(model: impl ChatModel + 'static, url: &str) -> Result<Agent, Box<dyn std::error::Error>> {
///     // Once per deployment; other programs write `PostgresStore::connect(url).await?`.
///     let store = PostgresStore::connect(url).migrate().await?;
///     Ok(Agent::builder(model).memory(ChatMemory::new(store.clone())).run_store(store).build()?)
/// }
/// ```
#[derive(Clone)]
pub struct PostgresStore(Arc<Shared>);

struct Shared {
    clients: Clients,
    schema: Schema,
    /// The keys whose operations are in progress or wait.
    in_progress: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

/// How a [`PostgresStore`] is connected. Awaiting it connects, and checks that the tables are there in this version; nothing is changed.
#[must_use = "nothing is connected until it is awaited"]
pub struct Connect {
    source: Source,
    schema: String,
    max_connections: usize,
}

enum Source {
    Url(String),
    Clients(Clients),
}

impl PostgresStore {
    /// Connects to a database by its URL, such as `postgres://user:password@host:5432/database?sslmode=require`. `sslmode` is `prefer` by default;
    /// certificates are checked by the rules of the platform wherever the connection is encrypted. `verify-ca` and `verify-full` mean the same as
    /// `require`. If the URL names several servers, the store uses the one that accepts writes.
    pub fn connect(url: impl Into<String>) -> Connect {
        Connect::new(Source::Url(url.into()))
    }

    /// Uses connections of the program: each operation asks the function for one, and drops it when it is done. The types are those of
    /// [`tokio_postgres`](crate::tokio_postgres). The limits of time and number are the program's.
    ///
    /// ```no_run
    /// # async fn sample(url: &'static str) -> Result<(), Box<dyn std::error::Error>> {
    /// use tool_postgres::PostgresStore;
    /// use tool_postgres::tokio_postgres::{self, NoTls};
    ///
    /// let store = PostgresStore::from_clients(move || async move {
    ///     let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    ///     tokio::spawn(connection);
    ///     Ok::<_, tokio_postgres::Error>(Box::new(client))
    /// });
    /// let store = store.schema("agents").await?;
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_clients<C, E, F>(lend: impl Fn() -> F + Send + Sync + 'static) -> Connect
    where
        C: DerefMut<Target = Client> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
        F: Future<Output = Result<C, E>> + Send + 'static,
    {
        Connect::new(Source::Clients(Clients::of_program(lend)))
    }

    pub(crate) fn sql(&self, statement: &str) -> String {
        self.0.schema.sql(statement)
    }

    /// Performs an operation behind those of the same key that were started earlier, also if its future is dropped: the next one sees what
    /// it has done.
    pub(crate) fn perform<'a, V: Send + Sync + 'static, T: Send + 'static>(
        &'a self,
        key: Key,
        values: V,
        operation: impl for<'c> Fn(&'c Client, &'c V, Attempt) -> BoxFuture<'c, Result<T, PostgresError>>
        + Send
        + Sync
        + 'static,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let (store, turn) = (self.clone(), self.turn_of(key));
            let performed = tokio::spawn(async move {
                let _turns = turn.await;
                store.perform_now(&values, operation).await
            });
            match performed.await {
                Ok(result) => result.map_err(Into::into),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {
                    let message = "the runtime has ended during the operation";
                    Err(PostgresError::new(PostgresErrorKind::Connection, message).in_doubt().into())
                }
            }
        })
    }

    async fn perform_now<V, T>(
        &self,
        values: &V,
        operation: impl for<'c> Fn(&'c Client, &'c V, Attempt) -> BoxFuture<'c, Result<T, PostgresError>>,
    ) -> Result<T, PostgresError> {
        let (started, mut is_repeated, mut pauses) = (Instant::now(), false, 0_u32);
        loop {
            let result = match self.0.clients.get().await {
                Ok(mut connection) => {
                    let Some(client) = connection.client() else { continue };
                    let performing = operation(client, values, Attempt { is_repeated });
                    let result = tokio::time::timeout(LIMIT, performing).await;
                    let result = result.unwrap_or_else(|_| Err(PostgresError::timeout(LIMIT)));
                    if !result.as_ref().is_err_and(PostgresError::is_of_connection) {
                        connection.give_back();
                    }
                    result
                }
                Err(error) => Err(error),
            };
            let error = match result {
                Ok(done) => return Ok(done),
                // An earlier attempt can have been done.
                Err(error) if is_repeated => error.in_doubt(),
                Err(error) => error,
            };
            let was_not_done = error.was_done() == Some(false);
            let repeats = match error.kind() {
                // The operation finds out whether it was done.
                PostgresErrorKind::Connection | PostgresErrorKind::ReadOnly => true,
                _ => error.is_of_transaction(),
            };
            if !repeats || started.elapsed() > PATIENCE {
                return Err(error);
            }
            is_repeated |= !was_not_done;
            // A server that restarts is there again in a moment.
            let pause = fastrand::u64(10..50) << pauses.min(5);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            pauses += 1;
        }
    }

    /// Takes the place of an operation behind those of its key that were started earlier, also if the future is not awaited yet.
    fn turn_of(&self, key: Key) -> impl Future<Output = Vec<OwnedMutexGuard<()>>> + Send + 'static {
        let mut locks = self.0.in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_all = matches!(key, Key::All);
        let awaited: Vec<Arc<tokio::sync::Mutex<()>>> = match key {
            Key::All => locks.values().filter_map(Weak::upgrade).collect(),
            Key::One(key) => {
                let lock = locks.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
                    // What is done occupies no memory for long.
                    if locks.len() >= 64 && locks.len().is_power_of_two() {
                        locks.retain(|_, lock| lock.strong_count() > 0);
                    }
                    let lock = Arc::default();
                    locks.insert(key, Arc::downgrade(&lock));
                    lock
                });
                vec![lock]
            }
        };
        // A lock keeps the places of futures that were polled.
        let turn = join_all(awaited.into_iter().map(tokio::sync::Mutex::lock_owned));
        let mut turn = Box::pin(unconstrained(turn));
        let first = (&mut turn).now_or_never();
        drop(locks);
        async move {
            let turns = match first {
                Some(turns) => turns,
                None => turn.await,
            };
            // What reads all keeps nobody waiting.
            if is_of_all { Vec::new() } else { turns }
        }
    }
}

/// What operations are ordered by.
pub(crate) enum Key {
    One(String),
    /// Behind all that were started earlier, and before none.
    All,
}

impl Key {
    /// Leases as well: one that is released while its driver is dropped is free for the next who looks.
    pub(crate) fn run(id: &str) -> Self {
        Self::One(format!("run {id}"))
    }

    pub(crate) fn conversation(id: &str) -> Self {
        Self::One(format!("conversation {id}"))
    }

    pub(crate) fn budget(key: &str) -> Self {
        Self::One(format!("budget {key}"))
    }
}

/// Which attempt of an operation it is.
#[derive(Clone, Copy)]
pub(crate) struct Attempt {
    /// An earlier one may have been done.
    pub(crate) is_repeated: bool,
}

/// Performs statements in one transaction, which waits for others only for a while. It is not done unless its end was sent.
pub(crate) async fn transaction<T>(
    client: &Client,
    statements: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '10s'; \
                         SET LOCAL statement_timeout = '25s'; SET LOCAL idle_in_transaction_session_timeout = '30s'";
    perform_between(BEGIN, client, statements).await
}

/// Performs queries that read one state, whatever others change meanwhile.
pub(crate) async fn snapshot<T>(
    client: &Client,
    queries: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    perform_between("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", client, queries).await
}

async fn perform_between<T>(
    begin: &str,
    client: &Client,
    statements: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    // The first statement is sent behind the beginning without waiting for it.
    let (begun, result) = join(client.batch_execute(begin), statements).await;
    match begun.map_err(PostgresError::from).and(result) {
        Ok(result) => {
            client.batch_execute("COMMIT").await?;
            Ok(result)
        }
        Err(error) => {
            if let Err(broken) = client.batch_execute("ROLLBACK").await {
                // Whatever it was, the connection is of no further use.
                return Err(if error.is_of_connection() {
                    error.not_done()
                } else {
                    PostgresError::from(broken).not_done()
                });
            }
            Err(error.not_done())
        }
    }
}

/// Returns the form in which an id is stored, because the database stores no NUL. Fails if it cannot be indexed.
pub(crate) fn stored_id(id: &str) -> Result<String, PostgresError> {
    let stored = id.replace('\\', r"\\").replace('\0', r"\0");
    if stored.len() > MAX_ID_BYTES {
        let message = format!("an id has more than {MAX_ID_BYTES} bytes, which the database does not index");
        return Err(PostgresError::new(PostgresErrorKind::Value, message));
    }
    Ok(stored)
}

/// Returns the id that is stored in this form.
pub(crate) fn read_id(stored: &str) -> String {
    let mut id = String::with_capacity(stored.len());
    let mut characters = stored.chars();
    while let Some(character) = characters.next() {
        id.push(match character {
            '\\' if characters.next() == Some('0') => '\0',
            character => character,
        });
    }
    id
}

impl Connect {
    fn new(source: Source) -> Self {
        Self { source, schema: "agents".to_owned(), max_connections: MAX_CONNECTIONS }
    }

    /// Sets the schema that has the tables, `agents` by default.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// Sets the greatest number of connections at the same time, 16 by default. Not for connections of the program.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Connects, and creates the schema and the tables, or updates those of an earlier version, in one transaction. Programs that do so at the same
    /// time wait for each other. It needs a role that may create tables.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be reached, if the role may not create the tables, or if they are of a later version.
    pub async fn migrate(self) -> Result<PostgresStore, PostgresError> {
        let store = self.store()?;
        // To its end, also if this future is dropped.
        let migrating = tokio::spawn(async move {
            let mut connection = store.0.clients.get().await?;
            if let Some(client) = connection.client() {
                store.0.schema.migrate(client).await?;
            }
            connection.give_back();
            Ok(store)
        });
        migrating.await.unwrap_or_else(|_| {
            let message = "the runtime has ended during the migration";
            Err(PostgresError::new(PostgresErrorKind::Connection, message).in_doubt())
        })
    }

    fn store(self) -> Result<PostgresStore, PostgresError> {
        let clients = match self.source {
            Source::Url(url) => Clients::connect(&url, self.max_connections)?,
            Source::Clients(clients) => clients,
        };
        let schema = Schema::new(&self.schema)?;
        Ok(PostgresStore(Arc::new(Shared { clients, schema, in_progress: Mutex::default() })))
    }
}

impl IntoFuture for Connect {
    type Output = Result<PostgresStore, PostgresError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let store = self.store()?;
            let mut connection = store.0.clients.get().await?;
            if let Some(client) = connection.client() {
                store.0.schema.check(client).await?;
            }
            connection.give_back();
            Ok(store)
        })
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("schema", &self.0.schema).finish_non_exhaustive()
    }
}

/// Omits the URL, which can contain a password.
impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stored_without_nul() {
        for id in ["", "user-7", "a\0b", r"a\0b", r"\\", "\\\0\0\\", r"c:\desk\07"] {
            let stored = stored_id(id).unwrap();
            assert!(!stored.contains('\0'));
            assert_eq!(read_id(&stored), id);
        }
        assert_eq!(stored_id(&"x".repeat(1_001)).unwrap_err().kind(), PostgresErrorKind::Value);
    }
}
